"""The state of a run in numbers: what a display shows of each group of members."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from grd_offline.core.observer import Observer

if TYPE_CHECKING:
    from grd_offline.learning.runs.folder import RunFolder
    from grd_offline.learning.runs.run import Run

RATE_SECONDS = 30.0
"""Speeds are means over this many seconds."""
SAMPLE_SECONDS = 0.5
LOOK_SECONDS = 2.0
"""Shortest time between two looks at the members. A look costs a forward pass of each."""
LOOK_SHARE = 0.01
"""Largest fraction of the time that looks may take."""


class Point(NamedTuple):
    """An evaluation of a group: mean and standard deviation over its members."""

    step: int
    mean: float
    spread: float


@dataclass
class Group:
    """Members that differ by their seed alone."""

    name: str
    members: list[int]
    """Places of the members in the run."""
    has_masks: bool = False
    curve: list[Point] = field(default_factory=list)
    correlation: float = math.nan
    edges: float = math.nan
    """Fraction of the edges that are on, as the mean of the four masks."""
    compact: float = math.nan
    """Number of dimensions of the compact state."""
    skipped: int = 0
    """Number of updates of all members that were skipped because they were not finite."""

    @property
    def last(self) -> Point | None:
        return self.curve[-1] if self.curve else None

    @property
    def best(self) -> Point | None:
        """The evaluation with the highest mean."""
        return max(self.curve, key=lambda point: point.mean, default=None)


class RunState(Observer):
    """Hears of a run and keeps what a display shows. Displays only read it.

    A display may read from another thread. Every value is replaced as a whole, so that at worst
    the display shows a number of the moment before.
    """

    def __init__(self, run: Run, files: RunFolder) -> None:
        self.title, self.unit, self.states = run.title, run.unit, run.states
        self.members, self.total = len(run.members), run.total
        self.files = files
        self.run = run
        names = dict.fromkeys(member.group for member in run.members)
        self.groups = [
            Group(name, [i for i, member in enumerate(run.members) if member.group == name])
            for name in names
        ]
        self._read_curves()
        self._latest = (time.monotonic(), self.run.step, self.run.learner.updates)
        self._samples = deque([self._latest])
        self._updates_before = self.run.learner.updates
        self._next_look = time.monotonic()
        self._is_evaluating = False
        self.is_measured = False
        """Whether there is more to show than returns."""
        self.notice = ""
        """What the command says when it is asked to stop."""

    def _read_curves(self) -> None:
        from grd_offline.io.files.runs import EVALUATIONS_FILE, read_rows

        rows = read_rows(self.files.path / EVALUATIONS_FILE)
        for group in self.groups:
            returns: dict[int, list[float]] = {}
            for row in rows:
                if row["group"] == group.name:
                    returns.setdefault(int(row["step"]), []).append(float(row["mean_return"]))
            group.curve = [summarise(step, values) for step, values in sorted(returns.items())]

    def on_progress(self, stage: str, share: float) -> None:
        self._sample()
        # While an evaluation is under way, what was seen at its start belongs to it.
        is_due = time.monotonic() >= self._next_look and not self._is_evaluating
        if is_due and not self.run.phase:
            self.look()

    def on_start(self, work: Any) -> None:
        """Look at the members: what is seen belongs to the evaluation."""
        self._is_evaluating = True
        self.look()

    def on_result(self, work: Any, result: Any) -> None:
        self._is_evaluating = False
        if result.returns is None:
            return
        means = result.returns.mean(1).tolist()
        for group in self.groups:
            values = [means[member] for member in group.members]
            group.curve.append(summarise(result.step, values))

    def _sample(self) -> None:
        before, self._latest = (
            self._latest,
            (time.monotonic(), self.run.step, self.run.learner.updates),
        )
        samples = self._samples
        if before[2] == self._updates_before < self.run.learner.updates:
            # Warm-up and first updates, in which kernels are compiled, tell nothing of the speed.
            self._samples = deque([self._latest])
        elif self._latest[0] - samples[-1][0] >= SAMPLE_SECONDS:
            samples.append(self._latest)
            while self._latest[0] - samples[0][0] > RATE_SECONDS and len(samples) > 2:
                samples.popleft()

    def look(self) -> None:
        """Bring correlations, masks and skipped updates of all groups up to date."""
        begin, measures = time.monotonic(), self.run.measure()
        if measures is None:
            return
        self.is_measured = True
        for group in self.groups:
            group.correlation = mean_known(measures.correlations[group.members].tolist())
            group.edges = mean_known(measures.edges[group.members].tolist())
            group.has_masks = not math.isnan(group.edges)
            group.compact = float(measures.compact[group.members].mean())
            group.skipped = int(measures.skipped[group.members].sum())
        now = time.monotonic()
        self._next_look = now + max(LOOK_SECONDS, (now - begin) / LOOK_SHARE)

    @property
    def rates(self) -> tuple[float, float]:
        """Steps and updates of each member per second; nan if they are not known yet."""
        samples = self._samples
        (begin, step, updates), (end, last_step, last_updates) = samples[0], samples[-1]
        if end == begin or (not self.run.phase and not last_updates):
            return math.nan, math.nan
        seconds = end - begin
        return (last_step - step) / seconds, (last_updates - updates) / seconds

    @property
    def seconds_left(self) -> float:
        """Estimated time until the end; nan during the warm-up, which is faster than learning."""
        rate = math.nan if self.run.phase else self.rates[0]
        when, step, _ = self._samples[-1]
        passed = time.monotonic() - when
        return max((self.total - step) / rate - passed, 0.0) if rate > 0 else math.nan

    def find_best_policy(self, group: Group) -> str | None:
        """Folder of the best policy of a group's members."""
        best, members = self.files.best, self.run.members
        names = [members[i].name for i in group.members if members[i].name in best]
        if not names:
            return None
        name = max(names, key=lambda name: best[name])
        return str(self.files.path / "members" / name / "policies" / "best")


def summarise(step: int, values: Sequence[float]) -> Point:
    """Mean and standard deviation of the returns of the members of a group."""
    mean = math.fsum(values) / len(values)
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))
    return Point(step, mean, spread)


def mean_known(values: Iterable[float]) -> float:
    """The mean of the values that are finite; nan if none is."""
    known = [value for value in values if math.isfinite(value)]
    return math.fsum(known) / len(known) if known else math.nan
