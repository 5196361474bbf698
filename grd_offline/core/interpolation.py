"""Linear interpolation in tables of values over a grid.

A number lies in a cell of the grid, and at a part of the cell's width from 0 to 1. A number beyond
the grid is held at the grid's end. Two places do the same in a form of their own: `EffectModule`
in torch, for gradients, and `SpreadTable` in float32, for speed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]


def locate_on_grid(
    values: Array, low: Array | float, high: Array | float, points: int
) -> tuple[IntArray, Array]:
    """Cell and part of each value on an even grid of so many points from `low` to `high`."""
    cells = points - 1
    place = (np.clip(values, low, high) - low) * (cells / (high - low))
    cell = np.minimum(place.astype(np.int64), cells - 1)
    return cell, place - cell


def locate_between_nodes(values: Array, nodes: Array) -> tuple[IntArray, Array]:
    """Cell and part of each value on a grid of increasing nodes."""
    place = np.clip(values, nodes[0], nodes[-1])
    cell = np.clip(np.searchsorted(nodes, place, side="right") - 1, 0, len(nodes) - 2)
    return cell, (place - nodes[cell]) / (nodes[cell + 1] - nodes[cell])


def interpolate(table: Array, slopes: Array, cell: IntArray, part: Array) -> Array:
    """(value, ...) the table (point, ...) at each value; `slopes` is its difference by point."""
    share = part.reshape(part.shape + (1,) * (table.ndim - 1))
    return np.asarray(table[cell] + share * slopes[cell])
