"""The evidence of a sum of Gaussian effects, the search for those that it asks for, and an average
over all sets of them where none is certain.

Equations y = sum_p Z_p w_p + noise, one row per delivered amount, with w_p ~ N(0, v_p I) and
noise ~ N(0, s I). So y ~ N(0, C), C = s I + sum_p v_p Z_p Z_p^T, and the log evidence is

    L = -1/2 (n log 2 pi + log |C| + y^T C^-1 y)

With a = C^-1 y, its derivative in v_p is (|Z_p^T a|^2 - tr Z_p^T C^-1 Z_p) / 2, and in s the same
with the identity for Z_p. MacKay's fixed point multiplies each variance by the ratio of the two
terms, which is 1 where the derivative vanishes.

Where there are fewer columns than rows everything is computed from the Gram matrix Z^T Z
(primal), else from the covariance C (dual); the two agree.

Returns that no reward explains count less (`measure_weights`): a Student-t likelihood in place of
the normal one.

A Student-t variable is a normal one whose variance is itself random, so each return has a weight,
(nu + 1) / (nu + z^2), that follows from its error z in units of the usual error. Errors are those
of returns that are left out in turn: a fit that bends to one of them does not hide it.

The search goes forward by the evidence that each effect would add, and backward by the evidence
that each carries.

With few or noisy amounts many sets of effects explain the data about as well, and the best of them
is too sure of itself. So sets of effects and their variances are drawn from their posterior (a
Gibbs sampler), and each effect goes into the last fit with its average variance: what is in half of
the models at variance v enters with v / 2.

Prior. Each input matters with probability 1/4; one that matters has a main effect of its own with
probability 1/2; of the pairs of inputs that matter one in five per input is there. Logarithms of
variances lie about a common level, itself unknown, since effects of one reward are of like size.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dpotri

from grd_offline.additive.bars import BARS
from grd_offline.additive.basis import Effect
from grd_offline.core.typing import Array, IntArray

if TYPE_CHECKING:
    from grd_offline.additive.settings import ClosedFormSettings

SMALLEST_VARIANCE = 1e-10  # an effect of less counts as absent
_ARRIVED = 1e-3  # change of the log evidence at which a fit has arrived
_LARGEST_STACK = 80_000_000  # entries of all kernels of a dual fit that may be held at once


@dataclass(frozen=True)
class Posterior:
    """The fit at given variances: evidence, weights, and C^-1 as an operator."""

    columns: Array
    """(row, column) Z, blocks side by side."""
    sizes: tuple[int, ...]
    """Number of columns of each block."""
    target: Array
    variances: Array
    """(block,): the prior variance of each block."""
    noise: float
    evidence: float
    weights: Array
    """(column,): the posterior mean of each weight."""
    residual: Array
    """(row,) C^-1 y."""
    inner: Array
    """Primal: (column, column) (I + D^1/2 Z^T Z D^1/2 / s)^-1. Dual: (row, row) C^-1."""
    primal: bool

    @property
    def spread(self) -> Array:
        """(column,) the prior variance of each weight."""
        return np.repeat(self.variances, self.sizes)

    def apply_inverse(self, columns: NDArray[np.floating]) -> NDArray[np.floating]:
        """C^-1 times some columns, in their precision."""
        kind = columns.dtype
        if not self.primal:
            return np.asarray(self.inner.astype(kind, copy=False) @ columns, kind)
        scaled = self.columns * np.sqrt(self.spread)
        left = (scaled @ self.inner / self.noise).astype(kind, copy=False)
        explained = left @ (scaled.astype(kind, copy=False).T @ columns)
        return np.asarray((columns - explained) / kind.type(self.noise))

    def inverse_diagonal(self) -> Array:
        """(row,) the diagonal of C^-1."""
        if not self.primal:
            return np.diag(self.inner).copy()
        scaled = self.columns * np.sqrt(self.spread)
        explained = ((scaled @ self.inner) * scaled).sum(1)
        return np.asarray((1 - explained / self.noise) / self.noise)

    def apply_covariance(self, vectors: Array) -> Array:
        """The posterior covariance of the weights, D - D Z^T C^-1 Z D, times some vectors."""
        spread = self.spread[:, None]
        if self.primal:
            # Without the difference, which would lose all digits where the noise is small.
            root = np.sqrt(spread)
            return np.asarray(root * (self.inner @ (root * vectors)))
        seen = self.apply_inverse(self.columns @ (spread * vectors))
        return np.asarray(spread * (vectors - self.columns.T @ seen))

    def effective_parameters(self) -> Array:
        """(block,) gamma_p = v_p tr Z_p^T C^-1 Z_p, the number of weights that data determine."""
        return self.variances * self.block_traces()

    def block_traces(self) -> Array:
        """(block,) tr Z_p^T C^-1 Z_p."""
        return sum_blocks(self.column_traces(), self.sizes)

    def column_traces(self) -> Array:
        """(column,) the diagonal of Z^T C^-1 Z."""
        if not self.primal:
            return np.asarray((self.columns * self.apply_inverse(self.columns)).sum(0))
        return np.asarray(np.maximum((1 - np.diag(self.inner)) / self.spread, 0))

    def weight_variances(self) -> Array:
        """(column,) the posterior variance of each weight."""
        spread = self.spread
        known = 1 - np.diag(self.inner) if self.primal else spread * self.column_traces()
        return np.asarray(spread * np.maximum(1 - known, 1e-12))


def invert(matrix: Array) -> tuple[Array, float]:
    """The inverse of a positive definite matrix, and the logarithm of its determinant.

    From one Cholesky factor, in half the time of numpy's inverse.
    """
    if not len(matrix):
        return matrix, 0.0
    # A symmetric matrix is its own transpose, which is how LAPACK stores matrices.
    factor, failed = dpotrf(matrix.T, lower=1)
    if failed:
        raise np.linalg.LinAlgError("matrix is not positive definite")
    log_determinant = 2 * float(np.log(np.diag(factor)).sum())
    lower, _ = dpotri(factor, lower=1, overwrite_c=1)
    inverse = lower + lower.T
    inverse[np.diag_indices_from(inverse)] /= 2
    return inverse, log_determinant


def solve_sums(
    gram: Array, moment: Array, spread: Array, noise: float
) -> tuple[Array, Array, float]:
    """Posterior mean of the weights from Z^T Z, Z^T y and their prior variances D, with
    (I + D^1/2 Z^T Z D^1/2 / s)^-1 and the logarithm of its inverse's determinant."""
    root = np.sqrt(spread)
    system = root[:, None] * gram * root / noise
    system[np.diag_indices_from(system)] += 1
    inner, log_determinant = invert(system)
    return root * (inner @ (root * moment)) / noise, inner, log_determinant


def sum_blocks(values: Array, sizes: Sequence[int]) -> Array:
    """(block,) sums of (column,) values."""
    if not sizes:
        return np.zeros(0)
    return np.asarray(np.add.reduceat(values, np.cumsum([0, *sizes[:-1]])))


class EvidenceProblem:
    """Rows, blocks of columns and a target, with what can be computed once for all variances."""

    def __init__(
        self, columns: Array, sizes: Sequence[int], target: Array, *, few_steps: bool = False
    ) -> None:
        """`few_steps` says that the fixed point takes too few for a table of all kernels."""
        self.columns, self.sizes, self.target = columns, tuple(sizes), target
        rows, width = columns.shape
        self.primal = width < rows or width == 0
        self.power = float(target @ target)
        self.gram = columns.T @ columns if self.primal else None
        self.moment = columns.T @ target
        self.kernels: Array | None = None
        entries = len(self.sizes) * rows * rows
        if not self.primal and not few_steps and entries <= _LARGEST_STACK:
            ends = np.cumsum(self.sizes)
            blocks = [columns[:, e - k : e] for e, k in zip(ends, self.sizes, strict=True)]
            self.kernels = np.stack([block @ block.T for block in blocks]).reshape(len(blocks), -1)

    def solve(self, variances: Array, noise: float) -> Posterior:
        """The posterior at these variances."""
        return self._step(variances, noise)[0]

    def maximise(
        self, variances: Array, noise: float, *, floor: float, iterations: int
    ) -> Posterior:
        """Climb the evidence by MacKay's fixed point from a first guess.

        `floor` bounds the noise from below.
        """
        variances, noise = np.maximum(variances, SMALLEST_VARIANCE), max(noise, floor)
        best, ratios, noise_ratio = self._step(variances, noise)
        for _ in range(iterations):
            variances = np.clip(variances * ratios, SMALLEST_VARIANCE, 1e6)
            noise = max(noise * noise_ratio, floor)
            fit, ratios, noise_ratio = self._step(variances, noise)
            rise = fit.evidence - best.evidence
            if rise > 0:
                best = fit
            if abs(rise) < _ARRIVED:
                break
        return best

    def _step(self, variances: Array, noise: float) -> tuple[Posterior, Array, float]:
        """Posterior, and the factors by which the fixed point moves variances and noise."""
        return (self._solve_primal if self.primal else self._solve_dual)(variances, noise)

    def _solve_primal(self, variances: Array, noise: float) -> tuple[Posterior, Array, float]:
        assert self.gram is not None
        rows, width = self.columns.shape
        spread = np.repeat(variances, self.sizes)
        weights, inner, log_determinant = solve_sums(self.gram, self.moment, spread, noise)
        quadratic = (self.power - float(self.moment @ weights)) / noise
        evidence = -0.5 * (rows * np.log(2 * np.pi * noise) + log_determinant + quadratic)
        residual = (self.target - self.columns @ weights) / noise
        fit = Posterior(
            self.columns, self.sizes, self.target, variances, noise, float(evidence), weights,
            residual, inner, True,
        )  # fmt: skip
        strength = sum_blocks((weights / spread) ** 2, self.sizes)
        traces = np.maximum(fit.block_traces(), 1e-300)
        noise_trace = max((rows - width + float(np.trace(inner))) / noise, 1e-300)
        return fit, strength / traces, float(residual @ residual) / noise_trace

    def _solve_dual(self, variances: Array, noise: float) -> tuple[Posterior, Array, float]:
        rows = len(self.target)
        spread = np.repeat(variances, self.sizes)
        if self.kernels is not None:
            covariance = (variances @ self.kernels).reshape(rows, rows)
        else:
            covariance = (self.columns * spread) @ self.columns.T
        covariance[np.diag_indices_from(covariance)] += noise
        inner, log_determinant = invert(covariance)
        residual = inner @ self.target
        evidence = -0.5 * (
            rows * np.log(2 * np.pi) + log_determinant + float(self.target @ residual)
        )
        pull = self.columns.T @ residual
        fit = Posterior(
            self.columns, self.sizes, self.target, variances, noise, float(evidence),
            spread * pull, residual, inner, False,
        )  # fmt: skip
        traces = fit.block_traces() if self.kernels is None else self.kernels @ inner.ravel()
        ratios = sum_blocks(pull**2, self.sizes) / np.maximum(traces, 1e-300)
        return fit, ratios, float(residual @ residual) / float(np.trace(inner))


def sum_gains(variances: NDArray[Any], values: Array, pull: Array) -> Array:
    """Evidence that a block adds at some variances, by the last axis; see `measure_gains`."""
    grown = 1 + variances * np.maximum(values, 0)
    return np.asarray(0.5 * (variances * pull / grown - np.log(grown)).sum(-1))


def measure_gains(fit: Posterior, blocks: NDArray[np.floating]) -> tuple[Array, Array]:
    """Evidence that each candidate would add at its best variance, and that variance.

    `blocks` is (row, candidate, column). With S = Z^T C^-1 Z = V diag(s) V^T and u = V^T Z^T C^-1 y
    the evidence rises by exactly sum_k (v u_k^2 / (1 + v s_k) - log(1 + v s_k)) / 2.
    """
    rows, count, width = blocks.shape
    flat = blocks.reshape(rows, count * width)
    seen = fit.apply_inverse(flat).reshape(rows, count, width)
    curvature = blocks.transpose(1, 2, 0) @ seen.transpose(1, 0, 2)
    values, vectors = np.linalg.eigh(curvature.astype(np.float64))
    pull = (fit.residual @ flat).reshape(count, width)
    pull = (np.swapaxes(vectors, 1, 2) @ pull[:, :, None])[:, :, 0] ** 2
    grid = np.geomspace(1e-6, 1e2, 33)
    gains = sum_gains(grid[:, None, None], values, pull)
    best = gains.argmax(0)
    return gains[best, np.arange(count)], grid[best]


def measure_losses(fit: Posterior, groups: Sequence[IntArray] | None = None) -> Array:
    """(group,) evidence lost if all columns of a group were removed at once, all else held.

    By default the groups are the blocks. With S and u of the columns of a group, and D their
    variances: (u^T D^1/2 L^-1 D^1/2 u + log |L|) / 2, L = I - D^1/2 S D^1/2. In a primal fit L is
    the part of `inner`.
    """
    if groups is None:
        groups = np.split(np.arange(sum(fit.sizes)), np.cumsum(fit.sizes[:-1]))[: len(fit.sizes)]
    root = np.sqrt(fit.spread)
    pull = root * (fit.columns.T @ fit.residual)
    seen = None if fit.primal else fit.apply_inverse(fit.columns)
    losses = np.zeros(len(groups))
    for place, mine in enumerate(groups):
        if seen is None:
            left = fit.inner[np.ix_(mine, mine)]
        else:
            inner = fit.columns[:, mine].T @ seen[:, mine]
            left = np.eye(len(mine)) - root[mine, None] * inner * root[mine]
        values, vectors = np.linalg.eigh(left)
        values = np.clip(values, 1e-12, 1.0)
        losses[place] = 0.5 * float(((vectors.T @ pull[mine]) ** 2 / values + np.log(values)).sum())
    return losses


_STEPS = 1024  # that the factor is made of, for time


def correlate_columns(sums: Array) -> Array:
    """Correlation of columns; 0 with a constant one, 1 on the diagonal."""
    centred = sums - sums.mean(0)
    norm = np.sqrt((centred**2).sum(0))
    unit = centred / np.where(norm > 0, norm, 1.0)
    correlation = unit.T @ unit
    correlation[np.diag_indices_from(correlation)] = 1.0
    return np.asarray(correlation)


def factor_posterior(fit: Posterior, steps: Array, others: Array, rank: int) -> tuple[Array, float]:
    """F with F F^T near the weights' posterior covariance S, where steps lie; what it misses.

    With A the features of some steps, A S A^T = U diag(l) U^T; F = S A^T U l^-1/2 for the largest
    l is exact on these steps up to the l left out. What it misses is measured on `others`. Where
    there are fewer weights than steps, the same F is L V, with S = L L^T and
    L^T A^T A L = V diag(l) V^T, which is smaller.
    """
    if not fit.sizes:
        return np.zeros((0, 0)), 0.0
    steps = steps[:_STEPS]
    is_narrow = steps.shape[1] < len(steps)
    if is_narrow:
        squares, axes = np.linalg.eigh(fit.apply_covariance(np.eye(steps.shape[1])))
        spanned = axes * np.sqrt(np.maximum(squares, 0.0))
        seen = steps @ spanned
        values, vectors = np.linalg.eigh(seen.T @ seen)
    else:
        spanned = fit.apply_covariance(steps.T)
        values, vectors = np.linalg.eigh(steps @ spanned)
    order = np.argsort(values)[::-1][:rank]
    order = order[values[order] > 1e-10 * max(values.max(), 1e-300)]
    factor = spanned @ vectors[:, order]
    if not is_narrow:
        factor = factor / np.sqrt(values[order])
    others = others[:_STEPS] if len(others) else steps
    exact = (others * fit.apply_covariance(others.T).T).sum(1)
    missed = exact - ((others @ factor) ** 2).sum(1)
    return np.asarray(factor), float(max(missed.mean(), 0.0))


def measure_inflation(fit: Posterior, floor: float, rng: np.random.Generator, climb: int) -> float:
    """Root mean square of held-out errors in units of their predicted standard deviation.

    Five folds; variances and noise climb again without the fold (so many steps), or its rows would
    have had a say in how wide their own intervals are.
    """
    rows = len(fit.target)
    if rows < 2 * BARS.folds:
        return BARS.unknown_inflation
    fold = rng.permutation(rows) % BARS.folds
    errors = np.zeros(rows)
    for k in range(BARS.folds):
        out = fold == k
        problem = EvidenceProblem(fit.columns[~out], fit.sizes, fit.target[~out])
        part = problem.maximise(fit.variances, fit.noise, floor=floor, iterations=climb)
        reach = fit.columns[out] * part.spread
        seen = reach @ part.columns.T
        variance = (reach * fit.columns[out]).sum(1) + part.noise
        variance -= (seen * part.apply_inverse(seen.T).T).sum(1)
        gap = fit.target[out] - fit.columns[out] @ part.weights
        errors[out] = gap / np.sqrt(np.maximum(variance, part.noise))
    return float(np.clip(np.sqrt((errors**2).mean()), 1.0, 10.0))


_TO_SD = 1.4826  # the standard deviation of normal errors over their median size


def measure_weights(errors: Array, near: float = 0.0) -> Array | None:
    """(row,) how much each row counts; None where all errors are of a size.

    Errors of up to `near` are not far, however small the usual one is: where most episodes have
    the same return, the usual error is next to nothing.
    """
    if len(errors) < BARS.fewest_for_tails:
        return None
    spread = float(np.sqrt((errors**2).mean()))
    usual = _TO_SD * float(np.median(np.abs(errors)))
    far = max(BARS.far_errors * usual, near)
    if usual <= BARS.least_usual * spread or not (np.abs(errors) > far).any():
        return None
    usual = max(usual, near / BARS.far_errors)
    return np.asarray((BARS.freedom + 1) / (BARS.freedom + (errors / usual) ** 2))


def is_better(errors: Array, before: Array, factor: float) -> bool:
    """Whether most returns are explained clearly better now that others count less."""
    return bool(np.median(np.abs(errors)) < factor * np.median(np.abs(before)))


Start = tuple[Mapping[Effect, float], float]
"""Variances of some effects, and the noise."""
NOWHERE: Start = ({}, 1.0)
Column = Callable[[int], int]
"""The column of an input."""

_CHUNK = 8_000_000  # entries of candidate columns looked at in one go


@dataclass(frozen=True)
class SearchRules:
    """Thresholds of the search, in units of log evidence unless said otherwise."""

    settings: ClosedFormSettings
    noise_floor: float
    """Smallest noise, as a share of the target's variance."""
    add_most: int
    """Largest number of effects that are added in one round."""
    inputs: int = 1
    """Number of inputs to choose from."""
    kept: frozenset[Effect] = frozenset()
    """Effects that are never dropped, so that others which stand in for them go first."""

    def price(self, effect: Effect) -> float:
        """The further evidence that an effect has to gain or carry. It grows with the number of
        effects of its kind.

        The best of many effects that are not there gains the logarithm of their number by chance.
        """
        kinds = {1: self.inputs / BARS.free_mains, 2: self.inputs**2 / 2 / BARS.free_pairs}
        return max(0.0, math.log(kinds.get(len(effect), 1.0)))

    def price_new(self, effects: Sequence[Effect], chosen: Selection) -> Array:
        """(effect,) what each has to gain beside the chosen: its price and that of new inputs."""
        present, new_input = set(chosen.inputs), self.settings.new_input
        return np.array([new_input * len(set(e) - present) + self.price(e) for e in effects])


@dataclass(frozen=True, eq=False)
class Selection:
    """Effects in the model, with the fit of their variances."""

    effects: tuple[Effect, ...]
    fit: Posterior

    @property
    def inputs(self) -> tuple[int, ...]:
        """Inputs that stand in any effect."""
        return tuple(sorted({i for effect in self.effects for i in effect}))

    @property
    def start(self) -> Start:
        """Variances and noise, from which a related fit may start."""
        return dict(zip(self.effects, self.fit.variances.tolist(), strict=True)), self.fit.noise


class Block(NamedTuple):
    """The scaled columns of one effect."""

    columns: NDArray[np.floating]
    average: NDArray[np.floating] | float = 0.0
    """(column,) the average per step, which the columns are free of."""
    scale: float = 1.0
    """What the features were multiplied by."""
    size: int = 0
    """Number of features of each input."""


class EffectBank(dict[Effect, Block]):
    """The columns of all candidate effects, and fits of subsets of them."""

    def __init__(self, blocks: Mapping[Effect, Block], target: Array) -> None:
        super().__init__(blocks)
        self.target = target

    @cached_property
    def null_evidence(self) -> float:
        """Log evidence without any effect, at the best noise."""
        rows = len(self.target)
        noise = max(float(self.target @ self.target) / max(rows, 1), 1e-300)
        return float(-0.5 * rows * (np.log(2 * np.pi * noise) + 1))

    def merge(self, effect: Effect, parts: Sequence[Effect]) -> None:
        """Make one block of several, which will share a variance."""
        blocks = [self.pop(part) for part in parts]
        scale = float(np.mean([block.scale for block in blocks])) / len(blocks) ** 0.5
        columns = np.hstack([block.columns * (scale / block.scale) for block in blocks])
        average = np.hstack([block.average * (scale / block.scale) for block in blocks])
        self[effect] = Block(columns, average, scale, blocks[0].size)

    def fit(
        self,
        effects: Sequence[Effect],
        start: Start,
        rules: SearchRules,
        *,
        iterations: int | None = None,
    ) -> Selection:
        """Maximise the evidence of these effects from a first guess of variances and noise."""
        blocks = [np.asarray(self[effect].columns, np.float64) for effect in effects]
        every = np.concatenate(blocks, 1) if blocks else np.zeros((len(self.target), 0))
        problem = EvidenceProblem(every, [block.shape[1] for block in blocks], self.target)
        known, noise = start
        spread = [float((block**2).sum()) / max(1, len(block)) for block in blocks]
        even = [0.5 / (len(blocks) * max(one, 1e-12)) for one in spread]
        first = np.array([known.get(e, one) for e, one in zip(effects, even, strict=True)])
        if iterations is None:
            is_wide = rules.settings.hasty and every.shape[1] > BARS.many_columns
            iterations = BARS.iterations // 5 if is_wide else BARS.iterations
        fit = problem.maximise(first, noise, floor=rules.noise_floor, iterations=iterations)
        return Selection(tuple(effects), fit)

    def measure_losses(self, chosen: Selection, rules: SearchRules) -> Array:
        """(effect,) evidence lost if that effect alone were removed, all else held."""
        return measure_losses(chosen.fit)

    def scan(self, chosen: Selection, candidates: Sequence[Effect]) -> tuple[Array, Array]:
        """Gain of each candidate at its best variance, and that variance."""
        gains, variances = np.zeros(len(candidates)), np.zeros(len(candidates))
        widths = self.group_widths([self[effect].columns.shape[1] for effect in candidates])
        for width in np.unique(widths):
            members = np.flatnonzero(widths == width)
            step = max(1, _CHUNK // int(len(self.target) * width))
            for begin in range(0, len(members), step):
                part = members[begin : begin + step]
                blocks = self.stack(chosen, [candidates[k] for k in part], int(width))
                gains[part], variances[part] = measure_gains(chosen.fit, blocks)
        return gains, variances

    def group_widths(self, widths: Sequence[int]) -> IntArray:
        """(effect,) equal numbers for those that are looked at together."""
        return np.array(widths, np.int64)

    def stack(
        self, chosen: Selection, effects: Sequence[Effect], width: int
    ) -> NDArray[np.floating]:
        """(row, effect, column) the columns of some candidates as the fit has its own."""
        return np.stack([self[effect].columns for effect in effects], 1)


def search_forward(
    bank: EffectBank,
    candidates: Sequence[Effect],
    start: Selection,
    rules: SearchRules,
    progress: Callable[[float], None] = lambda share: None,
) -> Selection:
    """Add what gains evidence, refit, drop what carries none; until nothing gains."""
    chosen = start
    dropped: set[Effect] = set()
    for turn in range(BARS.rounds):
        progress(turn / BARS.rounds)
        left = [e for e in candidates if e not in set(chosen.effects) and e not in dropped]
        if not left:
            break
        gains, variances = bank.scan(chosen, left)
        if rules.settings.hasty and len(left) > BARS.many_candidates:
            # What gains little now will hardly gain more once others are in.
            best = np.sort(np.argsort(-gains, kind="stable")[: BARS.many_candidates])
            left, gains, variances = [left[k] for k in best], gains[best], variances[best]
            candidates = [*chosen.effects, *left]
        gains -= rules.price_new(left, chosen)
        order = np.argsort(-gains, kind="stable")[: rules.add_most]
        gained = chosen.fit.evidence - bank.null_evidence
        least = max(rules.settings.add_gain, rules.settings.gain_share * gained)
        order = order[gains[order] > max(least, BARS.add_share * gains[order[0]])]
        if not len(order):
            break
        new = [left[k] for k in order]
        known, noise = chosen.start
        guesses = {**known, **{left[k]: float(variances[k]) for k in order}}
        grown = bank.fit([*chosen.effects, *new], (guesses, noise), rules)
        kept = drop_idle(bank, grown, rules)
        dropped = set(grown.effects) - set(kept.effects)
        if kept.fit.evidence < chosen.fit.evidence + 0.5 * least:
            break
        chosen = kept
    return chosen


def drop_idle(bank: EffectBank, chosen: Selection, rules: SearchRules) -> Selection:
    """Drop effects whose removal costs less than `drop_loss`, the idlest first; refit."""
    while chosen.effects:
        losses = bank.measure_losses(chosen, rules)
        gained = chosen.fit.evidence - bank.null_evidence
        prices = np.array([rules.price(effect) for effect in chosen.effects])
        least = max(rules.settings.drop_loss, 0.5 * rules.settings.gain_share * gained)
        is_free = np.array([effect not in rules.kept for effect in chosen.effects])
        idle = np.flatnonzero((losses < least + prices) & is_free)
        if not len(idle):
            break
        # Effects that stand in for each other look idle one at a time: never all at once.
        gone = set(idle[np.argsort(losses[idle], kind="stable")][: max(1, len(idle) // 2)].tolist())
        kept = [effect for k, effect in enumerate(chosen.effects) if k not in gone]
        chosen = bank.fit(kept, chosen.start, rules)
    return chosen


def measure_inputs(
    bank: EffectBank, chosen: Selection, rules: SearchRules, threshold: float, column: Column
) -> dict[int, tuple[float, Selection]]:
    """For each column, the evidence that is lost when its inputs are removed and the rest is fitted
    again, and that fit.

    A hasty search does not refit where far more than `threshold` would be lost without it.
    """
    losses = {}
    every = sorted({column(i) for i in chosen.inputs})
    is_hasty = _is_hasty(rules, len(every))
    if is_hasty:
        owners = np.repeat(np.arange(len(chosen.effects)), chosen.fit.sizes)
        has = [{column(i) for i in effect} for effect in chosen.effects]
        groups = [
            np.flatnonzero(np.isin(owners, [k for k, own in enumerate(has) if one in own]))
            for one in every
        ]
        found = measure_losses(chosen.fit, groups).tolist()
        losses = {one: (loss, chosen) for one, loss in zip(every, found, strict=True)}
    for removed in every:
        if removed in losses and losses[removed][0] > BARS.far_loss * threshold:
            continue
        rest = _leave_out(bank, chosen, {removed}, column)
        without = bank.fit(rest, chosen.start, rules, iterations=1 if is_hasty else 12)
        losses[removed] = (chosen.fit.evidence - without.fit.evidence, without)
    return losses


def _is_hasty(rules: SearchRules, inputs: int) -> bool:
    return rules.settings.hasty and inputs > BARS.many_inputs


def _leave_out(
    bank: EffectBank, chosen: Selection, gone: Collection[int], column: Column
) -> list[Effect]:
    """The effects without the inputs of some columns."""
    rest: list[Effect] = []
    for effect in chosen.effects:
        left = tuple(i for i in effect if column(i) not in gone)
        if left and left not in rest and left in bank:
            rest.append(left)
    return rest


def search_backward(
    bank: EffectBank, chosen: Selection, rules: SearchRules, threshold: float, column: Column
) -> tuple[Selection, dict[int, float]]:
    """Remove the column that carries least evidence, while that is less than `threshold`.

    A hasty search removes half of such columns at once while there are many.
    """
    while True:
        losses = measure_inputs(bank, chosen, rules, threshold, column)
        kept = {column(i) for effect in rules.kept for i in effect}
        weak = [i for i in losses.keys() - kept if losses[i][0] < threshold]
        weak.sort(key=lambda i: (losses[i][0], i))
        if not weak:
            return chosen, {i: loss for i, (loss, _) in losses.items()}
        rest, start = list(losses[weak[0]][1].effects), losses[weak[0]][1]
        if _is_hasty(rules, len(losses)) and len(weak) > 3:
            rest, start = _leave_out(bank, chosen, weak[: len(weak) // 2], column), chosen
        chosen = drop_idle(bank, bank.fit(rest, start.start, rules), rules)


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
        prior = BARS.prior_input
        return float(np.log(share / (1 - share)) - np.log(prior / (1 - prior)))


def average_models(
    blocks: Mapping[Effect, NDArray[np.floating]],
    target: Array,
    column: Column,
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
    inputs = [{column(i) for i in effect} for effect in effects]
    models = _Models(parts, target, inputs, columns, rng)
    drawn: list[tuple[float, IntArray]] = []
    for sweep in range(sweeps):
        progress(sweep / sweeps)
        drawn.append((models.sweep(), models.state.copy()))
    noises, states = map(np.array, zip(*drawn[sweeps // 4 :], strict=True))
    there, draws = states >= 0, len(states)
    totals = np.where(there, _VARIANCES[states], 0.0).sum(0)
    used = Counter(one for row in there for one in models.find_columns(np.flatnonzero(row)))
    often = np.flatnonzero(there.sum(0) >= BARS.rare * draws)
    return ModelAverage(
        {effects[k]: float(totals[k]) / draws for k in often},
        float(noises.mean()),
        {one: count / draws for one, count in used.items()},
        draws,
    )


def compress(block: Array) -> Array:
    """Few columns U with U U^T near Z Z^T: all that the evidence depends on."""
    left, values, _ = np.linalg.svd(block, full_matrices=False)
    power = np.cumsum(values**2)
    count = int(np.searchsorted(power, BARS.kept_of_block * power[-1])) + 1
    return np.asarray((left * values)[:, : min(count, BARS.most_directions)])


class _Models:
    """Sets of effects with their variances, drawn from their posterior one after another."""

    def __init__(
        self,
        parts: Sequence[Array],
        target: Array,
        inputs: Sequence[set[int]],
        columns: int,
        rng: np.random.Generator,
    ) -> None:
        self.parts, self.target, self.inputs = parts, target, inputs
        self.columns, self.rng = columns, rng
        self.state = np.full(len(parts), -1)
        """(effect,) which variance it has; -1 where it is absent."""
        self.level = len(_LEVELS) // 2
        gap = (np.log2(_VARIANCES) - _LEVELS[:, None]) / BARS.prior_width
        weights = np.exp(-0.5 * gap**2)
        self.levels = np.log(weights / weights.sum(1, keepdims=True))
        """(level, variance) log probability of each variance about each level."""
        self._measure_counts = cache(self._compute_prior)  # asked twice for every draw

    def sweep(self) -> float:
        """Draw the noise, then each effect given all others, then the level of the variances."""
        noise, inverse = self._draw_noise()
        for k in self.rng.permutation(len(self.parts)):
            inverse = self._draw_effect(inverse, k)
        self.level = self._draw(self.levels[:, self.state[self.state >= 0]].sum(1))
        return noise

    def find_columns(self, included: Sequence[int] | IntArray) -> list[int]:
        """Columns of all these effects."""
        return sorted(set().union(*(self.inputs[k] for k in included)))

    def _measure_prior(self, included: Sequence[int]) -> float:
        """The log probability that these effects are there, and no others."""
        inputs = [self.inputs[k] for k in included]
        active, mains = len(set().union(*inputs)), [len(one) for one in inputs].count(1)
        return self._measure_counts(active, mains, len(inputs) - mains)

    def _compute_prior(self, active: int, mains: int, joint: int) -> float:
        share = min(0.5, BARS.prior_pairs / max(active - 1, 1))
        alone = BARS.prior_input
        value = active * np.log(alone) + (self.columns - active) * np.log(1 - alone)
        value += mains * np.log(BARS.prior_main) + (active - mains) * np.log(1 - BARS.prior_main)
        value += joint * np.log(share) + (active * (active - 1) / 2 - joint) * np.log(1 - share)
        return float(value)

    def _draw(self, log_weights: Array) -> int:
        """An index in proportion to exp(log_weights)."""
        weights = np.exp(log_weights - log_weights.max())
        return int(np.searchsorted(np.cumsum(weights), self.rng.random() * weights.sum()))

    def _draw_noise(self) -> tuple[float, Array]:
        """The noise given all effects, and C^-1 with it."""
        covariance = np.zeros((len(self.target), len(self.target)))
        for part, chosen in zip(self.parts, self.state, strict=True):
            if chosen >= 0:
                covariance += _VARIANCES[chosen] * (part @ part.T)
        values, vectors = np.linalg.eigh(covariance)
        values = np.maximum(values, 0)[:, None] + _NOISES
        power = (vectors.T @ self.target)[:, None] ** 2
        drawn = self._draw(-0.5 * (np.log(values) + power / values).sum(0))
        return float(_NOISES[drawn]), np.asarray((vectors / values[:, drawn]) @ vectors.T)

    def _draw_effect(self, inverse: Array, k: int) -> Array:
        """Effect k given all others: its variance, or that it is absent. Returns the new C^-1.

        The gain of variance v is that of `measure_gains`, with C free of the effect.
        """
        part = self.parts[k]
        if self.state[k] >= 0:
            inverse = _shift(inverse, part, -_VARIANCES[self.state[k]])
        seen = inverse @ part
        values, vectors = np.linalg.eigh(part.T @ seen)
        gains = sum_gains(_VARIANCES[:, None], values, (vectors.T @ (seen.T @ self.target)) ** 2)
        others = [other for other in np.flatnonzero(self.state >= 0).tolist() if other != k]
        present = gains + self.levels[self.level] + self._measure_prior([*others, k])
        self.state[k] = self._draw(np.append(self._measure_prior(others), present)) - 1
        return _shift(inverse, part, _VARIANCES[self.state[k]]) if self.state[k] >= 0 else inverse


def _shift(inverse: Array, part: Array, change: float) -> Array:
    """(C + change U U^T)^-1 from C^-1."""
    seen = inverse @ part
    inner = np.eye(part.shape[1]) / change + part.T @ seen
    return np.asarray(inverse - seen @ np.linalg.solve(inner, seen.T))
