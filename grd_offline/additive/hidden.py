"""Variance per step of what may be in the reward but cannot be seen in returns.

Parts which widen the intervals of steps:

- *Effects left out*: main effects of inputs that are not in the model.
- *Potentials* h(s') - h(s), which cancel over an episode but for its ends.
- *The moment*: the reward may look at the state elsewhere in the transition, see `moments`. The
  difference g(s') - g(s) times the spread of the moment is left open.

A priori one reward in ten has an effect of an input that was left out, and one in ten a potential,
of any of the states. The logarithm of its variance is evenly distributed up to the average variance
of the effects that were found, so that what is hidden is hardly larger than what is seen. Beyond
that its density falls with the third power, which clear evidence overrules: a state that moves
slowly may have a large potential. Returns decide how much of all this is possible. None of it is
paid: a potential that the returns ask for counts with its whole size, since it is missing in the
rewards.

Steps at which episodes terminate have a variance of their own. Where every episode ends in a fall,
returns hardly tell what the fall pays from what its last state is worth.

Errors that last (`measure_interactions`). What effects do not explain of a return is called noise,
and shared out evenly over its steps. Noise that is drawn anew at every step adds up slowly, as a
random walk does. But where effects are too few or their bases too small, the reward itself is in
error. Such an error is nearly the same in neighbouring steps, adds up quickly, and so is smaller
per step than the returns seem to say.

It is a function of the inputs of the model, and returns show which part of the noise is one: a
Gaussian process over triples of these inputs joins the fit, and the evidence shares the noise out
between the two. The process stands there as random cosines of three inputs each, with lengths from
half a standard deviation to two.

Times (`measure_history`). A reward of one step is fitted. Returns may still show that its effects
belong to steps before or after, or that they grow or fade during an episode. So effects, as they
were fitted, are offered once more: those with an action earlier and later, and all of them
multiplied by the time within the episode, from -1.7 to 1.7. What gains evidence and is no small
part of the reward is reported. It is not added to the reward, which knows neither the past nor the
time.

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
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from grd_offline.additive.bars import BARS
from grd_offline.additive.basis import Effect, multiply_features
from grd_offline.additive.equations import ColumnSource
from grd_offline.additive.moments import BOTH, END, START, Evidence, spread_about
from grd_offline.additive.search import (
    SMALLEST_VARIANCE,
    EffectBank,
    EvidenceProblem,
    Posterior,
    Selection,
    measure_gains,
    sum_gains,
)
from grd_offline.core.typing import Array, BoolArray

_SHARES = np.geomspace(1e-4, 1e3, 85)  # of the average variance
_DENSITY = np.minimum(1.0, _SHARES**-3) / np.minimum(1.0, _SHARES**-3).sum()


def measure_hidden(
    data: ColumnSource, last: Selection, bank: EffectBank, evidence: Evidence
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
    size = min(BARS.hidden_features, data.basis.tables.shape[2])
    extra = data.build_bank(others, size)
    features = compute_features(data, extra, list(extra), steps)
    hidden["effects left out"] = _measure_group(last.fit, known, extra, features, largest)
    if data.state_at != BOTH:
        extra = data.build_potentials(size)
        now, later = (data.take(data.transitions, moment) for moment in (START, END))
        features = compute_features(data, extra, list(extra), later, before=now)
        hidden["potentials"] = _measure_group(last.fit, known, extra, features, largest)
    return {name: part * data.unit**2 for name, part in hidden.items()}


def find_even(data: ColumnSource, counts: Array | None = None) -> list[int]:
    """Inputs that differ between steps and take nearly the same values in every episode.

    Were steps drawn one by one, sums of an input's features over n of them would have n times the
    variance of one. Where every episode has the same hours, say, they hardly differ, and no return
    shows what an hour is worth. `counts` are the steps behind each row, where rows are not scaled.
    """
    mains = [(i,) for i in range(data.inputs) if i != data.terminated]
    size, plain = min(BARS.even_features, data.basis.tables.shape[2]), counts is not None
    bank = data.build_bank(mains, size, plain=plain)
    weights = data.equations.scale**2 * data.totals if counts is None else counts
    steps = float(weights.sum())
    power = float(data.totals @ data.totals)
    found = []
    for effect, (columns, *_) in bank.items():
        _, often = np.unique(data.probe[:, data.basis.columns[effect[0]]], return_counts=True)
        moves = often.max() < BARS.still * len(data.probe)
        spread = float((columns**2).sum())
        if plain and power:
            spread -= float(((data.totals @ columns) ** 2).sum()) / power
        features = data.basis.evaluate(data.probe, effect, size)[:, 0]
        share = float(features.var(0).sum() / max((features**2).sum(1).mean(), 1e-12))
        if moves and spread < BARS.even * share * steps:
            found.append(effect[0])
    return found


def compute_features(
    data: ColumnSource,
    bank: EffectBank,
    effects: Sequence[Effect],
    inputs: Array,
    before: Array | None = None,
) -> Array:
    """(step, weight) centred features of some blocks, as the weights of a fit belong to them.

    Those of potentials are features at these inputs less those at the inputs `before`.
    """
    blocks = [np.zeros((len(inputs), 0))]
    for effect in effects:
        _, average, scale, size = bank[effect]
        parts = []
        for one in data.expand_effect(effect):
            features = data.basis.evaluate(inputs, one, size)
            if before is not None:
                features = features - data.basis.evaluate(before, one, size)
            parts.append(multiply_features(np.moveaxis(features, 1, 0)))
        blocks.append(np.hstack(parts) * scale - average)
    return np.concatenate(blocks, 1)


def _measure_group(
    fit: Posterior, known: Array, extra: EffectBank, features: Array, largest: float
) -> Array:
    """(step,) growth of the squared error because one of these blocks may be there."""
    if not extra:
        return np.zeros(len(known))
    blocks = [np.asarray(block.columns, np.float64) for block in extra.values()]
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
        gains[k] = sum_gains(grid, values, pull)
    most = max(float(gains.max()), 0.0)
    there = np.exp(gains - most) * _DENSITY / len(sizes)
    odds = BARS.prior_hidden * float(there.sum())
    chance = odds / (odds + (1 - BARS.prior_hidden) * np.exp(-most))
    return np.asarray(there @ grid[:, 0] / there.sum()), float(chance)


def _step_variances(fit: Posterior, features: Array) -> Array:
    """(step,) posterior variance of the reward."""
    return np.asarray((features * fit.apply_covariance(features.T).T).sum(1))


def spread_moments(
    data: ColumnSource, last: Selection, bank: EffectBank, evidence: Evidence, *, firmly: bool
) -> Array:
    """(step,) the squared change of the reward from s to s', times the spread of the moment."""
    if not evidence:
        return np.zeros(len(data.transitions))
    start, end = (
        compute_features(data, bank, last.effects, data.take(data.transitions, moment))
        @ last.fit.weights
        for moment in (START, END)
    )
    spread = spread_about(data.state_at, evidence, firmly=firmly, jumps=data.jumps)
    return np.asarray(spread * (end - start) ** 2)


_LENGTHS = (0.5, 1.0, 2.0)  # length scales of the cosines, in standard deviations of an input
_SUMMED = 200_000
"""Steps that are summed at most; of more, every second, every third, and so on."""
_SEED = 20231  # any number: the same data get the same cosines


def measure_interactions(
    data: ColumnSource, last: Selection, bank: EffectBank
) -> tuple[Array, float]:
    """(step,) variance of the reward's error at sampled steps, and its share of the noise."""
    nothing = np.zeros(len(data.transitions)), 0.0
    if not last.effects:
        return nothing
    evaluate = _draw_cosines(data, sorted({data.column(i) for i in last.inputs}))
    every = -(-data.episodes.total_steps // _SUMMED)
    sums = np.stack(
        [every * one.weights[::every] @ evaluate(one.inputs[::every]) for one in data.segments()]
    )
    columns, average = data.equations.remove_constant(sums * data.equations.scale[:, None])
    fit = last.fit
    problem = EvidenceProblem(
        np.concatenate([fit.columns, columns], 1), [*fit.sizes, BARS.cosines], fit.target
    )
    start, floor = np.append(fit.variances, fit.noise), 1e-3 * fit.noise
    grown = problem.maximise(start, fit.noise, floor=floor, iterations=BARS.lasting_climb)
    if grown.noise >= fit.noise:
        return nothing
    steps = data.take(data.transitions, data.state_at)
    known = compute_features(data, bank, last.effects, steps)
    extra = evaluate(steps) - average
    return measure_growth(fit, grown, known, extra), 1 - grown.noise / fit.noise


def _draw_cosines(
    data: ColumnSource, columns: Sequence[int]
) -> Callable[[Array], NDArray[np.float32]]:
    """Random cosines (step, cosine) of three of some columns each, as a function of the inputs.

    The sum of their squares is 1 on average.
    """
    values = data.probe[:, columns]
    middle, spread = values.mean(0), values.std(0)
    rng = np.random.default_rng(_SEED)
    count = min(BARS.cosine_inputs, len(columns))
    slopes = np.zeros((len(columns), BARS.cosines))
    for cosine in range(BARS.cosines):
        chosen = rng.permutation(len(columns))[:count]
        length = rng.choice(_LENGTHS) * np.sqrt(count)
        slopes[chosen, cosine] = rng.standard_normal(count) / length
    slopes /= np.where(spread > 0, spread, 1.0)[:, None]
    shifts = (rng.uniform(0, 2 * np.pi, BARS.cosines) - middle @ slopes).astype(np.float32)
    slopes = slopes.astype(np.float32)

    def evaluate(inputs: Array) -> NDArray[np.float32]:
        angles = inputs[:, columns].astype(np.float32) @ slopes + shifts
        return np.asarray(np.cos(angles) * np.float32(np.sqrt(2 / BARS.cosines)))

    return evaluate


EARLIER, LATER, TIME = "earlier steps", "later steps", "the time within an episode"
DECAYS = (0.0, 0.5, 0.8, 0.9, 0.95)
"""What is left of an effect from one step to the next; 0: it all acts at the next step."""
_CANDIDATES = [(kind, decay) for kind in (EARLIER, LATER) for decay in DECAYS] + [(TIME, 0.0)]
_LEAST_SHARE = {EARLIER: 0.0, LATER: 0.0, TIME: 0.25}
"""Share of the noise that has to be explained."""
_NOTHING = 1e-9  # what is left of an effect that has faded
_LONGEST = np.sqrt(12.0)  # a standard deviation of 1 over the steps of an episode


def measure_history(data: ColumnSource, last: Selection, bank: EffectBank) -> dict[str, float]:
    """Variance per step of what acts late or early, or depends on the time; 0 without clear
    evidence.

    What acts late and hardly changes from step to step does no harm, and counts as little.
    """
    if not last.effects:
        return {}
    own, sums, sizes = _sum_parts(data, last, bank)
    price = BARS.late_gain + math.log(len(_CANDIDATES) * len(last.effects))

    def have_between(first: int, stop: int) -> BoolArray:
        """(effect,) whether any of these columns of states and actions is among its inputs."""
        return np.array([any(first <= data.column(i) < stop for i in e) for e in last.effects])

    offered = have_between(data.episodes.state_size, data.ended)
    if not offered.all() and _correlate_neighbours(data, last) < BARS.little_correlation:
        offered = have_between(0, data.ended)
    found = {}
    for kind in (EARLIER, LATER, TIME):
        mine, chosen = np.array([one == kind for one, _ in _CANDIDATES]), offered | (kind == TIME)
        least = max(price, -0.5 * len(own) * math.log(1 - _LEAST_SHARE[kind]))
        tried = np.concatenate(sums[mine][:, :, chosen], 1)
        found[kind] = _measure(data, last.fit, tried, own[:, chosen], sizes[mine][:, chosen], least)
    # All of these differ from the effect itself near an end: what one explains, others may. So only
    # the strongest of those that have enough evidence is told.
    strongest = max(found, key=lambda kind: (found[kind][1] > 0, found[kind][0]))
    return {kind: variance if kind == strongest else 0.0 for kind, (_, variance) in found.items()}


def _correlate_neighbours(data: ColumnSource, last: Selection) -> float:
    """The largest correlation between an input of the reward and any of them one step later."""
    used = sorted({int(data.basis.columns[i]) for i in last.inputs})
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


def _sum_parts(data: ColumnSource, last: Selection, bank: EffectBank) -> tuple[Array, Array, Array]:
    """(row, effect) sums of each effect, (candidate, row, effect) the same as it acts late, early
    or by the time, and (candidate, effect) the mean square error of the reward if all of it does.
    """
    starts = np.cumsum([0, *last.fit.sizes[:-1]])
    own, sums, errors, steps = [], [], np.zeros((len(_CANDIDATES), len(last.effects))), 0
    for segment in data.segments():
        features = compute_features(data, bank, last.effects, segment.inputs)
        parts = np.add.reduceat(features * last.fit.weights, starts, axis=1)
        count, weights = len(parts), segment.weights
        time = _LONGEST * ((np.arange(count) + 0.5) / count - 0.5)
        # Of a late effect of each step, the share that arrives before the episode ends.
        remaining = np.arange(count)[::-1]
        arriving = np.array([1.0 - np.float64(decay) ** remaining for decay in DECAYS])
        factors = np.concatenate([arriving, arriving[:, ::-1], time[None]])
        own.append(weights @ parts)
        sums.append((weights * factors) @ parts)
        # What acted before the first step is not known. Effects have mean 0.
        late = [one - delay(one, decay) for one in (parts, parts[::-1]) for decay in DECAYS]
        errors += np.array([(one**2).sum(0) for one in (*late, parts)])
        steps += count
    # An effect that acts late is missing where it acts, and is there where it does not.
    halves = np.array([1.0 if kind == TIME else 0.5 for kind, _ in _CANDIDATES])
    return np.array(own), np.stack(sums, 1), halves[:, None] * errors / max(steps, 1)


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
    data: ColumnSource, fit: Posterior, tried: Array, own: Array, sizes: Array, price: float
) -> tuple[float, float]:
    """The gain of what gains most beyond the effect at its own step, and its variance per step if
    that exceeds a price. `tried` (row, decay and effect), `sizes` (decay, effect)."""
    if not own.size:
        return 0.0, 0.0
    gained = np.maximum(measure_gains(fit, data.normalise(own)[0][:, :, None])[0], 0.0)
    free, norms = data.normalise(tried)
    gains, variances = measure_gains(fit, free[:, :, None])
    gains = gains - np.tile(gained, len(sizes))
    best = int(gains.argmax())
    if gains[best] < price:
        return float(gains[best]), 0.0
    column = free[:, best]
    seen = float(column @ fit.apply_inverse(column[:, None])[:, 0])
    spread = variances[best]
    weight = spread * float(column @ fit.residual) / (1 + spread * seen)
    return float(gains[best]), float((weight / norms[best]) ** 2 * sizes.ravel()[best])
