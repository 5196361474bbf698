"""Effects that act late or change during an episode are named, and only where there are any."""

from dataclasses import replace

import numpy as np
import pytest

from grd_offline.additive.hidden import DECAYS, delay
from grd_offline.additive.settings import ClosedFormSettings
from grd_offline.core.episodes import Episode, EpisodeSet
from grd_offline.methods.closed_form.estimator import examine
from grd_offline.methods.closed_form.fit import fit_closed_form
from grd_offline.methods.contract import CAREFUL, UNRELIABLE

QUICK = ClosedFormSettings(basis=5, final_basis=8, rough_basis=1, order=1, switches=False)
LATE, TIMED = "depend on earlier steps", "depend on the time within an episode"
EARLY = "depend on later steps"
NOISY = "single steps are mostly noise"


def draw(reward, noise=0.02):
    """Episodes of 30 steps with a dose about a level of its own, and what `reward` makes of it."""
    rng = np.random.default_rng(0)
    made = []
    for _ in range(150):
        states = rng.normal(size=(31, 1))
        doses = rng.normal() + 0.7 * rng.normal(size=(30, 2))
        paid = reward(doses[:, 0], np.arange(30)).sum() + noise * rng.normal(size=30).sum()
        last = np.arange(30) == 29
        made.append(Episode(states, doses, last * paid, last & False, last, last))
    return EpisodeSet.from_episodes(made)


def look(episodes, order=1):
    found = fit_closed_form(episodes, replace(QUICK, order=order), np.random.default_rng(0))
    return [one.short for one in examine(found, episodes)[0] if one.level in (CAREFUL, UNRELIABLE)]


@pytest.mark.long
@pytest.mark.parametrize(
    ("reward", "words"),
    [
        (lambda dose, time: 2 * np.append(dose[:1], dose[:-1]), [LATE]),
        (lambda dose, time: 2 * np.append(dose[1:], dose[-1:]), [EARLY]),
        (lambda dose, time: 2 * dose * (time < 15), [TIMED]),
        (lambda dose, time: 2 * dose, []),
        (lambda dose, time: np.tanh(2 * dose) + dose, []),
    ],
    ids=["late", "early", "at first only", "at once", "bent"],
)
def test_what_acts_late_or_fades_is_told(reward, words):
    said = look(draw(reward))
    assert [word for word in (LATE, EARLY, TIMED) if any(word in one for one in said)] == words


@pytest.mark.parametrize(("noise", "is_told"), [(2.0, True), (0.3, False)])
def test_noise_of_steps_that_exceeds_the_rewards_is_told(noise, is_told):
    assert (NOISY in look(draw(lambda dose, time: dose, noise=noise))) == is_told


def draw_table(kept, episodes=200, steps=12):
    """Rows of three states; `kept` is the correlation of each with its next value. The first acts a
    step late, beside the second."""
    rng = np.random.default_rng(1)
    made = []
    for _ in range(episodes):
        states = rng.normal(size=(steps, 3))
        for k in range(1, steps):
            states[k] = kept * states[k - 1] + np.sqrt(1 - kept**2) * states[k]
        paid = 1.2 * states[:-1, 0].sum() + 0.6 * states[:, 1].sum()
        last = np.arange(steps) == steps - 1
        none = np.zeros((steps, 0))
        made.append(Episode(states, none, last * paid, last & False, last, last))
    return EpisodeSet.from_episodes(made)


@pytest.mark.long
def test_a_state_that_acts_late_is_told_where_rows_are_drawn_anew():
    fit = fit_closed_form(draw_table(0.0), QUICK, np.random.default_rng(0))
    assert np.sqrt(fit.history["earlier steps"]) == pytest.approx(1.2, rel=0.1)
    (finding,) = [one for one in examine(fit, draw_table(0.0))[0] if LATE in one.short]
    assert finding.level == UNRELIABLE
    # Rows that follow from each other are left to the moments.
    fit = fit_closed_form(draw_table(0.5), QUICK, np.random.default_rng(0))
    assert fit.history["earlier steps"] == 0


def test_a_product_of_a_state_and_an_action_that_acts_late_is_told():
    """The state is slow and the action is not: nothing else can stand in for such a product."""
    rng = np.random.default_rng(3)
    made = []
    for _ in range(200):
        states = np.zeros((41, 2))
        for k in range(40):
            states[k + 1] = 0.9 * states[k] + 0.4 * rng.normal(size=2)
        actions = rng.normal(size=(40, 1))
        paid = 2 * (states[:39, 0] * actions[:39, 0]).sum() + 0.3 * states[1:, 1].sum()
        last = np.arange(40) == 39
        made.append(Episode(states, actions, last * paid, last & False, last, last))
    said = look(EpisodeSet.from_episodes(made), order=2)
    assert any(LATE in one for one in said)


def test_a_table_that_says_what_was_chosen_a_row_before_is_told():
    """Its rows are independent, and the choice of the last one is not known."""
    rng = np.random.default_rng(0)
    made = []
    for _ in range(150):
        chosen, last = rng.normal(size=31), np.arange(30) == 29
        rows = np.stack([chosen[:-1], rng.normal(size=30)], 1)
        paid = 2 * chosen[1:].sum() + 0.5 * rows[:, 1].sum()
        none = np.zeros((30, 0))
        made.append(Episode(rows, none, last * paid, last & False, last, last))
    episodes = EpisodeSet.from_episodes(made)
    fit = fit_closed_form(episodes, QUICK, np.random.default_rng(0))
    assert set(fit.moments) == {"start", "before"}
    findings = examine(fit, episodes)[0]
    assert any("No other moment was tried" in one.text for one in findings)
    (finding,) = [one for one in findings if EARLY in one.short]
    assert finding.level == UNRELIABLE


@pytest.mark.long
@pytest.mark.parametrize("terminates", [False, True])
def test_what_acts_less_and_less_is_told(terminates):
    """A speed that is not observed: each action adds to it, and friction takes a tenth per step."""
    rng = np.random.default_rng(0)
    made = []
    for _ in range(200):
        count = int(rng.integers(10, 60))
        states, actions = rng.normal(size=(count + 1, 2)), rng.uniform(-1, 1, (count, 1))
        speed = np.zeros(count)
        for k in range(1, count):
            speed[k] = 0.9 * speed[k - 1] + actions[k - 1, 0]
        last = np.arange(count) == count - 1
        paid = (1 + 0.4 * speed).sum() + 0.3 * states[:-1, 0].sum()
        ends = (last, last & False) if terminates else (last & False, last)
        made.append(Episode(states, actions, last * paid, *ends, last))
    assert any(LATE in one for one in look(EpisodeSet.from_episodes(made)))


def test_the_end_of_an_episode_is_no_action():
    """A reward for terminating, whose returns are discounted, does not act late."""
    rng = np.random.default_rng(1)
    made = []
    for _ in range(150):
        count = int(rng.integers(2, 60))
        states = rng.normal(size=(count + 1, 1))
        last = np.arange(count) == count - 1
        ended = last & (rng.random() < 0.5)
        paid = states[:-1, 0].sum() + 5 * ended[-1] * 0.97**count
        made.append(
            Episode(states, rng.normal(size=(count, 1)), last * paid, ended, last & ~ended, last)
        )
    said = look(EpisodeSet.from_episodes(made))
    assert not any(word in one for one in said for word in (LATE, EARLY))


@pytest.mark.parametrize("decay", DECAYS)
def test_what_comes_late_follows_its_recursion(decay):
    parts = np.random.default_rng(0).normal(size=(300, 2))
    late = delay(parts, decay)
    assert (late[0] == 0).all()
    np.testing.assert_allclose(late[1:], decay * late[:-1] + (1 - decay) * parts[:-1], atol=1e-8)
