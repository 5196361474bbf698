"""The equations of all algorithms, against values worked out by hand or in another way."""

import numpy as np
import pytest
import torch

from grd_offline.learning.agents.losses import (
    advantage_weights,
    bellman_target,
    critic_loss,
    deterministic_actor_loss,
    expectile_loss,
    sac_actor_loss,
    smooth_actions,
    squash,
    td3bc_actor_loss,
    temperature_loss,
    weighted_imitation_loss,
)


def test_squashed_density():
    generator = torch.Generator().manual_seed(0)
    mean, log_std, noise = (torch.randn((2, 50, 3), generator=generator) / 2 for _ in range(3))
    action, log_density = squash(mean, log_std, noise)
    base = torch.distributions.Normal(mean.double(), log_std.double().exp())
    tanh = torch.distributions.TanhTransform(cache_size=0)
    expected = torch.distributions.TransformedDistribution(base, [tanh])
    raw = mean + log_std.exp() * noise
    inside = raw.abs().amax(-1) < 3  # further out the reference itself loses digits
    log_expected = expected.log_prob(action.double()).sum(-1)
    torch.testing.assert_close(
        log_density[inside], log_expected[inside].float(), rtol=1e-3, atol=1e-3
    )
    _, far = squash(torch.full((1, 1, 1), 30.0), torch.zeros(1, 1, 1), torch.zeros(1, 1, 1))
    # log N(0) - log(4 exp(-60))
    assert far.item() == pytest.approx(-0.5 * np.log(2 * np.pi) + 60 - np.log(4), rel=1e-5)


def test_policy_equations_by_hand():
    rewards, ends = torch.tensor([[1.0, 2.0]]), torch.tensor([[0.0, 1.0]])
    target = bellman_target(
        rewards, ends, torch.tensor([[10.0, 10.0]]), discount=torch.tensor([0.5])
    )
    assert target.tolist() == [[6.0, 2.0]]
    values = torch.tensor([[[1.0, 3.0], [2.0, 0.0]]])
    assert critic_loss(values, torch.tensor([[0.0, 1.0]])).tolist() == [[2.5, 2.5]]
    density = torch.tensor([[1.0, -1.0]])
    loss = sac_actor_loss(values, density, temperature=torch.tensor([2.0]))
    assert loss.tolist() == [((2 - 1) + (-2 - 0)) / 2]
    assert deterministic_actor_loss(values).tolist() == [-2.0]
    logarithm = torch.tensor([0.5])
    assert temperature_loss(logarithm, density, target_entropy=-3.0).tolist() == [1.5]


def test_temperature_grows_while_entropy_is_below_its_target():
    logarithm = torch.zeros(1, requires_grad=True)
    certain = torch.full((1, 4), 5.0)  # log density 5: entropy -5, below the target of -1
    temperature_loss(logarithm, certain, target_entropy=-1.0).sum().backward()
    assert logarithm.grad.item() < 0


def test_target_actions_are_smoothed_by_clipped_noise():
    actions = torch.tensor([[[0.0], [0.0], [0.9]]])
    noise = torch.tensor([[[1.0], [-10.0], [1.0]]])
    torch.testing.assert_close(
        smooth_actions(actions, noise), torch.tensor([[[0.2], [-0.5], [1.0]]])
    )


def test_the_loss_of_td3bc():
    values = torch.tensor([[1.0, -3.0]])
    chosen, actions = torch.tensor([[[0.5], [0.0]]]), torch.tensor([[[0.0], [1.0]]])
    # mean |Q| = 2 and mean Q = -1, so the value's part is 2.5 / 2; imitation is (.25 + 1) / 2
    loss = td3bc_actor_loss(values, chosen, actions, alpha=2.5)
    torch.testing.assert_close(loss, torch.tensor([0.625 + 1.25]))


def test_the_loss_of_td3bc_is_the_same_for_values_of_any_scale():
    values = torch.randn((2, 5), generator=torch.Generator().manual_seed(0), requires_grad=True)
    chosen = torch.zeros((2, 5, 3))
    small = td3bc_actor_loss(values, chosen, chosen, alpha=2.5)
    large = td3bc_actor_loss(1000 * values, chosen, chosen, alpha=2.5)
    torch.testing.assert_close(small, large)
    (gradient,) = torch.autograd.grad(small.sum(), values)
    # Every value counts alike: the scale lets no gradient through.
    torch.testing.assert_close(gradient, gradient[:, :1].expand(2, 5))


def test_the_losses_of_iql():
    advantages = torch.tensor([[2.0, -1.0]])
    torch.testing.assert_close(
        expectile_loss(advantages, expectile=0.7), torch.tensor([(0.7 * 4 + 0.3 * 1) / 2])
    )
    weights = advantage_weights(torch.tensor([[0.5, -1.0, 100.0]]), temperature=3.0)
    np.testing.assert_allclose(weights.numpy()[0], [np.exp(1.5), np.exp(-3.0), 100.0], rtol=1e-6)
    chosen, actions = torch.zeros((1, 2, 2)), torch.tensor([[[1.0, 2.0], [3.0, 0.0]]])
    loss = weighted_imitation_loss(chosen, actions, torch.tensor([[2.0, 1.0]]))
    torch.testing.assert_close(loss, torch.tensor([(2 * 5.0 + 9.0) / 2]))


def test_the_expectile_lies_where_it_should():
    """The minimum over one number for all: the expectile of the sample, by its definition."""
    sample = np.random.default_rng(0).normal(size=200)
    grid = np.linspace(-2, 2, 801)
    advantages = torch.tensor(sample[None] - grid[:, None])
    losses = expectile_loss(advantages, expectile=0.7)
    found = grid[int(losses.argmin())]
    above, below = sample[sample > found] - found, found - sample[sample <= found]
    assert 0.7 * above.sum() == pytest.approx(0.3 * below.sum(), rel=0.05)
