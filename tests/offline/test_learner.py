"""One update of offline agents: data, batches, members that do not see each other."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from offline_learners import EPISODES, TRUE, make_learner, make_settings
from traced import run_traced

from grd_offline.core.episodes import Episode, EpisodeSet
from grd_offline.core.errors import DataError
from grd_offline.learning.agents.actors import Actor, ActorSpec
from grd_offline.learning.agents.algorithms import list_offline
from grd_offline.learning.offline.run import (
    OfflineLearner,
    find_bounds,
    find_units,
    make_transitions,
)

ALGORITHMS = list_offline()


def make_episode(length, *, states=2, final=True, terminated=False, truncated=True):
    flags = np.zeros((2, length), bool)
    flags[:, -1] = terminated, truncated
    observations = np.arange((length + final) * states, dtype=np.float32).reshape(-1, states)
    actions = np.linspace(-1, 1, length, dtype=np.float32)[:, None]
    return Episode(
        observations, actions, np.zeros(length), flags[0], flags[1], np.ones(length, bool)
    )


def test_transitions_know_what_follows_and_what_ends():
    episodes = EpisodeSet.from_episodes(
        [
            make_episode(3),
            make_episode(2, terminated=True, truncated=False),
            make_episode(2, final=False),
            make_episode(2, final=False, terminated=True, truncated=False),
        ]
    )
    transitions = make_transitions(episodes)
    # The last step of the third episode is left out: nobody knows what followed.
    assert transitions.kept.tolist() == [0, 1, 2, 3, 4, 5, 7, 8]
    assert transitions.terminated.tolist() == [0, 0, 0, 0, 1, 0, 0, 1]
    np.testing.assert_array_equal(
        transitions.actions, np.concatenate([e.actions for e in episodes])[transitions.kept]
    )
    here, after = (
        transitions.observations[rows] for rows in (transitions.rows, transitions.rows + 1)
    )
    np.testing.assert_array_equal(here[:3], episodes[0].observations[:-1])
    np.testing.assert_array_equal(after[:3], episodes[0].observations[1:])
    np.testing.assert_array_equal(after[5], episodes[2].observations[1])


def test_what_cannot_be_learned_from_is_refused():
    one = EpisodeSet.from_episodes([make_episode(1, final=False)])
    with pytest.raises(DataError, match="no step has a known next observation"):
        make_transitions(one)
    several = EpisodeSet.from_episodes([make_episode(3)], discrete_actions=True)
    with pytest.raises(DataError, match="actions: several choices at once"):
        make_transitions(several)
    with pytest.raises(DataError, match="actions: dimension 1 is always 2"):
        find_bounds(np.array([[0.0, 2.0], [1.0, 2.0]], np.float32))


def test_returns_span_the_longest_episode():
    rewards = np.array([1.0, 1.0, 2.0, 3.0, 3.0])
    for terminated, shift in ((False, 2.0), (True, 0.0)):
        last = make_episode(3, terminated=terminated, truncated=not terminated)
        episodes = EpisodeSet.from_episodes([make_episode(2), last])
        # Returns of 2 and 8. The mean goes only where nothing but the clock ends episodes.
        assert find_units(rewards, episodes) == (shift, 3 / 6)
    assert find_units(np.zeros(5), episodes) == (0.0, 1.0)


@pytest.mark.parametrize("lengths", [(3, 3), (2, 3)])
def test_a_large_mean_hides_nothing_where_only_the_clock_ends_episodes(lengths):
    rewards = np.random.default_rng(0).normal(size=sum(lengths))
    episodes = EpisodeSet.from_episodes([make_episode(length) for length in lengths])
    units = [find_units(rewards + shift, episodes) for shift in (0.0, 1e6)]
    plain, moved = (
        (rewards + constant - shift) * scale
        for (shift, scale), constant in zip(units, (0.0, 1e6), strict=True)
    )
    assert np.corrcoef(plain, moved)[0, 1] == pytest.approx(1)
    assert 0.1 < moved.std() / plain.std() < 10
    constant = find_units(np.full(sum(lengths), 0.1), episodes)
    assert constant.scale < 1e3  # rounding is not brought to unit scale


def test_returns_that_differ_by_rounding_are_alike():
    """Then rewards count by their sizes, and sources keep their proportion to each other."""
    episodes = EpisodeSet.from_episodes([make_episode(2), make_episode(3, terminated=True)])
    at_end = find_units(np.array([0.0, 1.0, 0.0, 0.0, 1.0]), episodes)
    even = find_units(np.array([1 / 2, 1 / 2, 1 / 3, 1 / 3, 1 / 3 + 1e-15]), episodes)
    assert at_end.scale == pytest.approx(even.scale) == pytest.approx(3)
    cancelling = find_units(np.array([5.0, -4.9, -4.9, 5.0, 1e-13]), episodes)
    assert cancelling.scale == pytest.approx(3 / 9.9)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_member_in_a_group_equals_it_alone(algorithm):
    settings = make_settings(algorithm=algorithm)
    members = settings.make_members()
    group = make_learner(settings)
    group.run_updates(20)
    weights = group.export_actors()
    assert not np.allclose(weights[0], weights[1], atol=1e-3)
    assert not np.allclose(weights[0], weights[2], atol=1e-4)
    for index, member in enumerate(members):
        alone = make_learner(settings, [member])
        alone.run_updates(20)
        np.testing.assert_allclose(
            alone.export_actors()[0], weights[index], rtol=1e-4, atol=1e-5, err_msg=member.name
        )


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_same_seed_gives_the_same_weights(algorithm):
    settings = make_settings(algorithm=algorithm)
    first, second = make_learner(settings), make_learner(settings)
    for one in (first, second):
        one.run_updates(5)
    np.testing.assert_array_equal(first.export_actors(), second.export_actors())


def test_members_of_a_seed_start_alike_and_see_the_same_batches():
    learner = make_learner(make_settings())
    weights = learner.export_actors()
    np.testing.assert_array_equal(weights[0], weights[2])
    batch = learner._draw_batch(learner.counter)
    assert torch.equal(batch.observations[1], batch.observations[3])
    assert torch.equal(batch.rewards[1], -batch.rewards[3])
    assert not torch.equal(batch.observations[0], batch.observations[1])


def test_batches_hold_steps_that_belong_together_all_equally_often():
    settings = make_settings(rewards=("true",), seeds=1, batch=4000)
    learner = make_learner(settings)
    batch = learner._draw_batch(learner.counter)
    place, next_place = (
        part[0, :, 0] * learner.std[0] + learner.mean[0]
        for part in (batch.observations.double(), batch.next_observations.double())
    )
    torch.testing.assert_close(batch.rewards[0].double(), -(place**2), rtol=1e-4, atol=1e-4)
    moved = (place + 0.5 * batch.actions[0, :, 0].double()).clamp(-3, 3)
    torch.testing.assert_close(next_place, moved, rtol=1e-4, atol=1e-4)
    counts = np.unique(batch.observations[0, :, 1].numpy(), return_counts=True)[1]
    assert len(counts) == 400
    assert counts.mean() == 10
    assert counts.var() == pytest.approx(10, rel=0.4)


@pytest.mark.long
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(("terminated", "value"), [(True, 1.0), (False, 2.0)])
def test_values_go_on_after_a_time_limit_and_not_after_an_end(algorithm, terminated, value):
    """A reward of 1 at every step, discount 1/2: worth 2 if it goes on for ever, 1 if it ends."""
    episode = make_episode(1, terminated=terminated, truncated=not terminated)
    constant = Episode(
        np.zeros((2, 2)), episode.actions, episode.rewards, episode.terminations,
        episode.truncations, episode.delivered,
    )  # fmt: skip
    settings = make_settings(
        algorithm=algorithm, rewards=("one",), seeds=1, discount=0.5, learning_rate=2e-2,
        target_rate=0.5,
    )  # fmt: skip
    learner = OfflineLearner(
        settings, settings.make_members(), make_transitions(EpisodeSet.from_episodes([constant])),
        {"one": np.ones(1)}, low=[-1.0], high=[1.0], device=torch.device("cpu"),
    )  # fmt: skip
    learner.run_updates(150)
    agent = learner.agent
    with torch.no_grad():
        values = agent.compute_values(
            agent.critic, torch.zeros(1, 1, 2), torch.full((1, 1, 1), -1.0)
        )
    np.testing.assert_allclose(values.flatten(), value, atol=0.1)


def test_a_policy_takes_observations_as_they_are():
    settings = make_settings(rewards=("true",))
    learner = make_learner(settings, low=[-4.0], high=[2.0])
    learner.run_updates(10)
    raw = np.random.default_rng(0).normal(3.0, 5.0, (7, 2)).astype(np.float32)
    normalised = torch.from_numpy(((raw - learner.mean) / learner.std).astype(np.float32))
    with torch.no_grad():
        chosen = torch.tanh(learner.agent.acting(normalised.expand(2, 7, 2)))
        expected = chosen.numpy() * 3.0 - 1.0
    spec = ActorSpec("deterministic", (2, 8, 8, 1), (-4.0,), (2.0,))
    for weights, actions in zip(learner.export_actors(), expected, strict=True):
        np.testing.assert_allclose(Actor(spec, weights).act_many(raw), actions, atol=1e-5)


@pytest.mark.parametrize("constant", [100.0, 1e5])
def test_what_never_changes_does_not_spoil_a_policy(constant):
    """Its weights, divided by a spread of nothing, would cancel in float32."""
    changed = [
        replace(
            episode, observations=np.c_[np.full(len(episode) + 1, constant), episode.observations]
        )
        for episode in EPISODES
    ]
    settings = make_settings(rewards=("true",), seeds=1)
    learner = OfflineLearner(
        settings, settings.make_members(), make_transitions(EpisodeSet.from_episodes(changed)),
        {"true": TRUE}, low=[-1.0], high=[1.0], device=torch.device("cpu"),
    )  # fmt: skip
    learner.run_updates(10)
    raw = np.random.default_rng(0).normal(0.0, 2.0, (7, 3)).astype(np.float32)
    raw[:, 0] = constant
    with torch.no_grad():
        inputs = torch.from_numpy((raw - learner.mean) / learner.std)
        expected = torch.tanh(learner.agent.acting(inputs[None]))[0]
    actor = Actor(
        ActorSpec("deterministic", (3, 8, 8, 1), (-1.0,), (1.0,)), learner.export_actors()[0]
    )
    np.testing.assert_allclose(actor.act_many(raw), expected, atol=1e-5)
    assert np.ptp(expected.numpy()) > 0.01


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_policy_is_the_mean_of_the_actors_last_steps(algorithm):
    settings = make_settings(algorithm=algorithm, rewards=("true",), seeds=1, averaging=0.2)
    learner, expected, step = make_learner(settings), None, 0
    agent = learner.agent
    for update in range(60):
        moves = agent.moves_actor(update)
        learner.run_updates(1)
        actor = agent.adams["actor"].flat.values.numpy().copy()
        if moves:
            step += 1
            rate = 1 / max(0.2 * step, 1.0)
            expected = actor if expected is None else expected + rate * (actor - expected)
            np.testing.assert_allclose(agent.averages.values, expected, rtol=1e-4, atol=1e-6)
    assert np.abs(expected - actor).max() > 1e-3
    plain = make_learner(replace(settings, averaging=0.0))
    plain.run_updates(60)
    assert plain.agent.acting is plain.agent.actor


def test_a_member_whose_rewards_are_not_finite_is_skipped_alone():
    settings = make_settings(seeds=1)
    learner, healthy = make_learner(settings), make_learner(settings)
    learner.rewards[0] = torch.nan
    for one in (learner, healthy):
        one.run_updates(6)
    assert learner.count_skipped().tolist() == [6, 0]
    np.testing.assert_array_equal(learner.export_actors()[1], healthy.export_actors()[1])


TRACED = """
from grd_offline.learning.agents.algorithms import list_offline
from offline_learners import make_learner, make_settings
from traced import compare

for algorithm in list_offline():
    compare(make_learner, make_settings(algorithm=algorithm, rewards=("true",), seeds=1), 4)
print("equal")
"""


@pytest.mark.long
def test_traced_updates_equal_plain_ones():
    """What is recorded on an accelerator, traced here without making kernels of it."""
    run_traced(TRACED)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"algorithm": "bc"}, "algorithm: expected one of iql, td3bc, got 'bc'"),
        ({"rewards": ()}, "rewards: expected at least one"),
        ({"rewards": ("true", "true")}, "rewards: got the same value twice"),
        ({"rewards": ("../true",)}, "rewards: expected letters"),
        ({"seeds": 0}, "seeds: expected a whole number of at least 1, got 0"),
        ({"discount": 1.5}, "discount: expected more than 0 and at most 1, got 1.5"),
        ({"alpha": 0.0}, "alpha: expected more than 0"),
    ],
)
def test_settings_that_cannot_be_are_refused(changes, words):
    with pytest.raises(DataError, match=words):
        make_settings(**changes)
