"""How far a decomposition is, and how long it will still take.

A stage is called "group: detail", for example "fitting the rewards: pairs". The groups follow each
other in the order of `GROUPS`. Before a group begins, its time is estimated from the size of the
data and from the groups that are done. Where the last fit runs in a second process, the stages hear
of it late, and it hardly counts. The bar covers the time that is left, so that it never
goes back when there turns out to be more to do.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from grd_offline.core.episodes import EpisodeSet

READING = "reading the data"
TESTING = "testing on held-out episodes"
COMPARING = "comparing with other fits"
FITTING = "fitting the rewards"
GRAPH = "finding the causal graph"
DYNAMICS = "fitting the dynamics"
DYNAMICS_TEST = "testing the dynamics"
REWARDS = "computing step rewards"
WRITING = "writing the results"
REPORT = "making the report"
GROUPS = (
    READING, TESTING, COMPARING, FITTING, GRAPH, DYNAMICS, DYNAMICS_TEST, REWARDS, WRITING, REPORT,
)  # fmt: skip
_WITH_SHARES = frozenset({GRAPH, DYNAMICS, DYNAMICS_TEST, REWARDS})
"""Groups that report which fraction of them is done."""
_FITS = frozenset({TESTING, COMPARING, FITTING})

_REPEATED = 1.2
"""The last fit has a quarter more episodes than the fit that is tested."""
_LATE = 0.3
"""A group that takes longer than expected will take at least this fraction of its time more."""
_KNOWN_SHARE = 0.05
"""Fraction of a stage from which on its whole time can be told."""


class Look(NamedTuple):
    """What can be said about a decomposition at one moment."""

    stage: str
    fraction: float
    seconds_left: float | None
    """`None` while nothing is known about the time left."""
    is_least: bool
    """Whether stages may follow whose time is not known yet."""


class Forecast:
    """Hears of stages, and estimates the fraction of the whole that is done and the time left."""

    def __init__(
        self, parts: Sequence[str] = ("",), clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Several `parts` are decompositions of the same data that follow each other. A stage then
        begins with the name of its part."""
        self._clock, self._parts = clock, tuple(parts)
        self._parts_done: list[float] = []
        self._size: dict[str, float] = {}
        """Seconds of each group as the size of the data tells."""
        self._is_beside = False
        """Whether the last fit runs in a second process, and takes no time of its own."""
        self.on_stage: Callable[[str, str], None] = lambda stage, detail: None
        """Hears of each stage and its detail."""
        self._fraction = 0.0
        self._looked = clock()
        self._begin_part()

    def _begin_part(self) -> None:
        self._part = self._parts[len(self._parts_done)]
        self._part_begun = self._group_begun = self._detail_begun = self._clock()
        self._taken: dict[str, float] = {}
        self._group, self._detail, self._share = "", "", 0.0

    def take_size(self, episodes: EpisodeSet, fitted: EpisodeSet, *, is_closed_form: bool) -> None:
        """Estimate the seconds of each group from the size of the data, and of the part of them
        that models are fitted to.

        Nothing is known about fits other than the closed form before they have begun.
        """
        from grd_offline.methods.duration import is_worth_a_process

        found = estimate_seconds(episodes, fitted)
        self._size = {n: s for n, s in found.items() if is_closed_form or n not in _FITS}
        self._is_beside = is_closed_form and is_worth_a_process(fitted)
        if self._is_beside:
            self._size |= {READING: 0.1 + 4e-6 * episodes.total_steps, FITTING: 0.0}

    def hear(self, stage: str, share: float) -> None:
        """Take note of a stage and of the fraction of it that is done."""
        now = self._clock()
        to_come = self._parts[len(self._parts_done) + 1 :]
        if to_come and stage.startswith(f"{to_come[0]}: "):
            self._parts_done.append(now - self._part_begun)
            self._begin_part()
        group, _, detail = stage.removeprefix(f"{self._part}: ").partition(": ")
        if group != self._group:
            if self._group:
                self._taken[self._group] = now - self._group_begun
            self._group, self._detail = group, detail
            self._group_begun = self._detail_begun = now
        elif detail != self._detail or share < self._share:
            self._detail, self._detail_begun = detail, now
        self._share = share
        self.on_stage(self._name(), detail)

    def _name(self) -> str:
        return f"{self._part}: {self._group}" if self._part else self._group or READING

    def look(self) -> Look:
        """Say how far the decomposition is now."""
        now = self._clock()
        expected = self._expect(now - self._group_begun)
        place = GROUPS.index(self._group) + 1 if self._group in GROUPS else len(GROUPS)
        later = [
            name
            for name in GROUPS[place:]
            if name not in (COMPARING, *self._taken) and (self._size or name in expected)
        ]
        is_least = self._group == COMPARING or any(name not in expected for name in later)
        left = self._estimate_group(now, expected.get(self._group))
        if left is not None:
            left += sum(expected.get(name, 0.0) for name in later)
            done = self._parts_done or [now - self._part_begun + left]
            parts_to_come = len(self._parts) - 1 - len(self._parts_done)
            left += parts_to_come * sum(done) / len(done)
            if now > self._looked:
                passed = now - self._looked
                self._fraction += (1 - self._fraction) * passed / (passed + left)
        self._looked = now
        return Look(self._name(), self._fraction, left, is_least)

    def _expect(self, so_far: float) -> dict[str, float]:
        """Seconds of each group, scaled by what the groups took that are done or late."""
        taken = dict(self._taken)
        if so_far > self._size.get(self._group, math.inf):
            taken[self._group] = (1 + _LATE) * so_far
        measured = [name for name in taken if name in self._size]
        pace = (1 + sum(taken[n] for n in measured)) / (1 + sum(self._size[n] for n in measured))
        scale = min(max(pace, 0.5), 3.0)
        expected = {n: s if n in _FITS else scale * s for n, s in self._size.items()}
        if TESTING in taken and not self._is_beside:
            expected[FITTING] = _REPEATED * taken[TESTING]
        return expected

    def _estimate_group(self, now: float, expected: float | None) -> float | None:
        """Seconds until the current group is done."""
        taken = now - self._group_begun
        has_share = self._group in _WITH_SHARES or expected is None
        if has_share and _KNOWN_SHARE <= self._share <= 1:
            return (now - self._detail_begun) * (1 - self._share) / self._share
        return None if expected is None else max(expected - taken, _LATE * taken)


def estimate_seconds(episodes: EpisodeSet, fitted: EpisodeSet) -> dict[str, float]:
    """Rough seconds of each group for the closed form on one core, from the size of the data.

    They serve until the groups themselves have been timed.
    """
    from grd_offline.methods.duration import estimate_fit_seconds

    states, inputs = episodes.state_size, episodes.state_size + episodes.action_size
    seen, steps = min(fitted.total_steps, 100_000), episodes.total_steps
    fit = estimate_fit_seconds(len(fitted), fitted.total_steps, states, inputs - states)
    graph = 0.3 + 2e-7 * states * inputs * seen
    dynamics = 0.3 + 3.4e-6 * inputs * seen
    return {
        READING: 0.1,
        TESTING: fit,
        FITTING: _REPEATED * fit,
        GRAPH: graph,
        DYNAMICS: dynamics,
        DYNAMICS_TEST: 0.5 * graph + dynamics,
        REWARDS: 0.4 + 4e-6 * steps + 3e-3 * len(episodes),
        WRITING: 0.2,
        REPORT: 0.5 + 2e-6 * steps + 9e-4 * len(episodes),
    }
