"""What is said about the moment of a step at which the reward looks at the state."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from grd_offline.additive.moments import BEFORE, END, MIDPOINT, START
from grd_offline.additive.settings import ClosedFormSettings
from grd_offline.core.episodes import Episode, EpisodeSet
from grd_offline.methods.closed_form.estimator import examine, find_moment
from grd_offline.methods.closed_form.fit import fit_closed_form
from grd_offline.methods.contract import CAREFUL, FINE, UNRELIABLE


def draw(pay, *, jump: float, episodes: int = 60, steps: int = 30) -> EpisodeSet:
    """Two states that change more the larger `jump` is, and one action."""
    rng = np.random.default_rng(0)
    made = []
    for _ in range(episodes):
        states = [rng.normal(size=2)]
        for _ in range(steps):
            states.append(np.sqrt(1 - jump**2) * states[-1] + jump * rng.normal(size=2))
        every = np.array(states)
        actions = rng.uniform(-1, 1, (steps, 1))
        last = np.arange(steps) == steps - 1
        amount = pay(every, actions).sum() + 0.05 * rng.normal()
        made.append(Episode(every, actions, last * amount, last & False, last, last))
    return EpisodeSet.from_episodes(made)


def fit_to(data: EpisodeSet, **settings):
    chosen = ClosedFormSettings(order=1, **settings)
    return fit_closed_form(data, chosen, np.random.default_rng(0))


@pytest.fixture(scope="module")
def fit():
    """A reward of the state at the start, where states jump."""
    return fit_to(draw(lambda s, a: s[:-1, 0] + a[:, 0], jump=0.8))


def test_a_moment_that_returns_decide_is_fine(fit) -> None:
    assert fit.state_at == START
    (finding,) = find_moment(fit, 1.0)
    assert finding.level == FINE
    assert "looks at the state at the start of each step" in finding.text
    assert "clearly better" in finding.text


def test_a_moment_that_was_asked_for_is_not_discussed() -> None:
    data = draw(lambda s, a: s[:-1, 0] + a[:, 0], jump=0.8, episodes=40)
    assert find_moment(fit_to(data, state_at="end"), 1.0) == []


def test_a_reward_without_states_has_no_moment() -> None:
    data = draw(lambda s, a: a[:, 0], jump=0.8, episodes=40)
    assert find_moment(fit_to(data), 1.0) == []


@pytest.mark.parametrize(("share", "level"), [(0.1, FINE), (0.4, CAREFUL), (0.8, UNRELIABLE)])
def test_an_undecided_moment_names_the_others_and_what_depends_on_it(fit, share, level) -> None:
    evidence = {START: 10.0, MIDPOINT: 10.0, END: 10.0}
    variance = (2 * share) ** 2
    changed = replace(fit, state_at=MIDPOINT, moments=evidence, moment_variance=variance)
    (finding,) = find_moment(changed, 2.0)
    assert finding.level == level
    assert "halfway through each step" in finding.text
    assert "at the start of each step or at the end of each step" in finding.text
    assert f"{share:.0%}".replace("%", " %") in finding.text
    assert ("--state-at" in finding.text) == (level != FINE)
    assert bool(finding.short) == (level != FINE)


def test_a_moment_that_is_excluded_is_not_named(fit) -> None:
    evidence = {START: 10.0, MIDPOINT: 10.0, END: -10.0}
    changed = replace(fit, state_at=MIDPOINT, moments=evidence, moment_variance=1.0)
    (finding,) = find_moment(changed, 1.0)
    assert "at the start of each step" in finding.text
    assert "at the end of each step" not in finding.text


def test_a_reward_that_may_come_late_is_named_as_one_possibility(fit) -> None:
    evidence = {START: 10.0, BEFORE: 10.5}
    (finding,) = find_moment(replace(fit, moments=evidence, moment_variance=0.25), 1.0)
    assert finding.level == CAREFUL
    assert "one step earlier" in finding.text


def test_states_that_move_a_little_leave_the_moment_open() -> None:
    """As in HalfCheetah: the mean of both ends is paid, and returns cannot tell."""
    data = draw(lambda s, a: (s[:-1, 0] + s[1:, 0]) / 2, jump=0.6)
    made = [
        replace(e, rewards=e.rewards + e.delivered * 3 * np.random.default_rng(i).normal())
        for i, e in enumerate(data)
    ]
    data = EpisodeSet.from_episodes(made)
    fit = fit_to(data)
    findings, numbers = examine(fit, data)
    assert fit.state_at == MIDPOINT
    assert not any(finding.level == FINE for finding in findings)
    assert any("Returns do not exclude that it looks" in finding.text for finding in findings)
    assert numbers["state_at"] == MIDPOINT
    assert set(numbers["moments"]) == {START, MIDPOINT, END}


def test_a_reward_of_the_previous_state_is_never_fine() -> None:
    data = draw(lambda s, a: np.concatenate([s[:1, 0], s[:-2, 0]]) + a[:, 0], jump=0.7)
    findings, _ = examine(fit_to(data), data)
    assert not any(finding.level == FINE for finding in findings)
    assert findings[0].level == UNRELIABLE
    assert "a step late" in findings[0].text


def test_a_reward_of_this_state_does_not_come_late(fit) -> None:
    data = draw(lambda s, a: s[:-1, 0] + a[:, 0], jump=0.8)
    assert not any("late" in finding.text for finding in examine(fit, data)[0])
