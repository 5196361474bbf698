"""TorchRL: relabelled data as a TensorDict, and a transform that sets the learned reward."""

from __future__ import annotations

import os
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase
from torchrl.data import Composite, TensorSpec, Unbounded
from torchrl.envs.transforms import Transform

from grd_offline.interop.d4rl import read_steps
from grd_offline.interop.gymnasium import ModelOrPath, load_model


def to_tensordict(path: str | os.PathLike[str], *, rewards: str = "rewards") -> TensorDict:
    """Return a dataset, or the relabelled data of a decomposition, in the form of TorchRL: one row
    per step.

        data = to_tensordict("hc-grd")
        buffer = ReplayBuffer(storage=LazyTensorStorage(len(data)), batch_size=256)
        buffer.extend(data)

    `observation` and `action` are those of the step; under `next` stand the observation after it,
    its `reward`, `terminated`, `truncated` and `done`, each (N, 1). `episode` is the number of the
    episode, for samplers of trajectories. `rewards` names the field they come from, see `to_d4rl`.
    """
    steps = read_steps(path, rewards).drop_unknown()
    terminated = torch.from_numpy(steps.terminals).unsqueeze(-1)
    truncated = torch.from_numpy(steps.timeouts).unsqueeze(-1)
    flags = ("terminated", "truncated", "done")
    next_steps = {
        "observation": torch.from_numpy(steps.next_observations),
        "reward": torch.from_numpy(steps.rewards).unsqueeze(-1),
        "terminated": terminated,
        "truncated": truncated,
        "done": terminated | truncated,
    }
    return TensorDict(
        {
            "observation": torch.from_numpy(steps.observations),
            "action": torch.from_numpy(steps.actions),
            **{name: torch.zeros_like(terminated) for name in flags},
            "episode": torch.from_numpy(steps.episodes),
            "next": TensorDict(next_steps, batch_size=[len(steps)]),
        },
        batch_size=[len(steps)],
    )


class LearnedRewardTransform(Transform):  # type: ignore[misc]
    """A transform that sets `reward` to that of a model. The old reward becomes `true_reward`.

        env = TransformedEnv(GymEnv("HalfCheetah-v5"), LearnedRewardTransform("hc-grd"))
        buffer.append_transform(LearnedRewardTransform("hc-grd"))

    In an environment it acts at every step, in a replay buffer on what is sampled. The model sees
    the observations as they are where the transform stands: put those that change them after it.
    A model that depends on whether the episode terminated reads `terminated`, never `done`.
    """

    def __init__(
        self,
        model: ModelOrPath,
        *,
        observation_key: str = "observation",
        action_key: str = "action",
        reward_key: str = "reward",
        true_reward_key: str = "true_reward",
        terminated_key: str = "terminated",
    ) -> None:
        super().__init__(in_keys=[reward_key], out_keys=[reward_key, true_reward_key])
        loaded = load_model(model)
        self.module, self.needs_termination = loaded.torch(), loaded.needs_termination
        self.observation_key, self.action_key = observation_key, action_key
        self.reward_key, self.true_reward_key = reward_key, true_reward_key
        self.terminated_key = terminated_key

    def _step(self, tensordict: TensorDictBase, next_tensordict: TensorDictBase) -> TensorDictBase:
        true = next_tensordict.get(self.reward_key, None)
        if true is not None:
            next_tensordict.set(self.true_reward_key, true)
        terminations = None
        if self.needs_termination:
            terminations = _find(next_tensordict, self.terminated_key).squeeze(-1)
        with torch.no_grad():
            reward = self.module(
                _find(tensordict, self.observation_key),
                _find(tensordict, self.action_key),
                _find(next_tensordict, self.observation_key),
                terminations,
            )
        return next_tensordict.set(self.reward_key, reward.unsqueeze(-1))

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Compute the rewards of steps from a replay buffer, which hold their `next`."""
        self._step(tensordict, _find(tensordict, "next"))
        return tensordict

    def _reset(
        self, tensordict: TensorDictBase, tensordict_reset: TensorDictBase
    ) -> TensorDictBase:
        shape = (*tensordict_reset.batch_size, 1)
        zero = torch.zeros(shape, device=tensordict_reset.device)
        return tensordict_reset.set(self.true_reward_key, zero)

    def transform_observation_spec(self, observation_spec: TensorSpec) -> TensorSpec:
        """`true_reward` is told like an observation: an environment has one reward only."""
        if not isinstance(observation_spec, Composite):
            raise ValueError(f"expected a Composite of observations, got {observation_spec}")
        observation_spec[self.true_reward_key] = _make_spec(observation_spec)
        return observation_spec

    def transform_reward_spec(self, reward_spec: TensorSpec) -> TensorSpec:
        """The learned reward may be any number, whatever bounds the true one has."""
        if isinstance(reward_spec, Composite):
            reward_spec[self.reward_key] = _make_spec(reward_spec)
            return reward_spec
        return Unbounded(reward_spec.shape, device=reward_spec.device, dtype=torch.float32)


def _find(tensordict: TensorDictBase, key: str) -> Any:
    found = tensordict.get(key, None)
    if found is None:
        known = ", ".join(sorted(map(str, tensordict.keys())))
        raise KeyError(f"{key}: not there, where a reward is to be computed; there are: {known}")
    return found


def _make_spec(spec: Any) -> Unbounded:
    return Unbounded((*spec.shape, 1), device=spec.device, dtype=torch.float32)
