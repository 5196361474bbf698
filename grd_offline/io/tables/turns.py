"""Turns of conversations, or tokens of texts, as JSON lines with one score each.

    {"id": "a", "turns": [{"features": [0.1, 2.0]}, {"features": [0.3, 1.0]}], "score": 1.0}

`turns` may be called `tokens` or `steps`. A turn has `features`, a list of numbers or an object of
named numbers and texts, or an `embedding`, or both. Other fields, such as the text, are not read.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl

from grd_offline.core.errors import DataError
from grd_offline.io.tables.columns import FLAG, NUMBER, TEXT, VECTOR
from grd_offline.io.tables.csv_file import open_text
from grd_offline.io.tables.source import BLOCK_ROWS, TableSource, as_series, find_kind

EPISODE, STEP, SCORE = "conversation", "turn", "score"
"""Names of the columns of the table."""
TURNS = ("turns", "tokens", "steps")
SCORES = ("score", "reward", "return", "outcome", "success")
_FIELDS = ("features", "embedding")
Row = dict[str, Any]


@contextmanager
def open_turns(path: Path) -> Iterator[TableSource]:
    """A file of JSON lines that is open for reading."""
    with open_text(path) as file:
        lines = _parse(file, path)
        first = next(lines, None)
        if first is None:
            raise DataError("is empty: expected one JSON object per line", file=path)
        head = first[0]
        kinds = {EPISODE: TEXT, STEP: NUMBER}
        kinds |= {SCORE: NUMBER} if SCORE in head else {}
        kinds |= {n: _find_kind(v) for n, v in head.items() if n not in (EPISODE, STEP, SCORE)}

        def blocks(wanted: Sequence[str], named: Collection[str]) -> Iterator[pl.DataFrame]:
            waiting: list[Row] = []
            for rows in itertools.chain([first], lines, [None]):
                waiting += rows or ()
                if waiting and (rows is None or len(waiting) >= BLOCK_ROWS):
                    yield pl.DataFrame([as_series(n, [row[n] for row in waiting]) for n in wanted])
                    waiting = []

        yield TableSource("jsonl", kinds, blocks)


def _parse(lines: Iterable[bytes], path: Path) -> Iterator[list[Row]]:
    """The turns of each line."""
    names: set[str] = set()
    ids: set[str] = set()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            rows = _read_line(json.loads(line), number)
        except DataError as error:
            raise DataError(f"line {number:,}: {error.reason}", file=path) from None
        except (ValueError, RecursionError):
            raise DataError(f"line {number:,} is not JSON", file=path) from None
        names = names or set(rows[0])
        for turn, row in enumerate(rows):
            if set(row) != names:
                other = ", ".join(sorted(set(row) ^ names))
                raise DataError(
                    f"line {number:,}: turn {turn} differs from the first turn in {other}",
                    file=path,
                )
        if rows[0][EPISODE] in ids:
            raise DataError(f"line {number:,}: id {rows[0][EPISODE]} is there twice", file=path)
        ids.add(rows[0][EPISODE])
        yield rows


def _read_line(entry: Any, number: int) -> list[Row]:
    if not isinstance(entry, dict):
        raise DataError("expected an object with turns and a score")
    turns = next((entry[name] for name in TURNS if name in entry), None)
    if not isinstance(turns, list) or not turns:
        raise DataError("expected a list of turns under the name turns")
    score = next((entry[name] for name in SCORES if name in entry), None)
    if score is not None and not isinstance(score, int | float):
        raise DataError(f"score: expected a number, got {score!r:.40}")
    same: Row = {EPISODE: str(entry.get("id", number - 1))}
    if score is not None:
        same[SCORE] = float(score)
    return [{**same, STEP: index, **_read_turn(turn, index)} for index, turn in enumerate(turns)]


def _read_turn(turn: Any, index: int) -> Row:
    if isinstance(turn, list):
        turn = {"features": turn}
    fields: Row = {}
    for name in _FIELDS if isinstance(turn, dict) else ():
        value = turn.get(name)
        if isinstance(value, Mapping):
            fields |= {str(key): one for key, one in value.items()}
        elif value is not None:
            fields[name] = value
    if not fields or {EPISODE, STEP, SCORE} & set(fields):
        raise DataError(
            f"turn {index}: expected features or an embedding, and no feature called "
            f"{EPISODE}, {STEP} or {SCORE}"
        )
    return fields


def _find_kind(value: Any) -> str:
    """The kind of a feature, from its first value. A text may be followed by any other text."""
    kind = VECTOR if isinstance(value, list) else find_kind(as_series("", [value]))
    return TEXT if kind == FLAG and isinstance(value, str) else kind
