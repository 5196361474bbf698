"""A reward that is a quadratic function of the step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grd_offline.core.typing import Array
from grd_offline.rewards.contract import ConfigReader, Headers, RewardFunction, Steps, check_tensors

if TYPE_CHECKING:
    import torch

_MOST_DIMENSIONS = 2**13
"""Most state or action dimensions: a file holds a matrix of their square."""


class QuadraticFunction(RewardFunction):
    """r = c + b . z + z' Q z with z = (x - mean) / std and x = (s, a)."""

    kind: ClassVar[str] = "quadratic"
    description: ClassVar[str] = "a quadratic of observation and action"
    far_from_data: ClassVar[str] = "the reward grows as the quadratic does"

    def __init__(
        self,
        *,
        states: int,
        mean: ArrayLike,
        std: ArrayLike,
        constant: ArrayLike,
        linear: ArrayLike,
        products: ArrayLike,
    ) -> None:
        self.mean, self.std = np.asarray(mean, np.float64), np.asarray(std, np.float64)
        self.constant = np.asarray(constant, np.float64).reshape(1)
        self.linear = np.asarray(linear, np.float64)
        self.products = np.asarray(products, np.float64)
        self.states, self.actions = states, len(self.mean) - states

    def predict(self, batch: Steps) -> Array:
        """(N,) the reward of each step."""
        checked = batch.as_numbers(self.states, self.actions)
        scaled = (np.hstack([checked.observations, checked.actions]) - self.mean) / self.std
        return np.asarray(((scaled @ self.products + self.linear) * scaled).sum(1) + self.constant)

    def draw_inputs(self, rng: np.random.Generator, count: int) -> Array:
        """Steps with the mean and the standard deviation of the data."""
        rows = super().draw_inputs(rng, count)
        rows[:, : len(self.mean)] *= self.std
        rows[:, : len(self.mean)] += self.mean
        return rows

    def torch(self) -> torch.nn.Module:
        """Return the function as a float32 module."""
        from grd_offline.rewards.modules import QuadraticModule

        return QuadraticModule(self)

    def tensors(self) -> dict[str, NDArray[Any]]:
        """Scales of the inputs and coefficients, float64."""
        return {name: getattr(self, name).copy() for name in _list_shapes(0)}

    @classmethod
    def from_parts(cls, config: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]) -> Self:
        """The function with this config and these tensors."""
        check_tensors(cls.expected_tensors(config), tensors)
        if (tensors["std"] <= 0).any():
            raise ValueError("tensors: std: expected numbers above 0")
        return cls(states=config["states"], **tensors)

    @classmethod
    def expected_tensors(cls, config: Mapping[str, Any], shapes: object = None) -> Headers:
        """Type and shape of every tensor."""
        states, actions = ConfigReader(config, cls.kind).read_sizes(_MOST_DIMENSIONS)
        return {name: ("float64", shape) for name, shape in _list_shapes(states + actions).items()}


def _list_shapes(inputs: int) -> dict[str, tuple[int, ...]]:
    return {
        "mean": (inputs,),
        "std": (inputs,),
        "constant": (1,),
        "linear": (inputs,),
        "products": (inputs, inputs),
    }
