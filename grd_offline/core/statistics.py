"""Statistics: of rewards, masks and intervals against the truth, and over seeds and tasks.

For comparisons of methods, scores of a method are a list with one array per task, which holds one
number per seed. Tasks may have different numbers of seeds. Intervals come from a stratified
bootstrap: within every task, seeds are drawn anew with replacement, and the statistic is computed
from each such draw.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from grd_offline.core.graph import compact_closure, compact_one_hop
from grd_offline.core.typing import Array

NORMAL_90 = 1.6448536269514722
"""A normal variable lies within so many standard deviations of its mean 90 times in 100."""
LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
"""Levels of the intervals that calibration looks at."""


def give_chance(logits: Array) -> Array:
    """The probability that belongs to some log-odds."""
    return np.asarray(1 / (1 + np.exp(-np.clip(logits, -500, 500))))


def soften_chance(logits: Array, std: Array) -> Array:
    """Compute a chance from uncertain log-odds, with the approximation of the mean by MacKay."""
    return give_chance(logits / np.sqrt(1 + np.pi / 8 * std**2))


def pearson(first: ArrayLike, second: ArrayLike) -> float:
    """Correlation; 0 where one of the two is constant."""
    x, y = np.asarray(first, np.float64), np.asarray(second, np.float64)
    x, y = x - x.mean(), y - y.mean()
    norm = float(np.sqrt((x @ x) * (y @ y)))
    return float(x @ y) / norm if norm > 0 else 0.0


def spearman(first: ArrayLike, second: ArrayLike) -> float:
    """Correlation of ranks, ties sharing their mean rank."""
    return pearson(_rank(first), _rank(second))


def _rank(values: ArrayLike) -> Array:
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[places], np.float64)


def r_squared(predicted: ArrayLike, true: ArrayLike) -> float:
    """Share of the variance that is explained; 0 where there is none to explain."""
    x, y = np.asarray(predicted, np.float64), np.asarray(true, np.float64)
    total = float(((y - y.mean()) ** 2).sum())
    return 1 - float(((y - x) ** 2).sum()) / total if total > 0 else 0.0


def affine_error(predicted: ArrayLike, true: ArrayLike) -> float:
    """Mean squared error after the best a * predicted + b, as a share of the truth's variance."""
    return 1 - pearson(predicted, true) ** 2


def compare_rewards(predicted: Sequence[Array], true: Sequence[Array]) -> dict[str, float]:
    """Predicted step rewards of each episode against the true ones."""
    p, t = np.concatenate(list(predicted)), np.concatenate(list(true))
    pairs = zip(predicted, true, strict=True)
    within = [pearson(a, b) for a, b in pairs if len(a) > 1 and np.ptp(b) > 0]
    return {
        "pearson": pearson(p, t),
        "spearman": spearman(p, t),
        "pearson_within_episodes": float(np.mean(within)) if within else 0.0,
        "error_after_affine_fit": affine_error(p, t),
        "r2": r_squared(p, t),
    }


def compute_coverage(predicted: ArrayLike, std: ArrayLike, true: ArrayLike) -> float:
    """Fraction of the true values that lie within the 90 % interval."""
    error = np.abs(np.asarray(true) - np.asarray(predicted))
    return float((error <= NORMAL_90 * np.asarray(std)).mean())


def compute_calibration(predicted: ArrayLike, std: ArrayLike, true: ArrayLike) -> list[float]:
    """Fraction of the true values that lie within the interval of each of `LEVELS`."""
    error, spread = np.abs(np.asarray(true) - np.asarray(predicted)), np.asarray(std)
    widths = [NormalDist().inv_cdf((1 + level) / 2) for level in LEVELS]
    return [float((error <= width * spread).mean()) for width in widths]


def compare_masks(found: ArrayLike, true: ArrayLike) -> dict[str, float]:
    """Precision, recall and F1 of the edges that were found; all 1 where there are none."""
    a, b = np.asarray(found).astype(np.bool_), np.asarray(true).astype(np.bool_)
    if a.shape != b.shape:
        raise ValueError(f"masks: expected shape {b.shape}, got {a.shape}")
    both = int((a & b).sum())
    precision = both / int(a.sum()) if a.any() else float(not b.any())
    recall = both / int(b.sum()) if b.any() else float(not a.any())
    total = int(a.sum()) + int(b.sum())
    return {"precision": precision, "recall": recall, "f1": 2 * both / total if total else 1.0}


def compare_all_masks(
    found: Mapping[str, Any], true: Mapping[str, Any]
) -> dict[str, dict[str, float]]:
    """Compare every mask that both have, and the compact state if it is known."""
    names = ("state_to_reward", "action_to_reward", "state_to_state", "action_to_state")
    result = {n: compare_masks(found[n], true[n]) for n in names if n in found and n in true}
    if "compact" in found and {"state_to_reward", "state_to_state"} <= set(true):
        graph = (true["state_to_reward"], true["state_to_state"])
        for name, compute in (("closure", compact_closure), ("one_hop", compact_one_hop)):
            result[f"compact_{name}"] = compare_masks(found["compact"][name], compute(*graph))
    return result


Tasks = Sequence[ArrayLike]
"""Scores of a method: one array (seed,) for each task."""
SMALLEST = 1e-3
"""Mean of a reference, as a share of its largest score, that is taken for any smaller one."""
RESAMPLES = 2000
"""Number of draws of a bootstrap."""
LEVEL = 0.95
"""Share of the draws that lies inside of an interval."""


@dataclass(frozen=True)
class Estimate:
    """A statistic and the interval that a bootstrap gives it."""

    value: float
    low: float
    high: float


def interquartile_mean(scores: ArrayLike) -> Array:
    """The mean of the middle half, along the last axis.

    A quarter of the scores is left out on each side, rounded down to whole scores.
    """
    ordered = np.sort(np.asarray(scores, np.float64), axis=-1)
    count = ordered.shape[-1]
    if count == 0:
        raise ValueError("expected at least one score")
    cut = count // 4
    return np.asarray(ordered[..., cut : count - cut].mean(axis=-1))


def pool(tasks: Tasks) -> Array:
    """All scores of all tasks in one array, along the last axis."""
    return np.concatenate([np.asarray(scores, np.float64) for scores in tasks], axis=-1)


def estimate_mean(
    tasks: Tasks, rng: np.random.Generator, reference: Tasks | None = None
) -> Estimate:
    """Estimate the interquartile mean over all seeds and tasks.

    With a reference, scores are in units of its mean on each task, which is drawn anew as well.
    """
    value = interquartile_mean(pool(_divide(tasks, reference)))
    low, high = _find_ends(interquartile_mean(pool(_draw(tasks, reference, rng))))
    return Estimate(float(value), float(low), float(high))


def estimate_share(tasks: Tasks, reference: Tasks, rng: np.random.Generator) -> Estimate:
    """The interquartile mean as a share of that of a reference, both of which are drawn anew."""

    def divide(ours: Tasks, theirs: Tasks) -> Array:
        with np.errstate(divide="ignore", invalid="ignore"):
            return interquartile_mean(pool(ours)) / interquartile_mean(pool(theirs))

    return _estimate_pair(divide, tasks, reference, rng)


def improvement_probability(ours: Tasks, theirs: Tasks) -> Array:
    """Probability that a run of ours is better than a run of theirs on a task drawn at random.

    On each task every seed of ours meets every seed of theirs, and an equal score counts as half a
    win. The mean over tasks gives each task the same weight.
    """
    if len(ours) != len(theirs) or not ours:
        raise ValueError(f"expected the same tasks, got {len(ours)} and {len(theirs)}")
    wins = [_share_wins(one, other) for one, other in zip(ours, theirs, strict=True)]
    return np.asarray(np.mean(wins, axis=0))


def _share_wins(ours: ArrayLike, theirs: ArrayLike) -> Array:
    """The share of pairs of one task that ours wins, along the last axis.

    Pairs are counted from the places in a common order, so that memory grows with the number of
    seeds and not with the number of pairs.
    """
    one, other = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    one = np.where(np.isnan(one), -np.inf, one)  # no score wins against nothing
    count, others = one.shape[-1], other.shape[-1]
    outer = np.broadcast_shapes(one.shape[:-1], other.shape[:-1])
    one = np.broadcast_to(one, (*outer, count))
    other = np.broadcast_to(other, (*outer, others))
    # Equal scores stay in the order that they are given in: a tie is lost first, and then won.
    lost = np.argsort(np.concatenate([one, other], axis=-1), axis=-1, kind="stable") < count
    won = np.argsort(np.concatenate([other, one], axis=-1), axis=-1, kind="stable") >= others
    places = np.arange(count + others)
    total = np.where(lost, places, 0).sum(axis=-1) + np.where(won, places, 0).sum(axis=-1)
    return np.asarray((total - count * (count - 1)) / (2 * count * others))


def estimate_improvement(ours: Tasks, theirs: Tasks, rng: np.random.Generator) -> Estimate:
    """The probability of improvement with its interval."""
    return _estimate_pair(improvement_probability, ours, theirs, rng)


def performance_profile(tasks: Tasks, thresholds: ArrayLike) -> Array:
    """The share of all runs with a score above each threshold."""
    scores = pool(tasks)
    limits = np.asarray(thresholds, np.float64)
    above = np.empty((*scores.shape[:-1], len(limits)))
    # One threshold at a time: all at once would take much more memory than the scores.
    for place, limit in enumerate(limits):
        above[..., place] = (scores > limit).mean(axis=-1)
    return above


def profile_band(
    tasks: Tasks, thresholds: ArrayLike, rng: np.random.Generator, reference: Tasks | None = None
) -> tuple[Array, Array]:
    """The lower and the upper end of the band around a performance profile; see
    `estimate_mean`."""
    return _find_ends(performance_profile(_draw(tasks, reference, rng), thresholds))


def _draw(tasks: Tasks, reference: Tasks | None, rng: np.random.Generator) -> list[Array]:
    drawn = resample(tasks, rng)
    if reference is None:
        return drawn
    return _divide(drawn, drawn if reference is tasks else resample(reference, rng))


def _divide(tasks: Tasks, reference: Tasks | None) -> list[Array]:
    """Scores in units of the mean of the reference on each task. No draw of it falls to 0."""
    plain = [np.asarray(scores, np.float64) for scores in tasks]
    if reference is None:
        return plain
    others = [np.asarray(scores, np.float64) for scores in reference]
    units = [other.mean(axis=-1, keepdims=True) for other in others]
    least = [SMALLEST * np.abs(other).max() for other in others]
    parts = zip(plain, units, least, strict=True)
    return [scores / np.maximum(unit, most) for scores, unit, most in parts]


def resample(tasks: Tasks, rng: np.random.Generator, count: int = RESAMPLES) -> list[Array]:
    """Draw seeds anew within every task: one array (draw, seed) for each task."""
    plain = [np.asarray(scores, np.float64) for scores in tasks]
    return [scores[rng.integers(len(scores), size=(count, len(scores)))] for scores in plain]


def _estimate_pair(
    statistic: Callable[[Tasks, Tasks], Array], ours: Tasks, theirs: Tasks, rng: np.random.Generator
) -> Estimate:
    low, high = _find_ends(statistic(resample(ours, rng), resample(theirs, rng)))
    return Estimate(float(statistic(ours, theirs)), float(low), float(high))


def _find_ends(draws: Array) -> tuple[Array, Array]:
    """The ends of the interval that holds the middle of the draws, along the first axis."""
    rest = (1 - LEVEL) / 2
    low, high = np.quantile(draws, (rest, 1 - rest), axis=0)
    return low, high
