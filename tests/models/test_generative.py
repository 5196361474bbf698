"""The paper's model: its losses against the equations, whichever way episodes lie."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from grd_offline.methods import paper
from grd_offline.methods.paper import JOINT_NET, PAPER, GenerativeSettings
from grd_offline.networks.losses import SparsityWeights, dynamics_loss, return_loss, sparsity_loss
from grd_offline.networks.members.nn import RewardNet, sample_edges

MEMBERS, STATES, ACTIONS, EPISODES, LENGTHS = 2, 3, 2, 2, (4, 6)
INPUTS = STATES + ACTIONS
LAMBDAS = SparsityWeights(0.1, 0.2, 0.3, 0.4, 0.5)


def make_model(settings: GenerativeSettings = PAPER, **options: object) -> paper.GenerativeModel:
    generator = torch.Generator().manual_seed(0)
    return paper.GenerativeModel(
        settings.build_graph(MEMBERS, STATES, ACTIONS, generator=generator),
        RewardNet(MEMBERS, INPUTS, hidden=(8, 8), generator=generator),
        settings.build_dynamics(MEMBERS, STATES, ACTIONS, generator=generator),
        settings=settings,
        lambdas=LAMBDAS,
        rates=torch.full((MEMBERS,), 1e-2),
        **options,  # type: ignore[arg-type]
    )


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def make_trajectories() -> paper.Trajectories:
    """Padded: each episode has a row of its own."""
    valid = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS).unsqueeze(1)
    inputs = draw(MEMBERS, EPISODES, max(LENGTHS), INPUTS)
    return paper.Trajectories(
        inputs, valid.expand(MEMBERS, -1, -1), draw(MEMBERS, EPISODES, seed=1)
    )


def lay_end_to_end(batch: paper.Trajectories) -> paper.Trajectories:
    parts = [batch.inputs[:, index, :length] for index, length in enumerate(LENGTHS)]
    owner = torch.arange(EPISODES).repeat_interleave(torch.tensor(LENGTHS))
    valid = owner == torch.arange(EPISODES).unsqueeze(1)
    inputs = torch.cat(parts, 1).unsqueeze(1)
    return batch._replace(inputs=inputs, valid=valid.expand(MEMBERS, -1, -1))


def make_transitions(outputs: tuple[int, ...] = tuple(range(STATES))) -> paper.TransitionBatch:
    inputs, targets = draw(MEMBERS, 10, INPUTS, seed=2), draw(MEMBERS, 10, STATES, seed=3)
    return paper.TransitionBatch(inputs, targets, torch.tensor(outputs))


def make_noise(copies: int = 1) -> tuple[Tensor, Tensor]:
    return draw(MEMBERS, copies, INPUTS, 2, seed=4), draw(MEMBERS, 1, INPUTS, STATES, 2, seed=5)


def test_losses_are_the_equations() -> None:
    model, batch, steps = make_model(discount=0.9), make_trajectories(), make_transitions()
    noise = make_noise()
    losses = model.compute_losses(batch, steps, *noise)
    graph = model.graph
    logits = torch.cat([graph.state_to_reward, graph.action_to_reward], 1)
    mask = sample_edges(logits, noise[0][:, 0], temperature=1.0).view(MEMBERS, 1, 1, INPUTS)
    rewards = model.reward(batch.inputs, mask)
    expected = return_loss(rewards, batch.valid, batch.returns, discount=0.9)
    torch.testing.assert_close(losses.reward, expected)
    logits = torch.cat([graph.state_to_state, graph.action_to_state], 1)
    mask = sample_edges(logits, noise[1][:, 0], temperature=1.0).unsqueeze(1)
    mixture = model.dynamics(steps.inputs, mask, steps.outputs)
    torch.testing.assert_close(losses.dynamics, dynamics_loss(*mixture, steps.next_states))
    expected = sparsity_loss(*graph.compute_probabilities(), weights=LAMBDAS)
    torch.testing.assert_close(losses.sparsity, expected)
    torch.testing.assert_close(losses.total, losses.reward + losses.dynamics + losses.sparsity)


@pytest.mark.parametrize("copies", [1, EPISODES])
def test_episodes_may_lie_end_to_end(copies: int) -> None:
    model, batch, noise = make_model(), make_trajectories(), make_noise(copies)
    padded = model.compute_losses(batch, make_transitions(), *noise)
    flat = model.compute_losses(lay_end_to_end(batch), make_transitions(), *noise)
    torch.testing.assert_close(padded.reward, flat.reward)


def test_an_expected_subset_of_dimensions_has_the_whole_loss() -> None:
    model, noise = make_model(), make_noise()
    whole = model.compute_losses(make_trajectories(), make_transitions(), *noise).dynamics
    parts = [
        model.compute_losses(make_trajectories(), make_transitions(outputs), *noise).dynamics
        for outputs in itertools.combinations(range(STATES), 2)
    ]
    torch.testing.assert_close(torch.stack(parts).mean(0), whole)


def test_while_dense_every_edge_is_on_and_free() -> None:
    model, batch = make_model(JOINT_NET), make_trajectories()
    noise, dense = draw(MEMBERS, EPISODES, INPUTS, 2), torch.ones(())
    rewards = model.reward(batch.inputs, torch.ones(MEMBERS, 1, 1, INPUTS))
    expected = return_loss(rewards, batch.valid, batch.returns)
    torch.testing.assert_close(model.compute_return_loss(batch, noise, dense), expected)
    steps, every = make_transitions(), torch.ones(MEMBERS, 1, INPUTS, STATES)
    mixture = model.dynamics(steps.inputs, every[..., steps.outputs], steps.outputs)
    targets = steps.next_states.index_select(2, steps.outputs)
    expected = dynamics_loss(*mixture, targets, dimensions=STATES)
    noise = draw(MEMBERS, 8, INPUTS, STATES, 2)
    torch.testing.assert_close(model.compute_dynamics_loss(steps, noise, dense), expected)
    assert model.compute_sparsity_loss(dense).tolist() == [0.0] * MEMBERS
    edges = sum(part.sum() for part in model.graph.compute_probabilities())
    later = model.compute_sparsity_loss(torch.zeros(()))
    torch.testing.assert_close(later.sum(), 0.003 * edges)


def test_one_step_moves_all_three_parts_and_the_loss_falls() -> None:
    model = make_model()
    parts = (make_trajectories(), make_transitions(), *make_noise())
    modules = (model.graph, model.reward, model.dynamics)
    before = [p.detach().clone() for module in modules for p in module.parameters()]
    first = model.compute_losses(*parts).total.detach()
    for _ in range(20):
        model.step(model.compute_losses(*parts).total)
    assert (model.compute_losses(*parts).total < first).all()
    after = [p for module in modules for p in module.parameters()]
    assert all(not torch.equal(old, new) for old, new in zip(before, after, strict=True))


def test_rewards_in_use_are_behind_the_greedy_masks() -> None:
    model, inputs = make_model(), draw(MEMBERS, 7, INPUTS)
    mask = model.choose_reward_mask()
    assert set(mask.unique().tolist()) == {0.0, 1.0}
    expected = model.reward(inputs, mask.unsqueeze(1))
    assert torch.equal(model.compute_rewards(inputs), expected)
    changed = torch.where(mask.unsqueeze(1) > 0, inputs, inputs + 5)
    assert torch.equal(model.compute_rewards(changed), expected)
