"""A recording from a table: columns become inputs, rows episodes, and everything is checked.

Numbers are inputs as they are, categories are codes. Outcomes may stand in a small table of their
own with one row per episode, and preferences in one with one row per pair.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from grd_offline.core.episodes import (
    EPISODE,
    LARGEST,
    ROW,
    STEP,
    TRUTH,
    EpisodeSet,
    LabelName,
    Preferences,
    Provenance,
)
from grd_offline.core.errors import DataError, located
from grd_offline.core.typing import AnyArray, SingleArray
from grd_offline.core.words import count
from grd_offline.io.formats.record import Header, Leaf, Record, Recording
from grd_offline.io.tables.columns import (
    FLAG,
    IMAGE,
    NUMBER,
    TEXT,
    TIME,
    VECTOR,
    Columns,
    Embedder,
    Expected,
    Given,
    Outcomes,
    choose_columns,
    expand_names,
    find_names,
    parse_columns,
    parse_given,
    refuse_image,
)
from grd_offline.io.tables.sources import (
    FLAGS,
    TO_ISO,
    TableSource,
    as_numbers,
    as_texts,
    as_times,
    as_vectors,
    choose_step_type,
    embed,
    find_stray,
    find_styles,
    find_unread,
    is_foreign_date,
    is_missing,
    open_file,
    open_frame,
    read_texts,
    refuse_cell,
)

_ROLES = ("episode", "step", "terminated", "truncated", "truth")
_OUTCOMES = ("rewards", "returns")
"""Roles that a model remembers of the table that it was fitted to."""
CHOICES, MOST_CHOICES = ("action", "actions"), 20
"""Whole numbers from 0 in an only action of such a name are choices, if there are this few."""


def open_table(
    path: Path,
    columns: Given | None,
    returns: Outcomes | None,
    expected: Expected | None,
    needs_outcome: bool,
    max_bytes: int | None,
) -> Recording:
    """The recording of a CSV or Parquet file, of a LeRobot folder or of turns as JSON lines.

    `columns` says which column is what, as `--columns` does. `returns` are outcomes by episode, or
    a file that holds them; then the role returns names a column of this file. `expected` are the
    inputs of a model: the table must have them. Other columns have the roles that the model
    remembers, unless `columns` says something else. The table needs no outcomes if `needs_outcome`
    is False, nor for a model that expects none.
    """
    with located(file=path):
        given = parse_given(columns)
        known = parse_columns((expected.columns if expected is not None else None) or "")
        decimal, usual = (next(iter(r.get("decimal", ())), None) for r in (given, known))
        with open_file(path, max_bytes, decimal=decimal, usual=usual) as source:
            outcome = None
            if returns is not None and not isinstance(returns, Mapping):
                episode = next(iter(given.get("episode", ())), None)
                outcome = next(iter(given.pop("returns", ())), None)
                returns = read_outcomes(Path(returns), episode, outcome)
                if outcome in source.kinds:  # would give the outcome away to a fit
                    given["ignored"] = (*given.get("ignored", ()), str(outcome))
            opened = open_source(source, given, returns, expected, needs_outcome=needs_outcome)
    if outcome is None:
        return opened
    table = opened.header.provenance or Provenance()
    table = replace(table, columns=f"{table.columns},returns={outcome}")
    return replace(opened, header=replace(opened.header, provenance=table))


def open_source(
    source: TableSource,
    given: Mapping[str, Sequence[str]],
    returns: Mapping[Any, float] | None = None,
    expected: Expected | None = None,
    embedders: Mapping[str, Embedder] | None = None,
    *,
    needs_outcome: bool = True,
) -> Recording:
    """The recording of a table that is open.

    `returns` are outcomes from elsewhere, by episode. `embedders` turn the cells of columns that
    are embedded into vectors; lists need none.
    """
    labels = dict(source.labels)
    known = parse_columns(expected.columns or "") if expected is not None else {}
    if "embed" in known:
        given = {"embed": known["embed"], **given}
    embedded = expand_names("embed", given.get("embed", ()), source.kinds)
    kinds = {name: VECTOR if name in embedded else kind for name, kind in source.kinds.items()}
    if expected is not None:
        needs_outcome = needs_outcome and expected.needs_outcome
        is_open = needs_outcome and returns is None and not {"rewards", "returns"} & given.keys()
        inputs, categories = _find_inputs(kinds, expected)
        labels |= categories
        # A model takes its inputs in one order, however they are listed.
        listed = {
            role: names for role, names in given.items() if set(names) != set(inputs.get(role, ()))
        }
        _check_roles(kinds, known, given, expected.needed_roles)
        roles = (*_ROLES, *(_OUTCOMES if is_open else ()))
        here = {role: known[role] for role in roles if known.get(role)}
        here = {role: names for role, names in here.items() if set(names) <= kinds.keys()}
        given = {**here, **inputs, **listed}
    if source.decimal is not None:
        given = {"decimal": (source.decimal,), **given}
    chosen = choose_columns(
        kinds, given, has_returns=returns is not None, needs_outcome=needs_outcome
    )
    columns = []
    for name in (*chosen.observations, *chosen.actions):
        entries, embedder = source.entries.get(name), (embedders or {}).get(name)
        is_category = name in chosen.categories
        columns.append(Input(name, kinds[name], labels.get(name), is_category, entries, embedder))
    return _build(replace(source, kinds=kinds), chosen, columns, returns)


def _check_roles(
    kinds: Mapping[str, str],
    known: Mapping[str, tuple[str, ...]],
    given: Mapping[str, Sequence[str]],
    roles: Sequence[str],
) -> None:
    """Refuse a table without a column that the rewards depend on."""
    for role in roles:
        name = next(iter(known.get(role, ())), None)
        if name is not None and name not in kinds and role not in given:
            raise DataError(
                f"the rewards depend on the column {name!r} ({role}), which is not there: say how "
                f"it is called (--columns {role}=NAME, or columns= in Python), or that there is "
                f"none ({role}=)"
            )


def _find_inputs(
    kinds: Mapping[str, str], expected: Expected
) -> tuple[dict[str, tuple[str, ...]], dict[str, list[str]]]:
    """The columns behind the inputs of a model, in its order, and the labels that it knows."""
    found: dict[str, tuple[str, ...]] = {}
    labels: dict[str, list[str]] = {}
    for role, names in zip(("observations", "actions"), expected[:2], strict=True):
        columns: dict[str, None] = {}
        for name in names:
            column = _find_column(name, kinds)
            if column is None:
                wanted, such = name, ""
                if isinstance(name, LabelName):
                    wanted, such = name.column, f" with texts such as {name.label!r}"
                shown = ", ".join(list(kinds)[:12])
                raise DataError(f"the model needs a column {wanted!r}{such}; columns: {shown}")
            columns[column] = None
            if isinstance(name, LabelName) and column == name.column:
                labels.setdefault(column, []).append(name.label)
        found[role] = tuple(columns)
    return found, labels


def _find_column(name: str, kinds: Mapping[str, str]) -> str | None:
    """Find the column of an input: speed for speed, weather for weather=rain, and state for
    state[0] and state.x."""
    if name in kinds:
        return name
    if isinstance(name, LabelName):
        return name.column if kinds.get(name.column, VECTOR) != VECTOR else None
    vectors = (column for column in kinds if kinds[column] == VECTOR)
    return next((one for one in vectors if name.startswith((f"{one}[", f"{one}."))), None)


class _Rows(ExitStack):
    """Arrays that grow, by name. A table larger than memory has room: they wait in files."""

    def __init__(self) -> None:
        super().__init__()
        self._files: dict[str, Any] = {}
        self._shapes: dict[str, tuple[np.dtype[Any], tuple[int, ...]]] = {}

    def add(self, name: str, block: AnyArray) -> None:
        """Add some rows to an array."""
        values = np.ascontiguousarray(block)
        if name not in self._files:
            file = tempfile.TemporaryFile(prefix="grd-offline-")  # noqa: SIM115
            self._files[name] = self.enter_context(file)
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
            if 0 in shape:
                arrays[name] = np.zeros(shape, dtype)
            else:  # as a plain array: slices of a memmap are slow to make
                arrays[name] = np.asarray(np.memmap(self._files[name], dtype, "r", shape=shape))
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
    """The type of steps that are moments, see `show_steps`."""
    numbers: dict[str, AnyArray]
    """Rewards, returns, flags and true rewards by their role."""

    def load_ends(self, rows: Any, last: AnyArray) -> tuple[AnyArray, AnyArray]:
        """Terminations and truncations; an episode that says neither was cut off at its end."""

        def load_flags(role: str) -> AnyArray:
            if role not in self.numbers:
                return np.zeros(len(last), np.bool_)
            flags = np.asarray(self.numbers[role][rows])
            # A flag in all rows is about the episode, and so about its end.
            return last if len(flags) > 1 and (flags == 1).all() else flags

        terminated, truncated = load_flags("terminated"), load_flags("truncated")
        is_cut = not terminated.any() and "truncated" not in self.numbers
        return terminated, last if is_cut else truncated

    def load_extras(self, rows: Any) -> dict[str, AnyArray]:
        extras = {}
        if self.steps is not None:
            steps = self.steps[rows]
            whole = steps.dtype.kind == "M" or not np.mod(steps, 1).any()
            extras[STEP] = steps.astype(np.int64) if whole else steps
        if not isinstance(rows, slice):
            extras[ROW] = np.asarray(rows, np.int64)
        if "truth" in self.numbers:
            extras[TRUTH] = np.asarray(self.numbers["truth"][rows])
        return extras


def _build(
    source: TableSource, columns: Columns, inputs: list[Input], returns: Mapping[Any, float] | None
) -> Recording:
    """Read a table once, and give its episodes."""
    table = _gather(source, columns, inputs)
    if len(columns.actions) == 1:
        inputs[-1] = _as_choice(inputs[-1], table.values)
    order, starts = _sort(table, columns, source.first_row)
    is_flag = columns.returns is not None and source.kinds[columns.returns] == FLAG
    outcomes = _find_outcomes(table, columns, returns, order, starts, is_flag)
    oddities = []
    if order is not None and columns.step is None:
        name = table.names[table.codes[np.flatnonzero(np.diff(table.codes) < 0)[0] + 1]]
        oddities.append(
            f"episode {name} stands in several places of the table: its rows were joined in the "
            "order of the table"
        )
    table.codes = np.zeros(0, np.int64)  # large, and of no use from here on
    table.numbers.pop("returns", None)
    states, actions = (inputs[: len(columns.observations)], inputs[len(columns.observations) :])
    width = sum(one.width for one in states)
    is_choice = len(actions) == 1 and actions[0].labels is not None
    observation_names, action_names = (
        tuple(name for one in part for name in one.name_columns()) for part in (states, actions)
    )
    size = len(action_names)
    header = Header(
        (Leaf("", (len(observation_names),), "float32"),),
        (Leaf("", (), "int64", (size,)) if is_choice else Leaf("", (size,), "float32"),),
        observation_names,
        action_names,
        delay=None if outcomes is None else "end",
        provenance=Provenance(str(columns), columns.episode, columns.step or STEP, table.step_type),
    )

    def find_rows(index: int) -> Any:
        rows = slice(int(starts[index]), int(starts[index + 1]))
        return rows if order is None else order[rows]

    def load(index: int) -> Record:
        rows = find_rows(index)
        block = table.values[rows]
        chosen: AnyArray = expand(block[:, width:], actions)
        name = table.names[index]
        return Record(
            {"": expand(block[:, :width], states)},
            {"": chosen.argmax(axis=1) if is_choice else chosen},
            load_rewards(index),
            *table.load_ends(rows, np.arange(len(block)) == len(block) - 1),
            table.load_extras(rows),
            {EPISODE: name if type(name) in (int, float, str) else str(name)},
        )

    def load_rewards(index: int) -> AnyArray:
        """The rewards of one episode; its outcome counts as delivered at the last step."""
        if outcomes is None:
            return np.asarray(table.numbers["rewards"][find_rows(index)])
        rewards = np.zeros(int(starts[index + 1] - starts[index]))
        rewards[-1] = outcomes[index]
        return rewards

    return Recording(source.layout, header, np.diff(starts), load, load_rewards, oddities)


def _as_choice(action: Input, values: AnyArray) -> Input:
    """The only action, as choices where it is called so and holds small whole numbers."""
    if action.kind != NUMBER or action.labels is not None or action.name.lower() not in CHOICES:
        return action
    column = values[:, -1]
    count = int(column.max()) + 1
    if column.min() < 0 or count > MOST_CHOICES or np.mod(column, 1).any():
        return action
    return Input(action.name, NUMBER, [str(choice) for choice in range(count)])


def _gather(source: TableSource, columns: Columns, inputs: Sequence[Input]) -> _Gathered:
    """Read all rows."""
    step, kind = columns.step, NUMBER
    if step is not None:
        kind = source.kinds[step]
        if kind not in (NUMBER, TIME, TEXT):
            reason = f"expected numbers or times for the order of steps, got a {kind}"
            raise DataError(reason, field=f"column {step}")
        kind = NUMBER if kind == NUMBER else TIME  # text must be times
    roles = ("rewards", "returns", "terminated", "truncated", "truth")
    used = {role: name for role in roles if (name := getattr(columns, role)) is not None}
    known: dict[Any, int] = {}
    styles: set[str] = set()
    gaps, row = Gaps(), source.first_row
    with _Rows() as rows:
        for block in source.blocks(columns.list_used(), (columns.episode,)):
            rows.add("codes", _number_episodes(block[columns.episode], known, gaps, row))
            parts = [one.encode(block[one.name], gaps, row) for one in inputs]
            rows.add("values", np.concatenate(parts, axis=1))
            if step is not None:
                steps: AnyArray = (as_times if kind == TIME else as_numbers)(block[step], row)
                is_empty = np.isnat(steps) if kind == TIME else np.isnan(steps)
                gaps.add(np.flatnonzero(is_empty), step, row)
                rows.add("steps", steps)
                styles |= find_styles(block[step].unique()) if kind == TIME else set()
            for role, name in used.items():
                read = (as_outcomes if role == "returns" else as_numbers)(block[name], row)
                if role != "returns":  # an outcome may stand in one row of its episode only
                    gaps.add(np.flatnonzero(np.isnan(read)), name, row)
                rows.add(role, read)
            row += len(block)
        if row == source.first_row:
            raise DataError("has no rows")
        gaps.check()
        arrays = rows.finish()
    values, codes, found = arrays.pop("values"), arrays.pop("codes"), arrays.pop("steps", None)
    step_type = choose_step_type(styles) if kind == TIME else ""
    return _Gathered(values, codes, list(known), found, step_type, arrays)


def _number_episodes(
    values: pl.Series, known: dict[Any, int], gaps: Gaps, first_row: int
) -> NDArray[np.int64]:
    """The number of each row's episode; new episodes get the next numbers."""
    name = values.name
    if values.dtype in (pl.List, pl.Array):
        raise DataError("expected one name or number per row", field=f"column {name}")
    if values.dtype in (pl.Date, pl.Datetime):
        moments = as_times(values, first_row).astype(str)
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
    order = np.lexsort((codes,) if steps is None else (steps, codes))
    if steps is not None:
        ordered = steps[order]
        twins = np.flatnonzero(
            (ordered[1:] == ordered[:-1]) & (codes[order[1:]] == codes[order[:-1]])
        )
        if twins.size:
            one, other = sorted(int(row) for row in order[twins[0] : twins[0] + 2])
            step = ordered[twins[0]]
            shown = name_label(step.item()) if step.dtype.kind == "f" else str(step)
            raise DataError(
                f"episode {table.names[codes[one]]} has step {shown} twice, in rows "
                f"{first_row + one:,} and {first_row + other:,}",
                field=f"column {columns.step}",
            )
    return order, starts


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
    if (missing := np.flatnonzero(np.isnan(low))).size:
        lacking = [table.names[index] for index in missing]
        raise _refuse_missing(lacking, len(table.names)).at(field=field)
    unequal = np.flatnonzero(low != high)
    if unequal.size and not is_flag:
        at = unequal[0]
        raise DataError(
            f"episode {table.names[at]} has outcomes from {low[at]:.6g} to {high[at]:.6g}: an "
            "outcome is one number per episode (use reward= for a number per step)",
            field=field,
        )
    return high


MOST_LABELS = 100
"""Different texts of one column; more are no categories."""
SHOWN = 5


@dataclass
class Gaps:
    """The cells that are empty: the first few, and how many there are."""

    count: int = 0
    shown: list[str] = field(default_factory=list)

    def add(self, rows: Sequence[int] | NDArray[np.int64], name: str, first_row: int) -> None:
        """Note empty cells of a column."""
        self.count += len(rows)
        few = rows[: SHOWN - len(self.shown)]
        self.shown += [f"row {first_row + int(row):,} of {name}" for row in few]

    def check(self) -> None:
        """Refuse the table if there are any."""
        if self.count:
            more = f", and {self.count - SHOWN:,} more" if self.count > SHOWN else ""
            raise DataError(
                f"{count(self.count, 'empty cell')}: {', '.join(self.shown)}{more}; fill them, or "
                "leave out these episodes"
            )


def name_label(value: Any) -> str:
    """A category as text: 3 for 3.0."""
    is_whole = isinstance(value, float | np.floating) and float(value).is_integer()
    return str(int(value) if is_whole else value)


@dataclass
class Input:
    """One column, block by block."""

    name: str
    kind: str
    known: Sequence[str] | None = None
    """All of its labels, where they are known before it is read."""
    is_category: bool = False
    entries: Sequence[str] | None = None
    embedder: Embedder | None = None
    width: int = field(default=1, init=False)

    def __post_init__(self) -> None:
        if self.kind == TIME:
            reason = "holds timestamps, which can only give the order (step)"
            raise DataError(reason, field=f"column {self.name}")
        if self.kind == IMAGE:
            raise refuse_image(self.name)
        is_text = self.kind == TEXT and self.known is None
        self._may_have_strays = is_text and not self.is_category
        self._codes: dict[str, int] | None = None
        if self.is_category or is_text or self.known is not None:
            self._codes = {label: code for code, label in enumerate(self.known or ())}

    def encode(self, values: pl.Series, gaps: Gaps, first_row: int) -> SingleArray:
        """(row, column) a block as float32; categories as codes in the order they came."""
        if self._may_have_strays:
            self._refuse_strays(values, first_row)
        if self._codes is not None:
            return self._encode_labels(values, self._codes, gaps, first_row)[:, None]
        if self.kind == VECTOR:
            if self.embedder is not None:
                values = embed(values, self.embedder, first_row)
            numbers = as_vectors(values, first_row)
            if self.width not in (1, numbers.shape[1]):
                reason = f"{numbers.shape[1]} numbers, the rows before have {self.width}"
                raise DataError(reason, field=f"column {self.name}")
            self.width = numbers.shape[1]
        else:
            numbers = as_numbers(values, first_row)[:, None]
        # nan fails the comparison, too.
        wrong = np.flatnonzero(~(np.abs(numbers) <= LARGEST).all(axis=1))
        if wrong.size:
            empty = np.isnan(numbers[wrong]).any(axis=1)
            gaps.add(wrong[empty], self.name, first_row)
            if not empty.all():
                row = int(wrong[~empty][0])
                largest = np.abs(numbers[row]).max()
                raise refuse_cell(self.name, first_row + row, f"{largest:.4g} is too large")
            numbers = np.nan_to_num(numbers)
        return numbers.astype(np.float32)

    def _refuse_strays(self, values: pl.Series, first_row: int) -> None:
        """Refuse dates, and a text among numbers: they would all become categories."""
        self._may_have_strays = False  # the first block has shown whether they are numbers
        texts = read_texts(values)
        filled = texts.drop_nulls().unique(maintain_order=True)
        if len(filled) and all(map(is_foreign_date, filled)):
            place: int | None = texts.is_not_null().arg_max() or 0
            why = f"is a time in a form that is not read: {TO_ISO}, or leave the column out "
            why += f"(--columns ignored={self.name})"
        else:
            place, why = find_stray(texts), "is not a number, as other rows are: correct it"
            if place is None:
                place, why = find_unread(texts), "is a number in a form that is not read: write "
                why += "numbers like 1234.5"
            why += ", or read all rows as categories "
            why += f"(--columns categories={self.name}, or categories= in Python)"
        if place is not None:
            raise refuse_cell(self.name, first_row + place, f"{texts[place][:40]!r} {why}")

    def _encode_labels(
        self, values: pl.Series, codes: dict[str, int], gaps: Gaps, first_row: int
    ) -> SingleArray:
        if values.dtype.is_float() or values.dtype == pl.Object:
            values = as_texts(values, name_label)
        labels = values.cast(pl.String)
        gaps.add(np.flatnonzero(labels.is_null()), self.name, first_row)
        for label in labels.drop_nulls().unique(maintain_order=True):
            if label in codes:
                continue
            row = first_row + int((labels == label).arg_max() or 0)
            if self.known is not None:
                known = ", ".join(list(codes)[:10])
                raise refuse_cell(
                    self.name, row, f"{label!r} is not among the known categories: {known}"
                )
            if len(codes) == MOST_LABELS:
                raise refuse_cell(
                    self.name,
                    row,
                    f"more than {MOST_LABELS} different texts, such as {label!r:.40}, are no "
                    "categories: leave the column out, or turn it into numbers like 1234.5, "
                    "without units. --embed NAME takes lists of numbers",
                )
            codes[label] = len(codes)
        return labels.replace_strict(codes, default=0, return_dtype=pl.Float32).to_numpy()

    @property
    def labels(self) -> list[str] | None:
        """The categories in the order of their columns, None for numbers: numbers are ordered by
        their size, texts by the alphabet."""
        if self._codes is None:
            return None
        if self.known is not None:
            return list(self._codes)
        try:
            return sorted(self._codes, key=float)
        except ValueError:
            return sorted(self._codes)

    def name_columns(self) -> list[str]:
        """A name for each column that this input fills: speed, weather=rain, state[0]."""
        labels = self.labels
        if labels is not None:
            return [LabelName(self.name, label) for label in labels]
        if self.kind != VECTOR:
            return [self.name]
        if self.entries is not None and len(self.entries) == self.width:
            return [f"{self.name}.{entry}" for entry in self.entries]
        return [f"{self.name}[{entry}]" for entry in range(self.width)]

    @cached_property
    def places(self) -> NDArray[np.int64] | None:
        """The place of each code among the labels, or None for numbers. All rows have been read."""
        if self._codes is None:
            return None
        places = {label: place for place, label in enumerate(self.labels or ())}
        return np.array([places[label] for label in self._codes], np.int64)


def expand(block: SingleArray, inputs: Sequence[Input]) -> SingleArray:
    """Stored columns with every category as one-hot."""
    if all(one.places is None for one in inputs):
        return block
    parts, start = [], 0
    for one in inputs:
        columns = block[:, start : start + one.width]
        start += one.width
        if one.places is not None:
            places = one.places[columns[:, 0].astype(np.int64)]
            columns = np.zeros((len(block), len(one.places)), np.float32)
            columns[np.arange(len(block)), places] = 1.0
        parts.append(columns)
    return np.concatenate(parts, axis=1)


SUCCESS = (
    "an outcome is a number: write 1 for success and 0 for failure (yes and no also do), and large "
    "numbers like 1234.5"
)
"""What to do about outcomes such as renewed and cancelled."""


class OutcomeTable(dict[str, float]):
    """Outcomes by episode, which know their column, their file, and the rows that are empty."""

    def __init__(self, column: str) -> None:
        super().__init__()
        self.column = column
        self.file: Path | None = None
        self.empty_rows: dict[str, int] = {}


def read_outcomes(path: Path, episode: str | None, outcome: str | None) -> OutcomeTable:
    """The outcome of each episode by its name, from a file; see `gather_outcomes`."""
    with _open_small_table(path) as source:
        outcomes = gather_outcomes(source, episode, outcome)
        outcomes.file = path
        return outcomes


def gather_outcomes(
    source: TableSource, episode: str | None, outcome: str | None = None
) -> OutcomeTable:
    """The outcome of each episode by its name.

    The table has a column of episodes and one of numbers. `episode` is what the table of steps
    calls its episodes: a column of this name is taken here, too. `outcome` names the column of
    numbers. If it is not given, and names do not tell, the first column holds the episodes, and the
    only other column of numbers the outcomes.
    """
    names = list(source.kinds)
    found = [episode] if episode in names else find_names("episode", names)
    first = next((name for name in found if name is not None and name != outcome), names[0])
    column = _find_outcome(source, first, outcome)
    outcomes, row = OutcomeTable(column), source.first_row
    for block in source.blocks([first, column], [first]):
        values = as_outcomes(block[column], row)
        for place, (name, value) in enumerate(zip(block[first], values.tolist(), strict=True), row):
            if is_missing(name):
                raise DataError(f"row {place:,} is empty", field=f"column {first}")
            label = name_label(name)
            if np.isnan(value):
                outcomes.empty_rows.setdefault(label, place)
            elif outcomes.setdefault(label, value) != value:
                raise DataError(f"episode {label} has two outcomes, the second in row {place:,}")
        row += len(values)
    return outcomes


@contextmanager
def _open_small_table(path: Path) -> Iterator[TableSource]:
    """A table of outcomes or preferences."""
    with located(file=path):
        if path.suffix.lower() not in (".csv", ".tsv", ".xlsx", ".parquet", ".pq"):
            raise DataError("expected a .csv, .tsv, .xlsx or .parquet file")
        with open_file(path) as source:
            yield source


def _find_outcome(source: TableSource, episode: str, wanted: str | None) -> str:
    """The column of outcomes: the one that is wanted, or the one that its name or kind tells."""
    names = list(source.kinds)
    numbers = [n for n in names if n != episode and source.kinds[n] in (NUMBER, FLAG)]
    shown = f"columns: {', '.join(names[:12])}"
    if wanted is not None:
        if wanted not in names:
            raise DataError(f"there is no column {wanted!r} with outcomes; {shown}")
        if wanted not in numbers and (wanted == episode or source.kinds[wanted] != TEXT):
            raise DataError(f"expected numbers as outcomes; {shown}", field=f"column {wanted}")
        return wanted
    # Texts are refused with their row, where they are read.
    texts = [name for name in names if name != episode and source.kinds[name] == TEXT]
    usable = numbers or (texts if len(texts) == 1 else [])
    found = [n for role in ("returns", "rewards") for n in find_names(role, numbers or texts)]
    if not found and len(usable) != 1:
        raise DataError(
            f"{len(numbers) or 'no'} columns of numbers, expected one beside the episodes "
            f"({episode}): name the outcome with --columns return=NAME (in Python, give a frame of "
            f"two columns); {shown}"
        )
    return (found or usable)[0]


def as_outcomes(values: pl.Series, first_row: int) -> NDArray[np.float64]:
    """A column of outcomes as numbers; other texts than yes and no are refused."""
    try:
        return as_numbers(values, first_row)
    except DataError as error:
        if find_stray(read_texts(values)) is not None:
            raise
        raise DataError(f"{error.reason}; {SUCCESS}", field=error.field) from None


def look_up(names: Sequence[Any], returns: Mapping[Any, Any]) -> NDArray[np.float64]:
    """(episode,) the outcomes of the episodes with these names."""
    by_text = {name_label(key): value for key, value in returns.items()}
    outcomes = np.array([_as_outcome(name, by_text.get(name_label(name))) for name in names])
    missing = [name for name, out in zip(names, outcomes, strict=True) if not np.isfinite(out)]
    if not missing:
        return outcomes
    file, field, rows = "returns", None, {}
    if isinstance(returns, OutcomeTable):
        file, field = str(returns.file or file), f"column {returns.column}"
        rows = returns.empty_rows
    if not any(name_label(name) in {**by_text, **rows} for name in names):
        raise DataError(
            f"none of {len(names):,} episodes has an outcome: episodes are called "
            f"{_list_names(names)}, and outcomes are for {_list_names(list(by_text)) or 'none'}; "
            "call them the same (in Python, make the episodes the index of a Series: "
            'bills.set_index("trip").fuel)',
            file=file,
        )
    raise _refuse_missing(missing, len(names), rows).at(file=file, field=field)


def _as_outcome(name: Any, value: Any) -> float:
    if isinstance(value, str) and value.strip().lower() in FLAGS:
        return FLAGS[value.strip().lower()]
    try:
        return np.nan if is_missing(value) else float(value)
    except (TypeError, ValueError):
        raise DataError(
            f"episode {name}: {value!r:.40} is not a number; {SUCCESS}", field="returns"
        ) from None


def _refuse_missing(
    missing: Sequence[Any], total: int, rows: Mapping[str, int] | None = None
) -> DataError:
    """The line that says which episodes have no outcome. `rows` are the empty rows of some."""
    have, empty = "has" if len(missing) == 1 else "have", rows or {}
    return DataError(
        f"{len(missing):,} of {total:,} episodes {have} no outcome: {_list_names(missing, empty)}; "
        "add them, or leave out all rows of these episodes"
    )


def _list_names(names: Sequence[Any], rows: Mapping[str, int] | None = None) -> str:
    labels = [name_label(name) for name in names[:SHOWN]]
    empty = {one: f" (row {rows[one]:,} is empty)" for one in labels if rows and one in rows}
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return ", ".join(one + empty.get(one, "") for one in labels) + more


_SIDES = ("first", "second")
_ANSWERS = {
    **dict.fromkeys(("first", "left"), 1.0),
    **dict.fromkeys(("second", "right"), 0.0),
    **dict.fromkeys(("both", "neither", "equal", "tie"), 0.5),
}
_SPANS = {"first_start": 0, "first_stop": -1, "second_start": 0, "second_stop": -1}
"""Columns of the ends of pieces, and what they are where nothing is said."""


def read_preferences(given: Any, episodes: EpisodeSet) -> Preferences:
    """The preferences of a file (.csv, .parquet), of a data frame, or those that are given.

    Columns are `first` and `second`, which name episodes, and `preferred`: 1 or first, 0 or second,
    1/2 or both. `first_start`, `first_stop`, `second_start` and `second_stop` are there where
    pieces of episodes were compared. Episodes are called what their table calls them, otherwise by
    their number, from 0.
    """
    if isinstance(given, Preferences):
        return given
    if not isinstance(given, str | Path):
        return _read_pairs(open_frame(given), episodes)
    with _open_small_table(Path(given)) as source:
        return _read_pairs(source, episodes)


def _read_pairs(source: TableSource, episodes: EpisodeSet) -> Preferences:
    names = {name.lower(): name for name in source.kinds}
    missing = [name for name in (*_SIDES, "preferred") if name not in names]
    if missing:
        raise DataError(
            f"expected the columns first, second and preferred, found no {missing[0]}; columns: "
            f"{', '.join(list(source.kinds)[:12])}"
        )
    labels: list[Any] = [None] * len(episodes)
    if episodes.provenance is not None:
        labels = [episode.label for episode in episodes]
    places = {str(k) if one is None else name_label(one): k for k, one in enumerate(labels)}
    row = source.first_row
    wanted = {name: names[name] for name in (*_SIDES, "preferred", *_SPANS) if name in names}
    columns: dict[str, list[Any]] = {name: [] for name in wanted}
    for block in source.blocks([*wanted.values()], [names[side] for side in _SIDES]):
        for name, column in wanted.items():
            columns[name] += _read_column(name, block[column], row, places)
        row += len(block)
    pairs = len(columns["preferred"])
    if not pairs:
        raise DataError("no pairs: the table has no rows")
    spans = {name: columns.get(name, [usual] * pairs) for name, usual in _SPANS.items()}
    first, second = (
        np.array([columns[side], spans[f"{side}_start"], spans[f"{side}_stop"]], np.int64).T
        for side in _SIDES
    )
    return Preferences(first, second, np.array(columns["preferred"], np.float64))


def _read_column(
    name: str, values: pl.Series, first_row: int, places: Mapping[str, int]
) -> list[Any]:
    rows = enumerate(values, first_row)
    if name == "preferred":
        return [_read_answer(value, row) for row, value in rows]
    if name in _SIDES:
        return [_find_place(value, row, name, places) for row, value in rows]
    numbers = as_numbers(values.alias(name), first_row)
    is_whole = np.isfinite(numbers) & (np.round(numbers) == numbers)
    wrong = np.flatnonzero(~is_whole & ~np.isnan(numbers))
    if wrong.size:
        got = f"expected a whole number, got {numbers[wrong[0]]:.4g}"
        raise refuse_cell(name, first_row + wrong[0], got)
    return [_SPANS[name] if np.isnan(number) else int(number) for number in numbers]


def _read_answer(value: Any, row: int) -> float:
    text = str(value).strip().lower()
    if not is_missing(value) and text in _ANSWERS:
        return _ANSWERS[text]
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = np.nan
    if not 0 <= number <= 1:
        wanted = f"expected 1 or first, 0 or second, 0.5 or both, got {value!s:.40}"
        raise refuse_cell("preferred", row, wanted)
    return number


def _find_place(value: Any, row: int, column: str, places: Mapping[str, int]) -> int:
    if is_missing(value):
        raise DataError(f"row {row:,} is empty", field=f"column {column}")
    place = places.get(name_label(value))
    if place is None:
        raise refuse_cell(column, row, f"there is no episode {value!s:.40}")
    return place
