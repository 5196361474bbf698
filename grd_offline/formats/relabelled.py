"""What a decomposition adds to a dataset, and where in its folder the dataset lies."""

from __future__ import annotations

from pathlib import Path

OBSERVED, STD = "observed_rewards", "reward_std"
"""Fields of a relabelled dataset: the rewards as they were delivered, and the spread of the new."""
RELABELLED = ("relabelled.h5", "relabelled")
"""In the folder of a decomposition; a folder where the input was one of Minari's."""


def find_relabelled(folder: Path) -> Path | None:
    """The relabelled data in the folder of a decomposition, if it is one."""
    return next((folder / name for name in RELABELLED if (folder / name).exists()), None)
