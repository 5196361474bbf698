"""TD3: twin delayed deterministic policy gradient (Fujimoto et al., 2018)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from grd_offline.learning.agents.batch import PolicyBatch
from grd_offline.learning.agents.ddpg import Ddpg
from grd_offline.learning.agents.losses import smooth_actions
from grd_offline.networks.members.draws import to_normal

if TYPE_CHECKING:
    from jaxtyping import Float

ACTOR_EVERY = 2
"""The actor steps with every second update of the critics."""


class Td3(Ddpg):
    """DDPG with two critics, noise on the target's action, and an actor that steps less often."""

    critics = 2
    noise_size = 1

    def moves_actor(self, update: int) -> bool:
        """Every second time, the first time included."""
        return update % ACTOR_EVERY == 0

    def compute_next_values(self, batch: PolicyBatch) -> Float[Tensor, "member batch"]:
        """min_c Q_c(s', pi(s') + noise) by the target networks."""
        actions = torch.tanh(self.target_actor(batch.next_observations))
        actions = smooth_actions(actions, to_normal(batch.uniform))
        return self.compute_values(self.target_critic, batch.next_observations, actions).amin(1)
