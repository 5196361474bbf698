"""Uncertainty of a fit: its spread, how far the data decide it, and how far it holds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from grd_offline.methods.closed_form.evidence import EvidenceProblem, Posterior

Array = NDArray[np.float64]

_STEPS = 1024
_FOLDS = 5
_FEW_ROWS = 2.0  # where there are too few rows to measure it


def measure_pinned(fit: Posterior, blocks: Sequence[int], steps: Sequence[Array]) -> Array:
    """For some blocks, compute 1 - posterior / prior variance of the effect, averaged over `steps`.

    Prior v |phi|^2, posterior phi^T S phi with the posterior covariance S, of centred features phi.
    """
    ends = np.cumsum(fit.sizes)
    pinned = np.zeros(len(blocks))
    for place, (k, features) in enumerate(zip(blocks, steps, strict=True)):
        part = slice(ends[k] - fit.sizes[k], ends[k])
        centred = features - features.mean(0)
        vectors = np.zeros((len(fit.weights), fit.sizes[k]))
        vectors[part] = np.eye(fit.sizes[k])
        covariance = fit.apply_covariance(vectors)[part]
        prior = fit.variances[k] * (centred**2).sum()
        if prior > 0:
            pinned[place] = 1 - ((centred @ covariance) * centred).sum() / prior
    return np.clip(pinned, 0.0, 1.0)


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
    if rows < 2 * _FOLDS:
        return _FEW_ROWS
    fold = rng.permutation(rows) % _FOLDS
    errors = np.zeros(rows)
    for k in range(_FOLDS):
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
