"""Sources of the noise of returns, as far as the lengths of episodes show them.

    variance of a return = a sum_t w_t^2  +  b (sum_t w_t)^2  +  c        (w_t = discount^t)

a is the variance of noise that is drawn anew at every step, b that of noise which all steps of an
episode share (a day with bad weather), and c that of noise of the return itself (its measurement).
With all episodes of one length these cannot be told apart, and all noise counts as noise of steps.
Else b or c joins a where it makes the errors of the returns clearly more likely.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_GRID = np.geomspace(1e-2, 1e3, 61)
_GAIN = 4.0
"""Log likelihood that a second kind of noise has to gain."""
_FEWEST = 50
_LENGTHS = 1.3
"""Ratio of a long episode to a short one from which on lengths can tell."""


@dataclass(frozen=True)
class NoiseKind:
    """The second kind of noise, in units of the noise of a single step."""

    shared: float = 0.0
    """The ratio b / a."""
    whole: float = 0.0
    """The ratio c / a."""

    def weigh(self, constant: Array, scale: Array) -> Array:
        """(row,) by how much each return counts less than with noise of steps alone.

        `constant` and `scale` are those of the equations: sum of weights and 1, both divided by the
        root of the sum of squared weights.
        """
        return np.asarray(1 / (1 + self.shared * constant**2 + self.whole * scale**2))


def find_noise(errors: Array, constant: Array, scale: Array) -> NoiseKind:
    """The kind of noise that makes these errors likely, each divided by its root of a weight."""
    short, long = np.quantile(constant**2, [0.1, 0.9])
    if len(errors) < _FEWEST or long < _LENGTHS * short or not (errors**2).sum() > 0:
        return NoiseKind()
    kinds = [NoiseKind()]
    kinds += [NoiseKind(shared=float(ratio / (constant**2).mean())) for ratio in _GRID]
    kinds += [NoiseKind(whole=float(ratio / (scale**2).mean())) for ratio in _GRID]
    likely = [_measure(errors, kind.weigh(constant, scale)) for kind in kinds]
    best = int(np.argmax(likely))
    return kinds[best] if likely[best] > likely[0] + _GAIN else kinds[0]


def _measure(errors: Array, weights: Array) -> float:
    """Log likelihood at the best level of the noise."""
    return float(0.5 * np.log(weights).sum() - 0.5 * len(errors) * np.log(weights @ errors**2))
