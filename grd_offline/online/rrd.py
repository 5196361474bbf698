"""`rrd` and `rrd-unbiased`: randomised return decomposition beside a policy that learns.

Each update draws a few episodes and some steps of each; the mean of their predicted rewards is
held against the episode's return per step. The reward net also sees how the state changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from grd_offline.agents.batch import Steps
from grd_offline.losses import rrd_loss, rrd_unbiased_loss
from grd_offline.members.nn import RewardNet, build_members
from grd_offline.members.optimiser import Adam
from grd_offline.models.export import copy_member, export_reward
from grd_offline.online.replay import Replay
from grd_offline.online.sources import Draws, Source
from grd_offline.rewards.network import NetworkFunction

STEPS = 64
"""Steps drawn of each episode, as its authors do."""


class Rrd(Source):
    """Both kinds may be members of one source: `unbiased` says which member is which."""

    loss_names = ("reward",)

    def __init__(
        self,
        members: slice,
        replay: Replay,
        *,
        seeds: Sequence[int],
        unbiased: Sequence[bool],
        episodes: int,
        hidden: Sequence[int],
        rates: Tensor,
    ) -> None:
        super().__init__(members, replay)
        states, actions = replay.observations.shape[-1], replay.actions.shape[-1]
        device = replay.device

        def build(generator: torch.Generator) -> RewardNet:
            return RewardNet(1, 2 * states + actions, hidden=hidden, generator=generator)

        self.net = build_members(build, [seed * 4 + 2 for seed in seeds]).to(device)
        self.adam = Adam([self.net], rates)
        self._draws = Draws(seeds, device, (episodes,), (episodes, replay.limit))
        self._unbiased = torch.tensor(list(unbiased), device=device)
        self._mask = torch.ones((self.size, 1, 2 * states + actions), device=device)
        self._term = torch.zeros((1, self.size), device=device)
        self.losses = self._term
        self._losses_of = self._compute_losses

    def update(self, steps: Steps, counter: Tensor) -> None:
        """One step of Adam on the reward net."""
        losses = self._losses_of(counter)
        self.adam.step(losses)
        self._term[0] = losses.detach()

    def compile(self, backend: str) -> None:
        self._losses_of = torch.compile(self._compute_losses, dynamic=False, backend=backend)
        self.adam.compile(backend)

    def _compute_losses(self, counter: Tensor) -> Tensor:
        picks, order = self._draws.draw(counter)
        drawn = self.replay.draw_from_episodes(picks, order, STEPS, self.members)
        rewards = self._predict(drawn.observations, drawn.actions, drawn.next_observations)
        parts = (rewards, drawn.valid, drawn.lengths, drawn.returns)
        return torch.where(self._unbiased, rrd_unbiased_loss(*parts), rrd_loss(*parts))

    def compute_rewards(self, steps: Steps) -> Tensor:
        return self._predict(steps.observations, steps.actions, steps.next_observations)

    def _predict(self, observations: Tensor, actions: Tensor, following: Tensor) -> Tensor:
        inputs = torch.cat([observations, actions, following - observations], -1)
        mask = self._mask.view(self.size, *[1] * (inputs.ndim - 2), -1)
        return cast(Tensor, self.net(inputs, mask))

    def export(self, member: int) -> NetworkFunction:
        return export_reward(
            copy_member(self.net, member),
            self._mask[member],
            states=self.replay.observations.shape[-1],
            actions=self.replay.actions.shape[-1],
            columns=range(self._mask.shape[-1]),
            needs_next=True,
        )

    def state(self) -> dict[str, Any]:
        return {"net": self.adam.state()}

    def load_state(self, state: dict[str, Any]) -> None:
        self.adam.load_state(state["net"])

    @property
    def skipped(self) -> Tensor:
        return self.adam.skipped.squeeze(1)
