"""Returns that no reward explains count less: a Student-t likelihood in place of the normal one.

A Student-t variable is a normal one whose variance is itself random, so each return has a weight,
(nu + 1) / (nu + z^2), that follows from its error z in units of the usual error. Errors are those
of returns that are left out in turn: a fit that bends to one of them does not hide it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from grd_offline.methods.closed_form.evidence import Posterior
from grd_offline.methods.closed_form.inputs import Equations

Array = NDArray[np.float64]

FREEDOM = 4.0
FEWEST = 30
"""With fewer returns nothing can be said about the tails of their errors."""
FEWEST_EVENTS = 3
"""With fewer outliers than this, nothing can be predicted about them."""
FAR_WEIGHT = 0.1
"""The weight of a return that is about six usual errors away from any reward."""
_FAR = 6.0
_TO_SD = 1.4826
_LEAST = 1e-3
_BETTER = 0.8
_HOPEFUL = 0.9


def find_errors(fit: Posterior, equations: Equations) -> Array:
    """(row,) the error of each row, left out in turn with the variances as they are."""
    mirror = equations.find_mirror()[1:, None]
    along = np.asarray(fit.apply_inverse(mirror)[:, 0], np.float64)
    residual, diagonal = equations.restore_rows(fit.residual, fit.inverse_diagonal(), along)
    return residual / np.maximum(diagonal, 1e-300)


def measure_weights(errors: Array, near: float = 0.0) -> Array | None:
    """(row,) how much each row counts; None where all errors are of a size.

    Errors of up to `near` are not far, however small the usual one is: where most episodes have
    the same return, the usual error is next to nothing.
    """
    if len(errors) < FEWEST:
        return None
    spread = float(np.sqrt((errors**2).mean()))
    usual = _TO_SD * float(np.median(np.abs(errors)))
    if usual <= _LEAST * spread or not (np.abs(errors) > max(_FAR * usual, near)).any():
        return None
    usual = max(usual, near / _FAR)
    return np.asarray((FREEDOM + 1) / (FREEDOM + (errors / usual) ** 2))


def is_hopeful(errors: Array, before: Array) -> bool:
    """Whether a further round may pay: most returns are explained better than before."""
    return bool(np.median(np.abs(errors)) < _HOPEFUL * np.median(np.abs(before)))


def is_better(errors: Array, before: Array) -> bool:
    """Whether most returns are explained clearly better now that others count less."""
    return bool(np.median(np.abs(errors)) < _BETTER * np.median(np.abs(before)))
