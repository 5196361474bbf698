"""The equations of TD3+BC and IQL: pure functions of tensors, one value per member."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Float

MOST_WEIGHT = 100.0
"""IQL: where the weight of a good action is cut off."""
_SMALLEST = 1e-6


def td3bc_actor_loss(
    values: Float[Tensor, "member batch"],
    chosen: Float[Tensor, "member batch action"],
    actions: Float[Tensor, "member batch action"],
    *,
    alpha: float,
) -> Float[Tensor, "member"]:
    """-lambda E[Q(s, pi(s))] + E[(pi(s) - a)^2], lambda = alpha / E|Q(s, pi(s))|.

    Lambda is a number, not a way for the gradient: the loss is the same for Q of any scale.
    """
    scale = alpha / values.detach().abs().mean(-1).clamp_min(_SMALLEST)
    return (chosen - actions).square().mean((-2, -1)) - scale * values.mean(-1)


def expectile_loss(
    advantages: Float[Tensor, "member batch"], *, expectile: float
) -> Float[Tensor, "member"]:
    """E[|tau - 1(u < 0)| u^2] of u = Q(s, a) - V(s): above .5, V leans towards good actions."""
    weights = torch.where(advantages < 0, 1 - expectile, expectile)
    return (weights * advantages.square()).mean(-1)


def advantage_weights(
    advantages: Float[Tensor, "member batch"], *, temperature: float
) -> Float[Tensor, "member batch"]:
    """min(exp(beta A), 100): how much an action of the data is worth imitating."""
    return (temperature * advantages).exp().clamp_max(MOST_WEIGHT)


def weighted_imitation_loss(
    chosen: Float[Tensor, "member batch action"],
    actions: Float[Tensor, "member batch action"],
    weights: Float[Tensor, "member batch"],
) -> Float[Tensor, "member"]:
    """E[w |pi(s) - a|^2]: weighted log-likelihood of a Gaussian whose spread is fixed."""
    return (weights * (chosen - actions).square().sum(-1)).mean(-1)
