"""What the examination of a fit says."""

from __future__ import annotations

import numpy as np

from grd_offline.episodes import Episode, EpisodeSet
from grd_offline.methods.closed_form.fit import fit_closed_form
from grd_offline.methods.closed_form.identifiability import examine
from grd_offline.methods.closed_form.settings import ClosedFormSettings


def test_inputs_that_move_together_are_named_where_effects_have_rough_mates() -> None:
    rng = np.random.default_rng(0)
    episodes = []
    for _ in range(160):
        walk = np.cumsum(rng.normal(size=(31, 1)), 0)
        states = np.concatenate([walk, walk + 0.3 * rng.normal(size=walk.shape)], 1)
        last = np.arange(30) == 29
        amount = (np.sign(walk[:-1, 0]) + np.sign(states[:-1, 1] - 1)).sum()
        actions = rng.uniform(-1, 1, (30, 1))
        flags = np.zeros(30, bool)
        episodes.append(Episode(states, actions, last * amount, flags, last, last))
    data = EpisodeSet.from_episodes(episodes)
    fit = fit_closed_form(data, ClosedFormSettings(order=1), np.random.default_rng(0))
    assert len(fit.model.columns) > len(fit.correlated_names)
    findings, _ = examine(fit, data)
    names = fit.model.observation_names
    assert any(
        f"{names[1]} and {names[0]} rise and fall together" in finding.text for finding in findings
    )


def draw(reward, *, episodes: int = 60, steps: int = 20) -> EpisodeSet:
    rng = np.random.default_rng(0)
    made = []
    for _ in range(episodes):
        states = 0.5 * np.cumsum(rng.normal(size=(steps + 1, 2)), 0)
        actions = rng.uniform(-1, 1, (steps, 1))
        last = np.arange(steps) == steps - 1
        amount = reward(states[:-1], actions).sum()
        made.append(Episode(states, actions, last * amount, np.zeros(steps, bool), last, last))
    return EpisodeSet.from_episodes(made)


def look(data: EpisodeSet, **settings):
    fit = fit_closed_form(data, ClosedFormSettings(**settings), np.random.default_rng(0))
    findings, numbers = examine(fit, data)
    return fit, [finding.text for finding in findings], numbers


def test_an_episode_of_one_step_changes_nothing_about_what_may_hide() -> None:
    data = draw(lambda s, a: s[:, 0] + a[:, 0])
    flag = np.ones(1, bool)
    one = Episode(np.zeros((1, 2)), np.zeros((1, 1)), np.ones(1), flag, ~flag, flag)
    with_one = EpisodeSet.from_episodes([*data, one])
    before, after = look(data)[2]["telescoping"], look(with_one)[2]["telescoping"]
    for name in data.observation_names:
        assert after[name] > 0
        np.testing.assert_allclose(after[name], before[name], rtol=0.1)


def test_every_input_is_pinned_down_once_with_the_next_state_too() -> None:
    data = draw(lambda s, a: np.sign(s[:, 0]) + a[:, 0])
    for next_state in (False, True):
        fit, texts, numbers = look(data, next_state=next_state)
        assert len(fit.pinned) == len(fit.model.effects)
        shown = {" x ".join(curve.inputs) for curve in fit.model.explain().effects}
        assert set(numbers["pinned_down"]) == shown
        assert not any(f"of {len(shown) + 1} effects" in text for text in texts)


def test_where_nothing_drives_the_return_that_is_all_that_is_said() -> None:
    fit, texts, _ = look(draw(lambda s, a: np.ones(len(s))))
    assert texts == [
        "Every step earns the same: returns follow from the length of an episode alone."
    ]
    rng = np.random.default_rng(1)
    (finding,), _ = examine(fit, draw(lambda s, a: rng.normal(size=len(s))))
    assert finding.level == "careful"
    assert finding.text.startswith("Nothing was found to drive the return")
