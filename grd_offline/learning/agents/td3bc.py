"""TD3+BC: TD3 with behaviour cloning, for a dataset (Fujimoto and Gu, 2021)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from grd_offline.learning.agents.batch import PolicyBatch
from grd_offline.learning.agents.losses import td3bc_actor_loss
from grd_offline.learning.agents.td3 import ACTOR_EVERY, Td3

if TYPE_CHECKING:
    from jaxtyping import Float


class Td3Bc(Td3):
    """TD3 whose actor also imitates the actions of the data."""

    def __init__(self, *sizes: int, alpha: float = 2.5, **common: Any) -> None:
        """`alpha` is the weight of the value against imitation."""
        super().__init__(*sizes, **common)
        self.alpha = alpha

    def moves_actor(self, update: int) -> bool:
        """Every second time, the first time not included."""
        return (update + 1) % ACTOR_EVERY == 0

    def compute_actor_losses(self, batch: PolicyBatch) -> Float[Tensor, "member"]:
        """-lambda E[Q(s, pi(s))] + E[(pi(s) - a)^2]."""
        chosen = torch.tanh(self.actor(batch.observations))
        values = self.compute_values(self.critic, batch.observations, chosen, frozen=True)
        return td3bc_actor_loss(values[:, 0], chosen, batch.actions, alpha=self.alpha)
