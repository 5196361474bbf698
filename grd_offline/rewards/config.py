"""Checks that reward functions share: of a saved config and of saved tensors."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


class ConfigReader:
    """Reads a function's config field by field; ValueError names the first that does not fit."""

    def __init__(self, config: Mapping[str, Any], kind: str) -> None:
        self._left = dict(config)
        self.choice("kind", (kind,))

    def take(self, name: str) -> Any:
        """A field of any type."""
        if name not in self._left:
            raise ValueError(f"config: {name}: missing")
        return self._left.pop(name)

    def choice(self, name: str, known: tuple[str | int, ...]) -> str:
        """One of the values that are known."""
        value = self.take(name)
        if value not in known:
            expected = " or ".join(str(item) for item in known)
            raise ValueError(f"config: {name}: expected {expected}, got {value!r:.40}")
        return str(value)

    def whole(self, name: str, most: int = 2**20, least: int = 1) -> int:
        """A whole number from `least` to `most`."""
        return self._check_whole(name, self.take(name), most, least)

    def wholes(self, name: str) -> tuple[int, ...]:
        """Read at most 16 whole numbers."""
        values = self.take(name)
        if not isinstance(values, list | tuple) or len(values) > 16:
            raise ValueError(
                f"config: {name}: expected at most 16 whole numbers, got {values!r:.40}"
            )
        return tuple(self._check_whole(name, value) for value in values)

    def indices(self, name: str, below: int) -> tuple[int, ...]:
        """Ascending whole numbers from 0, at least one of them."""
        values = self.take(name)
        right = isinstance(values, list | tuple) and all(type(value) is int for value in values)
        if not right or list(values) != sorted({v for v in values if 0 <= v < below}) or not values:
            raise ValueError(
                f"config: {name}: expected ascending whole numbers from 0 to {below - 1}"
            )
        return tuple(values)

    def flag(self, name: str) -> bool:
        """Read True or False."""
        value = self.take(name)
        if not isinstance(value, bool):
            raise ValueError(f"config: {name}: expected true or false, got {value!r:.40}")
        return value

    def names(self, name: str) -> tuple[str, ...]:
        """Read a list of strings."""
        return check_names(f"config: {name}", self.take(name))

    def number(self, name: str) -> float:
        """Read a finite number."""
        value = self.take(name)
        if type(value) not in (int, float) or not abs(value) <= sys.float_info.max:
            raise ValueError(f"config: {name}: expected a finite number, got {value!r:.40}")
        return float(value)

    def done(self) -> None:
        """Refuse fields that nobody has read."""
        for name in self._left:
            raise ValueError(f"config: {name:.40}: not known")

    def read_sizes(self, most: int = 2**20) -> tuple[int, int]:
        """The number of state and action dimensions, in a config that holds nothing else."""
        sizes = self.whole("states", most), self.whole("actions", most, least=0)
        self.done()
        return sizes

    @staticmethod
    def _check_whole(name: str, value: Any, most: int = 2**20, least: int = 1) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ValueError(
                f"config: {name}: expected a whole number from {least}, got {value!r:.40}"
            )
        return value


def check_names(field: str, names: Any) -> tuple[str, ...]:
    """The names as a tuple; ValueError where they are not a list of strings."""
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{field}: expected a list of strings")
    return tuple(names)


def check_tensors(
    expected: Mapping[str, tuple[str, tuple[int, ...]]], tensors: Mapping[str, NDArray[Any]]
) -> None:
    """ValueError names the first tensor that is missing, unknown, misshapen or not finite."""
    for name, (dtype, shape) in expected.items():
        if name not in tensors:
            raise ValueError(f"tensors: {name}: missing")
        value = tensors[name]
        if value.shape != shape:
            raise ValueError(f"tensors: {name}: expected shape {shape}, got {value.shape}")
        if value.dtype != np.dtype(dtype):
            raise ValueError(f"tensors: {name}: expected {dtype}, got {value.dtype}")
        if not np.isfinite(value).all():
            raise ValueError(f"tensors: {name}: not finite")
    for name in tensors:
        if name not in expected:
            raise ValueError(f"tensors: {name}: not known")
