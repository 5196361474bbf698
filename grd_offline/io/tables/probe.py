"""What the cells of Parquet files take, counted in another process before this one reads them.

A few kilobytes of Parquet can stand for gigabytes of cells, and what a file says of itself may be a
lie. So files are first read in a process with limits on memory and time, and its end says whether
this process may do the same. Only Linux has a limit on memory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from grd_offline.core.errors import DataError
from grd_offline.core.process import Process, ProcessDied
from grd_offline.io.formats.guard import (
    EXPANSION,
    MEMORY_BYTES,
    START_SECONDS,
    Budget,
    count_seconds,
    limit_process,
)

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

BLOCK_ROWS = 65_536
PLAUSIBLE, TIMES = MEMORY_BYTES, EXPANSION
"""Cells may take so many bytes, and this many times the size of their files more."""
_LIBRARY_BYTES = 2**29
"""Memory of polars itself: a block of each column on each thread."""
TOO_MUCH = "far more than a file of its size should hold: if you trust it, use --max-size"


def check_cells(paths: Sequence[Path], max_bytes: int | None) -> None:
    """Refuse files whose cells take more than `max_bytes`, or more than is plausible."""
    size = sum(path.stat().st_size for path in paths)
    allowed = PLAUSIBLE + TIMES * size if max_bytes is None else max_bytes
    budget = Budget(size, max_bytes)
    child = Process(count_cells, [os.fspath(path) for path in paths], allowed, budget)
    child.start()
    try:
        # On a busy machine the limit on processor time takes longer.
        if not child.connection.poll(START_SECONDS + 4 * count_seconds(budget)):
            raise DataError(f"takes longer to read than it may: {TOO_MUCH}")
        if reason := child.receive():
            raise DataError(reason)
    except ProcessDied as death:
        raise DataError(f"takes more memory or time than it may ({death}): {TOO_MUCH}") from None
    finally:
        child.end()


def count_cells(
    pipe: Connection[Any, Any], paths: Sequence[str], allowed: int, budget: Budget
) -> None:
    """Read all cells in a process of its own, and tell what is wrong with them."""
    for stream in (1, 2):  # whatever a crash prints is not for the user
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    pl.DataFrame({"a": [1]}).lazy().select(pl.all().sum()).collect()  # starts its threads
    limit_process(budget, allowed + _LIBRARY_BYTES)
    counted = 0
    for block in _read(paths):
        counted += sum(map(_count_bytes, block))
        if counted > allowed:
            pipe.send(f"its cells take more than {allowed:,} bytes, {TOO_MUCH}")
            return
    pipe.send("")


def _read(paths: Sequence[str]) -> Iterator[pl.DataFrame]:
    """The cells in blocks. What cannot be read is told by who reads them for use."""
    for path in paths:
        try:
            file = pl.scan_parquet(path, glob=False)
            kinds = file.collect_schema().items()
            used = [name for name, kind in kinds if kind not in (pl.Binary, pl.Struct)]
            yield from file.select(used).collect_batches(chunk_size=BLOCK_ROWS)
        except pl.exceptions.PolarsError:
            return


def _count_bytes(column: pl.Series) -> int:
    """The bytes of the cells of a column as they are used: numbers take eight."""
    if column.dtype == pl.String:
        return 8 * len(column) + int(column.str.len_bytes().sum())
    if isinstance(column.dtype, pl.Categorical | pl.Enum):  # each label stands in the file once
        labels = column.alias("label").value_counts(name="rows").drop_nulls()
        lengths = labels["label"].cast(pl.String).str.len_bytes().cast(pl.UInt64)
        return 8 * len(column) + int((lengths * labels["rows"]).sum())
    if isinstance(column.dtype, pl.List | pl.Array):
        return 8 * len(column) + _count_bytes(column.explode())
    return max(8 * len(column), int(column.estimated_size()))
