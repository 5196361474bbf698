"""Who hears of long work: a display, the files of a run, a test.

Whatever takes long tells one observer of five things: what begins, how far a stage is, what came
out, what looks wrong, and whether to stop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Progress = Callable[[str, float], None]
"""`Observer.on_progress` alone: what a fit reports to."""
Warn = Callable[[str], None]
"""`Observer.on_warning` alone."""


class Observer:
    """Hears of long work. Each method may be left as it is: by itself it does nothing."""

    def on_start(self, work: Any) -> None:
        """Work begins: a run, an evaluation of its policies, a job, a decomposition."""

    def on_progress(self, stage: str, share: float) -> None:
        """A stage goes on: its name, and the fraction of it that is done."""

    def on_result(self, work: Any, result: Any) -> None:
        """Something came out of the work. There may be more to come."""

    def on_warning(self, text: str) -> None:
        """Something looks wrong; the work goes on."""

    def should_stop(self) -> bool:
        """Whether the work is to end early and to keep what it has."""
        return False


NOBODY = Observer()
"""Hears of everything, and does nothing about it."""


class Observers(Observer):
    """Several observers as one."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self.all = list(observers)

    def on_start(self, work: Any) -> None:
        for one in self.all:
            one.on_start(work)

    def on_progress(self, stage: str, share: float) -> None:
        for one in self.all:
            one.on_progress(stage, share)

    def on_result(self, work: Any, result: Any) -> None:
        for one in self.all:
            one.on_result(work, result)

    def on_warning(self, text: str) -> None:
        for one in self.all:
            one.on_warning(text)

    def should_stop(self) -> bool:
        return any(one.should_stop() for one in self.all)
