"""Errors of the reward that last over several steps, told apart from the noise of single steps.

What effects do not explain of a return is called noise, and shared out evenly over its steps. Noise
that is drawn anew at every step adds up slowly, as a random walk does. But where effects are too
few or their bases too small, the reward itself is in error. Such an error is nearly the same in
neighbouring steps, adds up quickly, and so is smaller per step than the returns seem to say.

It is a function of the inputs of the model, and returns show which part of the noise is one: a
Gaussian process over triples of these inputs joins the fit, and the evidence shares the noise out
between the two. The process stands there as random cosines of three inputs each, with lengths
from half a standard deviation to two.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from grd_offline.methods.closed_form.columns import ColumnSource
from grd_offline.methods.closed_form.evidence import EvidenceProblem
from grd_offline.methods.closed_form.hidden import compute_features, measure_growth
from grd_offline.methods.closed_form.search import EffectBank, Selection

Array = NDArray[np.float64]

_COSINES = 512
_INPUTS = 3
_LENGTHS = (0.5, 1.0, 2.0)
_SUMMED = 200_000
"""Steps that are summed at most; of more, every second, every third, and so on."""
_CLIMB = 60
_SEED = 20231


def measure_interactions(
    data: ColumnSource, last: Selection, bank: EffectBank
) -> tuple[Array, float]:
    """(step,) variance of the reward's error at sampled steps, and its share of the noise."""
    nothing = np.zeros(len(data.transitions)), 0.0
    if not last.effects:
        return nothing
    cosines = _Cosines(data, sorted({data.column(i) for i in last.inputs}))
    every = -(-data.episodes.total_steps // _SUMMED)
    sums = np.stack(
        [
            every * one.weights[::every] @ cosines.evaluate(one.inputs[::every])
            for one in data.segments()
        ]
    )
    columns, average = data.equations.remove_constant(sums * data.equations.scale[:, None])
    fit = last.fit
    problem = EvidenceProblem(
        np.concatenate([fit.columns, columns], 1), [*fit.sizes, _COSINES], fit.target
    )
    start = np.concatenate([fit.variances, [fit.noise]])
    grown = problem.maximise(start, fit.noise, floor=1e-3 * fit.noise, iterations=_CLIMB)
    if grown.noise >= fit.noise:
        return nothing
    steps = data.take(data.transitions, data.state_at)
    known = compute_features(data, bank, last.effects, steps)
    extra = cosines.evaluate(steps) - average
    return measure_growth(fit, grown, known, extra), 1 - grown.noise / fit.noise


class _Cosines:
    """Random cosines of three of some columns each; the sum of their squares is 1 on average."""

    def __init__(self, data: ColumnSource, columns: Sequence[int]) -> None:
        self.columns = list(columns)
        values = data.probe[:, self.columns]
        middle, spread = values.mean(0), values.std(0)
        rng = np.random.default_rng(_SEED)
        count = min(_INPUTS, len(self.columns))
        slopes = np.zeros((len(self.columns), _COSINES))
        for cosine in range(_COSINES):
            chosen = rng.permutation(len(self.columns))[:count]
            length = rng.choice(_LENGTHS) * np.sqrt(count)
            slopes[chosen, cosine] = rng.standard_normal(count) / length
        slopes /= np.where(spread > 0, spread, 1.0)[:, None]
        self.slopes = slopes.astype(np.float32)
        self.shifts = (rng.uniform(0, 2 * np.pi, _COSINES) - middle @ slopes).astype(np.float32)

    def evaluate(self, inputs: Array) -> NDArray[np.float32]:
        """Evaluate the cosines: (step, cosine)."""
        angles = inputs[:, self.columns].astype(np.float32) @ self.slopes + self.shifts
        return np.asarray(np.cos(angles) * np.float32(np.sqrt(2 / _COSINES)))
