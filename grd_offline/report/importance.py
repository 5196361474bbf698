"""How much of the reward's variation comes from each input: the one scale of pages and figures.

An effect has the share of its variance in the sum of the variances of all effects. A dimension of
the state or the action has the sum of the shares of all effects that it is part of: those of its
own, and those that it has together with others. The labels of a category have one share together.
No share is negative, and none is above 1. Where inputs are independent of each other, these are
Sobol's indices: of the effect, and in total.

A reward that is no sum of effects is measured by shuffling. If the values of one input are
exchanged between steps, the mean squared change of the reward, halved and divided by the variance
of the reward, is the total index of this input.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from grd_offline.core.errors import DataError
from grd_offline.core.inputs import InputRef
from grd_offline.core.steps import StepBatch
from grd_offline.core.typing import AnyArray
from grd_offline.methods.result import Decomposition
from grd_offline.report.tracks import Tracks

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
    alone: dict[str, float] = {}
    joint: dict[str, float] = {}
    for effect in effects:
        inputs = dict.fromkeys(one.at_start for one in effect["references"])
        columns = dict.fromkeys(column_of.get(one, one.dimension) for one in inputs)
        # An effect of two labels of one column is no effect of two inputs.
        shares = alone if len(columns) == 1 else joint
        for name in columns if by_column else [one.dimension for one in inputs]:
            shares[name] = shares.get(name, 0.0) + float(effect["share"])
    names = dict.fromkeys([*alone, *joint])
    # Sums of rounded shares may exceed 1 in the last digit.
    return [Importance(n, min(alone.get(n, 0.0), 1.0), min(joint.get(n, 0.0), 1.0)) for n in names]


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
    for kind, parts in (
        ("state", ("observations", "next_observations")),
        ("action", ("actions",)),
    ):
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
