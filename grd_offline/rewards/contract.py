"""The contract of every reward function: a reward per step that can be written to disk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import nn

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
