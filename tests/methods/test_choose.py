"""Which fit `auto` takes, and the net within the closed form's mask that challenges it."""

from dataclasses import replace

import numpy as np
import pytest

from grd_offline.core.episodes import Episode, EpisodeSet
from grd_offline.core.statistics import pearson
from grd_offline.methods import make_decomposer
from grd_offline.methods.choose import (
    CHALLENGERS,
    Candidate,
    _are_level,
    _compare,
    _Contest,
    choose,
)
from grd_offline.methods.settings import DecomposeSettings


def make_candidate(fit, errors):
    errors = np.asarray(errors, float)
    zeros = np.zeros_like(errors)
    return Candidate(fit, make_decomposer("uniform"), zeros, zeros, zeros, errors, 1.0)


def test_the_challenger_with_the_smallest_errors_wins():
    noise = np.random.default_rng(0).uniform(0.9, 1.1, 50)
    closed = make_candidate("closed-form", noise)
    first, second = (
        make_candidate("masked-net", 0.5 * noise),
        make_candidate("pair-net", 0.6 * noise),
    )
    for order in ([first, second], [second, first]):
        winner, reason = _compare(closed, order)
        assert winner is first
        assert "pair-net 0.60" in reason


def test_corrupted_returns_have_no_vote():
    noise = np.random.default_rng(0).uniform(0.9, 1.1, 50)
    errors = np.append(noise, 1e6)
    closed, linear = (
        make_candidate("closed-form", errors),
        make_candidate("linear", np.append(2 * noise, 1.0)),
    )
    assert closed.find_voters().sum() == 50
    winner, reason = _compare(closed, [linear])
    assert winner is closed
    assert "linear 2.00" in reason
    assert not _are_level(closed, linear)
    assert _are_level(closed, make_candidate("linear", np.append(1.05 * noise, 1.0)))


def test_a_challenger_without_hope_stops_after_a_quarter(monkeypatch):
    """Returns of noise: networks are timed, tried with a quarter of their updates, and no further.

    How long they take is said before the quarter begins.
    """
    rng = np.random.default_rng(0)
    episodes, _ = make_waves(260, rng)
    tried = []

    def attempt(self, fit, progress, **more):
        if fit in CHALLENGERS:
            tried.append((fit, more))
            progress("net", 0.0)
        errors = np.full(52, {"closed-form": 1.0, "linear": 3.0, "uniform": 3.0}.get(fit, 2.0))
        found = make_candidate(fit, errors)
        return replace(found, true=np.arange(52.0), predicted=0.8 * np.arange(52.0))

    stages = []
    monkeypatch.setattr(_Contest, "_try", attempt)
    monkeypatch.setattr(_Contest, "finish", lambda self, fit, reason: (fit, reason))
    settings = DecomposeSettings()
    fit, _ = choose(episodes, settings, 1.0, rng, lambda stage, share: stages.append(stage))
    assert fit == "closed-form"
    assert [name for name, _ in tried] == ["masked-net"] * 4 + ["pair-net"] * 4
    assert [more["updates"] for _, more in tried[:4]] == [1, 30, 90, 750]
    assert set(tried[7][1]) == {"mask_updates", "reward_updates", "dynamics_updates"}
    assert stages[0] == "comparing with other fits: masked-net, timed: net"
    assert stages[3].startswith("comparing with other fits: masked-net, about 0 s")


@pytest.mark.parametrize("spread", [0.0, 5.0])
def test_a_small_or_uncertain_gain_does_not_win(spread):
    noise = np.random.default_rng(0).standard_normal(50)
    errors = 10 + spread * (noise - noise.mean())
    share = 0.95 if spread == 0 else 0.85
    closed = make_candidate("closed-form", np.full(50, 10.0))
    winner, reason = _compare(closed, [make_candidate("pair-net", share * 10 + 10 * (errors - 10))])
    assert winner is closed
    assert "(not clearly smaller)" in reason


def make_waves(count, rng):
    """A wave along a slant through four of six inputs: no three of them say much."""
    episodes, truth = [], []
    for _ in range(count):
        observations = rng.uniform(-1.7, 1.7, (11, 5)).astype(np.float32)
        actions = rng.uniform(-1.7, 1.7, (10, 1)).astype(np.float32)
        inputs = np.concatenate([observations[:-1], actions], 1)[:, [0, 2, 4, 5]]
        rewards = np.sin(inputs @ np.array([1.0, 0.8, 1.2, 0.9])) + 0.3 * inputs.sum(1)
        last = np.arange(10) == 9
        never = np.zeros(10, np.bool_)
        episodes.append(Episode(observations, actions, last * rewards.sum(), never, last, last))
        truth.append(rewards)
    return EpisodeSet.from_episodes(episodes), truth


@pytest.mark.long
def test_the_masked_net_learns_what_four_inputs_do_together():
    rng = np.random.default_rng(0)
    training, _ = make_waves(220, rng)
    test, truth = make_waves(50, rng)
    found = make_decomposer("grd", "masked-net", updates=300, members=1)
    found.fit(training, rng=np.random.default_rng(0))
    assert found.masks_["state_to_reward"].tolist() == [1, 0, 1, 0, 1]
    missed = [
        1 - pearson(np.concatenate(list(fit.relabel(test))), np.concatenate(truth))
        for fit in (found, found.closed_)
    ]
    assert missed[0] < 0.5 * missed[1]
