"""Inputs of a reward: what each of them is, how it is shown, and its values in a batch of steps.

An input is identified by an `InputRef`. Its name is for readers, and nothing reads a name back:
columns of a table may be called anything.

Reward models count the columns of a step in this order:

    [observations, actions, terminated, next observations, midpoints (s + s') / 2]

The midpoint of a transition is a column of its own for every state dimension.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from grd_offline.core.episodes import LabelName
from grd_offline.core.steps import StepBatch
from grd_offline.core.typing import AnyArray, Array, IntArray

STATE, ACTION, TERMINATED = "state", "action", "terminated"
"""The parts of a step."""
START, MIDPOINT, END = "start", "midpoint", "end"
"""The moments of a step at which a state is an input."""
_MARKS = {START: "", MIDPOINT: " (midpoint)", END: "'"}


@dataclass(frozen=True)
class InputRef:
    """One number of a step that a reward may depend on."""

    part: str
    """`STATE`, `ACTION` or `TERMINATED`."""
    index: int
    """Its dimension, among those of this part."""
    column: str
    """The column of the data that it is from: weather for weather=rain."""
    category: str | None = None
    """The label that it stands for, if it is 1 where its column has that label."""
    moment: str = START
    """When it is taken: `START`, `MIDPOINT` or `END` of the step."""
    mark: str = field(default="", compare=False)
    """The end of its name, which tells the moment where a reader has to know it."""

    @classmethod
    def make(
        cls, part: str, index: int, names: Sequence[str], moment: str = START, mark: str = ""
    ) -> InputRef:
        """Refer to a dimension by its place among the names of its part."""
        name = names[index]
        if isinstance(name, LabelName):
            return cls(part, index, str(name.column), name.label, moment, mark)
        return cls(part, index, str(name), None, moment, mark)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> InputRef:
        """The inverse of `to_json`."""
        return cls(**{name: stored[name] for name in cls.__dataclass_fields__})

    def to_json(self) -> dict[str, Any]:
        """All fields, and the name for readers."""
        return {"name": self.name, **vars(self)}

    @property
    def dimension(self) -> str:
        """The name of the dimension, whatever the moment."""
        return self.column if self.category is None else f"{self.column}={self.category}"

    @property
    def name(self) -> str:
        """The name for readers."""
        return self.dimension + self.mark

    @property
    def at_start(self) -> InputRef:
        """The same dimension at the start of the step."""
        return InputRef(self.part, self.index, self.column, self.category)

    def select(self, batch: StepBatch[AnyArray]) -> AnyArray:
        """(step,) its values."""
        if self.part == ACTION:
            return batch.actions[:, self.index]
        if self.part == TERMINATED:
            assert batch.terminations is not None
            return batch.terminations
        if self.moment == START:
            return batch.observations[:, self.index]
        assert batch.next_observations is not None
        later = batch.next_observations[:, self.index]
        if self.moment == END:
            return later
        return compute_midpoints(batch.observations[:, self.index], later)


def list_dimensions(
    observation_names: Sequence[str], action_names: Sequence[str]
) -> tuple[InputRef, ...]:
    """All states at the start of the step, and all actions."""
    return tuple(
        InputRef.make(part, index, names)
        for part, names in ((STATE, observation_names), (ACTION, action_names))
        for index in range(len(names))
    )


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

    def find_place(self, column: int) -> tuple[str, int, str]:
        """The part, the dimension and the moment that a column is."""
        if column < self.states:
            return STATE, column, START
        if column < self.terminated:
            return ACTION, column - self.states, START
        if column == self.terminated:
            return TERMINATED, 0, START
        later, index = divmod(column - self.first_next, self.states)
        return STATE, index, MIDPOINT if later else END

    def move_from_version_1(self, columns: IntArray) -> IntArray:
        """Columns of [observations, actions, next observations], which files had at first."""
        width = 2 * self.states + self.actions
        if columns.size and not 0 <= columns.min() <= columns.max() < width:
            raise ValueError(f"columns: expected 0 to {width - 1}, got {columns.tolist()!s:.80}")
        return np.where(columns >= self.terminated, columns + 1, columns)


def list_inputs(
    columns: Iterable[int], observation_names: Sequence[str], action_names: Sequence[str]
) -> tuple[InputRef, ...]:
    """The input that each column is. They are called x, terminated, and x' for a next observation.

    A midpoint is called x as well, unless x or x' is an input too.
    """
    layout = StepColumns(len(observation_names), len(action_names))
    names = {STATE: observation_names, ACTION: action_names, TERMINATED: (TERMINATED,)}
    places = [layout.find_place(int(column)) for column in columns]
    ends = {index for part, index, moment in places if part == STATE and moment != MIDPOINT}

    def make(part: str, index: int, moment: str) -> InputRef:
        mark = "" if moment == MIDPOINT and index not in ends else _MARKS[moment]
        return InputRef.make(part, index, names[part], moment, mark)

    return tuple(make(*place) for place in places)


def find_label_column(inputs: Sequence[InputRef]) -> str | None:
    """The name of the column whose labels all of several inputs are, or None."""
    columns = {None if one.category is None else one.column + one.mark for one in inputs}
    return columns.pop() if len(inputs) > 1 and len(columns) == 1 else None


def name_effect(inputs: Sequence[InputRef]) -> str:
    """The name of an effect: speed, speed x load; weather (rain, snow) for labels of one column."""
    column = find_label_column(inputs)
    if column is None:
        return " x ".join(one.name for one in inputs)
    return f"{column} ({', '.join(str(one.category) for one in inputs)})"


def explain_marks(inputs: Iterable[InputRef]) -> str:
    """One sentence on names of next states and midpoints, if there are such names, or nothing."""
    marked = {one.moment: one for one in reversed(list(inputs)) if one.mark}
    said = {
        END: "A prime means the end of the step: {0.name} is {0.dimension} in the next state.",
        MIDPOINT: "{0.name} is the mean of the values at the start and the end of the step.",
    }
    return " ".join(text.format(marked[key]) for key, text in said.items() if key in marked)


def select_inputs(inputs: Sequence[InputRef], batch: StepBatch[AnyArray]) -> Array:
    """(step, input) the inputs that are used; each lies in memory in one piece."""
    chosen = np.empty((len(inputs), len(batch)))
    for row, one in zip(chosen, inputs, strict=True):
        row[:] = one.select(batch)
    return chosen.T


def compute_midpoints(observations: ArrayLike, next_observations: ArrayLike) -> Array:
    """(s + s') / 2 in float64; halves are added, so that large numbers do not overflow."""
    first = np.asarray(observations, np.float64)
    return np.asarray(0.5 * first + 0.5 * np.asarray(next_observations, np.float64))


def put_inputs(rows: Array, values: Array, inputs: Sequence[InputRef], layout: StepColumns) -> None:
    """Put values (step, input) into rows of [observation, action, next observation, terminated].

    A midpoint is put between an observation and a next observation, unless both are inputs. Whether
    an episode terminated stays as it is.
    """
    firsts = {(STATE, START): 0, (ACTION, START): layout.states, (STATE, END): layout.terminated}
    known = {(one.index, one.moment) for one in inputs if one.part == STATE}
    for value, one in zip(values.T, inputs, strict=True):
        start = firsts.get((one.part, one.moment))
        if start is not None:
            rows[:, start + one.index] = value
    for value, one in zip(values.T, inputs, strict=True):
        if one.moment != MIDPOINT:
            continue
        is_first_free = (one.index, START) not in known
        is_second_free = (one.index, END) not in known
        first, second = rows[:, one.index], rows[:, layout.terminated + one.index]
        if is_first_free and is_second_free:
            first[:] = np.roll(value, 1)  # another value of the same range
        if is_second_free:
            second[:] = 2 * value - first
        elif is_first_free:
            first[:] = 2 * value - second
