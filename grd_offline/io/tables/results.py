"""Tables of rewards: one row per step with its episode, step, reward and spread."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from grd_offline.io.files.storage import create_file, replace_file
from grd_offline.io.formats.in_memory import LAYOUT as MEMORY
from grd_offline.io.formats.record import Array, Header, Record, Recording
from grd_offline.io.formats.relabelled import STD
from grd_offline.io.tables.build import EPISODE, ROW, STEP, TABLE
from grd_offline.io.tables.frames import find_library, list_names
from grd_offline.io.tables.times import is_step_type, show_steps

REWARD, SPREAD = "reward", "spread"
LIBRARIES = ("pandas", "polars", "pyarrow")
ENDINGS = {"csv": ".csv", "parquet": ".parquet", "lerobot": ".parquet", "jsonl": ".jsonl"}
"""The ending of the table of rewards that goes with data of each layout."""


_LONGEST_LINE = 1_000_000
_PART_ROWS = 200_000
"""Rows that wait in memory until a part of a Parquet file is written."""


class Names(NamedTuple):
    """Names of the columns of episodes and steps."""

    episode: str = EPISODE
    step: str = STEP
    step_type: str = ""
    """The type of steps where they are no numbers: datetime64[us], or a style of texts."""
    library: str = ""
    """The library whose tables results are given as; plain arrays where there is none."""
    columns: str = ""
    """The role of each column, in the form of `--columns`."""


class Rewarded(NamedTuple):
    """The rewards of one episode."""

    episode: int | float | str
    steps: Array
    rewards: Array
    spread: Array
    rows: Array | None = None
    """The rows of the table that the steps came from, if they are not in their order."""


def find_names(settings: Mapping[str, Any]) -> Names:
    """The names that the table had which the data came from, or the usual ones."""
    table = settings.get(TABLE)
    if not isinstance(table, Mapping):
        return Names()
    kind = str(table["step_type"]) if is_step_type(table.get("step_type")) else ""
    library = table.get("library")
    return Names(
        str(table.get(EPISODE, EPISODE)),
        str(table.get(STEP, STEP)),
        kind,
        library if library in LIBRARIES else "",
        str(table.get("columns", "")),
    )


def find_columns(recording: Recording) -> str | None:
    """The role of each column of a table, in the form of `--columns`. None for other data."""
    if recording.layout not in (*ENDINGS, MEMORY):
        return None
    return find_names(recording.header.settings).columns or None


def _as_rewarded(record: Record, index: int) -> Rewarded:
    steps = record.extras.get(STEP)
    return Rewarded(
        record.attributes.get(EPISODE, index),
        np.arange(len(record.rewards)) if steps is None else steps,
        record.rewards,
        record.extras[STD],
        record.extras.get(ROW),
    )


def tabulate(rewarded: Iterable[Rewarded], names: Names) -> dict[str, NDArray[Any]]:
    """Put all rewards into columns, in the order of the table that they came from."""
    found = list(rewarded)
    lengths = [len(one.rewards) for one in found]
    labels = np.array([one.episode for one in found])
    steps = np.concatenate([one.steps for one in found])
    columns = {
        names.episode: np.repeat(labels, lengths),
        names.step: show_steps(steps, names.step_type) if names.step_type else steps,
        REWARD: np.concatenate([one.rewards for one in found]).astype(np.float64),
        SPREAD: np.concatenate([one.spread for one in found]).astype(np.float64),
    }
    rows = [one.rows for one in found if one.rows is not None]
    if len(rows) == len(found):
        order = np.argsort(np.concatenate(rows), kind="stable")
        columns = {name: column[order] for name, column in columns.items()}
    return columns


def read_rewards(header: Header, records: Iterable[Record]) -> Any:
    """All rewards of relabelled records, as a table of the library that the data came from."""
    names = find_names(header.settings)
    rewarded = (_as_rewarded(record, index) for index, record in enumerate(records))
    return as_frame(tabulate(rewarded, names), names.library)


def as_frame(columns: Mapping[str, NDArray[Any]], library: str) -> Any:
    """The columns as a table of a library, or as they are."""
    if library == "pandas":
        import pandas

        return pandas.DataFrame(dict(columns))
    if library == "polars":
        import polars

        return polars.DataFrame(dict(columns))
    if library == "pyarrow":
        import pyarrow

        return pyarrow.table({name: _as_arrow(column) for name, column in columns.items()})
    return dict(columns)


def restore(rewards: Any, table: Any, header: Header) -> Any:
    """Rewards in the order of a table, with episodes and steps as the table itself has them."""
    names = find_names(header.settings)
    found = [name for name in (names.episode, names.step) if name in list_names(table)]
    if find_library(rewards) == "pyarrow":
        for name in found:
            rewards = rewards.set_column(rewards.column_names.index(name), name, table[name])
    elif find_library(rewards) == "polars":
        rewards = rewards.with_columns(*(table[name] for name in found))
    else:
        for name in found:
            rewards[name] = getattr(table[name], "array", table[name])
    return rewards


def is_rewards_table(path: Path) -> bool:
    """Whether a table holds an episode, a step, a reward and a spread in each row, as ours do."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            names = _READERS[path.suffix](file)
    except (OSError, ValueError, csv.Error, RecursionError):
        return False
    return len(names) == 4 and names[2:] == [REWARD, SPREAD]


def _read_csv_names(file: BinaryIO) -> list[str]:
    return next(csv.reader([file.readline(_LONGEST_LINE).decode()]), [])


def _read_line_names(file: BinaryIO) -> list[str]:
    first = json.loads(file.readline(_LONGEST_LINE))
    return list(first) if isinstance(first, dict) else []


def _read_parquet_names(file: BinaryIO) -> list[str]:
    import pyarrow.parquet

    return list(pyarrow.parquet.read_schema(file).names)


_READERS = {".csv": _read_csv_names, ".jsonl": _read_line_names, ".parquet": _read_parquet_names}

Add = Callable[[Rewarded], None]


@contextmanager
def open_rewards(path: Path, names: Names, *, fresh: bool = False) -> Iterator[Add]:
    """A table of rewards that episodes are added to, in the format that the ending says.

    `fresh`: the path lies in a folder that `replace_folder` handed out.
    """
    write = {".csv": _open_csv, ".jsonl": _open_lines, ".parquet": _open_parquet}[path.suffix]
    opened = create_file(path) if fresh else replace_file(path)
    with opened as output, write(output, names) as add:
        yield add


def add_records(records: Iterable[Record], add: Add) -> Iterator[Record]:
    """Pass the records on, and add the rewards of each record to a table."""
    for index, record in enumerate(records):
        add(_as_rewarded(record, index))
        yield record


@contextmanager
def _open_csv(output: Any, names: Names) -> Iterator[Add]:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator=os.linesep)
    writer.writerow([names.episode, names.step, REWARD, SPREAD])

    def write(columns: Mapping[str, NDArray[Any]]) -> None:
        episodes, steps, rewards, spread = columns.values()
        shown = _show_times(steps) if steps.dtype.kind == "M" else steps
        parts = (part.tolist() for part in (episodes, shown, rewards, spread))
        writer.writerows(
            (episode, step, f"{reward:.9g}", f"{spread:.6g}")
            for episode, step, reward, spread in zip(*parts, strict=True)
        )
        output.write(text.getvalue().encode())
        text.seek(0)
        text.truncate()

    waiting: list[Rewarded] = []

    def add(one: Rewarded) -> None:
        if one.rows is None:
            write(tabulate([one], names))
        else:
            waiting.append(one)

    yield add
    if waiting:  # in the order of the table
        columns = tabulate(waiting, names)
        for start in range(0, len(columns[REWARD]), _PART_ROWS):
            part = slice(start, start + _PART_ROWS)
            write({name: column[part] for name, column in columns.items()})


def _show_times(steps: Array) -> Array:
    """Timestamps as text, to the second where all are whole seconds."""
    unit: Literal["s", "us"] = "us" if (steps.astype(np.int64) % 1_000_000).any() else "s"
    return np.datetime_as_string(steps, unit)


@contextmanager
def _open_lines(output: Any, names: Names) -> Iterator[Add]:
    def add(one: Rewarded) -> None:
        line = {
            "id": one.episode,
            "rewards": _shorten(one.rewards, 9),
            SPREAD: _shorten(one.spread, 6),
        }
        output.write((json.dumps(line) + "\n").encode())

    yield add


def _shorten(values: Array, digits: int) -> list[float]:
    return [float(f"{value:.{digits}g}") for value in values.tolist()]


@contextmanager
def _open_parquet(output: Any, names: Names) -> Iterator[Add]:
    import pyarrow
    from pyarrow import parquet

    writer: Any = None
    waiting: list[Rewarded] = []

    def flush() -> None:
        nonlocal writer
        columns = tabulate(waiting, names)
        table = pyarrow.table({name: _as_arrow(column) for name, column in columns.items()})
        if writer is None:
            writer = parquet.ParquetWriter(pyarrow.PythonFile(output, "w"), table.schema)
        writer.write_table(table.cast(writer.schema))
        waiting.clear()

    def add(one: Rewarded) -> None:
        waiting.append(one)
        if one.rows is None and len(waiting) * len(one.rewards) >= _PART_ROWS:
            flush()

    try:
        yield add
        if waiting:
            flush()
    finally:
        if writer is not None:
            writer.close()


def _as_arrow(column: NDArray[Any]) -> Any:
    import pyarrow

    return pyarrow.array(column.tolist() if column.dtype.kind in "UO" else column)
