"""`--method ircr` and `uniform`: rewards without a model of the step.

Both give every step a share of what its own episode was paid. So only `relabel` can tell steps
apart: `predict` sees a step without its episode, and gives the mean reward.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from grd_offline.core.episodes import DOUBLE_RESOLUTION, Episode, EpisodeSet
from grd_offline.core.errors import DataError
from grd_offline.core.observer import Progress
from grd_offline.core.settings import RATE, Settings, setting
from grd_offline.core.typing import Array
from grd_offline.methods.contract import Decomposer
from grd_offline.rewards.constant import ConstantFunction


@dataclass(frozen=True)
class BaselineSettings(Settings):
    """Settings of `uniform` and `ircr`."""

    discount: float = setting(1.0, **RATE)
    """Discount factor gamma inside the returns."""


class Uniform(Decomposer, settings=BaselineSettings):
    """Each step gets an equal share of the amount that was delivered next: R / T.

    With a discount the share is R / sum_t gamma^(t-1), so that the discounted sum is R again.
    Steps after the last delivery get the mean reward of the data.

    Examples
    --------
    >>> from grd_offline import read
    >>> episodes = read("datasets/sample.h5")
    >>> len(next(Uniform().fit(episodes).relabel(episodes)))
    13
    """

    def _fit(self, episodes: EpisodeSet, rng: np.random.Generator, progress: Progress) -> None:
        """Measure the mean reward per step."""
        amount, weight = 0.0, 0.0
        for index, episode in enumerate(episodes):
            for _, _, paid, span in _read_segments(episode, self.discount):
                amount, weight = amount + paid, weight + span
            progress("read", (index + 1) / len(episodes))
        if not weight:
            raise DataError("no reward is delivered in any episode", field="delivered")
        self.mean_ = amount / weight
        self.function_ = ConstantFunction(
            self.mean_, states=episodes.state_size, actions=episodes.action_size
        )

    def relabel_episode(self, episode: Episode) -> Array:
        """Spread each delivered amount evenly over its steps: (T,)."""
        self._check_fitted()
        rewards = np.full(len(episode), self.mean_)
        for start, stop, paid, span in _read_segments(episode, self.discount):
            rewards[start:stop] = paid / span
        return rewards


class Ircr(Decomposer, settings=BaselineSettings):
    """Iterative relative credit refinement: each step gets the normalised return of its episode.

    z = (R - min R) / (max R - min R) over the data, the same at each step, so that rewards lie
    between 0 and 1 and do not sum to the return. An episode with a return outside the range of the
    data lies outside 0 and 1. Several deliveries within an episode count as their sum.

    Examples
    --------
    >>> from grd_offline import read
    >>> episodes = read("datasets/sample.h5")
    >>> len(next(Ircr().fit(episodes).relabel(episodes)))
    13
    """

    def _fit(self, episodes: EpisodeSet, rng: np.random.Generator, progress: Progress) -> None:
        """Measure the range of returns."""
        returns = episodes.compute_returns(self.discount)
        self.lowest_, self.highest_ = float(returns.min()), float(returns.max())
        weights = episodes.lengths / episodes.lengths.sum()
        mean = float(self._normalise(returns) @ weights)
        self.function_ = ConstantFunction(
            mean, states=episodes.state_size, actions=episodes.action_size
        )
        progress("read", 1.0)

    def _normalise(self, returns: Array) -> Array:
        width = self.highest_ - self.lowest_
        if width <= DOUBLE_RESOLUTION * max(abs(self.lowest_), abs(self.highest_)):
            return np.zeros_like(returns)
        return (returns - self.lowest_) / width

    def relabel_episode(self, episode: Episode) -> Array:
        """Repeat the normalised return of the episode at each step: (T,)."""
        self._check_fitted()
        returns = np.array([episode.compute_return(self.discount)])
        return np.full(len(episode), self._normalise(returns)[0])


def _read_segments(episode: Episode, discount: float) -> Iterator[tuple[int, int, float, float]]:
    """Start, stop, amount and sum of discounts of each delivery."""
    starts, stops, amounts = episode.segments()
    plain = bool(episode.delivered.all())
    for start, stop, amount in zip(starts, stops, amounts, strict=True):
        times = np.arange(0 if plain else start, (stop - start) if plain else stop)
        yield int(start), int(stop), float(amount), float((discount**times).sum())
