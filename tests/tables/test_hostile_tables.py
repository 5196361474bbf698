"""Tables that are made to crash, to hang or to take all memory end in one line."""

import json
import os

import forked
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

SECONDS, MEGABYTES = 5.0, 300


@pytest.fixture(scope="module")
def baseline(tmp_path_factory):
    """What a small table takes."""
    folder = tmp_path_factory.mktemp("small")
    (folder / "a.csv").write_text("episode,x,return\n0,1,2\n0,2,2\n1,3,4\n")
    done = forked.run("inspect", "a.csv", cwd=folder, light=True)
    assert done.returncode == 0, done.stderr
    return done


def check_refused(done, baseline, message=""):
    """One line and exit code 2, soon and without much memory."""
    assert done.returncode == 2, (done.stdout + done.stderr)[-2000:]
    assert "a bug" not in done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert message in done.stderr
    check_cheap(done, baseline)


def check_cheap(done, baseline):
    assert done.seconds < baseline.seconds + SECONDS
    assert done.megabytes < baseline.megabytes + MEGABYTES


def inspect(folder, name, *more):
    return forked.run("inspect", name, *more, cwd=folder, light=True)


def write_line(path, **entry):
    path.write_text(json.dumps(entry) + "\n")


@pytest.mark.parametrize("name", ["a.parquet", "a.csv", "a.jsonl", "a.xlsx"])
def test_a_pipe_is_not_waited_for(tmp_path, baseline, name):
    os.mkfifo(tmp_path / name)
    check_refused(inspect(tmp_path, name), baseline, "not a regular file")


def test_a_pipe_as_returns_is_not_waited_for(tmp_path, baseline):
    (tmp_path / "a.csv").write_text("episode,x\n0,1\n0,2\n")
    os.mkfifo(tmp_path / "r.parquet")
    done = inspect(tmp_path, "a.csv", "--returns", "r.parquet")
    check_refused(done, baseline, "not a regular file")


@pytest.mark.long
def test_many_columns_cost_time_in_proportion(tmp_path, baseline):
    width = 40_000
    names = ["episode", "return", *(f"c{k}" for k in range(width))]
    rows = ["0,1" + ",0.5" * width] * 3
    (tmp_path / "wide.csv").write_text("\n".join([",".join(names), *rows]) + "\n")
    done = inspect(tmp_path, "wide.csv")
    assert done.returncode in (0, 2)
    assert "a bug" not in done.stderr
    assert done.seconds < 15


@pytest.mark.parametrize("kind", ["hole", "commas", "letters"])
def test_a_first_line_has_an_end(tmp_path, baseline, kind):
    with (tmp_path / "a.csv").open("wb") as file:
        if kind == "hole":
            file.truncate(10**12)
        else:
            block = (b"," if kind == "commas" else b"x") * 2**20
            for _ in range(100):
                file.write(block)
    check_refused(inspect(tmp_path, "a.csv"), baseline)


NUMBER = "1" + "0" * 400


@pytest.mark.parametrize(
    "line",
    [
        f'{{"turns": [{{"features": [1]}}], "score": {NUMBER}}}',
        f'{{"turns": [{{"features": [{NUMBER}]}}], "score": 1}}',
        f'{{"turns": [{{"features": {{"a": {NUMBER}}}}}], "score": 1}}',
        f'{{"turns": [{{"features": [{"1" * 5000}]}}], "score": 1}}',
        '{"turns": [{"features": [1, 2]}, {"features": [1]}], "score": 1}',
        '{"turns": [{"features": [1, [2]]}, {"features": [1, 2]}], "score": 1}',
        '{"turns": [{"embedding": [[1], [2, 3]]}, {"embedding": [1]}], "score": 1}',
        '{"turns": [{"features": {"a": {"b": 1}}}, {"features": {"a": 2}}], "score": 1}',
        '{"turns": [{"features": {"a": 1}}, {"features": {"a": [2]}}], "score": 1}',
        '{"turns": [{"features": [true, null]}], "score": "x"}',
        '{"turns": [{"features": [1]}], "score": 1, "id": {"a": "\\ud800"}}',
        '{"turns": [{"features": {"\\ud800": 1}}], "score": 1}',
    ],
)
def test_odd_lines_are_told(tmp_path, baseline, line):
    (tmp_path / "a.jsonl").write_text(line + "\n")
    for command in (["inspect"], ["convert"]):
        out = [] if command == ["inspect"] else ["b.h5"]
        done = forked.run(*command, "a.jsonl", *out, cwd=tmp_path, light=True)
        assert done.returncode in (0, 2), (command, (done.stdout + done.stderr)[-2000:])
        assert "a bug" not in done.stderr
        check_cheap(done, baseline)
        if done.returncode == 2:
            assert len(done.stderr.splitlines()) == 1, done.stderr


def test_turns_without_any_number_are_refused(tmp_path, baseline):
    write_line(tmp_path / "a.jsonl", turns=[{"features": []}, {"features": []}], score=1)
    check_refused(inspect(tmp_path, "a.jsonl"), baseline, "turn 0: expected features")


def test_lines_that_are_not_utf8_are_told(tmp_path, baseline):
    (tmp_path / "a.jsonl").write_bytes(
        b'{"turns": [{"features": [1]}], "id": "\xff", "score": 1}\n'
    )
    check_refused(inspect(tmp_path, "a.jsonl"), baseline)


@pytest.mark.parametrize("moment", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_a_moment_out_of_range_is_told(tmp_path, baseline, moment):
    (tmp_path / "a.csv").write_text(f"episode,t,x,return\n0,{moment},1,2\n0,{moment},2,2\n")
    done = inspect(tmp_path, "a.csv", "--columns", "step=t")
    check_refused(done, baseline, "is not a time that is read")


def test_two_columns_of_one_name_in_parquet(tmp_path, baseline):
    column = pa.array([0.0, 1.0])
    table = pa.Table.from_arrays([column, column, column], ["episode", "x", "x"])
    pq.write_table(table, tmp_path / "a.parquet")
    check_refused(inspect(tmp_path, "a.parquet"), baseline)


def write_bomb(path, kind):
    """A few kilobytes that stand for gigabytes."""
    count = 20
    if kind == "lists":
        offsets = np.arange(count + 1, dtype=np.int32) * 3_000_000
        values = pa.array(np.zeros(offsets[-1], np.int8))
        column = pa.ListArray.from_arrays(pa.array(offsets), values)
    elif kind == "numbers":
        count = 100_000_000
        column = pa.array(np.zeros(count, np.int8))
    else:
        count = 50_000
        text = pa.array(["a" * 100_000])
        column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), text)
    data = {"x": column}
    if kind != "numbers":
        data |= {"episode": pa.array(np.arange(count) // 2), "return": pa.array(np.ones(count))}
    pq.write_table(pa.table(data), path, compression="gzip", row_group_size=count)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["lists", "numbers", "texts"])
def test_a_small_parquet_file_of_gigabytes_is_refused(tmp_path, baseline, kind):
    write_bomb(tmp_path / "a.parquet", kind)
    assert (tmp_path / "a.parquet").stat().st_size < 2**20
    done = inspect(tmp_path, "a.parquet")
    check_refused(done, baseline)
