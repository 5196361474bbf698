"""Randomised return decomposition (Ren et al., ICLR 2022): the model of `rrd` and `rrd-unbiased`.

The sum of an episode's rewards is estimated from a few of its steps, drawn at random, so that an
update costs the same however long episodes are. The biased loss also punishes differences between
the rewards of one episode; the unbiased loss subtracts that. The reward net sees the state, the
action and the change to the next state. There is no graph.

`decompose --method rrd` and `train-online --method rrd` train this one model. Its rewards are per
step, in the units of the return: a perfect model's rewards add up to the return of each episode.
What the two do differently:

- A file is seen as a whole before training, so inputs are brought to unit scale, and the net learns
  R - c T in units of its spread (`RrdSettings.standardise`); the exported reward has both undone.
  A replay is not, so the net takes inputs and returns as they are, as the authors' code does.
- A file may lack the last observation of its episodes. Then the net does not see the change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from grd_offline.networks.losses import rrd_losses
from grd_offline.networks.members.nn import RewardNet
from grd_offline.networks.members.optimiser import Adam

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

STEPS_PER_EPISODE = 64
"""Number of steps drawn from each episode (K), as its authors have it."""


class RrdModel:
    """The reward net of some members, and one update of it."""

    def __init__(
        self,
        net: RewardNet,
        unbiased: Sequence[bool],
        rates: Float[Tensor, "member"],
        *,
        leaves: bool = True,
    ) -> None:
        """`unbiased` says which loss each member has. `Flat` of the optimiser has `leaves`."""
        self.net, self.adam = net, Adam([net], rates, leaves=leaves)
        self._unbiased = torch.tensor(list(unbiased), device=rates.device)
        inputs = net.stack.weights[0].shape[1]
        self.mask = torch.ones((len(rates), inputs), device=rates.device)

    def compute_losses(
        self,
        inputs: Float[Tensor, "member episode draw input"],
        valid: Bool[Tensor, "member episode draw"],
        lengths: Int[Tensor, "member episode"],
        returns: Float[Tensor, "member episode"],
        discounts: Float[Tensor, "member episode draw"] | None = None,
    ) -> Float[Tensor, "member"]:
        """The loss of each member on the drawn steps; `discounts` weighs their rewards."""
        rewards = self.compute_rewards(inputs)
        if discounts is not None:
            rewards = rewards * discounts
        biased, unbiased = rrd_losses(rewards, valid, lengths, returns)
        return torch.where(self._unbiased, unbiased, biased)

    def step(self, losses: Float[Tensor, "member"]) -> None:
        """Take one step of Adam."""
        self.adam.step(losses)

    def compute_rewards(
        self, inputs: Float[Tensor, "member *batch input"]
    ) -> Float[Tensor, "member *batch"]:
        """The reward of each step, in the units that the net was trained in."""
        mask = self.mask.view(len(self.mask), *[1] * (inputs.ndim - 2), -1)
        return cast(Tensor, self.net(inputs, mask))
