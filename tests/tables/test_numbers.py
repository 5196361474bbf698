"""Numbers of CSV files with decimal commas and with marks between thousands."""

import numpy as np
import polars as pl
import pytest

from grd_offline import DecomposeSettings, decompose_file, from_dataframe, relabel
from grd_offline.core.errors import DataError
from grd_offline.io.datasets import open_recording, read
from grd_offline.io.tables.columns import parse_columns
from grd_offline.io.tables.sources import (
    COMMA,
    POINT,
    find_unread,
    open_csv,
    parse_number,
)


@pytest.mark.parametrize(
    ("text", "decimal", "number"),
    [
        ("1234.5", POINT, 1234.5),
        ("1,234.5", POINT, 1234.5),
        ("-12,345,678", POINT, -12345678),
        ("1'234.50", POINT, 1234.5),
        ("1e3", POINT, 1000),
        ("1.234,5", COMMA, 1234.5),
        ("+1.234", COMMA, 1234),
        ("1\u202f234,5", COMMA, 1234.5),
        ("1 234 567", COMMA, 1234567),
        ("0,125", COMMA, 0.125),
        ("12", COMMA, 12),
        ("\u2212" + "5.5", POINT, -5.5),
    ],
)
def test_a_number_is_read_in_its_form(text, decimal, number):
    assert parse_number(text, decimal) == number


@pytest.mark.parametrize(
    ("text", "decimal"),
    [
        ("12,34", POINT),
        ("0,125", POINT),
        ("1,234,56", POINT),
        ("1,234 567", POINT),
        ("3.75", COMMA),
        ("0.125", COMMA),
        ("1.23,4", COMMA),
        ("1.234.56", COMMA),
        ("1,2,3", COMMA),
        ("10.0.0.1", COMMA),
    ],
)
def test_what_is_no_number_in_that_form_is_not_read(text, decimal):
    assert parse_number(text, decimal) is None


def read_columns(path, separator, *columns):
    """The inputs of a table with these columns beside an episode and its return."""
    names = ["episode", *"abc"[: len(columns)], "return"]
    rows = [
        separator.join((str(row // 2), *(f'"{cell}"' for cell in cells), "1"))
        for row, cells in enumerate(zip(*columns, strict=True))
    ]
    path.write_text("\n".join([separator.join(names), *rows]) + "\n")
    episodes = read(path)
    return np.concatenate([episode.observations for episode in episodes]).T


@pytest.mark.parametrize(
    ("separator", "columns", "expected"),
    [
        pytest.param(",", [["1,234.5", "7", "8.25", "9"]], [[1234.5, 7, 8.25, 9]], id="US"),
        pytest.param(";", [["1.234,5", "7", "8,25", "9"]], [[1234.5, 7, 8.25, 9]], id="German"),
        pytest.param("\t", [["1 234,5", "7", "8,25", "9"]], [[1234.5, 7, 8.25, 9]], id="French"),
        pytest.param(";", [["1'234.5", "7", "8.25", "9"]], [[1234.5, 7, 8.25, 9]], id="Swiss"),
        # The other column says what a single point or comma means.
        pytest.param(
            ";",
            [["1.234", "7", "8", "9"], ["0,5", "1", "2", "3"]],
            [[1234, 7, 8, 9], [0.5, 1, 2, 3]],
            id="thousands beside decimal commas",
        ),
        pytest.param(
            ";",
            [["1,234", "7", "8", "9"], ["0.5", "1", "2", "3"]],
            [[1234, 7, 8, 9], [0.5, 1, 2, 3]],
            id="thousands beside decimal points",
        ),
        pytest.param(";", [["1,234", "7", "8", "9"]], [[1.234, 7, 8, 9]], id="a comma in doubt"),
        pytest.param(";", [["1.234", "7", "8", "9"]], [[1.234, 7, 8, 9]], id="a point in doubt"),
        pytest.param(
            ";",
            [["1.234", "0.7", "8", "9"], ["0,5", "1", "2", "3"]],
            [[1.234, 0.7, 8, 9], [0.5, 1, 2, 3]],
            id="each column in its own form",
        ),
    ],
)
def test_the_form_follows_from_the_whole_column_and_the_others(
    tmp_path, separator, columns, expected
):
    found = read_columns(tmp_path / "table.csv", separator, *columns)
    np.testing.assert_array_equal(found, np.array(expected, np.float32))


def test_the_form_of_the_first_rows_holds_for_later_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr("grd_offline.io.tables.sources.BLOCK_BYTES", 60)
    cells = ["0,5", "1,5", "2,5", "3,5", "1.234", "5", "6", "7"]
    found = read_columns(tmp_path / "table.csv", ";", cells)
    np.testing.assert_array_equal(found[0], np.float32([0.5, 1.5, 2.5, 3.5, 1234, 5, 6, 7]))
    with pytest.raises(DataError, match=r"row 6: '3\.75' has other marks than the numbers above"):
        read_columns(tmp_path / "table.csv", ";", [*cells[:4], "3.75", *cells[5:]])


@pytest.mark.parametrize("separator", [",", ";"])
def test_numbers_that_are_not_read_do_not_become_categories(tmp_path, separator):
    with pytest.raises(DataError, match=r"row 2: '12,5' is a number in a form that is not read"):
        read_columns(tmp_path / "table.csv", separator, ["12,5", "3.75", "1", "2"])
    table = {"episode": [0, 0], "x": ["12,5", "3"], "return": [1, 1]}
    with pytest.raises(DataError, match=r"row 0: '12,5' .* write numbers like 1234\.5"):
        from_dataframe(table)
    assert from_dataframe(table, categories="x").observation_names == ("x=12,5", "x=3")


def test_only_texts_that_are_all_numbers_are_in_doubt():
    assert find_unread(pl.Series(["1", "2.5"])) is None
    assert find_unread(pl.Series(["1", "2,5"])) == 1
    assert find_unread(pl.Series(["2,5", "red"])) is None


def open_numbers(path, text, **options):
    """The numbers of the first column of a CSV file, and its decimal mark."""
    path.write_text(text)
    with open_csv(path, **options) as source:
        (name, *_) = source.kinds
        return np.concatenate([block[name] for block in source.blocks([name], ())]), source.decimal


@pytest.mark.parametrize(
    ("text", "row"),
    [
        ("a,b\n998,1\n999,2\n1.000,3\n", "row 4: '1.000'"),
        ("a;b\n987;1\n1,234;2\n", "row 3: '1,234'"),
        ("a;b;c\n1.234;2,5;1.5\n", "row 2: '1.234'"),  # other columns contradict each other
    ],
)
def test_numbers_that_may_be_thousands_are_not_guessed(tmp_path, text, row):
    with pytest.raises(DataError, match=f"{row} may have decimals.*decimal=comma"):
        open_numbers(tmp_path / "a.csv", text)
    small = open_numbers(tmp_path / "a.csv", text, decimal="point")[0]
    large = open_numbers(tmp_path / "a.csv", text, decimal="comma")[0]
    assert {small[-1], large[-1]} in ({1.0, 1000.0}, {1.234, 1234.0})


@pytest.mark.parametrize("text", ["a;b\n0;1\n1.250;2\n", "a;b\n12;1\n1.250;2\n0.125;3\n"])
def test_three_decimals_alone_are_no_doubt(tmp_path, text):
    assert open_numbers(tmp_path / "a.csv", text)[0][1] == 1.25


def test_new_rows_are_read_with_the_decimal_mark_of_the_model(tmp_path):
    text = "a;b\n7.804;25\n"
    assert open_numbers(tmp_path / "a.csv", text) == (np.array([7.804]), "point")
    assert open_numbers(tmp_path / "a.csv", text, usual="comma") == (np.array([7804]), "comma")
    # What the file itself says counts for more.
    text = "a;b\n7.804;25.5\n"
    assert open_numbers(tmp_path / "a.csv", text, usual="comma") == (np.array([7.804]), "point")


def test_a_folder_remembers_the_decimal_mark(tmp_path):
    head = "episode;weight;heat;score\n"
    rng = np.random.default_rng(0)
    rows = [(k // 4, rng.integers(1000, 9999), rng.integers(0, 99)) for k in range(160)]
    sums = {k: sum(w / 1000 + h / 10 for e, w, h in rows if e == k) for k in range(40)}
    lines = []
    for k, w, h in rows:
        score = f"{sums[k]:.4f}".replace(".", ",")
        lines.append(f"{k};{w // 1000}.{w % 1000:03};{h // 10},{h % 10};{score}")
    (tmp_path / "first.csv").write_text(head + "\n".join(lines) + "\n")
    decompose_file(tmp_path / "first.csv", tmp_path / "grd", DecomposeSettings(fit="linear"))
    (tmp_path / "new.csv").write_text("episode;weight;heat\n0;2.000;3\n0;4.000;3\n")
    low, high = relabel(tmp_path / "new.csv", tmp_path / "grd").rewards_["reward"]
    assert high - low == pytest.approx(2, rel=0.01)


def test_decimal_is_point_or_comma(tmp_path):
    with pytest.raises(DataError, match="decimal: expected point or comma, got 'dot'"):
        parse_columns("decimal=dot")
    assert parse_columns("decimal=comma") == {"decimal": ("comma",)}


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (["1", "2"], [1, 2]),
        (["1.1", "1.2", "1.10"], [1.1, 1.2, "1.10"]),
        (["1", "1.000", "1e0"], [1, "1.000", "1e0"]),
        (["10", "1_0"], ["10", "1_0"]),
        (["7", "007"], ["7", "007"]),
    ],
)
def test_names_of_episodes_are_not_merged(tmp_path, written, expected):
    rows = [f"{name},{step},1" for name in written for step in range(2)]
    (tmp_path / "a.csv").write_text("\n".join(["episode,x,score", *rows]) + "\n")
    with open_recording(tmp_path / "a.csv") as opened:
        assert [opened.load(k).attributes["episode"] for k in range(len(opened))] == expected
    outcomes = [f"{name},{place}" for place, name in enumerate(written)]
    (tmp_path / "steps.csv").write_text("\n".join(["episode,x", *(r[:-2] for r in rows)]) + "\n")
    (tmp_path / "bills.csv").write_text("\n".join(["episode,score", *outcomes]) + "\n")
    episodes = read(tmp_path / "steps.csv", returns=tmp_path / "bills.csv")
    assert [episode.rewards.sum() for episode in episodes] == [*range(len(written))]
