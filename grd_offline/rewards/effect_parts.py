"""The parts of a saved sum of effects: the fields of its config, and the shapes of its arrays.

Both are checked before any memory is taken for the arrays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from grd_offline.core.names import read_names
from grd_offline.core.outcomes import KINDS, Outcome
from grd_offline.rewards.config import ConfigReader

FORMAT_VERSION = 6
MAX_ORDER = 4
FREE = ("columns", "tables", "factor")
"""Arrays whose shapes say how many inputs, grid points, features and columns of F there are."""
SCALARS = (
    "constant",
    "residual_variance",
    "constant_variance",
    "noise_variance",
    "inflation",
    "hidden_variance",
    "lasting_share",
    "shared_variance",
    "whole_variance",
    "ended_variance",
    "base",
)
SIGNED = ("constant", "base")
"""Numbers that may be negative."""
_SINCE = {
    "hidden_variance": 2,
    "lasting_share": 3,
    "shared_variance": 3,
    "whole_variance": 3,
    "ended_variance": 5,
    "base": 6,
}
"""The version in which a number came into the files; others were there from the first on."""
_SINCE_OUTCOME = 4
_MAX_FEATURES = 4096
_MAX_SPREAD = 2**28
"""Largest number of features of one input, and of all inputs times the rank of F. It is far beyond
what a fit makes. A prediction takes memory for so much, and a small file must not be able to ask
for it."""


def find_dtype(name: str) -> np.dtype[Any]:
    """Type of the array of this name."""
    return np.dtype(np.int64 if name == "columns" else np.float64)


def find_shapes(
    effects: Sequence[Sequence[int]], sizes: Sequence[int], free: Mapping[str, tuple[int, ...]]
) -> dict[str, tuple[int, ...]]:
    """The shape that each array must have, given the effects and the shapes that are free."""
    if [len(free[name]) for name in FREE] != [1, 3, 2]:
        raise ValueError("columns, tables, factor: expected 1, 3 and 2 dimensions")
    (count,), (_, grid, features), (_, rank) = (free[name] for name in FREE)
    if grid < 2:
        raise ValueError(f"tables: expected at least 2 grid points, got {grid}")
    if features > _MAX_FEATURES:
        raise ValueError(f"tables: expected at most {_MAX_FEATURES} features, got {features}")
    if len(sizes) != len(effects):
        raise ValueError(f"sizes: expected {len(effects)}, got {len(sizes)}")
    for size in sizes:
        if not 1 <= size <= features:
            raise ValueError(f"sizes: expected 1 to {features} each, got {size!r:.40}")
    weights = sum(size ** len(effect) for size, effect in zip(sizes, effects, strict=True))
    if count * features * min(rank, weights) > _MAX_SPREAD:
        raise ValueError(
            f"factor: {count} inputs of {features} features with rank {rank} are too many"
        )
    return {
        "columns": (count,),
        "low": (count,),
        "high": (count,),
        "tables": (count, grid, features),
        "weights": (weights,),
        "centres": (weights,),
        "factor": (weights, rank),
        "shares": (len(effects),),
    }


def read_fields(config: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """The fields of an `EffectModel` that are no arrays; ValueError names the first wrong one."""
    read = ConfigReader(config, kind)
    version = int(read.choice("format_version", tuple(range(1, FORMAT_VERSION + 1))))
    scalars = [name for name in SCALARS if version >= _SINCE.get(name, 1)]
    fields: dict[str, Any] = {
        "observation_names": read_names(read.names("observation_names")),
        "action_names": read_names(read.names("action_names")),
        "effects": _check_effects(read.take("effects")),
        "sizes": _check_wholes("sizes", read.take("sizes")),
        **{name: read.number(name) for name in scalars},
    }
    if version >= _SINCE_OUTCOME:
        fields["outcome"] = Outcome(read.choice("outcome", KINDS))
    read.done()
    return fields


def _check_effects(effects: Any) -> tuple[tuple[int, ...], ...]:
    if not isinstance(effects, list) or not all(
        isinstance(effect, list) and 1 <= len(effect) <= MAX_ORDER for effect in effects
    ):
        raise ValueError(f"config: effects: expected lists of 1 to {MAX_ORDER} whole numbers")
    return tuple(_check_wholes("effects", effect) for effect in effects)


def _check_wholes(name: str, values: Any) -> tuple[int, ...]:
    if not isinstance(values, list) or not all(type(value) is int for value in values):
        raise ValueError(f"config: {name}: expected a list of whole numbers")
    return tuple(values)
