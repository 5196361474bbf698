"""The closed form where returns are corrupted, rewards jump, episodes end early, or states jump."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from grd_offline.additive.choosing import EffectChooser, add_switches, is_switch, translate_switch
from grd_offline.additive.equations import find_motion, take_states
from grd_offline.additive.moments import prefer, spread_about, weigh
from grd_offline.additive.search import NOWHERE, measure_weights
from grd_offline.additive.settings import ClosedFormSettings
from grd_offline.core.episodes import Episode, EpisodeSet
from grd_offline.core.steps import StepBatch
from grd_offline.methods import make_decomposer
from grd_offline.methods.choose import Candidate
from grd_offline.methods.closed_form.fit import fit_closed_form
from grd_offline.methods.linear import Linear
from grd_offline.rewards.effects import average_effects

pytestmark = pytest.mark.long

QUICK = {"basis": 5, "final_basis": 8, "rough_basis": 1, "order": 2}


def roll(reward, *, episodes=120, steps=30, ends=False, seed=0, change=None):
    """Episodes of two jumping states and an action, and their true rewards."""
    rng = np.random.default_rng(seed)
    made, truth = [], []
    for index in range(episodes):
        states, actions = [rng.normal(0, 1, 2)], []
        terminated = False
        while len(actions) < steps and not terminated:
            actions.append(rng.uniform(-1, 1, 1))
            states.append(0.6 * states[-1] + 0.6 * rng.normal(0, 1, 2) + 0.3 * actions[-1])
            terminated = ends and bool(states[-1][0] > 1.5)
        observed, acted = np.array(states), np.array(actions)
        last = np.arange(len(acted)) == len(acted) - 1
        true = reward(observed[:-1], acted, observed[1:], last & terminated)
        amount = true.sum() if change is None else change(index, true.sum())
        truth.append(true)
        ended = last & terminated
        made.append(Episode(observed, acted, last * amount, ended, last & ~ended, last))
    return EpisodeSet.from_episodes(made), truth


def correlate(found, episodes, truth):
    rewards = [found.model.predict(StepBatch.from_episode(e)) for e in episodes]
    return float(np.corrcoef(np.concatenate(rewards), np.concatenate(truth))[0, 1])


def fit(episodes, **settings):
    chosen = ClosedFormSettings(**{**QUICK, **settings})
    return fit_closed_form(episodes, chosen, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("moment", "reward"),
    [
        ("start", lambda s, a, n, d: np.sin(s[:, 0]) - a[:, 0] ** 2),
        ("end", lambda s, a, n, d: np.sin(n[:, 0]) - a[:, 0] ** 2),
        ("midpoint", lambda s, a, n, d: np.sin((s + n)[:, 0] / 2) - a[:, 0] ** 2),
    ],
)
def test_evidence_finds_the_moment_where_states_jump(moment, reward):
    episodes, truth = roll(reward, episodes=160)
    found = fit(episodes)
    assert found.state_at == moment
    assert found.model.needs_next == (moment != "start")
    assert correlate(found, episodes, truth) > 0.99


def test_a_moment_that_is_asked_for_is_kept():
    episodes, _ = roll(lambda s, a, n, d: np.sin(n[:, 0]), episodes=60)
    found = fit(episodes, state_at="start")
    assert found.state_at == "start"
    assert not found.moments
    assert not found.model.needs_next


def test_the_midpoint_is_taken_where_evidence_cannot_tell():
    assert prefer({"midpoint": 0.0, "start": 1.5, "end": 3.5}) == "midpoint"
    assert prefer({"midpoint": 0.0, "start": 5.0, "end": 1.0}) == "start"
    assert prefer({"midpoint": 0.0, "start": 5.0, "end": 9.0}) == "end"
    assert weigh({"midpoint": 0.0, "start": 0.0, "end": 0.0})["midpoint"] == pytest.approx(0.5)
    assert spread_about("midpoint", {"midpoint": 0.0, "start": 0.0, "end": 0.0}) == pytest.approx(
        0.125
    )
    assert spread_about("start", {"midpoint": -99.0, "start": 0.0, "end": -99.0}) < 1e-20


def test_an_event_is_taken_at_the_end_of_its_step_where_the_rest_is_halfway():
    """A force that is 0 in most steps has no path between two of its values."""
    rng = np.random.default_rng(0)
    made, truth = [], []
    for _ in range(120):
        place = 0.3 * np.cumsum(rng.normal(size=31)) + rng.normal()
        force = rng.uniform(0.5, 2, 31) * (rng.random(31) < 0.15)
        states, actions = np.column_stack([place, force]), rng.uniform(-1, 1, (30, 1))
        last = np.arange(30) == 29
        truth.append((place[1:] + place[:-1]) / 2 - force[1:] ** 2)
        rewards = last * truth[-1].sum()
        made.append(Episode(states, actions, rewards, last & False, last, last))
    episodes = EpisodeSet.from_episodes(made)
    assert find_motion(episodes).still.tolist() == [False, True]
    found = fit(episodes, state_at="midpoint")
    assert {one.name for one in found.model.inputs} == {"s0", "s1'"}
    assert found.model.at_midpoint
    assert correlate(found, episodes, truth) > 0.99
    halfway = take_states(
        np.zeros((1, 2)), np.ones((1, 2)), "midpoint", find_motion(episodes).still
    )
    assert halfway.tolist() == [[0.5, 1.0]]
    assert take_states(np.zeros((1, 2)), np.ones((1, 2)), "start").tolist() == [[0.0, 0.0]]


def test_a_reward_of_the_state_before_is_noticed_and_widens_the_bands():
    def late(s, a, n, d):
        return np.sin(np.concatenate([s[:1], s[:-1]])[:, 0]) + 0 * a[:, 0]

    episodes, truth = roll(late, episodes=160)
    found = fit(episodes)
    assert found.moments["before"] > found.moments[found.state_at] + 5
    spread = np.concatenate(truth).std()
    assert found.hidden["moment"] > 0.1 * spread**2


@pytest.mark.parametrize("bonus", [8.0, -8.0])
def test_what_terminating_pays_is_found(bonus):
    episodes, truth = roll(
        lambda s, a, n, d: 0.5 * s[:, 1] - a[:, 0] ** 2 + bonus * d, ends=True, episodes=150
    )
    found = fit(episodes)
    assert found.model.needs_termination
    assert correlate(found, episodes, truth) > 0.99
    steps = np.zeros((1, 2)), np.zeros((1, 1)), np.zeros((1, 2))
    paid = [float(found.model.predict(StepBatch(*steps, np.array([d])))[0]) for d in (True, False)]
    assert paid[0] - paid[1] == pytest.approx(bonus, rel=0.1)


def test_what_a_fall_pays_is_less_certain_where_every_episode_falls():
    """Returns hardly tell what the fall pays from what its last state is worth."""
    rng = np.random.default_rng(0)
    made, truth = [], []
    for pace in rng.uniform(0.02, 0.1, 150):
        steps = int(np.ceil(1 / pace))
        lean = np.append(0.0, np.cumsum(rng.uniform(0.5, 1.5, steps) * pace))
        states = np.stack([lean, rng.normal(size=steps + 1)], 1)
        last = np.arange(steps) == steps - 1
        true = 1 + 0.5 * states[:-1, 1] - 3 * last + 0.3 * rng.normal(size=steps)
        truth.append(true)
        made.append(
            Episode(states, np.zeros((steps, 1)), last * true.sum(), last, last & False, last)
        )
    model = fit(EpisodeSet.from_episodes(made)).model
    assert model.needs_termination
    assert model.ended_variance > 2 * model.hidden_variance
    held = []
    for episode, true in zip(made, truth, strict=True):
        mean, std = model.predict_both(StepBatch.from_episode(episode))
        held.append(np.abs(mean - true) <= 1.645 * std)
    assert np.concatenate(held).mean() > 0.85
    assert np.mean([one[-1] for one in held]) > 0.85


@pytest.mark.parametrize("memory", [0.0, 0.9])
def test_independent_rows_have_no_midpoint(memory):
    """Few returns with much noise, which cannot tell the moments apart."""
    rng = np.random.default_rng(1)
    made, truth = [], []
    for _ in range(60):
        states = [rng.normal(size=2)]
        for _ in range(20):
            states.append(memory * states[-1] + rng.normal(size=2))
        path = np.array(states)
        true, last = path[:-1, 0], np.arange(20) == 19
        truth.append(true)
        amount = true.sum() + 3 * rng.normal()
        made.append(Episode(path, np.zeros((20, 1)), last * amount, last & False, last, last))
    episodes = EpisodeSet.from_episodes(made)
    assert find_motion(episodes).jumps == (memory == 0)
    if memory == 0:
        assert correlate(fit(episodes), episodes, truth) > 0.9


def test_lines_are_drawn_over_the_values_of_their_inputs():
    episodes, _ = roll(lambda s, a, after, ended: s[:, 1] - a[:, 0])
    linear = Linear().fit(episodes, rng=np.random.default_rng(0))
    curves = {curve.inputs: curve.grids[0] for curve in linear.function_.explain().effects}
    acted = np.concatenate([episode.actions[:, 0] for episode in episodes])
    assert curves["a0",].min() == acted.min()
    assert curves["a0",].max() == acted.max()


def test_far_values_of_an_input_are_rewarded_as_they_are():
    """Claims, rainfall: a few steps have most of the reward."""
    rng = np.random.default_rng(0)
    made, truth = [], []
    for _ in range(120):
        states = np.stack([np.exp(1.8 * rng.normal(size=21)), rng.normal(size=21)], 1)
        true = states[:-1, 0] + 2 * states[:-1, 1]
        last = np.arange(20) == 19
        truth.append(true)
        made.append(Episode(states, np.zeros((20, 1)), last * true.sum(), last & False, last, last))
    episodes = EpisodeSet.from_episodes(made)
    assert correlate(fit(episodes, state_at="start"), episodes, truth) > 0.99


def test_a_time_limit_is_no_termination():
    episodes, _ = roll(lambda s, a, n, d: s[:, 0] + 0 * a[:, 0], episodes=60)
    assert not fit(episodes).model.needs_termination


def test_corrupted_returns_count_less():
    noise = np.random.default_rng(5)

    def reward(s, a, n, d):
        return np.sin(s[:, 0]) + a[:, 0] + 0.2 * noise.normal(size=len(a))

    def corrupt(index, amount):
        return amount + (200.0 if index % 60 == 7 else 0.0)

    episodes, truth = roll(reward, episodes=180, change=corrupt)
    found = fit(episodes)
    assert set(np.flatnonzero(found.weights < 0.1)) == {7, 67, 127}
    assert correlate(found, episodes, truth) > 0.97


def test_weights_are_left_alone_where_errors_are_of_a_size():
    rng = np.random.default_rng(0)
    assert measure_weights(rng.normal(size=200)) is None
    assert measure_weights(np.append(rng.normal(size=20), 100.0)) is None  # too few to tell
    weights = measure_weights(np.append(rng.normal(size=200), 100.0))
    assert weights is not None
    assert weights[-1] < 0.01 < 0.5 < np.median(weights)


@pytest.mark.parametrize("both", [False, True])
def test_a_threshold_that_is_rarely_passed_is_found(both):
    def rare(s, a, n, d):
        return 5.0 * ((s[:, 0] > 1.2) & ((s[:, 1] > 0.8) | (not both))) + 0 * a[:, 0]

    episodes, truth = roll(rare, episodes=200)
    found = fit(episodes, state_at="start", rough_basis=20)
    assert correlate(found, episodes, truth) > 0.97
    assert found.state_to_reward.tolist() == [1, int(both)]


def test_rare_events_are_no_outliers_and_tell_the_moment():
    """Few returns are far from the rest: a threshold predicts them, so all count alike."""
    noise = np.random.default_rng(6)

    def rare(s, a, n, d):
        return 8.0 * ((s[:, 0] > 1.3) & (s[:, 1] > 1.2)) + 0.1 * noise.normal(size=len(a))

    episodes, truth = roll(rare, episodes=160)
    found = fit(episodes)
    assert (found.weights == 1).all()
    assert found.state_at == "start"
    assert weigh(found.moments)["start"] > 0.99
    assert correlate(found, episodes, truth) > 0.95


def test_switches_alone_compete_with_effects_that_stand_in_for_them():
    episodes, _ = roll(lambda s, a, n, d: 4.0 * (s[:, 0] > 1.0), episodes=120)
    rules = ClosedFormSettings(**QUICK).rules()
    chooser = EffectChooser(
        episodes, "start", ClosedFormSettings(**QUICK), np.random.default_rng(0), lambda *_: None
    )
    bank = chooser.data.build_bank([(0,), (1,), (0, 1)], 5)
    smooth = bank.fit(list(bank), NOWHERE, rules)
    sharp = add_switches(chooser.data, smooth, bank, rules)
    assert len(sharp.effects) == 1
    assert is_switch(chooser.data, sharp.effects[0])
    assert not any(is_switch(chooser.data, effect) for effect in smooth.effects)
    other = EffectChooser(
        episodes, "end", ClosedFormSettings(**QUICK), np.random.default_rng(0), lambda *_: None
    )
    moved = translate_switch(other.data, sharp.effects[0], chooser.data)
    assert is_switch(other.data, moved)
    values = np.linspace(-2, 2, 41)[:, None].repeat(4, 1)
    for one, effect in ((chooser, sharp.effects[0]), (other, moved)):
        values_at = one.data.basis.evaluate(values, effect, 1)[:, 0, 0]
        assert values_at[0] == 0.0
        assert values_at[-1] == 1.0


def test_a_product_of_four_inputs_is_found():
    rng = np.random.default_rng(0)
    made = []
    for _ in range(400):
        states, actions = rng.normal(size=(21, 3)), rng.uniform(-1, 1, (20, 1))
        rewards = states[:-1].prod(1) * actions[:, 0]
        last = np.arange(20) == 19
        never = np.zeros(20, bool)
        made.append(Episode(states, actions, last * rewards.sum(), never, last, last))
    episodes = EpisodeSet.from_episodes(made)
    found = fit(episodes, state_at="start", order=4)
    assert max(map(len, found.model.effects)) == 4
    states, actions = rng.normal(size=(500, 3)), rng.uniform(-1, 1, (500, 1))
    expected = states.prod(1) * actions[:, 0]
    assert np.corrcoef(found.model.predict(StepBatch(states, actions)), expected)[0, 1] > 0.95


def test_shifts_and_scales_change_nothing():
    def make(scale, shift):
        return roll(lambda s, a, n, d: scale * (np.sin(s[:, 0]) + a[:, 0]) + shift, episodes=60)[0]

    plain = fit(make(1.0, 0.0), state_at="start")
    steps = np.random.default_rng(1).normal(size=(50, 2)), np.zeros((50, 1))
    expected = plain.model.predict(StepBatch(*steps))
    for scale, shift in ((1e9, 0.0), (1e-9, 0.0), (1.0, 1e6)):
        rewards = (
            fit(make(scale, shift), state_at="start").model.predict(StepBatch(*steps)) - shift
        ) / scale
        np.testing.assert_allclose(rewards, expected, atol=1e-6 * max(1.0, abs(expected).max()))


def test_the_linear_fit_and_its_average_with_the_closed_form():
    episodes, truth = roll(lambda s, a, n, d: 2 * s[:, 0] - a[:, 0], episodes=80)
    linear = make_decomposer("grd", "linear", state_at="start").fit(episodes)
    rewards = np.concatenate([linear.predict_episode(episode) for episode in episodes])
    assert np.corrcoef(rewards, np.concatenate(truth))[0, 1] > 0.999
    closed = make_decomposer("grd", "closed-form", state_at="start", **QUICK).fit(episodes)
    both = average_effects(closed.function_, linear.function_, 0.36)
    steps = episodes[0].observations[:-1], episodes[0].actions
    middle = (
        closed.function_.predict(StepBatch(*steps)) + linear.function_.predict(StepBatch(*steps))
    ) / 2
    np.testing.assert_allclose(both.predict(StepBatch(*steps)), middle, atol=1e-9)
    assert (both.predict_std(StepBatch(*steps)) >= 0.3).all()
    again = type(both).from_parts(both.config(), both.tensors())
    np.testing.assert_array_equal(again.predict(StepBatch(*steps)), both.predict(StepBatch(*steps)))


def make_races(ended, count=100, steps=40):
    """Every step costs 1 until the goal, as in Acrobot: few episodes (`ended`) reach it in time."""
    rng, episodes = np.random.default_rng(0), []
    for index in range(count):
        length = int(rng.integers(steps // 2, steps)) if index < ended else steps
        last = np.arange(length) == length - 1
        won = last & (index < ended)
        paid = np.where(last, -length + float(index < ended), 0.0)
        states = rng.normal(size=(length + 1, 2))
        episodes.append(Episode(states, rng.normal(size=(length, 1)), paid, won, last & ~won, last))
    return EpisodeSet.from_episodes(episodes)


def test_returns_that_differ_from_many_equal_ones_are_no_outliers():
    episodes = make_races(ended=13)
    found = fit(episodes)
    assert (found.weights == 1).all()
    assert found.left_out_r2 > 0.999
    episode = episodes[0]
    rewards = found.model.predict(StepBatch.from_episode(episode))
    np.testing.assert_allclose(rewards[:-1], -1.0, atol=0.01)
    assert abs(rewards[-1]) < 0.1


def test_held_out_returns_that_are_mostly_equal_all_vote():
    true = np.array([-500.0] * 18 + [-320.0, -410.0])
    predicted = true + np.array([1e-9] * 18 + [0.3, 0.2])
    errors = (true - predicted) ** 2 / 500
    one = Candidate("closed-form", Linear(), true, predicted, np.ones(20), errors, 1.0)
    assert one.find_voters().all()
    assert one.describe()["held_out_return_r2_without_outliers"] > 0.999
    corrupted = replace(one, true=np.append(true[:-1], 900.0), errors=np.append(errors[:-1], 1e4))
    assert corrupted.find_voters().tolist() == [True] * 19 + [False]


def test_an_input_that_differs_in_a_single_step_leaves_the_linear_fit_in_order():
    episodes = make_races(ended=1, count=200)
    found = Linear().fit(episodes, rng=np.random.default_rng(1))
    assert all(np.isfinite(rewards).all() for rewards in found.relabel(episodes))
