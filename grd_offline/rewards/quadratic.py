"""A reward that is a quadratic of the step, in a form that can be written to disk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from grd_offline.rewards.config import check_steps, check_tensors
from grd_offline.rewards.contract import Array

_LARGEST = 2**13
"""State and action dimensions together: a matrix of their square is read."""


class QuadraticFunction:
    """r = c + b . z + z' Q z with z = (x - mean) / std and x = (s, a)."""

    kind: ClassVar[str] = "quadratic"

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

    def predict(
        self,
        observations: ArrayLike,
        actions: ArrayLike,
        next_observations: ArrayLike | None = None,
    ) -> Array:
        """(N,) the reward of each step."""
        first, second, _ = check_steps(self.states, self.actions, observations, actions, None)
        scaled = (np.hstack([first, second]) - self.mean) / self.std
        return np.asarray(((scaled @ self.products + self.linear) * scaled).sum(1) + self.constant)

    def torch(self) -> nn.Module:
        """The same as a module, float32."""
        return _Module(self.tensors())

    def config(self) -> dict[str, Any]:
        """Plain JSON: kind and sizes."""
        return {"kind": self.kind, "states": self.states, "actions": self.actions}

    def tensors(self) -> dict[str, NDArray[Any]]:
        """Float64."""
        return {name: getattr(self, name).copy() for name in _shapes(0)}

    @classmethod
    def from_parts(cls, config: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]) -> Self:
        """Rebuild; ValueError names the first thing that does not fit."""
        check_tensors(cls.expected_tensors(config), tensors)
        if (tensors["std"] <= 0).any():
            raise ValueError("tensors: std: expected numbers above 0")
        return cls(states=config["states"], **tensors)

    @classmethod
    def expected_tensors(
        cls, config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]] | None = None
    ) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Type and shape of every tensor."""
        for name in config:
            if name not in ("kind", "states", "actions"):
                raise ValueError(f"config: {name}: not known")
        if config.get("kind") != cls.kind:
            raise ValueError(f"config: kind: expected {cls.kind}, got {config.get('kind')!r}")
        for name in ("states", "actions"):
            value = config.get(name)
            if type(value) is not int or not 1 <= value <= _LARGEST:
                raise ValueError(
                    f"config: {name}: expected a whole number from 1, got {value!r:.40}"
                )
        inputs = config["states"] + config["actions"]
        return {name: ("float64", shape) for name, shape in _shapes(inputs).items()}


def _shapes(inputs: int) -> dict[str, tuple[int, ...]]:
    return {
        "mean": (inputs,),
        "std": (inputs,),
        "constant": (1,),
        "linear": (inputs,),
        "products": (inputs, inputs),
    }


class _Module(nn.Module):
    mean: Tensor
    std: Tensor
    constant: Tensor
    linear: Tensor
    products: Tensor

    def __init__(self, tensors: Mapping[str, NDArray[Any]]) -> None:
        super().__init__()
        for name, value in tensors.items():
            self.register_buffer(name, torch.tensor(value, dtype=torch.float32))

    def forward(
        self, observations: Tensor, actions: Tensor, next_observations: Tensor | None = None
    ) -> Tensor:
        """(..., state), (..., action) -> (...,)"""
        inputs = torch.cat([observations, actions], -1).to(self.mean.dtype)
        scaled = (inputs - self.mean) / self.std
        return ((scaled @ self.products + self.linear) * scaled).sum(-1) + self.constant[0]
