"""Variance per step of what may be in the reward but cannot be seen in returns.

Three parts, which widen the intervals of steps:

- *Effects left out*: main effects of inputs that are not in the model.
- *Potentials* h(s') - h(s), which cancel over an episode but for its ends.
- *The moment*: the reward may look at the state elsewhere in the transition, see `moments`. The
  difference g(s') - g(s) times the spread of the moment is left open.

A priori one reward in ten has an effect of an input that was left out, and one in ten a potential,
of any of the states. The logarithm of its variance is evenly distributed up to the average variance
of the effects that were found, so that what is hidden is hardly larger than what is seen. Beyond
that its density falls with the third power, which clear evidence overrules: a state that moves
slowly may have a large potential. Returns decide how much of all this is possible.
None of it is paid: a potential that the returns ask for counts with its whole size, since it is
missing in the rewards.

Steps at which episodes terminate have a variance of their own. Where every episode ends in a fall,
returns hardly tell what the fall pays from what its last state is worth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from grd_offline.methods.closed_form.columns import ColumnSource
from grd_offline.methods.closed_form.evidence import (
    SMALLEST_VARIANCE,
    EvidenceProblem,
    Posterior,
)
from grd_offline.methods.closed_form.inputs import Effect
from grd_offline.methods.closed_form.moments import BOTH, END, START, spread_about
from grd_offline.methods.closed_form.search import EffectBank, Selection
from grd_offline.rewards.effects import multiply_features

Array = NDArray[np.float64]
_SIZE = 12
_EVEN_SIZE = 6
_EVEN = 0.2
_STILL = 0.9
_SHARES = np.geomspace(1e-4, 1e3, 85)  # of the average variance
_DENSITY = np.minimum(1.0, _SHARES**-3) / np.minimum(1.0, _SHARES**-3).sum()
_PRESENT = 0.1  # probability that a reward has such a part, before the returns are seen


def measure_hidden(
    data: ColumnSource, last: Selection, bank: EffectBank, evidence: Mapping[str, float]
) -> dict[str, Array]:
    """Variance of each part at sampled steps, `data.transitions`, in the units of the data."""
    if not last.effects:
        return {}
    steps = data.take(data.transitions, data.state_at)
    known = compute_features(data, bank, last.effects, steps)
    largest = float(np.mean(last.fit.variances))
    hidden = {"moment": spread_moments(data, last, bank, evidence, firmly=True)}
    used = {data.column(i) for i in last.inputs}
    others = [(i,) for i in range(data.inputs) if data.column(i) not in used]
    size = _choose_size(data)
    extra = data.build_bank(others, size)
    features = compute_features(data, extra, list(extra.columns), steps)
    hidden["effects left out"] = _measure_group(last.fit, known, extra, features, largest)
    if data.state_at != BOTH:
        extra = data.build_potentials(size)
        features = _compute_differences(data, extra)
        hidden["potentials"] = _measure_group(last.fit, known, extra, features, largest)
    return {name: part * data.unit**2 for name, part in hidden.items()}


def _choose_size(data: ColumnSource, most: int = _SIZE) -> int:
    """Features per input: at most so many, and no more than there are."""
    return min(most, int(data.basis.tables.shape[2]))


def find_even(data: ColumnSource, counts: Array | None = None) -> tuple[str, ...]:
    """Names of inputs that differ between steps and take nearly the same values in every episode.

    Were steps drawn one by one, sums of an input's features over n of them would have n times the
    variance of one. Where every episode has the same hours, say, they hardly differ, and no return
    shows what an hour is worth. `counts` are the steps behind each row, where rows are not scaled.
    """
    mains = [(i,) for i in range(data.inputs) if i != data.terminated]
    size, plain = _choose_size(data, _EVEN_SIZE), counts is not None
    bank = data.build_bank(mains, size, plain=plain)
    weights = data.equations.scale**2 * data.totals if counts is None else counts
    steps = float(weights.sum())
    power = float(data.totals @ data.totals)
    found = []
    for effect, columns in bank.columns.items():
        _, often = np.unique(data.probe[:, data.basis.columns[effect[0]]], return_counts=True)
        moves = often.max() < _STILL * len(data.probe)
        spread = float((columns**2).sum())
        if plain and power:
            spread -= float(((data.totals @ columns) ** 2).sum()) / power
        features = data.basis.evaluate(data.probe, effect, size)[:, 0]
        share = float(features.var(0).sum() / max((features**2).sum(1).mean(), 1e-12))
        if moves and spread < _EVEN * share * steps:
            found.append(data.names[effect[0]])
    return tuple(found)


def compute_features(
    data: ColumnSource, bank: EffectBank, effects: Sequence[Effect], inputs: Array
) -> Array:
    """(step, weight) centred features of some blocks, as the weights of a fit belong to them."""
    blocks = [np.zeros((len(inputs), 0))]
    for effect in effects:
        size, scale = bank.sizes[effect], bank.scales[effect]
        parts = [
            multiply_features(np.moveaxis(data.basis.evaluate(inputs, part, size), 1, 0))
            for part in data.expand_effect(effect)
        ]
        blocks.append(np.hstack(parts) * scale - bank.averages[effect])
    return np.concatenate(blocks, 1)


def _compute_differences(data: ColumnSource, bank: EffectBank) -> Array:
    """(step, weight) the same of potentials: features of s' less those of s."""
    now, later = (data.take(data.transitions, moment) for moment in (START, END))
    blocks = [np.zeros((len(now), 0))]
    for effect in bank.columns:
        size = bank.sizes[effect]
        change = data.basis.evaluate(later, effect, size) - data.basis.evaluate(now, effect, size)
        blocks.append(change[:, 0] * bank.scales[effect] - bank.averages[effect])
    return np.concatenate(blocks, 1)


def _measure_group(
    fit: Posterior, known: Array, extra: EffectBank, features: Array, largest: float
) -> Array:
    """(step,) growth of the squared error because one of these blocks may be there."""
    if not extra.columns:
        return np.zeros(len(known))
    blocks = [np.asarray(block, np.float64) for block in extra.columns.values()]
    columns, sizes = np.concatenate(blocks, 1), [block.shape[1] for block in blocks]
    averages, chance = _average_variances(fit, columns, sizes, largest)
    variances = np.concatenate([fit.variances, np.maximum(averages, SMALLEST_VARIANCE)])
    every = np.concatenate([fit.columns, columns], 1)
    problem = EvidenceProblem(every, [*fit.sizes, *sizes], fit.target)
    grown = problem.solve(variances, fit.noise)
    return chance * measure_growth(fit, grown, known, features)


def measure_growth(fit: Posterior, grown: Posterior, known: Array, extra: Array) -> Array:
    """(step,) growth of the squared error if a fit with more blocks is the right one.

    `known` and `extra` are the features of some steps, of the fit's blocks and of the others.
    """
    every = np.concatenate([known, extra], 1)
    wider = _step_variances(grown, every) - _step_variances(fit, known)
    missed = every @ grown.weights - known @ fit.weights
    return np.asarray(wider + missed**2)


def _average_variances(
    fit: Posterior, columns: Array, sizes: Sequence[int], largest: float
) -> tuple[Array, float]:
    """(block,) posterior mean of the variance of each if one is there; the chance that one is.

    Blocks that explain the same returns share the probability; see `measure_gains`. `columns` has
    all blocks side by side.
    """
    grid = largest * _SHARES[:, None]
    gains = np.zeros((len(sizes), len(grid)))
    seen, pulls = fit.apply_inverse(columns), columns.T @ fit.residual
    stops = np.cumsum(sizes)
    for k, (start, stop) in enumerate(zip(stops - sizes, stops, strict=True)):
        values, vectors = np.linalg.eigh(columns[:, start:stop].T @ seen[:, start:stop])
        pull = (vectors.T @ pulls[start:stop]) ** 2
        grown = 1 + grid * np.maximum(values, 0)
        gains[k] = 0.5 * (grid * pull / grown - np.log(grown)).sum(1)
    most = max(float(gains.max()), 0.0)
    there = np.exp(gains - most) * _DENSITY / len(sizes)
    odds = _PRESENT * float(there.sum())
    chance = odds / (odds + (1 - _PRESENT) * np.exp(-most))
    return np.asarray(there @ grid[:, 0] / there.sum()), float(chance)


def _step_variances(fit: Posterior, features: Array) -> Array:
    """(step,) posterior variance of the reward."""
    return np.asarray((features * fit.apply_covariance(features.T).T).sum(1))


def measure_moments(
    data: ColumnSource,
    last: Selection,
    bank: EffectBank,
    evidence: Mapping[str, float],
    *,
    firmly: bool = False,
) -> float:
    """Variance of the reward over the moments that are possible, averaged over steps."""
    return float(spread_moments(data, last, bank, evidence, firmly=firmly).mean())


def spread_moments(
    data: ColumnSource,
    last: Selection,
    bank: EffectBank,
    evidence: Mapping[str, float],
    *,
    firmly: bool,
) -> Array:
    """(step,) the squared change of the reward from s to s', times the spread of the moment."""
    if not evidence:
        return np.zeros(len(data.transitions))
    start, end = (
        compute_features(data, bank, last.effects, data.take(data.transitions, moment))
        @ last.fit.weights
        for moment in (START, END)
    )
    return np.asarray(
        spread_about(data.state_at, evidence, firmly=firmly, jumps=data.jumps) * (end - start) ** 2
    )
