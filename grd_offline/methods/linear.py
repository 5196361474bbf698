"""`--fit linear`: a reward that is linear in every input, solved for exactly.

Ridge regression of returns on the sums of the inputs over each episode. The one variance that all
inputs share is found by its evidence. It is the plainest explanation of returns, and a fit that
cannot beat it on returns that were held out has learned little.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from grd_offline.additive.equations import ColumnSource, find_motion
from grd_offline.additive.moments import AUTO, CHOICES, MIDPOINT, START
from grd_offline.additive.search import EvidenceProblem
from grd_offline.core.episodes import EpisodeSet
from grd_offline.core.observer import Progress
from grd_offline.core.settings import RATE, Settings, setting
from grd_offline.methods.closed_form.fit import list_model_columns
from grd_offline.methods.contract import Decomposer
from grd_offline.rewards.effects import EffectModel

_SAMPLE = 20_000  # steps that give mean and spread of the inputs
_FLOOR = 1e-6  # least variance of the noise
_ITERATIONS = 100  # steps of the fixed point, at most


@dataclass(frozen=True)
class LinearSettings(Settings):
    """Settings of the linear fit."""

    discount: float = setting(1.0, **RATE)
    """Weight of step t within a delivered amount: discount^t, t from the episode's start."""
    state_at: str = setting(AUTO, names=CHOICES)
    """The moment of a transition at which states are taken; auto is the midpoint, or the start if
    rows are independent of each other."""


class Linear(Decomposer, settings=LinearSettings):
    """The reward as a weighted sum of states, actions and whether the episode terminated."""

    state_at: str

    def _fit(self, episodes: EpisodeSet, rng: np.random.Generator, progress: Progress) -> None:
        progress("linear", 0.0)
        usual = START if find_motion(episodes).jumps else MIDPOINT
        data = ColumnSource(
            episodes,
            state_at=usual if self.state_at == AUTO else self.state_at,
            discount=self.discount,
            sample=_SAMPLE,
            sizes=(1, 1),
            rng=rng,
        )
        count = data.inputs if data.varies and len(data.target) > 1 else 0
        columns = data.basis.columns[:count]
        values = data.probe[:, columns]
        spread = values.std(0)
        # What differs in a few steps only may be the same in all of those looked at here.
        spread = np.where(spread > 0, spread, data.basis.high[:count] - data.basis.low[:count])
        free, average = data.equations.remove_constant(data.sums[:, :count] / spread)
        sums, averages = np.asarray(free, np.float64), np.asarray(average, np.float64)
        problem = EvidenceProblem(sums, [count] if count else [], data.target)
        first = np.full(1 if count else 0, 1 / max(count, 1))
        fit = problem.maximise(first, 0.5, floor=_FLOOR, iterations=_ITERATIONS)
        # The smallest and the largest value in all episodes: a line fits far values too.
        low, high = data.basis.low[:count].copy(), data.basis.high[:count].copy()
        for segment in data.segments():
            found = segment.inputs[:, columns]
            low, high = np.minimum(low, found.min(0)), np.maximum(high, found.max(0))
        covariance = fit.apply_covariance(np.eye(count))
        sizes, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
        factor = vectors * np.sqrt(np.maximum(sizes, 0.0))
        variances = (values / spread * fit.weights).var(0)
        length = float(data.equations.constant @ data.equations.constant)
        # Lines over the whole range of each input, as a sum of effects.
        self.function_ = EffectModel(
            observation_names=data.episodes.observation_names,
            action_names=data.episodes.action_names,
            columns=list_model_columns(data)[:count],
            low=low,
            high=high,
            tables=np.stack([low / spread, high / spread], 1)[:, :, None],
            effects=tuple((i,) for i in range(count)),
            sizes=(1,) * count,
            constant=data.mean * data.unit,
            weights=fit.weights * data.unit,
            centres=averages,
            factor=factor * data.unit,
            residual_variance=0.0,
            constant_variance=fit.noise * data.unit**2 / length,
            noise_variance=fit.noise * data.unit**2,
            inflation=1.0,
            shares=variances / (variances.sum() or 1.0),
        )
