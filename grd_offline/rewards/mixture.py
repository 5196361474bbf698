"""The average of two sums of effects, which is a sum of effects again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from grd_offline.rewards.contract import Array
from grd_offline.rewards.effects import EffectModel


def average_effects(first: EffectModel, second: EffectModel, difference: float) -> EffectModel:
    """Half of each reward, with intervals that cover both.

    `difference` is the mean squared difference of the two rewards per step: half of it to either
    side is within the intervals.
    """
    grid = max(first.tables.shape[1], second.tables.shape[1])
    features = max(first.tables.shape[2], second.tables.shape[2])
    shift = len(first.columns)
    moved = tuple(tuple(i + shift for i in effect) for effect in second.effects)
    rank = first.factor.shape[1] + second.factor.shape[1]
    factor = np.zeros((len(first.weights) + len(second.weights), rank))
    factor[: len(first.weights), : first.factor.shape[1]] = first.factor / 2
    factor[len(first.weights) :, first.factor.shape[1] :] = second.factor / 2
    parts = (first, second)
    noise = max(part.noise_variance * part.inflation**2 for part in parts)
    hidden = max(part.hidden_variance * part.inflation**2 for part in parts)
    return replace(
        first,
        columns=np.concatenate([part.columns for part in parts]),
        low=np.concatenate([part.low for part in parts]),
        high=np.concatenate([part.high for part in parts]),
        weights=np.concatenate([part.weights for part in parts]) / 2,
        centres=np.concatenate([part.centres for part in parts]),
        shares=np.concatenate([part.shares for part in parts]) / 2,
        tables=np.concatenate([_resize(part.tables, grid, features) for part in parts]),
        effects=first.effects + moved,
        sizes=first.sizes + second.sizes,
        constant=(first.constant + second.constant) / 2,
        factor=factor,
        residual_variance=max(part.residual_variance for part in parts),
        constant_variance=max(part.constant_variance for part in parts),
        noise_variance=noise,
        inflation=1.0,
        hidden_variance=hidden + difference / 4,
        lasting_share=min(part.lasting_share for part in parts),
        shared_variance=max(part.shared_variance * part.inflation**2 for part in parts),
        ended_variance=max(part.ended_variance * part.inflation**2 for part in parts),
        whole_variance=max(part.whole_variance * part.inflation**2 for part in parts),
    )


def _resize(tables: Array, grid: int, features: int) -> Array:
    """Tables on a finer even grid, with zeros for the features that they lack."""
    count, points, size = tables.shape
    old, new = np.linspace(0, 1, points), np.linspace(0, 1, grid)
    flat = tables.transpose(0, 2, 1).reshape(count * size, points)
    finer = np.array([np.interp(new, old, row) for row in flat]).reshape(count, size, grid)
    return np.pad(finer.transpose(0, 2, 1), ((0, 0), (0, 0), (0, features - size)))
