"""Where a run stands, in numbers: what its displays show of each group of members."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from grd_offline.online.run import Evaluation, Run
    from grd_offline.online.run_folder import RunFolder

RATE_SECONDS = 30.0
"""Speeds are those of the last so many seconds."""
SAMPLE_SECONDS = 0.5
LOOK_SECONDS = 2.0
"""Correlations cost a forward pass per member: ask no more often than this,"""
LOOK_SHARE = 0.01
"""nor so often that it takes more than this share of the time."""


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
    """Their places in the run."""
    has_masks: bool = False
    curve: list[Point] = field(default_factory=list)
    correlation: float = math.nan
    edges: float = math.nan
    """Share of the masks' edges that are on, the mean of the four masks."""
    compact: float = math.nan
    """Dimensions of the compact state."""
    skipped: int = 0
    """Updates left out because they were not finite, of all members."""

    @property
    def last(self) -> Point | None:
        """The last evaluation."""
        return self.curve[-1] if self.curve else None

    @property
    def best(self) -> Point | None:
        """The evaluation with the highest mean."""
        return max(self.curve, key=lambda point: point.mean, default=None)


class Standing:
    """Hears of a run and keeps what a display shows; displays only read.

    A display may read from another thread: every value is replaced as a whole, so the worst that
    it can see is a number of the moment before.
    """

    def __init__(self, run: Run, files: RunFolder) -> None:
        self.environment = run.fleet.environment
        self.states = run.fleet.observation_size
        self.members = len(run.members)
        self.warmup = run.settings.warmup
        self.total = -(-run.settings.steps // run.settings.round_steps) * run.settings.round_steps
        self.files = files
        self._run = run
        names = dict.fromkeys(member.group for member in run.members)
        self.groups = [
            Group(name, [i for i, member in enumerate(run.members) if member.group == name])
            for name in names
        ]
        self._read_curves()
        self._latest = (time.monotonic(), self.step, self.updates)
        self._samples = deque([self._latest])
        self._updates_before = self.updates
        self._next_look = time.monotonic()
        self._is_evaluating = False

    def _read_curves(self) -> None:
        """What was evaluated before a resumed run was stopped."""
        from grd_offline.files.runs import read_rows

        rows = read_rows(self.files.path / "evaluations.csv")
        for group in self.groups:
            returns: dict[int, list[float]] = {}
            for row in rows:
                if row["group"] == group.name:
                    returns.setdefault(int(row["step"]), []).append(float(row["mean_return"]))
            group.curve = [summarise(step, values) for step, values in sorted(returns.items())]

    def on_round(self, run: Run) -> None:
        """Note how far the run is; now and then look at its members."""
        self._sample()
        # While an evaluation is under way, what was seen at its start belongs to it.
        is_due = time.monotonic() >= self._next_look and not self._is_evaluating
        if is_due and self.is_learning:
            self.look(run)

    def on_evaluation_start(self, run: Run) -> None:
        """See what belongs to the evaluation."""
        self._is_evaluating = True
        self.look(run)

    def on_evaluation(self, run: Run, evaluation: Evaluation) -> None:
        """Take in how every group did."""
        self._is_evaluating = False
        means = evaluation.returns.mean(1).tolist()
        for group in self.groups:
            values = [means[member] for member in group.members]
            group.curve.append(summarise(evaluation.step, values))

    def _sample(self) -> None:
        before, self._latest = self._latest, (time.monotonic(), self.step, self.updates)
        samples = self._samples
        if before[2] == self._updates_before < self.updates:
            # Warm-up and first updates, in which kernels are compiled, tell nothing of the speed.
            self._samples = deque([self._latest])
        elif self._latest[0] - samples[-1][0] >= SAMPLE_SECONDS:
            samples.append(self._latest)
            while self._latest[0] - samples[0][0] > RATE_SECONDS and len(samples) > 2:
                samples.popleft()

    def look(self, run: Run) -> None:
        """Bring correlations, masks and skipped updates of all groups up to date."""
        begin = time.monotonic()
        status, compact = run.status(), run.learner.compute_compact()
        for group in self.groups:
            edges = [_count_edges(run, member) for member in group.members]
            group.correlation = mean_known(status.correlations[group.members].tolist())
            group.edges = mean_known(edges)
            group.has_masks = not math.isnan(group.edges)
            group.compact = float(compact[group.members].sum(1).mean())
            group.skipped = int(status.skipped[group.members].sum())
        now = time.monotonic()
        self._next_look = now + max(LOOK_SECONDS, (now - begin) / LOOK_SHARE)

    @property
    def step(self) -> int:
        """Of each member, as it is now."""
        return self._run.step

    @property
    def updates(self) -> int:
        """Of each member, as they are now; they go on within a round."""
        return self._run.learner.updates

    @property
    def is_learning(self) -> bool:
        """Whether the warm-up is over."""
        return self.updates > 0

    @property
    def rates(self) -> tuple[float, float]:
        """Steps and updates of each member per second; nan before there is something to tell."""
        samples = self._samples
        (begin, step, updates), (end, last_step, last_updates) = samples[0], samples[-1]
        if end == begin or (self.is_learning and not last_updates):
            return math.nan, math.nan
        seconds = end - begin
        return (last_step - step) / seconds, (last_updates - updates) / seconds

    @property
    def seconds_left(self) -> float:
        """As far as can be told; nan during warm-up, which is faster than what follows."""
        rate = self.rates[0] if self.is_learning else math.nan
        when, step, _ = self._samples[-1]
        passed = time.monotonic() - when
        return max((self.total - step) / rate - passed, 0.0) if rate > 0 else math.nan

    def find_best_policy(self, run: Run, group: Group) -> str | None:
        """Folder of the best policy of a group's members."""
        best = self.files.best
        names = [run.members[i].name for i in group.members if run.members[i].name in best]
        if not names:
            return None
        name = max(names, key=lambda name: best[name])
        return str(self.files.path / "members" / name / "policies" / "best")


def _count_edges(run: Run, member: int) -> float:
    source, place = run.learner.find_source(member)
    masks = source.find_masks()
    if masks is None:
        return math.nan
    return mean_known([float(mask[place].float().mean()) for mask in masks])


def summarise(step: int, values: Sequence[float]) -> Point:
    """Mean and standard deviation of what the members of a group reached."""
    mean = math.fsum(values) / len(values)
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))
    return Point(step, mean, spread)


def mean_known(values: Iterable[float]) -> float:
    """The mean of those that are numbers; nan if none is."""
    known = [value for value in values if math.isfinite(value)]
    return math.fsum(known) / len(known) if known else math.nan
