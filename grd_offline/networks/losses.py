"""The losses: each a pure function of tensors, one value per member.

Numbers of equations are those of the paper (`docs/paper.md` lists all of them).

Rows on the `episode` axis are equations: a whole episode with its return, or a stretch of steps
between two deliveries with what was delivered. `valid` marks the steps that took place; the rest
is padding and never counts, whatever stands there.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    # Only for reading and for the test run, which checks them: no dependency in use.
    from jaxtyping import Bool, Float, Int

PROBABILITY_FLOOR = 1e-6
"""log P(edge) is clamped at the log of this: the printed regulariser has no lower bound."""


class SparsityWeights(NamedTuple):
    """The five sparsity weights lambda_1 to lambda_5 of the paper."""

    state_to_reward: float
    action_to_reward: float
    state_to_state: float
    """Weight of edges between different states."""
    self_to_self: float
    """Weight of edges from a state to itself."""
    action_to_state: float


class ModelLoss(NamedTuple):
    """L_m = L_rew + L_dyn + L_reg and its terms, each (member,)."""

    reward: Tensor
    dynamics: Tensor
    sparsity: Tensor

    @property
    def total(self) -> Tensor:
        """(member,) the total loss L_m."""
        return self.reward + self.dynamics + self.sparsity


def return_loss(
    rewards: Float[Tensor, "member episode time"],
    valid: Bool[Tensor, "member episode time"],
    returns: Float[Tensor, "member episode"],
    *,
    discount: float = 1.0,
    starts: Int[Tensor, "member episode"] | None = None,
    scales: Float[Tensor, "member episode"] | None = None,
) -> Float[Tensor, "member"]:
    """Squared gap between each return and the sum of its predicted rewards (Eq. 4: L_rew).

    L_rew = E[(R - sum_t gamma^(t-1) r_hat_t)^2]

    For a stretch between two deliveries `starts` is the number of steps before it, so that its
    discount goes on from there. `scales` divides each gap, for rows of very unequal length.
    """
    gaps = returns - sum_rewards(rewards, valid, discount=discount, starts=starts)
    if scales is not None:
        gaps = gaps / scales
    return gaps.square().mean(-1)


def sum_rewards(
    rewards: Float[Tensor, "member episode time"],
    valid: Bool[Tensor, "member episode time"],
    *,
    discount: float = 1.0,
    starts: Int[Tensor, "member episode"] | None = None,
) -> Float[Tensor, "member episode"]:
    """Discounted sum of the rewards of each row: sum_t gamma^(t-1) r_t (Eq. 1 and 2)."""
    kept = torch.where(valid, rewards, 0.0)
    if discount == 1.0:
        return kept.sum(-1)
    times = torch.arange(rewards.shape[-1], device=rewards.device)
    steps = times if starts is None else starts.unsqueeze(-1) + times
    return (kept * discount**steps).sum(-1)


def dynamics_loss(
    logits: Float[Tensor, "member batch output mixture"],
    means: Float[Tensor, "member batch output mixture"],
    log_stds: Float[Tensor, "member batch output mixture"],
    targets: Float[Tensor, "member batch output"],
    *,
    dimensions: int | None = None,
) -> Float[Tensor, "member"]:
    """Negative log-likelihood of the next state under the mixture (Eq. 5: L_dyn).

    L_dyn = -E[sum_i log sum_k pi_k N(s_i'; mu_k, sigma_k^2)]

    Where the outputs are a random subset of `dimensions` state dimensions, the sum is scaled up to
    all of them, which keeps its expectation.
    """
    gaps = (targets.unsqueeze(-1) - means) * torch.exp(-log_stds)
    log_normal = -0.5 * gaps.square() - log_stds - 0.5 * math.log(2 * math.pi)
    log_density = torch.logsumexp(torch.log_softmax(logits, -1) + log_normal, -1)
    outputs = targets.shape[-1]
    return -log_density.sum(-1).mean(-1) * ((dimensions or outputs) / outputs)


def sparsity_loss(
    *probabilities: Float[Tensor, "member ..."], weights: SparsityWeights
) -> Float[Tensor, "member"]:
    """The printed regulariser of the edges' probabilities, in the order of `Masks` (Eq. 6: L_reg).

    L_reg = sum over five kinds of edge of lambda sum log P(edge)

    It falls without bound as P goes to 0, so log P is clamped from below; there its gradient ends.
    """
    floor = math.log(PROBABILITY_FLOOR)
    logs = (p.clamp_min(1e-30).log().clamp_min(floor) for p in probabilities)
    return edge_count_loss(*logs, weights=weights)


def edge_count_loss(
    state_to_reward: Float[Tensor, "member state"],
    action_to_reward: Float[Tensor, "member action"],
    state_to_state: Float[Tensor, "member state state"],
    action_to_state: Float[Tensor, "member action state"],
    *,
    weights: SparsityWeights,
) -> Float[Tensor, "member"]:
    """The expected number of edges, weighted: what `pair-net` and `joint-net` pay.

    L_reg = sum over five kinds of edge of lambda sum P(edge)

    Unlike log P it has the same price for each edge wherever its probability stands, so that an
    edge stays exactly if it lowers the other losses by more than lambda.
    """
    diagonal = torch.diagonal(state_to_state, dim1=-2, dim2=-1).sum(-1)
    terms = (
        weights.state_to_reward * state_to_reward.sum(-1),
        weights.action_to_reward * action_to_reward.sum(-1),
        weights.state_to_state * (state_to_state.sum((-2, -1)) - diagonal),
        weights.self_to_self * diagonal,
        weights.action_to_state * action_to_state.sum((-2, -1)),
    )
    return torch.stack(terms).sum(0)


def rrd_losses(
    rewards: Float[Tensor, "member episode draw"],
    valid: Bool[Tensor, "member episode draw"],
    lengths: Int[Tensor, "member episode"],
    returns: Float[Tensor, "member episode"],
) -> tuple[Float[Tensor, "member"], Float[Tensor, "member"]]:
    """Randomised return decomposition: the sum estimated from K drawn steps (L_Rand-RD).

    biased = E[((R - T / K sum_{i in I} r_hat_i) / T)^2]
    unbiased = E[(R / T - mean_I r_hat)^2 - (1 - K / T) S^2 / K]

    Divided by T as in the RRD authors' code, so that lengths weigh alike. The expectation of the
    first over the draws is the return loss plus the variance of the estimate, which favours equal
    rewards. The second subtracts an estimate of it, and its expectation is the return loss. It can
    be negative. S^2 is the sample variance over the draws (K - 1 below the line) and 1 - K / T the
    correction for drawing without replacement.
    """
    counts = valid.sum(-1)
    means = torch.where(valid, rewards, 0.0).sum(-1) / counts
    gaps = torch.where(valid, rewards - means.unsqueeze(-1), 0.0)
    variances = gaps.square().sum(-1) / (counts - 1).clamp_min(1)
    added = (1 - counts / lengths) * variances / counts
    errors = (returns / lengths - means).square()
    return errors.mean(-1), (errors - added).mean(-1)
