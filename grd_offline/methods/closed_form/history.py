"""Whether the effects that were found seem to act late, or not at all times of an episode.

A reward of one step is fitted. Returns may still show that its effects belong to the step before or
after, or that they grow or fade during an episode. So effects, as they were fitted, are offered
once more: those with an action one step earlier and one step later, and all of them multiplied by
the time within the episode, from -1.7 to 1.7. What gains evidence and is no small part of the
reward is reported. It is not added to the reward, which knows neither the past nor the time.

Sums of an effect over the steps of an episode, and over the same steps but one, are nearly equal.
An effect whose size was not quite found gains from either. So only the evidence counts that goes
beyond what the effect gains at its own step.

Effects of states alone are not offered earlier or later. A state says much about the one after it,
so its neighbour can stand in for a shape that was not quite found. See `moments` for these. For the
same reason the time has to account for much of what is left unexplained. If inputs say nothing
about those of the next step, as in a table whose rows are drawn anew, every effect is offered.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from grd_offline.methods.closed_form.columns import ColumnSource
from grd_offline.methods.closed_form.evidence import Posterior, measure_gains
from grd_offline.methods.closed_form.hidden import compute_features
from grd_offline.methods.closed_form.inputs import Effect
from grd_offline.methods.closed_form.search import EffectBank, Selection

Array = NDArray[np.float64]
OWN = "its own step"
EARLIER, LATER, TIME = "earlier steps", "later steps", "the time within an episode"
_LEAST_GAIN = 10.0
_LEAST_SHARE = {EARLIER: 0.0, LATER: 0.0, TIME: 0.25}
"""Share of the noise that has to be explained."""
_LITTLE = 0.1
"""If inputs of neighbouring steps are correlated less than this, they are drawn anew."""
_LONGEST = np.sqrt(12.0)  # a standard deviation of 1 over the steps of an episode


def measure_history(data: ColumnSource, last: Selection, bank: EffectBank) -> dict[str, float]:
    """Variance per step of what acts late or early, or depends on the time; 0 without clear
    evidence.

    What acts late and hardly changes from step to step does no harm, and counts as little.
    """
    if not last.effects:
        return {}
    parts, moved, sizes = _sum_parts(data, last, bank)
    own = parts.pop(OWN)
    price = _LEAST_GAIN + math.log(len(parts) * len(last.effects))
    offered = np.array([_has_action(data, effect) for effect in last.effects])
    if not offered.all() and _correlate_neighbours(data, last) < _LITTLE:
        offered[:] = True
    found = {}
    for kind, sums in parts.items():
        chosen = offered | (kind == TIME)
        size = sizes if kind == TIME else moved
        least = max(price, _find_least(kind, len(sums)))
        found[kind] = _measure(data, last.fit, sums[:, chosen], own[:, chosen], size[chosen], least)
    # Sums of the steps before and after differ in the ends alone: what one explains, the other may.
    weaker = min(EARLIER, LATER, key=lambda kind: found[kind][0])
    return {kind: 0.0 if kind == weaker else variance for kind, (_, variance) in found.items()}


def _has_action(data: ColumnSource, effect: Effect) -> bool:
    first = data.episodes.state_size
    return any(data.column(i) >= first and i != data.terminated for i in effect)


def _correlate_neighbours(data: ColumnSource, last: Selection) -> float:
    """The largest correlation between an input of the reward and any of them one step later."""
    used = sorted({int(data.basis.columns[i]) for effect in last.effects for i in effect})
    total, squares = np.zeros(len(used)), np.zeros(len(used))
    products, steps, pairs = np.zeros((len(used), len(used))), 0, 0
    for segment in data.segments():
        inputs = np.asarray(segment.inputs[:, used], np.float64)
        total, squares = total + inputs.sum(0), squares + (inputs**2).sum(0)
        products = products + inputs[:-1].T @ inputs[1:]
        steps, pairs = steps + len(inputs), pairs + len(inputs) - 1
    if not pairs:
        return 1.0
    mean = total / steps
    spread = np.sqrt(np.maximum(squares / steps - mean**2, 1e-300))
    both = products / pairs - np.outer(mean, mean)
    return float(np.abs(both / np.outer(spread, spread)).max())


def _find_least(kind: str, rows: int) -> float:
    """The log evidence that a share of the noise is worth: with n rows, -n log(1 - share) / 2."""
    return -0.5 * rows * math.log(1 - _LEAST_SHARE[kind])


def _sum_parts(
    data: ColumnSource, last: Selection, bank: EffectBank
) -> tuple[dict[str, Array], Array, Array]:
    """(row, effect) sums of each effect of another step, and by the time; (effect,) half the mean
    square of its change from step to step, and its mean square."""
    starts = np.cumsum([0, *last.fit.sizes[:-1]])
    sums: dict[str, list[Array]] = {OWN: [], EARLIER: [], LATER: [], TIME: []}
    steps, pairs = 0, 0
    changes, squares = np.zeros(len(starts)), np.zeros(len(starts))
    for segment in data.segments():
        features = compute_features(data, bank, last.effects, segment.inputs)
        parts = np.add.reduceat(features * last.fit.weights, starts, axis=1)
        count = len(parts)
        time = _LONGEST * ((np.arange(count) + 0.5) / count - 0.5)
        # What came before the first step, or comes after the last, is not known. Effects have
        # mean 0.
        none = np.zeros_like(parts[:1])
        sums[OWN].append(segment.weights @ parts)
        sums[EARLIER].append(segment.weights @ np.concatenate([none, parts[:-1]]))
        sums[LATER].append(segment.weights @ np.concatenate([parts[1:], none]))
        sums[TIME].append((segment.weights * time) @ parts)
        squares, steps = squares + (parts**2).sum(0), steps + count
        changes, pairs = changes + (np.diff(parts, axis=0) ** 2).sum(0), pairs + count - 1
    moved = 0.5 * changes / max(pairs, 1)
    return {kind: np.array(rows) for kind, rows in sums.items()}, moved, squares / max(steps, 1)


def _measure(
    data: ColumnSource, fit: Posterior, sums: Array, own: Array, sizes: Array, price: float
) -> tuple[float, float]:
    """The gain of the effect that gains most beyond its own step, and its variance per step if that
    exceeds a price."""
    if not sums.size:
        return 0.0, 0.0
    free, norms = _free_columns(data, sums)
    gains, variances = measure_gains(fit, free[:, :, None])
    gains = gains - np.maximum(measure_gains(fit, _free_columns(data, own)[0][:, :, None])[0], 0.0)
    best = int(gains.argmax())
    if gains[best] < price:
        return float(gains[best]), 0.0
    column = free[:, best]
    seen = float(column @ fit.apply_inverse(column[:, None])[:, 0])
    spread = variances[best]
    weight = spread * float(column @ fit.residual) / (1 + spread * seen)
    return float(gains[best]), float((weight / norms[best]) ** 2 * sizes[best])


def _free_columns(data: ColumnSource, sums: Array) -> tuple[Array, Array]:
    """(row, effect) sums without what a constant reward explains, of size 1, and their sizes."""
    columns, _ = data.equations.remove_constant(sums * data.equations.scale[:, None])
    norms = np.sqrt(np.maximum((np.asarray(columns, np.float64) ** 2).mean(0), 1e-300))
    return np.asarray(columns / norms, np.float64), norms
