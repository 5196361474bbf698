"""Whether seeds are enough evidence to call one method better than the others.

Differences between means of a few seeds may be chance. A permutation test asks how often a split of
all scores into two groups at random gives a difference as large as the one seen. With two seeds of
each method this is never rarer than one time in six, so two seeds cannot name a best method.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

FEW_SEEDS = 5
"""Fewer seeds than this are drawn one by one, without a band."""
LEVEL = 0.05
"""A difference is clear if chance gives one as large in at most this share of all splits."""
SPLITS = 10_000
"""If there are more splits than this, this many are drawn at random."""


def is_clearly_better(first: Sequence[float], second: Sequence[float]) -> bool:
    """Return whether the first scores are higher than the second ones, and not by chance."""
    scores = np.asarray([*first, *second], np.float64)
    count = len(first)
    if math.comb(len(scores), count) <= SPLITS:
        chosen = np.array(list(combinations(range(len(scores)), count)))
    else:
        rng = np.random.default_rng(0)
        chosen = np.array([rng.permutation(len(scores))[:count] for _ in range(SPLITS)])
    sums = scores[chosen].sum(1)
    own = scores[:count].sum()
    is_as_large = sums >= own - 1e-9 * np.abs(scores).sum()
    return bool(is_as_large.mean() <= LEVEL)


def find_rivals(scores: Mapping[str, Sequence[float]], best: str) -> list[str]:
    """List the methods that the best one is not clearly better than."""
    return [
        name
        for name, others in scores.items()
        if name != best and not is_clearly_better(scores[best], others)
    ]


def say_no_best(seeds: int) -> str:
    """Write a headline for methods of which none is clearly the best."""
    if seeds < 3:
        return f"{('One seed is', 'Two seeds are')[seeds - 1]} too few to name a best method"
    return "No method is clearly the best"


def warn_of_chance(seeds: int) -> str:
    """Say why there is no best method."""
    few = f"Each method has only {seeds} {'seed' if seeds == 1 else 'seeds'}. "
    return (few if seeds < FEW_SEEDS else "") + "Differences between the means may be chance."
