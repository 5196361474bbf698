"""The closed form as a method: rewards and reward masks from `fit_closed_form`."""

from __future__ import annotations

from typing import Self, cast

import numpy as np

from grd_offline.episodes import Episode, EpisodeSet
from grd_offline.methods.closed_form.fit import ClosedFormFit, ClosedFormSettings, fit_closed_form
from grd_offline.methods.contract import Decomposer, Progress
from grd_offline.methods.equations import next_observations_of
from grd_offline.rewards.contract import Array, RewardFunction
from grd_offline.rewards.effects import EffectModel


class ClosedForm(Decomposer):
    """The reward as a sum of effects, each kept by its evidence; see `closed_form`.

    After `fit`, `fit_` says how well the data pin the reward down.
    """

    fit_: ClosedFormFit

    def __init__(self, settings: ClosedFormSettings | None = None) -> None:
        self.settings = settings if settings is not None else ClosedFormSettings()

    def fit(
        self,
        episodes: EpisodeSet,
        *,
        rng: np.random.Generator,
        progress: Progress | None = None,
    ) -> Self:
        """Find effects, variances and weights."""
        self.fit_ = fit_closed_form(
            episodes, self.settings, rng, progress or (lambda stage, share: None)
        )
        self.function_ = cast(RewardFunction, self.fit_.model)
        self.masks_ = {
            "state_to_reward": self.fit_.state_to_reward,
            "action_to_reward": self.fit_.action_to_reward,
        }
        self.scores_ = {
            "state_to_reward": self.fit_.state_score,
            "action_to_reward": self.fit_.action_score,
        }
        return self


def predict_amounts(model: EffectModel, episode: Episode, discount: float) -> tuple[Array, Array]:
    """Mean and standard deviation of each amount that the episode delivers.

    Weights are uncertain together over the steps, noise is independent from step to step.
    """
    following = next_observations_of(episode) if model.needs_next else None
    inputs = model.select_inputs(episode.observations[: len(episode)], episode.actions, following)
    features = model.expand(inputs) - model.centres
    weights = discount ** np.arange(len(episode))
    starts, stops, _ = episode.segments()
    means, variances = np.empty(len(stops)), np.empty(len(stops))
    for row, (start, stop) in enumerate(zip(starts, stops, strict=True)):
        part, weight = features[start:stop], weights[start:stop]
        total = weight @ part
        means[row] = total @ model.weights + model.constant * weight.sum()
        spread = total @ model.factor
        noise = (model.noise_variance + model.residual_variance) * (weight @ weight)
        variances[row] = spread @ spread + model.constant_variance * weight.sum() ** 2 + noise
    return means, model.inflation * np.sqrt(variances)
