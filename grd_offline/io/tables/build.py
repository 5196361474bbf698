"""A recording from the rows of a table: episodes are put together, and everything is checked."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from grd_offline.core.errors import DataError
from grd_offline.core.provenance import EPISODE, ROW, STEP, TRUTH, Provenance
from grd_offline.core.typing import AnyArray
from grd_offline.io.formats.record import Header, Leaf, Record, Recording
from grd_offline.io.tables.columns import FLAG, NUMBER, TEXT, TIME, Columns, Embedder
from grd_offline.io.tables.inputs import Gaps, Input, expand, name_label
from grd_offline.io.tables.outcomes import as_outcomes, look_up, refuse_missing
from grd_offline.io.tables.source import (
    TableSource,
    as_numbers,
    as_times,
    is_missing,
)
from grd_offline.io.tables.times import choose_step_type, find_styles

CHOICES, MOST_CHOICES = ("action", "actions"), 20
"""Whole numbers from 0 in an only action of such a name are choices, if there are this few."""


class _Rows:
    """Arrays that grow, by name. A table larger than memory has room: they wait in files."""

    def __init__(self) -> None:
        self._files: dict[str, Any] = {}
        self._shapes: dict[str, tuple[np.dtype[Any], tuple[int, ...]]] = {}

    def __enter__(self) -> _Rows:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.close()

    def add(self, name: str, block: AnyArray) -> None:
        """Add some rows to an array."""
        values = np.ascontiguousarray(block)
        if name not in self._files:
            self._files[name] = tempfile.TemporaryFile(prefix="grd-offline-")  # noqa: SIM115
            self._shapes[name] = values.dtype, (0,)
        if values.size:
            self._files[name].write(values.reshape(-1).view(np.uint8).data)
        count = self._shapes[name][1][0] + len(values)
        self._shapes[name] = values.dtype, (count, *values.shape[1:])

    def finish(self) -> dict[str, AnyArray]:
        """All arrays, mapped from their files, which go when the arrays do."""
        arrays = {}
        for name, (dtype, shape) in self._shapes.items():
            self._files[name].flush()
            # As a plain array: slices of a memmap are slow to make.
            arrays[name] = (
                np.zeros(shape, dtype)
                if 0 in shape
                else np.asarray(np.memmap(self._files[name], dtype, "r", shape=shape))
            )
        return arrays


@dataclass
class _Gathered:
    """All rows of a table."""

    values: AnyArray
    codes: NDArray[np.int64]
    """(row,) the number of the row's episode, counted as episodes first appear."""
    names: list[Any]
    """(episode,) what the table calls it."""
    steps: AnyArray | None
    step_type: str
    """The type of steps that are moments; see `times`."""
    numbers: dict[str, AnyArray]
    """Rewards, returns, flags and true rewards by their role."""


def build(
    source: TableSource,
    columns: Columns,
    *,
    returns: Mapping[Any, float] | None = None,
    labels: Mapping[str, Sequence[str]] | None = None,
    embedders: Mapping[str, Embedder] | None = None,
) -> Recording:
    """Read a table once, and give its episodes.

    `returns` are outcomes from elsewhere, by episode. `labels` are the categories that columns must
    have, in this order, where a model knows them. `embedders` make vectors of the cells of columns.
    """
    known = {**(source.labels or {}), **(labels or {})}
    entries = source.entries or {}
    inputs = [
        Input(
            name,
            source.kinds[name],
            labels=known.get(name),
            is_category=name in columns.categories,
            entries=entries.get(name),
            embedder=(embedders or {}).get(name),
        )
        for name in (*columns.observations, *columns.actions)
    ]
    table = _gather(source, columns, inputs)
    if len(columns.actions) == 1:
        inputs[-1] = _as_choice(inputs[-1], table.values)
    order, starts = _sort(table, columns, source.first_row)
    is_flag = columns.returns is not None and source.kinds[columns.returns] == FLAG
    outcomes = _find_outcomes(table, columns, returns, order, starts, is_flag)
    oddities = _find_oddities(table, columns, order)
    table.codes = np.zeros(0, np.int64)  # large, and of no use from here on
    table.numbers.pop("returns", None)
    states = len(columns.observations)
    episodes = _Episodes(table, order, starts, outcomes, inputs[:states], inputs[states:])
    observation_names, action_names = (
        tuple(name for one in part for name in one.name_columns())
        for part in (inputs[:states], inputs[states:])
    )
    leaf = Leaf("", (len(action_names),), "float32")
    if episodes.is_choice:
        leaf = Leaf("", (), "int64", (len(action_names),))
    header = Header(
        observation_leaves=(Leaf("", (len(observation_names),), "float32"),),
        action_leaves=(leaf,),
        observation_names=observation_names,
        action_names=action_names,
        delay=None if outcomes is None else "end",
        provenance=Provenance(str(columns), columns.episode, columns.step or STEP, table.step_type),
    )
    return Recording(
        source.layout,
        header,
        np.diff(starts),
        episodes.load,
        episodes.load_rewards,
        oddities,
    )


class _Episodes:
    """Gives the rows of one episode at a time."""

    def __init__(
        self,
        table: _Gathered,
        order: NDArray[np.int64] | None,
        starts: NDArray[np.int64],
        outcomes: NDArray[np.float64] | None,
        states: Sequence[Input],
        actions: Sequence[Input],
    ) -> None:
        self._table, self._order, self._starts, self._outcomes = table, order, starts, outcomes
        self._states, self._actions = states, actions
        self._width = sum(one.width for one in states)
        self._orders = {
            one.name: places
            for one in (*states, *actions)
            if (places := one.order_codes()) is not None
        }
        self.is_choice = len(actions) == 1 and actions[0].name in self._orders

    def _find_rows(self, index: int) -> Any:
        rows = slice(int(self._starts[index]), int(self._starts[index + 1]))
        return rows if self._order is None else self._order[rows]

    def load(self, index: int) -> Record:
        """One episode as a record."""
        rows = self._find_rows(index)
        block = self._table.values[rows]
        last = np.arange(len(block)) == len(block) - 1
        terminations, truncations = _load_ends(self._table, rows, last)
        actions: AnyArray = expand(block[:, self._width :], self._actions, self._orders)
        return Record(
            observations={"": expand(block[:, : self._width], self._states, self._orders)},
            actions={"": actions.argmax(axis=1) if self.is_choice else actions},
            rewards=self.load_rewards(index),
            terminations=terminations,
            truncations=truncations,
            extras=_load_extras(self._table, rows),
            attributes={EPISODE: _as_attribute(self._table.names[index])},
        )

    def load_rewards(self, index: int) -> AnyArray:
        """The rewards of one episode; its outcome counts as delivered at the last step."""
        if self._outcomes is None:
            return np.asarray(self._table.numbers["rewards"][self._find_rows(index)])
        rewards = np.zeros(int(self._starts[index + 1] - self._starts[index]))
        rewards[-1] = self._outcomes[index]
        return rewards


def _as_choice(action: Input, values: AnyArray) -> Input:
    """The only action, as choices where it is called so and holds small whole numbers."""
    if action.kind != NUMBER or action.labels is not None or action.name.lower() not in CHOICES:
        return action
    column = values[:, -1]
    count = int(column.max()) + 1
    if column.min() < 0 or count > MOST_CHOICES or np.mod(column, 1).any():
        return action
    return Input(action.name, NUMBER, labels=[str(choice) for choice in range(count)])


def _gather(source: TableSource, columns: Columns, inputs: Sequence[Input]) -> _Gathered:
    """Read all rows."""
    step, kind = columns.step, NUMBER
    if step is not None:
        kind = _find_step_kind(step, source)
    roles = ("rewards", "returns", "terminated", "truncated", "truth")
    used = {role: name for role in roles if (name := getattr(columns, role)) is not None}
    known: dict[Any, int] = {}
    styles: set[str] = set()
    gaps, row = Gaps(), source.first_row
    with _Rows() as rows:
        for block in source.blocks(columns.list_used(), (columns.episode,)):
            names = block[columns.episode]
            rows.add("codes", _number_episodes(names, known, gaps, columns.episode, row))
            parts = [one.encode(block[one.name], gaps, row) for one in inputs]
            rows.add("values", np.concatenate(parts, axis=1))
            if step is not None:
                rows.add("steps", _read_steps(block[step], kind, gaps, row))
                styles |= find_styles(block[step].unique()) if kind == TIME else set()
            for role, name in used.items():
                parse = as_outcomes if role == "returns" else as_numbers
                read = parse(block[name], name, row)
                if role != "returns":  # an outcome may stand in one row of its episode only
                    gaps.add(np.flatnonzero(np.isnan(read)), name, row)
                rows.add(role, read)
            row += len(block)
        if row == source.first_row:
            raise DataError("has no rows")
        gaps.check()
        arrays = rows.finish()
    return _Gathered(
        arrays.pop("values"),
        arrays.pop("codes"),
        list(known),
        arrays.pop("steps", None),
        choose_step_type(styles) if kind == TIME else "",
        arrays,
    )


def _find_step_kind(name: str, source: TableSource) -> str:
    """Whether steps are numbers or times. Text must be times."""
    kind = source.kinds[name]
    if kind not in (NUMBER, TIME, TEXT):
        raise DataError(
            f"expected numbers or times for the order of steps, got a {kind}",
            field=f"column {name}",
        )
    return NUMBER if kind == NUMBER else TIME


def _number_episodes(
    values: pl.Series, known: dict[Any, int], gaps: Gaps, name: str, first_row: int
) -> NDArray[np.int64]:
    """The number of each row's episode; new episodes get the next numbers."""
    if values.dtype in (pl.List, pl.Array):
        raise DataError("expected one name or number per row", field=f"column {name}")
    if values.dtype in (pl.Date, pl.Datetime):
        moments = as_times(values, name, first_row).astype(str)
        values = pl.Series(name, [None if one == "NaT" else one for one in moments], pl.String)
    if values.dtype == pl.Object:
        gaps.add([row for row, one in enumerate(values) if is_missing(one)], name, first_row)
        labels = [0 if is_missing(one) else _as_label(one) for one in values]
        return np.array([known.setdefault(label, len(known)) for label in labels], np.int64)
    if values.dtype.is_float():
        values = values.fill_nan(None)
    gaps.add(np.flatnonzero(values.is_null()), name, first_row)
    found = values.drop_nulls().unique(maintain_order=True)
    codes = [known.setdefault(_as_label(value), len(known)) for value in found]
    return values.replace_strict(found, codes, default=0, return_dtype=pl.Int64).to_numpy()


def _as_label(value: Any) -> Any:
    """A name of an episode: 3 for 3.0."""
    value = value.item() if isinstance(value, np.generic) else value
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _read_steps(values: pl.Series, kind: str, gaps: Gaps, first_row: int) -> AnyArray:
    steps: AnyArray = (as_times if kind == TIME else as_numbers)(values, values.name, first_row)
    gaps.add(np.flatnonzero(np.isnat(steps) if kind == TIME else np.isnan(steps)), values.name,
             first_row)  # fmt: skip
    return steps


def _sort(
    table: _Gathered, columns: Columns, first_row: int
) -> tuple[NDArray[np.int64] | None, NDArray[np.int64]]:
    """The rows in the order of episodes and steps (None: as they are), and where each begins."""
    codes, steps = table.codes, table.steps
    lengths = np.bincount(codes, minlength=len(table.names))
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    same = codes[1:] == codes[:-1]
    is_sorted = bool((codes[1:] >= codes[:-1]).all())
    if is_sorted and (steps is None or bool((~same | (steps[1:] > steps[:-1])).all())):
        return None, starts
    keys = (codes,) if steps is None else (steps, codes)
    order = np.lexsort(keys)
    if steps is not None:
        ordered = steps[order]
        twins = np.flatnonzero(
            (ordered[1:] == ordered[:-1]) & (codes[order[1:]] == codes[order[:-1]])
        )
        if twins.size:
            one, other = sorted(int(row) for row in order[twins[0] : twins[0] + 2])
            raise DataError(
                f"episode {table.names[codes[one]]} has step {_show_step(ordered[twins[0]])} twice,"
                f" in rows {first_row + one:,} and {first_row + other:,}",
                field=f"column {columns.step}",
            )
    return order, starts


def _show_step(step: Any) -> str:
    return name_label(step.item()) if step.dtype.kind == "f" else str(step)


def _find_outcomes(
    table: _Gathered,
    columns: Columns,
    returns: Mapping[Any, float] | None,
    order: NDArray[np.int64] | None,
    starts: NDArray[np.int64],
    is_flag: bool,
) -> NDArray[np.float64] | None:
    """(episode,) the outcomes; None where there is a reward at every step.

    A flag that is set in one of its rows, such as success, counts for the whole episode.
    """
    if returns is not None:
        return look_up(table.names, returns)
    if columns.rewards is not None:
        return None
    if columns.returns is None:
        return np.zeros(len(table.names))
    values = np.asarray(table.numbers["returns"])
    values = values if order is None else values[order]
    low = np.fmin.reduceat(values, starts[:-1])
    high = np.fmax.reduceat(values, starts[:-1])
    field = f"column {columns.returns}"
    missing = np.flatnonzero(np.isnan(low))
    if missing.size:
        lacking = [table.names[index] for index in missing]
        raise refuse_missing(lacking, len(table.names)).at(field=field)
    unequal = np.flatnonzero(low != high)
    if unequal.size and not is_flag:
        at = unequal[0]
        raise DataError(
            f"episode {table.names[at]} has outcomes from {low[at]:.6g} to {high[at]:.6g}: an "
            "outcome is one number per episode (use reward= for a number per step)",
            field=field,
        )
    return high


def _find_oddities(
    table: _Gathered, columns: Columns, order: NDArray[np.int64] | None
) -> list[str]:
    if order is not None and columns.step is None:
        jump = np.flatnonzero(np.diff(table.codes) < 0)[0]
        name = table.names[table.codes[jump + 1]]
        return [
            f"episode {name} stands in several places of the table: its rows were joined in the "
            "order of the table"
        ]
    return []


def _load_ends(table: _Gathered, rows: Any, last: AnyArray) -> tuple[AnyArray, AnyArray]:
    """Terminations and truncations; an episode that says neither was cut off at its last row."""
    terminated = _load_flags(table, "terminated", rows, last)
    truncated = _load_flags(table, "truncated", rows, last)
    if not terminated.any() and "truncated" not in table.numbers:
        truncated = last
    return terminated, truncated


def _load_flags(table: _Gathered, role: str, rows: Any, last: AnyArray) -> AnyArray:
    if role not in table.numbers:
        return np.zeros(len(last), np.bool_)
    flags = np.asarray(table.numbers[role][rows])
    # A flag in all rows is about the episode, and so about its end.
    return last if len(flags) > 1 and (flags == 1).all() else flags


def _load_extras(table: _Gathered, rows: Any) -> dict[str, AnyArray]:
    extras = {}
    if table.steps is not None:
        steps = table.steps[rows]
        whole = steps.dtype.kind == "M" or not np.mod(steps, 1).any()
        extras[STEP] = steps.astype(np.int64) if whole else steps
    if not isinstance(rows, slice):
        extras[ROW] = np.asarray(rows, np.int64)
    if "truth" in table.numbers:
        extras[TRUTH] = np.asarray(table.numbers["truth"][rows])
    return extras


def _as_attribute(name: Any) -> int | float | str:
    return name if isinstance(name, int | float | str) and not isinstance(name, bool) else str(name)
