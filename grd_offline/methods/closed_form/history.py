"""Whether the effects that were found seem to act late, or not at all times of an episode.

A reward of one step is fitted. Returns may still show that its effects belong to the step before,
or that they grow or fade during an episode. So each effect g, as it was fitted, is offered twice
more: taken one step earlier, g(x of the step before), and multiplied by the time within the
episode, from -1.7 to 1.7. What gains evidence and is no small part of the reward is reported. It is
not added to the reward, which knows neither the past nor the time.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from grd_offline.methods.closed_form.columns import ColumnSource
from grd_offline.methods.closed_form.evidence import Posterior, measure_gains
from grd_offline.methods.closed_form.hidden import compute_features
from grd_offline.methods.closed_form.search import EffectBank, Selection

Array = NDArray[np.float64]
EARLIER, TIME = "earlier steps", "the time within an episode"
_LEAST_GAIN = 10.0
_LONGEST = np.sqrt(12.0)  # a standard deviation of 1 over the steps of an episode


def measure_history(data: ColumnSource, last: Selection, bank: EffectBank) -> dict[str, float]:
    """Variance per step of what acts late, or depends on the time; 0 without clear evidence."""
    if not last.effects:
        return {}
    late, timed, sizes = _sum_parts(data, last, bank)
    kinds = {EARLIER: late, TIME: timed}
    price = _LEAST_GAIN + math.log(len(kinds) * len(last.effects))
    return {kind: _measure(data, last.fit, sums, sizes, price) for kind, sums in kinds.items()}


def _sum_parts(data: ColumnSource, last: Selection, bank: EffectBank) -> tuple[Array, Array, Array]:
    """(row, effect) sums of each effect a step late, and by the time; its mean square per step."""
    starts = np.cumsum([0, *last.fit.sizes[:-1]])
    late, timed, squares, steps = [], [], np.zeros(len(starts)), 0
    for segment in data.segments():
        features = compute_features(data, bank, last.effects, segment.inputs)
        parts = np.add.reduceat(features * last.fit.weights, starts, axis=1)
        count = len(parts)
        time = _LONGEST * ((np.arange(count) + 0.5) / count - 0.5)
        shifted = np.concatenate([parts[:1], parts[:-1]])
        late.append(segment.weights @ shifted)
        timed.append((segment.weights * time) @ parts)
        squares, steps = squares + (parts**2).sum(0), steps + count
    return np.array(late), np.array(timed), squares / max(steps, 1)


def _measure(data: ColumnSource, fit: Posterior, sums: Array, sizes: Array, price: float) -> float:
    """Variance per step of the effect that gains most, if it gains more than its price."""
    columns, _ = data.equations.remove_constant(sums * data.equations.scale[:, None])
    norms = np.sqrt(np.maximum((np.asarray(columns, np.float64) ** 2).mean(0), 1e-300))
    free = np.asarray(columns / norms, np.float64)
    gains, variances = measure_gains(fit, free[:, :, None])
    best = int(gains.argmax())
    if gains[best] < price:
        return 0.0
    column = free[:, best]
    seen = float(column @ fit.apply_inverse(column[:, None])[:, 0])
    spread = variances[best]
    weight = spread * float(column @ fit.residual) / (1 + spread * seen)
    return float((weight / norms[best]) ** 2 * sizes[best])
