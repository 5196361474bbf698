"""The algorithms for discrete actions: critics with a value for each choice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from grd_offline.learning.agents.agent import Agent, PolicyBatch
from grd_offline.learning.agents.continuous import Iql
from grd_offline.learning.agents.losses import weighted_choice_loss
from grd_offline.networks.members.nn import Stack

if TYPE_CHECKING:
    from jaxtyping import Float

    from grd_offline.learning.agents.shapes import Actions, Members, States, Steps, Values


class DiscreteAgent(Agent):
    """An agent whose actions are choices: one-hot, -1 for 0, as batches have them."""

    actor_kind = "categorical"

    def make_critic(self) -> Stack:
        return self.make_networks(self.critics, self.states, self.actions, place=1)

    def compute_all_values(
        self, critic: Stack, observations: States, *, frozen: bool = False
    ) -> Float[Tensor, "member critic batch action"]:
        """Q(s, .) by each critic."""
        values = cast(Tensor, critic(observations, frozen=frozen, repeats=self.critics))
        return values.view(self.members, self.critics, -1, self.actions)

    def compute_values(
        self, critic: Stack, observations: States, actions: Actions, *, frozen: bool = False
    ) -> Values:
        """Q(s, a) by each critic."""
        values = self.compute_all_values(critic, observations, frozen=frozen)
        return (values * decode_choices(actions).unsqueeze(1)).sum(-1)


def decode_choices(actions: Actions) -> Tensor:
    """(member, batch, action) 1 for the choice that was taken, and 0 for the others."""
    return (actions > 0).to(actions.dtype)


class Dqn(DiscreteAgent):
    """DQN (Mnih et al., 2015): values of choices, of which the best one is taken. No actor.

    The critic that learns chooses the action at a next state, and the target critic says what it is
    worth (double Q-learning, van Hasselt et al., 2016). The policy takes the best choice by the
    target critic: this one moves slowly, and its policy is steadier than that of the critic that
    learns.

    Nothing is worth more than the largest reward at every step from now on, or less than the least.
    Targets are kept within these bounds: the best of several estimates is mostly one that is too
    large, and values that feed on each other would grow beyond all that can be earned.
    """

    actor_kind = "greedy"
    critics = 1
    loss_names = ("critic",)
    compiled = ("compute_critic_losses",)

    def __init__(self, *sizes: int, **common: Any) -> None:
        super().__init__(*sizes, **common)
        del self.adams["actor"], self.actor
        self.acting = self.target_critic
        self.least = torch.full_like(self.discounts, torch.inf)
        """(member,) the smallest reward so far."""
        self.largest = torch.full_like(self.discounts, -torch.inf)
        """(member,) the largest reward so far."""

    def update(self, batch: PolicyBatch, *, with_actor: bool = True) -> None:
        """One step of the critic and of its target."""
        self.note_rewards(batch.rewards if batch.ahead is None else batch.ahead.each.flatten(1))
        self.step_critics(batch)
        self.follow()

    @torch.no_grad()
    def note_rewards(self, rewards: Steps) -> None:
        """Remember the smallest and the largest reward; those that are no number do not count."""
        self.least.copy_(torch.fmin(self.least, rewards.amin(1)))
        self.largest.copy_(torch.fmax(self.largest, rewards.amax(1)))

    def compute_targets(self, batch: PolicyBatch, next_values: Steps) -> Steps:
        """What the values should be, within what rewards of this size can sum to."""
        steps = 1 / (1 - self.discounts)
        least, largest = self.least - self.mean_rewards, self.largest - self.mean_rewards
        # The next step may be the last, or the same reward may come at every later step. fmin and
        # fmax leave out what is no number: a reward of 0 at every step without a discount.
        low, high = torch.fmin(least, least * steps), torch.fmax(largest, largest * steps)
        targets = super().compute_targets(batch, next_values)
        return torch.minimum(torch.maximum(targets, low.unsqueeze(1)), high.unsqueeze(1))

    def state(self) -> dict[str, Any]:
        return {**super().state(), "least": self.least, "largest": self.largest}

    def compute_next_values(self, batch: PolicyBatch) -> Steps:
        """Q'(s', a*), where Q' is the target critic and a* is the best choice by Q."""
        values = self.compute_all_values(self.critic, batch.next_observations)
        targets = self.compute_all_values(self.target_critic, batch.next_observations)
        return targets.gather(-1, values.argmax(-1, keepdim=True)).squeeze(-1).squeeze(1)


class DiscreteIql(Iql, DiscreteAgent):
    """IQL for choices: the actor gives the probability of each."""

    def imitate(self, batch: PolicyBatch, weights: Steps) -> Members:
        """-E[w log pi(a|s)]."""
        logits = self.actor(batch.observations)
        return weighted_choice_loss(logits, decode_choices(batch.actions), weights)
