"""Opening a table of any kind as a recording, from a path or from Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from grd_offline.core.errors import DataError
from grd_offline.core.names import LabelName
from grd_offline.core.provenance import Provenance
from grd_offline.io.formats.record import Recording
from grd_offline.io.tables.build import build
from grd_offline.io.tables.columns import (
    VECTOR,
    Embedder,
    Expected,
    Given,
    Outcomes,
    choose_columns,
    expand_names,
    parse_columns,
    parse_given,
)
from grd_offline.io.tables.frames import open_file
from grd_offline.io.tables.outcomes import read_outcomes
from grd_offline.io.tables.source import TableSource

_ROLES = ("episode", "step", "terminated", "truncated", "truth")
_OUTCOMES = ("rewards", "returns")
"""Roles that a model remembers of the table that it was fitted to."""


def open_table(
    path: Path,
    *,
    columns: Given | None = None,
    returns: Outcomes | None = None,
    expected: Expected | None = None,
    needs_outcome: bool = True,
    max_bytes: int | None = None,
) -> Recording:
    """The recording of a CSV or Parquet file, of a LeRobot folder or of turns as JSON lines.

    `columns` says which column is what, as `--columns` does. `returns` are outcomes by episode, or
    a file that holds them; then the role returns names a column of this file. `expected` are the
    inputs of a model: the table must have them. Other columns have the roles that the model
    remembers, unless `columns` says something else. The table needs no outcomes if `needs_outcome`
    is False, nor for a model that expects none.
    """
    try:
        given = parse_given(columns)
        known = parse_columns((expected.columns if expected is not None else None) or "")
        decimal, usual = (next(iter(r.get("decimal", ())), None) for r in (given, known))
        with open_file(path, max_bytes, decimal=decimal, usual=usual) as source:
            if returns is None or isinstance(returns, Mapping):
                return open_source(source, given, returns, expected, needs_outcome=needs_outcome)
            episode = next(iter(given.get("episode", ())), None)
            outcome = next(iter(given.pop("returns", ())), None)
            outcomes = read_outcomes(Path(returns), episode, outcome)
            if outcome in source.kinds:  # would give the outcome away to a fit
                given["ignored"] = (*given.get("ignored", ()), str(outcome))
            opened = open_source(source, given, outcomes, expected, needs_outcome=needs_outcome)
            return opened if outcome is None else _note_outcome(opened, outcome)
    except DataError as error:
        raise error.at(file=path) from None


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

    `embedders` turn the cells of columns that are embedded into vectors; lists need none.
    """
    labels: dict[str, list[str]] = {}
    known = parse_columns(expected.columns or "") if expected is not None else {}
    if "embed" in known:
        given = {"embed": known["embed"], **given}
    embedded = expand_names("embed", given.get("embed", ()), source.kinds)
    kinds = {name: VECTOR if name in embedded else kind for name, kind in source.kinds.items()}
    source = replace(source, kinds=kinds)
    if expected is not None:
        needs_outcome = needs_outcome and expected.needs_outcome
        is_open = needs_outcome and returns is None and not {"rewards", "returns"} & given.keys()
        inputs = _find_inputs(source.kinds, expected, labels)
        # A model takes its inputs in one order, however they are listed.
        listed = {
            role: names for role, names in given.items() if set(names) != set(inputs.get(role, ()))
        }
        _check_roles(source.kinds, known, given, expected.needed_roles)
        given = {
            **_find_roles(source.kinds, known, (*_ROLES, *(_OUTCOMES if is_open else ()))),
            **inputs,
            **listed,
        }
    if source.decimal is not None:
        given = {"decimal": (source.decimal,), **given}
    chosen = choose_columns(
        source.kinds, given, has_returns=returns is not None, needs_outcome=needs_outcome
    )
    return build(source, chosen, returns=returns, labels=labels, embedders=embedders)


def _note_outcome(recording: Recording, outcome: str) -> Recording:
    """Note the column of the file of outcomes among the columns."""
    table = recording.header.provenance or Provenance()
    table = replace(table, columns=f"{table.columns},returns={outcome}")
    return replace(recording, header=replace(recording.header, provenance=table))


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


def _find_roles(
    kinds: Mapping[str, str], known: Mapping[str, tuple[str, ...]], roles: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """Columns that have one of these roles in the table of the model, where they are here."""
    return {
        role: names for role in roles if (names := known.get(role, ())) and set(names) <= set(kinds)
    }


def _find_inputs(
    kinds: Mapping[str, str], expected: Expected, labels: dict[str, list[str]]
) -> dict[str, tuple[str, ...]]:
    """The columns behind the inputs of a model, in its order; fills in the labels it knows."""
    found: dict[str, tuple[str, ...]] = {}
    for role, names in zip(("observations", "actions"), expected[:2], strict=True):
        columns: dict[str, None] = {}
        for name in names:
            column = _find_column(name, kinds)
            if column is None:
                wanted, such = name, ""
                if isinstance(name, LabelName):
                    wanted, such = name.column, f" with texts such as {name.label!r}"
                raise DataError(
                    f"the model needs a column {wanted!r}{such}; columns: "
                    f"{', '.join(list(kinds)[:12])}"
                )
            columns[column] = None
            if isinstance(name, LabelName) and column == name.column:
                labels.setdefault(column, []).append(name.label)
        found[role] = tuple(columns)
    return found


def _find_column(name: str, kinds: Mapping[str, str]) -> str | None:
    """Find the column of an input: speed for speed, weather for weather=rain, and state for
    state[0] and state.x."""
    if name in kinds:
        return name
    if isinstance(name, LabelName):
        return name.column if kinds.get(name.column, VECTOR) != VECTOR else None
    vectors = (column for column in kinds if kinds[column] == VECTOR)
    return next((one for one in vectors if name.startswith((f"{one}[", f"{one}."))), None)
