"""Numbers as tables write them: with a decimal point or comma, and marks between thousands.

1234.5 may also stand as 1,234.5 or 1.234,5 or 1'234.5 or 1 234,5.
"""

import re
from collections.abc import Iterable, Sequence

POINT, COMMA = ".", ","
MARKS = {"point": POINT, "comma": COMMA}
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


def are_numbers(cells: Iterable[str], decimal: str) -> bool:
    """Whether all cells are numbers with this decimal mark."""
    return all(is_number(cell, decimal) for cell in cells)


def may_be_thousands(cells: Sequence[str], decimal: str) -> bool:
    """Whether numbers with three decimals may as well be thousands.

    Beside 998 and 999, but no 997.5, 1.001 seems to be the next whole number.
    """
    mark = re.escape(decimal)
    whole = re.compile(rf"0|[+-]?[1-9][0-9]{{0,2}}(?:{mark}[0-9]{{3}})*")
    is_possible = any(decimal in cell for cell in cells) and all(map(whole.fullmatch, cells))
    return is_possible and any(re.fullmatch(r"[+-]?[1-9][0-9]{2}", cell) for cell in cells)


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


def find_unread(cells: Sequence[str]) -> int | None:
    """The place of the first cell with a decimal comma or the like, if all cells are numbers."""
    if not all(is_number(cell, POINT) or is_number(cell, COMMA) for cell in cells):
        return None
    return next((i for i, cell in enumerate(cells) if not _is_plain(cell)), None)


def _is_plain(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
