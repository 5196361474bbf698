"""Evidence of a sum of Gaussian effects, and the variances that maximise it.

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
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dpotri

from grd_offline.additive.bars import BARS
from grd_offline.core.typing import Array, IntArray

SMALLEST_VARIANCE = 1e-10
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

    def apply_inverse(self, columns: NDArray[np.floating]) -> NDArray[np.floating]:
        """C^-1 times some columns, in their precision."""
        kind = columns.dtype
        if not self.primal:
            return np.asarray(self.inner.astype(kind, copy=False) @ columns, kind)
        scaled = self.columns * np.sqrt(np.repeat(self.variances, self.sizes))
        left = (scaled @ self.inner / self.noise).astype(kind, copy=False)
        explained = left @ (scaled.astype(kind, copy=False).T @ columns)
        return np.asarray((columns - explained) / kind.type(self.noise))

    def inverse_diagonal(self) -> Array:
        """(row,) the diagonal of C^-1."""
        if not self.primal:
            return np.diag(self.inner).copy()
        scaled = self.columns * np.sqrt(np.repeat(self.variances, self.sizes))
        explained = ((scaled @ self.inner) * scaled).sum(1)
        return np.asarray((1 - explained / self.noise) / self.noise)

    def apply_covariance(self, vectors: Array) -> Array:
        """The posterior covariance of the weights, D - D Z^T C^-1 Z D, times some vectors."""
        spread = np.repeat(self.variances, self.sizes)[:, None]
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
        return _sum_blocks(self.column_traces(), self.sizes)

    def column_traces(self) -> Array:
        """(column,) the diagonal of Z^T C^-1 Z."""
        if not self.primal:
            return np.asarray((self.columns * self.apply_inverse(self.columns)).sum(0))
        spread = np.repeat(self.variances, self.sizes)
        return np.asarray(np.maximum((1 - np.diag(self.inner)) / spread, 0))

    def weight_variances(self) -> Array:
        """(column,) the posterior variance of each weight."""
        spread = np.repeat(self.variances, self.sizes)
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


def _sum_blocks(values: Array, sizes: Sequence[int]) -> Array:
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
        self,
        variances: Array,
        noise: float,
        *,
        floor: float,
        iterations: int,
        tolerance: float = 1e-3,
        free: bool = True,
    ) -> Posterior:
        """Climb the evidence by MacKay's fixed point from a first guess.

        `floor` bounds the noise from below; with `free` False the noise alone moves.
        """
        variances, noise = np.maximum(variances, SMALLEST_VARIANCE), max(noise, floor)
        best, ratios, noise_ratio = self._step(variances, noise)
        for _ in range(iterations):
            if free:
                variances = np.clip(variances * ratios, SMALLEST_VARIANCE, 1e6)
            noise = max(noise * noise_ratio, floor)
            fit, ratios, noise_ratio = self._step(variances, noise)
            rise = fit.evidence - best.evidence
            if rise > 0:
                best = fit
            if abs(rise) < tolerance:
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
        strength = _sum_blocks((weights / spread) ** 2, self.sizes)
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
        ratios = _sum_blocks(pull**2, self.sizes) / np.maximum(traces, 1e-300)
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
    root = np.sqrt(np.repeat(fit.variances, fit.sizes))
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
        spread = np.repeat(part.variances, part.sizes)
        reach = fit.columns[out] * spread
        seen = reach @ part.columns.T
        variance = (reach * fit.columns[out]).sum(1) + part.noise
        variance -= (seen * part.apply_inverse(seen.T).T).sum(1)
        gap = fit.target[out] - fit.columns[out] @ part.weights
        errors[out] = gap / np.sqrt(np.maximum(variance, part.noise))
    return float(np.clip(np.sqrt((errors**2).mean()), 1.0, 10.0))


_TO_SD = 1.4826


def measure_weights(errors: Array, near: float = 0.0) -> Array | None:
    """(row,) how much each row counts; None where all errors are of a size.

    Errors of up to `near` are not far, however small the usual one is: where most episodes have
    the same return, the usual error is next to nothing.
    """
    if len(errors) < BARS.fewest_for_tails:
        return None
    spread = float(np.sqrt((errors**2).mean()))
    usual = _TO_SD * float(np.median(np.abs(errors)))
    if (
        usual <= BARS.least_usual * spread
        or not (np.abs(errors) > max(BARS.far_errors * usual, near)).any()
    ):
        return None
    usual = max(usual, near / BARS.far_errors)
    return np.asarray((BARS.freedom + 1) / (BARS.freedom + (errors / usual) ** 2))


def is_better(errors: Array, before: Array, factor: float) -> bool:
    """Whether most returns are explained clearly better now that others count less."""
    return bool(np.median(np.abs(errors)) < factor * np.median(np.abs(before)))
