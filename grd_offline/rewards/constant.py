"""A reward that is the same at every step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from grd_offline.rewards.config import ConfigReader, check_steps, check_tensors
from grd_offline.rewards.contract import Array


class ConstantFunction:
    """The same reward at every step: what a method without a function of the step comes down to."""

    kind: ClassVar[str] = "constant"

    def __init__(self, value: float, *, states: int, actions: int) -> None:
        self.value = float(value)
        self.states, self.actions = states, actions

    def predict(
        self,
        observations: ArrayLike,
        actions: ArrayLike,
        next_observations: ArrayLike | None = None,
    ) -> Array:
        """(N,) the constant."""
        steps = check_steps(self.states, self.actions, observations, actions, next_observations)
        return np.full(len(steps[0]), self.value)

    def torch(self) -> nn.Module:
        """A module that returns the constant, whatever comes in."""
        return _ConstantReward(self.value)

    def config(self) -> dict[str, Any]:
        """Plain JSON."""
        return {"kind": self.kind, "states": self.states, "actions": self.actions}

    def tensors(self) -> dict[str, NDArray[Any]]:
        """The value alone."""
        return {"value": np.array([self.value])}

    @classmethod
    def from_parts(cls, config: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]) -> Self:
        """Rebuild; ValueError names the first thing that does not fit."""
        read = ConfigReader(config, cls.kind)
        states, actions = read.whole("states"), read.whole("actions")
        read.done()
        check_tensors(cls.expected_tensors(config), tensors)
        return cls(float(tensors["value"][0]), states=states, actions=actions)

    @classmethod
    def expected_tensors(
        cls, config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]] | None = None
    ) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Type and shape of every tensor."""
        return {"value": ("float64", (1,))}


class _ConstantReward(nn.Module):
    value: Tensor

    def __init__(self, value: float) -> None:
        super().__init__()
        self.register_buffer("value", torch.tensor(value))

    def forward(
        self, observations: Tensor, actions: Tensor, next_observations: Tensor | None = None
    ) -> Tensor:
        # So that gradients are zero, not missing.
        return self.value + 0 * observations[..., 0].to(self.value.dtype)
