"""CrossQ: SAC without target networks, because batch renormalisation steadies the critics (Bhatt et
al., 2024).

The critics see states and next states in one pass, so that both are normalised by the same moments.
These are moments of inputs: a refitted reward asks for nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from grd_offline.learning.agents.batch import PolicyBatch
from grd_offline.learning.agents.sac import Sac
from grd_offline.networks.members.nn import build_members
from grd_offline.networks.members.renorm import RenormStack

if TYPE_CHECKING:
    from jaxtyping import Float

ACTOR_EVERY = 3
"""The actor steps with every third update of the critics."""


class CrossQ(Sac):
    """SAC with wide, renormalised critics of their own, and a renormalised actor."""

    actor: RenormStack
    critic: RenormStack
    betas = (0.5, 0.999)
    compiled = ("compute_critic_losses", "compute_actor_losses", "keep_losses", "centre")

    def __init__(self, *sizes: int, critic_width: int = 512, **common: Any) -> None:
        """`critic_width` is the number of units in each hidden layer of the critics."""
        self.critic_width = critic_width
        super().__init__(*sizes, **common)
        del self.targets["critic"], self.target_critic

    def make_networks(self, count: int, inputs: int, outputs: int, *, place: int) -> RenormStack:
        widths = [self.critic_width] * len(self.hidden) if place == 1 else self.hidden
        return (
            build_members(
                lambda generator: RenormStack(
                    count, (inputs, *widths, outputs), generator=generator
                ),
                [seed * 4 + place for seed in self.seeds],
            )
            .to(self.device)
            .track()
        )

    def moves_actor(self, update: int) -> bool:
        """Every third time, the first time included."""
        return update % ACTOR_EVERY == 0

    def compute_critic_losses(
        self, batch: PolicyBatch
    ) -> tuple[Float[Tensor, "member critic"], Float[Tensor, "member"]]:
        """The losses, with min_c Q_c(s', a') - alpha log pi(a'|s') by the critics that learn."""
        later = batch.look_ahead()
        with torch.no_grad():
            uniform = batch.uniform[..., : self.actions]
            actions, log_density = self.draw_actions(later.next_observations, uniform)
        both = self.compute_values(
            self.critic,
            torch.cat([batch.observations, later.next_observations], 1),
            torch.cat([batch.actions, actions], 1),
        )
        values, next_values = both.chunk(2, -1)
        with torch.no_grad():
            bonus = self.temperature.logarithm.exp() * log_density
            targets = self.compute_targets(batch, next_values.amin(1) - bonus)
        return self.compare(batch, values, targets)

    def state(self) -> dict[str, Any]:
        moments = {"actor": self.actor.statistics(), "critic": self.critic.statistics()}
        return {**super().state(), "moments": moments}
