from __future__ import annotations

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from grd_offline.core.episodes import Episode, EpisodeSet
from grd_offline.core.errors import DataError
from grd_offline.methods.baselines import BaselineSettings, Ircr, Uniform


def make_episode(rewards: list[float | None]) -> Episode:
    """None where nothing is delivered."""
    steps = len(rewards)
    delivered = np.array([reward is not None for reward in rewards])
    paid = np.array([reward or 0.0 for reward in rewards])
    nowhere = np.zeros(steps, bool)
    return Episode(
        np.zeros((steps + 1, 2)), np.zeros((steps, 1)), paid, nowhere, nowhere, delivered
    )


EPISODES = EpisodeSet.from_episodes(
    [
        make_episode([None, None, None, 8.0]),
        make_episode([None, 2.0]),
        make_episode([None, 4.0, None, None, 9.0, None]),
    ]
)


def relabel(model: Uniform | Ircr) -> list[list[float]]:
    model.fit(EPISODES, rng=np.random.default_rng(0))
    return [rewards.tolist() for rewards in model.relabel(EPISODES)]


def test_uniform_shares_each_delivery_among_its_steps() -> None:
    # 23 in the 11 steps that were paid for; the last step of the third episode was not.
    expected = [[2.0] * 4, [1.0] * 2, [2.0, 2.0, 3.0, 3.0, 3.0, pytest.approx(23 / 11)]]
    assert relabel(Uniform()) == expected


def test_uniform_with_a_discount_keeps_the_discounted_sum() -> None:
    rewards = relabel(Uniform(discount=0.5))
    assert rewards[0] == [8 / 1.875] * 4
    assert rewards[2][2:5] == [9 / 0.4375] * 3


def test_uniform_leaves_rewards_of_every_step_as_they_are() -> None:
    episodes = EpisodeSet.from_episodes([make_episode([1.0, 5.0, 2.0])])
    model = Uniform(discount=0.5).fit(episodes, rng=np.random.default_rng(0))
    assert next(model.relabel(episodes)).tolist() == [1.0, 5.0, 2.0]


def test_ircr_normalises_returns_over_the_data() -> None:
    rewards = relabel(Ircr())
    assert [sorted(set(episode)) for episode in rewards] == [[6 / 11], [0.0], [1.0]]


def test_ircr_of_equal_returns_is_zero() -> None:
    episodes = EPISODES[[0, 0]]
    with pytest.warns(UserWarning, match="All returns are equal"):
        model = Ircr().fit(episodes, rng=np.random.default_rng(0))
    assert next(model.relabel(episodes)).tolist() == [0.0] * 4


@pytest.mark.parametrize("method", [Uniform, Ircr])
def test_a_step_without_its_episode_gets_the_mean(method: type[Uniform | Ircr]) -> None:
    told = []
    model = method()
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        model.predict(np.zeros((2, 2)), np.zeros((2, 1)))
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        model.relabel(EPISODES)
    model.fit(EPISODES, rng=np.random.default_rng(0), progress=lambda *news: told.append(news))
    assert told[-1] == ("read", 1.0)
    assert model.masks_ is None
    values = model.predict(np.zeros((2, 2)), np.zeros((2, 1)))
    mean = {Uniform: 23 / 11, Ircr: (4 * 6 / 11 + 6) / 12}[method]
    np.testing.assert_allclose(values, [mean, mean])


def test_uniform_refuses_data_without_any_delivery() -> None:
    with pytest.raises(DataError, match="no reward is delivered"):
        Uniform().fit(
            EpisodeSet.from_episodes([make_episode([None])]), rng=np.random.default_rng(0)
        )


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match="discount: expected more than 0"):
        BaselineSettings(discount=0.0)
