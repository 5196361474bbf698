"""One update of everything that learns: members do not see each other, models fit their data."""

import numpy as np
import pytest
import torch
from online_learners import ACTIONS, STATES, make_episode, make_learner, make_settings
from traced import run_traced

from grd_offline.core.errors import DataError
from grd_offline.core.steps import StepBatch
from grd_offline.learning.online.sources import (
    Quadratic,
    Solver,
)
from grd_offline.learning.settings import LAMBDAS, OnlineSettings, parse_sets


def draw(*shape):
    """Uniform numbers, the same in every run."""
    return torch.rand(shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.long
@pytest.mark.parametrize("backbone", ["sac", "crossq", "td3", "ddpg"])
def test_a_member_in_a_group_equals_it_alone(backbone):
    settings = make_settings(
        backbone=backbone, sets={"lambda_state_reward": (0.0,), "policy_discount": (0.9, 1.0)}
    )
    members = settings.make_members()
    group = make_learner(settings)
    group.run_updates(10)
    weights = group.export_actors()
    for index in range(0, len(members), 5):
        alone = make_learner(settings, [members[index]])
        alone.run_updates(10)
        np.testing.assert_allclose(
            alone.export_actors()[0], weights[index], rtol=1e-3, atol=1e-5,
            err_msg=members[index].name,
        )  # fmt: skip
        source, place = group.find_source(index)
        for theirs, ours in zip(
            (p for s in alone.sources for p in walk(s.state())), walk(source.state()), strict=True
        ):
            chosen = ours[place : place + 1] if ours.shape[0] == source.size else ours
            torch.testing.assert_close(theirs, chosen, rtol=1e-3, atol=1e-5)


def walk(state):
    """The tensors of a source's state that have a member axis."""
    if isinstance(state, torch.Tensor):
        yield state
    elif isinstance(state, dict):
        for name, part in state.items():
            if name != "solvers" and not isinstance(part, np.ndarray) and name != "range":
                yield from walk(part)


def test_seeds_differ_and_the_same_seed_does_not():
    settings = make_settings(methods=("oracle",), fits=("paper",))
    learner, again = make_learner(settings), make_learner(settings)
    learner.run_updates(3)
    again.run_updates(3)
    weights = learner.export_actors()
    assert not np.allclose(weights[0], weights[1])
    np.testing.assert_array_equal(weights, again.export_actors())


@pytest.mark.parametrize("backbone", ["sac", "crossq"])
def test_saved_and_loaded_goes_on_the_same(backbone):
    settings = make_settings(backbone=backbone)
    learner = make_learner(settings)
    learner.run_updates(4)
    other = make_learner(settings, episodes=2)
    other.load_state(learner.save_state())
    episode = make_episode(np.random.default_rng(9))
    for one in (learner, other):
        one.add(3, *episode)
        one.refresh()
        one.run_updates(4)
    np.testing.assert_array_equal(learner.export_actors(), other.export_actors())
    assert torch.equal(learner.agent.losses, other.agent.losses)


TRACED = """
from online_learners import make_learner, make_settings
from traced import compare

fits = ("joint-net", "quadratic", "closed-form")
settings = make_settings(seeds=1, methods=("grd",), fits=fits, warmup=0)
compare(make_learner, settings, 3)
print("equal")
"""


@pytest.mark.long
def test_traced_updates_equal_plain_ones():
    """What is recorded on an accelerator, traced here without making kernels of it.

    In a process of its own: tracing cannot see through the checks of shapes of the test run.
    """
    run_traced(TRACED)


def test_a_member_whose_rewards_are_not_finite_is_skipped_alone():
    settings = make_settings(methods=("oracle",))
    learner, healthy = make_learner(settings), make_learner(settings)
    learner.sources[0]._true[0] = torch.nan
    for one in (learner, healthy):
        one.run_updates(5)
    assert learner.count_skipped().tolist() == [5, 0]
    weights = learner.export_actors()
    assert np.isfinite(weights).all()
    np.testing.assert_array_equal(weights[1], healthy.export_actors()[1])


def test_rewards_come_from_where_the_method_says():
    settings = make_settings(methods=("none", "oracle", "ircr"), seeds=1)
    learner = make_learner(settings)
    steps = learner.replay.draw_steps(draw(3, 50))
    rows = {}
    for source in learner.sources:
        own = type(steps)(*(part[source.members] for part in steps))
        rows[type(source).__name__] = source.compute_rewards(own)[0], own
    rewards, own = rows["Oracle"]
    known = own.observations[0, :, 0] - own.actions[0, :, 0] ** 2
    torch.testing.assert_close(rewards, known, rtol=1e-5, atol=1e-5)
    rewards, own = rows["Delayed"]
    assert torch.equal(rewards, own.delivered[0])
    assert 0 < (rewards != 0).sum() < 50
    rewards, own = rows["IrcrSource"]
    assert rewards.min() == 0
    assert rewards.max() == 1
    assert np.corrcoef(rewards, own.returns[0])[0, 1] > 0.999


@pytest.mark.long
@pytest.mark.parametrize("kind", ["paper", "joint-net", "rrd"])
def test_networks_learn_the_reward_of_steps_from_returns(kind):
    settings = make_settings(
        methods=("rrd-unbiased" if kind == "rrd" else "grd",),
        fits=("paper" if kind == "rrd" else kind,),
        seeds=1,
        hidden=(32, 32),
        episodes=8,
        model_rate=3e-3,
    )
    learner = make_learner(settings, episodes=60)
    source = learner.sources[0]
    episode, truth = make_episode(np.random.default_rng(77), 20)
    steps = learner.replay.draw_steps(torch.linspace(0.01, 0.99, 16).unsqueeze(0))
    losses = []
    for counter in range(1, 400):
        source.update(steps, torch.tensor(counter))
        losses.append(float(source.losses[0, 0]))
    assert np.mean(losses[-50:]) < 0.5 * np.mean(losses[:20])
    found = source.predict(0, episode)
    if kind != "paper":  # as printed, masks start at random, and may stay without what matters
        assert np.corrcoef(found, truth.rewards)[0, 1] > 0.7
    batch = StepBatch(episode.observations[:-1], episode.actions, episode.observations[1:])
    exported = source.export(0).predict(batch)
    np.testing.assert_allclose(exported, found, rtol=1e-4, atol=1e-4)


def test_closed_form_finds_the_quadratic_and_its_inputs():
    rng = np.random.default_rng(0)
    solver = Solver(STATES, ACTIONS)

    def reward(s, a):
        return 2.0 + s[:, 0] - 0.5 * s[:, 0] * s[:, 1] - a[:, 0] ** 2

    for _ in range(60):
        solver.add(make_episode(rng, int(rng.integers(5, 20)), reward)[0])
    for _ in range(5):
        solver.solve()
    assert solver.masks[0].tolist() == [1, 1, 0]
    assert solver.masks[1].tolist() == [1, 0]
    np.testing.assert_array_equal(solver.masks[2], np.eye(STATES))
    np.testing.assert_array_equal(solver.masks[3], [[0, 0, 0], [1, 0, 0]])
    settings = make_settings(methods=("grd",), fits=("quadratic",), seeds=1)
    learner = make_learner(settings)
    source = learner.sources[0]
    assert isinstance(source, Quadratic)
    source.solvers[0] = solver
    source._changed.add(0)
    source.refresh()
    episode, truth = make_episode(np.random.default_rng(5), 15, reward)
    found = source.predict(0, episode)
    np.testing.assert_allclose(found, truth.rewards, atol=0.1)
    function = source.export(0)
    same = function.predict(StepBatch(episode.observations[:-1], episode.actions))
    np.testing.assert_allclose(same, found, atol=1e-4)
    moved = episode.observations[:-1] + np.float32([0, 0, 7])
    np.testing.assert_array_equal(function.predict(StepBatch(moved, episode.actions)), same)
    again = type(function).from_parts(function.config(), function.tensors())
    module = again.torch()(
        StepBatch(torch.tensor(episode.observations[:-1]), torch.tensor(episode.actions))
    )
    np.testing.assert_allclose(module, found, atol=1e-4)


def test_constant_inputs_and_equal_returns_do_no_harm():
    solver = Solver(STATES, ACTIONS)
    rng = np.random.default_rng(0)
    for _ in range(3):
        episode, _ = make_episode(rng)
        episode.observations[:, 2] = 5.0
        solver.add(episode._replace(episode_return=0.0))
        solution = solver.solve()
    assert all(np.isfinite(part).all() for part in solution.tensors().values())
    assert np.abs(solution.linear).max() < 1e-6


def test_policies_see_a_dimension_until_it_was_absent_for_long():
    settings = make_settings(
        methods=("grd", "grd-no-compact"), fits=("quadratic",), seeds=1, compact_patience=250
    )
    learner = make_learner(settings)
    source = learner.sources[0]
    absent = (np.array([1.0, 0, 0]), np.ones(ACTIONS), np.eye(STATES), np.ones((ACTIONS, STATES)))
    for solver in source.solvers:
        solver.masks = absent
    learner._absent[:] = 0
    seen = []
    for _ in range(4):
        learner.refresh()
        seen.append(learner.mask[0].tolist())
    assert seen == [[1, 1, 1], [1, 1, 1], [1, 0, 0], [1, 0, 0]]
    assert learner.mask[1].tolist() == [1, 1, 1]
    weights = learner.agent.actor.weights[0][0]
    exported = learner.export_actors()[0, : weights.numel()].reshape(weights.shape)
    assert not exported[1:].any()
    for solver in source.solvers:
        solver.masks = (np.array([1.0, 0, 1]), *absent[1:])
    learner.refresh()
    assert learner.mask[0].tolist() == [1, 0, 1]


def test_the_mean_reward_is_taken_off_only_where_nothing_ends():
    settings = make_settings(methods=("oracle",), policy_discount=1.0, centre_rate=0.05, seeds=2)
    learner = make_learner(settings)
    episode, truth = make_episode(np.random.default_rng(0))
    learner.add(1, episode._replace(terminated=True), truth)
    learner.run_updates(50)
    assert learner.agent.mean_rewards[0] != 0
    assert learner.agent.mean_rewards[1] == 0


def test_members_follow_from_settings():
    settings = OnlineSettings(
        "Swimmer",
        methods=("oracle", "grd"),
        fits=("paper", "quadratic"),
        seeds=2,
        seed=5,
        sets=parse_sets(("lambda_state_reward=0,3e-6", "target_rate=0.01")),
    )
    members = settings.make_members()
    assert len(members) == (1 + 2 + 1) * 2  # only paper has the weight that is varied
    assert len({member.name for member in members}) == len(members)
    kinds = [member.kind for member in members]
    assert kinds == sorted(kinds, key=kinds.index)
    paper = [member for member in members if member.kind == "paper"]
    assert sorted(member.lambdas.state_to_reward for member in paper) == [0, 0, 3e-6, 3e-6]
    assert {member.lambdas.action_to_reward for member in paper} == {1e-9}  # the paper's Swimmer
    assert {member.seed for member in members} == {5, 6}
    assert {member.target_rate for member in members} == {0.01}
    assert paper[0].group == "grd-paper-lambda_state_reward=0"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"methods": ("grd", "best")}, "methods: expected one of grd"),
        ({"methods": ()}, "methods: expected at least one"),
        ({"fits": ("paper", "paper")}, "fits: got the same value twice"),
        ({"steps": 0}, "steps: expected a whole number of at least 1, got 0"),
        ({"policy_discount": 1.5}, "policy_discount: expected more than 0 and at most 1"),
        ({"sets": {"lambda": (1.0,)}}, "set: expected one of lambda_state_reward"),
        ({"sets": {"target_rate": (2.0,)}}, "target_rate: expected"),
        ({"sets": {"target_rate": (0.01, 0.01)}}, "target_rate: got the same value twice"),
        ({"sets": {"lambda_self": (0.1,)}}, "lambda_self: expected paper among the fits"),
        (
            {"sets": {"lambda_self": (0.1,)}, "methods": ("rrd",), "fits": ("paper",)},
            "lambda_self: expected grd among the methods",
        ),
        ({"centre_rate": float("nan")}, "centre_rate: expected"),
        ({"sets": {"learning_rate": (0.0,)}}, "learning_rate: expected more than 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes, words):
    with pytest.raises(DataError, match=words):
        OnlineSettings("any", **changes)


@pytest.mark.parametrize("text", ["lambda_self", "lambda_self=", "lambda_self=a,b"])
def test_sets_that_are_not_numbers_are_refused(text):
    with pytest.raises(DataError, match="expected NAME=VALUE"):
        parse_sets((text,))
    assert "lambda_self" in LAMBDAS
    with pytest.raises(DataError, match="target_rate twice: give all its values at once"):
        parse_sets(("target_rate=0.1", "target_rate=0.2"))


def test_values_that_look_alike_have_names_of_their_own():
    settings = OnlineSettings("any", sets={"learning_rate": (1e-3, 1.0000001e-3)})
    groups = [member.group for member in settings.make_members()]
    assert groups == [
        "grd-closed-form-learning_rate=0.001",
        "grd-closed-form-learning_rate=0.0010000001",
    ]


def test_one_infinite_reward_does_not_spoil_the_mean_for_good():
    learner = make_learner(make_settings(methods=("oracle",), policy_discount=1.0, seeds=1))
    learner.run_updates(1)
    before = learner.agent.mean_rewards.clone()
    true = learner.sources[0]._true
    rewards = true.clone()
    true[:] = torch.inf
    learner.run_updates(1)
    assert torch.equal(learner.agent.mean_rewards, before)
    true[:] = rewards
    learner.run_updates(20)
    assert learner.count_skipped().tolist() == [1]


def test_targets_of_td3_wait_for_the_actor():
    learner = make_learner(make_settings(methods=("oracle",), backbone="td3", seeds=1))
    moved = []
    for _ in range(4):
        before = learner.agent.targets["critic"].values.clone()
        learner.run_updates(1)
        moved.append(not torch.equal(before, learner.agent.targets["critic"].values))
    assert moved == [True, False, True, False]


def test_ircr_stays_between_0_and_1_from_the_first_episode_on():
    learner = make_learner(make_settings(methods=("ircr",), seeds=1), episodes=0)
    (source,) = learner.sources
    episode, truth = make_episode(np.random.default_rng(0), reward=lambda s, a: s[:, 0] - 123.456)
    learner.add(0, episode, truth)
    assert set(source.predict(0, episode)) == {0.0}


def test_masks_are_those_of_the_reward_that_is_exported():
    settings = make_settings(methods=("grd",), fits=("paper",), model_rate=0.3, seeds=4)
    learner = make_learner(settings)
    (source,) = learner.sources
    start = source.find_masks().state_to_reward.clone()
    learner.run_updates(30)
    masks = source.find_masks()
    assert not torch.equal(masks.state_to_reward, start)
    rng = np.random.default_rng(0)
    states, actions = rng.normal(size=(50, STATES)), rng.uniform(-1, 1, (50, ACTIONS))
    for place in range(4):
        function = source.export(place)
        base = function.predict(StepBatch(states, actions))
        for dimension in range(STATES):
            changed = states.copy()
            changed[:, dimension] += 1.0
            differs = not np.array_equal(function.predict(StepBatch(changed, actions)), base)
            assert differs <= bool(masks.state_to_reward[place, dimension])


def test_a_batch_need_not_be_a_multiple_of_the_sampled_masks():
    learner = make_learner(make_settings(methods=("grd",), fits=("joint-net",), batch=13, seeds=1))
    learner.run_updates(2)
    assert np.isfinite(learner.export_actors()).all()
    assert learner.count_skipped().tolist() == [0]


def test_critics_are_normalised_where_the_discount_is_one():
    settings = make_settings(sets=parse_sets(("policy_discount=0.9,1",)))
    found = {(m.policy_discount, m.critic_norm) for m in settings.make_members()}
    assert found == {(0.9, 0.0), (1.0, 1.0)}
    settings = make_settings(policy_discount=1.0, sets=parse_sets(("critic_norm=0,1",)))
    assert {m.critic_norm for m in settings.make_members()} == {0.0, 1.0}
    with pytest.raises(DataError, match=r"critic_norm: expected 0 or 1, got 0\.5"):
        make_settings(sets=parse_sets(("critic_norm=0.5",)))
