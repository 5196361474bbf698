"""Linear interpolation in tables of values over a grid, for numpy arrays and torch tensors alike.

A number lies in a cell of the grid, and at a part of the cell's width from 0 to 1. A number beyond
the grid is held at the grid's end.
"""

from __future__ import annotations

import numpy as np

from grd_offline.core.typing import AnyArray, Array, IntArray, Values


def locate_on_grid(values: Values, low: Values, high: Values, points: int) -> tuple[Values, Values]:
    """Cell and part of each value on an even grid of so many points from `low` to `high`."""
    if isinstance(values, np.ndarray):
        held = np.clip(values, low, high)
    else:  # gradients are those of the two in turn, also where a value is at the grid's end
        held = values.maximum(low).minimum(high)
    return split_place((held - low) * ((points - 1) / (high - low)), points)


def split_place(place: Values, points: int) -> tuple[Values, Values]:
    """Cell and part of places from 0 to `points` - 1, which are given in cells of the grid."""
    if isinstance(place, np.ndarray):
        cell = np.minimum(place.astype(np.int64), points - 2)
    else:
        cell = place.detach().long().clamp(max=points - 2)
    return cell, place - cell


def locate_between_nodes(values: Array, nodes: Array) -> tuple[IntArray, Array]:
    """Cell and part of each value on a grid of increasing nodes."""
    place = np.clip(values, nodes[0], nodes[-1])
    cell = np.clip(np.searchsorted(nodes, place, side="right") - 1, 0, len(nodes) - 2)
    return cell, (place - nodes[cell]) / (nodes[cell + 1] - nodes[cell])


def interpolate(table: Values, row: Values, part: Values, rises: Values | None = None) -> Values:
    """(..., feature) the table (point, feature) at each part (...) between a row and the next one.

    `rises` (point, feature) are the differences of the table, where they are at hand. A table
    (point,) gives (...).
    """
    below = _take(table, row)
    found = _take(table, row + 1) - below if rises is None else _take(rises, row)
    found *= part.reshape(part.shape + (1,) * (table.ndim - 1))
    found += below
    return found


def _take(table: Values, row: Values) -> Values:
    # This is several times as fast in numpy as an index.
    return table.take(row, axis=0) if isinstance(table, np.ndarray) else table[row]


class GridTables:
    """Features of several inputs over even grids, laid out to be looked up for many steps."""

    def __init__(self, tables: Array, low: Array, high: Array) -> None:
        """`tables` (input, grid, feature); `low` and `high` (input,) are the ends of each grid."""
        count, self.points, size = tables.shape
        self.low, self.high = low, high
        self.first = np.arange(count) * self.points
        self.values = tables.reshape(-1, size)
        self.rises = np.diff(tables, axis=1, append=tables[:, -1:]).reshape(-1, size)

    def locate(self, inputs: Array) -> tuple[IntArray, Array]:
        """(step, input) the row in `values` below each input (step, input), and the part."""
        cell, part = locate_on_grid(inputs, self.low, self.high, self.points)
        return cell + self.first, part

    def evaluate(self, inputs: Array) -> AnyArray:
        """(step, input, feature)"""
        return interpolate(self.values, *self.locate(inputs), self.rises)
