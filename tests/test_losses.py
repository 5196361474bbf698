from __future__ import annotations

import numpy as np
import pytest
import torch
from jaxtyping import TypeCheckError
from torch import Tensor

from grd_offline.networks.losses import (
    PROBABILITY_FLOOR,
    SparsityWeights,
    dynamics_loss,
    edge_count_loss,
    return_loss,
    rrd_losses,
    sparsity_loss,
)
from grd_offline.networks.members.nn import Masks

WEIGHTS = SparsityWeights(1.0, 2.0, 3.0, 4.0, 5.0)


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_return_loss_by_hand() -> None:
    rewards = torch.tensor([[[1.0, 2.0, 3.0], [4.0, 5.0, 99.0]]])
    valid = torch.tensor([[[True, True, True], [True, True, False]]])
    # gaps 10 - 6 and 8 - 9
    assert return_loss(rewards, valid, torch.tensor([[10.0, 8.0]])).tolist() == [8.5]
    # discounted sums 1 + 1 + .75 and 4 + 2.5
    found = return_loss(rewards, valid, torch.tensor([[2.75, 4.5]]), discount=0.5)
    assert found.tolist() == [2.0]


def test_return_loss_of_stretches_goes_on_with_the_discount() -> None:
    rewards = torch.tensor([[[1.0, 2.0], [4.0, 8.0]]])
    valid = torch.ones(1, 2, 2, dtype=torch.bool)
    starts = torch.tensor([[0, 2]])
    # .5^0 1 + .5^1 2 = 2, and .5^2 4 + .5^3 8 = 2
    found = return_loss(rewards, valid, torch.tensor([[2.0, 5.0]]), discount=0.5, starts=starts)
    assert found.tolist() == [4.5]


def test_return_loss_divides_gaps_by_scales() -> None:
    valid = torch.ones(1, 2, 1, dtype=torch.bool)
    scales = torch.tensor([[1.0, 2.0]])
    found = return_loss(torch.zeros(1, 2, 1), valid, torch.tensor([[3.0, 4.0]]), scales=scales)
    assert found.tolist() == [6.5]


def test_return_loss_refuses_a_silent_broadcast() -> None:
    rewards, valid = torch.zeros(1, 4, 3), torch.ones(1, 4, 3, dtype=torch.bool)
    with pytest.raises(TypeCheckError):
        return_loss(rewards, valid, torch.zeros(1, 4, 1))
    with pytest.raises(TypeCheckError):
        return_loss(rewards, valid, torch.zeros(4))


def test_return_loss_has_one_gradient_for_all_steps_of_an_episode_and_none_for_padding() -> None:
    rewards = draw(2, 3, 4).requires_grad_()
    valid = torch.arange(4) < torch.tensor([4, 2, 3])[:, None]
    losses = return_loss(rewards, valid.expand(2, 3, 4), draw(2, 3, seed=1))
    (gradient,) = torch.autograd.grad(losses.sum(), rewards)
    assert (gradient[:, ~valid] == 0).all()
    for episode in range(3):
        steps = gradient[:, episode, valid[episode]]
        torch.testing.assert_close(steps, steps[:, :1].expand_as(steps))


def test_padding_may_hold_anything() -> None:
    rewards = torch.tensor([[[1.0, torch.nan]]], requires_grad=True)
    loss = return_loss(rewards, torch.tensor([[[True, False]]]), torch.tensor([[3.0]]))
    assert loss.tolist() == [4.0]
    assert torch.autograd.grad(loss.sum(), rewards)[0].tolist() == [[[-4.0, 0.0]]]


def test_dynamics_loss_against_numpy() -> None:
    logits, means, log_stds = (draw(2, 5, 3, 4, seed=seed) for seed in range(3))
    targets = draw(2, 5, 3, seed=3)
    shares = np.exp(logits.double().numpy())
    shares /= shares.sum(-1, keepdims=True)
    stds = np.exp(log_stds.double().numpy())
    gaps = (targets.double().numpy()[..., None] - means.double().numpy()) / stds
    density = (shares * np.exp(-0.5 * gaps**2) / (stds * np.sqrt(2 * np.pi))).sum(-1)
    expected = -np.log(density).sum(-1).mean(-1)
    found = dynamics_loss(logits, means, log_stds, targets)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_dynamics_loss_of_a_subset_keeps_its_expectation() -> None:
    parts = [draw(1, 5, 4, 3, seed=seed) for seed in range(3)]
    targets = draw(1, 5, 4, seed=3)
    halves = [
        dynamics_loss(*(p[:, :, half] for p in parts), targets[:, :, half], dimensions=4)
        for half in (slice(0, 2), slice(2, 4))
    ]
    torch.testing.assert_close((halves[0] + halves[1]) / 2, dynamics_loss(*parts, targets))


def test_dynamics_loss_refuses_a_mixture_of_other_size() -> None:
    with pytest.raises(TypeCheckError):
        dynamics_loss(
            torch.zeros(1, 2, 3, 3), torch.zeros(1, 2, 3, 2), torch.zeros(1, 2, 3, 3), draw(1, 2, 3)
        )


def test_dynamics_loss_pulls_means_towards_targets() -> None:
    means = torch.zeros(1, 1, 1, 3, requires_grad=True)
    loss = dynamics_loss(
        torch.zeros(1, 1, 1, 3), means, torch.zeros(1, 1, 1, 3), torch.ones(1, 1, 1)
    )
    assert (torch.autograd.grad(loss.sum(), means)[0] < 0).all()


def make_probabilities() -> Masks:
    generator = torch.Generator().manual_seed(0)
    shapes = ((2, 3), (2, 2), (2, 3, 3), (2, 2, 3))
    return Masks(*(torch.rand(shape, generator=generator) for shape in shapes))


@pytest.mark.parametrize(
    ("loss", "form"), [(sparsity_loss, np.log), (edge_count_loss, np.positive)]
)
def test_five_sparsity_terms_against_numpy(loss, form) -> None:  # type: ignore[no-untyped-def]
    edges = make_probabilities()
    values = [form(edge.double().numpy()) for edge in edges]
    diagonal = np.trace(values[2], axis1=1, axis2=2)
    expected = [
        1 * values[0].sum(1),
        2 * values[1].sum(1),
        3 * (values[2].sum((1, 2)) - diagonal),
        4 * diagonal,
        5 * values[3].sum((1, 2)),
    ]
    for place, wanted in enumerate(expected):
        only = SparsityWeights(*(w if i == place else 0 for i, w in enumerate(WEIGHTS)))
        np.testing.assert_allclose(loss(*edges, weights=only), wanted, rtol=1e-4)
    np.testing.assert_allclose(loss(*edges, weights=WEIGHTS), sum(expected), rtol=1e-4)


def test_printed_regulariser_is_bounded_below() -> None:
    edges = [torch.zeros_like(edge).requires_grad_() for edge in make_probabilities()]
    only = sparsity_loss(*edges, weights=SparsityWeights(1, 0, 0, 0, 0))
    assert only.tolist() == pytest.approx([3 * np.log(PROBABILITY_FLOOR)] * 2)
    gradients = torch.autograd.grad(sparsity_loss(*edges, weights=WEIGHTS).sum(), edges)
    assert all((gradient == 0).all() for gradient in gradients)


@pytest.mark.parametrize("loss", [sparsity_loss, edge_count_loss])
def test_every_edge_is_pushed_towards_absence(loss) -> None:  # type: ignore[no-untyped-def]
    edges = [edge.requires_grad_() for edge in make_probabilities()]
    gradients = torch.autograd.grad(loss(*edges, weights=WEIGHTS).sum(), edges)
    assert all((gradient > 0).all() for gradient in gradients)


@pytest.mark.parametrize("loss", [sparsity_loss, edge_count_loss])
def test_sparsity_refuses_masks_of_different_graphs(loss) -> None:  # type: ignore[no-untyped-def]
    edges = make_probabilities()
    with pytest.raises(TypeCheckError):
        loss(*edges[:3], torch.ones(2, 2, 4), weights=WEIGHTS)


def test_rrd_losses_by_hand() -> None:
    rewards = torch.tensor([[[1.0, 3.0, 99.0]]])
    valid = torch.tensor([[[True, True, False]]])
    lengths, returns = torch.tensor([[10]]), torch.tensor([[50.0]])
    # mean 2 against 50 / 10; sample variance 2, times (1 - 2/10) / 2
    assert rrd_losses(rewards, valid, lengths, returns)[0].tolist() == [9.0]
    assert rrd_losses(rewards, valid, lengths, returns)[1].tolist() == pytest.approx([8.2])


def test_rrd_losses_of_whole_rows_are_the_return_loss_per_step() -> None:
    rewards, valid = draw(2, 3, 4), torch.ones(2, 3, 4, dtype=torch.bool)
    lengths, returns = torch.full((2, 3), 4), draw(2, 3, seed=1)
    expected = return_loss(rewards, valid, returns) / 16
    torch.testing.assert_close(rrd_losses(rewards, valid, lengths, returns)[0], expected)
    torch.testing.assert_close(rrd_losses(rewards, valid, lengths, returns)[1], expected)


def test_unbiased_rrd_has_the_expectation_of_the_return_loss_and_the_biased_one_more() -> None:
    rewards = draw(1, 1, 10)
    returns, lengths = torch.tensor([[3.0]]), torch.tensor([[10]])
    exact = return_loss(rewards, torch.ones(1, 1, 10, dtype=torch.bool), returns) / 100
    subsets = torch.combinations(torch.arange(10), 3)  # all of them: the exact expectation
    drawn = rewards[:, 0, subsets]
    count = len(subsets)
    arguments = (
        drawn,
        torch.ones_like(drawn, dtype=torch.bool),
        lengths.expand(1, count),
        returns.expand(1, count),
    )
    torch.testing.assert_close(rrd_losses(*arguments)[1], exact)
    assert rrd_losses(*arguments)[0] > exact + 0.01


def test_unbiased_rrd_pushes_drawn_rewards_apart_against_the_pull_of_drawing() -> None:
    rewards = torch.tensor([[[0.0, 4.0]]], requires_grad=True)
    valid = torch.ones(1, 1, 2, dtype=torch.bool)
    arguments = (rewards, valid, torch.tensor([[4]]), torch.tensor([[8.0]]))
    biased = torch.autograd.grad(rrd_losses(*arguments)[0].sum(), rewards)[0]
    unbiased = torch.autograd.grad(rrd_losses(*arguments)[1].sum(), rewards)[0]
    assert biased.tolist() == [[[0.0, 0.0]]]
    assert unbiased[0, 0, 0] > 0 > unbiased[0, 0, 1]


def test_rrd_refuses_returns_of_other_shape() -> None:
    valid, lengths = torch.ones(1, 4, 3, dtype=torch.bool), torch.ones(1, 4, dtype=torch.long)
    with pytest.raises(TypeCheckError):
        rrd_losses(torch.zeros(1, 4, 3), valid, lengths, torch.zeros(1, 4, 1))
