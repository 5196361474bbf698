"""CSV files, in blocks of rows.

The kind of a column is what all of its cells in the first block are; a later cell of another kind
is refused with its row. Commas, semicolons, tabs and bars separate cells, whichever the first row
has most of. Unless commas separate cells, numbers may have decimal commas.
"""

from __future__ import annotations

import csv
import itertools
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

import numpy as np

from grd_offline.core.errors import DataError
from grd_offline.io.files.plain import READ_FLAGS
from grd_offline.io.tables.numbers import (
    COMMA,
    MARKS,
    POINT,
    are_numbers,
    is_number,
    may_be_thousands,
    parse_name,
    parse_number,
)
from grd_offline.io.tables.source import (
    BLOCK_ROWS,
    CODE,
    FLAG,
    FLAGS,
    NUMBER,
    TEXT,
    TIME,
    Array,
    Block,
    TableSource,
)
from grd_offline.io.tables.times import is_time

MISSING = frozenset(("", "na", "n/a", "nan", "null", "none", "#n/a"))
_SEPARATORS = ",;\t|"
FIRST_ROW = 2
"""The number of the first row below the names."""
_PLAIN = re.compile(r"(?:-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?\n)+")
_PLAIN_CODE = re.compile(r"^(?:0[0-9]+|[0-9]{16,})$", re.MULTILINE)
"""The pattern of `CODE` for a whole column at once, with one cell in each line."""
Cells = Sequence[str]
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
    with _one_line(path), open_text(path) as file:
        first = file.readline()
        if not first.strip("\r\n\ufeff "):
            raise DataError("is empty: expected a row of column names", file=path)
        if first.lower().startswith("sep="):
            raise DataError("begins with a note for Excel, sep=: remove this row", file=path)
        separator = max(_SEPARATORS, key=first.count)
        file.seek(0)
        reader = csv.reader(file, delimiter=separator, strict=True)
        names = [name.strip() for name in next(reader)]
        _check_names(names)
        rows = (row for row in reader if row)
        head = list(itertools.islice(rows, BLOCK_ROWS))
        if not head:
            raise DataError("has column names, but no rows", file=path)
        _check_lengths(head, len(names), FIRST_ROW)
        columns = [[row[index] for row in head] for index in range(len(names))]
        marks = (POINT,) if separator == COMMA and decimal != "comma" else (POINT, COMMA)
        found = [_list_decimals(cells, marks) for cells in columns]
        decimals = _choose_decimals(columns, found, separator, decimal, usual)
        doubtful = {} if decimal else _find_doubtful(names, columns, found, decimals)
        kinds = {
            name: NUMBER if mark else _find_kind(cells)
            for name, cells, mark in zip(names, columns, decimals, strict=True)
        }

        def blocks(wanted: Sequence[str]) -> Iterator[Block]:
            number = FIRST_ROW
            indices = {name: names.index(name) for name in wanted}
            for name in wanted:
                if name in doubtful and name not in source.names:
                    raise doubtful[name]
            for block in itertools.chain([head], _cut(rows)):
                with _one_line(path):
                    _check_lengths(block, len(names), number)
                    cells = list(zip(*block, strict=True))
                    yield {
                        name: _read_names(cells[index])
                        if name in source.names and kinds[name] == NUMBER
                        else _read(cells[index], kinds[name], name, number, decimals[index])
                        for name, index in indices.items()
                    }
                number += len(block)

        used = COMMA if COMMA in decimals else POINT
        word = next(word for word, mark in MARKS.items() if mark == used)
        shown = word if separator != COMMA and any(map(_has_marks, columns)) else None
        source = TableSource("csv", kinds, blocks, FIRST_ROW, decimal=shown)
        yield source


def _cut(rows: Iterator[list[str]]) -> Iterator[list[list[str]]]:
    while block := list(itertools.islice(rows, BLOCK_ROWS)):
        yield block


@contextmanager
def _one_line(path: Path) -> Iterator[None]:
    try:
        yield
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise DataError(
            f"is not UTF-8 text (byte 0x{byte:02x}): save it as CSV in UTF-8", file=path
        ) from None
    except csv.Error as error:
        raise DataError(f"is not a CSV file that can be read: {error}", file=path) from None
    except DataError as error:
        raise error.at(file=path) from None


@contextmanager
def open_text(path: Path) -> Iterator[TextIO]:
    """A text file in UTF-8 that is open for reading."""
    try:
        descriptor = os.open(path, READ_FLAGS)
    except FileNotFoundError:
        raise DataError("no such file", file=path) from None
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", file=path) from None
    with os.fdopen(descriptor, encoding="utf-8-sig", newline="") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise DataError("is not a regular file", file=path)
        start = os.pread(descriptor, 4, 0) if hasattr(os, "pread") else b""
        if start in _OTHER_FILES:
            raise DataError(_OTHER_FILES[start], file=path)
        yield file


def _check_names(names: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in filter(None, names):
        if name in seen:
            raise DataError(f"two columns are called {name}")
        if "\n" in name or name.startswith("="):
            raise DataError(f"{name!r:.40} is no name of a column: the first row must have names")
        seen.add(name)
    if names and are_numbers(names, POINT):
        raise DataError("the first row holds numbers: it must have the names of the columns")


def _check_lengths(rows: Sequence[Sequence[str]], width: int, first: int) -> None:
    if set(map(len, rows)) != {width}:
        index = next(index for index, row in enumerate(rows) if len(row) != width)
        raise DataError(
            f"row {first + index:,}: {len(rows[index])} cells, the row of names has {width}"
        )


def _choose_decimals(
    columns: Sequence[Cells],
    found: Sequence[list[str]],
    separator: str,
    given: str | None,
    usual: str | None,
) -> list[str | None]:
    """The decimal mark of each column of numbers; None for other columns.

    1.234 may be less than two or more than a thousand: columns that leave no doubt decide. If there
    are none, it is the usual mark, or the mark is a decimal one.
    """
    has_points, has_commas = [POINT] in found, [COMMA] in found
    asked = given or (None if has_points or has_commas else usual)
    decimals: list[str | None] = []
    for cells, possible in zip(columns, found, strict=True):
        if asked is not None:
            preferred = MARKS[asked]
        elif has_commas or has_points or separator != ";":
            preferred = COMMA if has_commas else POINT
        else:
            preferred = COMMA if any(COMMA in cell for cell in cells) else POINT
        decimals.append(preferred if preferred in possible else next(iter(possible), None))
    return decimals


def _find_doubtful(
    names: Sequence[str],
    columns: Sequence[Cells],
    found: Sequence[list[str]],
    decimals: Sequence[str | None],
) -> dict[str, DataError]:
    """Columns whose numbers may be a thousand times as large, and what to say of them."""
    doubtful = {}
    is_mixed = [POINT] in found and [COMMA] in found
    for name, cells, possible, decimal in zip(names, columns, found, decimals, strict=True):
        if decimal is None:
            continue
        filled = [cell.strip() for cell in cells if not _is_empty(cell)]
        is_open = is_mixed and len(possible) > 1 and _has_marks(cells)
        if is_open or may_be_thousands(filled, decimal):
            place = next(index for index, cell in enumerate(cells) if _has_marks([cell]))
            doubtful[name] = DataError(
                f"row {FIRST_ROW + place:,}: {cells[place].strip()!r} may have decimals, or be "
                "more than a thousand: say what the decimal mark is (--columns decimal=point or "
                "decimal=comma), or write numbers like 1234.5",
                field=f"column {name}",
            )
    return doubtful


def _has_marks(cells: Cells) -> bool:
    return any(POINT in cell or COMMA in cell for cell in cells)


def _list_decimals(cells: Cells, marks: Sequence[str]) -> list[str]:
    """The decimal marks with which all cells that are not empty are numbers."""
    lines = "\n".join(cells) + "\n"
    if _PLAIN.fullmatch(lines) and not _PLAIN_CODE.search(lines):
        if POINT not in lines or len(marks) == 1:
            return [*marks]
        return [POINT, COMMA] if are_numbers(cells, COMMA) else [POINT]
    filled = [cell for cell in map(str.strip, cells) if cell.lower() not in MISSING]
    if any(CODE.fullmatch(cell) for cell in filled):
        return []
    return [mark for mark in marks if are_numbers(filled, mark)]


def _find_kind(cells: Cells) -> str:
    """The kind that all cells have which are not empty, where they are no numbers."""
    filled = [cell for cell in map(str.strip, cells) if cell.lower() not in MISSING]
    if all(cell.lower() in FLAGS for cell in filled):
        return FLAG
    return TIME if all(map(is_time, filled)) else TEXT


def _read(cells: Cells, kind: str, name: str, first: int, decimal: str | None) -> Array:
    """The cells of a column as numbers, flags or text. Times stay as they are written."""
    if decimal == POINT and "_" not in "".join(cells):
        with suppress(ValueError):
            return np.fromiter(map(float, cells), np.float64, len(cells))
    if decimal is not None:
        return _convert(cells, name, first, lambda cell: parse_number(cell, decimal), "a number")
    if kind == FLAG:
        values = _convert(
            cells, name, first, lambda cell: FLAGS[cell.lower()], "true, false, yes or no"
        )
        return values if np.isnan(values).any() else values.astype(np.bool_)
    texts: Array = np.empty(len(cells), object)
    for index, cell in enumerate(map(str.strip, cells)):
        if cell.startswith("=") or "\0" in cell:
            raise _refuse(cell, name, first + index, "text")
        texts[index] = None if _is_empty(cell) else cell
    return texts


def _read_names(cells: Cells) -> Array:
    """Numbers that are names, as they are written."""
    names: Array = np.empty(len(cells), object)
    names[:] = [None if _is_empty(cell) else parse_name(cell.strip()) for cell in cells]
    return names


def _convert(
    cells: Cells, name: str, first: int, parse: Callable[[str], float], expected: str
) -> Array:
    """Numbers, with nan for empty cells."""
    values = np.empty(len(cells))
    for index, cell in enumerate(map(str.strip, cells)):
        try:
            values[index] = np.nan if _is_empty(cell) else parse(cell)
        except (KeyError, ValueError):
            raise _refuse(cell, name, first + index, expected) from None
    return values


def _refuse(cell: str, name: str, row: int, expected: str) -> DataError:
    if cell.startswith("="):
        why = "is a formula: save the table with its values"
    elif is_number(cell, POINT) or is_number(cell, COMMA):
        why = "has other marks than the numbers above it: write all of them like 1234.5"
    else:
        why = f"is not {expected}, as other rows are"
    return DataError(f"row {row:,}: {cell[:40]!r} {why}", field=f"column {name}")


def _is_empty(cell: str) -> bool:
    return cell.strip().lower() in MISSING
