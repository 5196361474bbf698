"""Preferences from a table: one row per pair of episodes, or of pieces of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from grd_offline.core.episodes import EpisodeSet
from grd_offline.core.errors import DataError
from grd_offline.core.preferences import Preferences
from grd_offline.io.tables.frames import open_frame
from grd_offline.io.tables.inputs import name_label
from grd_offline.io.tables.outcomes import open_small_table
from grd_offline.io.tables.source import TableSource, as_numbers, is_missing

_ANSWERS = {
    "first": 1.0,
    "second": 0.0,
    "left": 1.0,
    "right": 0.0,
    "both": 0.5,
    "neither": 0.5,
    "equal": 0.5,
    "tie": 0.5,
}
_SPANS = ("start", "stop")
ROLES = "first, second and preferred"


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
        return _read(open_frame(given), episodes)
    try:
        with open_small_table(Path(given)) as source:
            return _read(source, episodes)
    except DataError as error:
        raise error.at(file=given) from None


def _read(source: TableSource, episodes: EpisodeSet) -> Preferences:
    names = {name.lower(): name for name in source.kinds}
    missing = [name for name in ("first", "second", "preferred") if name not in names]
    if missing:
        raise DataError(
            f"expected the columns {ROLES}, found no {missing[0]}; columns: "
            f"{', '.join(list(source.kinds)[:12])}"
        )
    places = _name_episodes(episodes)
    wanted = [name for name in names if name in _list_columns()]
    columns: dict[str, list[Any]] = {name: [] for name in wanted}
    row = source.first_row
    sides = [names[side] for side in ("first", "second")]
    for block in source.blocks([names[name] for name in wanted], sides):
        for name in wanted:
            columns[name] += _read_column(name, block[names[name]], row, places)
        row += len(block[names["first"]])
    if not columns["first"]:
        raise DataError("no pairs: the table has no rows")
    pieces = {side: _join_pieces(side, columns) for side in ("first", "second")}
    return Preferences(
        pieces["first"], pieces["second"], np.array(columns["preferred"], np.float64)
    )


def _list_columns() -> list[str]:
    spans = [f"{side}_{end}" for side in ("first", "second") for end in _SPANS]
    return ["first", "second", "preferred", *spans]


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
    if name in ("first", "second"):
        return [_find_place(value, first_row + k, name, places) for k, value in enumerate(values)]
    numbers = as_numbers(values, name, first_row)
    is_whole = np.isfinite(numbers) & (np.round(numbers) == numbers)
    wrong = np.flatnonzero(~is_whole & ~np.isnan(numbers))
    if wrong.size:
        raise DataError(
            f"row {first_row + wrong[0]:,}: expected a whole number, got {numbers[wrong[0]]:.4g}",
            field=f"column {name}",
        )
    open_ended = -1 if name.endswith("stop") else 0
    return [open_ended if np.isnan(number) else int(number) for number in numbers]


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


def _join_pieces(side: str, columns: Mapping[str, list[Any]]) -> NDArray[np.int64]:
    count = len(columns[side])
    starts = columns.get(f"{side}_start", [0] * count)
    stops = columns.get(f"{side}_stop", [-1] * count)
    return np.array([columns[side], starts, stops], np.int64).T
