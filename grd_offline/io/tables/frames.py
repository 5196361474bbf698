"""Data frames, Arrow tables, mappings of arrays, Parquet files, spreadsheets and LeRobot folders.

Of LeRobot datasets, version 3, only numbers are read: videos and images are left out, and refused
where they are asked for. `meta/info.json` names the entries of vectors. The outcome of an episode
is what the frames hold (`next.reward`, `next.success`), or what `--returns` or `--columns` says.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO

import polars as pl

from grd_offline.core.errors import DataError
from grd_offline.io.files.plain import open_regular, read_json
from grd_offline.io.tables.columns import ENDINGS, IMAGE, LEROBOT, TEXT, TIME
from grd_offline.io.tables.csv_file import FIRST_ROW, check_names, open_csv
from grd_offline.io.tables.results import list_names
from grd_offline.io.tables.source import (
    BLOCK_ROWS,
    TableSource,
    as_series,
    find_kind,
    find_type_kind,
)
from grd_offline.io.tables.turns import open_turns

PLAUSIBLE = 2**30
"""Bytes that a Parquet file of any size may unpack to."""
TIMES = 20
"""Factor by which a file may grow beyond that."""


def open_frame(frame: Any, raw: Collection[str] = ()) -> TableSource:
    """A data frame of pandas or polars, an Arrow table, or a mapping from names to arrays.

    The cells of columns that are `raw` stay as they are, for a function of the user.
    """
    if not isinstance(frame, Mapping) and not hasattr(frame, "columns"):
        frame = _as_polars(frame)
    names = list_names(frame)
    labels: dict[str, list[str]] = {}
    columns: dict[str, pl.Series] = {}
    for name in names:
        column = frame[name]
        known = getattr(getattr(column, "cat", None), "categories", None)
        if known is not None and str(getattr(column, "dtype", "")) == "category":
            labels[str(name)] = [str(label) for label in known]
        columns[str(name)] = as_series(str(name), column, is_raw=name in raw)
    if len(columns) < len(names):
        raise DataError("two columns have the same name")
    lengths = {len(column) for column in columns.values()}
    if len(lengths) > 1:
        raise DataError(f"columns of unequal lengths: {', '.join(map(str, sorted(lengths)))}")
    if not lengths or not max(lengths):
        raise DataError("the table has no rows")
    kinds = {n: TEXT if n in labels else find_kind(column) for n, column in columns.items()}

    def blocks(wanted: Sequence[str], named: Collection[str]) -> Iterator[pl.DataFrame]:
        yield from pl.DataFrame([columns[name] for name in wanted]).iter_slices(BLOCK_ROWS)

    return TableSource("table", kinds, blocks, labels=labels)


def _as_polars(frame: Any) -> pl.DataFrame:
    """An object that supports Arrow as a data frame."""
    if hasattr(frame, "__arrow_c_stream__") and not hasattr(frame, "dtype"):  # a Series has one
        return pl.DataFrame(frame)
    raise DataError(
        f"expected a data frame, an Arrow table or a mapping of arrays, got {type(frame).__name__}"
    )


@contextmanager
def open_parquet(paths: Sequence[Path], layout: str = "parquet",
                 max_bytes: int | None = None) -> Iterator[TableSource]:  # fmt: skip
    """Parquet files with the same columns, one after the other."""
    kinds: dict[str, str] = {}
    for index, path in enumerate(paths):
        with _one_line(path), open_regular(path):
            file = pl.scan_parquet(path, glob=False)
            found = {name: find_type_kind(kind) for name, kind in file.collect_schema().items()}
            usable = {name: kind for name, kind in found.items() if kind is not None}
            if index and usable != kinds:
                raise DataError(f"its columns are not those of {paths[0].name}")
            kinds = usable
            _check_size(path, file.select(pl.len()).collect().item(), len(found), max_bytes)
    if not kinds:
        raise DataError("holds no column that can be used", file=paths[0])

    def blocks(wanted: Sequence[str], named: Collection[str]) -> Iterator[pl.DataFrame]:
        for path in paths:
            with _one_line(path):
                yield from (
                    pl.scan_parquet(path, glob=False)
                    .select(wanted)
                    .collect_batches(chunk_size=BLOCK_ROWS, maintain_order=True)
                )

    yield TableSource(layout, kinds, blocks)


@contextmanager
def open_sheet(path: Path, max_bytes: int | None = None) -> Iterator[TableSource]:
    """The first sheet of a spreadsheet, whose first row has the names of the columns."""
    if find_spec("fastexcel") is None:
        raise DataError("needs fastexcel to be read: pip install fastexcel", file=path)
    with _one_line(path, "a spreadsheet"):
        with open_regular(path) as file:
            _check_packed(file, max_bytes)
            file.seek(0)
            read = partial(pl.read_excel, file.read(), has_header=False, raise_if_empty=False)
        head = read(read_options={"n_rows": 1, "dtypes": "string"})
        names = [(name or "").strip() for name in (head.row(0) if len(head) else ())]
        if not any(names):
            raise DataError("is empty: expected a row of column names in its first sheet")
        check_names(names)
        rows = read(read_options={"skip_rows": 1}, infer_schema_length=None)
        columns = zip(names, rows.get_columns(), strict=False)
        table = open_frame({name: column for name, column in columns if name})
    yield replace(table, layout="xlsx", first_row=FIRST_ROW)


def _check_packed(file: BinaryIO, max_bytes: int | None) -> None:
    """Refuse a packed file that unpacks to far more than it stores, or to more than it says."""
    with zipfile.ZipFile(file) as packed:
        size = sum(entry.file_size for entry in packed.infolist())
        stored = os.fstat(file.fileno()).st_size
        if size > (max_bytes if max_bytes is not None else PLAUSIBLE // 4 + TIMES * stored):
            raise DataError(
                f"unpacks to {size:,} bytes, far more than a file of its size should hold: if you "
                "trust it, use --max-size"
            )
        if (damaged := packed.testzip()) is not None:
            raise DataError(f"is not a spreadsheet that can be read: {damaged!r:.80} is damaged")


@contextmanager
def _one_line(path: Path, what: str = "a Parquet file") -> Iterator[None]:
    try:
        yield
    except DataError as error:
        raise error.at(file=path) from None
    except FileNotFoundError:
        raise DataError("no such file", file=path) from None
    except (Exception, pl.exceptions.PanicException) as error:
        text = (str(error) or type(error).__name__).splitlines()[0]
        raise DataError(f"is not {what} that can be read: {text}", file=path) from None


def _check_size(path: Path, rows: int, columns: int, max_bytes: int | None) -> None:
    """Refuse a file that claims far more than it stores."""
    allowed = max_bytes if max_bytes is not None else PLAUSIBLE + TIMES * path.stat().st_size
    if 8 * rows * max(1, columns) > allowed:
        raise DataError(
            f"claims {rows:,} rows, far more than a file of its size should hold: if you trust it, "
            "use --max-size"
        )


_BOOKKEEPING = ("index", "task_index", "timestamp", "next.done")
"""Columns that number frames and tasks, and that mark the last frame of every episode."""


@contextmanager
def open_lerobot(folder: Path, max_bytes: int | None = None) -> Iterator[TableSource]:
    """The frames of a dataset."""
    info = read_json(folder / LEROBOT)
    if not isinstance(info, dict) or not str(info.get("codebase_version", "")).startswith("v3"):
        found = info.get("codebase_version") if isinstance(info, dict) else None
        raise DataError(
            f"expected a LeRobot dataset of version 3, got {found!r}: convert it with LeRobot",
            file=folder / LEROBOT,
        )
    files = sorted((folder / "data").glob("chunk-*/file-*.parquet"))
    if not files:
        raise DataError("holds no data/chunk-*/file-*.parquet", file=folder)
    with open_parquet(files, "lerobot", max_bytes) as source:
        kinds = {
            name: kind
            for name, kind in source.kinds.items()
            if name not in _BOOKKEEPING and kind not in (TEXT, TIME)
        }
        kinds |= dict.fromkeys(_find_images(info), IMAGE)
        yield replace(source, kinds=kinds, entries=_find_entries(info))


def _find_images(info: Mapping[str, Any]) -> list[str]:
    """Names of the features that are images or videos."""
    features = info.get("features")
    return [
        name
        for name, feature in (features if isinstance(features, dict) else {}).items()
        if isinstance(feature, dict) and feature.get("dtype") in ("image", "video")
    ]


def _find_entries(info: Mapping[str, Any]) -> dict[str, list[str]]:
    """Names of the entries of each vector, where they are given as a list."""
    entries: dict[str, list[str]] = {}
    features = info.get("features")
    for name, feature in (features if isinstance(features, dict) else {}).items():
        names = feature.get("names") if isinstance(feature, dict) else None
        if isinstance(names, dict):  # {"motors": [...]}
            names = next(iter(names.values()), None)
        if isinstance(names, list) and all(isinstance(entry, str) for entry in names):
            entries[name] = names
    return entries


def open_file(
    path: Path,
    max_bytes: int | None = None,
    *,
    decimal: str | None = None,
    usual: str | None = None,
) -> AbstractContextManager[TableSource]:
    """A file or folder with a table that is open for reading, by its ending.

    `decimal` and `usual` are for CSV files.
    """
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        return open_lerobot(path, max_bytes)
    if ending in (".parquet", ".pq"):
        return open_parquet([path], max_bytes=max_bytes)
    if ending == ".xlsx":
        return open_sheet(path, max_bytes)
    if ending in (".csv", ".tsv"):
        return open_csv(path, decimal=decimal, usual=usual)
    return open_turns(path)
