from __future__ import annotations

import numpy as np
import pytest
import torch
from jaxtyping import TypeCheckError

from grd_offline.networks.members.nn import (
    DynamicsNet,
    GraphMasks,
    PairRewardNet,
    RewardNet,
    Stack,
    draw_gumbel,
    sample_edges,
)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_stack_applies_each_member_to_its_own_rows() -> None:
    stack = Stack(3, (4, 5, 2), activation="tanh", generator=generator())
    inputs = torch.randn(3, 6, 4, generator=generator(1))
    found = stack(inputs).detach().numpy()
    for member in range(3):
        weights = [w[member].detach().numpy() for w in stack.weights]
        biases = [b[member].detach().numpy() for b in stack.biases]
        hidden = np.tanh(inputs[member].numpy() @ weights[0] + biases[0])
        np.testing.assert_allclose(found[member], hidden @ weights[1] + biases[1], rtol=1e-5)


def test_stack_takes_any_number_of_batch_axes() -> None:
    stack = Stack(2, (3, 4), generator=generator())
    inputs = torch.randn(2, 5, 6, 3, generator=generator(1))
    torch.testing.assert_close(stack(inputs).flatten(1, 2), stack(inputs.flatten(1, 2)))


@pytest.mark.parametrize(("members", "sizes"), [(0, (2, 1)), (1, (2,)), (1, (0, 1))])
def test_stack_refuses_sizes(members: int, sizes: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Stack(members, sizes)


def test_stack_refuses_an_unknown_activation() -> None:
    with pytest.raises(ValueError, match=r"activation: expected one of relu, silu, tanh, got 'x'"):
        Stack(1, (2, 1), activation="x")


def test_networks_leave_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    RewardNet(1, 3, hidden=(4,), generator=generator())
    PairRewardNet(1, 3, generator=generator())
    DynamicsNet(1, 2, 1, hidden=(4,), embedding=2, generator=generator())
    GraphMasks(1, 2, 1, spread=1.0, generator=generator()).sample_reward(2, generator=generator())
    assert torch.equal(torch.get_rng_state(), before)


def make_reward_net(kind: str) -> RewardNet | PairRewardNet:
    if kind == "dense":
        return RewardNet(2, 3, hidden=(8, 8), generator=generator())
    net = PairRewardNet(2, 3, features=4, generator=generator())
    with torch.no_grad():
        net.main.normal_(generator=generator(1))
        net.pairs.normal_(generator=generator(2))
        net.centre.normal_(generator=generator(3))
    return net


@pytest.mark.parametrize("kind", ["dense", "pair"])
def test_masked_input_has_no_effect_and_no_gradient(kind: str) -> None:
    net = make_reward_net(kind)
    inputs = torch.randn(2, 7, 3, generator=generator(4), requires_grad=True)
    mask = torch.tensor([[[1.0, 0.0, 1.0]], [[0.0, 1.0, 1.0]]])
    rewards = net(inputs, mask)
    assert rewards.shape == (2, 7)
    (gradient,) = torch.autograd.grad(rewards.sum(), inputs)
    assert (gradient == 0).logical_xor((mask > 0).expand_as(gradient)).all()


@pytest.mark.parametrize("kind", ["dense", "pair"])
def test_one_mask_per_episode_equals_episodes_one_by_one(kind: str) -> None:
    net = make_reward_net(kind)
    inputs = torch.randn(2, 4, 5, 3, generator=generator(4))
    masks = (torch.rand(2, 4, 1, 3, generator=generator(5)) > 0.5).float()
    together = net(inputs, masks)
    for episode in range(4):
        alone = net(inputs[:, episode], masks[:, episode])
        torch.testing.assert_close(together[:, episode], alone)


def test_pair_net_is_the_sum_of_its_effects() -> None:
    net = make_reward_net("pair")
    assert isinstance(net, PairRewardNet)
    inputs = torch.randn(2, 5, 3, generator=generator(4))
    mask = np.array([1.0, 0.0, 1.0])
    found = net(inputs, torch.tensor(mask).float().expand(2, 1, 3)).detach().numpy()
    parts = {k: v.detach().double().numpy() for k, v in net.state_dict().items()}
    for member in range(2):
        for row in range(5):
            features = np.tanh(
                inputs[member, row].numpy()[:, None] * parts["rates"][member, 0]
                + parts["shifts"][member, 0]
            )
            features = (features - parts["centre"][member, 0]) * mask[:, None]
            main = parts["main"][member].reshape(3, 4)
            pairs = parts["pairs"][member].reshape(3, 4, 3, 4)
            expected = parts["constant"][member, 0] + (main * features).sum()
            for i in range(3):
                for j in range(i + 1, 3):
                    expected += features[i] @ pairs[i, :, j] @ features[j]
            assert found[member, row] == pytest.approx(expected, rel=1e-4, abs=1e-4)


def test_pair_net_refuses_sizes() -> None:
    with pytest.raises(ValueError, match="at least 1, got 1, 0, 8"):
        PairRewardNet(1, 0)


def test_reward_net_refuses_a_mask_of_other_width() -> None:
    with pytest.raises(TypeCheckError):
        RewardNet(2, 3, hidden=(4,))(torch.zeros(2, 5, 3), torch.ones(2, 1, 4))


def test_probabilities_and_greedy_choice() -> None:
    graph = GraphMasks(2, 3, 2, start=1.0, spread=1.0, generator=generator())
    logits = graph.state_to_state.detach().numpy()
    expected = np.exp(logits[..., 0]) / np.exp(logits).sum(-1)
    np.testing.assert_allclose(
        graph.compute_probabilities().state_to_state.detach(), expected, rtol=1e-5
    )
    np.testing.assert_array_equal(graph.choose().state_to_state, (expected >= 0.5).astype(float))


def test_a_tie_keeps_the_edge() -> None:
    assert (GraphMasks(1, 2, 1).choose().state_to_reward == 1).all()


def test_samples_are_hard_and_as_frequent_as_they_should_be() -> None:
    graph = GraphMasks(1, 3, 2, start=1.5)
    samples = graph.sample_reward(20_000, generator=generator())
    assert samples.shape == (1, 20_000, 5)
    assert set(samples.unique().tolist()) == {0.0, 1.0}
    expected = 1 / (1 + np.exp(-1.5))
    np.testing.assert_allclose(samples.detach().mean((0, 1)), expected, atol=0.01)


def test_samples_repeat_with_their_generator() -> None:
    graph = GraphMasks(2, 3, 2)
    first, again = (graph.sample_dynamics(4, generator=generator(7)) for _ in range(2))
    assert first.shape == (2, 4, 5, 3)
    assert torch.equal(first, again)


def test_gradient_of_a_hard_sample_is_that_of_the_soft_one() -> None:
    logits = torch.randn(4, 2, generator=generator(), requires_grad=True)
    noise = draw_gumbel((4, 2), device=torch.device("cpu"), generator=generator(1))
    weights = torch.arange(4.0)
    (hard,) = torch.autograd.grad(
        (sample_edges(logits, noise, temperature=0.7) * weights).sum(), logits
    )
    soft = torch.softmax((logits + noise) / 0.7, -1)[..., 0]
    (expected,) = torch.autograd.grad((soft * weights).sum(), logits)
    torch.testing.assert_close(hard, expected)


def make_dynamics(embedding: int) -> DynamicsNet:
    return DynamicsNet(2, 3, 1, hidden=(8,), embedding=embedding, generator=generator())


@pytest.mark.parametrize(("embedding", "equal"), [(0, True), (2, False)])
def test_equal_masks_give_equal_predictions_without_an_embedding(
    embedding: int, equal: bool
) -> None:
    inputs = torch.randn(2, 5, 4, generator=generator(1))
    mixture = make_dynamics(embedding)(inputs, torch.ones(2, 1, 4, 3), torch.arange(3))
    assert mixture.means.shape == (2, 5, 3, 3)
    assert torch.allclose(mixture.means[:, :, 0], mixture.means[:, :, 1]) == equal


def test_a_cause_acts_on_the_effects_of_its_row_only() -> None:
    inputs = torch.randn(2, 5, 4, generator=generator(1), requires_grad=True)
    mask = torch.zeros(2, 1, 4, 3)
    mask[:, :, 1, 2] = 1.0  # cause 1, effect 2
    means = make_dynamics(2)(inputs, mask, torch.arange(3)).means
    for effect in range(3):
        (gradient,) = torch.autograd.grad(means[:, :, effect].sum(), inputs, retain_graph=True)
        moved = (gradient != 0).any(0).any(0)
        assert moved.tolist() == [False, effect == 2, False, False]


def test_a_subset_of_outputs_is_a_part_of_all() -> None:
    inputs = torch.randn(2, 5, 4, generator=generator(1))
    mask = (torch.rand(2, 5, 4, 3, generator=generator(2)) > 0.5).float()
    net, chosen = make_dynamics(2), torch.tensor([2, 0])
    part = net(inputs, mask[..., chosen], chosen)
    for few, all_of_them in zip(part, net(inputs, mask, torch.arange(3)), strict=True):
        torch.testing.assert_close(few, all_of_them[:, :, chosen])


def test_log_std_is_clamped() -> None:
    net = DynamicsNet(1, 2, 1, hidden=(4,), log_std_range=(-1.0, 0.5), generator=generator())
    stds = net(1e4 * torch.randn(1, 50, 3), torch.ones(1, 1, 3, 2), torch.arange(2)).log_stds
    assert stds.min() == -1.0
    assert stds.max() == 0.5


def test_dynamics_net_refuses_a_mask_of_other_outputs() -> None:
    with pytest.raises(TypeCheckError):
        make_dynamics(0)(torch.zeros(2, 5, 4), torch.ones(2, 1, 3, 3), torch.arange(3))


def test_some_networks_of_a_stack_are_normalised():
    stack = Stack(2, (3, 8, 8, 1), generator=generator(0))
    inputs = torch.randn((2, 5, 3), generator=generator(1))
    plain = stack(inputs)
    stack.normalise([False, True])
    mixed = stack(inputs)
    assert torch.equal(mixed[0], plain[0])
    hidden = inputs[1]
    for weight, bias in zip(stack.weights[:-1], stack.biases[:-1], strict=True):
        hidden = hidden @ weight[1] + bias[1]
        centred = hidden - hidden.mean(1, keepdim=True)
        hidden = torch.relu(centred / (centred.square().mean(1, keepdim=True) + 1e-5).sqrt())
    expected = hidden @ stack.weights[-1][1] + stack.biases[-1][1]
    torch.testing.assert_close(mixed[1], expected)
    stack.leaves = [
        [(w[k], b[k]) for w, b in zip(stack.weights, stack.biases, strict=True)] for k in range(2)
    ]
    torch.testing.assert_close(stack(inputs), mixed)
