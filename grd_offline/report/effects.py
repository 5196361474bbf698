"""The effects of a decomposition, as pages and figures draw them.

The effect of an input that has few values, such as 0 and 1, or the labels of a category, is known
at its values only. So it is drawn as one bar for each value, and not as a curve. Several labels of
one column are one input: the label that a step has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from grd_offline.core.inputs import InputRef, find_label_column, name_effect
from grd_offline.core.typing import Array
from grd_offline.report.packing import encode, pack
from grd_offline.report.page import join_names, show_number

Effect = Mapping[str, Any]
MOST_EFFECTS = 24
"""This many effects are drawn; the table has all of them."""
MOST_DRAWN = 3
"""Effects of more inputs than this are in the table, but not drawn."""
BINS = 48
"""The density of the data below a curve has this many bars."""
MOST_POINTS = 300
"""This many steps of the data are dots on a surface."""
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
    inputs: Sequence[InputRef] = effect["references"]
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
    return Shape([one.name for one in inputs], grids, ticks, mean, std, list(values))


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


def _name_value(one: InputRef, value: float) -> str:
    if one.category is not None and value in (0.0, 1.0):
        return one.category if value else f"not {one.category}"
    return show_number(value)


def _join_labels(
    column: str,
    inputs: Sequence[InputRef],
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
    labels = [str(one.category) for one in inputs]
    ticks = [_name_mixture(labels, row) for row in rows.tolist()]
    for axis, grid in enumerate(grids):
        mean, std = (_cut(part, axis, grid, rows[:, axis]) for part in (mean, std))
    own = (np.arange(len(rows)),) * len(inputs)
    position = np.arange(len(rows), dtype=np.float64)
    return Shape([column], [position], [ticks], mean[own], std[own], [places.astype(np.float64)])


def _name_mixture(labels: Sequence[str], row: Sequence[float]) -> str:
    parts = [
        label if value == 1 else f"{show_number(value)} {label}"
        for label, value in zip(labels, row, strict=True)
        if value
    ]
    return " + ".join(parts) or "another"


def name_together(inputs: Sequence[InputRef]) -> str:
    """Name an effect; several inputs act together."""
    if len(inputs) == 1 or find_label_column(inputs) is not None:
        return name_effect(inputs)
    return f"{join_names([one.name for one in inputs])} together"


def shape_effects(effects: Sequence[Effect], sample: Mapping[InputRef, Array]) -> list[Shape]:
    """Shape the largest effects for their drawings.

    `sample` has values of every input, which show where the data lie.
    """
    return [
        shape_effect(effect, [sample[one] for one in effect["references"]])
        for effect in effects[:MOST_EFFECTS]
    ]


def describe_cards(effects: Sequence[Effect], shapes: Sequence[Shape]) -> list[dict[str, Any]]:
    """Describe the drawing of each of the largest effects that can be drawn."""
    return [
        {
            "index": index,
            "name": name_effect(effect["references"]),
            "kind": _name_kind(shape),
            "share": float(effect["share"]),
            "low": shape.mean.min(),
            "high": shape.mean.max(),
            "third": shape.inputs[-1],
            "slices": shape.mean.shape[2] if len(shape.inputs) == 3 else 0,
        }
        for index, (effect, shape) in enumerate(zip(effects, shapes, strict=False))
        if len(shape.inputs) <= MOST_DRAWN
    ]


def _name_kind(shape: Shape) -> str:
    inputs, few = len(shape.inputs), len(shape.inputs) - shape.ticks.count(None)
    if few == 1 and inputs < 3:
        return ("bars", "curves")[inputs - 1]
    return ("a curve", "a surface", "a cube")[inputs - 1]


def pack_effects(effects: Sequence[Effect], shapes: Sequence[Shape]) -> list[dict[str, Any]]:
    """Collect the numbers for the drawings of the largest effects."""
    return [_pack_effect(effect, shape) for effect, shape in zip(effects, shapes, strict=False)]


def _pack_effect(effect: Effect, shape: Shape) -> dict[str, Any]:
    return {
        "inputs": shape.inputs,
        "share": float(effect["share"]),
        "grids": [pack(grid) for grid in shape.grids],
        "ticks": shape.ticks,
        "mean": pack(shape.mean),
        "std": pack(shape.std),
        **_pack_density(shape),
    }


def _pack_density(shape: Shape) -> dict[str, Any]:
    """Pack a histogram for a curve or for bars, and dots for a surface or a cube."""
    if len(shape.inputs) > 1:
        return {"points": pack(np.stack(shape.values, 1)[:MOST_POINTS])}
    (grid,), (values,) = shape.grids, shape.values
    if shape.ticks[0] is None:
        counts = np.histogram(values, BINS, (float(grid[0]), float(grid[-1])))[0]
    else:
        counts = np.array([np.count_nonzero(values == place) for place in grid])
    # A bar that is not empty can be seen.
    heights = np.ceil(255 * counts / max(int(counts.max()), 1)).astype(np.uint8)
    return {"density": encode(heights)}
