"""Columns of a table as float32 inputs: numbers as they are, categories as codes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grd_offline.core.episodes import LARGEST, FloatArray
from grd_offline.core.errors import DataError
from grd_offline.core.words import count
from grd_offline.io.tables.numbers import find_unread
from grd_offline.io.tables.source import (
    CODE,
    IMAGE,
    TEXT,
    TIME,
    VECTOR,
    Array,
    Embedder,
    as_numbers,
    as_vectors,
    embed,
    find_stray,
    is_missing,
    refuse_image,
)
from grd_offline.io.tables.times import TO_ISO, is_foreign_date

MOST_LABELS = 100
"""Different texts of one column; more are no categories."""
SHOWN = 5


@dataclass
class Gaps:
    """The cells that are empty: the first few, and how many there are."""

    count: int = 0
    shown: list[str] = field(default_factory=list)

    def add(self, rows: Iterable[int], name: str, first_row: int) -> None:
        """Note empty cells of a column."""
        for row in rows:
            self.count += 1
            if len(self.shown) < SHOWN:
                self.shown.append(f"row {first_row + int(row):,} of {name}")

    def check(self) -> None:
        """Refuse the table if there are any."""
        if self.count:
            more = f", and {self.count - SHOWN:,} more" if self.count > SHOWN else ""
            raise DataError(
                f"{count(self.count, 'empty cell')}: {', '.join(self.shown)}{more}; fill them, or "
                "leave out these episodes"
            )


class Input:
    """One column, block by block."""

    def __init__(
        self,
        name: str,
        kind: str,
        *,
        labels: Sequence[str] | None = None,
        is_category: bool = False,
        entries: Sequence[str] | None = None,
        embedder: Embedder | None = None,
    ) -> None:
        if kind == TIME:
            raise DataError(
                "holds timestamps, which can only give the order (step)", field=f"column {name}"
            )
        if kind == IMAGE:
            raise refuse_image(name)
        self.name, self.kind, self._entries, self._embedder = name, kind, entries, embedder
        self._fixed = labels is not None
        self._may_have_strays = kind == TEXT and not is_category and not self._fixed
        is_category = is_category or self._fixed or kind == TEXT
        self._codes: dict[str, int] | None = None
        if is_category:
            self._codes = {label: code for code, label in enumerate(labels or ())}
        self.width = 1

    def encode(self, values: Array, gaps: Gaps, first_row: int) -> FloatArray:
        """(row, column) a block as float32; categories as codes in the order they came."""
        if self._may_have_strays:
            self._refuse_strays(values, first_row)
        if self._codes is not None:
            return self._encode_labels(values, self._codes, gaps, first_row)[:, None]
        if self.kind == VECTOR:
            if self._embedder is not None:
                values = embed(values, self._embedder, self.name, first_row)
            numbers = as_vectors(values, self.name, first_row)
            if self.width not in (1, numbers.shape[1]):
                raise DataError(
                    f"{numbers.shape[1]} numbers, the rows before have {self.width}",
                    field=f"column {self.name}",
                )
            self.width = numbers.shape[1]
        else:
            numbers = as_numbers(values, self.name, first_row)[:, None]
        # nan fails the comparison, too.
        wrong = np.flatnonzero(~(np.abs(numbers) <= LARGEST).all(axis=1))
        if wrong.size:
            empty = np.isnan(numbers[wrong]).any(axis=1)
            gaps.add(wrong[empty], self.name, first_row)
            if not empty.all():
                row = int(wrong[~empty][0])
                raise DataError(
                    f"row {first_row + row:,}: {np.abs(numbers[row]).max():.4g} is too large",
                    field=f"column {self.name}",
                )
            numbers = np.nan_to_num(numbers)
        return numbers.astype(np.float32)

    def _refuse_strays(self, values: Array, first_row: int) -> None:
        """Refuse dates, and a text among numbers: they would all become categories."""
        self._may_have_strays = False  # the first block has shown whether they are numbers
        filled = [index for index, value in enumerate(values) if not is_missing(value)]
        if filled and all(is_foreign_date(str(values[index])) for index in filled):
            raise DataError(
                f"row {first_row + filled[0]:,}: {str(values[filled[0]])[:40]!r} is a time in a "
                f"form that is not read: {TO_ISO}, or leave the column out (--columns "
                f"ignored={self.name})",
                field=f"column {self.name}",
            )
        self._refuse_text(
            find_stray(values), values, first_row, "is not a number, as other rows are: correct it"
        )
        texts = [str(values[index]).strip() for index in filled]
        unread = None if any(map(CODE.fullmatch, texts)) else find_unread(texts)
        place = None if unread is None else filled[unread]
        self._refuse_text(
            place,
            values,
            first_row,
            "is a number in a form that is not read: write numbers like 1234.5",
        )

    def _refuse_text(self, place: int | None, values: Array, first_row: int, why: str) -> None:
        if place is not None:
            raise DataError(
                f"row {first_row + place:,}: {str(values[place])[:40]!r} {why}, or read all rows "
                f"as categories (--columns categories={self.name}, or categories= in Python)",
                field=f"column {self.name}",
            )

    def _encode_labels(
        self, values: Array, codes: dict[str, int], gaps: Gaps, first_row: int
    ) -> FloatArray:
        encoded = np.zeros(len(values), np.float32)
        is_text = values.dtype.kind == "O"
        distinct, inverse = (values, None) if is_text else np.unique(values, return_inverse=True)
        for index, value in enumerate(distinct):
            if is_missing(value):
                where = [index] if inverse is None else np.flatnonzero(inverse == index)
                gaps.add(where, self.name, first_row)
                continue
            label = name_label(value)
            code = codes.get(label)
            if code is None:
                code = self._add_label(label, codes, first_row + index if is_text else None)
            encoded[index if inverse is None else inverse == index] = code
        return encoded

    def _add_label(self, label: str, codes: dict[str, int], row: int | None) -> int:
        place = "" if row is None else f"row {row:,}: "
        if self._fixed:
            known = ", ".join(list(codes)[:10])
            raise DataError(
                f"{place}{label!r} is not among the known categories: {known}",
                field=f"column {self.name}",
            )
        if len(codes) == MOST_LABELS:
            raise DataError(
                f"{place}more than {MOST_LABELS} different texts, such as {label!r:.40}, are no "
                "categories: leave the column out, or turn it into numbers like 1234.5, without "
                "units. --embed NAME takes lists of numbers",
                field=f"column {self.name}",
            )
        codes[label] = len(codes)
        return codes[label]

    @property
    def labels(self) -> list[str] | None:
        """The categories in the order of their columns, None for numbers."""
        if self._codes is None:
            return None
        return list(self._codes) if self._fixed else sort_labels(self._codes)

    def name_columns(self) -> list[str]:
        """A name for each column that this input fills: speed, weather=rain, state[0]."""
        labels = self.labels
        if labels is not None:
            return [f"{self.name}={label}" for label in labels]
        if self.kind != VECTOR:
            return [self.name]
        if self._entries is not None and len(self._entries) == self.width:
            return [f"{self.name}.{entry}" for entry in self._entries]
        return [f"{self.name}[{entry}]" for entry in range(self.width)]

    def order_codes(self) -> NDArray[np.int64] | None:
        """Return the place of each code among the sorted labels, or None for numbers."""
        if self._codes is None:
            return None
        places = {label: place for place, label in enumerate(self.labels or ())}
        return np.array([places[label] for label in self._codes], np.int64)


def name_label(value: Any) -> str:
    """A category as text: 3 for 3.0."""
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


def sort_labels(labels: Iterable[str]) -> list[str]:
    """Labels in order: numbers by their size, texts by the alphabet."""
    found = list(labels)
    try:
        return sorted(found, key=float)
    except ValueError:
        return sorted(found)


def expand(block: FloatArray, inputs: Sequence[Input],
           orders: Mapping[str, NDArray[np.int64]]) -> FloatArray:  # fmt: skip
    """Stored columns with every category as one-hot."""
    if not orders:
        return block
    parts, start = [], 0
    for one in inputs:
        columns = block[:, start : start + one.width]
        start += one.width
        if one.name in orders:
            places = orders[one.name]
            code = np.zeros((len(block), len(places)), np.float32)
            code[np.arange(len(block)), places[columns[:, 0].astype(np.int64)]] = 1.0
            columns = code
        parts.append(columns)
    return np.concatenate(parts, axis=1) if parts else block
