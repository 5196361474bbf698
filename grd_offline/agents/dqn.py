"""DQN: Q-learning with a deep network (Mnih et al., 2015), with double Q-learning.

The critic that learns chooses the action at a next state, and the target critic says what it is
worth (van Hasselt et al., 2016). The policy takes the best choice by the target critic: this one
moves slowly, and its policy is steadier than that of the critic that learns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from grd_offline.agents.batch import Batch
from grd_offline.agents.discrete import DiscreteAgent

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

    def update(self, batch: Batch, *, with_actor: bool = True) -> None:
        """One step of the critic and of its target."""
        self.step_critics(batch)
        self.follow()

    def compute_next_values(self, batch: Batch) -> Float[Tensor, "member batch"]:
        """Q'(s', a*), where Q' is the target critic and a* is the best choice by Q."""
        values = self.compute_all_values(self.critic, batch.next_observations)
        targets = self.compute_all_values(self.target_critic, batch.next_observations)
        return targets.gather(-1, values.argmax(-1, keepdim=True)).squeeze(-1).squeeze(1)
