"""Tables of every kind, opened for reading, and their cells as numbers, times and vectors.

Numbers stand with a decimal point or comma, and marks between thousands: 1234.5 may also be
1,234.5 or 1.234,5 or 1'234.5 or 1 234,5. Times stand as texts in ISO 8601.

Data frames, Arrow tables and mappings of arrays; Parquet files and spreadsheets; and:

- LeRobot datasets, version 3, of which only numbers are read: videos and images are left out, and
  refused where they are asked for. `meta/info.json` names the entries of vectors. The outcome of an
  episode is what the frames hold (`next.reward`, `next.success`), or what `--returns` or
  `--columns` says.
- CSV files, in blocks of rows. Polars cuts rows into cells. What the cells mean is decided here:
  the kind of a column is what all of its cells in the first rows are, and a later cell of another
  kind is refused with its row. Commas, semicolons, tabs and bars separate cells, whichever the
  first row has most of. Unless commas separate cells, numbers may have decimal commas.
- Turns of conversations, or tokens of texts, as JSON lines with one score each:

      {"id": "a", "turns": [{"features": [0.1, 2.0]}, {"features": [0.3, 1.0]}], "score": 1.0}

  `turns` may be called `tokens` or `steps`. A turn has `features`, a list of numbers or an object
  of named numbers and texts, or an `embedding`, or both. Other fields are not read, such as the
  text.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import os
import re
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import polars as pl
from numpy.typing import NDArray

from grd_offline.core.errors import DataError, located
from grd_offline.io.files.plain import open_regular, read_json, refuse_outside
from grd_offline.io.tables.columns import (
    ENDINGS,
    FLAG,
    IMAGE,
    LEROBOT,
    NUMBER,
    TEXT,
    TIME,
    VECTOR,
    Embedder,
    find_library,
    list_names,
    refuse_image,
)
from grd_offline.io.tables.probe import BLOCK_ROWS, PLAUSIBLE, TIMES, check_cells
from grd_offline.io.tables.results import MOMENTS

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
    labels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The labels of columns that hold categories, where the table knows them."""
    entries: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The names of the entries of vectors, where the table knows them."""
    decimal: str | None = None
    """The decimal mark of the numbers, where a table could have had another one."""


def as_series(name: str, column: Any, *, is_raw: bool = False) -> pl.Series:
    """A column of any library; what is of no one type stays a column of objects."""
    is_arrow = hasattr(column, "__arrow_c_stream__")
    if is_arrow and find_library(column) in ("polars", "pyarrow") and not is_raw:
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


def as_texts(values: pl.Series, show: Callable[[Any], str] = str) -> pl.Series:
    """Each cell as a text; what is empty is null."""
    texts = [None if is_missing(value) else show(value) for value in values]
    return pl.Series(values.name, texts, pl.String)


def read_texts(values: pl.Series) -> pl.Series:
    """The cells as texts without blanks around them; what is empty is null."""
    if values.dtype == pl.Object:
        values = as_texts(values)
    return values.cast(pl.String).str.strip_chars()


def read_flags(values: pl.Series) -> pl.Series | None:
    """Texts that all mean yes or no, as flags; None if some do not."""
    flags = values.str.strip_chars().str.to_lowercase()
    flags = flags.replace_strict(FLAGS, default=None, return_dtype=pl.Boolean)
    return flags if flags.null_count() == values.null_count() else None


def as_numbers(values: pl.Series, first_row: int) -> NDArray[np.float64]:
    """A column as float64, with nan where it is empty; anything but numbers is refused."""
    flags = read_flags(values) if values.dtype == pl.String else None
    if values.dtype == pl.Float64 and not values.null_count():
        return values.to_numpy()
    if flags is not None or values.dtype.is_numeric() or values.dtype in (pl.Boolean, pl.Null):
        numbers = (values if flags is None else flags).cast(pl.Float64).fill_null(np.nan)
        return numbers.to_numpy()
    found = np.full(len(values), np.nan)
    for place, value in enumerate(values):
        try:
            if isinstance(value, str):
                raise ValueError
            found[place] = np.nan if is_missing(value) else float(value)
        except (TypeError, ValueError, OverflowError):
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
        values = as_texts(values)
    if (stray := find_stray(read_texts(values))) is not None:
        shown = f"{str(values[stray])[:40]!r} is not a number, as other rows are"
        raise refuse_cell(values.name, first_row + stray, shown)
    times: list[datetime | None] = []
    for row, text in enumerate(values, first_row):
        try:
            moment = None if text is None else datetime.fromisoformat(text.strip())
            if moment is not None and moment.tzinfo is not None:
                moment = moment.astimezone(UTC).replace(tzinfo=None)
        except (ValueError, OverflowError):  # the year 1 of another zone may be the year 0
            shown = f"{text[:40]!r} is not a time that is read: {TO_ISO}, or number the steps"
            raise refuse_cell(values.name, row, shown) from None
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
        except (TypeError, ValueError, OverflowError):
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


def parse_number(text: str, decimal: str = POINT) -> float | None:
    """The number in a text, None if there is none."""
    if text.startswith("\u2212"):  # the minus sign of typesetters
        text = f"-{text[1:]}"
    grouped = _GROUPED[decimal].fullmatch(text)
    if grouped:
        text = text.replace(grouped[1], "")
    elif "_" in text or (decimal == COMMA and POINT in text):  # Python passes over underscores
        return None
    try:
        return float(text.replace(COMMA, POINT) if decimal == COMMA else text)
    except ValueError:
        return None


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
    found = {text: one for text in rest if (one := parse_number(text, decimal)) is not None}
    if not found:
        return numbers
    others = cells.replace_strict(found, default=None, return_dtype=pl.Float64)
    return numbers.zip_with(numbers.is_not_null(), others)


_HUNDREDS = r"^[+-]?[1-9][0-9]{2}$"


def may_be_thousands(cells: pl.Series, decimal: str) -> bool:
    """Whether numbers with three decimals may as well be thousands.

    Beside 998 and 999, but no 997.5, 1.001 seems to be the next whole number.
    """
    whole = rf"^(?:0|[+-]?[1-9][0-9]{{0,2}}(?:{re.escape(decimal)}[0-9]{{3}})*)$"
    return bool(
        cells.str.contains(decimal, literal=True).any()
        and cells.str.contains(whole).all()
        and cells.str.contains(_HUNDREDS).any()
    )


def parse_name(text: str) -> int | float | str:
    """A number that is a name: 1.10 is not 1.1, and 1.000 is not 1."""
    for kind in (int, float):
        with suppress(ValueError):
            if str(number := kind(text)) == text:
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


def open_frame(frame: Any, raw: Collection[str] = ()) -> TableSource:
    """A data frame of pandas or polars, an Arrow table, or a mapping from names to arrays.

    The cells of columns that are `raw` stay as they are, for a function of the user.
    """
    if not isinstance(frame, Mapping) and not hasattr(frame, "columns"):
        if not hasattr(frame, "__arrow_c_stream__") or hasattr(frame, "dtype"):  # so is a Series
            raise DataError(
                "expected a data frame, an Arrow table or a mapping of arrays, got "
                f"{type(frame).__name__}"
            )
        frame = pl.DataFrame(frame)
    names = list_names(frame)
    labels: dict[str, list[str]] = {}
    columns: dict[str, pl.Series] = {}
    for name in names:
        column = frame[name]
        known = getattr(getattr(column, "cat", None), "categories", None)
        if known is not None and str(getattr(column, "dtype", "")) == "category":
            labels[str(name)] = [str(label) for label in known]
        columns[str(name)] = as_series(str(name), column, is_raw=name in raw)
    if len(columns) < len(names):
        raise DataError("two columns have the same name")
    lengths = {len(column) for column in columns.values()}
    if len(lengths) > 1:
        raise DataError(f"columns of unequal lengths: {', '.join(map(str, sorted(lengths)))}")
    if not lengths or not max(lengths):
        raise DataError("the table has no rows")
    kinds = {n: TEXT if n in labels else find_kind(column) for n, column in columns.items()}

    def blocks(wanted: Sequence[str], named: Collection[str]) -> Iterator[pl.DataFrame]:
        yield from pl.DataFrame([columns[name] for name in wanted]).iter_slices(BLOCK_ROWS)

    return TableSource("table", kinds, blocks, labels=labels)


@contextmanager
def open_parquet(paths: Sequence[Path], layout: str = "parquet",
                 max_bytes: int | None = None) -> Iterator[TableSource]:  # fmt: skip
    """Parquet files with the same columns, one after the other."""
    kinds: dict[str, str] = {}
    for path in paths:
        with _table_errors(path), open_regular(path):
            pass
    with located(file=paths[0]):
        check_cells(paths, max_bytes)
    for index, path in enumerate(paths):
        with _table_errors(path):
            file = pl.scan_parquet(path, glob=False)
            found = {name: find_type_kind(kind) for name, kind in file.collect_schema().items()}
            usable = {name: kind for name, kind in found.items() if kind is not None}
            if index and usable != kinds:
                raise DataError(f"its columns are not those of {paths[0].name}")
            kinds = usable
    if not kinds:
        raise DataError("holds no column that can be used", file=paths[0])

    def blocks(wanted: Sequence[str], named: Collection[str]) -> Iterator[pl.DataFrame]:
        for path in paths:
            with _table_errors(path):
                rows = pl.scan_parquet(path, glob=False).select(wanted)
                yield from rows.collect_batches(chunk_size=BLOCK_ROWS, maintain_order=True)

    yield TableSource(layout, kinds, blocks)


@contextmanager
def open_sheet(path: Path, max_bytes: int | None = None) -> Iterator[TableSource]:
    """The first sheet of a spreadsheet, whose first row has the names of the columns."""
    if find_spec("fastexcel") is None:
        raise DataError("needs fastexcel to be read: pip install fastexcel", file=path)
    with _table_errors(path, "a spreadsheet"):
        with open_regular(path) as file:
            _check_packed(file, max_bytes)
            file.seek(0)
            read = partial(pl.read_excel, file.read(), has_header=False, raise_if_empty=False)
        head = read(read_options={"n_rows": 1, "dtypes": "string"})
        names = [(name or "").strip() for name in (head.row(0) if len(head) else ())]
        if not any(names):
            raise DataError("is empty: expected a row of column names in its first sheet")
        check_names(names)
        rows = read(read_options={"skip_rows": 1}, infer_schema_length=None)
        columns = zip(names, rows.get_columns(), strict=False)
        table = open_frame({name: column for name, column in columns if name})
    yield replace(table, layout="xlsx", first_row=FIRST_ROW)


def _check_packed(file: BinaryIO, max_bytes: int | None) -> None:
    """Refuse a packed file that unpacks to far more than it stores, or to more than it says."""
    with zipfile.ZipFile(file) as packed:
        size = sum(entry.file_size for entry in packed.infolist())
        stored = os.fstat(file.fileno()).st_size
        if size > (max_bytes if max_bytes is not None else PLAUSIBLE + TIMES * stored):
            raise DataError(
                f"unpacks to {size:,} bytes, far more than a file of its size should hold: if you "
                "trust it, use --max-size"
            )
        if (damaged := packed.testzip()) is not None:
            raise DataError(f"is not a spreadsheet that can be read: {damaged!r:.80} is damaged")


@contextmanager
def _table_errors(path: Path, what: str = "a Parquet file") -> Iterator[None]:
    try:
        yield
    except DataError as error:
        raise error.at(file=path) from None
    except FileNotFoundError:
        raise DataError("no such file", file=path) from None
    except (Exception, pl.exceptions.PanicException) as error:
        text = (str(error) or type(error).__name__).splitlines()[0]
        raise DataError(f"is not {what} that can be read: {text}", file=path) from None


_BOOKKEEPING = ("index", "task_index", "timestamp", "next.done")
"""Columns that number frames and tasks, and that mark the last frame of every episode."""


@contextmanager
def open_lerobot(folder: Path, max_bytes: int | None = None) -> Iterator[TableSource]:
    """The frames of a dataset."""
    info = read_json(folder / LEROBOT, inside=folder)
    info = info if isinstance(info, dict) else {}
    version, features = info.get("codebase_version"), info.get("features")
    if not str(version).startswith("v3"):
        raise DataError(
            f"expected a LeRobot dataset of version 3, got {version!r}: convert it with LeRobot",
            file=folder / LEROBOT,
        )
    files = sorted((folder / "data").glob("chunk-*/file-*.parquet"))
    if not files:
        raise DataError("holds no data/chunk-*/file-*.parquet", file=folder)
    for file in files:
        refuse_outside(file, folder)
    with open_parquet(files, "lerobot", max_bytes) as source:
        kinds = {
            name: kind
            for name, kind in source.kinds.items()
            if name not in _BOOKKEEPING and kind not in (TEXT, TIME)
        }
        entries: dict[str, list[str]] = {}
        for name, feature in features.items() if isinstance(features, dict) else ():
            if not isinstance(feature, dict):
                continue
            if feature.get("dtype") in ("image", "video"):
                kinds[name] = IMAGE
            names = feature.get("names")
            if isinstance(names, dict):  # {"motors": [...]}
                names = next(iter(names.values()), None)
            if isinstance(names, list) and all(isinstance(entry, str) for entry in names):
                entries[name] = names
        yield replace(source, kinds=kinds, entries=entries)


def open_file(
    path: Path,
    max_bytes: int | None = None,
    *,
    decimal: str | None = None,
    usual: str | None = None,
) -> AbstractContextManager[TableSource]:
    """A file or folder with a table that is open for reading, by its ending.

    `decimal` and `usual` are for CSV files.
    """
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        return open_lerobot(path, max_bytes)
    if ending in (".parquet", ".pq"):
        return open_parquet([path], max_bytes=max_bytes)
    if ending == ".xlsx":
        return open_sheet(path, max_bytes)
    if ending in (".csv", ".tsv"):
        return open_csv(path, decimal=decimal, usual=usual)
    return open_turns(path)


MISSING = ("", "na", "n/a", "nan", "null", "none", "#n/a")
_SEPARATORS = ",;\t|"
FIRST_ROW = 2
"""The number of the first row below the names."""
BLOCK_BYTES = 16 * 2**20
LONGEST_ROW, LONGEST_CELL = 64 * 2**20, 2**17
"""Bytes that a row and a cell may have."""
_MARKED = "[.,]"
_QUOTED = re.compile(rb'(?:^|[\n,;\t|])"')
_NEWLINE, _QUOTE = ord("\n"), ord('"')
_OTHER_FILES = {
    b"PK\x03\x04": "is a spreadsheet or a packed file, not a table of text: save it as CSV",
    b"\x89HDF": "is an HDF5 file: give it the ending .h5",
    b"PAR1": "is a Parquet file: give it the ending .parquet",
}
"""What to do with files that have the ending of a table, by their first bytes."""


@contextmanager
def open_csv(
    path: Path, *, decimal: str | None = None, usual: str | None = None
) -> Iterator[TableSource]:
    """A CSV file that is open for reading.

    `decimal` is its decimal mark, point or comma. `usual` is the one to take if the file itself
    leaves a doubt.
    """
    with _csv_errors(path), open_text(path) as file:
        lines = _cut_blocks(file)
        first = next(lines, b"")
        end = next(iter(_find_ends(first)[0]), -1) + 1
        names, separator = _read_names(first[:end])
        cells = _Cells(len(names), separator)
        head = cells.read(first[end:], FIRST_ROW)
        if not len(head) and (more := next(lines, None)) is not None:
            head = cells.read(more, FIRST_ROW)
        if not len(head):
            raise DataError("has column names, but no rows", file=path)
        sample = head.head(BLOCK_ROWS)
        marks = (POINT,) if separator == COMMA and decimal != "comma" else (POINT, COMMA)
        plain = _find_plain(sample) if len(marks) == 1 else [False] * len(names)
        filled = [cut.alias(name) for name, cut in zip(names, sample, strict=True)]
        filled = [c if known else _strip(c) for c, known in zip(filled, plain, strict=True)]
        possible = [
            [POINT] if known else _list_decimals(column, marks)
            for column, known in zip(filled, plain, strict=True)
        ]
        decimals = _choose_decimals(filled, possible, separator, decimal, usual)
        doubtful = {} if decimal else _find_doubtful(filled, possible, decimals)
        kinds = {
            column.name: NUMBER if mark else find_kind(column)
            for column, mark in zip(filled, decimals, strict=True)
        }

        def blocks(wanted: Sequence[str], named: Collection[str]) -> Iterator[pl.DataFrame]:
            for name in wanted:
                if name in doubtful and name not in named:
                    raise doubtful[name]
            every = {name: place for place, name in enumerate(names)}
            row, places = FIRST_ROW, {name: every[name] for name in wanted}
            with _csv_errors(path):
                rest = (cells.read(data, row, places.values()) for data in lines)
                for block in itertools.chain([head], rest):
                    found = []
                    numbers, is_plain = _read_plain(block.select(map(str, places.values())))
                    for (name, place), known in zip(places.items(), is_plain, strict=True):
                        column, kind = block[str(place)].alias(name), kinds[name]
                        if name in named and kind == NUMBER:
                            found.append(_as_names(column))
                        elif known and decimals[place] == POINT:
                            found.append(numbers[str(place)].alias(name))
                        else:
                            found.append(_read(column, kind, row, decimals[place]))
                    yield pl.DataFrame(found)
                    row += len(block)

        used = "comma" if COMMA in decimals else "point"
        is_open = separator != COMMA and any(c.str.contains(_MARKED).any() for c in filled)
        decimal = used if is_open else None
        yield TableSource("csv", kinds, blocks, FIRST_ROW, decimal=decimal)


@contextmanager
def _csv_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise DataError(
            f"is not UTF-8 text (byte 0x{byte:02x}): save it as CSV in UTF-8", file=path
        ) from None
    except (csv.Error, pl.exceptions.PolarsError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"is not a CSV file that can be read: {reason}", file=path) from None


@contextmanager
def open_text(path: Path) -> Iterator[BinaryIO]:
    """A file of text that is open for reading."""
    with open_regular(path, missing="no such file") as file:
        start = file.read(4)
        if start in _OTHER_FILES:
            raise DataError(_OTHER_FILES[start], file=path)
        file.seek(0)
        yield file


def _cut_blocks(file: BinaryIO) -> Iterator[bytes]:
    """Whole rows, each of them with its end."""
    rest = b""
    while chunk := file.read(BLOCK_BYTES):
        if b"\r" in chunk:
            chunk += file.read(1) if chunk.endswith(b"\r") else b""
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        rest += chunk
        ends = _find_ends(rest)[0]
        if ends.size:
            yield rest[: ends[-1] + 1]
            rest = rest[ends[-1] + 1 :]
        elif len(rest) > LONGEST_ROW:
            raise csv.Error("a row is too long, or a quote has no end")
    if rest:
        yield rest if rest.endswith(b"\n") else rest + b"\n"


def _is_quoted(data: bytes) -> bool:
    """Whether any cell begins with a quote. Other quotes belong to the text of their cell."""
    return b'"' in data and _QUOTED.search(data) is not None


def _find_ends(data: bytes) -> tuple[NDArray[np.int64], NDArray[np.bool_] | None]:
    """Where rows end, and whether each byte is in quotes, if cells are quoted at all."""
    marks = np.frombuffer(data, np.uint8)
    if not _is_quoted(data):
        return np.flatnonzero(marks == _NEWLINE), None
    inside = np.logical_xor.accumulate(marks == _QUOTE)
    return np.flatnonzero((marks == _NEWLINE) & ~inside), inside


def _read_names(row: bytes) -> tuple[list[str], str]:
    """The names of the columns, and what separates them."""
    text = row.decode("utf-8-sig")
    if not text.strip("\n "):
        raise DataError("is empty: expected a row of column names")
    if text.lower().startswith("sep="):
        raise DataError("begins with a note for Excel, sep=: remove this row")
    separator = max(_SEPARATORS, key=text.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    names = [name.strip() for name in next(reader)]
    check_names(names)
    return names, separator


def check_names(names: Sequence[str]) -> None:
    """Refuse a first row that has no names of columns, or has one twice."""
    seen: set[str] = set()
    for name in names:
        if name and name in seen:
            raise DataError(f"two columns are called {name}")
        seen.add(name)
        if "\n" in name or name.startswith("="):
            raise DataError(f"{name!r:.40} is no name of a column: the first row must have names")
    if None not in map(parse_number, names):
        raise DataError("the first row holds numbers: it must have the names of the columns")


@dataclass(frozen=True)
class _Cells:
    """Cuts rows into cells."""

    width: int
    separator: str

    def read(self, data: bytes, row: int, places: Collection[int] | None = None) -> pl.DataFrame:
        """The cells of some columns as text, null where they are empty."""
        if not data.isascii():
            data.decode()
        names = [str(place) for place in range(self.width)]
        is_quoted = _is_quoted(data)
        is_even = data.count(self.separator.encode()) == data.count(b"\n") * (self.width - 1)
        if is_quoted or not is_even or data.startswith(b"\n") or b"\n\n" in data:
            data = self._check_rows(data, row)
        if not data:
            return pl.DataFrame(schema=dict.fromkeys(names, pl.String))
        try:
            frame = pl.read_csv(
                data,
                has_header=False,
                separator=self.separator,
                quote_char='"' if is_quoted else None,
                schema=dict.fromkeys(names, pl.String),
                columns=None if places is None else sorted({*places}),
            )
        except pl.exceptions.PolarsError:
            self._check_rows(data, row)  # a row that is too long makes up for one that is too short
            raise
        longest = pl.all().str.len_bytes().max()
        if len(data) > LONGEST_CELL and any(
            (frame.select(longest).fill_null(0) > LONGEST_CELL).row(0)
        ):
            raise csv.Error(f"a cell has more than {LONGEST_CELL:,} bytes")
        return frame

    def _check_rows(self, data: bytes, row: int) -> bytes:
        """Refuse rows with more or fewer cells than there are names, and drop empty lines."""
        ends, inside = _find_ends(data)
        if inside is not None and inside[-1]:
            raise csv.Error("a quote has no end")
        marks = np.frombuffer(data, np.uint8)
        is_separator = marks == ord(self.separator)
        separators = np.flatnonzero(is_separator if inside is None else is_separator & ~inside)
        counts = 1 + np.diff(np.searchsorted(separators, ends), prepend=0)
        is_empty = np.diff(ends, prepend=-1) == 1
        counts = counts[~is_empty]
        wrong = np.flatnonzero(counts != self.width)
        if wrong.size:
            raise DataError(
                f"row {row + wrong[0]:,}: {counts[wrong[0]]} cells, the row of names has "
                f"{self.width}"
            )
        return np.delete(marks, ends[is_empty]).tobytes() if is_empty.any() else data


def _choose_decimals(
    columns: Sequence[pl.Series],
    possible: Sequence[list[str]],
    separator: str,
    given: str | None,
    usual: str | None,
) -> list[str | None]:
    """The decimal mark of each column of numbers; None for other columns.

    1.234 may be less than two or more than a thousand: columns that leave no doubt decide. If there
    are none, it is the usual mark, or the mark is a decimal one.
    """
    has_points, has_commas = [POINT] in possible, [COMMA] in possible
    asked = given or (None if has_points or has_commas else usual)
    may_have_commas = separator == ";" and not has_points

    def prefer(cells: pl.Series) -> str:
        if asked is not None:
            return MARKS[asked]
        has_comma = may_have_commas and cells.str.contains(COMMA, literal=True).any()
        return COMMA if has_commas or has_comma else POINT

    preferred = zip(map(prefer, columns), possible, strict=True)
    return [mark if mark in marks else next(iter(marks), None) for mark, marks in preferred]


def _find_doubtful(
    columns: Sequence[pl.Series], possible: Sequence[list[str]], decimals: Sequence[str | None]
) -> dict[str, DataError]:
    """Columns whose numbers may be a thousand times as large, and what to say of them."""
    doubtful = {}
    is_mixed = [POINT] in possible and [COMMA] in possible
    texts = pl.DataFrame([cells.alias(str(k)) for k, cells in enumerate(columns)])
    is_marked, is_large = (
        texts.select(pl.all().str.contains(form).any()).row(0) for form in (_MARKED, _HUNDREDS)
    )
    facts = zip(columns, possible, decimals, is_marked, is_large, strict=True)
    for cells, marks, decimal, has_mark, has_hundreds in facts:
        if decimal is None or not has_mark or not (is_mixed or has_hundreds):
            continue
        marked = cells.str.contains(_MARKED)
        if (is_mixed and len(marks) > 1 and marked.any()) or may_be_thousands(cells, decimal):
            place = marked.fill_null(False).arg_max() or 0
            doubtful[cells.name] = refuse_cell(
                cells.name,
                FIRST_ROW + place,
                f"{cells[place]!r} may have decimals, or be more than a thousand: say what the "
                "decimal mark is (--columns decimal=point or decimal=comma), or write numbers "
                "like 1234.5",
            )
    return doubtful


def _read_plain(cells: pl.DataFrame) -> tuple[pl.DataFrame, list[bool]]:
    """The numbers of all columns at once, and which columns hold nothing else.

    Of many columns, one after the other would take a hundred times as long.
    """
    numbers = cells.select(pl.all().cast(pl.Float64, strict=False))
    counts = zip(numbers.null_count().row(0), cells.null_count().row(0), strict=True)
    return numbers.fill_nan(None), [found == empty for found, empty in counts]


def _find_plain(cells: pl.DataFrame) -> list[bool]:
    """The columns whose cells are all numbers with a decimal point as programs write them."""
    numbers, is_plain = _read_plain(cells)
    # A text such as nan is empty, which others have to be told of.
    counts = zip(numbers.null_count().row(0), cells.null_count().row(0), strict=True)
    has_names = cells.select(pl.all().str.contains(CODE).any()).row(0)
    both = zip(is_plain, counts, has_names, strict=True)
    return [known and found == empty and not named for known, (found, empty), named in both]


def _list_decimals(cells: pl.Series, marks: Sequence[str]) -> list[str]:
    """The decimal marks with which all cells that are not empty are numbers."""
    if cells.str.contains(CODE).any():
        return []
    empty = cells.null_count()
    return [mark for mark in marks if parse_numbers(cells, mark).null_count() == empty]


def _strip(cells: pl.Series) -> pl.Series:
    """The cells without blanks around them, null where they are empty or stand for nothing."""
    cells = cells.str.strip_chars()
    return cells.set(cells.str.to_lowercase().is_in(MISSING), None)


def _read(cells: pl.Series, kind: str, row: int, decimal: str | None) -> pl.Series:
    """The cells of a column as numbers, flags or text. Times stay as they are written."""
    if decimal == POINT:
        numbers = cells.cast(pl.Float64, strict=False)
        if numbers.null_count() == cells.null_count():
            return numbers.fill_nan(None)
    cells = _strip(cells)
    if decimal is not None:
        values, expected = parse_numbers(cells, decimal), "a number"
    elif kind == FLAG:
        low = cells.str.to_lowercase()
        values = low.replace_strict(FLAGS, default=None, return_dtype=pl.Boolean)
        expected = "true, false, yes or no"
    else:
        is_text = ~(cells.str.starts_with("=") | cells.str.contains("\0", literal=True))
        values, expected = cells.set(~is_text, None), "text"
    wrong = values.is_null() & cells.is_not_null()
    if wrong.any():
        place = wrong.arg_max() or 0
        cell, why = cells[place], f"is not {expected}, as other rows are"
        if cell.startswith("="):
            why = "is a formula: save the table with its values"
        elif any(parse_number(cell, mark) is not None for mark in (POINT, COMMA)):
            why = "has other marks than the numbers above it: write all of them like 1234.5"
        raise refuse_cell(cells.name, row + place, f"{cell[:40]!r} {why}")
    return values


def _as_names(cells: pl.Series) -> pl.Series:
    """Numbers that are names, as they are written."""
    cells = _strip(cells)
    if cells.str.contains(r"^(?:0|-?[1-9][0-9]{0,17})$").all():
        return cells.cast(pl.Int64)
    names = {text: parse_name(text) for text in cells.drop_nulls().unique()}
    return pl.Series(cells.name, [names.get(text) for text in cells], pl.Object)


EPISODE, STEP, SCORE = "conversation", "turn", "score"
"""Names of the columns of the table."""
TURNS = ("turns", "tokens", "steps")
SCORES = ("score", "reward", "return", "outcome", "success")
_FIELDS = ("features", "embedding")
Row = dict[str, Any]


@contextmanager
def open_turns(path: Path) -> Iterator[TableSource]:
    """A file of JSON lines that is open for reading."""
    with located(file=path), open_text(path) as file:
        lines = _parse(file, path)
        first = next(lines, None)
        if first is None:
            raise DataError("is empty: expected one JSON object per line")
        head = first[0]
        kinds = {EPISODE: TEXT, STEP: NUMBER}
        kinds |= {SCORE: NUMBER} if SCORE in head else {}
        kinds |= {n: _find_value_kind(v) for n, v in head.items() if n not in (*kinds, SCORE)}

        def blocks(wanted: Sequence[str], named: Collection[str]) -> Iterator[pl.DataFrame]:
            rows = itertools.chain.from_iterable(itertools.chain([first], lines))
            while block := list(itertools.islice(rows, BLOCK_ROWS)):
                yield pl.DataFrame([as_series(n, [row[n] for row in block]) for n in wanted])

        yield TableSource("jsonl", kinds, blocks)


def _parse(lines: Iterable[bytes], path: Path) -> Iterator[list[Row]]:
    """The turns of each line."""
    names: set[str] = set()
    ids: set[str] = set()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            if b"\\u" in line:  # a lone surrogate can be read but never be written
                json.dumps(entry, ensure_ascii=False).encode()
            rows = _read_line(entry, number)
            names = names or set(rows[0])
            for turn, row in enumerate(rows):
                if set(row) != names:
                    other = ", ".join(sorted(set(row) ^ names))
                    raise DataError(f"turn {turn} differs from the first turn in {other}")
            if rows[0][EPISODE] in ids:
                raise DataError(f"id {rows[0][EPISODE]} is there twice")
        except DataError as error:
            raise DataError(f"line {number:,}: {error.reason}", file=path) from None
        except (ValueError, RecursionError):
            raise DataError(f"line {number:,} is not JSON", file=path) from None
        except OverflowError:
            raise DataError(f"line {number:,}: score: the number is too large", file=path) from None
        ids.add(rows[0][EPISODE])
        yield rows


def _read_line(entry: Any, number: int) -> list[Row]:
    if not isinstance(entry, dict):
        raise DataError("expected an object with turns and a score")
    turns = next((entry[name] for name in TURNS if name in entry), None)
    if not isinstance(turns, list) or not turns:
        raise DataError("expected a list of turns under the name turns")
    score = next((entry[name] for name in SCORES if name in entry), None)
    if score is not None and not isinstance(score, int | float):
        raise DataError(f"score: expected a number, got {score!r:.40}")
    same: Row = {EPISODE: str(entry.get("id", number - 1))}
    if score is not None:
        same[SCORE] = float(score)
    return [{**same, STEP: index, **_read_turn(turn, index)} for index, turn in enumerate(turns)]


def _read_turn(turn: Any, index: int) -> Row:
    if isinstance(turn, list):
        turn = {"features": turn}
    fields: Row = {}
    for name in _FIELDS if isinstance(turn, dict) else ():
        value = turn.get(name)
        if isinstance(value, Mapping):
            fields |= {str(key): one for key, one in value.items()}
        elif value is not None and value != []:
            fields[name] = value
    if not fields or {EPISODE, STEP, SCORE} & set(fields):
        raise DataError(
            f"turn {index}: expected features or an embedding, and no feature called "
            f"{EPISODE}, {STEP} or {SCORE}"
        )
    return fields


def _find_value_kind(value: Any) -> str:
    """The kind of a feature, from its first value. A text may be followed by any other text."""
    kind = VECTOR if isinstance(value, list) else find_kind(as_series("", [value]))
    return TEXT if kind == FLAG and isinstance(value, str) else kind
