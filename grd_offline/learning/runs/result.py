"""Results of the public functions for training."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grd_offline.io.files.runs import EVALUATIONS_FILE, read_rows
from grd_offline.learning.runs.folder import RunFolder
from grd_offline.learning.runs.run import Run

_NAMES = ("member", "group")
"""Columns of `evaluations.csv` that hold text."""


@dataclass(frozen=True, eq=False)
class TrainingResult:
    """The result of a training run."""

    folder: Path
    step: int
    """Environment steps, or updates, of each member."""
    is_complete: bool
    """Whether the run came to its end. If not, it was stopped."""
    evaluations: list[dict[str, Any]]
    """The rows of `evaluations.csv`: `step`, `member`, `mean_return` and others. A value that is
    not known is None."""
    policies: dict[str, Path]
    """The folder of the best policy of each member, or of its last one if nothing was evaluated."""


def make_result(run: Run, files: RunFolder) -> TrainingResult:
    rows = [
        {n: v if n in _NAMES else float(v) if v else None for n, v in row.items()}
        for row in read_rows(files.path / EVALUATIONS_FILE)
    ]
    policies: dict[str, Path] = {}
    for member in run.members:
        folder = files.path / "members" / member.name / "policies"
        found = [folder / "best"] if (folder / "best").is_dir() else sorted(folder.glob("step-*"))
        policies |= {member.name: found[-1]} if found else {}
    return TrainingResult(files.path, run.step, run.step >= run.total, rows, policies)
