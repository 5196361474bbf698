"""Inputs of a sum of effects: the columns of a step, in their order.

    [observations, actions, terminated, next observations, midpoints (s + s') / 2]

The midpoint of a transition is a column of its own for every state dimension.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grd_offline.core.steps import StepBatch

Array = NDArray[np.float64]

OBSERVATION, ACTION, TERMINATED, NEXT, MIDPOINT = range(5)
"""The parts of a step, in the order of their columns."""


class StepColumns(NamedTuple):
    """The numbers of the columns of a step."""

    states: int
    actions: int

    @property
    def terminated(self) -> int:
        """The column that is 1 where the episode terminated at this step."""
        return self.states + self.actions

    @property
    def first_next(self) -> int:
        """The column of the first dimension of the next observation."""
        return self.terminated + 1

    @property
    def first_midpoint(self) -> int:
        """The column of the first dimension of the midpoint."""
        return self.first_next + self.states

    @property
    def width(self) -> int:
        """The number of columns."""
        return self.first_midpoint + self.states

    def find_part(self, column: int) -> tuple[int, int]:
        """The part of the step that a column belongs to, and its place in that part."""
        starts = (0, self.states, self.terminated, self.first_next, self.first_midpoint)
        part = bisect_right(starts, column) - 1
        return part, column - starts[part]

    def add_widths(self, parts: Sequence[int]) -> list[int]:
        """Return the place at which each part begins when the parts are put side by side."""
        widths = (self.states, self.actions, 1, self.states, self.states)
        return [sum(widths[part] for part in parts[:i]) for i in range(len(parts))]

    def move_from_version_1(self, columns: NDArray[np.int64]) -> NDArray[np.int64]:
        """Columns of [observations, actions, next observations], which files had at first."""
        width = 2 * self.states + self.actions
        if columns.size and not 0 <= columns.min() <= columns.max() < width:
            raise ValueError(f"columns: expected 0 to {width - 1}, got {columns.tolist()!s:.80}")
        return np.where(columns >= self.terminated, columns + 1, columns)


def name_inputs(
    columns: Sequence[int], observation_names: Sequence[str], action_names: Sequence[str]
) -> tuple[str, ...]:
    """The name of each input: x, terminated, x' for a next observation.

    A midpoint is called x as well, unless x or x' is an input too.
    """
    layout = StepColumns(len(observation_names), len(action_names))
    used = {int(column) for column in columns}

    def name(column: int) -> str:
        part, place = layout.find_part(column)
        if part == TERMINATED:
            return "terminated"
        if part == ACTION:
            return action_names[place]
        own = observation_names[place]
        if part == MIDPOINT and not used.isdisjoint((place, layout.first_next + place)):
            return f"{own} (midpoint)"
        return f"{own}'" if part == NEXT else own

    return tuple(name(int(column)) for column in columns)


def split_label(name: str) -> tuple[str, str] | None:
    """The column and the label of an input that stands for one label of a category.

    weather=rain is the label rain of the column weather, and weather=rain' is that of weather'.
    None for every other input.
    """
    column, equals, label = name.partition("=")
    if not (column and equals and label):
        return None
    for ending in ("'", " (midpoint)"):
        if label.endswith(ending):
            return column + ending, label.removesuffix(ending)
    return column, label


def find_label_column(inputs: Sequence[str]) -> str | None:
    """The column whose labels all of several inputs are, or None."""
    labels = [split_label(name) for name in inputs]
    columns = {None if one is None else one[0] for one in labels}
    return columns.pop() if len(inputs) > 1 and len(columns) == 1 else None


def name_effect(inputs: Sequence[str]) -> str:
    """The name of an effect: speed, speed x load; weather (rain, snow) for labels of one column."""
    column = find_label_column(inputs)
    if column is None:
        return " x ".join(inputs)
    labels = (split_label(name) for name in inputs)
    return f"{column} ({', '.join(one[1] for one in labels if one is not None)})"


def explain_primes(names: Sequence[str]) -> str:
    """One sentence on names of next states and midpoints, if there are such names, or nothing."""
    primed = next((name for name in names if name.endswith("'")), None)
    halfway = next((name for name in names if name.endswith(" (midpoint)")), None)
    said = []
    if primed is not None:
        said.append(
            f"A prime means the end of the step: {primed} is {primed.removesuffix(chr(39))} in the "
            "next state."
        )
    if halfway is not None:
        said.append(f"{halfway} is the mean of the values at the start and the end of the step.")
    return " ".join(said)


def select_columns(
    columns: Sequence[int], layout: StepColumns, batch: StepBatch[NDArray[Any]]
) -> Array:
    """(step, input) the columns that are used; each lies in memory in one piece.

    ValueError names the first array that has another shape. What is used has to be given.
    """
    batch.check_shapes(layout.states, layout.actions)
    parts = (batch.observations, batch.actions, batch.terminations, batch.next_observations)
    chosen = np.empty((len(columns), len(batch)))
    for row, column in zip(chosen, columns, strict=True):
        which, place = layout.find_part(column)
        part = parts[NEXT if which == MIDPOINT else which]
        assert part is not None
        if which == MIDPOINT:
            row[:] = compute_midpoints(batch.observations[:, place], part[:, place])
        else:
            row[:] = part if which == TERMINATED else part[:, place]
    return chosen.T


def compute_midpoints(observations: ArrayLike, next_observations: ArrayLike) -> Array:
    """(s + s') / 2 in float64; halves are added, so that large numbers do not overflow."""
    first = np.asarray(observations, np.float64)
    return np.asarray(0.5 * first + 0.5 * np.asarray(next_observations, np.float64))


def put_inputs(rows: Array, values: Array, columns: Sequence[int], layout: StepColumns) -> None:
    """Put values (step, input) into rows of [observation, action, next observation, terminated].

    A midpoint is put between an observation and a next observation, unless both are inputs. Whether
    an episode terminated stays as it is.
    """
    for value, column in zip(values.T, columns, strict=True):
        part, place = layout.find_part(column)
        if part in (OBSERVATION, ACTION):
            rows[:, column] = value
        elif part == NEXT:
            rows[:, layout.terminated + place] = value
    for value, column in zip(values.T, columns, strict=True):
        part, place = layout.find_part(column)
        if part != MIDPOINT:
            continue
        is_first_free = place not in columns
        is_second_free = layout.first_next + place not in columns
        first, second = rows[:, place], rows[:, layout.terminated + place]
        if is_first_free and is_second_free:
            first[:] = np.roll(value, 1)  # another value of the same range
        if is_second_free:
            second[:] = 2 * value - first
        elif is_first_free:
            first[:] = 2 * value - second
