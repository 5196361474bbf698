"""Times that stand as text in a table: read as moments, and written as they stood there."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grd_offline.core.errors import DataError

TO_ISO = "write times as 2024-03-01 08:51 (ISO 8601; pandas.to_datetime reads other forms)"
"""What to do about times in another form."""
MOMENTS = "datetime64[us]"
"""The type of steps that are moments, not numbers."""
_ISO = re.compile(
    r"\d{4}-\d\d-\d\d(?:([ T])\d\d:\d\d(:\d\d)?(?:\.(\d{3}|\d{6}))?)?(Z|[+-]\d\d:\d\d)?"
)
_DATE = re.compile(
    r"(?:\d{1,2}([./-])\d{1,2}\1\d{4}|\d{4}([./])\d{1,2}\2\d{1,2}|\d{1,2}/\d{1,2}/\d\d)(?:\D.*)?|"
    r"\d{1,2}\.\d{1,2}\.\d\d,?\s+\d{1,2}:.*"
)
"""Days of German, American and other forms. Three numbers with points may also be a version."""
_STYLE = re.compile(r"text (D|m|s|ms|us) ([T_]) (-|Z|[+-]\d\d:\d\d)")
"""A style: the unit of the last digits, what stands between day and time, and the time zone."""


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


def parse_time(text: str, name: str, row: int) -> datetime:
    """The moment of a text, in UTC where it has a time zone."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise DataError(
            f"row {row:,}: {text[:40]!r} is not a time that is read: {TO_ISO}, or number the steps",
            field=f"column {name}",
        ) from None
    return moment if moment.tzinfo is None else moment.astimezone(UTC).replace(tzinfo=None)


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


def is_step_type(kind: Any) -> bool:
    """Whether a type of steps is one that `show_steps` knows."""
    return isinstance(kind, str) and (kind == MOMENTS or _STYLE.fullmatch(kind) is not None)


def show_steps(steps: NDArray[Any], kind: str) -> NDArray[Any]:
    """Steps of a type, from microseconds: moments, or texts as the table had them."""
    moments = steps.astype(MOMENTS)
    style = _STYLE.fullmatch(kind)
    if style is None:
        return moments
    unit, between, zone = style.groups()
    if zone not in ("-", "Z"):
        shift = int(zone[1:3]) * 60 + int(zone[4:6])
        moments = moments + np.timedelta64(-shift if zone[0] == "-" else shift, "m")
    texts = np.datetime_as_string(moments, unit)  # type: ignore[arg-type]
    texts = np.char.replace(texts, "T", " ") if between == "_" else texts
    return texts if zone == "-" else np.char.add(texts, zone)
