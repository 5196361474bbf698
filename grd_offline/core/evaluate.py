"""Measures of a decomposition: rewards against the truth, masks against the truth, and
intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

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
    within = [
        pearson(a, b) for a, b in zip(predicted, true, strict=True) if len(a) > 1 and np.ptp(b) > 0
    ]
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
    from grd_offline.core.graph import compact_closure, compact_one_hop

    names = ("state_to_reward", "action_to_reward", "state_to_state", "action_to_state")
    result = {n: compare_masks(found[n], true[n]) for n in names if n in found and n in true}
    if "compact" in found and {"state_to_reward", "state_to_state"} <= set(true):
        graph = (true["state_to_reward"], true["state_to_state"])
        for name, compute in (("closure", compact_closure), ("one_hop", compact_one_hop)):
            result[f"compact_{name}"] = compare_masks(found["compact"][name], compute(*graph))
    return result
