"""The effects of a decomposition, the importance of its inputs and its graph, as they are drawn.

The effect of an input that has few values, such as 0 and 1, or the labels of a category, is known
at its values only. So it is drawn as one bar for each value, and not as a curve. Several labels of
one column are one input: the label that a step has.

Importance is how much of the reward's variation comes from an input: the one scale of pages and
figures. An effect has the share of its variance in the sum of the variances of all effects. A
dimension of the state or the action has the sum of the shares of all effects that it is part of:
those of its own, and those that it has together with others. The labels of a category have one
share together. No share is negative, and none is above 1. Where inputs are independent of each
other, these are Sobol's indices: of the effect, and in total.

A reward that is no sum of effects is measured by shuffling. If the values of one input are
exchanged between steps, the mean squared change of the reward, halved and divided by the variance
of the reward, is the total index of this input.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from grd_offline.core.errors import DataError
from grd_offline.core.inputs import InputRef, find_label_column, name_effect
from grd_offline.core.steps import StepBatch
from grd_offline.core.typing import AnyArray, Array
from grd_offline.io.files.results import MASKS
from grd_offline.methods.result import Decomposition
from grd_offline.report.page import encode, join_names, pack, show_number

if TYPE_CHECKING:
    from grd_offline.report.tracks import Tracks

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
    ticks: list[list[str] | None] = [None] * len(inputs)
    names, column = [one.name for one in inputs], find_label_column(inputs)
    if column is not None and all(few is not None for few in found):
        shape = Shape(names, grids, ticks, mean, std, values)
        return _join_labels(column, shape, [str(one.category) for one in inputs])
    for axis, few in enumerate(found if len(inputs) < 3 else ()):
        if few is not None:
            mean, std = (_cut(part, axis, grids[axis], few) for part in (mean, std))
            grids[axis], ticks[axis] = few, [_name_value(inputs[axis], float(v)) for v in few]
    return Shape(names, grids, ticks, mean, std, values)


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


def _join_labels(column: str, shape: Shape, labels: Sequence[str]) -> Shape:
    """Several labels of one column as one axis: one place for each mixture of labels there is."""
    _, grids, _, mean, std, values = shape
    rows, places = np.unique(np.stack(values, 1), axis=0, return_inverse=True)
    # The first label comes first, and steps with another label come last.
    order = np.lexsort(-rows.T[::-1])
    rows, places = rows[order], np.argsort(order)[places.reshape(-1)]
    ticks = [_name_mixture(labels, row) for row in rows.tolist()]
    for axis, grid in enumerate(grids):
        mean, std = (_cut(part, axis, grid, rows[:, axis]) for part in (mean, std))
    own = (np.arange(len(rows)),) * len(labels)
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
            "kind": ("bars", "curves", "a cube")[len(shape.inputs) - 1]
            if len(shape.ticks) - shape.ticks.count(None) == 1
            else ("a curve", "a surface", "a cube")[len(shape.inputs) - 1],
            "share": float(effect["share"]),
            "low": shape.mean.min(),
            "high": shape.mean.max(),
            "third": shape.inputs[-1],
            "slices": shape.mean.shape[2] if len(shape.inputs) == 3 else 0,
        }
        for index, (effect, shape) in enumerate(zip(effects, shapes, strict=False))
        if len(shape.inputs) <= MOST_DRAWN
    ]


def pack_effects(effects: Sequence[Effect], shapes: Sequence[Shape]) -> list[dict[str, Any]]:
    """Collect the numbers for the drawings of the largest effects."""
    return [
        {
            "inputs": shape.inputs,
            "share": float(effect["share"]),
            "grids": [pack(grid) for grid in shape.grids],
            "ticks": shape.ticks,
            "mean": pack(shape.mean),
            "std": pack(shape.std),
            **_pack_density(shape),
        }
        for effect, shape in zip(effects, shapes, strict=False)
    ]


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


MOST_BARS = 16
"""This many inputs have a bar; a note counts the others."""
TERMINATED = "terminated"
SHUFFLED_STEPS = 1000


@dataclass(frozen=True)
class Importance:
    """Shares of the reward's variation that come from one input."""

    name: str
    alone: float
    """From effects of this input alone."""
    joint: float
    """From effects that it has together with other inputs."""

    @property
    def total(self) -> float:
        return self.alone + self.joint


def measure_importance(
    record: Decomposition, tracks: Tracks, *, by_column: bool = True
) -> list[Importance]:
    """Measure every input that drives the reward; the most important one comes first.

    All labels of a category are one input, the column of the table that has them. They are measured
    one by one if not `by_column`.
    """
    found = (
        _sum_effects(record.effects, record.masks["references"], by_column)
        if tracks.steps is None
        else _shuffle(record, tracks.steps, by_column)
    )
    return sorted(found, key=lambda one: -one.total)


def find_columns(dimensions: Sequence[InputRef]) -> dict[InputRef, str]:
    """Find the column of every dimension: weather for each of weather=rain and weather=sun.

    Every other dimension is a column of its own.
    """
    counts = Counter((one.part, one.column) for one in dimensions if one.category is not None)
    return {
        one: one.column if counts[one.part, one.column] > 1 else one.dimension for one in dimensions
    }


def _sum_effects(
    effects: Sequence[Mapping[str, Any]], dimensions: Sequence[InputRef], by_column: bool
) -> list[Importance]:
    column_of = find_columns(dimensions)
    alone: dict[str, float] = defaultdict(float)
    joint: dict[str, float] = defaultdict(float)
    for effect in effects:
        inputs = dict.fromkeys(one.at_start for one in effect["references"])
        columns = dict.fromkeys(column_of.get(one, one.dimension) for one in inputs)
        # An effect of two labels of one column is no effect of two inputs.
        shares = alone if len(columns) == 1 else joint
        for name in columns if by_column else [one.dimension for one in inputs]:
            shares[name] += float(effect["share"])
    names = dict.fromkeys([*alone, *joint])
    # Sums of rounded shares may exceed 1 in the last digit.
    return [Importance(n, min(alone[n], 1.0), min(joint[n], 1.0)) for n in names]


def _shuffle(
    record: Decomposition, steps: StepBatch[AnyArray], by_column: bool
) -> list[Importance]:
    """Measure a reward that is no sum of effects, with shuffled values of each input in turn."""
    try:
        model = record.model
    except (DataError, ImportError):  # a network needs torch, which may not be there
        return []
    rng = np.random.default_rng(0)
    chosen = steps[rng.permutation(len(steps))[:SHUFFLED_STEPS]]
    rewards = model.predict(*chosen.arrays)
    variance = float(rewards.var())
    if variance <= 1e-12 * float((rewards**2).mean()):
        return []
    dimensions = record.masks["references"]
    column_of = find_columns(dimensions)
    found = []
    kinds = {"state": ("observations", "next_observations"), "action": ("actions",)}
    for kind, parts in kinds.items():
        groups: dict[str, list[int]] = {}
        for one in dimensions:
            if one.part == kind and record.masks[f"{kind}_to_reward"][one.index]:
                name = column_of[one] if by_column else one.dimension
                groups.setdefault(name, []).append(one.index)
        for name, indices in groups.items():
            order = rng.permutation(len(chosen))
            changed = {part: getattr(chosen, part).copy() for part in parts}
            for values in changed.values():
                values[:, indices] = values[order][:, indices]
            shuffled = model.predict(*replace(chosen, **changed).arrays)
            change = float(((shuffled - rewards) ** 2).mean())
            found.append(Importance(name, min(change / (2 * variance), 1.0), 0.0))
    return found


def pack_importance(found: Sequence[Importance]) -> list[dict[str, Any]]:
    """Collect the numbers of the bars."""
    return [
        {"name": one.name, "alone": round(one.alone, 5), "joint": round(one.joint, 5)}
        for one in found[:MOST_BARS]
    ]


MOST_NODES = 24
"""This many states and this many actions are in the drawing; the heat maps have all."""
PROBABILITIES = ("paper", "pair-net")
"""Fits whose scores of edges between states are probabilities."""


def describe_graph(masks: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the graph for who cannot see it: what drives the reward, and shares of edges."""
    driving = [
        name
        for kind in ("state", "action")
        for name, on in zip(masks[f"{kind}_names"], masks[f"{kind}_to_reward"], strict=True)
        if on
    ]
    return {
        "driving": [*driving[:6], *(["others"] if len(driving) > 6 else [])],
        "compact": sum(map(bool, masks["compact"]["closure"])),
        "shares": [
            f"{name.replace('_', ' ')} {np.mean(masks[name]):.0%}"
            for name, _ in MASKS
            if np.size(masks[name])  # data without actions have two masks without edges
        ],
    }


def measure_edges(record: Decomposition, importance: Sequence[Importance]) -> dict[str, Array]:
    """Measure the strength of every edge from 0 to 1, by the name of its mask.

    Into the reward it is the importance of the input. Into a next state it is the part of the
    variance left by all other parents that this parent explains. The fits in `PROBABILITIES` give
    the probability of the edge instead. Where there is no edge, the strength is 0.
    """
    masks, score = record.masks, record.masks["score"]
    total = {one.name: one.total for one in importance}
    edges = {}
    for kind in ("state", "action"):
        names = masks[f"{kind}_names"]
        on = np.asarray(masks[f"{kind}_to_reward"], bool)
        known = np.array([total.get(name, 0.0) for name in names])
        # Where nothing is known of importance, an edge is an edge.
        edges[f"{kind}_to_reward"] = np.where(on, known if total else 1.0, 0.0)
        strength = np.maximum(np.asarray(score[f"{kind}_to_state"], np.float64), 0.0)
        if record.metrics["fit"] not in PROBABILITIES:
            strength = 1.0 - np.exp(-2.0 * strength)  # scores are information in nats
        on = np.asarray(masks[f"{kind}_to_state"], bool)
        edges[f"{kind}_to_state"] = np.where(on, np.minimum(strength, 1.0), 0.0)
    return edges


def pack_graph(
    masks: Mapping[str, Any], edges: Mapping[str, Array], importance: Sequence[Importance]
) -> dict[str, Any]:
    """Pack the strengths of the four masks, and choose the nodes of the drawing."""
    levels = {name: _grade(masks[name], edges[name]) for name, _ in MASKS}
    closure = np.asarray(masks["compact"]["closure"])
    of_actions = levels["action_to_state"].reshape(-1, len(closure))  # [] where there are none
    leaving = levels["state_to_state"].astype(np.float64) @ closure + np.asarray(closure)
    rank_states = 1e6 * levels["state_to_reward"] + 1e5 * closure + leaving
    rank_actions = 1e6 * levels["action_to_reward"] + of_actions @ closure
    ended = [one.total for one in importance if one.name == TERMINATED]
    return {
        "states": list(masks["state_names"]),
        "actions": list(masks["action_names"]),
        "compact": closure.tolist(),
        "masks": {name: encode(levels[name]) for name in ("state_to_state", "action_to_state")},
        "reward": {
            "state": _list_strengths(masks["state_to_reward"], edges["state_to_reward"]),
            "action": _list_strengths(masks["action_to_reward"], edges["action_to_reward"]),
            "terminated": round(ended[0], 5) if ended else None,
        },
        "shown_states": _top(rank_states),
        "shown_actions": _top(rank_actions),
    }


def _grade(mask: Any, strength: Any) -> NDArray[np.uint8]:
    """Grade edges from 1 to 255 by the root of their strength; 0 means no edge."""
    on, root = np.asarray(mask, bool), np.sqrt(np.asarray(strength, np.float64))
    return np.where(on, 1 + np.rint(254 * root), 0).astype(np.uint8)


def _list_strengths(mask: Any, strength: Array) -> list[float | None]:
    """List the strengths of edges; None means no edge."""
    return [round(float(s), 5) if on else None for on, s in zip(mask, strength, strict=True)]


def _top(rank: Any) -> list[int]:
    return sorted(np.argsort(-np.asarray(rank, np.float64), kind="stable")[:MOST_NODES].tolist())
