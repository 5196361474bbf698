"""Rewards in other units, or with a constant added to every step, change nothing but that."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from worlds import make_episodes, make_world

from grd_offline.core.episodes import EpisodeSet, find_resolution
from grd_offline.methods.baselines import Ircr, Uniform
from grd_offline.methods.contract import Decomposer
from grd_offline.methods.paper import Paper
from grd_offline.methods.relabelling import spread_remainder
from grd_offline.methods.rrd import Rrd, RrdSettings
from grd_offline.methods.training import NetworkData, NetworkFunction

CHANGES = [(1e9, 0.0), (1e-9, 0.0), (1.0, 1e6)]
"""Factors of the returns, and constants added to every reward."""
EPISODES = make_episodes(make_world(length=20), 30)[0]


def change(episodes: EpisodeSet, factor: float, shift: float) -> EpisodeSet:
    return EpisodeSet.from_episodes(
        [
            replace(episode, rewards=episode.rewards * factor + episode.delivered * shift * steps)
            for episode, steps in zip(episodes, episodes.lengths, strict=True)
        ]
    )


def relabel(model: Decomposer, episodes: EpisodeSet) -> np.ndarray:
    model.fit(episodes, rng=np.random.default_rng(0))
    return np.concatenate(list(model.relabel(episodes)))


@pytest.mark.parametrize(("factor", "shift"), CHANGES)
def test_uniform_shares_follow_the_returns(factor: float, shift: float) -> None:
    found = relabel(Uniform(), change(EPISODES, factor, shift))
    expected = relabel(Uniform(), EPISODES)
    np.testing.assert_allclose((found - shift) / factor, expected, atol=1e-6 * expected.std())


@pytest.mark.parametrize(("factor", "shift"), CHANGES)
def test_ircr_of_episodes_of_one_length_stays_the_same(factor: float, shift: float) -> None:
    found = relabel(Ircr(), change(EPISODES, factor, shift))
    assert len(set(EPISODES.lengths)) == 1
    np.testing.assert_allclose(found, relabel(Ircr(), EPISODES), atol=1e-6)


def test_ircr_takes_the_rounding_of_sums_for_none() -> None:
    first = replace(EPISODES[0], rewards=EPISODES[0].delivered * 0.3)
    second = replace(first, rewards=first.delivered * (0.1 + 0.2))
    with pytest.warns(UserWarning, match="All returns are equal"):
        assert not relabel(Ircr(), EpisodeSet.from_episodes([first, second])).any()


@pytest.mark.long
@pytest.mark.parametrize(("factor", "shift"), CHANGES)
@pytest.mark.parametrize("kind", [Rrd, Paper])
def test_networks_learn_the_same(kind: type[Decomposer], factor: float, shift: float) -> None:
    options = {"updates": 30, "hidden": (16, 16), "standardise": True}
    model, same = kind(**options), kind(**options)
    found = relabel(model, change(EPISODES, factor, shift))
    expected = relabel(same, EPISODES)
    size = factor * np.abs(expected).max() + shift
    np.testing.assert_allclose(found, expected * factor + shift, atol=1e-6 * size)
    np.testing.assert_allclose(
        relabel_by_net(model), relabel_by_net(same), atol=1e-6 * np.abs(relabel_by_net(same)).max()
    )


def relabel_by_net(model: Decomposer) -> np.ndarray:
    """The rewards in the units that the net was trained in."""
    function = model.function_
    assert isinstance(function, NetworkFunction)
    function.module.offset.zero_()
    function.module.scale.fill_(1.0)
    return np.concatenate(list(model.relabel(EPISODES)))


def test_a_large_constant_does_not_hide_what_nets_learn_from() -> None:
    plain, moved = (
        NetworkData.from_episodes(episodes, RrdSettings()).targets.numpy()
        for episodes in (EPISODES, change(EPISODES, 1.0, 1e6))
    )
    np.testing.assert_allclose(moved, plain, atol=1e-6)


def test_what_float32_cannot_tell_apart_in_its_own_amounts_is_rounding() -> None:
    single = np.array([0.1, 0.3], np.float32).astype(np.float64)
    assert find_resolution(single) == 1e-6
    assert find_resolution(np.array([0.1, 0.3])) < 1e-12


def test_exact_sums_hold_to_the_last_digit_of_the_amounts() -> None:
    episode = change(EPISODES, 1.0, 1e6)[3]
    rewards = spread_remainder(np.zeros(len(episode)), episode, 1.0)
    assert rewards.sum() == pytest.approx(episode.compute_return(), rel=1e-15)
    assert float(np.float32(episode.compute_return())) != episode.compute_return()
