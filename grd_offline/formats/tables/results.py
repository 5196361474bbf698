"""Tables of rewards: one row per step with its episode, step, reward and spread."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from grd_offline.files.storage import create_file, replace_file
from grd_offline.formats.record import Array, Record, Recording
from grd_offline.formats.relabelled import STD
from grd_offline.formats.tables.build import EPISODE, STEP, TABLE

REWARD, SPREAD = "reward", "spread"
LIBRARIES = ("pandas", "polars", "pyarrow")
ENDINGS = {"csv": ".csv", "parquet": ".parquet", "lerobot": ".parquet", "jsonl": ".jsonl"}
"""The ending of the table of rewards that goes with data of each layout."""


_PART_ROWS = 200_000
"""Rows that wait in memory until a part of a Parquet file is written."""


class Names(NamedTuple):
    """Names of the columns of episodes and steps."""

    episode: str = EPISODE
    step: str = STEP
    step_type: str = ""
    """The type of steps where they are no numbers: datetime64[us]."""
    library: str = ""
    """The library whose tables results are given as; plain arrays where there is none."""


class Rewarded(NamedTuple):
    """The rewards of one episode."""

    episode: int | float | str
    steps: Array
    rewards: Array
    spread: Array


def find_names(settings: Mapping[str, Any]) -> Names:
    """The names that the table had which the data came from, or the usual ones."""
    table = settings.get(TABLE)
    if not isinstance(table, Mapping):
        return Names()
    kind = "datetime64[us]" if table.get("step_type") == "datetime64[us]" else ""
    library = table.get("library")
    return Names(
        str(table.get(EPISODE, EPISODE)),
        str(table.get(STEP, STEP)),
        kind,
        library if library in LIBRARIES else "",
    )


def find_columns(recording: Recording) -> str | None:
    """The role of each column of a table, in the form of `--columns`. None for other data."""
    if recording.layout not in ENDINGS:
        return None
    return str(recording.header.settings[TABLE]["columns"])


def list_rewards(recording: Recording) -> Iterator[Rewarded]:
    """The rewards of a relabelled dataset, episode by episode."""
    for index, record in enumerate(recording):
        yield _as_rewarded(record, index)


def _as_rewarded(record: Record, index: int) -> Rewarded:
    steps = record.extras.get(STEP)
    return Rewarded(
        record.attributes.get(EPISODE, index),
        np.arange(len(record.rewards)) if steps is None else steps,
        record.rewards,
        record.extras[STD],
    )


def tabulate(rewarded: Iterable[Rewarded], names: Names) -> dict[str, NDArray[Any]]:
    """Put all rewards into columns."""
    found = list(rewarded)
    lengths = [len(one.rewards) for one in found]
    labels = np.array([one.episode for one in found])
    steps = np.concatenate([one.steps for one in found])
    return {
        names.episode: np.repeat(labels, lengths),
        names.step: steps.astype("datetime64[us]") if names.step_type else steps,
        REWARD: np.concatenate([one.rewards for one in found]).astype(np.float64),
        SPREAD: np.concatenate([one.spread for one in found]).astype(np.float64),
    }


def read_rewards(recording: Recording) -> Any:
    """All rewards of a relabelled dataset, as a table of the library that the data came from."""
    names = find_names(recording.header.settings)
    return as_frame(tabulate(list_rewards(recording), names), names.library)


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

    def add(one: Rewarded) -> None:
        shown = _show_times(one.steps) if names.step_type else one.steps
        rows = zip(shown.tolist(), one.rewards.tolist(), one.spread.tolist(), strict=True)
        writer.writerows(
            (one.episode, step, f"{reward:.9g}", f"{spread:.6g}") for step, reward, spread in rows
        )
        output.write(text.getvalue().encode())
        text.seek(0)
        text.truncate()

    yield add


def _show_times(steps: Array) -> Array:
    """Timestamps as text, to the second where all are whole seconds."""
    unit: Literal["s", "us"] = "us" if (steps % 1_000_000).any() else "s"
    return np.datetime_as_string(steps.astype("datetime64[us]"), unit)


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
        if len(waiting) * len(one.rewards) >= _PART_ROWS:
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
