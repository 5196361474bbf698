"""The part that algorithms for discrete actions share: critics with a value for each choice."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from torch import Tensor

from grd_offline.learning.agents.agent import Agent
from grd_offline.networks.members.nn import Stack

if TYPE_CHECKING:
    from jaxtyping import Float


class DiscreteAgent(Agent):
    """An agent whose actions are choices: one-hot, -1 for 0, as batches have them."""

    actor_kind = "categorical"

    def make_critic(self) -> Stack:
        return self.make_networks(self.critics, self.states, self.actions, place=1)

    def compute_all_values(
        self,
        critic: Stack,
        observations: Float[Tensor, "member batch state"],
        *,
        frozen: bool = False,
    ) -> Float[Tensor, "member critic batch action"]:
        """Q(s, .) by each critic."""
        values = cast(Tensor, critic(observations, frozen=frozen, repeats=self.critics))
        return values.view(self.members, self.critics, -1, self.actions)

    def compute_values(
        self,
        critic: Stack,
        observations: Float[Tensor, "member batch state"],
        actions: Float[Tensor, "member batch action"],
        *,
        frozen: bool = False,
    ) -> Float[Tensor, "member critic batch"]:
        """Q(s, a) by each critic."""
        values = self.compute_all_values(critic, observations, frozen=frozen)
        return (values * decode_choices(actions).unsqueeze(1)).sum(-1)


def decode_choices(actions: Float[Tensor, "member batch action"]) -> Tensor:
    """(member, batch, action) 1 for the choice that was taken, and 0 for the others."""
    return (actions > 0).to(actions.dtype)
