"""Outcomes of episodes from a table of their own: one row per episode."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from grd_offline.errors import DataError
from grd_offline.formats.tables.columns import find_names
from grd_offline.formats.tables.csv_file import open_csv
from grd_offline.formats.tables.frames import open_parquet
from grd_offline.formats.tables.inputs import name_label
from grd_offline.formats.tables.source import FLAG, NUMBER, TableSource, as_numbers, is_missing


def read_outcomes(
    path: Path, episode: str | None = None, outcome: str | None = None
) -> dict[str, float]:
    """The outcome of each episode by its name, from a file; see `gather_outcomes`."""
    try:
        with open_small_table(path) as source:
            return gather_outcomes(source, episode, outcome)
    except DataError as error:
        raise error.at(file=path) from None


def gather_outcomes(
    source: TableSource, episode: str | None = None, outcome: str | None = None
) -> dict[str, float]:
    """The outcome of each episode by its name.

    The table has a column of episodes and one of numbers. `episode` is what the table of steps
    calls its episodes: a column of this name is taken here, too. `outcome` names the column of
    numbers. If it is not given, and names do not tell, the first column holds the episodes, and the
    only other column of numbers the outcomes.
    """
    names = list(source.kinds)
    found = [episode] if episode in names else find_names("episode", names)
    first = next((name for name in found if name is not None and name != outcome), names[0])
    return _read(source, first, _find_outcome(source, first, outcome))


@contextmanager
def open_small_table(path: Path) -> Iterator[TableSource]:
    """A table of outcomes or preferences."""
    ending = path.suffix.lower()
    if re.fullmatch(r"\.(parquet|pq)", ending):
        with open_parquet([path]) as source:
            yield source
    elif ending in (".csv", ".tsv"):
        with open_csv(path) as source:
            yield source
    else:
        raise DataError("expected a .csv, .tsv or .parquet file")


def _find_outcome(source: TableSource, episode: str, wanted: str | None) -> str:
    """The column of outcomes: the one that is wanted, or the one that its name or kind tells."""
    names = list(source.kinds)
    numbers = [n for n in names if n != episode and source.kinds[n] in (NUMBER, FLAG)]
    shown = f"columns: {', '.join(names[:12])}"
    if wanted is not None:
        if wanted not in names:
            raise DataError(f"there is no column {wanted!r} with outcomes; {shown}")
        if wanted not in numbers:
            raise DataError(f"expected numbers as outcomes; {shown}", field=f"column {wanted}")
        return wanted
    found = [name for role in ("returns", "rewards") for name in find_names(role, numbers)]
    if not found and len(numbers) != 1:
        raise DataError(
            f"{len(numbers) or 'no'} columns of numbers, expected one beside the episodes "
            f"({episode}): name the outcome with --columns return=NAME (in Python, give a frame of "
            f"two columns); {shown}"
        )
    return (found or numbers)[0]


def _read(source: TableSource, episode: str, outcome: str) -> dict[str, float]:
    outcomes: dict[str, float] = {}
    row = source.first_row
    for block in source.blocks([episode, outcome]):
        values = as_numbers(block[outcome], outcome, row)
        for index, (name, value) in enumerate(zip(block[episode], values, strict=True)):
            _add(outcomes, name, float(value), row + index, episode)
        row += len(values)
    return outcomes


def _add(outcomes: dict[str, float], name: Any, value: float, row: int, column: str) -> None:
    if is_missing(name):
        raise DataError(f"row {row:,} is empty", field=f"column {column}")
    label = name_label(name)
    if label in outcomes and outcomes[label] != value:
        raise DataError(f"episode {label} has two outcomes, the second in row {row:,}")
    outcomes[label] = value
