"""The closed form online: searched for now and then, solved for with every episode."""

from copy import copy

import numpy as np
import pytest
import torch
from online_learners import ACTIONS, STATES, make_episode, make_learner, make_settings
from online_runs import Keeper, train, train_until, weights_of

from grd_offline.core.steps import StepBatch
from grd_offline.learning.online import closed_form
from grd_offline.learning.online.closed_form import EffectRewards
from grd_offline.learning.online.effect_search import (
    FIRST,
    Past,
    find_structure,
    pack,
    sum_episodes,
    unpack,
)
from grd_offline.learning.online.run import OnlineFolder, OnlineRun
from grd_offline.networks.members.nn import Masks
from grd_offline.rewards.effects import EffectModel

CPU = torch.device("cpu")


def bent(s, a):
    """No quadratic: a corner, and a product of two inputs with a sign."""
    return np.abs(s[:, 0]) - np.sign(a[:, 0]) * s[:, 1]


def make_episodes(count, seed=0, reward=bent):
    rng = np.random.default_rng(seed)
    return [make_episode(rng, int(rng.integers(8, 20)), reward) for _ in range(count)]


@pytest.fixture(scope="module")
def structure():
    episodes = [episode for episode, _ in make_episodes(150)]
    return find_structure(pack(episodes), None, (0, 0), "midpoint")


def make_closed(members=None, **changes):
    given = {"methods": ("grd",), "fits": ("closed-form",), "warmup": 0, "seeds": 2}
    settings = make_settings(**{**given, **changes})
    return make_learner(settings, members, episodes=0)


def feed(learner, count, first=0):
    """Episodes of each member, with a round after each."""
    for number in range(first, first + count):
        for index, member in enumerate(learner.members):
            rng = np.random.default_rng([member.seed, number])
            learner.add(index, *make_episode(rng, 10 + number % 8, bent))
        learner.refresh()


def test_the_first_episodes_stay_and_later_ones_are_sampled_evenly(monkeypatch):
    monkeypatch.setattr("grd_offline.learning.online.effect_search.MOST_EPISODES", 10)
    past = Past()
    for number in range(1000):
        observations = np.full((3, 2), number, np.float32)
        episode = past.episodes  # the list changes, earlier episodes do not
        assert len(episode) <= 10
        past.add(closed_form.FinishedEpisode(observations, observations[1:], number, number % 2))
    kept = [episode.episode_return for episode in past.episodes]
    assert kept[:6] == [0, 1, 2, 3, 4, 5]  # five stay, and the sample of the others begins
    assert set(np.diff(kept[5:])) == {past.stride}
    assert kept[-1] >= 1000 - 2 * past.stride
    again = Past()
    again.load_state(past.state())
    episode = closed_form.FinishedEpisode(observations, observations[1:], 1000, False)
    past.add(episode)
    again.add(episode)
    assert (again.count, again.stride) == (past.count, past.stride)
    for ours, theirs in zip(again.episodes, past.episodes, strict=True):
        np.testing.assert_array_equal(ours.observations, theirs.observations)
        assert ours[2:] == theirs[2:]
    assert unpack(pack([])) == []


def test_sums_are_those_of_the_rows(structure):
    rows = sum_episodes(structure, [episode for episode, _ in make_episodes(150)])
    expected = np.transpose(rows) @ np.array(rows)
    scale = np.sqrt(np.outer(np.diag(expected), np.diag(expected))) + 1e-12
    np.testing.assert_allclose(structure.sums / scale, expected / scale, atol=1e-6)
    grown = copy(structure)
    grown.add(rows[:3])
    added = np.transpose(rows[:3]) @ np.array(rows[:3])
    np.testing.assert_allclose(grown.sums - structure.sums, added, atol=1e-9)
    assert grown.rows == 153


def test_weights_are_the_posterior_mean(structure, monkeypatch):
    monkeypatch.setattr("grd_offline.learning.online.effect_search.STEPS", 1)
    solved, width = copy(structure), len(structure.kept)
    solved.solve()
    sums = structure.sums
    # The constant has a prior so wide that it is free.
    prior = np.append(1e-12, 1 / structure.variances[structure.effect])
    chosen = np.append(0, FIRST + np.arange(width))
    left = sums[np.ix_(chosen, chosen)] / structure.noise + np.diag(prior)
    expected = np.linalg.solve(left, sums[chosen, 1] / structure.noise)
    found = np.append(solved.constant, solved.weights)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


def test_the_device_computes_what_the_model_predicts(structure):
    structure = copy(structure)
    structure.solve()
    rewards = EffectRewards(1, STATES, ACTIONS, CPU)
    rewards.make_room([structure])
    rewards.put_structure(0, structure)
    rewards.put_weights(0, structure)
    learner = make_closed(seeds=1)
    source = learner.sources[0]
    source._rewards = [rewards]
    source._members[0].structure = structure
    episode, truth = make_episodes(1, seed=9)[0]
    found, model = source.predict(0, episode), source.export(0)
    assert isinstance(model, EffectModel)
    seen, ended = episode.observations, np.zeros(len(episode.actions))
    same = model.predict(StepBatch(seen[:-1], episode.actions, seen[1:], ended))
    np.testing.assert_allclose(found, same, atol=1e-4)
    assert np.corrcoef(found, truth.rewards)[0, 1] > 0.9
    assert model.predict_std(StepBatch(seen[:-1], episode.actions, seen[1:], ended)).min() > 0
    assert {name for one in model.explain().effects for name in one.inputs} <= {
        *model.observation_names,
        *model.action_names,
    }


def test_masks_are_those_of_the_reward_and_of_the_dynamics(structure):
    to_reward, from_action, to_state, action_to_state = structure.masks
    assert to_reward.tolist() == [1, 1, 0]
    assert from_action.tolist() == [1, 0]
    np.testing.assert_array_equal(to_state, np.eye(STATES))
    np.testing.assert_array_equal(action_to_state, [[0, 0, 0], [1, 0, 0]])


@pytest.mark.long
def test_actions_share_a_variance_while_episodes_are_few():
    """Of a speed and what all of eight actions cost, among 30 states, from 40 returns."""
    rng, episodes = np.random.default_rng(1), []
    for _ in range(40):
        seen = rng.normal(size=30) + rng.normal(size=(41, 30))
        acted = rng.uniform(-1, 1, (40, 8)) * rng.uniform(0, 1, 8)
        total = float(seen[:-1, 3].sum() - (acted**2).sum())
        parts = seen.astype(np.float32), acted.astype(np.float32), total, False
        episodes.append(closed_form.FinishedEpisode(*parts))
    found = find_structure(pack(episodes), None, (0, 0), "start")
    assert np.flatnonzero(found.masks[0]).tolist() == [3]
    assert found.masks[1].all()
    assert len(found.variances) < len(found.model.effects)
    rows = sum_episodes(found, episodes)
    expected = np.transpose(rows) @ np.array(rows)
    scale = np.sqrt(np.outer(np.diag(expected), np.diag(expected))) + 1e-12
    np.testing.assert_allclose(found.sums / scale, expected / scale, atol=1e-6)
    found.solve()
    assert np.isfinite(found.weights).all()
    seen, acted = rng.normal(size=(500, 30)), rng.uniform(-1, 1, (500, 8))
    guess = found.model.predict(StepBatch(seen, acted, seen, np.zeros(500, bool)))
    assert np.corrcoef(guess, seen[:, 3] - (acted**2).sum(1))[0, 1] > 0.9


def test_a_structure_survives_a_checkpoint(structure):
    again = type(structure).from_state(structure.state())
    for name, value in structure.state().items():
        if name not in ("config", "tensors", "masks"):
            np.testing.assert_array_equal(getattr(again, name), value)
    assert again.model.config() == structure.model.config()


@pytest.mark.long
def test_a_member_in_a_group_equals_it_alone(monkeypatch):
    monkeypatch.setattr(closed_form, "PAUSE", 300)
    monkeypatch.setattr(closed_form, "DELAY", 200)
    group = make_closed()
    feed(group, 30)
    assert min(one.searches for one in group.sources[0]._members) > 4
    group.run_updates(5)
    alone = make_closed([group.members[1]])
    feed(alone, 30)
    alone.run_updates(5)
    for name in ("sums", "weights", "constant", "variances"):
        theirs = getattr(alone.sources[0]._members[0].structure, name)
        ours = getattr(group.sources[0]._members[1].structure, name)
        np.testing.assert_array_equal(theirs, ours, err_msg=name)
    steps = group.replay.draw_steps(torch.linspace(0.01, 0.99, 16).expand(2, 16))
    own = type(steps)(*(part[1:] for part in steps))
    rewards = group.sources[0].compute_rewards(steps)
    assert rewards[1].std() > 0
    assert torch.equal(alone.sources[0].compute_rewards(own)[0], rewards[1])


@pytest.mark.long
def test_rows_that_are_worked_out_ahead_are_the_same(monkeypatch):
    """Also across searches, which replace the effects that rows belong to."""
    monkeypatch.setattr(closed_form, "PAUSE", 1500)
    monkeypatch.setattr(closed_form, "DELAY", 300)
    monkeypatch.setattr(closed_form, "SOLVE_EVERY", 4)
    learner, ahead = make_closed(), make_closed()
    found = 0
    for number in range(40):
        for one in (learner, ahead):
            feed(one, 1, number)
        if number % 3:
            ahead.prepare()
            found = max(found, *(len(one.rows) for one in ahead.sources[0]._members))
    assert found > 2
    for mine, theirs in zip(ahead.sources[0]._members, learner.sources[0]._members, strict=True):
        assert mine.searches > 2
        assert len(mine.waiting) == len(theirs.waiting)
        for name in ("sums", "rows", "weights", "variances"):
            one, other = (getattr(part.structure, name) for part in (mine, theirs))
            np.testing.assert_array_equal(one, other, err_msg=name)


def test_a_search_takes_effect_after_a_fixed_number_of_steps(monkeypatch):
    monkeypatch.setattr(closed_form, "PAUSE", 300)
    monkeypatch.setattr(closed_form, "DELAY", 200)
    learner = make_closed(seeds=1)
    one = learner.sources[0]._members[0]
    seen = []
    for number in range(8):
        feed(learner, 1, number)
        seen.append((one.searches, one.structure, one.job is not None))
    # The first at once; the second begins with the fourth episode and counts two rounds later.
    assert [row[0] for row in seen] == [1, 1, 1, 2, 2, 2, 3, 3]
    assert [row[1] is seen[0][1] for row in seen[:6]] == [True] * 5 + [False]
    assert (seen[4][1].rows, seen[7][1].rows) == (5, 8)  # each episode is in the sums once
    assert [row[2] for row in seen] == [False, False, False, True, True, False, True, True]


@pytest.mark.long
def test_saved_during_a_search_and_loaded_goes_on_the_same(monkeypatch):
    monkeypatch.setattr(closed_form, "PAUSE", 300)
    monkeypatch.setattr(closed_form, "DELAY", 200)
    learner = make_closed(methods=("grd", "grd-no-compact"), seeds=1)
    feed(learner, 8)
    assert learner.sources[0]._members[0].job is not None
    other = make_closed(methods=("grd", "grd-no-compact"), seeds=1)
    other.load_state(learner.save_state())
    for one in (learner, other):
        feed(one, 12, 8)
        one.run_updates(4)
    np.testing.assert_array_equal(learner.export_actors(), other.export_actors())
    assert torch.equal(learner.agent.losses, other.agent.losses)


@pytest.mark.long
@pytest.mark.parametrize("stop", [300, 450])
def test_a_run_that_goes_on_equals_one_that_did_not_stop(tmp_path, monkeypatch, stop):
    monkeypatch.setattr(closed_form, "PAUSE", 60)
    monkeypatch.setattr(closed_form, "DELAY", 40)
    settings = make_runs(steps=600)
    whole, _ = train(settings)
    expected = weights_of(whole)
    train_until(tmp_path / "run", settings, lambda run: run.step >= stop, Keeper())
    folder = OnlineFolder(tmp_path / "run")
    with OnlineRun(settings, workers=0, observer=folder) as second:
        assert folder.resume(second) == []
        second.train()
        np.testing.assert_array_equal(weights_of(second), expected)


def make_runs(**changes):
    import point_mass
    from online_runs import make_settings as make_run_settings

    point_mass.register()
    return make_run_settings(
        fits=("closed-form",), round_steps=10, round_updates=3, eval_every=300, eval_episodes=1,
        **changes,
    )  # fmt: skip


def test_before_any_episode_nothing_is_known():
    source = make_closed(seeds=1).sources[0]
    masks = source.find_masks()
    assert isinstance(masks, Masks)
    assert all(bool((mask == 1).all()) for mask in masks)
    assert source.export(0) is None
    episode, _ = make_episodes(1)[0]
    assert not source.predict(0, episode).any()


def test_equal_returns_and_constant_inputs_do_no_harm():
    learner = make_closed(seeds=1)
    rng = np.random.default_rng(0)
    for _ in range(5):
        episode, truth = make_episode(rng)
        episode.observations[:, 2] = 5.0
        learner.add(0, episode._replace(episode_return=0.0), truth)
        learner.refresh()
    found = learner.sources[0].predict(0, episode)
    assert np.isfinite(found).all()
    assert np.abs(found).max() < 1e-6


def check_table(learner):
    """Every step in the replay has the reward that its member's model gives it."""
    source = learner.sources[0]
    for place in range(source.size):
        layout = learner.replay.layouts[source.members.start + place]
        for first, length in layout.spans:
            rows = slice(first, first + length)
            numbers = learner.replay.numbers[source.members.start + place]
            seen = learner.replay.observations[source.members.start + place].numpy()
            acted = learner.replay.actions[source.members.start + place, rows].numpy()
            ended = bool(numbers[first + length - 1, 0])
            parts = seen[first : first + length + 1], acted, float(numbers[first, 2]), ended
            expected = source.predict(place, closed_form.FinishedEpisode(*parts))
            np.testing.assert_allclose(source._table[place, rows], expected, atol=1e-5)


def test_every_step_in_the_replay_has_its_reward(monkeypatch):
    monkeypatch.setattr(closed_form, "SOLVE_EVERY", 5)
    monkeypatch.setattr(closed_form, "CHUNKS", {"cpu": 500})
    learner = make_closed(seeds=2)
    feed(learner, 12)
    assert learner.sources[0]._table.any()
    check_table(learner)
    solved = learner.sources[0]._members[0].structure.weights.copy()
    feed(learner, 1, first=12)  # too few for a solve: the new episode has rewards all the same
    assert np.array_equal(learner.sources[0]._members[0].structure.weights, solved)
    check_table(learner)


def test_steps_that_were_overwritten_have_the_rewards_of_the_new_ones():
    learner = make_closed(seeds=1, replay=60, steps=60)
    feed(learner, 14)
    layout = learner.replay.layouts[0]
    assert layout.episodes < 14
    check_table(learner)
