"""`rrd` and `rrd-unbiased`: randomised return decomposition beside a policy that learns.

`grd_offline.methods.models.rrd` has the model; each update draws a few episodes of the replay
and some steps of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from grd_offline.learning.agents.batch import ReplaySteps
from grd_offline.learning.online.replay import Replay
from grd_offline.learning.online.settings import Member, OnlineSettings
from grd_offline.learning.online.sources import RewardSource, SourceNumbers
from grd_offline.methods.models.rrd import STEPS_PER_EPISODE, RrdModel
from grd_offline.methods.training import copy_member, export_reward
from grd_offline.networks.members.nn import RewardNet, build_members
from grd_offline.rewards.network import NetworkFunction

if TYPE_CHECKING:
    from jaxtyping import Float, Int


class Rrd(RewardSource):
    """Both kinds may be members of one source: `unbiased` says which member is which."""

    loss_names = ("reward",)

    def __init__(
        self, where: slice, replay: Replay, members: Sequence[Member], settings: OnlineSettings
    ) -> None:
        super().__init__(where, replay, members, settings)
        states, actions = replay.observations.shape[-1], replay.actions.shape[-1]
        device, episodes = replay.device, settings.episodes

        def build(generator: torch.Generator) -> RewardNet:
            return RewardNet(1, 2 * states + actions, hidden=settings.hidden, generator=generator)

        net = build_members(build, [member.seed * 4 + 2 for member in members]).to(device)
        unbiased = [member.method == "rrd-unbiased" for member in members]
        self.model = RrdModel(net, unbiased, replay.send(m.model_rate for m in members))
        seeds = [member.seed for member in members]
        self._draws = SourceNumbers(seeds, device, (episodes,), (episodes, replay.limit))
        self._term = torch.zeros((1, self.size), device=device)
        self.losses = self._term
        self._losses_of = self._compute_losses

    def update(self, steps: ReplaySteps, counter: Tensor) -> None:
        losses = self._losses_of(counter)
        self.model.step(losses)
        self._term[0] = losses.detach()

    def compile(self, backend: str) -> None:
        self._losses_of = torch.compile(self._compute_losses, dynamic=False, backend=backend)
        self.model.adam.compile(backend)

    def _compute_losses(self, counter: Int[Tensor, ""]) -> Float[Tensor, "member"]:
        picks, order = self._draws.draw(counter)
        drawn = self.replay.draw_from_episodes(picks, order, STEPS_PER_EPISODE, self.members)
        inputs = _join(drawn.observations, drawn.actions, drawn.next_observations)
        return self.model.compute_losses(inputs, drawn.valid, drawn.lengths, drawn.returns)

    def compute_rewards(self, steps: ReplaySteps) -> Float[Tensor, "member batch"]:
        return self.model.compute_rewards(
            _join(steps.observations, steps.actions, steps.next_observations)
        )

    def export(self, member: int) -> NetworkFunction:
        return export_reward(
            copy_member(self.model.net, member),
            self.model.mask[member : member + 1],
            states=self.replay.observations.shape[-1],
            actions=self.replay.actions.shape[-1],
            columns=range(self.model.mask.shape[-1]),
            needs_next=True,
        )

    def state(self) -> dict[str, Any]:
        return {"net": self.model.adam.state()}

    def load_state(self, state: dict[str, Any]) -> None:
        self.model.adam.load_state(state["net"])

    @property
    def skipped(self) -> Tensor:
        return self.model.adam.skipped.squeeze(1)


def _join(
    observations: Float[Tensor, "*batch state"],
    actions: Float[Tensor, "*batch action"],
    next_observations: Float[Tensor, "*batch state"],
) -> Float[Tensor, "*batch input"]:
    """The state, the action and the change to the next state, side by side."""
    return torch.cat([observations, actions, next_observations - observations], -1)
