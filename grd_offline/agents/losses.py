"""The equations of SAC, TD3 and DDPG: pure functions of tensors, one value per member."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import softplus

from grd_offline.agents.actors import LOG_STD_RANGE

if TYPE_CHECKING:
    from jaxtyping import Float


def squash(
    mean: Float[Tensor, "member batch action"],
    log_std: Float[Tensor, "member batch action"],
    noise: Float[Tensor, "member batch action"],
) -> tuple[Float[Tensor, "member batch action"], Float[Tensor, "member batch"]]:
    """A sample of the squashed Gaussian, between -1 and 1, and the log of its density.

    a = tanh(u), u = mu + sigma z;  log p(a) = sum_i log N(u_i) - log(1 - tanh(u_i)^2)
    """
    log_std = log_std.clamp(*LOG_STD_RANGE)
    raw = mean + log_std.exp() * noise
    log_normal = -0.5 * noise.square() - log_std - 0.5 * math.log(2 * math.pi)
    # log(1 - tanh(u)^2) without the loss of digits where tanh is near 1
    log_slope = 2 * (math.log(2) - raw - softplus(-2 * raw))
    return torch.tanh(raw), (log_normal - log_slope).sum(-1)


def bellman_target(
    rewards: Float[Tensor, "member batch"],
    terminated: Float[Tensor, "member batch"],
    next_values: Float[Tensor, "member batch"],
    *,
    discount: Float[Tensor, "member"],
) -> Float[Tensor, "member batch"]:
    """r + gamma V(s'), where V is 0 after a true end; a time limit is not one."""
    return rewards + discount.unsqueeze(1) * (1 - terminated) * next_values


def critic_loss(
    values: Float[Tensor, "member critic batch"], targets: Float[Tensor, "member batch"]
) -> Float[Tensor, "member critic"]:
    """E[(Q - target)^2] of every critic."""
    return (values - targets.unsqueeze(1)).square().mean(-1)


def sac_actor_loss(
    values: Float[Tensor, "member critic batch"],
    log_density: Float[Tensor, "member batch"],
    *,
    temperature: Float[Tensor, "member"],
) -> Float[Tensor, "member"]:
    """E[alpha log pi(a|s) - min_c Q_c(s, a)]."""
    return (temperature.unsqueeze(1) * log_density - values.amin(1)).mean(-1)


def temperature_loss(
    log_temperature: Float[Tensor, "member"],
    log_density: Float[Tensor, "member batch"],
    *,
    target_entropy: float,
) -> Float[Tensor, "member"]:
    """E[-log alpha (log pi(a|s) + H)]: alpha grows while the entropy is below H."""
    return -log_temperature * (log_density + target_entropy).mean(-1)


def deterministic_actor_loss(
    values: Float[Tensor, "member critic batch"],
) -> Float[Tensor, "member"]:
    """-E[Q_1(s, pi(s))], as in DDPG and TD3."""
    return -values[:, 0].mean(-1)
