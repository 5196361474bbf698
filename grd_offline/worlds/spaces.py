"""Observations and actions of Gymnasium's spaces as flat vectors, in the order of datasets.

Choices (Discrete, MultiDiscrete) become one-hot columns. The parts of a Dict or a Tuple stand side
by side, those of a Dict sorted by their keys.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from grd_offline.core.errors import DataError
from grd_offline.core.typing import SingleArray
from grd_offline.io.formats.record import Leaf, column_names

if TYPE_CHECKING:
    from gymnasium import Space

_SMALLEST_SIZE = 1e-6


class NestedLeaf(NamedTuple):
    """An array of an observation, and the keys that lead to it."""

    leaf: Leaf
    keys: tuple[str | int, ...]

    def pick(self, observation: Any) -> Any:
        """The part of an observation that this leaf is."""
        for key in self.keys:
            observation = observation[key]
        return observation


def list_observation_leaves(
    space: Space[Any], keys: tuple[str | int, ...] = ()
) -> list[NestedLeaf]:
    """The arrays of an observation. Floats become float32, and choices stay integers."""
    from gymnasium import spaces

    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = (list_observation_leaves(part, (*keys, key)) for key, part in _list_parts(space))
        return [leaf for leaves in parts for leaf in leaves]
    path = "/".join(f"_index_{key}" if isinstance(key, int) else key for key in keys)
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return [NestedLeaf(_make_choice_leaf(space, path), keys)]
    if not isinstance(space, spaces.Box | spaces.MultiBinary):
        reason = f"expected numbers (Box, Discrete, Dict of these), got {describe_space(space)}"
        raise DataError(reason, field="observations")
    leaf = Leaf(path, space.shape, str(space.dtype)).check("observations")
    return [NestedLeaf(replace(leaf, dtype="float32"), keys)]


def make_action_leaf(space: Space[Any]) -> Leaf:
    """The array of an action."""
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return _make_choice_leaf(space, "")
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        return Leaf("", space.shape, "float32")
    reason = f"expected a Box of floats or discrete choices, got {describe_space(space)}"
    raise DataError(reason, field="actions")


def _make_choice_leaf(space: Any, path: str) -> Leaf:
    """A leaf for Discrete (one choice) and MultiDiscrete (several)."""
    counts = np.ravel(space.nvec if hasattr(space, "nvec") else space.n).tolist()
    starts = np.ravel(space.start).tolist()
    return Leaf(path, tuple(space.shape), "int64", tuple(counts), tuple(starts))


def make_flattener(space: Space[Any]) -> Callable[[Any], SingleArray]:
    """A function that makes a vector of one observation: a copy, (column,)."""
    from gymnasium.spaces import Box

    if isinstance(space, Box) and len(space.shape) == 1:
        return lambda observation: np.array(observation, np.float32)
    leaves = list_observation_leaves(space)

    def flatten(observation: Any) -> SingleArray:
        parts = [_flatten_leaf(nested.leaf, nested.pick(observation)) for nested in leaves]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    return flatten


def _flatten_leaf(leaf: Leaf, value: Any) -> SingleArray:
    if leaf.categories is None:
        return np.array(value, np.float32).ravel()
    code = np.zeros(leaf.size, np.float32)
    first = 0
    for choice, count, start in zip(np.ravel(value), leaf.categories, leaf.starts, strict=True):
        if not 0 <= choice - start < count:
            reason = f"{choice}, expected a choice from {start} to {start + count - 1}"
            raise DataError(reason, field="observations")
        code[first + int(choice) - start] = 1.0
        first += count
    return code


def flatten_batch(space: Space[Any], values: Any, count: int) -> SingleArray:
    """(count, column) a batch of a space's samples. One sample is a batch of 1."""
    from gymnasium import spaces

    if isinstance(space, spaces.Dict | spaces.Tuple):
        inner = _list_parts(space)
        return np.concatenate([flatten_batch(part, values[key], count) for key, part in inner], 1)
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        counts = np.ravel(space.nvec if isinstance(space, spaces.MultiDiscrete) else space.n)
        chosen = np.asarray(values, np.int64).reshape(count, len(counts)) - np.ravel(space.start)
        codes = [np.eye(size, dtype=np.float32)[chosen[:, i]] for i, size in enumerate(counts)]
        return np.concatenate(codes, 1)
    return np.array(values, np.float32).reshape(count, -1)


def flat_bounds(space: Space[Any]) -> SingleArray:
    """(2, column) the lowest and highest of each column of `flatten_batch`."""
    from gymnasium import spaces

    if isinstance(space, spaces.Dict | spaces.Tuple):
        return np.concatenate([flat_bounds(part) for _, part in _list_parts(space)], 1)
    if isinstance(space, spaces.Box):
        return np.stack([space.low.ravel(), space.high.ravel()]).astype(np.float32)
    return np.repeat(np.array([[0.0], [1.0]], np.float32), spaces.flatdim(space), 1)


def find_sizes(space: Space[Any]) -> SingleArray:
    """(column,) the largest size that a column can have; 1 where that is larger, or nearly 0.

    Large bounds say little about the usual size of a column.
    """
    with np.errstate(over="ignore"):
        largest = np.abs(flat_bounds(space)).max(0)
    return np.where((largest > _SMALLEST_SIZE) & (largest < 1), largest, np.float32(1))


def name_columns(leaves: Sequence[Leaf], prefix: str) -> tuple[str, ...]:
    """A name for each column: `goal.x`, `position[2]`, `action=1`."""
    bases = [leaf.path.replace("/", ".").replace("_index_", "") or prefix for leaf in leaves]
    pairs = zip(leaves, bases, strict=True)
    return column_names([replace(leaf, path=base) for leaf, base in pairs], prefix)


def describe_space(space: object) -> str:
    """A space in one line."""
    return " ".join(str(space).split())[:200]


def _list_parts(space: Any) -> list[tuple[Any, Space[Any]]]:
    """The spaces inside, each with its key or place."""
    inner = space.spaces
    return sorted(inner.items()) if isinstance(inner, dict) else list(enumerate(inner))
