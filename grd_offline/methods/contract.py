"""The contract of every method of decomposition.

A method is an estimator: `__init__` only stores settings, `fit` learns and returns self, what was
learned ends in `_`, using it before is refused, and a second `fit` equals a fresh one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grd_offline.episodes import EpisodeSet
from grd_offline.methods.equations import next_observations_of
from grd_offline.rewards.contract import Array, RewardFunction

Progress = Callable[[str, float], None]


class Decomposer:
    """Base of all methods: refuses use before `fit`, predicts through `function_`.

    After `fit`: `function_` is the reward function; `masks_` the four 0/1 masks or None where the
    method has none; `scores_` the strength of each edge or None.
    """

    function_: RewardFunction
    masks_: dict[str, NDArray[np.int64]] | None
    scores_: dict[str, Array] | None

    def fit(
        self,
        episodes: EpisodeSet,
        *,
        rng: np.random.Generator,
        progress: Progress | None = None,
    ) -> Self:
        """Learn from `episodes`; `progress` hears of each stage and the fraction of it done."""
        raise NotImplementedError

    def predict(
        self,
        observations: ArrayLike,
        actions: ArrayLike,
        next_observations: ArrayLike | None = None,
    ) -> Array:
        """(N,) the reward of each step."""
        self._check_fitted()
        return self.function_.predict(observations, actions, next_observations)

    def relabel(self, episodes: EpisodeSet) -> Iterator[Array]:
        """The reward of every step (T,), episode by episode."""
        self._check_fitted()
        return self._relabel(episodes)

    def _relabel(self, episodes: EpisodeSet) -> Iterator[Array]:
        for episode in episodes:
            observations = episode.observations[: len(episode)]
            yield self.predict(observations, episode.actions, next_observations_of(episode))

    def _check_fitted(self) -> None:
        if not hasattr(self, "function_"):
            raise RuntimeError(f"{type(self).__name__} is not fitted yet: call fit first")
