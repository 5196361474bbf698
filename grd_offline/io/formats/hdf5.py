"""The part that all written HDF5 layouts share: checksummed datasets, headers as attributes, and a
check."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from h5py import h5d, h5g, h5o, h5p, h5s, h5t

from grd_offline.core.errors import DataError, clean_text
from grd_offline.core.names import list_label_columns, read_names
from grd_offline.core.provenance import Provenance
from grd_offline.core.typing import AnyArray
from grd_offline.io.files.storage import OutputFile
from grd_offline.io.formats.leaves import check_path, check_start, plain_dtype
from grd_offline.io.formats.record import Header, Leaf

CHUNK_BYTES = 2**20
_TABLE = "table"
"""What the settings in a file have the provenance under."""
_BLOCK_BYTES = 8 * 2**20


@contextmanager
def create_hdf5(output: OutputFile) -> Iterator[h5py.File]:
    """An HDF5 file that writes through `output`."""
    file = h5py.File(output, "w", libver=("v110", "latest"), rdcc_nbytes=4 * CHUNK_BYTES)
    try:
        yield file
        output.check()
    finally:
        file.close()


def create_dataset(
    group: h5py.Group, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> h5d.DatasetID:
    """An empty dataset with a checksum on every chunk."""
    # h5py's low level: with thousands of short episodes its objects cost more than the writing.
    return h5d.create(
        group.id,
        name.encode(),
        h5t.py_create(dtype, logical=True),
        h5s.create_simple(shape),
        dcpl=_storage_plan(shape, dtype),
        lcpl=_link_plan(),
    )


@lru_cache(maxsize=1024)
def _storage_plan(shape: tuple[int, ...], dtype: np.dtype[Any]) -> h5p.PropDCID:
    plan = h5p.create(h5p.DATASET_CREATE)
    plan.set_obj_track_times(False)  # the same data give the same file
    if shape and 0 not in shape:
        row = dtype.itemsize * int(np.prod(shape[1:], dtype=np.int64))
        plan.set_chunk((min(shape[0], max(1, CHUNK_BYTES // row)), *shape[1:]))
        plan.set_fletcher32()
    return plan


@lru_cache(maxsize=1)
def _link_plan() -> h5p.PropLCID:
    plan = h5p.create(h5p.LINK_CREATE)
    plan.set_create_intermediate_group(True)
    plan.set_char_encoding(h5t.CSET_UTF8)
    return plan


def write_array(group: h5py.Group, name: str, array: AnyArray) -> None:
    """Store an array with a checksum."""
    dataset = create_dataset(group, name, array.shape, array.dtype)
    if array.size:
        dataset.write(h5s.ALL, h5s.ALL, np.ascontiguousarray(array))


def verify_hdf5(path: Path) -> None:
    """Read every dataset back, which checks every checksum."""
    try:
        with h5py.File(path, "r", locking=False) as file:
            _read_back(file.id, np.empty(0, np.uint8))
    except (OSError, RuntimeError, KeyError, ValueError) as error:
        # Not the name of the file: it is still a staging file, which means nothing to a user.
        raise OSError(errno.EIO, "what was written cannot be read back") from error


def _read_back(group: h5g.GroupID, buffer: AnyArray) -> AnyArray:
    """Read all below a group into a buffer, which grows where it must and is handed back."""
    for name in group:
        found = h5o.open(group, name)
        if isinstance(found, h5g.GroupID):
            buffer = _read_back(found, buffer)
            continue
        shape, stored = found.shape, found.get_type()
        if 0 in shape:
            continue
        row = stored.get_size() * int(np.prod(shape[1:], dtype=np.int64))
        rows = max(1, _BLOCK_BYTES // row) if shape else 1
        size = row * min(rows, shape[0]) if shape else row
        if len(buffer) < size:
            buffer = np.empty(size, np.uint8)
        if not shape or rows >= shape[0]:
            found.read(h5s.ALL, h5s.ALL, buffer, mtype=stored)
            continue
        for start in range(0, shape[0], rows):
            block = (min(rows, shape[0] - start), *shape[1:])
            space = found.get_space()
            space.select_hyperslab((start,) + (0,) * (len(shape) - 1), block)
            found.read(h5s.create_simple(block), space, buffer, mtype=stored)
    return buffer


def header_as_texts(header: Header) -> dict[str, str]:
    """A header as a few texts: plain where it is one, JSON otherwise."""
    names = {"observation_names": header.observation_names, "action_names": header.action_names}
    columns = {field: list_label_columns(known or ()) for field, known in names.items()}
    values = {
        "environment": header.environment,
        **names,
        "label_columns": columns if any(columns.values()) else None,
        "observation_leaves": [asdict(leaf) for leaf in header.observation_leaves],
        "action_leaves": [asdict(leaf) for leaf in header.action_leaves],
        "delay": header.delay,
        "discount": header.discount,
        "settings": {
            **header.settings,
            **({_TABLE: header.provenance.to_json()} if header.provenance else {}),
        },
        "truth": dict(header.truth),
        "source": dict(header.source),
    }
    return {
        name: value if isinstance(value, str) else json.dumps(value, sort_keys=True)
        for name, value in values.items()
        if value not in (None, {})
    }


def header_from_texts(texts: Mapping[str, Any]) -> Header:
    """The header that `header_as_texts` took apart."""
    try:
        environment = texts.get("environment")
        settings = _mapping(texts.get("settings"))
        return Header(
            observation_leaves=_leaves(texts["observation_leaves"]),
            action_leaves=_leaves(texts["action_leaves"]),
            observation_names=_names(texts, "observation_names"),
            action_names=_names(texts, "action_names"),
            environment=None if environment is None else clean_text(str(environment)),
            delay=_checked_delay(texts.get("delay")),
            discount=_checked_discount(json.loads(texts.get("discount", "1.0"))),
            provenance=Provenance.from_json(settings.pop(_TABLE, None)),
            settings=settings,
            truth=_mapping(texts.get("truth")),
            source=_mapping(texts.get("source")),
        )
    except (
        KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError,
    ) as error:  # fmt: skip
        name = f"{error.args[0]!r} " if isinstance(error, KeyError) else ""
        raise DataError(f"{name}missing or damaged", field="attributes") from error


def write_attributes(group: h5py.Group, texts: Mapping[str, int | float | str]) -> None:
    """Attributes as numbers and fixed-length UTF-8: variable-length text is unsafe to read back."""
    for name, value in texts.items():
        if isinstance(value, str):
            encoded = value.encode("utf-8", "replace") or b"\0"
            dtype = h5py.string_dtype("utf-8", len(encoded))
            group.attrs.create(name, np.array(encoded, dtype=dtype))
        else:
            group.attrs[name] = value


def _leaves(text: str) -> tuple[Leaf, ...]:
    leaves = []
    for entry in json.loads(text):
        categories = entry["categories"]
        leaves.append(
            Leaf(
                path=check_path(clean_text(str(entry["path"]))),
                shape=tuple(_count(n, least=0) for n in entry["shape"]),
                dtype=plain_dtype(entry["dtype"]),
                categories=None if categories is None else tuple(_count(n) for n in categories),
                starts=tuple(check_start(n) for n in entry["starts"]),
            )
        )
    if not leaves or len({leaf.path for leaf in leaves}) < len(leaves):
        raise ValueError("leaves")
    return tuple(leaves)


def _count(number: Any, least: int = 1) -> int:
    if not isinstance(number, int) or not least <= number < 2**20:
        raise ValueError(f"{number} entries")
    return number


def _names(texts: Mapping[str, Any], field: str) -> tuple[str, ...] | None:
    if texts.get(field) is None:
        return None
    columns = _mapping(texts.get("label_columns")).get(field)
    return read_names([clean_text(str(name)) for name in json.loads(texts[field])], columns)


def _checked_delay(text: str | None) -> int | str | None:
    if text is None or text in ("end", "step"):
        return text
    return _count(json.loads(text))


def _checked_discount(value: Any) -> float:
    if not 0 < float(value) <= 1:
        raise ValueError("discount")
    return float(value)


def _mapping(text: str | None) -> dict[str, Any]:
    return {} if text is None else dict(json.loads(text))
