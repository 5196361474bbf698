"""Whether the effects that were found seem to act late, or not at all times of an episode.

A reward of one step is fitted. Returns may still show that its effects belong to steps before or
after, or that they grow or fade during an episode. So effects, as they were fitted, are offered
once more: those with an action earlier and later, and all of them multiplied by the time within the
episode, from -1.7 to 1.7. What gains evidence and is no small part of the reward is reported. It is
not added to the reward, which knows neither the past nor the time.

What acts late acts at the next step, or less and less at every step after its own, as a speed does
that friction brings to rest: see `DECAYS`. Over an episode the two differ from the effect itself
near the end alone, where some of it has not arrived. What acts early is the same backwards.

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
DECAYS = (0.0, 0.5, 0.8, 0.9, 0.95)
"""What is left of an effect from one step to the next; 0: it all acts at the next step."""
_LEAST_GAIN = 10.0
_LEAST_SHARE = {EARLIER: 0.0, LATER: 0.0, TIME: 0.25}
"""Share of the noise that has to be explained."""
_LITTLE = 0.1
"""If inputs of neighbouring steps are correlated less than this, they are drawn anew."""
_NOTHING = 1e-9
_LONGEST = np.sqrt(12.0)  # a standard deviation of 1 over the steps of an episode


def measure_history(data: ColumnSource, last: Selection, bank: EffectBank) -> dict[str, float]:
    """Variance per step of what acts late or early, or depends on the time; 0 without clear
    evidence.

    What acts late and hardly changes from step to step does no harm, and counts as little.
    """
    if not last.effects:
        return {}
    parts, sizes = _sum_parts(data, last, bank)
    (own,) = parts.pop(OWN)
    price = _LEAST_GAIN + math.log(sum(len(sums) for sums in parts.values()) * len(last.effects))
    states, both = data.episodes.state_size, data.episodes.state_size + data.episodes.action_size
    offered = np.array([_has_between(data, effect, states, both) for effect in last.effects])
    if not offered.all() and _correlate_neighbours(data, last) < _LITTLE:
        offered = np.array([_has_between(data, effect, 0, both) for effect in last.effects])
    found = {}
    for kind, sums in parts.items():
        chosen = offered | (kind == TIME)
        least = max(price, _find_least(kind, len(own)))
        tried = [one[:, chosen] for one in sums]
        found[kind] = _measure(data, last.fit, tried, own[:, chosen], sizes[kind][:, chosen], least)
    # All of these differ from the effect itself near an end: what one explains, others may. So only
    # the strongest of those that have enough evidence is told.
    strongest = max(found, key=lambda kind: (found[kind][1] > 0, found[kind][0]))
    return {kind: variance if kind == strongest else 0.0 for kind, (_, variance) in found.items()}


def _has_between(data: ColumnSource, effect: Effect, first: int, stop: int) -> bool:
    """Whether any of these columns is among its inputs: those of states, actions, `terminated`."""
    return any(first <= data.column(i) < stop for i in effect)


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
) -> tuple[dict[str, list[Array]], dict[str, Array]]:
    """Per kind and decay: (row, effect) sums of each effect as it acts late, early or by the time;
    and (decay, effect) the mean square error of the reward if all of the effect acts so."""
    starts = np.cumsum([0, *last.fit.sizes[:-1]])
    sums: dict[str, list[list[Array]]] = {OWN: [], EARLIER: [], LATER: [], TIME: []}
    errors: dict[str, Array] = {}
    steps = 0
    for segment in data.segments():
        features = compute_features(data, bank, last.effects, segment.inputs)
        parts = np.add.reduceat(features * last.fit.weights, starts, axis=1)
        count, weights = len(parts), segment.weights
        time = _LONGEST * ((np.arange(count) + 0.5) / count - 0.5)
        arriving = _arrive(count)
        sums[OWN].append([weights @ parts])
        sums[EARLIER].append(list((weights * arriving) @ parts))
        sums[LATER].append(list((weights * arriving[:, ::-1]) @ parts))
        sums[TIME].append([(weights * time) @ parts])
        steps += count
        for kind, changes in (
            (EARLIER, _compare_late(parts)),
            (LATER, _compare_late(parts[::-1])),
            (TIME, [parts]),
        ):
            errors[kind] = errors.get(kind, 0.0) + np.array([(one**2).sum(0) for one in changes])
    # An effect that acts late is missing where it acts, and is there where it does not.
    halves = {EARLIER: 0.5, LATER: 0.5, TIME: 1.0}
    sizes = {kind: halves[kind] * total / max(steps, 1) for kind, total in errors.items()}
    joined = {
        kind: [np.array(one) for one in zip(*rows, strict=True)] for kind, rows in sums.items()
    }
    return joined, sizes


def _arrive(count: int) -> Array:
    """(decay, step) the share of a late effect of each step that arrives before the episode ends.

    Nothing of the last step does, and of the one before 1 - decay.
    """
    remaining = np.arange(count)[::-1]
    return np.array([1.0 - np.float64(decay) ** remaining for decay in DECAYS])


def _compare_late(parts: Array) -> list[Array]:
    """Per decay: (step, effect) each effect at its own step, less what comes late at this step.

    What acted before the first step is not known. Effects have mean 0.
    """
    return [parts - delay(parts, decay) for decay in DECAYS]


def delay(parts: Array, decay: float) -> Array:
    """(step, effect) what comes late: late[t] = decay late[t - 1] + (1 - decay) parts[t - 1].

    Each round adds as many earlier steps as all rounds before.
    """
    late = np.zeros_like(parts)
    late[1:] = (1 - decay) * parts[:-1]
    reach = 1
    while reach < len(parts) and decay**reach > _NOTHING:
        late[reach:] += decay**reach * late[:-reach]
        reach *= 2
    return late


def _measure(
    data: ColumnSource,
    fit: Posterior,
    tried: list[Array],
    own: Array,
    sizes: Array,
    price: float,
) -> tuple[float, float]:
    """The gain of what gains most beyond the effect at its own step, and its variance per step if
    that exceeds a price. `tried` and `sizes` have one entry per decay."""
    if not own.size:
        return 0.0, 0.0
    gained = np.maximum(measure_gains(fit, _free_columns(data, own)[0][:, :, None])[0], 0.0)
    free, norms = _free_columns(data, np.concatenate(tried, 1))
    gains, variances = measure_gains(fit, free[:, :, None])
    gains = gains - np.tile(gained, len(tried))
    best = int(gains.argmax())
    if gains[best] < price:
        return float(gains[best]), 0.0
    column = free[:, best]
    seen = float(column @ fit.apply_inverse(column[:, None])[:, 0])
    spread = variances[best]
    weight = spread * float(column @ fit.residual) / (1 + spread * seen)
    return float(gains[best]), float((weight / norms[best]) ** 2 * sizes.ravel()[best])


def _free_columns(data: ColumnSource, sums: Array) -> tuple[Array, Array]:
    """(row, effect) sums without what a constant reward explains, of size 1, and their sizes."""
    columns, _ = data.equations.remove_constant(sums * data.equations.scale[:, None])
    norms = np.sqrt(np.maximum((np.asarray(columns, np.float64) ** 2).mean(0), 1e-300))
    return np.asarray(columns / norms, np.float64), norms
