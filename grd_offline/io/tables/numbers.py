"""Numbers as tables write them: with a decimal point or comma, and marks between thousands.

1234.5 may also stand as 1,234.5 or 1.234,5 or 1'234.5 or 1 234,5.
"""

from __future__ import annotations

import re

import polars as pl

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


def are_numbers(cells: pl.Series, decimal: str) -> bool:
    """Whether all cells that are not null are numbers with this decimal mark."""
    return parse_numbers(cells, decimal).null_count() == cells.null_count()


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


def find_stray(cells: pl.Series, most: float) -> int | None:
    """The place of the first text that is not a number, if nearly all cells are numbers.

    `most` is the share of such texts up to which the others are numbers.
    """
    if cells.str.contains(CODE).any():
        return None
    strays = cells.is_not_null() & _find_numbers(cells).not_()
    is_few = 0 < strays.sum() <= most * (len(cells) - cells.null_count())
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
