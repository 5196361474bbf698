"""The result of a decomposition."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grd_offline.additive.dynamics import DynamicsModel
from grd_offline.core.words import format_share
from grd_offline.io.datasets import open_recording
from grd_offline.io.tables.results import read_rewards
from grd_offline.methods.contract import Finding
from grd_offline.rewards.model import RewardModel
from grd_offline.rewards.notebook import show_result


@dataclass(frozen=True, eq=False)
class Decomposition:
    """The results of a decomposition, and the places of its files."""

    folder: Path
    relabelled: Path
    model: RewardModel
    dynamics: DynamicsModel
    masks: dict[str, Any]
    metrics: dict[str, Any]
    findings: list[Finding]
    shares: list[tuple[str, float]]
    """Effects by their share of the reward's variation, largest first."""
    warnings: list[str]
    columns: str | None = None
    """For tables: the role of each column, in the form of `--columns`."""
    table: Path | None = None
    """The rewards as a table, where the data came as one."""

    @property
    def rewards_(self) -> Any:
        """All rewards with their episode, step and spread (standard deviation).

        A table of the library that the data frame came from, otherwise a mapping from names to
        arrays, which every such library takes.
        """
        with open_recording(self.relabelled) as recording:
            return read_rewards(recording.header, recording)

    def __repr__(self) -> str:
        shares = [f"{name} {format_share(share)}" for name, share in self.shares[:3]]
        top = ", ".join(shares) or "no effects"
        return f"Decomposition({self.folder}: {self.metrics['fit']}, {top})"

    def _repr_html_(self) -> str:
        return show_result(
            self.metrics["verdict"]["text"], self.shares, f"Look at {self.folder}/report.html."
        )
