"""The equations of all algorithms: pure functions of tensors, one value per member."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch.nn.functional import log_softmax, softplus

from grd_offline.learning.agents.actors import LOG_STD_RANGE

if TYPE_CHECKING:
    from grd_offline.learning.agents.shapes import Actions, CriticLosses, Members, Steps, Values

SMOOTHING, SMOOTHING_LIMIT = 0.2, 0.5
"""TD3: standard deviation of the noise on the target's action, and where it is cut off."""
MOST_WEIGHT = 100.0
"""IQL: the largest weight of an action."""


def squash(mean: Actions, log_std: Actions, noise: Actions) -> tuple[Actions, Steps]:
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
    rewards: Steps, terminated: Steps, next_values: Steps, *, discount: Members
) -> Steps:
    """r + gamma V(s'), where V is 0 after a true end; a time limit is not one."""
    return rewards + discount.unsqueeze(1) * (1 - terminated) * next_values


def critic_loss(values: Values, targets: Steps) -> CriticLosses:
    """E[(Q - target)^2] of every critic."""
    return (values - targets.unsqueeze(1)).square().mean(-1)


def sac_actor_loss(values: Values, log_density: Steps, *, temperature: Members) -> Members:
    """E[alpha log pi(a|s) - min_c Q_c(s, a)] (Eq. 8 of the paper, up to a constant)."""
    return (temperature.unsqueeze(1) * log_density - values.amin(1)).mean(-1)


def temperature_loss(
    log_temperature: Members, log_density: Steps, *, target_entropy: float
) -> Members:
    """E[-log alpha (log pi(a|s) + H)]: alpha grows while the entropy is below H."""
    return -log_temperature * (log_density + target_entropy).mean(-1)


def deterministic_actor_loss(values: Values) -> Members:
    """-E[Q_1(s, pi(s))], as in DDPG and TD3."""
    return -values[:, 0].mean(-1)


def smooth_actions(actions: Actions, noise: Actions) -> Actions:
    """Target actions with clipped noise, as in TD3; `noise` is standard normal."""
    noise = (SMOOTHING * noise).clamp(-SMOOTHING_LIMIT, SMOOTHING_LIMIT)
    return (actions + noise).clamp(-1, 1)


def td3bc_actor_loss(values: Steps, chosen: Actions, actions: Actions, *, alpha: float) -> Members:
    """-lambda E[Q(s, pi(s))] + E[(pi(s) - a)^2], lambda = alpha / E|Q(s, pi(s))|.

    Lambda has no gradient. The loss is the same for Q of any scale.
    """
    scale = alpha / values.detach().abs().mean(-1).clamp_min(1e-6)
    return (chosen - actions).square().mean((-2, -1)) - scale * values.mean(-1)


def expectile_loss(advantages: Steps, *, expectile: float) -> Members:
    """E[|tau - 1(u < 0)| u^2] of u = Q(s, a) - V(s): above .5, V leans towards good actions."""
    weights = torch.where(advantages < 0, 1 - expectile, expectile)
    return (weights * advantages.square()).mean(-1)


def advantage_weights(advantages: Steps, *, temperature: float) -> Steps:
    """min(exp(beta A), 100): how much an action of the data is worth imitating."""
    return (temperature * advantages).exp().clamp_max(MOST_WEIGHT)


def weighted_imitation_loss(chosen: Actions, actions: Actions, weights: Steps) -> Members:
    """E[w |pi(s) - a|^2]: weighted log-likelihood of a Gaussian whose spread is fixed."""
    return (weights * (chosen - actions).square().sum(-1)).mean(-1)


def weighted_choice_loss(logits: Actions, choices: Actions, weights: Steps) -> Members:
    """-E[w log pi(a|s)], where pi is the softmax of the logits; choices are one-hot."""
    log_likelihood = (choices * log_softmax(logits, -1)).sum(-1)
    return -(weights * log_likelihood).mean(-1)
