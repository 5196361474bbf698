"""The interface of every kind of table: names and kinds of its columns, and blocks of its rows."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grd_offline.core.errors import DataError
from grd_offline.io.tables.numbers import COMMA, POINT, is_number
from grd_offline.io.tables.times import is_time, parse_time

Array = NDArray[Any]
Block = Mapping[str, Array]
"""Some rows in order: an array with one entry, or one vector, per row for each column."""

Embedder = Callable[[Any], Any]
"""Makes a vector of numbers of what stands in a cell."""
NUMBER, FLAG, TEXT, TIME, VECTOR = "number", "flag", "text", "time", "vector"
"""The kinds of columns that a table can have."""
IMAGE = "image"
"""A column that is there, and that nothing can be done with."""
BLOCK_ROWS = 65_536
FLAGS = {"true": True, "false": False, "yes": True, "no": False}
"""Texts in small letters that stand for 1 and 0."""
CODE = re.compile(r"0\d+|\d{16,}")
"""Digits that are a name and no number: 007, or more of them than a number keeps."""
CELLS_PER_STRAY = 10
"""If at most one in this many cells of a column is a text, the others are numbers."""


@dataclass(frozen=True, eq=False)
class TableSource:
    """A table that is open for reading, once, from its first row to its last."""

    layout: str
    """The layout that `inspect` shows, for example csv, parquet or table."""
    kinds: Mapping[str, str]
    """The kind of each column by its name, in the order of the table."""
    blocks: Callable[[Sequence[str]], Iterator[Block]]
    """The rows of the columns with these names."""
    first_row: int = 0
    """The number that messages give to the first row: 2 for CSV, whose first row has the names."""
    labels: Mapping[str, Sequence[str]] | None = None
    """The labels of columns that hold categories, where the table knows them."""
    entries: Mapping[str, Sequence[str]] | None = None
    """The names of the entries of vectors, where the table knows them."""
    decimal: str | None = None
    """The decimal mark of the numbers, where a table could have had another one."""
    names: list[str] = field(default_factory=list)
    """Columns whose numbers are names: `blocks` gives them as they are written, if it can."""


def find_kind(values: Array) -> str:
    """The kind of a column, from its values."""
    if values.ndim > 1:
        return VECTOR
    if values.dtype.kind == "b":
        return FLAG
    if values.dtype.kind in "fiu":
        return NUMBER
    if values.dtype.kind == "M":
        return TIME
    first = next((value for value in values if not is_missing(value)), None)
    if isinstance(first, bool | np.bool_):
        return FLAG
    if first is None or isinstance(first, int | float | np.number) or hasattr(first, "as_tuple"):
        return NUMBER
    if isinstance(first, list | tuple | np.ndarray):
        return VECTOR
    if isinstance(first, str):
        if _are_flags(values):
            return FLAG
        return TIME if _are_times(values) else TEXT
    return TIME if hasattr(first, "isoformat") else TEXT


def _are_flags(values: Array) -> bool:
    """Whether all texts are yes or no, or true or false."""
    return all(
        isinstance(value, str) and value.strip().lower() in FLAGS
        for value in values
        if not is_missing(value)
    )


def _are_times(values: Array) -> bool:
    """Whether all texts are times. Digits alone, such as 20240301, are a name."""
    return all(
        isinstance(value, str) and not value.isdigit() and is_time(value.strip())
        for value in values
        if not is_missing(value)
    )


def is_missing(value: Any) -> bool:
    """Whether a cell is empty: None, nan, or what data frames put there instead."""
    if isinstance(value, float | np.floating):
        return bool(value != value)
    return value is None or str(value) in ("<NA>", "NaT")


def find_stray(values: Array) -> int | None:
    """The place of the first text that is not a number, if nearly all cells are numbers."""
    strays, filled = [], 0
    for index, value in enumerate(values):
        if is_missing(value):
            continue
        text = str(value).strip()
        if CODE.fullmatch(text):
            return None
        filled += 1
        if not (is_number(text, POINT) or is_number(text, COMMA)):
            strays.append(index)
            if len(strays) * CELLS_PER_STRAY > len(values):
                return None
    return strays[0] if strays and len(strays) * CELLS_PER_STRAY <= filled else None


def as_numbers(values: Array, name: str, first_row: int) -> NDArray[np.float64]:
    """A column as float64, with nan where it is empty; anything but numbers is refused."""
    if values.dtype.kind in "fiub":
        return values.astype(np.float64)
    if _are_flags(values):
        read = [np.nan if is_missing(value) else FLAGS[value.strip().lower()] for value in values]
        return np.array(read, np.float64)
    numbers = np.empty(len(values))
    for index, value in enumerate(values):
        try:
            if isinstance(value, str):
                raise ValueError
            numbers[index] = np.nan if is_missing(value) else float(value)
        except (TypeError, ValueError):
            stray = find_stray(values)
            place = index if stray is None else stray
            shown = str(values[place])[:40]
            raise DataError(
                f"row {first_row + place:,}: {shown!r} is not a number", field=f"column {name}"
            ) from None
    return numbers


def as_times(values: Array, name: str, first_row: int) -> NDArray[np.datetime64]:
    """A column of timestamps, or of texts that are times, in microseconds."""
    try:
        if values.dtype.kind == "M":
            return values.astype("datetime64[us]")
        if (stray := find_stray(values)) is not None:
            raise DataError(
                f"row {first_row + stray:,}: {str(values[stray])[:40]!r} is not a number, as other "
                "rows are",
                field=f"column {name}",
            )
        times = [
            None if is_missing(v) else np.datetime64(_as_time(v, name, first_row + row), "us")
            for row, v in enumerate(values)
        ]
        return np.array(times, "datetime64[us]")
    except DataError:
        raise
    except (TypeError, ValueError):
        raise DataError(
            f"a value after row {first_row:,} is not a timestamp", field=f"column {name}"
        ) from None


def _as_time(value: Any, name: str, row: int) -> Any:
    """A moment in UTC without its zone, which numpy does not know."""
    if isinstance(value, str):
        return parse_time(value, name, row)
    if getattr(value, "tzinfo", None) is None:
        return value
    from datetime import UTC

    return value.astimezone(UTC).replace(tzinfo=None)


def as_vectors(values: Array, name: str, first_row: int) -> NDArray[np.float64]:
    """A column of vectors as (row, entry); vectors of unequal lengths are refused."""
    if values.ndim == 2 and values.dtype.kind in "fiub":
        return values.astype(np.float64)
    if values.ndim > 2:
        raise refuse_image(name, values.shape[1:])
    width = None
    values = values.copy()
    for index, value in enumerate(values):
        if isinstance(value, str):
            value = values[index] = _parse_list(value)
        if getattr(value, "ndim", 1) > 1:
            raise refuse_image(name, value.shape)
        if not isinstance(value, list | tuple | np.ndarray) or np.ndim(value) != 1:
            raise DataError(
                f"row {first_row + index:,}: expected a list of numbers, got {value!r:.40}",
                field=f"column {name}",
            )
        width = len(value) if width is None else width
        if len(value) != width:
            raise DataError(
                f"row {first_row + index:,}: {len(value)} numbers, the row before has {width}",
                field=f"column {name}",
            )
    try:
        return np.array([np.asarray(value, np.float64) for value in values]).reshape(
            len(values), width or 0
        )
    except (TypeError, ValueError):
        inner = next((np.shape(one) for value in values for one in value[:1]), ())
        if inner:
            raise refuse_image(name, (len(values[0]), *inner)) from None
        raise DataError("expected lists of numbers", field=f"column {name}") from None


def _parse_list(text: str) -> Any:
    """A list that stands as JSON in a cell; the text itself where it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def refuse_image(name: str, shape: tuple[int, ...] | None = None) -> DataError:
    """The one line that says what to do about images."""
    shown = "" if shape is None else f" of shape {shape}"
    return DataError(
        f"images{shown} are not supported, only vectors of numbers: put embeddings of them in "
        "their place (--embed NAME, or embed= in Python)",
        field=f"column {name}",
    )


def embed(values: Array, embedder: Embedder, name: str, first_row: int) -> Array:
    """Apply a function of the user to each cell of a column."""
    vectors: Array = np.empty(len(values), object)
    for index, value in enumerate(values):
        try:
            vectors[index] = np.asarray(embedder(value), np.float64)
        except Exception as error:
            raise DataError(
                f"row {first_row + index:,}: the function of embed failed: "
                f"{type(error).__name__}: {error}",
                field=f"column {name}",
            ) from error
    return vectors
