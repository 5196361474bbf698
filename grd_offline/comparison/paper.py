"""Numbers that a paper prints, to set beside those of runs."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any

from grd_offline.core.errors import DataError, printable
from grd_offline.core.settings import Settings, setting
from grd_offline.io.files.plain import read_bytes
from grd_offline.io.files.results import LARGEST

FILE_BYTES = 2**20
"""Size of a sweep file at most."""
_NUMBER: dict[str, Any] = {"at_least": -LARGEST, "at_most": LARGEST}
_KEYS = {"task", "method", "step", "mean", "std", "note"}


@dataclass(frozen=True)
class Printed(Settings):
    """One number of a paper."""

    task: str
    method: str
    mean: float = setting(MISSING, **_NUMBER)
    std: float | None = setting(None, **_NUMBER)
    step: int | None = None
    """Step of training that the number is of. None is the end."""
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if value not in (None, "")}


def parse_printed(entries: Any, file: Path) -> tuple[Printed, ...]:
    """Read the numbers of a sweep file, or of the copy in the folder of a sweep."""
    if not isinstance(entries, list) or not all(isinstance(one, dict) for one in entries):
        raise DataError("expected a list of tables", file=file, field="paper.numbers")
    return tuple(_parse(one, file, place) for place, one in enumerate(entries, 1))


def _parse(entry: Mapping[str, Any], file: Path, place: int) -> Printed:
    field = f"paper.numbers, number {place}"
    unknown = sorted(entry.keys() - _KEYS)
    if unknown:
        known = ", ".join(sorted(_KEYS))
        raise DataError(f"unknown key {unknown[0]!r}: expected {known}", file=file, field=field)
    missing = [name for name in ("task", "method", "mean") if name not in entry]
    if missing:
        raise DataError(f"expected a {missing[0]}", file=file, field=field)
    try:
        texts = {name: printable(str(entry.get(name, ""))) for name in ("task", "method", "note")}
        return Printed(**{**entry, **texts})
    except DataError as error:
        raise error.at(file=file, field=field) from None


def find_printed(
    numbers: Sequence[Printed], task: str, method: str, step: int | None
) -> Printed | None:
    """The paper's number for a method on a task, at a step or, with None, at the end."""
    for number in numbers:
        if (number.task, number.method) == (task, method) and number.step in (None, step):
            return number
    return None


def read_toml(file: Path) -> dict[str, Any]:
    """Read a sweep file as it is."""
    try:
        return tomllib.loads(read_bytes(file, FILE_BYTES).decode())
    except FileNotFoundError:
        raise DataError("no such file", file=file) from None
    except (ValueError, RecursionError) as error:
        reason = "nested too deep" if isinstance(error, RecursionError) else error
        raise DataError(f"is not TOML: {reason}", file=file) from error


def read_printed(file: Path) -> tuple[Printed, ...]:
    """Read the paper's numbers from a sweep file; none if it has none."""
    paper = read_toml(file).get("paper", {})
    if not isinstance(paper, dict):
        raise DataError("expected a table", file=file, field="paper")
    return parse_printed(paper.get("numbers", []), file)
