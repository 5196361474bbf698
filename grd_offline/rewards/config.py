"""Checks that reward functions share: of steps, of a saved config and of saved tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grd_offline.episodes import check_finite


def check_steps(
    states: int,
    actions: int,
    observations: ArrayLike,
    action_values: ArrayLike,
    next_observations: ArrayLike | None,
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32] | None]:
    """The steps as float32 arrays (N, state), (N, action) [, (N, state)], or ValueError."""
    first = _as_matrix("observations", observations, states, None)
    second = _as_matrix("actions", action_values, actions, len(first))
    if next_observations is None:
        return first, second, None
    return first, second, _as_matrix("next_observations", next_observations, states, len(first))


def _as_matrix(name: str, values: ArrayLike, columns: int, rows: int | None) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        array = np.asarray(values, np.float32)
    if array.ndim != 2 or array.shape[1] != columns or rows not in (None, len(array)):
        wanted = f"({'N' if rows is None else rows}, {columns})"
        raise ValueError(f"{name}: expected shape {wanted}, got {array.shape}")
    check_finite(array, name, np.asarray(values))
    return array


class ConfigReader:
    """Reads a function's config field by field; ValueError names the first that does not fit."""

    def __init__(self, config: Mapping[str, Any], kind: str) -> None:
        self._left = dict(config)
        self.choice("kind", (kind,))

    def _take(self, name: str) -> Any:
        if name not in self._left:
            raise ValueError(f"config: {name}: missing")
        return self._left.pop(name)

    def choice(self, name: str, known: tuple[str, ...]) -> str:
        value = self._take(name)
        if value not in known:
            raise ValueError(
                f"config: {name}: expected one of {', '.join(known)}, got {value!r:.40}"
            )
        return str(value)

    def whole(self, name: str) -> int:
        return self._check_whole(name, self._take(name))

    def wholes(self, name: str) -> tuple[int, ...]:
        values = self._take(name)
        if not isinstance(values, list | tuple) or len(values) > 16:
            raise ValueError(
                f"config: {name}: expected at most 16 whole numbers, got {values!r:.40}"
            )
        return tuple(self._check_whole(name, value) for value in values)

    def indices(self, name: str, below: int) -> tuple[int, ...]:
        values = self._take(name)
        right = isinstance(values, list | tuple) and all(type(value) is int for value in values)
        if not right or list(values) != sorted({v for v in values if 0 <= v < below}) or not values:
            raise ValueError(
                f"config: {name}: expected ascending whole numbers from 0 to {below - 1}"
            )
        return tuple(values)

    def flag(self, name: str) -> bool:
        value = self._take(name)
        if not isinstance(value, bool):
            raise ValueError(f"config: {name}: expected true or false, got {value!r:.40}")
        return value

    def done(self) -> None:
        for name in self._left:
            raise ValueError(f"config: {name}: not known")

    @staticmethod
    def _check_whole(name: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 2**20:
            raise ValueError(f"config: {name}: expected a whole number from 1, got {value!r:.40}")
        return value


def check_tensors(
    expected: Mapping[str, tuple[str, tuple[int, ...]]], tensors: Mapping[str, NDArray[Any]]
) -> None:
    """ValueError naming the first tensor that is missing, unknown, misshapen or not finite."""
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
