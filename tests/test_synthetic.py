"""Worlds whose graph is known must be what they say they are."""

from __future__ import annotations

from dataclasses import asdict
from functools import cache
from typing import Any

import numpy as np
import pytest

from grd_offline.worlds.synthetic import FAMILIES, FactoredWorld, WorldSettings

SEEDS = range(3)
SAMPLES = 300


def make_world(**settings: Any) -> FactoredWorld:
    return FactoredWorld(WorldSettings(**settings))


@cache
def worlds() -> list[FactoredWorld]:
    return [make_world(family=f, graph_seed=s, order=2 + s % 2) for f in FAMILIES for s in SEEDS]


def visited(world: FactoredWorld) -> tuple[np.ndarray, np.ndarray]:
    """States and actions from the middle of random episodes."""
    rollout = world.rollout(np.random.default_rng(1), SAMPLES)
    return rollout.observations[:, 30], rollout.actions[:, 30]


def swap_column(values: np.ndarray, column: int) -> np.ndarray:
    """The same rows with one column taken from other rows."""
    changed = values.copy()
    changed[:, column] = np.roll(values[:, column], 1)
    return changed


def test_roles_agree_with_paths_in_the_graph() -> None:
    for world in worlds():
        reach = world.masks["state_to_reward"].astype(bool)
        direct = reach.copy()
        for _ in range(world.settings.states):
            reach = reach | (world.masks["state_to_state"] @ reach > 0)
        roles = np.array(world.roles)
        assert np.array_equal(direct, roles == "direct")
        assert np.array_equal(reach & ~direct, roles == "indirect")
        assert np.array_equal(~reach, roles == "distractor")
        assert direct.sum() == world.settings.reward_states
        assert (roles == "indirect").sum() == world.settings.indirect
        assert world.masks["action_to_reward"].sum() == world.settings.reward_actions


def test_every_state_has_a_parent_and_most_have_a_self_edge() -> None:
    for world in worlds():
        parents = world.masks["state_to_state"].sum(0) + world.masks["action_to_state"].sum(0)
        assert parents.min() >= 1
        own = np.diag(world.masks["state_to_state"])
        assert 0.5 < own.mean() < 1


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", SEEDS)
def test_only_parents_change_the_reward(family: str, seed: int) -> None:
    world = make_world(family=family, graph_seed=seed, order=2 + seed % 2)
    states, actions = visited(world)
    before = world.reward(states, actions)
    for i, edge in enumerate(world.masks["state_to_reward"]):
        after = world.reward(swap_column(states, i), actions)
        assert_effect(before, after, edge)
    for i, edge in enumerate(world.masks["action_to_reward"]):
        after = world.reward(states, swap_column(actions, i))
        assert_effect(before, after, edge)


def assert_effect(before: np.ndarray, after: np.ndarray, edge: int) -> None:
    """With an edge at least 2 % of the variance goes with the input, without one nothing does."""
    share = ((after - before) ** 2).mean() / (2 * before.var())
    assert share > 0.02 if edge else np.array_equal(before, after)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", SEEDS)
def test_only_parents_change_the_next_state(family: str, seed: int) -> None:
    world = make_world(family=family, graph_seed=seed)
    states, actions = visited(world)

    def advance(states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        return world.step(states, actions, np.random.default_rng(5))

    before = advance(states, actions)
    for i, edges in enumerate(world.masks["state_to_state"]):
        assert_column_effects(before, advance(swap_column(states, i), actions), edges)
    for i, edges in enumerate(world.masks["action_to_state"]):
        assert_column_effects(before, advance(states, swap_column(actions, i)), edges)


def assert_column_effects(before: np.ndarray, after: np.ndarray, edges: np.ndarray) -> None:
    for column, edge in enumerate(edges):
        moved = after[:, column] - before[:, column]
        if edge:
            assert np.sqrt((moved**2).mean() / 2) > 0.08 * before[:, column].std()
        else:
            assert not moved.any()


def test_three_way_term_is_more_than_its_pairs() -> None:
    """The mixed difference over three inputs is zero for order 2 and is not for order 3."""
    for family in FAMILIES:
        for order in (2, 3):
            world = make_world(family=family, order=order, graph_seed=2)
            triples = [t.inputs for t in world.reward_terms if len(t.inputs) == 3]
            assert len(triples) == (order == 3)
            inputs = (
                triples[0] if triples else tuple(np.flatnonzero(world.masks["state_to_reward"]))
            )
            assert bool(np.abs(mixed_difference(world, inputs)).max() > 1e-3) == (order == 3)


def mixed_difference(world: FactoredWorld, inputs: tuple[int, ...]) -> np.ndarray:
    states, actions = visited(world)
    total = np.zeros(SAMPLES)
    for corner in range(8):
        s, a = states, actions
        flips = [k for k in range(3) if corner >> k & 1]
        for k in flips:
            index = inputs[k]
            if index < world.settings.states:
                s = swap_column(s, index)
            else:
                a = swap_column(a, index - world.settings.states)
        total += (-1) ** len(flips) * world.reward(s, a)
    return total


def test_equal_settings_give_equal_worlds_and_data() -> None:
    first, second = make_world(graph_seed=3), make_world(graph_seed=3)
    other = make_world(graph_seed=4)
    one = first.rollout(np.random.default_rng(0), 5)
    two = second.rollout(np.random.default_rng(0), 5)
    for a, b in zip(one, two, strict=True):
        assert np.array_equal(a, b)
    assert first.reward_terms != other.reward_terms
    assert not np.array_equal(one.rewards, other.rollout(np.random.default_rng(0), 5).rewards)


def test_global_random_state_is_left_alone() -> None:
    before = np.random.get_state()[1].tolist()  # noqa: NPY002
    make_world().rollout(np.random.default_rng(0), 3)
    assert np.random.get_state()[1].tolist() == before  # noqa: NPY002


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", range(2))
def test_long_episodes_stay_put(family: str, seed: int) -> None:
    world = make_world(family=family, graph_seed=seed, length=1000, scales=False)
    states = world.rollout(np.random.default_rng(0), 40).observations
    early, late = states[:, 50:150], states[:, -300:]
    assert np.isfinite(states).all()
    assert np.abs(states).max() < 15
    assert (np.abs(early.mean((0, 1)) - late.mean((0, 1))) < 0.6).all()
    assert (np.abs(np.log(early.std((0, 1)) / late.std((0, 1)))) < 0.5).all()


def test_no_policy_makes_states_grow_without_bound() -> None:
    world = make_world(scales=False, graph_seed=1)
    rng = np.random.default_rng(0)
    states = 100 * world.reset(rng, 8)
    actions = np.sign(rng.uniform(-1, 1, (8, 3)))
    for _ in range(500):
        states = world.step(states, actions, rng)
    assert np.abs(states).max() < 30


@pytest.mark.parametrize("family", FAMILIES)
def test_no_state_is_nearly_a_mixture_of_others(family: str) -> None:
    for seed in SEEDS:
        world = make_world(family=family, graph_seed=seed, scales=False)
        states = world.rollout(np.random.default_rng(0), 100).observations[:, 20:]
        correlations = np.corrcoef(states.reshape(-1, 10).T)
        explained = 1 - 1 / np.diag(np.linalg.inv(correlations))
        assert explained.max() < 0.95


def test_returns_differ_more_between_episodes_than_noise_can_make_them() -> None:
    for world in worlds():
        rollout = world.rollout(np.random.default_rng(2), 200)
        noise = world.reward_noise_std**2 * world.settings.length
        assert rollout.returns.var() > 20 * noise


@pytest.mark.parametrize("fraction", [0.0, 0.1, 1.0])
def test_reward_noise_is_the_stated_fraction(fraction: float) -> None:
    world = make_world(reward_noise=fraction, graph_seed=1)
    rollout = world.rollout(np.random.default_rng(0), 200)
    noise = rollout.rewards - rollout.noise_free_rewards
    assert noise.std() == pytest.approx(fraction * rollout.noise_free_rewards.std(), rel=0.08)


def test_scales_change_only_how_states_are_observed() -> None:
    plain = make_world(scales=False).rollout(np.random.default_rng(0), 50)
    scaled = make_world(scales=True).rollout(np.random.default_rng(0), 50)
    np.testing.assert_allclose(plain.rewards, scaled.rewards, rtol=1e-6, atol=1e-6)
    assert plain.observations.std((0, 1)).min() > 0.3
    assert plain.observations.std((0, 1)).max() < 2
    spread = scaled.observations.std((0, 1))
    assert spread.max() / spread.min() > 100


def test_lengths_vary_and_what_lies_past_them_is_zero() -> None:
    world = make_world(length=12, min_length=5)
    rollout = world.rollout(np.random.default_rng(0), 200)
    assert set(rollout.lengths) == set(range(5, 13))
    assert np.array_equal(rollout.valid.sum(1), rollout.lengths)
    for values in (rollout.actions, rollout.rewards, rollout.observations[:, 1:]):
        assert not values[~rollout.valid].any()
        assert values[rollout.valid].all()
    assert (make_world(length=7).rollout(np.random.default_rng(0), 3).lengths == 7).all()


def test_single_states_and_any_leading_shape() -> None:
    world = make_world()
    rng = np.random.default_rng(0)
    states = world.reset(rng, 6).reshape(2, 3, 10)
    actions = rng.uniform(-1, 1, (2, 3, 3))
    rewards = world.reward(states, actions)
    assert rewards.shape == (2, 3)
    assert world.reward(states[1, 2], actions[1, 2]) == pytest.approx(rewards[1, 2])
    assert world.step(states, actions, rng).shape == states.shape
    assert world.reset(rng).shape == (10,)


@pytest.mark.parametrize(
    "settings",
    [
        {"states": 1, "actions": 1, "reward_states": 1, "reward_actions": 0, "indirect": 0},
        {"states": 2, "actions": 1, "reward_states": 0, "reward_actions": 1, "indirect": 0},
        {"states": 5, "reward_states": 3, "indirect": 2, "density": 1.0, "action_density": 1.0},
        {"process_noise": 0.0, "density": 0.0, "action_density": 0.0},
        {"process_noise": 0.6, "order": 1},
        {"length": 1},
    ],
)
@pytest.mark.parametrize("family", FAMILIES)
def test_extreme_settings_work(settings: dict[str, Any], family: str) -> None:
    rollout = make_world(family=family, **settings).rollout(np.random.default_rng(0), 20)
    assert np.isfinite(rollout.observations).all()
    assert rollout.returns.std() > 0


def test_wide_worlds() -> None:
    world = make_world(states=100, actions=10, reward_states=5, indirect=5)
    assert world.masks["state_to_reward"].sum() == 5
    assert np.isfinite(world.rollout(np.random.default_rng(0), 5).rewards).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"states": 0}, "states: expected a whole number of at least 1, got 0"),
        ({"states": 2.5}, "states: expected a whole number of at least 1, got 2.5"),
        ({"reward_states": 11}, "reward_states: expected at most 10, got 11"),
        ({"reward_actions": 4}, "reward_actions: expected at most 3, got 4"),
        ({"indirect": 8}, "indirect: expected at most 7, got 8"),
        ({"density": 1.5}, "density: expected at least 0 and at most 1, got 1.5"),
        ({"family": "easy"}, "family: expected one of smooth, hard, got 'easy'"),
        ({"order": 4}, "order: expected at most 3, got 4"),
        ({"reward_noise": -1}, "reward_noise: expected at least 0 and less than inf, got -1"),
        (
            {"reward_noise": float("nan")},
            "reward_noise: expected at least 0 and less than inf, got nan",
        ),
        ({"process_noise": 0.9}, "process_noise: expected at least 0 and at most 0.6, got 0.9"),
        ({"min_length": 101}, "min_length: expected at most 100, got 101"),
        ({"scales": "yes"}, "scales: got 'yes', which has the wrong type"),
        ({"graph_seed": -1}, "graph_seed: expected a whole number of at least 0, got -1"),
        (
            {"reward_states": 0, "reward_actions": 0, "indirect": 0},
            "expected at least 1 for a term of order 2, got 0",
        ),
        ({"reward_states": 0}, "indirect: expected 0 when reward_states is 0"),
        (
            {"order": 3, "reward_states": 1, "reward_actions": 1},
            "expected at least 3 for a term of order 3, got 2",
        ),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=r"expected|wrong type") as caught:
        WorldSettings(**settings)
    assert message in str(caught.value)


def test_settings_survive_a_round_trip_through_a_dict() -> None:
    settings = WorldSettings(family="hard", min_length=20)
    assert WorldSettings(**asdict(settings)) == settings
