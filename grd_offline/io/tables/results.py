"""Tables of rewards: one row per step with its episode, step, reward and spread."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from grd_offline.core.episodes import EPISODE, ROW, STEP, Origin, Provenance
from grd_offline.core.typing import AnyArray
from grd_offline.io.files.storage import create_file, replace_file
from grd_offline.io.formats.record import MEMORY, STD, Header, Record, Recording
from grd_offline.io.tables.columns import find_library, list_names

REWARD, SPREAD = "reward", "spread"
ENDINGS = {
    **dict.fromkeys(("csv", "xlsx"), ".csv"),
    **dict.fromkeys(("parquet", "lerobot"), ".parquet"),
    "jsonl": ".jsonl",
}
"""The ending of the table of rewards that goes with data of each layout."""

MOMENTS = "datetime64[us]"
"""The type of steps that are moments, not numbers."""
_STYLE = re.compile(r"text (D|m|s|ms|us) ([T_]) (-|Z|[+-]\d\d:\d\d)")
"""A style: the unit of the last digits, what stands between day and time, and the time zone."""

_LONGEST_LINE = 1_000_000
_PART_ROWS = 200_000
"""Rows that wait in memory until a part of a Parquet file is written."""


class Rewarded(NamedTuple):
    """The rewards of one episode."""

    origin: Origin
    rewards: AnyArray
    spread: AnyArray


def find_columns(recording: Recording) -> str | None:
    """The role of each column of a table, in the form of `--columns`. None for other data."""
    table = recording.header.provenance
    is_table = recording.layout in (*ENDINGS, MEMORY)
    return table.columns or None if is_table and table is not None else None


def _as_rewarded(record: Record) -> Rewarded:
    extras = record.extras
    origin = Origin(record.attributes.get(EPISODE), extras.get(STEP), extras.get(ROW))
    return Rewarded(origin, record.rewards, extras[STD])


def show_steps(steps: NDArray[Any], kind: str) -> NDArray[Any]:
    """Steps of a type, from microseconds: moments, or texts as the table had them.

    Steps of another type are numbers, and stay as they are.
    """
    style = _STYLE.fullmatch(kind)
    if style is None and kind != MOMENTS:
        return steps
    moments = steps.astype(MOMENTS)
    if style is None:
        return moments
    unit, between, zone = style.groups()
    if zone not in ("-", "Z"):
        shift = int(zone[1:3]) * 60 + int(zone[4:6])
        moments = moments + np.timedelta64(-shift if zone[0] == "-" else shift, "m")
    texts = np.datetime_as_string(moments, unit)  # type: ignore[arg-type]
    texts = np.char.replace(texts, "T", " ") if between == "_" else texts
    return texts if zone == "-" else np.char.add(texts, zone)


def _tabulate(
    rewarded: Sequence[Rewarded], table: Provenance, first: int = 0
) -> dict[str, NDArray[Any]]:
    """Put rewards into columns, in the order of the table that they came from.

    `first` is the number of the first episode, for episodes that have no name.
    """
    origins, lengths = [one.origin for one in rewarded], [len(one.rewards) for one in rewarded]
    labels = [first + k if one.label is None else one.label for k, one in enumerate(origins)]
    numbered = zip(origins, map(np.arange, lengths), strict=True)
    steps = np.concatenate([n if one.steps is None else one.steps for one, n in numbered])
    columns = {
        table.episode: np.repeat(np.array(labels), lengths),
        table.step: show_steps(steps, table.step_type),
        REWARD: np.concatenate([one.rewards for one in rewarded]).astype(np.float64),
        SPREAD: np.concatenate([one.spread for one in rewarded]).astype(np.float64),
    }
    rows = [one.rows for one in origins if one.rows is not None]
    if len(rows) == len(origins):
        order = np.argsort(np.concatenate(rows), kind="stable")
        columns = {name: column[order] for name, column in columns.items()}
    return columns


def read_rewards(header: Header, records: Iterable[Record]) -> Any:
    """All rewards of relabelled records, as a table of the library that the data came from."""
    return as_frame(map(_as_rewarded, records), header.provenance)


def as_frame(rewarded: Iterable[Rewarded], table: Provenance | None, first: int = 0) -> Any:
    """Rewards as a table of the library that the data came from; plain arrays if there is none."""
    table = table or Provenance()
    columns = _tabulate(list(rewarded), table, first)
    if table.library in ("pandas", "polars"):
        return import_module(table.library).DataFrame(columns)
    if table.library == "pyarrow":
        import pyarrow

        pairs = columns.items()
        return pyarrow.table({n: c.tolist() if c.dtype.kind in "UO" else c for n, c in pairs})
    return columns


def restore(rewards: Any, table: Any, header: Header) -> Any:
    """Rewards in the order of a table, with episodes and steps as the table itself has them."""
    names = header.provenance or Provenance()
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


_LINE = ("id", "rewards", SPREAD)
"""What each of our JSON lines has."""


def is_rewards_table(path: Path) -> bool:
    """Whether a table holds what ours do.

    That is an episode, a step, a reward and a spread in each row; in JSON lines, all of an episode.
    """
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            if path.suffix == ".parquet":
                import polars

                names = list(polars.read_parquet_schema(file))
            elif path.suffix == ".csv":
                names = next(csv.reader([file.readline(_LONGEST_LINE).decode()]), [])
            else:
                first = json.loads(file.readline(_LONGEST_LINE))
                return isinstance(first, dict) and list(first) == [*_LINE]
    except Exception:  # of Python or polars: what cannot be read is none of ours
        return False
    return len(names) == 4 and names[2:] == [REWARD, SPREAD]


@contextmanager
def open_rewards(
    path: Path, table: Provenance, *, fresh: bool = False
) -> Iterator[Callable[[Rewarded], None]]:
    """A table of rewards that episodes are added to, in the format that the ending says.

    `fresh`: the path lies in a folder that `replace_folder` handed out.
    """
    waiting: list[Rewarded] = []
    frames: list[Any] = []
    first = 0
    with create_file(path) if fresh else replace_file(path) as output:

        def write() -> None:
            nonlocal first
            if path.suffix == ".jsonl":
                output.write(_as_lines(waiting, first))
            elif path.suffix == ".csv":
                output.write(_as_csv(_tabulate(waiting, table, first), has_names=first == 0))
            else:
                frames.append(as_frame(waiting, replace(table, library="polars"), first))
            first += len(waiting)
            waiting.clear()

        def add(one: Rewarded) -> None:
            waiting.append(one)
            # Rows that do not follow each other are sorted once all are there.
            if one.origin.rows is None and len(waiting) * len(one.rewards) >= _PART_ROWS:
                write()

        yield add
        if waiting:
            write()
        if path.suffix == ".parquet":
            import polars

            polars.concat(frames).write_parquet(output)


def add_records(records: Iterable[Record], add: Callable[[Rewarded], None]) -> Iterator[Record]:
    """Pass the records on, and add the rewards of each record to a table."""
    for record in records:
        add(_as_rewarded(record))
        yield record


def _as_csv(columns: Mapping[str, NDArray[Any]], *, has_names: bool) -> bytes:
    episodes, steps, rewards, spread = columns.values()
    if steps.dtype.kind == "M":  # to the second where all are whole seconds
        unit: Literal["s", "us"] = "us" if (steps.astype(np.int64) % 1_000_000).any() else "s"
        steps = np.datetime_as_string(steps, unit)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator=os.linesep)
    writer.writerows([columns] if has_names else [])
    rows = zip(*(part.tolist() for part in (episodes, steps, rewards, spread)), strict=True)
    writer.writerows((*names, f"{reward:.9g}", f"{std:.6g}") for *names, reward, std in rows)
    return text.getvalue().encode()


def _as_lines(rewarded: Sequence[Rewarded], first: int) -> bytes:
    lines = (
        {
            _LINE[0]: index if one.origin.label is None else one.origin.label,
            _LINE[1]: [float(f"{reward:.9g}") for reward in one.rewards.tolist()],
            _LINE[2]: [float(f"{std:.6g}") for std in one.spread.tolist()],
        }
        for index, one in enumerate(rewarded, first)
    )
    return "".join(json.dumps(line) + "\n" for line in lines).encode()
