"""Rewards of steps as environments have them: nested, discrete or flat, one or a batch."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from grd_offline.interop.loading import ModelOrPath, load_model


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
                f"environment has {sizes[0]} and {sizes[1]}"
            )

    def flatten_observations(self, observations: Any, count: int = 1) -> NDArray[np.float32]:
        """(count, state), a copy: environments may use their arrays again."""
        return flatten_batch(self._observation_space, observations, count)

    def flatten_actions(self, actions: Any, count: int = 1) -> NDArray[np.float32]:
        """(count, action); choices become one-hot."""
        return flatten_batch(self._action_space, actions, count)


def flatten_batch(space: spaces.Space[Any], values: Any, count: int) -> NDArray[np.float32]:
    """(count, column) a batch of a space's samples, in the order in which datasets have them.

    Datasets have keys sorted; spaces may have them in any order. One sample is a batch of 1.
    """
    if isinstance(space, spaces.Dict | spaces.Tuple):
        inner = _list_parts(space)
        return np.concatenate([flatten_batch(part, values[key], count) for key, part in inner], 1)
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        counts = np.ravel(space.nvec if isinstance(space, spaces.MultiDiscrete) else space.n)
        chosen = np.asarray(values, np.int64).reshape(count, len(counts)) - np.ravel(space.start)
        codes = [np.eye(size, dtype=np.float32)[chosen[:, i]] for i, size in enumerate(counts)]
        return np.concatenate(codes, 1)
    return np.array(values, np.float32).reshape(count, -1)


def flat_bounds(space: spaces.Space[Any]) -> NDArray[np.float32]:
    """(2, column) the lowest and highest of each column of `flatten_batch`."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        return np.concatenate([flat_bounds(part) for _, part in _list_parts(space)], 1)
    if isinstance(space, spaces.Box):
        return np.stack([space.low.ravel(), space.high.ravel()]).astype(np.float32)
    return np.repeat(np.array([[0.0], [1.0]], np.float32), spaces.flatdim(space), 1)


def _list_parts(space: spaces.Dict | spaces.Tuple[Any]) -> list[tuple[Any, spaces.Space[Any]]]:
    """The spaces inside, each with its key or place."""
    if isinstance(space, spaces.Dict):
        return sorted(space.spaces.items())
    return list(enumerate(space))
