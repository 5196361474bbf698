"""The interface of every kind of table, and its cells as numbers, times and vectors.

Numbers stand with a decimal point or comma, and marks between thousands: 1234.5 may also be
1,234.5 or 1.234,5 or 1'234.5 or 1 234,5. Times stand as texts in ISO 8601.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from grd_offline.core.errors import DataError
from grd_offline.io.tables.columns import FLAG, NUMBER, TEXT, TIME, VECTOR, Embedder, refuse_image
from grd_offline.io.tables.results import MOMENTS, find_library

BLOCK_ROWS = 65_536
FLAGS = {"true": True, "false": False, "yes": True, "no": False}
"""Texts in small letters that stand for 1 and 0."""
FEW_STRAYS = 0.1
"""If at most this share of the cells of a column is text, the others are numbers."""


@dataclass(frozen=True, eq=False)
class TableSource:
    """A table that is open for reading, once, from its first row to its last."""

    layout: str
    """The layout that `inspect` shows, for example csv, parquet or table."""
    kinds: Mapping[str, str]
    """The kind of each column by its name, in the order of the table."""
    blocks: Callable[[Sequence[str], Collection[str]], Iterator[pl.DataFrame]]
    """Some rows after others, of the columns with these names. The second argument has those whose
    cells are names: they come as they are written, where the table has them as text."""
    first_row: int = 0
    """The number that messages give to the first row: 2 for CSV, whose first row has the names."""
    labels: Mapping[str, Sequence[str]] | None = None
    """The labels of columns that hold categories, where the table knows them."""
    entries: Mapping[str, Sequence[str]] | None = None
    """The names of the entries of vectors, where the table knows them."""
    decimal: str | None = None
    """The decimal mark of the numbers, where a table could have had another one."""


def as_series(name: str, column: Any, *, is_raw: bool = False) -> pl.Series:
    """A column of any library; what is of no one type stays a column of objects."""
    if isinstance(column, pl.Series) and not is_raw:
        return column.alias(name)
    if hasattr(column, "__arrow_c_stream__") and find_library(column) == "pyarrow" and not is_raw:
        return pl.Series(name, column)
    if not isinstance(column, list):
        array = np.asarray(column)
        if array.dtype.kind == "M":
            array = array.astype("datetime64[us]")
        if array.dtype.kind not in "OS" and not is_raw:
            return pl.Series(name, array)
        column = array
    cells = [None if is_missing(cell) else cell for cell in column]
    try:
        return pl.Series(name, cells, pl.Object if is_raw else None)
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):
        return pl.Series(name, cells, pl.Object)


def refuse_cell(column: str, row: int, reason: str) -> DataError:
    """The line about one cell."""
    return DataError(f"row {row:,}: {reason}", field=f"column {column}")


def find_kind(values: pl.Series) -> str:
    """The kind of a column, from its type, or from all of its texts."""
    kind = find_type_kind(values.dtype)
    if kind == TEXT and values.dtype == pl.String:
        if read_flags(values) is not None:
            return FLAG
        # Digits alone, such as 20240301, are a name.
        texts = values.drop_nulls().unique()
        has_names = texts.str.contains(r"^\d+$").any()
        return TEXT if has_names or not all(map(is_time, texts.str.strip_chars())) else TIME
    if kind is not None:
        return kind
    first = next((value for value in values if not is_missing(value)), None)
    if isinstance(first, bool | np.bool_):
        return FLAG
    if first is None or isinstance(first, int | float | np.number) or hasattr(first, "as_tuple"):
        return NUMBER
    if isinstance(first, list | tuple | np.ndarray):
        return VECTOR
    return TIME if hasattr(first, "isoformat") else TEXT


def find_type_kind(dtype: pl.DataType) -> str | None:
    """The kind of a column of this type, None for what can only be used if its values tell more."""
    if dtype == pl.Boolean:
        return FLAG
    if dtype.is_numeric() or dtype == pl.Null:
        return NUMBER
    if dtype in (pl.Date, pl.Datetime):
        return TIME
    if dtype in (pl.List, pl.Array):
        return VECTOR
    return TEXT if dtype in (pl.String, pl.Categorical, pl.Enum) else None


def is_missing(value: Any) -> bool:
    """Whether a cell is empty: None, nan, or what data frames put there instead."""
    if isinstance(value, float | np.floating):
        return bool(value != value)
    return value is None or str(value) in ("<NA>", "NaT")


def read_texts(values: pl.Series) -> pl.Series:
    """The cells as texts without blanks around them; what is empty is null."""
    if values.dtype == pl.Object:
        texts = [None if is_missing(value) else str(value) for value in values]
        values = pl.Series(values.name, texts, pl.String)
    return values.cast(pl.String).str.strip_chars()


def read_flags(values: pl.Series) -> pl.Series | None:
    """Texts that all mean yes or no, as flags; None if some do not."""
    flags = values.str.strip_chars().str.to_lowercase()
    flags = flags.replace_strict(FLAGS, default=None, return_dtype=pl.Boolean)
    return flags if flags.null_count() == values.null_count() else None


def as_numbers(values: pl.Series, first_row: int) -> NDArray[np.float64]:
    """A column as float64, with nan where it is empty; anything but numbers is refused."""
    flags = read_flags(values) if values.dtype == pl.String else None
    if flags is not None or values.dtype.is_numeric() or values.dtype in (pl.Boolean, pl.Null):
        numbers = (values if flags is None else flags).cast(pl.Float64).fill_null(np.nan)
        return numbers.to_numpy()
    found = np.full(len(values), np.nan)
    for place, value in enumerate(values):
        try:
            if isinstance(value, str):
                raise ValueError
            found[place] = np.nan if is_missing(value) else float(value)
        except (TypeError, ValueError):
            if value is None:
                continue
            stray = find_stray(read_texts(values))
            place = place if stray is None else stray
            shown = f"{str(values[place])[:40]!r} is not a number"
            raise refuse_cell(values.name, first_row + place, shown) from None
    return found


def as_times(values: pl.Series, first_row: int) -> NDArray[np.datetime64]:
    """A column of timestamps, or of texts that are times, in microseconds of UTC."""
    if values.dtype in (pl.Date, pl.Datetime):
        return values.cast(pl.Datetime("us")).to_physical().cast(pl.Datetime("us")).to_numpy()
    if values.dtype == pl.Object:
        texts = [None if is_missing(value) else str(value) for value in values]
        values = pl.Series(values.name, texts, pl.String)
    if (stray := find_stray(read_texts(values))) is not None:
        shown = f"{str(values[stray])[:40]!r} is not a number, as other rows are"
        raise refuse_cell(values.name, first_row + stray, shown)
    times: list[datetime | None] = []
    for row, text in enumerate(values, first_row):
        try:
            moment = None if text is None else datetime.fromisoformat(text.strip())
        except ValueError:
            shown = f"{text[:40]!r} is not a time that is read: {TO_ISO}, or number the steps"
            raise refuse_cell(values.name, row, shown) from None
        if moment is not None and moment.tzinfo is not None:
            moment = moment.astimezone(UTC).replace(tzinfo=None)
        times.append(moment)
    return np.array(times, MOMENTS)


def as_vectors(values: pl.Series, first_row: int) -> NDArray[np.float64]:
    """A column of vectors as (row, entry); vectors of unequal lengths are refused."""
    if isinstance(values.dtype, pl.Array):
        values = values.arr.to_list()
    if isinstance(values.dtype, pl.List) and values.dtype.inner.is_numeric() and len(values):
        widths = values.list.len()
        if not values.has_nulls() and widths[0] and widths.n_unique() == 1:
            flat = values.explode().cast(pl.Float64).fill_null(np.nan).to_numpy()
            return flat.reshape(len(values), widths[0])
    name, vectors = values.name, list[NDArray[np.float64]]()
    for row, cell in enumerate(values.to_list(), first_row):
        if isinstance(cell, str):  # a list may stand there as JSON
            with suppress(ValueError, RecursionError):
                cell = json.loads(cell)
        if not isinstance(cell, list | tuple | np.ndarray):
            raise refuse_cell(name, row, f"expected a list of numbers, got {cell!r:.40}")
        try:
            vectors.append(np.asarray(cell, np.float64))
        except (TypeError, ValueError):
            raise DataError("expected lists of numbers", field=f"column {name}") from None
        if vectors[-1].ndim != 1:
            raise refuse_image(name, vectors[-1].shape)
        width = len(vectors[0])
        if len(cell) != width:
            raise refuse_cell(name, row, f"{len(cell)} numbers, the row before has {width}")
    return np.array(vectors).reshape(len(vectors), len(vectors[0]) if vectors else 0)


def embed(values: pl.Series, embedder: Embedder, first_row: int) -> pl.Series:
    """Apply a function of the user to each cell of a column."""
    vectors = []
    for row, value in enumerate(values, first_row):
        try:
            vectors.append(np.asarray(embedder(value), np.float64))
        except Exception as error:
            failure = f"the function of embed failed: {type(error).__name__}: {error}"
            raise refuse_cell(values.name, row, failure) from error
    return pl.Series(values.name, vectors, pl.Object)


POINT, COMMA = ".", ","
MARKS = {"point": POINT, "comma": COMMA}
CODE = r"^(?:0\d+|\d{16,})$"
"""Digits that are a name and no number: 007, or more of them than a number keeps."""
_OTHERS = "' \u2019\u00a0\u202f"
"""What separates thousands beside the mark that is not the decimal one: apostrophes and blanks."""


def _compile(decimal: str, other: str) -> re.Pattern[str]:
    mark = f"([{re.escape(other)}{_OTHERS}])"
    return re.compile(
        rf"[+-]?[1-9][0-9]{{0,2}}{mark}[0-9]{{3}}(?:\1[0-9]{{3}})*(?:{re.escape(decimal)}[0-9]*)?"
    )


_GROUPED = {POINT: _compile(POINT, COMMA), COMMA: _compile(COMMA, POINT)}
"""Numbers with marks between thousands, by their decimal mark."""


def parse_number(text: str, decimal: str = POINT) -> float:
    """The number in a text; ValueError if there is none."""
    if text.startswith("\u2212"):  # the minus sign of typesetters
        text = f"-{text[1:]}"
    grouped = _GROUPED[decimal].fullmatch(text)
    if "_" in text:  # which Python would pass over
        raise ValueError(f"an underscore in {text!r}")
    if grouped:
        text = text.replace(grouped[1], "")
    elif decimal == COMMA and POINT in text:
        raise ValueError(f"a decimal point in {text!r}")
    return float(text.replace(COMMA, POINT) if decimal == COMMA else text)


def is_number(text: str, decimal: str = POINT) -> bool:
    """Whether a text is a number with this decimal mark."""
    try:
        parse_number(text, decimal)
    except ValueError:
        return False
    return True


def parse_numbers(cells: pl.Series, decimal: str = POINT) -> pl.Series:
    """The numbers in stripped texts, null where there is none.

    What polars does not read is rare, such as marks between thousands: each such text is read once.
    """
    plain = cells
    if decimal == COMMA:
        plain = cells.set(cells.str.contains(POINT, literal=True), None)
        plain = plain.str.replace(COMMA, POINT, literal=True)
    numbers = plain.cast(pl.Float64, strict=False)
    rest = cells.filter(numbers.is_null() & cells.str.contains(r"^[+\-\x{2212}]?[\d.]")).unique()
    found = {text: parse_number(text, decimal) for text in rest if is_number(text, decimal)}
    if not found:
        return numbers
    return numbers.zip_with(
        numbers.is_not_null(), cells.replace_strict(found, default=None, return_dtype=pl.Float64)
    )


def may_be_thousands(cells: pl.Series, decimal: str) -> bool:
    """Whether numbers with three decimals may as well be thousands.

    Beside 998 and 999, but no 997.5, 1.001 seems to be the next whole number.
    """
    whole = rf"^(?:0|[+-]?[1-9][0-9]{{0,2}}(?:{re.escape(decimal)}[0-9]{{3}})*)$"
    return bool(
        cells.str.contains(decimal, literal=True).any()
        and cells.str.contains(whole).all()
        and cells.str.contains(r"^[+-]?[1-9][0-9]{2}$").any()
    )


def parse_name(text: str) -> int | float | str:
    """A number that is a name: 1.10 is not 1.1, and 1.000 is not 1."""
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        if str(number) == text:
            return number
    return text


def find_stray(cells: pl.Series) -> int | None:
    """The place of the first text that is not a number, if nearly all cells are numbers."""
    if cells.str.contains(CODE).any():
        return None
    strays = cells.is_not_null() & _find_numbers(cells).not_()
    is_few = 0 < strays.sum() <= FEW_STRAYS * (len(cells) - cells.null_count())
    return strays.arg_max() if is_few else None


def find_unread(cells: pl.Series) -> int | None:
    """The place of the first cell with a decimal comma or the like, if all cells are numbers."""
    unread = cells.is_not_null() & cells.cast(pl.Float64, strict=False).is_null()
    if cells.str.contains(CODE).any() or not unread.any():
        return None
    return unread.arg_max() if (_find_numbers(cells) | cells.is_null()).all() else None


def _find_numbers(cells: pl.Series) -> pl.Series:
    """Whether each cell is a number with a decimal point or comma."""
    return parse_numbers(cells, POINT).is_not_null() | parse_numbers(cells, COMMA).is_not_null()


TO_ISO = "write times as 2024-03-01 08:51 (ISO 8601; pandas.to_datetime reads other forms)"
"""What to do about times in another form."""
_ISO = re.compile(
    r"\d{4}-\d\d-\d\d(?:([ T])\d\d:\d\d(:\d\d)?(?:\.(\d{3}|\d{6}))?)?(Z|[+-]\d\d:\d\d)?"
)
_DATE = re.compile(
    r"(?:\d{1,2}([./-])\d{1,2}\1\d{4}|\d{4}([./])\d{1,2}\2\d{1,2}|\d{1,2}/\d{1,2}/\d\d)(?:\D.*)?|"
    r"\d{1,2}\.\d{1,2}\.\d\d,?\s+\d{1,2}:.*"
)
"""Days of German, American and other forms. Three numbers with points may also be a version."""


def is_time(text: str) -> bool:
    """Whether a text is a time such as 2024-03-01 08:51 (ISO 8601)."""
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def is_foreign_date(text: str) -> bool:
    """Whether a text is a date in a form that is not read, such as 01.03.2024 8:51 or 3/1/24."""
    return _DATE.fullmatch(text.strip()) is not None and not is_time(text.strip())


def find_styles(values: Iterable[Any]) -> set[str]:
    """The styles of all texts. The empty style is that of texts that cannot be written again."""
    return {_find_style(value) for value in values if isinstance(value, str)}


def _find_style(text: str) -> str:
    match = _ISO.fullmatch(text)
    if match is None or (match[3] and not match[2]):
        return ""
    digits = len(match[3] or "")
    unit = {0: "s", 3: "ms", 6: "us"}[digits] if match[2] else "m" if match[1] else "D"
    return f"text {unit} {'_' if match[1] == ' ' else 'T'} {match[4] or '-'}"


def choose_step_type(styles: set[str]) -> str:
    """The type of steps that are moments: their style, if all of them have the same."""
    return MOMENTS if len(styles) != 1 else next(iter(styles)) or MOMENTS
