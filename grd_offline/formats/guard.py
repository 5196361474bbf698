"""Reading HDF5 files of unknown origin.

An HDF5 file can name other files, declare sizes it does not hold, and carry types whose reading
runs for minutes. Everything here looks before it reads: links are followed one name at a time and
only hard ones, a dataset's storage, filters, type and size are checked before its first byte is
read, and whatever h5py raises becomes a `DataError` of one line.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from h5py import h5a, h5d, h5g, h5l, h5o, h5s, h5t, h5z
from numpy.typing import NDArray

from grd_offline.errors import DataError

FREE_BYTES = 256 * 2**20
"""A dataset may always declare this much, however little of it is stored."""
EXPANSION = 20
"""Beyond that, at most this many times what is stored: real states compress far less."""
CHUNK_BYTES = 64 * 2**20
LINKS = 1_000_000
ATTRIBUTE_BYTES = 16 * 2**20

_H5PY_ERRORS = (
    OSError,
    RuntimeError,
    KeyError,
    ValueError,
    TypeError,
    OverflowError,
    MemoryError,
    NotImplementedError,
    SystemError,
)
_FILTERS = {
    h5z.FILTER_DEFLATE: "deflate",
    h5z.FILTER_SHUFFLE: "shuffle",
    h5z.FILTER_FLETCHER32: "fletcher32",
    h5z.FILTER_LZF: "lzf",
    h5z.FILTER_SCALEOFFSET: "scaleoffset",
}
_BIG_ENDIAN = "numbers in the other byte order: read in this computer's"
_COMPRESSORS = (h5z.FILTER_DEFLATE, h5z.FILTER_LZF)
_KINDS = {
    h5t.STRING: "text",
    h5t.VLEN: "variable-length values",
    h5t.COMPOUND: "compound values",
    h5t.REFERENCE: "references",
    h5t.OPAQUE: "opaque values",
    h5t.ARRAY: "array values",
    h5t.BITFIELD: "bit fields",
    h5t.TIME: "time values",
}


class UnsupportedType(DataError):
    """A dataset that does not hold numbers: an error in a field, left out among the extras."""


@contextmanager
def one_line(field: str | None = None) -> Iterator[None]:
    """Turn whatever h5py raises into a `DataError`."""
    try:
        yield
    except DataError as error:
        raise error.at(field=field) from None
    except _H5PY_ERRORS as error:
        text = str(error) or type(error).__name__
        raise DataError(f"cannot be read: {text.splitlines()[0]}", field=field) from error


class SafeDataset:
    """A dataset of plain numbers that was looked at and may be read."""

    def __init__(self, identifier: h5d.DatasetID, max_bytes: int | None, notes: list[str]) -> None:
        self.shape: tuple[int, ...] = tuple(int(n) for n in identifier.shape)
        self.dtype = _checked_dtype(identifier.get_type())
        _check_storage(identifier, self.shape, self.dtype, max_bytes)
        self._identifier = identifier
        if self.dtype != self.dtype.newbyteorder("=") and _BIG_ENDIAN not in notes:
            notes.append(_BIG_ENDIAN)

    def read(self, start: int = 0, stop: int | None = None) -> NDArray[Any]:
        """Rows [start, stop), in the machine's byte order."""
        # h5py's low level: slicing its Dataset objects costs several times a short episode's read.
        native = self.dtype.newbyteorder("=")
        with one_line():
            if not self.shape:
                number = np.empty((), native)
                self._identifier.read(h5s.ALL, h5s.ALL, number)
                return number
            rows = slice(start, stop).indices(self.shape[0])
            shape = (max(0, rows[1] - rows[0]), *self.shape[1:])
            array = np.empty(shape, native)
            if array.size:
                space = self._identifier.get_space()
                space.select_hyperslab((rows[0],) + (0,) * (len(shape) - 1), shape)
                self._identifier.read(h5s.create_simple(shape), space, array)
            return array


class SafeGroup:
    """A group whose members are reached by hard links only."""

    def __init__(
        self, identifier: h5g.GroupID, max_bytes: int | None, notes: list[str] | None = None
    ) -> None:
        self._identifier = identifier
        self._max_bytes = max_bytes
        self.notes: list[str] = [] if notes is None else notes
        """What is odd but was read all the same, in this group and below."""

    def names(self) -> list[str]:
        """The names of all members."""
        with one_line():
            count = self._identifier.get_num_objs()
            if count > LINKS:
                raise DataError(f"{count} entries in one group, more than {LINKS}")
            return [name.decode("utf-8", "replace") for name in self._identifier]

    def get(self, name: str) -> SafeGroup | SafeDataset | None:
        """The member of that name, None where there is none."""
        with one_line(name):
            encoded = name.encode("utf-8")
            if not self._identifier.links.exists(encoded):
                return None
            kind = self._identifier.links.get_info(encoded).type
            if kind == h5l.TYPE_SOFT:
                raise DataError("is a soft link, which is not followed")
            if kind != h5l.TYPE_HARD:
                raise DataError("is a link to another file, which is not followed")
            found = h5o.open(self._identifier, encoded)
            if isinstance(found, h5g.GroupID):
                return SafeGroup(found, self._max_bytes, self.notes)
            if isinstance(found, h5d.DatasetID):
                return SafeDataset(found, self._max_bytes, self.notes)
            raise DataError("is neither a group nor a dataset")

    def dataset(self, name: str) -> SafeDataset:
        """The dataset of that name; its absence is an error."""
        found = self.get(name)
        if found is None:
            raise DataError("is missing", field=name)
        if isinstance(found, SafeGroup):
            raise DataError("is a group, expected a dataset", field=name)
        return found

    def group(self, name: str) -> SafeGroup:
        """The group of that name; its absence is an error."""
        found = self.get(name)
        if found is None:
            raise DataError("is missing", field=name)
        if isinstance(found, SafeDataset):
            raise DataError("is a dataset, expected a group", field=name)
        return found

    def attributes(self) -> dict[str, int | float | str]:
        """The scalar attributes that are numbers or fixed-length text; others are left out."""
        found: dict[str, int | float | str] = {}
        with one_line("attributes"):
            for index in range(h5a.get_num_attrs(self._identifier)):
                attribute = h5a.open(self._identifier, index=index)
                value = _attribute_value(attribute)
                if value is not None:
                    found[attribute.name.decode("utf-8", "replace")] = value
        return found


def open_handle(path: str | os.PathLike[str]) -> h5py.File:
    """Open an HDF5 file for reading; the caller closes it."""
    file = Path(path)
    try:
        if not file.exists():
            raise DataError("no such file", file=path)
        if not file.is_file():
            raise DataError("not a regular file", file=path)
        if file.stat().st_size == 0:
            raise DataError("is empty", file=path)
        with file.open("rb"):
            pass
    except OSError as error:
        raise DataError(f"cannot be opened: {error.strerror}", file=path) from error
    try:
        # A chunk that several episodes share is decompressed once, not once per episode.
        return h5py.File(file, "r", rdcc_nbytes=CHUNK_BYTES)
    except _H5PY_ERRORS as error:
        raise DataError("is not an HDF5 file, or is damaged", file=path) from error


def _checked_dtype(datatype: h5t.TypeID) -> np.dtype[Any]:
    kind = datatype.get_class()
    if kind in _KINDS:
        raise UnsupportedType(f"holds {_KINDS[kind]}, expected numbers")
    dtype: np.dtype[Any] = np.dtype(datatype.dtype)
    if dtype.kind not in "fiub" or dtype.itemsize > 8:
        raise UnsupportedType(f"holds values of type {dtype}, expected numbers of at most 8 bytes")
    return dtype


def _check_storage(
    identifier: h5d.DatasetID, shape: tuple[int, ...], dtype: np.dtype[Any], max_bytes: int | None
) -> None:
    plan = identifier.get_create_plist()
    if plan.get_external_count():
        raise DataError("keeps its data in another file, which is not read")
    layout = plan.get_layout()
    if layout == h5d.VIRTUAL:
        raise DataError("is a virtual dataset, which is not followed")
    filters = [plan.get_filter(i)[0] for i in range(plan.get_nfilters())]
    unknown = [code for code in filters if code not in _FILTERS]
    if unknown:
        raise DataError(f"uses filter {unknown[0]}, which is not supported")
    if sum(code in _COMPRESSORS for code in filters) > 1 or len(set(filters)) < len(filters):
        raise DataError("is compressed more than once")
    declared = dtype.itemsize
    for length in shape:
        declared *= length
    if layout == h5d.CHUNKED:
        chunk = dtype.itemsize
        for length in plan.get_chunk():
            chunk *= int(length)
        if chunk > max(CHUNK_BYTES, max_bytes or 0):
            raise DataError(
                f"is stored in chunks of {show_bytes(chunk)}, more than {show_bytes(CHUNK_BYTES)}"
            )
    stored = identifier.get_storage_size()
    if declared > max(FREE_BYTES, EXPANSION * stored, max_bytes or 0):
        raise DataError(
            f"declares {show_bytes(declared)} but stores {show_bytes(stored)}; "
            "raise --max-size if you trust the file"
        )


def _attribute_value(attribute: h5a.AttrID) -> int | float | str | None:
    datatype = attribute.get_type()
    kind = datatype.get_class()
    if attribute.shape not in ((), (1,)) or datatype.get_size() > ATTRIBUTE_BYTES:
        return None
    if kind == h5t.STRING:
        if datatype.is_variable_str():
            return None
        buffer = np.empty(attribute.shape, dtype=f"S{datatype.get_size()}")
        attribute.read(buffer, mtype=datatype)
        return bytes(buffer.reshape(-1)[0]).decode("utf-8", "replace")
    if kind not in (h5t.INTEGER, h5t.FLOAT, h5t.ENUM) or datatype.get_size() > 8:
        return None
    values = np.empty(attribute.shape, dtype=datatype.dtype)
    attribute.read(values)
    number = values.reshape(-1)[0].item()
    return number if isinstance(number, int | float) else None


def show_bytes(count: int) -> str:
    """A byte count for people."""
    size = float(count)
    for unit in ("bytes", "KB", "MB", "GB", "TB"):
        if size < 1024 or unit == "TB":
            break
        size /= 1024
    return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
