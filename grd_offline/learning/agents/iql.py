"""IQL: implicit Q-learning, for a dataset (Kostrikov et al., 2021)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from grd_offline.learning.agents.agent import Agent
from grd_offline.learning.agents.batch import PolicyBatch
from grd_offline.learning.agents.discrete import DiscreteAgent, decode_choices
from grd_offline.learning.agents.losses import (
    advantage_weights,
    expectile_loss,
    weighted_choice_loss,
    weighted_imitation_loss,
)
from grd_offline.networks.members.optimiser import Adam

if TYPE_CHECKING:
    from jaxtyping import Float


class Iql(Agent):
    """Values of actions in the data alone, then imitation of the better ones.

    The actor is the mean of a Gaussian whose spread is fixed.
    """

    loss_names = ("critic", "actor", "value")
    compiled = (*Agent.compiled, "compute_state_losses")

    def __init__(
        self, *sizes: int, expectile: float = 0.7, temperature: float = 3.0, **common: Any
    ) -> None:
        """`temperature` says how sharply better actions are preferred."""
        super().__init__(*sizes, **common)
        self.expectile, self.temperature = expectile, temperature
        self.state_critic = self.make_networks(1, self.states, 1, place=2)
        self.adams["value"] = Adam([self.state_critic], self.rates)

    def update(self, batch: PolicyBatch, *, with_actor: bool = True) -> None:
        """Values of states, then the actor, then the critics, as in the authors' code."""
        self.step("value", self.compute_state_losses(batch))
        if with_actor:
            self.step_actor(batch)
        self.step_critics(batch)
        self.follow()

    def compute_state_values(
        self, observations: Float[Tensor, "member batch state"], *, frozen: bool = False
    ) -> Float[Tensor, "member batch"]:
        """Compute the state values V(s)."""
        return cast(Tensor, self.state_critic(observations, frozen=frozen)).squeeze(-1)

    def compute_advantages(
        self, batch: PolicyBatch, *, frozen: bool = False
    ) -> Float[Tensor, "member batch"]:
        """min_c Q_c(s, a) - V(s), with Q by the target critics."""
        with torch.no_grad():
            values = self.compute_values(self.target_critic, batch.observations, batch.actions)
        return values.amin(1) - self.compute_state_values(batch.observations, frozen=frozen)

    def compute_next_values(self, batch: PolicyBatch) -> Float[Tensor, "member batch"]:
        """Compute the values V(s') of the next states."""
        return self.compute_state_values(batch.next_observations)

    def compute_state_losses(self, batch: PolicyBatch) -> Float[Tensor, "member"]:
        return expectile_loss(self.compute_advantages(batch), expectile=self.expectile)

    def compute_actor_losses(self, batch: PolicyBatch) -> Float[Tensor, "member"]:
        """E[w |pi(s) - a|^2], where w grows with the advantage of the action."""
        with torch.no_grad():
            advantages = self.compute_advantages(batch, frozen=True)
            weights = advantage_weights(advantages, temperature=self.temperature)
        chosen = torch.tanh(self.actor(batch.observations))
        return weighted_imitation_loss(chosen, batch.actions, weights)


class DiscreteIql(Iql, DiscreteAgent):
    """IQL for choices: the actor gives the probability of each."""

    def compute_actor_losses(self, batch: PolicyBatch) -> Float[Tensor, "member"]:
        """-E[w log pi(a|s)], where w grows with the advantage of the choice."""
        with torch.no_grad():
            advantages = self.compute_advantages(batch, frozen=True)
            weights = advantage_weights(advantages, temperature=self.temperature)
        logits = self.actor(batch.observations)
        return weighted_choice_loss(logits, decode_choices(batch.actions), weights)
