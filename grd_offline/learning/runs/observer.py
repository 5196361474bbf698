"""Who hears of a run. Needs neither numpy nor torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from grd_offline.learning.runs.run import Evaluation


class Observer:
    """Hears of a run: a display, or the files of the run. Each method may be left as it is."""

    def on_progress(self, run: Any) -> None:
        """After each round, or after some updates."""

    def on_evaluation_start(self, run: Any) -> None:
        """When the evaluation of the present policies begins."""

    def on_evaluation(self, run: Any, evaluation: Evaluation) -> None:
        """When the returns are known. The run may have gone on meanwhile."""
