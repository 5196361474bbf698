"""Algorithms for discrete actions: their equations, and what their policies do."""

import numpy as np
import pytest
import torch

from grd_offline.core.errors import DataError
from grd_offline.learning.agents.actors import (
    Actor,
    ActorSpec,
    count_weights,
    load_actor,
    save_actor,
)
from grd_offline.learning.agents.agent import Ahead, PolicyBatch
from grd_offline.learning.agents.algorithms import find_algorithm
from grd_offline.learning.agents.discrete import DiscreteIql, Dqn
from grd_offline.learning.agents.losses import weighted_choice_loss

STATES, CHOICES = 3, 4


def make_agent(kind, members=2, **options):
    def fill(value):
        return torch.full((members,), value)

    return kind(
        STATES, CHOICES, seeds=range(members), hidden=(8,), rates=fill(1e-2), discounts=fill(0.9),
        target_rates=fill(0.1), **options,
    )  # fmt: skip


def make_batch(members=2, size=5, terminated=0.0):
    generator = torch.Generator().manual_seed(0)
    here, there = torch.randn((2, members, size, STATES), generator=generator)
    chosen = torch.randint(CHOICES, (members, size), generator=generator)
    actions = 2.0 * torch.nn.functional.one_hot(chosen, CHOICES) - 1
    ends = torch.full((members, size), terminated)
    rewards = torch.randn((members, size), generator=generator)
    return PolicyBatch(here, actions, there, ends, rewards, torch.zeros(members, size, 0)), chosen


def apply(network, member, inputs):
    """A network worked out in numpy."""
    first, last = (
        (w[member].detach().numpy(), b[member].detach().numpy())
        for w, b in zip(network.weights, network.biases, strict=True)
    )
    return np.maximum(inputs.numpy() @ first[0] + first[1], 0) @ last[0] + last[1]


@pytest.mark.parametrize("terminated", [0.0, 1.0])
def test_double_q_learning_by_hand(terminated):
    agent = make_agent(Dqn)
    with torch.no_grad():  # so that both critics differ
        agent.adams["critic"].flat.values.add_(0.3)
    batch, chosen = make_batch(terminated=terminated)
    agent.note_rewards(batch.rewards)
    losses, _ = agent.compute_critic_losses(batch)
    for member in range(2):
        best = apply(agent.critic, member, batch.next_observations[member]).argmax(1)
        worth = apply(agent.target_critic, member, batch.next_observations[member])
        later = 0.9 * (1 - terminated) * worth[np.arange(5), best]
        values = apply(agent.critic, member, batch.observations[member])
        gaps = values[np.arange(5), chosen[member]] - batch.rewards[member].numpy() - later
        assert losses[member].item() == pytest.approx((gaps**2).mean(), rel=1e-4)


@pytest.mark.parametrize(("discount", "mean"), [(0.9, 0.0), (0.9, 2.0), (1.0, 2.0)])
def test_targets_that_look_several_steps_ahead_by_hand(discount, mean):
    agent = make_agent(Dqn)
    agent.discounts.fill_(discount)
    agent.mean_rewards.fill_(mean)
    agent.least.fill_(-1e6)  # so that no target is out of bounds
    agent.largest.fill_(1e6)
    batch, chosen = make_batch()
    rewards = np.arange(10.0).reshape(2, 5) - 3
    counts = np.array([[1, 2, 3, 4, 5], [5, 5, 1, 1, 2]])
    ended = np.array([[1, 0, 1, 0, 0], [0, 1, 0, 0, 1]])
    after = torch.randn((2, 5, STATES), generator=torch.Generator().manual_seed(1))
    numbers = (torch.tensor(part, dtype=torch.float32) for part in (rewards, counts, ended))
    total, steps, ends = numbers
    each = torch.zeros(2, 5, 5)
    batch = batch._replace(ahead=Ahead(total, each, steps, after, ends))
    targets = agent.compute_targets(batch, agent.compute_next_values(batch.look_ahead()))
    _, surprises = agent.compute_critic_losses(batch)
    for member in range(2):
        best = apply(agent.critic, member, after[member]).argmax(1)
        worth = apply(agent.target_critic, member, after[member])[np.arange(5), best]
        values, gaps = apply(agent.critic, member, batch.observations[member]), []
        for row, count in enumerate(counts[member]):
            often = sum(discount**k for k in range(count))
            expected = rewards[member, row] - mean * often
            expected += discount**count * (1 - ended[member, row]) * worth[row]
            assert targets[member, row].item() == pytest.approx(expected, rel=1e-4, abs=1e-5)
            gaps.append((expected - values[row, chosen[member, row]]) / often)
        # The mean reward follows at the same pace, however far targets look ahead.
        assert surprises[member].item() == pytest.approx(np.mean(gaps), rel=1e-4)


@pytest.mark.parametrize(
    ("rewards", "discount", "low", "high"),
    [
        ((1.0, 1.0), 0.9, 1.0, 10.0),
        ((-1.0, -1.0), 0.9, -10.0, -1.0),  # at best the next step is the last
        ((-2.0, 3.0), 0.9, -20.0, 30.0),
        ((0.0, 3.0), 1.0, 0.0, np.inf),
        ((1.0, np.nan), 0.9, 1.0, 10.0),
    ],
)
def test_targets_of_dqn_stay_within_what_can_be_earned(rewards, discount, low, high):
    for value in (-1e6, 1e6):
        agent = make_agent(Dqn)
        agent.discounts.fill_(discount)
        with torch.no_grad():
            agent.target_critic.biases[-1].fill_(value)
        batch, _ = make_batch()
        for reward in rewards:
            batch.rewards.fill_(reward)
            agent.note_rewards(batch.rewards)
        batch.rewards.fill_(rewards[0])
        targets = agent.compute_targets(batch, agent.compute_next_values(batch)).detach()
        expected = max(min(rewards[0] + discount * value, high), low)
        np.testing.assert_allclose(targets, expected, rtol=1e-4)


def test_bounds_of_targets_are_part_of_a_checkpoint():
    agent, other = make_agent(Dqn), make_agent(Dqn)
    agent.update(make_batch()[0])
    state = agent.state()
    other.load_state(state)
    assert torch.equal(other.largest, agent.largest)
    assert torch.isfinite(other.largest).all()


def test_the_policy_of_dqn_takes_what_the_target_critic_likes_best():
    agent = make_agent(Dqn)
    batch, _ = make_batch()
    for _ in range(3):
        agent.update(batch)
    assert agent.loss_names == ("critic",)
    weights = agent.export_actors(np.zeros(STATES), np.ones(STATES))
    spec = ActorSpec("greedy", (STATES, 8, CHOICES), (0.0,) * CHOICES, (1.0,) * CHOICES)
    for member in range(2):
        actor = Actor(spec, weights[member])
        expected = apply(agent.target_critic, member, batch.observations[member]).argmax(1)
        np.testing.assert_array_equal(actor.act_many(batch.observations[member]), expected)


def test_weighted_choices_by_hand():
    logits = torch.log(torch.tensor([[[0.5, 0.25, 0.25], [0.1, 0.1, 0.8]]]))
    choices = torch.tensor([[[1.0, 0, 0], [0, 0, 1]]])
    loss = weighted_choice_loss(logits, choices, torch.tensor([[2.0, 1.0]]))
    assert loss.item() == pytest.approx(-(2 * np.log(0.5) + np.log(0.8)) / 2, rel=1e-5)


def test_iql_prefers_the_choices_that_pay():
    agent = make_agent(DiscreteIql, members=1)
    batch, chosen = make_batch(1, 64)
    rewards = (chosen == 2).float()
    for _ in range(150):
        agent.update(batch._replace(rewards=rewards, terminated=torch.ones_like(rewards)))
    logits = agent.actor(batch.observations)[0]
    assert (logits.argmax(1) == 2).float().mean() > 0.7  # in the data it is one in four


def test_a_policy_chooses_and_explores_as_its_kind_says():
    rng = np.random.default_rng(0)
    bounds = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    # Two inputs and no hidden layer: the outputs are log(0.7), log(0.2), log(0.1) for (1, 0).
    weights = np.concatenate([np.log([0.7, 0.2, 0.1]), np.zeros(3), np.zeros(3)])
    categorical = Actor(ActorSpec("categorical", (2, 3), *bounds, first_choice=5), weights)
    greedy = Actor(ActorSpec("greedy", (2, 3), *bounds, noise=0.3), weights)
    observation = np.array([1.0, 0.0])
    assert categorical.act(observation) == 5
    assert greedy.act(observation) == 0
    drawn = [categorical.act(observation, rng) for _ in range(4000)]
    np.testing.assert_allclose(np.bincount(drawn)[5:] / 4000, [0.7, 0.2, 0.1], atol=0.03)
    drawn = greedy.act_many(np.tile(observation, (4000, 1)), rng)
    np.testing.assert_allclose(np.bincount(drawn) / 4000, [0.8, 0.1, 0.1], atol=0.03)
    vector = greedy.act_with_noise(observation.astype(np.float32), None)
    np.testing.assert_array_equal(vector, [1, 0, 0])


def test_a_saved_policy_of_choices_is_the_same(tmp_path):
    spec = ActorSpec("categorical", (2, 8, 3), (0.0,) * 3, (1.0,) * 3, first_choice=-1)
    actor = Actor(spec, np.random.default_rng(0).normal(size=count_weights(spec)))
    save_actor(tmp_path / "p", actor)
    loaded = load_actor(tmp_path / "p")
    assert loaded.spec == spec
    inputs = np.random.default_rng(1).normal(size=(20, 2))
    np.testing.assert_array_equal(loaded.act_many(inputs), actor.act_many(inputs))
    assert set(loaded.act_many(inputs).tolist()) <= {-1, 0, 1}
    with pytest.raises(DataError, match=r"first_choice: expected a whole number .*, got 0\.5"):
        ActorSpec("greedy", (2, 3), (0.0,) * 3, (1.0,) * 3, first_choice=0.5)


def test_an_algorithm_for_other_actions_is_refused():
    with pytest.raises(DataError, match="backbone: sac is for continuous actions, these are discr"):
        find_algorithm("sac").find_class(is_discrete=True)
    with pytest.raises(
        DataError, match=r"dqn is for discrete .* continuous: use sac or crossq or td"
    ):
        find_algorithm("dqn").find_class(is_discrete=False)
    with pytest.raises(DataError, match=r"algorithm: td3bc is for continuous .*: use iql"):
        find_algorithm("td3bc").find_class(is_discrete=True)
    assert find_algorithm("iql").find_class(is_discrete=True) is DiscreteIql
