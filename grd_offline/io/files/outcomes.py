"""The folder of several outcomes: a decomposition each, and a page that shows them side by side.

outcomes.json       the names of the outcomes, and how their rewards correlate
report.html         the effects of all outcomes side by side
NAME/               the decomposition of one outcome
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from grd_offline.core.errors import DataError
from grd_offline.io.files import REPORT_FILE
from grd_offline.io.files.decomposition import is_replaceable as is_replaceable_decomposition
from grd_offline.io.files.plain import read_json
from grd_offline.io.files.storage import create_file

OUTCOMES_FILE = "outcomes.json"


def check_outcomes(names: Sequence[str]) -> None:
    """Refuse names that cannot be folders, or that stand there twice."""
    for name in names:
        if not re.fullmatch(r"[\w][\w .+-]{0,99}", name):
            raise DataError(f"{name!r:.60} cannot be the name of a folder", field="outcomes")
        if name in (OUTCOMES_FILE, REPORT_FILE):
            raise DataError(f"{name} is the name of a file of the results", field="outcomes")
    if len({name.casefold() for name in names}) < len(names):
        raise DataError("expected each of them once", field="outcomes")
    if len(names) < 2:
        raise DataError("expected at least two", field="outcomes")


def is_replaceable(folder: Path) -> bool:
    """Whether new results may replace the folder: it holds old ones, nothing else."""
    if not (folder / OUTCOMES_FILE).is_file():
        return False
    entries = [e for e in folder.iterdir() if e.name not in (OUTCOMES_FILE, REPORT_FILE)]
    return all(is_replaceable_decomposition(entry) and not entry.is_symlink() for entry in entries)


def write_outcomes(
    folder: Path, names: Sequence[str], correlation: Sequence[Sequence[float]]
) -> None:
    """Write the list of outcomes."""
    contents: Mapping[str, object] = {"outcomes": list(names), "correlation": correlation}
    with create_file(folder / OUTCOMES_FILE) as output:
        output.write(json.dumps(contents, indent=1).encode())


def has_outcomes(folder: Path) -> bool:
    """Whether a folder holds the decompositions of several outcomes."""
    return (folder / OUTCOMES_FILE).is_file()


def read_names(folder: Path) -> tuple[list[str], NDArray[np.float64]]:
    """Read the names of the outcomes, and the correlation of their rewards."""
    file = folder / OUTCOMES_FILE
    contents = read_json(file, inside=folder)
    names = contents.get("outcomes") if isinstance(contents, dict) else None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise DataError("outcomes: expected a list of names", file=file)
    try:
        check_outcomes(names)
        correlation = np.array(contents.get("correlation"), np.float64)
    except DataError as error:
        raise error.at(file=file) from None
    except (TypeError, ValueError):
        correlation = np.zeros(0)
    if correlation.shape != (len(names), len(names)):
        raise DataError("correlation: expected a number for each pair of outcomes", file=file)
    return names, correlation
