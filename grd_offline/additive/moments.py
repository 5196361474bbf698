"""The moment of a transition at which the reward looks at the state: its start, halfway, or its
end.

A reward of a transition (s, a, s') is modelled as a reward g(x, a) at one state x of it: s, s', or
the midpoint (s + s') / 2. Over an episode the sums of g(s, a) and g(s', a) differ at the first and
the last state alone. So returns tell the moments apart where states jump from step to step, and
hardly where they move a little.

Prior. Where the reward is an average over the time of a step, as speed in MuJoCo is, the midpoint
is right up to second order in the length of the step, and the two ends are wrong by equal amounts
in opposite directions. It is also the mean of the three, so that it errs least where nothing is
known. Since the choice decides all step rewards, strong evidence (a factor of 50) is asked for
before the midpoint is left: see `ADVANTAGE`. The bands of steps follow the same prior. What is said
about the choice does not: there the midpoint has prior probability 1/2 and the ends 1/4 each, so
that a moment which returns do not exclude is named. Labels and preferences choose by that prior,
too: their likelihood holds no noise that has to be estimated, and no small error of the features
can pass for evidence.

An input that stands still in most steps and jumps in the others, such as a contact force or a flag,
is an event and no point on a path: halfway between two of its values is a value that it never has.
At the midpoint such an input is taken at the end of the step, where the event has happened.

Where the rows of an episode are independent of each other, as in many tables, there is no path
between two of them, and nothing speaks for its middle. Then the start has the advantage that the
midpoint has otherwise. If the state after the last row is not known either, only the start is
tried: see `Motion.start_only`.

The moment before the transition is no candidate, because no function of (s, a, s') knows it. It is
only compared, so that a reward that comes a step late is not taken for a certain one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

START, MIDPOINT, END, BOTH, AUTO = "start", "midpoint", "end", "both", "auto"
BEFORE = "before"
CHOICES = (AUTO, START, MIDPOINT, END)
Evidence = Mapping[str, float]
"""Log evidence of each moment."""
POSITIONS = {BEFORE: -1.0, START: 0.0, MIDPOINT: 0.5, END: 1.0}
"""Time within the transition, whose length is 1."""
NEAR = 20.0
"""Moments whose evidence is so near to the best are searched anew before one is chosen."""
ADVANTAGE = {MIDPOINT: 6.0, START: 2.0, END: 0.0}
"""Log evidence that each moment is given beforehand: the midpoint first, then R(s, a)."""
_CHANCES = {BEFORE: 0.05, START: 0.25, MIDPOINT: 0.5, END: 0.25}
_OPEN = {moment: math.log(chance) for moment, chance in _CHANCES.items()}
_FIRM = {**ADVANTAGE, BEFORE: 0.0}


def _find_prior(firmly: bool, jumps: bool) -> dict[str, float]:
    prior = _FIRM if firmly else _OPEN
    return {**prior, START: prior[MIDPOINT], MIDPOINT: prior[START]} if jumps else prior


def prefer(evidence: Evidence, *, firmly: bool = True, jumps: bool = False) -> str:
    """The moment that a reward is taken at, given the evidence of each; see `weigh`."""
    prior = _find_prior(firmly, jumps)
    known = [moment for moment in evidence if moment in ADVANTAGE]
    return max(known, key=lambda moment: evidence[moment] + prior[moment])


def weigh(evidence: Evidence, *, firmly: bool = False, jumps: bool = False) -> dict[str, float]:
    """Posterior probability of each moment; `firmly` with the prior by which one is chosen.

    `jumps` says that rows are independent of each other, see `motion`.
    """
    prior = _find_prior(firmly, jumps)
    logs = {moment: evidence[moment] + prior[moment] for moment in evidence}
    most = max(logs.values())
    shares = {moment: math.exp(log - most) for moment, log in logs.items()}
    total = sum(shares.values())
    return {moment: share / total for moment, share in shares.items()}


def spread_about(
    chosen: str, evidence: Evidence, *, firmly: bool = False, jumps: bool = False
) -> float:
    """Mean squared distance in time of the true moment from the chosen one; see `weigh`."""
    gaps = {moment: POSITIONS[moment] - POSITIONS[chosen] for moment in evidence}
    chances = weigh(evidence, firmly=firmly, jumps=jumps)
    return sum(share * gaps[moment] ** 2 for moment, share in chances.items())
