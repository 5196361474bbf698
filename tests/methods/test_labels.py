"""Success or failure, and preferences: a logistic link in the closed form."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from grd_offline import (
    ClosedForm,
    DataError,
    DecomposeSettings,
    Preferences,
    RewardModel,
    attach_preferences,
    decompose,
)
from grd_offline.additive.labels import LabelBank
from grd_offline.additive.search import NOWHERE, Block
from grd_offline.additive.settings import ClosedFormSettings
from grd_offline.core.episodes import Episode, EpisodeSet
from grd_offline.core.outcomes import NUMBER, PREFERENCE, SUCCESS, describe_bands
from grd_offline.core.statistics import pearson, soften_chance
from grd_offline.core.steps import StepBatch
from grd_offline.methods.choose import choose
from grd_offline.methods.closed_form.fit import are_labels, fit_closed_form
from grd_offline.methods.verdict import check_held_out

STEPS, EPISODES = 10, 250
RULES = ClosedFormSettings().rules()


def pay(states, actions):
    return np.sin(2 * states[:, 0]) + 0.7 * actions[:, 0]


def draw(*, label=True, seed=0, count=EPISODES):
    """Episodes with success above the median, and the true rewards of all steps."""
    rng = np.random.default_rng(seed)
    parts = [(rng.normal(size=(STEPS + 1, 3)), rng.normal(size=(STEPS, 1))) for _ in range(count)]
    truth = [pay(states[:-1], actions) for states, actions in parts]
    returns = np.array([one.sum() for one in truth])
    amounts = returns > np.median(returns) if label else returns
    return set_amounts(parts, amounts), np.array(truth)


def set_amounts(parts, amounts):
    last = np.arange(STEPS) == STEPS - 1
    return EpisodeSet.from_episodes(
        [
            Episode(states, actions, last * float(amount), last & False, last, last)
            for (states, actions), amount in zip(parts, amounts, strict=True)
        ]
    )


def draw_unequal(*, seed=0, count=EPISODES):
    """Every step pays something, and success needs a sum above the median, however many steps."""
    rng = np.random.default_rng(seed)
    episodes, truth = [], []
    for length in rng.integers(5, 20, count):
        states, actions = rng.normal(size=(length + 1, 3)), rng.normal(size=(length, 1))
        truth.append(1 + pay(states[:-1], actions))
        episodes.append((states, actions))
    sums = np.array([one.sum() for one in truth])
    labelled = []
    for (states, actions), won in zip(episodes, sums > np.median(sums), strict=True):
        last = np.arange(len(actions)) == len(actions) - 1
        labelled.append(Episode(states, actions, last * float(won), last & False, last, last))
    return EpisodeSet.from_episodes(labelled), np.concatenate(truth), np.median(sums)


@pytest.mark.long
def test_a_limit_that_belongs_to_no_step_is_told_from_the_rewards():
    """Without a base, rewards would have to explain why long episodes succeed and short ones do
    not by something else than their length."""
    episodes, truth, limit = draw_unequal()
    found = fit_to(episodes)
    rewards = np.concatenate(
        [found.model.predict(StepBatch(e.observations[:-1], e.actions)) for e in episodes]
    )
    assert pearson(rewards, truth) > 0.95
    assert found.state_to_reward.tolist() == [1, 0, 0]
    assert found.left_out_r2 > 0.7
    scale = rewards.std() / truth.std()
    assert -found.model.base == pytest.approx(limit * scale, rel=0.25)
    # The same limit is spread over the steps where all episodes have as many.
    assert fit_to(draw()[0]).model.base == 0
    estimator = ClosedForm(order=1, state_at="start").fit(episodes)
    chances = [estimator.predict_amounts(episode, 1.0)[0][0] for episode in episodes]
    labels = [episode.rewards[-1] for episode in episodes]
    assert np.mean((np.array(chances) > 0.5) == labels) > 0.9
    findings, _ = estimator.examine(episodes)
    assert any("in its log-odds of success that belongs to none" in one.text for one in findings)


def test_a_base_is_saved_and_counts_in_chances(tmp_path):
    episodes, _, _ = draw_unequal(count=120)
    settings = DecomposeSettings(fit="closed-form", state_at="start")
    result = decompose(episodes, tmp_path / "grd", settings)
    model = RewardModel.load(tmp_path / "grd")
    metrics = json.loads((tmp_path / "grd" / "metrics.json").read_text())
    assert model.function.base == metrics["base"] < 0
    # Without the base every sum would be a certain success.
    assert metrics["returns_kept_r2"] > 0.8
    assert result.metrics["base"] == metrics["base"]


def fit_to(episodes, **settings):
    quick = ClosedFormSettings(**{"state_at": "start", "order": 1, **settings})
    return fit_closed_form(episodes, quick, np.random.default_rng(0))


def predict(found, episodes):
    return np.array(
        [found.model.predict(StepBatch(e.observations[:-1], e.actions)) for e in episodes]
    )


def prefer_pairs(truth, count=400, *, span=None, seed=1):
    """Pairs of which the one with the larger return is preferred; of pieces with a `span`."""
    rng = np.random.default_rng(seed)
    first = rng.integers(len(truth), size=count)
    second = (first + 1 + rng.integers(len(truth) - 1, size=count)) % len(truth)
    start = np.zeros((2, count), np.int64)
    stop = np.full((2, count), STEPS)
    if span is not None:
        start = rng.integers(STEPS - span + 1, size=(2, count))
        stop = start + span
    sums = [
        np.array([truth[i, a:b].sum() for i, a, b in zip(places, *ends, strict=True)])
        for places, ends in ((first, (start[0], stop[0])), (second, (start[1], stop[1])))
    ]
    pieces = [np.stack([p, start[k], stop[k]], 1) for k, p in enumerate((first, second))]
    return Preferences.between(*pieces, (sums[0] > sums[1]).astype(float))


@pytest.fixture(scope="module")
def labelled():
    return draw()


def test_the_evidence_of_one_weight_is_its_integral() -> None:
    """Laplace's method against numerical integration, without a constant."""
    rng = np.random.default_rng(0)
    column = rng.normal(size=(40, 1))
    labels = (rng.random(40) < 1 / (1 + np.exp(-1.5 * column[:, 0]))).astype(float)
    bank = LabelBank({(0,): Block(column)}, labels, np.zeros(40))
    found = bank.fit([(0,)], ({(0,): 2.0}, 1.0), RULES, iterations=0)
    weights = np.linspace(-12, 12, 4001)
    logits = column * weights
    likely = (labels[:, None] * logits - np.logaddexp(0, logits)).sum(0)
    density = np.exp(likely - weights**2 / 4) / np.sqrt(4 * np.pi)
    assert found.fit.evidence == pytest.approx(np.log(np.trapezoid(density, weights)), abs=0.05)
    assert found.fit.weights[0] == pytest.approx(weights[density.argmax()], abs=0.01)


def test_a_fit_does_not_depend_on_the_fits_before_it() -> None:
    rng = np.random.default_rng(1)
    columns = {(i,): Block(rng.normal(size=(60, 3))) for i in range(3)}
    labels = (columns[0,].columns[:, 0] + rng.normal(size=60) > 0).astype(float)
    fresh, used = (LabelBank(columns, labels, np.full(60, 5.0)) for _ in range(2))
    used.fit([(1,), (2,)], NOWHERE, RULES)
    one, other = (bank.fit([(0,), (1,)], NOWHERE, RULES) for bank in (fresh, used))
    assert one.fit.evidence == pytest.approx(other.fit.evidence, abs=0.1)


def test_success_gives_rewards_masks_and_chances(labelled) -> None:
    episodes, truth = labelled
    found = fit_to(episodes)
    assert found.outcome == found.model.outcome == SUCCESS
    assert found.state_to_reward.tolist() == [1, 0, 0]
    assert found.action_to_reward.tolist() == [1]
    assert pearson(predict(found, episodes).ravel(), truth.ravel()) > 0.95
    assert 0.5 < found.left_out_r2 < found.return_r2 < 1
    assert not found.even_inputs
    fitted = ClosedForm(state_at="start", order=1, outcome=SUCCESS).fit(episodes)
    chances = np.array([fitted.predict_amounts(e, 1.0)[0][0] for e in episodes])
    labels = np.array([e.rewards[-1] for e in episodes])
    assert ((chances > 0) & (chances < 1)).all()
    assert chances[labels == 1].mean() > 0.8 > 0.2 > chances[labels == 0].mean()


def test_labels_that_can_be_asked_for_or_refused(labelled) -> None:
    episodes, _ = labelled
    numbers, _ = draw(label=False, count=20)
    assert are_labels(episodes)
    assert not are_labels(numbers)
    assert not are_labels(episodes[:0:-1].delivered_at_end()[[0, 0]])
    assert fit_to(episodes[:60], outcome=NUMBER).outcome == NUMBER
    with pytest.raises(DataError, match="0 or 1, and both"):
        fit_to(numbers, outcome=SUCCESS)
    with pytest.raises(ValueError, match="outcome: expected one of auto, number, success"):
        ClosedFormSettings(outcome="medal")


def test_a_reward_that_is_paid_at_a_goal_stays_a_number() -> None:
    """The return is 1 where the goal was reached: a sum of rewards explains that exactly."""
    rng = np.random.default_rng(2)
    made = []
    for _ in range(80):
        steps = int(rng.integers(4, 12))
        reached = bool(rng.random() < 0.5)
        last = np.arange(steps) == steps - 1
        states = rng.normal(size=(steps + 1, 2))
        made.append(
            Episode(
                states, np.zeros((steps, 1)), last * float(reached), last & reached,
                last & (not reached), last,
            )
        )  # fmt: skip
    found = fit_to(EpisodeSet.from_episodes(made))
    assert found.outcome == NUMBER
    assert found.model.needs_termination


def test_preferences_between_episodes_and_between_pieces() -> None:
    episodes, truth = draw(label=False, count=120)
    for span in (None, 4):
        given = attach_preferences(episodes, prefer_pairs(truth, span=span))
        found = fit_to(given)
        assert found.outcome == PREFERENCE
        assert found.state_to_reward.tolist() == [1, 0, 0]
        rewards = predict(found, episodes)
        assert pearson(rewards.ravel(), truth.ravel()) > 0.95
        assert abs(rewards.mean()) < 0.2 * rewards.std()
        assert not found.even_inputs


def test_answers_that_say_neither_pull_to_the_middle() -> None:
    episodes, truth = draw(label=False, count=60)
    pairs = prefer_pairs(truth, 200)
    open_pairs = replace(pairs, preferred=np.full(200, 0.5))
    found = fit_to(attach_preferences(episodes, open_pairs))
    assert not found.model.effects


def test_preferences_are_judged_by_pairs_held_out() -> None:
    episodes, truth = draw(label=False, count=60)
    given = attach_preferences(episodes, prefer_pairs(truth, 300))
    settings = DecomposeSettings(state_at="start")
    rng = np.random.default_rng(0)
    choice = choose(given, settings, 1.0, rng, lambda stage, share: None)
    assert choice.winner is not None
    about = choice.winner.describe()
    assert about["held_out_returns"] == 60
    assert about["held_out_return_r2"] > 0.5
    assert choice.reason.startswith("preferences")
    with pytest.raises(DataError, match="rrd learns from returns"):
        choose(given, DecomposeSettings("rrd"), 1.0, rng, lambda stage, share: None)


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (([0], [9], [1]), "second: no episode 9"),
        (([[0, 3, 2]], [[1, 0, 2]], [1]), "first: steps 3 to 2 do not lie"),
        (([[0, 0, 99]], [[1, 0, 2]], [1]), "first: steps 0 to 99 do not lie in episode 0 of 10"),
        (([], [], []), "no pairs"),
    ],
)
def test_pieces_that_do_not_exist_are_refused(pairs, message) -> None:
    episodes, _ = draw(label=False, count=3)
    with pytest.raises(DataError, match=message):
        attach_preferences(episodes, Preferences.between(*pairs))


def test_answers_beyond_their_range_are_refused() -> None:
    with pytest.raises(DataError, match="expected 0 to 1, got 2 in pair 0"):
        Preferences.between([0], [1], [2])
    with pytest.raises(DataError, match="as many"):
        Preferences.between([0, 1], [1], [1])


def test_chances_of_uncertain_logits_are_nearer_to_a_half() -> None:
    logits = np.array([3.0, -3.0])
    sure, unsure = (soften_chance(logits, np.full(2, std)) for std in (0.0, 3.0))
    assert (np.abs(unsure - 0.5) < np.abs(sure - 0.5)).all()
    assert sure.sum() == pytest.approx(1)


def test_words_follow_the_outcome() -> None:
    held_out = {"held_out_returns": 20, "held_out_return_coverage_90": 0.9}
    held_out["held_out_return_r2_without_outliers"] = 0.3
    for outcome in (NUMBER, SUCCESS, PREFERENCE):
        (finding,) = check_held_out(held_out, outcome)
        assert finding.short == f"they explain only 30 % of how {outcome.plural} held out differ"
        assert describe_bands(outcome, True).startswith(
            f"The bands of steps include what {outcome.plural} cannot exclude"
        )
    assert [f"1 {o.singular}" for o in (NUMBER, SUCCESS)] == ["1 return", "1 label"]


def test_an_input_that_is_the_same_in_every_episode_is_named() -> None:
    """The step's number: no label can tell what it is worth."""
    episodes, _ = draw(count=100)
    clock = np.arange(STEPS + 1)[:, None]
    timed = [
        replace(e, observations=np.concatenate([e.observations[:, :1], clock], 1)) for e in episodes
    ]
    assert fit_to(EpisodeSet.from_episodes(timed)).even_inputs == ("s1",)


@pytest.mark.parametrize("label", [True, False])
def test_a_flag_that_is_up_equally_often_in_every_episode_is_named(label) -> None:
    """As a tariff of whole days: six of ten steps have it, whatever the episode."""
    episodes, _ = draw(count=100, label=label)
    flag = (np.arange(STEPS + 1) % STEPS < 6)[:, None].astype(float)
    marked = [
        replace(e, observations=np.concatenate([e.observations[:, :1], flag], 1)) for e in episodes
    ]
    assert fit_to(EpisodeSet.from_episodes(marked)).even_inputs == ("s1",)


def test_no_base_is_fitted_where_a_discount_hides_the_lengths():
    """With powers of .5, episodes of 5 steps and of 20 count as nearly the same number of steps."""
    episodes, _, _ = draw_unequal(count=80)
    found = fit_to(episodes, discount=0.5)
    assert found.model.base == 0
    assert abs(found.model.constant) < 100


def test_no_base_is_fitted_where_the_length_tells_the_label():
    """A failure ends the episode: a base and a constant reward would explain every label."""
    rng = np.random.default_rng(0)
    episodes = []
    for _ in range(120):
        states = rng.normal(size=(21, 2))
        failed = np.flatnonzero(np.abs(states[:20, 0]) > 2)
        steps = failed[0] + 1 if len(failed) else 20
        last = np.arange(steps) == steps - 1
        amounts = last * float(not len(failed))
        actions = rng.normal(size=(steps, 1))
        episodes.append(Episode(states[: steps + 1], actions, amounts, last & False, last, last))
    labelled = EpisodeSet.from_episodes(episodes)
    estimator = ClosedForm(order=1, state_at="start").fit(labelled)
    assert estimator.fit_.length_share > 0.8
    assert estimator.function_.base == 0
    assert estimator.masks_["state_to_reward"].tolist() == [1, 0]
    findings, _ = estimator.examine(labelled)
    assert any("number of steps alone explains" in finding.text for finding in findings)


def test_labels_with_both_states_of_a_step_are_fitted(labelled) -> None:
    episodes, _ = labelled
    fitted = ClosedForm(next_state=True, order=1).fit(episodes)
    assert fitted.function_.outcome == SUCCESS
    assert fitted.masks_["state_to_reward"].any()
