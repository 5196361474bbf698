"""Stable-Baselines3: a vector of environments that pays the learned reward."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper

from grd_offline.interop.gymnasium import EnvironmentReward, ModelOrPath, PaysLearnedReward


class LearnedRewardVecEnv(PaysLearnedReward, VecEnvWrapper):
    """A wrapper that pays the reward of a model. The reward of an environment is in its
    `info["true_reward"]`.

        venv = LearnedRewardVecEnv(make_vec_env("HalfCheetah-v5", n_envs=4), "hc-grd")

    These environments reset in the step in which an episode ends and show the new episode's first
    observation; the step's own next observation is its `info["terminal_observation"]`. A step that
    is done has terminated unless its `info["TimeLimit.truncated"]` is set. Episode returns that a
    Monitor inside reports are the true ones.
    """

    def __init__(self, venv: VecEnv, model: ModelOrPath) -> None:
        super().__init__(venv)
        self._reward = EnvironmentReward(model, venv.observation_space, venv.action_space)
        self._actions: NDArray[np.float32] | None = None

    def reset(self) -> Any:
        """Begin an episode in each environment."""
        observations = self.venv.reset()
        self._observations = self._reward.flatten_observations(observations, self.num_envs)
        return observations

    def step_async(self, actions: NDArray[Any]) -> None:
        """Send the actions to the environments."""
        self._actions = self._reward.flatten_actions(actions, self.num_envs)
        self.venv.step_async(actions)

    def step_wait(self) -> Any:
        """Return the results of the steps, with the rewards of the model."""
        if self._observations is None or self._actions is None:
            raise RuntimeError("call reset and step_async before step_wait")
        observations, true, dones, infos = self.venv.step_wait()
        next_observations = self._reward.flatten_observations(observations, self.num_envs)
        reached = next_observations.copy()
        for index in np.flatnonzero(dones):
            final = self._reward.flatten_observations(infos[index]["terminal_observation"])
            reached[index] = final[0]
        terminations = [
            bool(done) and not info.get("TimeLimit.truncated", False)
            for done, info in zip(dones, infos, strict=True)
        ]
        steps = (self._observations, self._actions, reached, terminations)
        rewards = self.model.predict(*steps)
        for info, reward in zip(infos, true, strict=True):
            info["true_reward"] = float(reward)
        self._observations = next_observations
        return observations, rewards.astype(np.float32), dones, infos
