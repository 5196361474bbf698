"""A reward that is the same at every step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from grd_offline.core.typing import Array
from grd_offline.rewards.contract import ConfigReader, Headers, RewardFunction, Steps, check_tensors

if TYPE_CHECKING:
    import torch


class ConstantFunction(RewardFunction):
    """A reward that is the same at every step, for methods that learn no function of the step."""

    kind: ClassVar[str] = "constant"
    description: ClassVar[str] = "the same number at every step"
    far_from_data: ClassVar[str] = "the reward is the same"

    def __init__(self, value: float, *, states: int, actions: int) -> None:
        self.value = float(value)
        self.states, self.actions = states, actions

    def predict(self, batch: Steps) -> Array:
        """Return the constant for each step: (N,)."""
        return np.full(len(batch.as_numbers(self.states, self.actions)), self.value)

    def torch(self) -> torch.nn.Module:
        """A module that returns the constant for every step."""
        from grd_offline.rewards.modules import ConstantModule

        return ConstantModule(self.value)

    def tensors(self) -> dict[str, NDArray[Any]]:
        """Return the value as the only tensor."""
        return {"value": np.array([self.value])}

    @classmethod
    def from_parts(cls, config: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]) -> Self:
        """The function with this config and these tensors."""
        states, actions = ConfigReader(config, cls.kind).read_sizes()
        check_tensors(cls.expected_tensors(config), tensors)
        return cls(float(tensors["value"][0]), states=states, actions=actions)

    @classmethod
    def expected_tensors(cls, config: Mapping[str, Any], shapes: object = None) -> Headers:
        """Type and shape of the value."""
        return {"value": ("float64", (1,))}
