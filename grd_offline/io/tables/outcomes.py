"""Small tables: outcomes with one row per episode, and preferences with one row per pair."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from grd_offline.core.episodes import EpisodeSet
from grd_offline.core.errors import DataError
from grd_offline.core.preferences import Preferences
from grd_offline.io.tables.columns import FLAG, NUMBER, TEXT, find_names
from grd_offline.io.tables.frames import open_file, open_frame
from grd_offline.io.tables.inputs import name_label
from grd_offline.io.tables.numbers import find_stray
from grd_offline.io.tables.source import (
    FEW_STRAYS,
    FLAGS,
    TableSource,
    as_numbers,
    is_missing,
    read_texts,
)

SUCCESS = (
    "an outcome is a number: write 1 for success and 0 for failure (yes and no also do), and large "
    "numbers like 1234.5"
)
"""What to do about outcomes such as renewed and cancelled."""
_SHOWN = 5


class OutcomeTable(dict[str, float]):
    """Outcomes by episode, which know their column, their file, and the rows that are empty."""

    def __init__(self, column: str) -> None:
        super().__init__()
        self.column = column
        self.file: Path | None = None
        self.empty_rows: dict[str, int] = {}


def read_outcomes(
    path: Path, episode: str | None = None, outcome: str | None = None
) -> OutcomeTable:
    """The outcome of each episode by its name, from a file; see `gather_outcomes`."""
    with _open_small_table(path) as source:
        outcomes = gather_outcomes(source, episode, outcome)
        outcomes.file = path
        return outcomes


def gather_outcomes(
    source: TableSource, episode: str | None = None, outcome: str | None = None
) -> OutcomeTable:
    """The outcome of each episode by its name.

    The table has a column of episodes and one of numbers. `episode` is what the table of steps
    calls its episodes: a column of this name is taken here, too. `outcome` names the column of
    numbers. If it is not given, and names do not tell, the first column holds the episodes, and the
    only other column of numbers the outcomes.
    """
    names = list(source.kinds)
    found = [episode] if episode in names else find_names("episode", names)
    first = next((name for name in found if name is not None and name != outcome), names[0])
    column = _find_outcome(source, first, outcome)
    outcomes, row = OutcomeTable(column), source.first_row
    for block in source.blocks([first, column], [first]):
        values = as_outcomes(block[column], column, row)
        for place, (name, value) in enumerate(zip(block[first], values.tolist(), strict=True), row):
            if is_missing(name):
                raise DataError(f"row {place:,} is empty", field=f"column {first}")
            label = name_label(name)
            if np.isnan(value):
                outcomes.empty_rows.setdefault(label, place)
            elif outcomes.setdefault(label, value) != value:
                raise DataError(f"episode {label} has two outcomes, the second in row {place:,}")
        row += len(values)
    return outcomes


@contextmanager
def _open_small_table(path: Path) -> Iterator[TableSource]:
    """A table of outcomes or preferences."""
    try:
        if path.suffix.lower() not in (".csv", ".tsv", ".xlsx", ".parquet", ".pq"):
            raise DataError("expected a .csv, .tsv, .xlsx or .parquet file")
        with open_file(path) as source:
            yield source
    except DataError as error:
        raise error.at(file=path) from None


def _find_outcome(source: TableSource, episode: str, wanted: str | None) -> str:
    """The column of outcomes: the one that is wanted, or the one that its name or kind tells."""
    names = list(source.kinds)
    numbers = [n for n in names if n != episode and source.kinds[n] in (NUMBER, FLAG)]
    shown = f"columns: {', '.join(names[:12])}"
    if wanted is not None:
        if wanted not in names:
            raise DataError(f"there is no column {wanted!r} with outcomes; {shown}")
        if wanted not in numbers and (wanted == episode or source.kinds[wanted] != TEXT):
            raise DataError(f"expected numbers as outcomes; {shown}", field=f"column {wanted}")
        return wanted
    # Texts are refused with their row, where they are read.
    texts = [name for name in names if name != episode and source.kinds[name] == TEXT]
    usable = numbers or (texts if len(texts) == 1 else [])
    found = [n for role in ("returns", "rewards") for n in find_names(role, numbers or texts)]
    if not found and len(usable) != 1:
        raise DataError(
            f"{len(numbers) or 'no'} columns of numbers, expected one beside the episodes "
            f"({episode}): name the outcome with --columns return=NAME (in Python, give a frame of "
            f"two columns); {shown}"
        )
    return (found or usable)[0]


def as_outcomes(values: pl.Series, name: str, first_row: int) -> NDArray[np.float64]:
    """A column of outcomes as numbers; other texts than yes and no are refused."""
    try:
        return as_numbers(values, name, first_row)
    except DataError as error:
        if find_stray(read_texts(values), FEW_STRAYS) is not None:
            raise
        raise DataError(f"{error.reason}; {SUCCESS}", field=error.field) from None


def look_up(names: Sequence[Any], returns: Mapping[Any, Any]) -> NDArray[np.float64]:
    """(episode,) the outcomes of the episodes with these names."""
    by_text = {name_label(key): value for key, value in returns.items()}
    outcomes = np.array([_as_outcome(name, by_text.get(name_label(name))) for name in names])
    missing = [name for name, out in zip(names, outcomes, strict=True) if not np.isfinite(out)]
    if not missing:
        return outcomes
    file, field, rows = "returns", None, {}
    if isinstance(returns, OutcomeTable):
        file, field, rows = (
            str(returns.file or file),
            f"column {returns.column}",
            returns.empty_rows,
        )
    if not any(name_label(name) in {**by_text, **rows} for name in names):
        raise DataError(
            f"none of {len(names):,} episodes has an outcome: episodes are called "
            f"{_list_names(names)}, and outcomes are for {_list_names(list(by_text))}; call them "
            "the same (in Python, make the episodes the index of a Series: "
            'bills.set_index("trip").fuel)',
            file=file,
        )
    raise refuse_missing(missing, len(names), rows).at(file=file, field=field)


def _as_outcome(name: Any, value: Any) -> float:
    if isinstance(value, str) and value.strip().lower() in FLAGS:
        return FLAGS[value.strip().lower()]
    try:
        return np.nan if is_missing(value) else float(value)
    except (TypeError, ValueError):
        raise DataError(
            f"episode {name}: {value!r:.40} is not a number; {SUCCESS}", field="returns"
        ) from None


def refuse_missing(
    missing: Sequence[Any], total: int, rows: Mapping[str, int] | None = None
) -> DataError:
    """The line that says which episodes have no outcome. `rows` are the empty rows of some."""
    labels, rows = [name_label(name) for name in missing[:_SHOWN]], rows or {}
    shown = [f"{one} (row {rows[one]:,} is empty)" if one in rows else one for one in labels]
    have = "has" if len(missing) == 1 else "have"
    return DataError(
        f"{len(missing):,} of {total:,} episodes {have} no outcome: {', '.join(shown)}"
        f"{_tell_more(missing)}; add them, or leave out all rows of these episodes"
    )


def _list_names(names: Sequence[Any]) -> str:
    return ", ".join(map(name_label, names[:_SHOWN])) + _tell_more(names) or "none"


def _tell_more(names: Sequence[Any]) -> str:
    return f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""


_SIDES = ("first", "second")
_ANSWERS = {
    **dict.fromkeys(("first", "left"), 1.0),
    **dict.fromkeys(("second", "right"), 0.0),
    **dict.fromkeys(("both", "neither", "equal", "tie"), 0.5),
}
_SPANS = {"first_start": 0, "first_stop": -1, "second_start": 0, "second_stop": -1}
"""Columns of the ends of pieces, and what they are where nothing is said."""


def read_preferences(given: Any, episodes: EpisodeSet) -> Preferences:
    """The preferences of a file (.csv, .parquet), of a data frame, or those that are given.

    Columns are `first` and `second`, which name episodes, and `preferred`: 1 or first, 0 or second,
    1/2 or both. `first_start`, `first_stop`, `second_start` and `second_stop` are there where
    pieces of episodes were compared. Episodes are called what their table calls them, otherwise by
    their number, from 0.
    """
    if isinstance(given, Preferences):
        return given
    if not isinstance(given, str | Path):
        return _read_pairs(open_frame(given), episodes)
    with _open_small_table(Path(given)) as source:
        return _read_pairs(source, episodes)


def _read_pairs(source: TableSource, episodes: EpisodeSet) -> Preferences:
    names = {name.lower(): name for name in source.kinds}
    missing = [name for name in (*_SIDES, "preferred") if name not in names]
    if missing:
        raise DataError(
            f"expected the columns first, second and preferred, found no {missing[0]}; columns: "
            f"{', '.join(list(source.kinds)[:12])}"
        )
    places, row = _name_episodes(episodes), source.first_row
    wanted = {name: names[name] for name in (*_SIDES, "preferred", *_SPANS) if name in names}
    columns: dict[str, list[Any]] = {name: [] for name in wanted}
    for block in source.blocks([*wanted.values()], [names[side] for side in _SIDES]):
        for name, column in wanted.items():
            columns[name] += _read_column(name, block[column], row, places)
        row += len(block)
    count = len(columns["preferred"])
    if not count:
        raise DataError("no pairs: the table has no rows")
    spans = {name: columns.get(name, [usual] * count) for name, usual in _SPANS.items()}
    first, second = (
        np.array([columns[side], spans[f"{side}_start"], spans[f"{side}_stop"]], np.int64).T
        for side in _SIDES
    )
    return Preferences(first, second, np.array(columns["preferred"], np.float64))


def _name_episodes(episodes: EpisodeSet) -> dict[str, int]:
    """The index of each episode by its name."""
    if episodes.provenance is None:
        return {str(index): index for index in range(len(episodes))}
    labels = (episode.label for episode in episodes)
    return {
        str(index) if label is None else name_label(label): index
        for index, label in enumerate(labels)
    }


def _read_column(
    name: str, values: pl.Series, first_row: int, places: Mapping[str, int]
) -> list[Any]:
    if name == "preferred":
        return [_read_answer(value, first_row + k) for k, value in enumerate(values)]
    if name in _SIDES:
        return [_find_place(value, first_row + k, name, places) for k, value in enumerate(values)]
    numbers = as_numbers(values, name, first_row)
    is_whole = np.isfinite(numbers) & (np.round(numbers) == numbers)
    wrong = np.flatnonzero(~is_whole & ~np.isnan(numbers))
    if wrong.size:
        raise DataError(
            f"row {first_row + wrong[0]:,}: expected a whole number, got {numbers[wrong[0]]:.4g}",
            field=f"column {name}",
        )
    return [_SPANS[name] if np.isnan(number) else int(number) for number in numbers]


def _read_answer(value: Any, row: int) -> float:
    text = str(value).strip().lower()
    if not is_missing(value) and text in _ANSWERS:
        return _ANSWERS[text]
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = np.nan
    if not 0 <= number <= 1:
        raise DataError(
            f"row {row:,}: expected 1 or first, 0 or second, 0.5 or both, got {value!s:.40}",
            field="column preferred",
        )
    return number


def _find_place(value: Any, row: int, column: str, places: Mapping[str, int]) -> int:
    if is_missing(value):
        raise DataError(f"row {row:,} is empty", field=f"column {column}")
    place = places.get(name_label(value))
    if place is None:
        raise DataError(f"row {row:,}: there is no episode {value!s:.40}", field=f"column {column}")
    return place
