"""SAC: soft actor-critic, with a temperature that is learned (Haarnoja et al., 2018)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from grd_offline.learning.agents.agent import Agent
from grd_offline.learning.agents.batch import PolicyBatch
from grd_offline.learning.agents.losses import sac_actor_loss, squash, temperature_loss
from grd_offline.networks.members.draws import to_normal

if TYPE_CHECKING:
    from jaxtyping import Float


class Temperature(nn.Module):
    """log alpha of each member, 0 at first."""

    def __init__(self, members: int) -> None:
        super().__init__()
        self.logarithm = nn.Parameter(torch.zeros(members, 1))


class Sac(Agent):
    """A Gaussian policy that is paid for its entropy. Its target entropy is minus its actions."""

    actor_kind = "gaussian"
    noise_size = 2

    def list_actor_modules(self) -> list[nn.Module]:
        """The temperature steps with the actor: neither loss has a gradient in the other's part."""
        self.temperature = Temperature(self.members).to(self.device)
        return [self.actor, self.temperature]

    def draw_actions(
        self,
        observations: Float[Tensor, "member batch state"],
        uniform: Float[Tensor, "member batch action"],
    ) -> tuple[Float[Tensor, "member batch action"], Float[Tensor, "member batch"]]:
        """Actions of the policy, and the logarithms of their densities."""
        mean, log_std = self.actor(observations).chunk(2, -1)
        return squash(mean, log_std, to_normal(uniform))

    def compute_next_values(self, batch: PolicyBatch) -> Float[Tensor, "member batch"]:
        """min_c Q_c(s', a') - alpha log pi(a'|s') by the target critics."""
        uniform = batch.uniform[..., : self.actions]
        actions, log_density = self.draw_actions(batch.next_observations, uniform)
        values = self.compute_values(self.target_critic, batch.next_observations, actions)
        return values.amin(1) - self.temperature.logarithm.exp() * log_density

    def compute_actor_losses(self, batch: PolicyBatch) -> Float[Tensor, "member"]:
        """The losses of the actor and of the temperature, added."""
        uniform = batch.uniform[..., self.actions :]
        actions, log_density = self.draw_actions(batch.observations, uniform)
        values = self.compute_values(self.critic, batch.observations, actions, frozen=True)
        logarithm = self.temperature.logarithm.squeeze(1)
        loss = sac_actor_loss(values, log_density, temperature=logarithm.detach().exp())
        return loss + temperature_loss(
            logarithm, log_density.detach(), target_entropy=-float(self.actions)
        )

    def find_log_values(self) -> dict[str, Tensor]:
        return {"temperature": self.temperature.logarithm.detach().exp().squeeze(1)}
