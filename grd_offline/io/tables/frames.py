"""Data frames, Arrow tables, Parquet files, and plain mappings from names to arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from grd_offline.core.errors import DataError
from grd_offline.io.tables.source import (
    BLOCK_ROWS,
    FLAG,
    NUMBER,
    TEXT,
    TIME,
    VECTOR,
    Array,
    Block,
    TableSource,
    find_kind,
)

PLAUSIBLE = 2**30
"""Bytes that a Parquet file of any size may unpack to."""
TIMES = 20
"""Factor by which a file may grow beyond that."""


def require_pyarrow(path: Path) -> None:
    """Refuse in one line what needs pyarrow where that is not installed."""
    if find_spec("pyarrow") is None:
        raise DataError('needs pyarrow to be read: pip install "grd-offline[tables]"', file=path)


def open_frame(frame: Any) -> TableSource:
    """A data frame of pandas or polars, an Arrow table, or a mapping from names to arrays."""
    if not isinstance(frame, Mapping) and not hasattr(frame, "columns"):
        frame = _as_arrow(frame)
    names = list_names(frame)
    labels: dict[str, list[str]] = {}
    columns: dict[str, Array] = {}
    for name in names:
        column = frame[name]
        known = getattr(getattr(column, "cat", None), "categories", None)
        if known is not None and str(getattr(column, "dtype", "")) == "category":
            labels[str(name)] = [str(label) for label in known]
        columns[str(name)] = _as_array(column)
    if len(columns) < len(names):
        raise DataError("two columns have the same name")
    lengths = {len(column) for column in columns.values()}
    if len(lengths) > 1:
        raise DataError(f"columns of unequal lengths: {', '.join(map(str, sorted(lengths)))}")
    if not lengths or not max(lengths):
        raise DataError("the table has no rows")
    kinds = {name: TEXT if name in labels else find_kind(column) for name, column in
             columns.items()}  # fmt: skip

    def blocks(wanted: Sequence[str]) -> Iterator[Block]:
        for start in range(0, max(lengths), BLOCK_ROWS):
            yield {name: columns[name][start : start + BLOCK_ROWS] for name in wanted}

    return TableSource("table", kinds, blocks, labels=labels)


def list_names(frame: Any) -> list[Any]:
    """The names of the columns of a table."""
    if isinstance(frame, Mapping):
        return list(frame)
    names = getattr(frame, "column_names", None)
    return list(frame.columns if names is None else names)


def find_library(frame: Any) -> str | None:
    """The library that results for this frame are tables of, None for plain arrays."""
    top = type(frame).__module__.partition(".")[0]
    return top if top in ("pandas", "polars", "pyarrow") else None


def _as_arrow(frame: Any) -> Any:
    """Turn an object that supports only Arrow into a table of pyarrow."""
    if hasattr(frame, "column_names"):
        return frame
    if hasattr(frame, "__arrow_c_stream__") and not hasattr(frame, "dtype"):  # a Series has one
        require_pyarrow(Path("the table"))
        import pyarrow

        return pyarrow.table(frame)
    raise DataError(
        f"expected a data frame, an Arrow table or a mapping of arrays, got {type(frame).__name__}"
    )


def _as_array(column: Any) -> Array:
    if type(column).__module__.startswith("pyarrow"):
        return arrow_to_array(column)
    array = np.asarray(column)
    if array.dtype.kind in "SU":
        return array.astype(object)
    return array


def arrow_to_array(column: Any) -> Array:
    """A column of Arrow as numpy has it; lists become the rows of a matrix."""
    import pyarrow

    if isinstance(column, pyarrow.ChunkedArray):
        column = column.combine_chunks()
        if isinstance(column, pyarrow.ChunkedArray):  # more than one chunk fits into
            return np.concatenate([arrow_to_array(chunk) for chunk in column.chunks])
    kind = column.type
    if pyarrow.types.is_dictionary(kind):
        return arrow_to_array(column.dictionary_decode())
    if _is_list(kind) and column.null_count == 0:
        flat = column.flatten()
        width = len(flat) // len(column) if len(column) else 0
        lengths = column.value_lengths() if hasattr(column, "value_lengths") else None
        even = lengths is None or set(lengths.unique().to_pylist()) <= {width}
        if even and flat.null_count == 0 and not _is_list(flat.type):
            return np.asarray(flat.to_numpy(zero_copy_only=False)).reshape(len(column), width)
    array: Array = column.to_numpy(zero_copy_only=False)
    return array


def _is_list(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def find_arrow_kind(kind: Any) -> str | None:
    """The kind of a column of an Arrow schema, None for what cannot be used."""
    from pyarrow import types

    if types.is_dictionary(kind):
        return find_arrow_kind(kind.value_type)
    if types.is_boolean(kind):
        return FLAG
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return NUMBER
    if types.is_timestamp(kind) or types.is_date(kind):
        return TIME
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return TEXT
    if _is_list(kind):
        return VECTOR
    return None


@contextmanager
def open_parquet(paths: Sequence[Path], layout: str = "parquet",
                 max_bytes: int | None = None) -> Iterator[TableSource]:  # fmt: skip
    """Parquet files with the same columns, one after the other."""
    require_pyarrow(paths[0])
    import pyarrow
    from pyarrow import parquet

    @contextmanager
    def one_line(path: Path) -> Iterator[None]:
        try:
            yield
        except DataError as error:
            raise error.at(file=path) from None
        except FileNotFoundError:
            raise DataError("no such file", file=path) from None
        except (pyarrow.ArrowException, OSError, ValueError, MemoryError) as error:
            text = (str(error) or type(error).__name__).splitlines()[0]
            raise DataError(f"is not a Parquet file that can be read: {text}", file=path) from None

    kinds: dict[str, str] = {}
    for index, path in enumerate(paths):
        with one_line(path), parquet.ParquetFile(path) as file:
            found = {field.name: find_arrow_kind(field.type) for field in file.schema_arrow}
            usable = {name: kind for name, kind in found.items() if kind is not None}
            if index and usable != kinds:
                raise DataError(f"its columns are not those of {paths[0].name}")
            kinds = usable
            _check_size(path, file, max_bytes)
    if not kinds:
        raise DataError("holds no column that can be used", file=paths[0])

    def blocks(wanted: Sequence[str]) -> Iterator[Block]:
        for path in paths:
            with one_line(path), parquet.ParquetFile(path) as file:
                for batch in file.iter_batches(BLOCK_ROWS, columns=list(wanted)):
                    yield {name: arrow_to_array(batch.column(name)) for name in wanted}

    yield TableSource(layout, kinds, blocks)


def _check_size(path: Path, file: Any, max_bytes: int | None) -> None:
    """Refuse a file that claims far more than it stores."""
    cells = file.metadata.num_rows * max(1, file.metadata.num_columns)
    allowed = max_bytes if max_bytes is not None else PLAUSIBLE + TIMES * path.stat().st_size
    if 8 * cells > allowed:
        raise DataError(
            f"claims {file.metadata.num_rows:,} rows, far more than a file of its size should "
            "hold: if you trust it, use --max-size"
        )
