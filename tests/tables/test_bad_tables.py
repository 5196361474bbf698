"""Tables that cannot be used end in one line that says where and what to do, and exit code 2."""

import io
import re
import sys

import numpy as np
import polars
import pytest
from click.testing import CliRunner

from grd_offline import DataError, from_dataframe, read
from grd_offline.cli.program import cli, run
from grd_offline.io.datasets import open_recording
from grd_offline.io.tables.results import find_columns

HEADER = "episode,step,x,y,return\n"
GOOD = "a,0,1,2,5\na,1,2,3,5\nb,0,4,5,6\nb,1,6,7,6\n"
BAD = {
    "empty file": ("", "is empty"),
    "only blank lines": ("\n\n", "is empty"),
    "header only": (HEADER, "no rows"),
    "ragged, short": (HEADER + "a,0,1,2\n", "row 2: 4 cells, the row of names has 5"),
    "ragged, long": (HEADER + GOOD + "b,2,1,2,6,9\n", "row 6: 6 cells"),
    "mixed types": (HEADER + GOOD + "c,0,fast,1,1\n", "column x: row 6: 'fast' is not a number"),
    "formula": (HEADER + GOOD + "c,0,=A1+B2,1,1\n", "is a formula"),
    "formulas everywhere": (HEADER + "a,0,=A1,1,1\na,1,=B1,1,1\n", "is a formula"),
    "duplicate steps": (
        HEADER + GOOD + "a,1,9,9,5\n",
        "column step: episode a has step 1 twice, in rows 3 and 6",
    ),
    "no outcome column": ("episode,x\na,1\na,2\n", "no column holds rewards or outcomes"),
    "missing outcome": (HEADER + GOOD + "c,0,1,1,\n", "1 of 3 episodes has no outcome: c; add"),
    "NaN outcome": (HEADER + GOOD + "c,0,1,1,nan\n", "1 of 3 episodes has no outcome: c; add"),
    "words as outcomes": (
        HEADER + "a,0,1,2,renewed\nb,0,2,3,cancelled\n",
        "column return: row 2: 'renewed' is not a number; an outcome is a number: write 1 for",
    ),
    "outcome that differs": (
        HEADER + "a,0,1,2,5\na,1,2,3,6\n",
        "column return: episode a has outcomes from 5 to 6",
    ),
    "no episode column": ("x,reward\n1,2\n", "no column tells the episodes apart"),
    "missing values": (
        HEADER + "a,0,,2,5\na,1,2,NA,5\n",
        "2 empty cells: row 2 of x, row 3 of y; fill them",
    ),
    "missing step": (HEADER + "a,,1,2,5\na,1,2,2,5\n", "row 2 of step"),
    "missing episode": (HEADER + ",0,1,2,5\na,1,2,2,5\n", "row 2 of episode"),
    "two columns of one name": ("episode,x,x,return\na,1,1,1\n", "two columns are called x"),
    "numbers for names": ("1,2,3\n4,5,6\n", "the first row holds numbers"),
    "too many texts": (
        "episode,name,return\n" + "".join(f"a,n{i},1\n" for i in range(150)),
        "column name: row 102: more than 100 different texts",
    ),
    "too large": (HEADER + "a,0,1e30,2,5\n", "column x: row 2: 1e+30 is too large"),
    "no inputs": ("episode,step,return\na,0,1\n", "no column is left for observations"),
    "text as step": (
        "episode,step,x,return\na,first,1,1\na,second,2,1\n",
        "column step: row 2: 'first' is not a time that is read: write times as 2024-03-01 08:51",
    ),
    "note for Excel": ("sep=;\nepisode;x;return\n1;2;3\n", "a note for Excel, sep=: remove"),
    "packed file": ("PK\x03\x04...", "is a spreadsheet or a packed file"),
    "Parquet file": ("PAR1...", "is a Parquet file: give it the ending .parquet"),
    "quote without end": (HEADER + 'a,0,"1,2,5\n', "is not a CSV file that can be read"),
}


def fail(capsys, *arguments):
    """Run the command, which has to fail with one line; the line."""
    assert run([str(argument) for argument in arguments]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    (error,) = [line for line in lines if not line.endswith("s  reading the data")]  # progress
    assert error.startswith("grd-offline: error: ")
    return error


@pytest.mark.parametrize("case", BAD)
def test_a_bad_table_ends_in_one_line(case, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("grd_offline.io.tables.sources.BLOCK_BYTES", 60)
    text, message = BAD[case]
    path = tmp_path / "bad.csv"
    path.write_text(text)
    columns = [] if "step" in text.splitlines()[:1] or case != "text as step" else [
        "--columns", "step=step"]  # fmt: skip
    line = fail(capsys, "inspect", path, *columns)
    assert message in line
    assert "bad.csv" in line


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (HEADER.encode() + "a,0,1,2,5\nä,0,1,2,5\n".encode("latin-1"), "is not UTF-8 text"),
        ((HEADER + GOOD).encode("utf-16"), "is not UTF-8 text (byte 0xff)"),
        (HEADER.encode() + b"a,0,\x00,2,5\n", "is not text"),
    ],
    ids=["latin-1", "UTF-16", "zero byte"],
)
def test_another_encoding_ends_in_one_line(data, message, tmp_path, capsys):
    path = tmp_path / "bad.csv"
    path.write_bytes(data)
    assert message in fail(capsys, "inspect", path)


def test_a_file_that_is_not_there_ends_in_one_line(tmp_path, capsys):
    assert "no such file" in fail(capsys, "inspect", tmp_path / "none.csv")


def test_one_episode_cannot_be_decomposed(tmp_path, capsys):
    path = tmp_path / "one.csv"
    path.write_text(HEADER + "a,0,1,2,5\na,1,2,3,5\n")
    assert "the table holds one episode" in fail(capsys, "decompose", path)
    assert not (tmp_path / "one-grd").exists()


STRAYS = {
    "many numbers": ([f"{i / 8}" for i in range(200)], "auto"),
    "few numbers": ([str(i % 4) for i in range(200)], "two"),
    "decimal commas": ([f"{i},5" for i in range(200)], "2.5s"),
}


@pytest.mark.parametrize(("cells", "stray"), STRAYS.values(), ids=STRAYS)
def test_a_text_among_numbers_is_named(tmp_path, capsys, cells, stray):
    path, cells = tmp_path / "views.csv", [*cells]
    cells[100] = stray
    rows = "".join(f"{i // 10};{i % 10};{cell};1\n" for i, cell in enumerate(cells))
    path.write_text(f"episode;step;x;return\n{rows}")
    line = fail(capsys, "inspect", path)
    assert f"column x: row 102: '{stray}' is not a number, as other rows are: correct it" in line
    table = {"episode": [0] * 200, "x": cells, "return": [1] * 200}
    with pytest.raises(DataError, match=f"column x: row 100: '{stray}' is not a number"):
        from_dataframe(table)
    for columns in ("reward=x,observations=step", "step=x,observations=step"):
        line = fail(capsys, "inspect", path, "--columns", columns)
        assert f"column x: row 102: '{stray}' is not a number" in line


@pytest.mark.parametrize(
    "time", ["01.03.2024 08:51", "3/1/2024 8:51 AM", "03/01/24", "1.3.24 8:51"]
)
def test_times_in_other_forms_are_told_the_form_that_is_read(time):
    table = {"episode": [0, 0], "timestamp": [time, time], "x": [1, 2], "return": [1, 1]}
    for step in (None, "timestamp"):
        with pytest.raises(
            DataError, match=r"column timestamp: row 0: .*write times as 2024-03-01"
        ):
            from_dataframe(table, step=step)


def test_versions_and_addresses_are_no_dates():
    table = {"episode": [0, 0], "return": [1, 1]}
    for texts in (["1.2.3", "1.12.30"], ["10.0.0.1", "127.0.0.1"], ["1/2", "3/4"]):
        assert len(from_dataframe({**table, "x": texts}).observation_names) == 2


def test_texts_among_numbers_are_categories_if_you_say_so():
    cells = [*"01201201201", "3+"]
    table = {"episode": [0] * 12, "x": cells, "return": [1] * 12}
    with pytest.raises(DataError, match=r"'3\+' is not a number"):
        from_dataframe(table)
    names = from_dataframe(table, categories="x").observation_names
    assert names == ("x=0", "x=1", "x=2", "x=3+")
    # Codes such as 007 are names, and so are all other cells of their column.
    names = from_dataframe({**table, "x": ["007", *cells[1:]]}).observation_names
    assert names == ("x=0", "x=007", "x=1", "x=2", "x=3+")


def test_wrong_options_end_in_one_line(tmp_path, capsys):
    path = tmp_path / "good.csv"
    path.write_text(HEADER + GOOD)
    for columns, message in (
        ("episode=nonsense", "there is no column 'nonsense'"),
        ("observations=X", "did you mean x?"),
        ("rest=x", "expected ROLE=NAME"),
        ("observations", "expected ROLE=NAME"),
        ("episode=step+x", "expected one column"),
        ("observations=x,actions=x", "column x is given twice"),
    ):
        assert message in fail(capsys, "inspect", path, "--columns", columns)
    assert "tables" in fail(capsys, "inspect", "datasets/sample.h5", "--columns", "episode=x")


def test_several_tables_are_to_be_joined(tmp_path, capsys):
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text(HEADER + GOOD)
    line = fail(capsys, "decompose", tmp_path / "a.csv", tmp_path / "b.csv")
    assert "b.csv): join several tables into one file first, for example with pandas" in line
    for options in ((), ("--columns", "return=return")):
        line = fail(capsys, "inspect", tmp_path, *options)
        assert f"{tmp_path}: is a folder with 2 tables: give one file (join several" in line


def test_a_bad_file_of_outcomes_ends_in_one_line(tmp_path, capsys):
    steps, outcomes = tmp_path / "steps.csv", tmp_path / "outcomes.csv"
    steps.write_text("episode,step,x\na,0,1\na,1,2\nb,0,3\n")
    for text, message in (
        ("episode,return\na,1\n", "column return: 1 of 2 episodes has no outcome: b; add them"),
        (
            "episode,return\na,n/a\nb,nan\n",
            "2 of 2 episodes have no outcome: a (row 2 is empty), b (row 3 is empty); add them",
        ),
        (
            "episode,return\n1,3\n2,4\n",
            "none of 2 episodes has an outcome: episodes are called a, b, and outcomes are for 1",
        ),
        ("episode,end\na,renewed\nb,left\n", "column end: row 2: 'renewed' is not a number; an"),
        ("episode,return\na,1\na,2\nb,1\n", "episode a has two outcomes"),
        (
            "episode,p,q\na,1,2\n",
            "2 columns of numbers, expected one beside the episodes (episode)",
        ),
        ("episode,return\na,=1+1\nb,=2+2\n", "column return: row 2: '=1+1' is a formula"),
        ("episode\na\nb\n", "no columns of numbers, expected one"),
    ):
        outcomes.write_text(text)
        line = fail(capsys, "inspect", steps, "--returns", outcomes)
        assert str(outcomes) in line
        assert message in line


def test_the_column_of_a_file_of_outcomes_can_be_named(tmp_path, capsys):
    steps, outcomes = tmp_path / "steps.csv", tmp_path / "outcomes.csv"
    steps.write_text("ride,step,x,fuel\na,0,1,9\na,1,2,9\nb,0,3,9\n")
    outcomes.write_text("day,ride,fuel,minutes\nmon,b,4,1\ntue,a,5,2\n")
    columns = "episode=ride,return=fuel"
    with open_recording(steps, columns=columns, returns=outcomes) as recording:
        # The column of the table would give the outcome away.
        assert recording.header.observation_names == ("x",)
        assert find_columns(recording).endswith("ignored=fuel,returns=fuel")
        assert [recording.load_rewards(k).sum() for k in range(2)] == [5, 4]
    for columns, message in (
        ("return=cost", f"{outcomes}: there is no column 'cost' with outcomes; columns: day, ride"),
        ("return=day", "column day: row 2: 'mon' is not a number; an outcome is a number"),
        ("reward=x", "outcomes are given twice: as column x of the table, and with --returns"),
    ):
        columns = f"episode=ride,{columns}"
        arguments = ("--columns", columns, "--returns", outcomes)
        if columns.endswith("x"):
            outcomes.write_text("ride,fuel\na,1\nb,2\n")
        assert message in fail(capsys, "inspect", steps, *arguments)


def test_a_good_table_with_oddities_is_read(tmp_path):
    """A byte order mark, semicolons with decimal commas, blank lines, quotes, spaces in names."""
    path = tmp_path / "odd.csv"
    text = '\ufeff"Episode ID"; Step ;x;return\r\n"a, b";0;1,5;3,25\r\n\r\n"a, b";1;-2;3,25\r\n'
    path.write_bytes((text + "c;0;1e3;4\r\n").encode())
    episodes = read(path)
    assert [episode.label for episode in episodes] == ["a, b", "c"]
    np.testing.assert_array_equal(episodes[0].observations[:, 0], [1.5, -2])
    np.testing.assert_array_equal(episodes.compute_returns(), [3.25, 4])


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"episode": [1], "x": [1.0, 2.0], "reward": [1, 2]}, "unequal lengths"),
        ({"episode": [], "x": [], "reward": []}, "no rows"),
        ({"episode": [1, 1], "x": [1, None], "reward": [1, 2]}, "row 1 of x"),
        ({"episode": [1, 1], "x": [1, "a"], "reward": [1, 2]}, "row 1: 'a' is not a number"),
        ({"episode": [1, 1], "x": [[1, 2], [3]], "reward": [1, 2]}, "row 1: 1 numbers"),
        ({"episode": [1, 1], "x": np.zeros((2, 4, 4)), "reward": [1, 2]}, "images"),
        (io.StringIO("no table"), "expected a data frame"),
    ],
)
def test_bad_frames_are_refused(table, message):
    if isinstance(table, dict):
        table = {
            name: value if isinstance(value, np.ndarray) else np.array(value, object)
            if name == "x" and not all(isinstance(v, float) for v in value)
            else value
            for name, value in table.items()
        }  # fmt: skip
    with pytest.raises(DataError, match=message):
        from_dataframe(table)


def test_bad_parquet_files_end_in_one_line(tmp_path, capsys, monkeypatch):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "bad.parquet"
    path.write_bytes(b"PAR1 this is none")
    assert "is not a Parquet file that can be read" in fail(capsys, "inspect", path)
    monkeypatch.setattr("grd_offline.io.tables.probe.PLAUSIBLE", 10_000)
    parquet.write_table(pyarrow.table({"episode": np.zeros(10**5, np.int8)}), path)
    assert "if you trust it, use --max-size" in fail(capsys, "inspect", path)


def test_parquet_files_need_no_pyarrow(tmp_path, monkeypatch):
    polars.DataFrame({"episode": [1, 1], "x": [1.0, 2.0], "reward": [1, 2]}).write_parquet(
        tmp_path / "data.parquet"
    )
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    done = CliRunner().invoke(cli, ["inspect", str(tmp_path / "data.parquet")])
    assert done.exit_code == 0, done.exception


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("visits.ods", "is a spreadsheet: save its table as .xlsx or as a CSV file"),
        ("VISITS.XLS", "is a spreadsheet"),
        ("visits.csv.gz", "is packed: unpack it"),
        ("visits.txt", "give it the ending .csv"),
        ("visits.json", "load it in Python and save it as CSV or Parquet"),
        ("visits.bin", "is not an HDF5 file, or is damaged"),
    ],
)
def test_files_of_other_kinds_say_what_to_do(name, advice, tmp_path):
    (tmp_path / name).write_bytes(b"PK" + bytes(2000))
    with pytest.raises(DataError, match=re.escape(advice)):
        read(tmp_path / name)
