"""DDPG: deep deterministic policy gradient (Lillicrap et al., 2015)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from grd_offline.learning.agents.agent import Agent
from grd_offline.learning.agents.batch import PolicyBatch
from grd_offline.learning.agents.losses import deterministic_actor_loss

if TYPE_CHECKING:
    from jaxtyping import Float


class Ddpg(Agent):
    """A deterministic policy, one critic, and a target network of each."""

    critics = 1
    has_target_actor = True

    def compute_next_values(self, batch: PolicyBatch) -> Float[Tensor, "member batch"]:
        """Q(s', pi(s')) by the target networks."""
        actions = torch.tanh(self.target_actor(batch.next_observations))
        return self.compute_values(self.target_critic, batch.next_observations, actions).amin(1)

    def compute_actor_losses(self, batch: PolicyBatch) -> Float[Tensor, "member"]:
        """-E[Q(s, pi(s))]."""
        actions = torch.tanh(self.actor(batch.observations))
        return deterministic_actor_loss(
            self.compute_values(self.critic, batch.observations, actions, frozen=True)
        )
