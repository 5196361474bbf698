"""DQN: Q-learning with a deep network (Mnih et al., 2015), with double Q-learning.

The critic that learns chooses the action at a next state, and the target critic says what it is
worth (van Hasselt et al., 2016). The policy takes the best choice by the target critic: this one
moves slowly, and its policy is steadier than that of the critic that learns.

Nothing is worth more than the largest reward at every step from now on, or less than the least.
Targets are kept within these bounds: the best of several estimates is mostly one that is too large,
and values that feed on each other would grow beyond all that can be earned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from grd_offline.learning.agents.batch import PolicyBatch
from grd_offline.learning.agents.discrete import DiscreteAgent

if TYPE_CHECKING:
    from jaxtyping import Float


class Dqn(DiscreteAgent):
    """Values of choices, of which the best one is taken. There is no actor."""

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
    def note_rewards(self, rewards: Float[Tensor, "member batch"]) -> None:
        """Remember the smallest and the largest reward; those that are no number do not count."""
        self.least.copy_(torch.fmin(self.least, rewards.amin(1)))
        self.largest.copy_(torch.fmax(self.largest, rewards.amax(1)))

    def compute_targets(
        self, batch: PolicyBatch, next_values: Float[Tensor, "member batch"]
    ) -> Float[Tensor, "member batch"]:
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

    def compute_next_values(self, batch: PolicyBatch) -> Float[Tensor, "member batch"]:
        """Q'(s', a*), where Q' is the target critic and a* is the best choice by Q."""
        values = self.compute_all_values(self.critic, batch.next_observations)
        targets = self.compute_all_values(self.target_critic, batch.next_observations)
        return targets.gather(-1, values.argmax(-1, keepdim=True)).squeeze(-1).squeeze(1)
