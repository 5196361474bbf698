from __future__ import annotations

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from grd_offline.core.episodes import Episode, EpisodeSet
from grd_offline.core.steps import StepBatch
from grd_offline.methods.rrd import Rrd, RrdSettings
from grd_offline.rewards.network import NetworkFunction


def make_set(*, final: bool = True, every: int | None = None) -> EpisodeSet:
    """r = s_0 + 3 (s_1' - s_1), episodes of unequal length; per-step truth by `true_rewards`."""
    rng = np.random.default_rng(0)
    episodes = []
    for steps in rng.integers(10, 30, 150):
        observations = rng.standard_normal((steps + 1, 2))
        observations[:, 0] += rng.standard_normal()
        rewards = true_rewards(observations)
        delivered = np.arange(steps) == steps - 1
        if every is not None:
            delivered |= np.arange(steps) % every == every - 1
        paid = np.zeros(steps)
        paid[delivered] = np.diff(np.cumsum(rewards)[delivered], prepend=0.0)
        ends = np.arange(steps) == steps - 1
        episodes.append(
            Episode(
                observations if final else observations[:-1],
                rng.uniform(-1, 1, (steps, 1)),
                paid,
                np.zeros(steps, bool),
                ends,
                delivered,
            )
        )
    return EpisodeSet.from_episodes(episodes)


def true_rewards(observations: np.ndarray) -> np.ndarray:
    return observations[:-1, 0] + 3 * np.diff(observations[:, 1]) + 1


def settings(**changes: object) -> RrdSettings:
    options = {"hidden": (32, 32), "updates": 400, "learning_rate": 3e-3, **changes}
    return RrdSettings(**options)  # type: ignore[arg-type]


@pytest.mark.long
@pytest.mark.parametrize("unbiased", [False, True])
def test_learns_a_reward_and_sees_the_difference(unbiased: bool) -> None:
    episodes = make_set(every=5)
    model = Rrd.from_settings(settings(unbiased=unbiased, rows_per_batch=16))
    model.fit(episodes, rng=np.random.default_rng(1))
    true = np.concatenate([true_rewards(episode.observations) for episode in episodes])
    found = np.concatenate(list(model.relabel(episodes)))
    assert np.corrcoef(found, true)[0, 1] > 0.9
    assert found.mean() == pytest.approx(true.mean(), abs=0.2)
    assert model.masks_ is None


def test_needs_the_next_observation_where_it_learned_from_it() -> None:
    model = Rrd.from_settings(settings(updates=3)).fit(make_set(), rng=np.random.default_rng(1))
    with pytest.raises(ValueError, match="next_observations: missing"):
        model.predict(np.zeros((2, 2)), np.zeros((2, 1)))
    assert model.predict(np.zeros((2, 2)), np.zeros((2, 1)), np.ones((2, 2))).shape == (2,)


@pytest.mark.parametrize(("use_next", "uses"), [(None, False), (True, True), (False, False)])
def test_without_last_observations(use_next: bool | None, uses: bool) -> None:
    model = Rrd.from_settings(settings(updates=3, use_next=use_next))
    model.fit(make_set(final=False), rng=np.random.default_rng(1))
    assert isinstance(model.function_, NetworkFunction)
    assert model.function_.needs_next == uses
    assert all(np.isfinite(rewards).all() for rewards in model.relabel(make_set(final=False)))


def test_second_fit_equals_a_fresh_one() -> None:
    episodes = make_set()
    model = Rrd.from_settings(settings(updates=5, discount=0.9, members=2))
    first = model.fit(episodes, rng=np.random.default_rng(1)).relabel(episodes)
    first = np.concatenate(list(first))
    again = model.fit(episodes, rng=np.random.default_rng(1)).relabel(episodes)
    np.testing.assert_array_equal(np.concatenate(list(again)), first)


def test_function_survives_being_taken_apart() -> None:
    model = Rrd.from_settings(settings(updates=3)).fit(make_set(), rng=np.random.default_rng(1))
    again = NetworkFunction.from_parts(model.function_.config(), model.function_.tensors())
    steps = (np.ones((5, 2)), np.ones((5, 1)), np.zeros((5, 2)))
    np.testing.assert_array_equal(again.predict(StepBatch(*steps)), model.predict(*steps))


def test_use_before_fit_is_refused() -> None:
    with pytest.raises(NotFittedError, match="Rrd is not fitted yet"):
        Rrd().predict(np.zeros((1, 2)), np.zeros((1, 1)))


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match="subsequence: expected a whole number of at least 2"):
        RrdSettings(subsequence=1)
    with pytest.raises(ValueError, match="updates: expected a whole number of at least 1, got 0"):
        RrdSettings(updates=0)
