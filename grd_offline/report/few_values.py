"""Effects of inputs that have few values, such as 0 and 1, or the labels of a category.

The effect of such an input is known at its values only. So it is drawn as one bar for each value,
and not as a curve. Several labels of one column are one input: the label that a step has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import grd_offline.report.page as page
from grd_offline.rewards.effect_inputs import find_label_column, split_label

Array = NDArray[np.float64]
MOST_VALUES = 5
"""An input with more values than this is drawn as a curve."""


class Shape(NamedTuple):
    """The numbers of an effect, as they are drawn."""

    inputs: list[str]
    """The names of the axes."""
    grids: list[Array]
    """The places along each axis."""
    ticks: list[list[str] | None]
    """The names of the places along an axis, if the input has few values."""
    mean: Array
    std: Array
    values: list[Array]
    """The steps of the data, as places along each axis."""


def shape_effect(effect: Mapping[str, Any], values: Sequence[Array]) -> Shape:
    """Keep an effect at the values that its inputs have; `values` (step,) are those of the data.

    An input with many values keeps its grid, and so does every input of three or more.
    """
    inputs = list(effect["inputs"])
    grids = [np.asarray(grid, np.float64) for grid in effect["grids"]]
    mean, std = (np.asarray(effect[name], np.float64) for name in ("mean", "std"))
    values = [np.clip(one, grid[0], grid[-1]) for one, grid in zip(values, grids, strict=True)]
    found = [_find_few(one) for one in values]
    column = find_label_column(inputs)
    if column is not None and all(few is not None for few in found):
        return _join_labels(column, inputs, grids, values, mean, std)
    ticks: list[list[str] | None] = [None] * len(inputs)
    for axis, few in enumerate(found if len(inputs) < 3 else ()):
        if few is not None:
            mean, std = (_cut(part, axis, grids[axis], few) for part in (mean, std))
            grids[axis], ticks[axis] = few, [_name_value(inputs[axis], float(v)) for v in few]
    return Shape(inputs, grids, ticks, mean, std, list(values))


def has_few_values(values: Array) -> bool:
    """Return whether an input has so few values that curves say nothing about it."""
    return _find_few(values) is not None


def _find_few(values: Array) -> Array | None:
    """The different values, if they are few."""
    distinct = np.unique(values)
    return distinct if 0 < len(distinct) <= MOST_VALUES else None


def _cut(numbers: Array, axis: int, grid: Array, places: Array) -> Array:
    """Interpolate along one axis."""
    return np.apply_along_axis(lambda one: np.interp(places, grid, one), axis, numbers)


def _name_value(name: str, value: float) -> str:
    label = split_label(name)
    if label is not None and value in (0.0, 1.0):
        return label[1] if value else f"not {label[1]}"
    return page.show_number(value)


def _join_labels(
    column: str,
    inputs: Sequence[str],
    grids: Sequence[Array],
    values: Sequence[Array],
    mean: Array,
    std: Array,
) -> Shape:
    """Several labels of one column as one axis: one place for each mixture of labels there is."""
    rows, places = np.unique(np.stack(values, 1), axis=0, return_inverse=True)
    # The first label comes first, and steps with another label come last.
    order = np.lexsort(-rows.T[::-1])
    rows, places = rows[order], np.argsort(order)[places.reshape(-1)]
    labels = [split_label(name)[1] for name in inputs]  # type: ignore[index]
    ticks = [_name_mixture(labels, row) for row in rows.tolist()]
    for axis, grid in enumerate(grids):
        mean, std = (_cut(part, axis, grid, rows[:, axis]) for part in (mean, std))
    own = (np.arange(len(rows)),) * len(inputs)
    position = np.arange(len(rows), dtype=np.float64)
    return Shape([column], [position], [ticks], mean[own], std[own], [places.astype(np.float64)])


def _name_mixture(labels: Sequence[str], row: Sequence[float]) -> str:
    parts = [
        label if value == 1 else f"{page.show_number(value)} {label}"
        for label, value in zip(labels, row, strict=True)
        if value
    ]
    return " + ".join(parts) or "another"
