"""Trained reward nets as functions in the units of the data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from grd_offline.networks.members.nn import PairRewardNet, RewardNet
from grd_offline.rewards.network import NetworkFunction, NetworkReward

if TYPE_CHECKING:
    from jaxtyping import Float


def export_reward(
    net: RewardNet | PairRewardNet,
    mask: Float[Tensor, "member column"],
    *,
    states: int,
    actions: int,
    columns: Sequence[int],
    needs_next: bool = False,
    mean: Float[Tensor, "column"] | float = 0.0,
    std: Float[Tensor, "column"] | float = 1.0,
    offset: Float[Tensor, "1"] | float = 0.0,
    scale: Float[Tensor, "1"] | float = 1.0,
) -> NetworkFunction:
    """The mean of the net's members: r = offset + scale * net((x - mean) / std * mask).

    The function takes the net over: pass a copy where training goes on.
    """
    module = NetworkReward(net, members=len(mask), columns=columns, needs_next=needs_next).cpu()
    parts = {"mask": mask, "mean": mean, "std": std, "offset": offset, "scale": scale}
    with torch.no_grad():
        for name, value in parts.items():
            buffer: Tensor = getattr(module, name)
            buffer.copy_(torch.as_tensor(value))
    return NetworkFunction(module, states=states, actions=actions)


def copy_member(nets: RewardNet, member: int) -> RewardNet:
    """One member's reward net on its own, on the CPU."""
    weights = nets.stack.weights
    hidden = [weight.shape[-1] for weight in weights[:-1]]
    net = RewardNet(1, weights[0].shape[1], hidden=hidden, activation=nets.stack.activation)
    with torch.no_grad():
        for ours, theirs in zip(net.parameters(), nets.parameters(), strict=True):
            ours.copy_(theirs[member : member + 1])
    return net
