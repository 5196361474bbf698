"""A reward model for the steps of environments: nested, discrete or flat, one or a batch."""

from __future__ import annotations

import os
from typing import Any, TypeAlias

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from grd_offline.rewards.model import RewardModel
from grd_offline.worlds.spaces import flatten_batch

ModelOrPath: TypeAlias = "RewardModel | str | os.PathLike[str]"


def load_model(model: ModelOrPath) -> RewardModel:
    """Return the model itself, or load it from a folder."""
    return model if isinstance(model, RewardModel) else RewardModel.load(model)


class EnvironmentReward:
    """A reward model for the observations and actions of an environment's spaces."""

    def __init__(
        self,
        model: ModelOrPath,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
    ) -> None:
        self.model = load_model(model)
        self._observation_space, self._action_space = observation_space, action_space
        names = len(self.model.observation_names), len(self.model.action_names)
        sizes = spaces.flatdim(observation_space), spaces.flatdim(action_space)
        if sizes != names:
            raise ValueError(
                f"the reward model expects {names[0]} state and {names[1]} action dimensions, the "
                f"environment has {sizes[0]} and {sizes[1]}{self._advise_on_choices()}"
            )

    def _advise_on_choices(self) -> str:
        """What to do if choices are one number in the data, because no text marks them as such."""
        names = self.model.action_names
        if not isinstance(self._action_space, spaces.Discrete) or len(names) != 1:
            return ""
        return (
            f": choices of a Discrete space have one dimension each. Read {names[0]} as categories "
            f'(categories="{names[0]}" in from_dataframe, or --columns categories={names[0]}), and '
            "decompose again"
        )

    def flatten_observations(self, observations: Any, count: int = 1) -> NDArray[np.float32]:
        """(count, state), a copy: environments may use their arrays again."""
        return flatten_batch(self._observation_space, observations, count)

    def flatten_actions(self, actions: Any, count: int = 1) -> NDArray[np.float32]:
        """(count, action); choices become one-hot."""
        return flatten_batch(self._action_space, actions, count)
