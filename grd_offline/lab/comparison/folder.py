"""The folder of a comparison: what `grd-offline compare` writes.

comparison.json     the statistics of every method, and the runs that were compared
scores.csv          the score of each seed
report.html         a page with tables and figures
*.png               the figures (or .svg, .pdf)
"""

from __future__ import annotations

from pathlib import Path

from grd_offline.core.errors import DataError
from grd_offline.io.files.plain import read_json
from grd_offline.io.files.runs import start_table
from grd_offline.io.files.storage import check_folder, check_writable
from grd_offline.lab.comparison.compare import Comparison

COMPARISON_FILE, SCORES_FILE = "comparison.json", "scores.csv"
_COLUMNS = ("task", "method", "step", "seed", "score")
_KEYS = {"metric", "chosen", "tasks", "methods"}
"""Some of what `Comparison.to_json` gives."""
_FORMULA = ("=", "+", "-", "@")
"""A spreadsheet takes text that begins with one of these for a formula."""


def is_comparison(folder: Path) -> bool:
    """Whether the folder holds a comparison of this program."""
    try:
        contents = read_json(folder / COMPARISON_FILE, inside=folder)
    except (DataError, FileNotFoundError):
        return False
    return isinstance(contents, dict) and contents.keys() >= _KEYS


def check_place(folder: Path) -> None:
    """Refuse a place for a comparison that cannot be written to, or holds something else."""
    check_writable(folder)
    if folder.exists():
        check_folder(folder, is_replaceable=is_comparison)


def write_scores(folder: Path, comparison: Comparison) -> None:
    """Write the score of each seed as a table that a spreadsheet can open safely."""
    rows = [
        {
            "task": _as_text(row.task),
            "method": _as_text(row.method),
            "step": row.step,
            "seed": seed,
            "score": score,
        }
        for row in comparison.rows
        for seed, score in zip(row.seeds, row.scores, strict=True)
    ]
    start_table(folder / SCORES_FILE, _COLUMNS, rows)


def _as_text(name: str) -> str:
    """A name that no spreadsheet takes for a formula: an apostrophe makes it text."""
    return f"'{name}" if name.startswith(_FORMULA) else name
