"""Variances averaged over the models that the data leave possible, where none of them is certain.

With few or noisy amounts many sets of effects explain the data about as well, and the best of them
is too sure of itself. So sets of effects and their variances are drawn from their posterior (a
Gibbs sampler), and each effect goes into the last fit with its average variance: what is in half of
the models at variance v enters with v / 2.

Prior. Each input matters with probability 1/4; one that matters has a main effect of its own with
probability 1/2; of the pairs of inputs that matter one in five per input is there. Logarithms of
variances lie about a common level, itself unknown, since effects of one reward are of like size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grd_offline.additive.bars import BARS
from grd_offline.additive.basis import Effect
from grd_offline.additive.evidence import sum_gains
from grd_offline.core.typing import Array, IntArray

_VARIANCES = 2.0 ** np.arange(-14, 3)
_LEVELS = np.arange(-12, 1.01, 0.5)
_NOISES = np.geomspace(1e-4, 1.5, 160)


@dataclass(frozen=True, eq=False)
class ModelAverage:
    """A summary of the sampled models."""

    variances: dict[Effect, float]
    """Average variance of every effect that is not rare among them."""
    noise: float
    inclusion: dict[int, float]
    """For each column, the fraction of models that use it as an input."""
    draws: int
    """Number of models."""

    def likely(self) -> list[int]:
        """Columns that are inputs of at least half of the models."""
        return sorted(column for column, share in self.inclusion.items() if share >= 0.5)

    def score(self, column: int) -> float:
        """Log Bayes factor of that input, as far as so many draws can tell."""
        share = (self.inclusion.get(column, 0.0) * self.draws + 0.5) / (self.draws + 1)
        return float(
            np.log(share / (1 - share)) - np.log(BARS.prior_input / (1 - BARS.prior_input))
        )


def average_models(
    blocks: Mapping[Effect, NDArray[np.floating]],
    target: Array,
    column: Callable[[int], int],
    columns: int,
    *,
    sweeps: int,
    rng: np.random.Generator,
    progress: Callable[[float], None] = lambda share: None,
) -> ModelAverage:
    """Sample sets of effects with their variances; average after the first quarter.

    `blocks` holds (row, column) of each candidate; `columns` of them could be inputs. A sweep draws
    the noise, then each effect given all others.
    """
    effects = list(blocks)
    parts = [compress(np.asarray(blocks[effect], np.float64)) for effect in effects]
    prior = _Prior([{column(i) for i in effect} for effect in effects], columns)
    state = np.full(len(effects), -1)
    level = len(_LEVELS) // 2
    totals, counts, noises = np.zeros(len(effects)), np.zeros(len(effects)), []
    inclusion: dict[int, float] = {}
    for sweep in range(sweeps):
        progress(sweep / sweeps)
        noise, inverse = _draw_noise(parts, state, target, rng)
        for k in rng.permutation(len(effects)):
            inverse = _draw_effect(inverse, parts[k], target, state, k, prior, level, rng)
        level = _draw(prior.levels[:, state[state >= 0]].sum(1), rng)
        if sweep >= sweeps // 4:
            noises.append(noise)
            counts += state >= 0
            totals[state >= 0] += _VARIANCES[state[state >= 0]]
            for one in prior.find_columns(np.flatnonzero(state >= 0).tolist()):
                inclusion[one] = inclusion.get(one, 0.0) + 1
    draws = len(noises)
    often = np.flatnonzero(counts >= BARS.rare * draws)
    return ModelAverage(
        {effects[k]: float(totals[k]) / draws for k in often},
        float(np.mean(noises)),
        {one: count / draws for one, count in inclusion.items()},
        draws,
    )


def compress(block: Array) -> Array:
    """Few columns U with U U^T near Z Z^T: all that the evidence depends on."""
    left, values, _ = np.linalg.svd(block, full_matrices=False)
    power = np.cumsum(values**2)
    count = int(np.searchsorted(power, BARS.kept_of_block * power[-1])) + 1
    return np.asarray((left * values)[:, : min(count, BARS.most_directions)])


def _log_level_prior() -> Array:
    """(level, variance) log probability of each variance about each level."""
    gap = (np.log2(_VARIANCES) - _LEVELS[:, None]) / BARS.prior_width
    weights = np.exp(-0.5 * gap**2)
    return np.asarray(np.log(weights / weights.sum(1, keepdims=True)))


class _Prior:
    """Log probability of a set of effects."""

    def __init__(self, inputs: Sequence[set[int]], columns: int) -> None:
        self.bits = [sum(1 << one for one in own) for own in inputs]
        self.columns = columns
        self.is_main = [len(own) == 1 for own in inputs]
        self.levels = _log_level_prior()
        self._known: dict[tuple[int, int, int], float] = {}

    def find_columns(self, included: Sequence[int]) -> list[int]:
        """Columns of all these effects."""
        bits = self._join(included)
        return [one for one in range(bits.bit_length()) if bits >> one & 1]

    def _join(self, included: Sequence[int]) -> int:
        bits = 0
        for k in included:
            bits |= self.bits[k]
        return bits

    def measure(self, included: Sequence[int]) -> float:
        """The log probability that these effects are there, and no others."""
        active = self._join(included).bit_count()
        mains = sum(self.is_main[k] for k in included)
        key = active, mains, len(included) - mains
        if key not in self._known:
            self._known[key] = self._compute(*key)
        return self._known[key]

    def _compute(self, active: int, mains: int, joint: int) -> float:
        share = min(0.5, BARS.prior_pairs / max(active - 1, 1))
        value = active * np.log(BARS.prior_input) + (self.columns - active) * np.log(
            1 - BARS.prior_input
        )
        value += mains * np.log(BARS.prior_main) + (active - mains) * np.log(1 - BARS.prior_main)
        value += joint * np.log(share) + (active * (active - 1) / 2 - joint) * np.log(1 - share)
        return float(value)


def _draw(log_weights: Array, rng: np.random.Generator) -> int:
    """An index in proportion to exp(log_weights)."""
    weights = np.exp(log_weights - log_weights.max())
    return int(np.searchsorted(np.cumsum(weights), rng.random() * weights.sum()))


def _draw_noise(
    parts: Sequence[Array], state: IntArray, target: Array, rng: np.random.Generator
) -> tuple[float, Array]:
    """The noise given all effects, and C^-1 with it."""
    covariance = np.zeros((len(target), len(target)))
    for part, chosen in zip(parts, state, strict=True):
        if chosen >= 0:
            covariance += _VARIANCES[chosen] * (part @ part.T)
    values, vectors = np.linalg.eigh(covariance)
    values = np.maximum(values, 0)[:, None] + _NOISES
    power = (vectors.T @ target)[:, None] ** 2
    drawn = _draw(-0.5 * (np.log(values) + power / values).sum(0), rng)
    return float(_NOISES[drawn]), np.asarray((vectors / values[:, drawn]) @ vectors.T)


def _draw_effect(
    inverse: Array,
    part: Array,
    target: Array,
    state: IntArray,
    k: int,
    prior: _Prior,
    level: int,
    rng: np.random.Generator,
) -> Array:
    """Effect k given all others: its variance, or that it is absent. Returns the new C^-1.

    The gain of variance v is that of `measure_gains`, with C free of the effect.
    """
    if state[k] >= 0:
        inverse = _shift(inverse, part, -_VARIANCES[state[k]])
    seen = inverse @ part
    values, vectors = np.linalg.eigh(part.T @ seen)
    pull = (vectors.T @ (seen.T @ target)) ** 2
    gains = sum_gains(_VARIANCES[:, None], values, pull)
    others = [other for other in np.flatnonzero(state >= 0).tolist() if other != k]
    absent = prior.measure(others)
    present = gains + prior.levels[level] + prior.measure([*others, k])
    state[k] = _draw(np.append(absent, present), rng) - 1
    return _shift(inverse, part, _VARIANCES[state[k]]) if state[k] >= 0 else inverse


def _shift(inverse: Array, part: Array, change: float) -> Array:
    """(C + change U U^T)^-1 from C^-1."""
    seen = inverse @ part
    inner = np.eye(part.shape[1]) / change + part.T @ seen
    return np.asarray(inverse - seen @ np.linalg.solve(inner, seen.T))
