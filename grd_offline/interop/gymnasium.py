"""Gymnasium environments that pay the learned reward, or show the compact state only."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from grd_offline.rewards.model import RewardModel
from grd_offline.worlds.spaces import flat_bounds, flatten_batch

ModelOrPath: TypeAlias = "RewardModel | str | os.PathLike[str]"


def load_model(model: ModelOrPath) -> RewardModel:
    """Return the model itself, or load it from a folder."""
    return model if isinstance(model, RewardModel) else RewardModel.load(model)


class EnvironmentReward:
    """A reward model for the observations and actions of an environment's spaces."""

    def __init__(
        self, model: ModelOrPath, observation_space: gym.Space[Any], action_space: gym.Space[Any]
    ) -> None:
        self.model = load_model(model)
        self._observation_space, self._action_space = observation_space, action_space
        actions = self.model.action_names
        names = len(self.model.observation_names), len(actions)
        sizes = spaces.flatdim(observation_space), spaces.flatdim(action_space)
        if sizes == names:
            return
        reason = (
            f"the reward model expects {names[0]} state and {names[1]} action dimensions, the "
            f"environment has {sizes[0]} and {sizes[1]}"
        )
        # Choices may be one number in the data, because no text marks them as such.
        if isinstance(action_space, spaces.Discrete) and len(actions) == 1:
            reason += (
                f": choices of a Discrete space have one dimension each. Read {actions[0]} as "
                f'categories (categories="{actions[0]}" in from_dataframe, or --columns '
                f"categories={actions[0]}), and decompose again"
            )
        raise ValueError(reason)

    def flatten_observations(self, observations: Any, count: int = 1) -> NDArray[np.float32]:
        """(count, state), a copy: environments may use their arrays again."""
        return flatten_batch(self._observation_space, observations, count)

    def flatten_actions(self, actions: Any, count: int = 1) -> NDArray[np.float32]:
        """(count, action); choices become one-hot."""
        return flatten_batch(self._action_space, actions, count)


class PaysLearnedReward:
    """A wrapper that pays the reward of a model."""

    _reward: EnvironmentReward
    _observations: NDArray[np.float32] | None = None
    """(count, state) where the next step begins. None before `reset`."""

    @property
    def model(self) -> RewardModel:
        """The reward model that the wrapper uses."""
        return self._reward.model


if TYPE_CHECKING:
    _VectorWrapper = gym.vector.VectorWrapper[Any, Any, Any, Any, Any]
else:  # not generic in every version
    _VectorWrapper = gym.vector.VectorWrapper


class LearnedReward(PaysLearnedReward, gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """A wrapper that pays the reward of a model. The reward of the environment is in
    `info["true_reward"]`.

    The model has to see observations and actions as its data had them: put wrappers that change
    them, `CompactObservation` among them, outside of this one.

    Parameters
    ----------
    env
        The environment.
    model
        A `RewardModel` or the folder of one. With a folder, `env.spec` can be turned into JSON and
        made again.

    Examples
    --------
    >>> env = LearnedReward(gymnasium.make("HalfCheetah-v5"), "hc-grd")  # doctest: +SKIP
    """

    def __init__(self, env: gym.Env[Any, Any], model: ModelOrPath) -> None:
        plain = model if isinstance(model, RewardModel) else os.fspath(model)
        RecordConstructorArgs.__init__(self, model=plain)
        gym.Wrapper.__init__(self, env)
        self._reward = EnvironmentReward(model, env.observation_space, env.action_space)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin a new episode."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._observations = self._reward.flatten_observations(observation)
        return observation, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take a step. The reward is that of the model."""
        if self._observations is None:
            raise gym.error.ResetNeeded("call reset before step")
        flat = self._reward.flatten_actions(action)  # before the environment may write into it
        observation, true, terminated, truncated, info = self.env.step(action)
        next_observations = self._reward.flatten_observations(observation)
        steps = (self._observations, flat, next_observations, [terminated])
        (reward,) = self.model.predict(*steps).tolist()
        self._observations = next_observations
        return observation, reward, terminated, truncated, {**info, "true_reward": float(true)}


class VectorLearnedReward(PaysLearnedReward, _VectorWrapper):
    """A wrapper that pays the reward of a model in a vector of environments. Their own rewards are
    in `infos["true_reward"]`.

    Where an episode ended and its environment is reset in the next step, that step leads from one
    episode into another: it is no step of the model's, and pays 0 as the environment does. Where
    the reset comes in the same step, the step leads to the final observation, not to the new one.

    Parameters
    ----------
    env
        The environments.
    model
        A `RewardModel` or the folder of one.

    Examples
    --------
    >>> envs = gymnasium.make_vec("HalfCheetah-v5", num_envs=8)  # doctest: +SKIP
    >>> envs = VectorLearnedReward(envs, "hc-grd")  # doctest: +SKIP
    """

    def __init__(self, env: gym.vector.VectorEnv[Any, Any, Any], model: ModelOrPath) -> None:
        super().__init__(env)
        self._reward = EnvironmentReward(
            model, env.single_observation_space, env.single_action_space
        )
        self._mode = AutoresetMode(env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP))
        self._is_reset_due = np.zeros(self.num_envs, np.bool_)

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin episodes, in all environments or in those of `options["reset_mask"]`."""
        observations, infos = self.env.reset(seed=seed, options=options)
        self._observations = self._reward.flatten_observations(observations, self.num_envs)
        mask = (options or {}).get("reset_mask")
        self._is_reset_due[slice(None) if mask is None else np.asarray(mask)] = False
        return observations, infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Take a step in each environment. The rewards are those of the model."""
        if self._observations is None:
            raise gym.error.ResetNeeded("call reset before step")
        flat = self._reward.flatten_actions(actions, self.num_envs)
        observations, true, terminations, truncations, infos = self.env.step(actions)
        next_observations = self._reward.flatten_observations(observations, self.num_envs)
        ended = np.logical_or(terminations, truncations)
        reached = next_observations
        if self._mode is AutoresetMode.SAME_STEP and ended.any():
            reached = next_observations.copy()
            if "final_obs" not in infos:
                raise KeyError("final_obs: not in infos, where an episode ended in the same step")
            for index in np.flatnonzero(ended):
                final = self._reward.flatten_observations(infos["final_obs"][index])
                reached[index] = final[0]
        real = ~self._is_reset_due
        rewards = np.zeros(self.num_envs, np.float64)
        if real.any():
            steps = (self._observations, flat, reached, np.asarray(terminations))
            rewards[real] = self.model.predict(*(part[real] for part in steps))
        self._observations = next_observations
        self._is_reset_due = ended & (self._mode is AutoresetMode.NEXT_STEP)
        infos = {**infos, "true_reward": np.array(true), "_true_reward": real}
        return observations, rewards, terminations, truncations, infos


class CompactObservation(gym.ObservationWrapper[Any, Any, Any], RecordConstructorArgs):
    """A wrapper that shows only the compact state: the dimensions from which a path leads to the
    reward.

    Parameters
    ----------
    env
        The environment.
    masks
        A `RewardModel`, the folder of one, or an array of 0 and 1 per dimension.

    Examples
    --------
    >>> env = CompactObservation(LearnedReward(env, "hc-grd"), "hc-grd")  # doctest: +SKIP
    """

    def __init__(
        self, env: gym.Env[Any, Any], masks: ModelOrPath | Sequence[int] | NDArray[Any]
    ) -> None:
        named = isinstance(masks, str | os.PathLike)
        mask = _find_mask(masks)
        plain: Any = os.fspath(masks) if named else mask.astype(int).tolist()  # type: ignore[arg-type]
        RecordConstructorArgs.__init__(self, masks=plain)
        gym.ObservationWrapper.__init__(self, env)
        space = env.observation_space
        if not space.is_np_flattenable or spaces.flatdim(space) != len(mask):
            raise ValueError(
                f"masks: {len(mask)} dimensions, expected an environment whose observations have "
                f"as many, got {space}"
            )
        self._chosen = np.flatnonzero(mask)
        self._nested: spaces.Space[Any] | None = None
        if isinstance(space, spaces.Box) and space.shape == mask.shape:
            low, high = space.low[self._chosen], space.high[self._chosen]
        else:
            self._nested = space
            low, high = flat_bounds(space)[:, self._chosen]
        self.observation_space = spaces.Box(low, high, dtype=low.dtype.type)

    def observation(self, observation: Any) -> Any:
        """Return the chosen dimensions. Nested observations become float32, as in datasets."""
        if self._nested is not None:
            observation = flatten_batch(self._nested, observation, 1)[0]
        return observation[self._chosen]


def _find_mask(masks: ModelOrPath | Sequence[int] | NDArray[Any]) -> NDArray[np.bool_]:
    if isinstance(masks, str | os.PathLike):
        masks = RewardModel.load(masks)
    mask = masks.compact_mask if isinstance(masks, RewardModel) else np.asarray(masks)
    if mask.ndim != 1 or not np.isin(mask, (0, 1)).all():
        raise ValueError(f"masks: expected a 0 or 1 per dimension, got {mask!r:.80}")
    if not mask.any():
        raise ValueError(
            "masks: no dimension is left: the reward does not depend on the state, as far as the "
            "data tell"
        )
    return mask.astype(np.bool_)
