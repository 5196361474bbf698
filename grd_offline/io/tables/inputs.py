"""Columns of a table as float32 inputs: numbers as they are, categories as codes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from grd_offline.core.episodes import LARGEST
from grd_offline.core.errors import DataError
from grd_offline.core.names import LabelName
from grd_offline.core.typing import SingleArray
from grd_offline.core.words import count
from grd_offline.io.tables.columns import IMAGE, TEXT, TIME, VECTOR, Embedder, refuse_image
from grd_offline.io.tables.numbers import find_stray, find_unread
from grd_offline.io.tables.source import (
    FEW_STRAYS,
    as_numbers,
    as_vectors,
    embed,
    is_missing,
    read_texts,
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

    def encode(self, values: pl.Series, gaps: Gaps, first_row: int) -> SingleArray:
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

    def _refuse_strays(self, values: pl.Series, first_row: int) -> None:
        """Refuse dates, and a text among numbers: they would all become categories."""
        self._may_have_strays = False  # the first block has shown whether they are numbers
        texts = read_texts(values)
        filled = texts.drop_nulls().unique(maintain_order=True)
        if len(filled) and all(map(is_foreign_date, filled)):
            row = first_row + int(texts.is_not_null().arg_max() or 0)
            raise DataError(
                f"row {row:,}: {filled[0][:40]!r} is a time in a form that is not read: {TO_ISO}, "
                f"or leave the column out (--columns ignored={self.name})",
                field=f"column {self.name}",
            )
        place, why = find_stray(texts, FEW_STRAYS), "is not a number, as other rows are: correct it"
        if place is None:
            place, why = find_unread(texts), "is a number in a form that is not read: write numbers"
            why += " like 1234.5"
        if place is None:
            return
        raise DataError(
            f"row {first_row + place:,}: {texts[place][:40]!r} {why}, or read all rows "
            f"as categories (--columns categories={self.name}, or categories= in Python)",
            field=f"column {self.name}",
        )

    def _encode_labels(
        self, values: pl.Series, codes: dict[str, int], gaps: Gaps, first_row: int
    ) -> SingleArray:
        if values.dtype.is_float() or values.dtype == pl.Object:
            names = [None if is_missing(value) else name_label(value) for value in values]
            values = pl.Series(values.name, names, pl.String)
        labels = values.cast(pl.String)
        gaps.add(np.flatnonzero(labels.is_null()), self.name, first_row)
        for label in labels.drop_nulls().unique(maintain_order=True):
            if label not in codes:
                row = first_row + int((labels == label).arg_max() or 0)
                self._add_label(label, codes, row)
        return labels.replace_strict(codes, default=0, return_dtype=pl.Float32).to_numpy()

    def _add_label(self, label: str, codes: dict[str, int], row: int) -> None:
        if self._fixed:
            known = ", ".join(list(codes)[:10])
            raise DataError(
                f"row {row:,}: {label!r} is not among the known categories: {known}",
                field=f"column {self.name}",
            )
        if len(codes) == MOST_LABELS:
            raise DataError(
                f"row {row:,}: more than {MOST_LABELS} different texts, such as {label!r:.40}, are "
                "no categories: leave the column out, or turn it into numbers like 1234.5, without "
                "units. --embed NAME takes lists of numbers",
                field=f"column {self.name}",
            )
        codes[label] = len(codes)

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
            return [LabelName(self.name, label) for label in labels]
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


def expand(block: SingleArray, inputs: Sequence[Input],
           orders: Mapping[str, NDArray[np.int64]]) -> SingleArray:  # fmt: skip
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
