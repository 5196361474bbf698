"""The equations of all algorithms: pure functions of tensors, one value per member."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import log_softmax, softplus

from grd_offline.learning.agents.actors import LOG_STD_RANGE

if TYPE_CHECKING:
    from jaxtyping import Float

SMOOTHING, SMOOTHING_LIMIT = 0.2, 0.5
"""TD3: standard deviation of the noise on the target's action, and where it is cut off."""
MOST_WEIGHT = 100.0
"""IQL: the largest weight of an action."""
_SMALLEST = 1e-6


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
    """E[alpha log pi(a|s) - min_c Q_c(s, a)] (Eq. 8 of the paper, up to a constant)."""
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


def smooth_actions(
    actions: Float[Tensor, "member batch action"], noise: Float[Tensor, "member batch action"]
) -> Float[Tensor, "member batch action"]:
    """Target actions with clipped noise, as in TD3; `noise` is standard normal."""
    noise = (SMOOTHING * noise).clamp(-SMOOTHING_LIMIT, SMOOTHING_LIMIT)
    return (actions + noise).clamp(-1, 1)


def td3bc_actor_loss(
    values: Float[Tensor, "member batch"],
    chosen: Float[Tensor, "member batch action"],
    actions: Float[Tensor, "member batch action"],
    *,
    alpha: float,
) -> Float[Tensor, "member"]:
    """-lambda E[Q(s, pi(s))] + E[(pi(s) - a)^2], lambda = alpha / E|Q(s, pi(s))|.

    Lambda has no gradient. The loss is the same for Q of any scale.
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


def weighted_choice_loss(
    logits: Float[Tensor, "member batch action"],
    choices: Float[Tensor, "member batch action"],
    weights: Float[Tensor, "member batch"],
) -> Float[Tensor, "member"]:
    """-E[w log pi(a|s)], where pi is the softmax of the logits; choices are one-hot."""
    log_likelihood = (choices * log_softmax(logits, -1)).sum(-1)
    return -(weights * log_likelihood).mean(-1)
