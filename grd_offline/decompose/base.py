"""The contract of every method of decomposition.

A method is an estimator: `__init__` only stores settings, `fit` learns and returns self, what was
learned ends in `_`, using it before is refused, and a second `fit` equals a fresh one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import nn

from grd_offline.decompose.padded import next_observations_of
from grd_offline.episodes import EpisodeSet

Progress = Callable[[str, float], None]
Array = NDArray[np.float64]


class RewardFunction(Protocol):
    """A reward per step as a function of the step, in a form that can be written to disk."""

    kind: ClassVar[str]

    def predict(
        self,
        observations: ArrayLike,
        actions: ArrayLike,
        next_observations: ArrayLike | None = None,
    ) -> Array:
        """(N,) the reward of each step."""
        ...

    def torch(self) -> nn.Module:
        """The same as a module: (..., state), (..., action) [, (..., state)] -> (...,)."""
        ...

    def config(self) -> dict[str, Any]:
        """What `from_parts` needs besides the tensors; plain JSON."""
        ...

    def tensors(self) -> dict[str, NDArray[Any]]:
        """The numbers that were learned."""
        ...

    @classmethod
    def expected_tensors(
        cls, config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]
    ) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Type and shape of every tensor, by name; sizes that are free are those of `shapes`.

        So that a file can be refused before any of its tensors is read.
        """
        ...

    @classmethod
    def from_parts(cls, config: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]) -> Self:
        """Rebuild; ValueError names the first thing that does not fit."""
        ...


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
