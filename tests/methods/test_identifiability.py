"""What the examination of a fit says, and where it must not say it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from grd_offline.additive.settings import ClosedFormSettings
from grd_offline.core.episodes import Episode, EpisodeSet
from grd_offline.core.inputs import name_effect
from grd_offline.core.steps import StepBatch
from grd_offline.methods.closed_form.estimator import examine
from grd_offline.methods.closed_form.fit import fit_closed_form
from grd_offline.methods.contract import CAREFUL, FINE, NOTE, UNRELIABLE


def make_episode(states, actions, amount, *, terminated=False, kind=np.float64) -> Episode:
    last = np.arange(len(actions)) == len(actions) - 1
    rewards = (last * amount).astype(kind)
    return Episode(states, actions, rewards, last & terminated, last & (not terminated), last)


def draw(reward, *, episodes: int = 60, steps: int = 20, kind=np.float64, offset=0.0) -> EpisodeSet:
    """Two states that walk, one action, and the sum of a reward of states and actions."""
    rng = np.random.default_rng(0)
    made = []
    for _ in range(episodes):
        states = 0.5 * np.cumsum(rng.normal(size=(steps + 1, 2)), 0)
        actions = rng.uniform(-1, 1, (steps, 1))
        amount = reward(states[:-1], actions).sum() + offset * steps
        made.append(make_episode(states, actions, amount, kind=kind))
    return EpisodeSet.from_episodes(made)


def fit_to(data: EpisodeSet, **settings):
    return fit_closed_form(data, ClosedFormSettings(**settings), np.random.default_rng(0))


def look(data: EpisodeSet, **settings):
    """What is said of a fit to the data, as one text for each level."""
    return sort(examine(fit_to(data, **settings), data)[0])


def sort(findings) -> dict[str, str]:
    return {
        level: " ".join(finding.text for finding in findings if finding.level == level)
        for level in (FINE, NOTE, CAREFUL, UNRELIABLE)
    }


@pytest.fixture(scope="module")
def data() -> EpisodeSet:
    return draw(lambda s, a: np.sin(s[:, 0]) + a[:, 0], episodes=120)


@pytest.fixture(scope="module")
def fit(data):
    """A fit of which all is known; tests change what they are about."""
    found = fit_to(data, state_at="start", order=1)
    assert found.model.effects
    return found


def test_where_all_is_known_nothing_but_fine_is_said(data, fit) -> None:
    findings, numbers = examine(fit, data)
    assert {finding.level for finding in findings} == {FINE}
    assert numbers["outliers"] == []
    assert numbers["reward_spread"] > 0


def test_a_finding_that_calls_for_care_leaves_nothing_fine(data, fit) -> None:
    said = sort(examine(replace(fit, effective_parameters=1e6), data)[0])
    assert said[CAREFUL]
    assert said[NOTE]
    assert not said[FINE]


def test_an_input_that_is_the_same_in_every_episode_is_named() -> None:
    """Hours of whole days: what an hour is worth cancels. In windows of a day it does not."""
    rng = np.random.default_rng(1)

    def make(first: int, steps: int) -> Episode:
        hours = (first + np.arange(steps)) % 24.0
        states = np.stack([hours, np.full(steps, rng.normal())], 1)
        amount = (np.sin(hours / 4) + states[:, 1]).sum()
        return make_episode(states, np.zeros((steps, 1)), amount)

    days = EpisodeSet.from_episodes([make(0, 24) for _ in range(60)])
    parts = EpisodeSet.from_episodes([make(int(rng.integers(24)), 8) for _ in range(60)])
    words = "The values of s0 are nearly the same in every episode"
    assert words in look(days, order=1)[CAREFUL]
    assert words not in look(parts, order=1)[CAREFUL]


def test_a_skewed_input_is_not_called_the_same() -> None:
    """Most of the mean square of such an input is that of its mean."""
    rng = np.random.default_rng(3)
    made = []
    for _ in range(80):
        states = np.stack([rng.lognormal(0, 1.5, 20), rng.normal(size=20)], 1)
        amount = (np.log(states[:, 0]) + states[:, 1]).sum()
        made.append(make_episode(states, np.zeros((20, 1)), amount))
    said = look(EpisodeSet.from_episodes(made), order=1)
    assert "nearly the same in every episode" not in said[CAREFUL]


@pytest.mark.long
@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_an_input_that_gives_the_outcome_away_is_named(noise) -> None:
    """A total in every row explains all returns, and nothing about the steps."""
    rng = np.random.default_rng(2)
    leaking, plain = [], []
    for _ in range(80):
        states = rng.normal(size=(12, 2))
        amount = (states[:, 0] + states[:, 1] ** 2).sum()
        total = amount + noise * rng.normal(size=12)
        inputs = np.stack([states[:, 0], total], 1)
        leaking.append(make_episode(inputs, np.zeros((12, 1)), amount))
        plain.append(make_episode(states, np.zeros((12, 1)), amount))
    words = "The reward comes from s1, and all steps of an episode get nearly the same"
    said = look(EpisodeSet.from_episodes(leaking), order=1)
    assert words in said[CAREFUL]
    assert "--columns ignored=s1" in said[CAREFUL]
    assert "all steps of an episode" not in look(EpisodeSet.from_episodes(plain), order=1)[CAREFUL]


def test_few_returns_for_many_numbers_are_said(data, fit) -> None:
    said = sort(examine(replace(fit, effective_parameters=80), data)[0])
    assert "120 returns have to determine about 80 numbers" in said[CAREFUL]
    assert "At least 160 returns are needed for that" in said[CAREFUL]
    said = sort(examine(replace(fit, effective_parameters=60), data)[0])
    assert "120 returns determine about 60 numbers, which is enough" in said[FINE]


def widen(fit, **more):
    """The same fit with bands so wide that nothing is known."""
    return replace(fit, model=replace(fit.model, inflation=1e3, **more))


def test_effects_that_returns_leave_open_are_named(data, fit) -> None:
    said = sort(examine(widen(fit), data)[0])
    assert "do not determine the shape" in said[CAREFUL]
    assert all(one.name in said[CAREFUL] for one in fit.model.inputs)
    assert "do not determine the shape" not in sort(examine(fit, data)[0])[CAREFUL]


def test_an_effect_without_a_share_needs_no_shape(data, fit) -> None:
    small = np.full(len(fit.model.effects), 1e-3)
    assert not sort(examine(widen(fit, shares=small), data)[0])[CAREFUL]


@pytest.mark.parametrize(
    ("part", "words"),
    [("potentials", "terms that cancel"), ("effects left out", "inputs that were left out")],
)
def test_what_may_hide_is_said_with_its_size(data, fit, part, words) -> None:
    spread = examine(fit, data)[1]["reward_spread"]
    for share, level in ((0.1, FINE), (0.3, CAREFUL), (0.9, UNRELIABLE)):
        hidden = {"moment": 0.0, part: (share * spread) ** 2}
        said = sort(examine(replace(fit, hidden=hidden), data)[0])
        assert f"{share:.0%}".replace("%", " %") in said[level]
        assert (words in said[level]) == (level != FINE)
    assert "as low as about 0.74" in said[UNRELIABLE]


def test_a_potential_in_the_reward_is_never_fine() -> None:
    """h(s') - h(s) is most of the reward, and returns hardly show it."""
    rng = np.random.default_rng(3)
    made = []
    for _ in range(120):
        states = rng.normal(size=(31, 2))
        actions = rng.uniform(-1, 1, (30, 1))
        amount = actions.sum() + 3 * (states[-1, 1] - states[0, 1]) + 0.2 * rng.normal()
        made.append(make_episode(states, actions, amount))
    said = look(EpisodeSet.from_episodes(made), order=1)
    assert not said[FINE]
    assert "terms that cancel between steps" in said[CAREFUL] + said[UNRELIABLE]


@pytest.mark.parametrize("size", [0.0, 4.0])
def test_a_large_potential_of_a_slow_state_is_noticed_and_within_the_bands(size) -> None:
    """It is far larger than the effects found, but moves little from step to step."""
    rng = np.random.default_rng(4)
    made, truth = [], []
    for _ in range(150):
        slow = np.cumsum(0.25 * rng.normal(size=31)) + rng.normal()
        states = np.column_stack([rng.normal(size=31), slow])
        actions = rng.uniform(-1, 1, (30, 1))
        truth.append(np.sin(states[:-1, 0]) + 0.1 * rng.normal(size=30) + size * np.diff(slow))
        made.append(make_episode(states, actions, truth[-1].sum()))
    episodes = EpisodeSet.from_episodes(made)
    found = fit_to(episodes, state_at="start", order=1)
    said = sort(examine(found, episodes)[0])
    assert bool(said[CAREFUL] + said[UNRELIABLE]) == bool(size)
    mean, std = found.model.predict_both(
        StepBatch(
            np.concatenate([episode.observations[:-1] for episode in episodes]),
            np.concatenate([episode.actions for episode in episodes]),
        ),
    )
    gap = mean - np.concatenate(truth)
    assert 0.8 < (np.abs(gap) < 1.645 * std).mean() < 0.99


def make_alike(noise: float) -> EpisodeSet:
    rng = np.random.default_rng(0)
    made = []
    for _ in range(160):
        walk = np.cumsum(rng.normal(size=(31, 1)), 0)
        states = np.concatenate([walk, walk + noise * np.cumsum(rng.normal(size=walk.shape), 0)], 1)
        amount = (3 * np.abs(walk[:-1, 0] - 1) + 0.5 * states[:-1, 1]).sum()
        made.append(make_episode(states, rng.uniform(-1, 1, (30, 1)), amount))
    return EpisodeSet.from_episodes(made)


def test_inputs_that_move_together_are_named_where_effects_have_rough_mates() -> None:
    data = make_alike(0.1)
    fit = fit_to(data, order=1, state_at="start")
    assert len(fit.model.columns) > len(fit.correlated) == 2
    names = data.observation_names
    said = sort(examine(fit, data)[0])
    assert f"{names[1]} and {names[0]} rise and fall together" in said[CAREFUL]


def test_inputs_that_move_apart_are_not_named() -> None:
    data = make_alike(3.0)
    fit = fit_to(data, order=1, state_at="start")
    assert len(fit.correlated) == 2
    assert "rise and fall together" not in " ".join(sort(examine(fit, data)[0]).values())


@pytest.mark.long
def test_every_input_is_pinned_down_once_with_the_next_state_too() -> None:
    data = draw(lambda s, a: np.sign(s[:, 0]) + a[:, 0])
    for next_state in (False, True):
        fit = fit_to(data, next_state=next_state)
        findings, numbers = examine(fit, data)
        shown = {name_effect(curve.references) for curve in fit.model.explain().effects}
        assert set(numbers["pinned_down"]) == shown
        assert not any(f"of {len(shown) + 1} effects" in finding.text for finding in findings)


@pytest.mark.parametrize(("count", "words"), [(1, "one return"), (9, "There are 9 returns")])
def test_fewer_than_ten_returns_are_unreliable(count, words) -> None:
    for reward in (lambda s, a: np.ones(len(s)), lambda s, a: s[:, 0]):
        said = look(draw(reward, episodes=count))
        assert words in said[UNRELIABLE]
        assert not said[FINE]


def test_ten_returns_are_not_called_too_few() -> None:
    said = look(draw(lambda s, a: s[:, 0], episodes=10))
    assert "There are 10 returns" not in " ".join(said.values())


def make_lengths(*, terminated, lengths, pay, seed=0) -> EpisodeSet:
    rng = np.random.default_rng(seed)
    made = []
    for length in lengths:
        states = rng.normal(size=(length + 1, 2))
        actions = rng.uniform(-1, 1, (length, 1))
        made.append(make_episode(states, actions, pay(length), terminated=terminated(length)))
    return EpisodeSet.from_episodes(made)


def test_one_a_step_is_fine_where_lengths_tell() -> None:
    lengths = np.random.default_rng(1).integers(5, 40, 60)
    said = look(make_lengths(terminated=lambda n: False, lengths=lengths, pay=lambda n: n))
    assert said[FINE].startswith("Every step earns the same")
    assert not said[CAREFUL] + said[UNRELIABLE]


def test_one_a_step_and_none_at_the_fall_is_fine() -> None:
    """As InvertedPendulum pays, with a time limit of 30 steps."""
    lengths = np.minimum(np.random.default_rng(1).integers(5, 60, 80), 30)
    fell = {"terminated": lambda n: n < 30, "pay": lambda n: n - (n < 30)}
    data = make_lengths(lengths=lengths, **fell)
    fit = fit_to(data)
    assert fit.model.needs_termination
    said = sort(examine(fit, data)[0])
    assert said[FINE]
    assert not said[CAREFUL] + said[UNRELIABLE]


def test_equal_returns_of_equal_lengths_say_nothing() -> None:
    said = look(draw(lambda s, a: np.ones(len(s))))
    assert "All returns are equal" in said[CAREFUL]
    assert not said[FINE]


def test_returns_that_nothing_drives_are_unreliable() -> None:
    rng = np.random.default_rng(2)
    said = look(draw(lambda s, a: rng.normal(size=len(s)), episodes=100))
    assert "Nothing was found to drive the return" in said[UNRELIABLE]
    assert not said[FINE]


def test_a_spread_that_rounding_hides_is_unreliable() -> None:
    pay = {"episodes": 60, "steps": 60, "offset": 1e6}
    said = look(draw(lambda s, a: 0.3 * s[:, 0] + a[:, 0], kind=np.float32, **pay))
    assert "differ by no more than the rounding" in said[UNRELIABLE]
    assert not said[FINE]
    said = look(draw(lambda s, a: 0.3 * s[:, 0] + a[:, 0], **pay), order=1)
    assert "rounding" not in " ".join(said.values())


def test_returns_that_no_reward_explains_are_named(data, fit) -> None:
    made = [
        make_episode(e.observations, e.actions, e.rewards.sum() + 900 * (i in (3, 50)))
        for i, e in enumerate(data)
    ]
    wrong = EpisodeSet.from_episodes(made)
    found = fit_to(wrong, state_at="start", order=1)
    findings, numbers = examine(found, wrong)
    assert numbers["outliers"] == [3, 50]
    (text,) = [finding.text for finding in findings if "far from" in finding.text]
    assert "2 of 120 returns are far" in text
    assert "Look at episodes 3, 50 (the first is 0)" in text
    assert "far from" not in " ".join(sort(examine(fit, data)[0]).values())


def test_few_that_hold_most_of_the_spread_call_for_care(data, fit) -> None:
    """A rare fault that no input shows looks like an error of the returns."""
    made = [
        make_episode(e.observations, e.actions, e.rewards.sum() - size * (i in (3, 50)))
        for i, e in enumerate(data)
        for size in [100 * float(np.std([one.rewards.sum() for one in data]))]
    ]
    changed = replace(fit, weights=np.where(np.isin(np.arange(120), (3, 50)), 0.01, 1.2))
    said = sort(examine(changed, EpisodeSet.from_episodes(made))[0])
    assert "They account for 99 % of how returns differ" in said[CAREFUL]
    assert "right only if these returns are errors" in said[CAREFUL]


def test_many_of_them_call_for_care_and_five_are_named(data, fit) -> None:
    made = [
        make_episode(e.observations, e.actions, e.rewards.sum() + 900 * (i < 8))
        for i, e in enumerate(data)
    ]
    changed = replace(fit, weights=np.where(np.arange(120) < 8, 0.01, 1.2))
    said = sort(examine(changed, EpisodeSet.from_episodes(made))[0])
    assert "8 of 120 returns are far" in said[CAREFUL]
    assert "episodes 0, 1, 2, 3, 4 and 3 more" in said[CAREFUL]


def test_a_return_that_is_hardly_off_is_not_named(data, fit) -> None:
    changed = replace(fit, weights=np.where(np.arange(120) < 8, 0.01, 1.2))
    assert examine(changed, data)[1]["outliers"] == []


def test_a_reward_for_terminating_cannot_be_seen_if_all_terminate_alike(fit) -> None:
    alike = make_lengths(terminated=lambda n: True, lengths=[20] * 40, pay=lambda n: n)
    varied = make_lengths(terminated=lambda n: True, lengths=range(10, 50), pay=lambda n: n)
    limited = make_lengths(terminated=lambda n: False, lengths=[20] * 40, pay=lambda n: n)
    fit = replace(fit, weights=np.ones(40))
    said = sort(examine(fit, alike)[0])
    assert "All episodes terminate after about the same number of steps (20)" in said[CAREFUL]
    for other in (varied, limited):
        assert "terminate" not in " ".join(sort(examine(fit, other)[0]).values())


@pytest.mark.parametrize("noise", [0.0, 4.0])
def test_what_all_episodes_do_once_may_hide_a_reward_for_terminating(noise) -> None:
    rng = np.random.default_rng(7)
    made = []
    for _ in range(100):
        steps = int(rng.integers(10, 40))
        states, actions = rng.normal(size=(steps + 1, 2)), rng.uniform(-1, 1, (steps, 1))
        amount = 2 * states[:-1, 0].sum() + noise * rng.normal()
        made.append(make_episode(states, actions, amount, terminated=True))
    said = look(EpisodeSet.from_episodes(made), state_at="start", order=1)
    assert ("All episodes terminate" in said[CAREFUL]) == bool(noise)
