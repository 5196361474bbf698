"""Numbers in words: one style for counts, percentages, durations and sizes."""

from __future__ import annotations

import math

DO_NOT_RELY = "Do not rely on these rewards"
"""The words that a verdict begins with if rewards should not be used."""


def count(number: int, unit: str, units: str | None = None) -> str:
    """A number with its unit: 1 episode, 2,000 episodes. `units` is an irregular plural."""
    return f"{number:,} {unit if number == 1 else units or unit + 's'}"


def format_percentage(share: float | None, digits: int = 0) -> str:
    """A fraction as a percentage: 66 %. A dash stands for a fraction that is not known."""
    if share is None or math.isnan(share):
        return "-"
    return f"{round(100 * share, digits) + 0.0:.{digits}f} %"  # no -0 %


def format_share(share: float | None) -> str:
    """A part of a whole: 66 %, 5.3 %, 97.5 %, 99.98 %, under 0.1 %.

    It has more digits if it is close to 0 % or 100 %. The command line, findings and reports all
    write shares in this way. A dash stands for a share that is not known.
    """
    if share is None or math.isnan(share):
        return "-"
    percent = 100 * share
    size = abs(percent)
    if 0 < size < 0.05:
        return "under 0.1 %" if percent > 0 else "0 %"
    digits = 2 if 99.5 <= percent < 100 else 1 if size < 10 or percent >= 90 else 0
    text = f"{percent:.{digits}f}"
    return f"{text.rstrip('0').rstrip('.') if digits else text} %"


def format_seconds(seconds: float) -> str:
    """A duration: 8 s, 3 min 20 s, 2 h 5 min, 3 h."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    large, small, units = (whole // 60, whole % 60, ("min", "s"))
    if whole >= 3600:
        large, small, units = (whole // 3600, whole % 3600 // 60, ("h", "min"))
    return f"{large} {units[0]} {small} {units[1]}" if small else f"{large} {units[0]}"


def format_bytes(number: int) -> str:
    """A size: 312 B, 1.4 MB."""
    size, unit = float(number), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
