"""Reading HDF5 files of unknown origin.

An HDF5 file can name other files, declare sizes it does not hold, and carry types whose reading
runs for minutes. Everything here looks before it reads: links are followed one name at a time and
only hard ones, a dataset's storage, filters, type and size are checked and paid from the file's
`Budget` before its first byte is read, and whatever h5py raises becomes a `DataError` of one line.
What is compressed with deflate is unpacked here (`unpack`), and what HDF5 has to unpack is first
read in a child process (`probe`).
"""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from h5py import h5a, h5d, h5g, h5l, h5o, h5p, h5s, h5t, h5z
from numpy.typing import NDArray

from grd_offline.core.errors import DataError
from grd_offline.io.files.plain import READ_FLAGS
from grd_offline.io.formats.budget import ATTRIBUTES_PER_OBJECT, Budget, show_bytes
from grd_offline.io.formats.unpack import Unpacker

CHUNK_BYTES = 64 * 2**20
ATTRIBUTE_BYTES = 2 * 2**20

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


class one_line:
    """Turn whatever h5py raises into a `DataError`.

    A class, because it is entered twice for every dataset, and a generator takes longer.
    """

    __slots__ = ("_field",)

    def __init__(self, field: str | None = None) -> None:
        self._field = field

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, DataError):
            raise error.at(field=self._field) from None
        if isinstance(error, _H5PY_ERRORS):
            text = str(error) or type(error).__name__
            raise DataError(f"cannot be read: {text.splitlines()[0]}", field=self._field) from error


class Source:
    """One open file: its budget, what is odd in it, and how its datasets are stored."""

    def __init__(self, budget: Budget, probe: Callable[[], None] = lambda: None) -> None:
        self.budget = budget
        self.notes: list[str] = []
        """Notes on odd things that were read anyway."""
        self.checked: set[int] = set()
        """Addresses of the datasets whose storage was looked at."""
        self.compressed: set[int] = set()
        """Addresses of those that HDF5 has to unpack."""
        self.deflated: set[int] = set()
        """Addresses of those that are unpacked here."""
        self._probe = probe
        self._is_probed = False

    def ensure_probed(self) -> None:
        """Have what HDF5 has to unpack read by a child process first; raises if that fails."""
        if not self._is_probed:
            self._is_probed = True
            self._probe()


class SafeDataset:
    """A dataset of plain numbers that was looked at and may be read."""

    def __init__(self, identifier: h5d.DatasetID, source: Source, address: int) -> None:
        self.shape: tuple[int, ...] = tuple(int(n) for n in identifier.shape)
        self.dtype = _checked_dtype(identifier.get_type())
        if address not in source.checked:
            _check_storage(identifier, self.shape, self.dtype, source, address)
            source.checked.add(address)
        self._identifier = identifier
        self._unpacker: Unpacker | None = None
        if address in source.deflated:
            plan = identifier.get_create_plist()
            self._unpacker = Unpacker(identifier, plan, self.shape, self.dtype)
        self.address = address
        if not self.dtype.isnative and _BIG_ENDIAN not in source.notes:
            source.notes.append(_BIG_ENDIAN)

    @property
    def nbytes(self) -> int:
        """The size in memory in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    def read(self, start: int = 0, stop: int | None = None) -> NDArray[Any]:
        """Rows [start, stop), in the machine's byte order."""
        # h5py's low level: slicing its Dataset objects costs several times a short episode's read.
        native = self.dtype if self.dtype.isnative else self.dtype.newbyteorder("=")
        with one_line():
            if not self.shape:
                number = np.empty((), native)
                self._identifier.read(h5s.ALL, h5s.ALL, number)
                return number
            rows = slice(start, stop).indices(self.shape[0])
            if self._unpacker is not None:
                return self._unpacker.read(rows[0], rows[1])
            shape = (max(0, rows[1] - rows[0]), *self.shape[1:])
            array = np.empty(shape, native)
            if shape == self.shape and array.size:
                self._identifier.read(h5s.ALL, h5s.ALL, array)
            elif array.size:
                space = self._identifier.get_space()
                space.select_hyperslab((rows[0],) + (0,) * (len(shape) - 1), shape)
                self._identifier.read(h5s.create_simple(shape), space, array)
            return array


class SafeGroup:
    """A group whose members are reached by hard links only."""

    def __init__(self, identifier: h5g.GroupID, source: Source, address: int = 0) -> None:
        self._identifier = identifier
        self._address = address
        self._names: list[str] | None = None
        self.source = source

    @property
    def notes(self) -> list[str]:
        """Notes on odd things anywhere in the file that were read anyway."""
        return self.source.notes

    def names(self) -> list[str]:
        """The names of all members."""
        if self._names is None:
            with one_line():
                count = self._identifier.get_num_objs()
                self.source.budget.count("entries in a group", self._address, count)
                self._names = [name.decode("utf-8", "replace") for name in self._identifier]
        return self._names

    def get(self, name: str) -> SafeGroup | SafeDataset | None:
        """The member of that name, None where there is none."""
        with one_line(name):
            encoded = name.encode("utf-8", "replace")
            try:
                link = self._identifier.links.get_info(encoded)
            except (KeyError, RuntimeError):
                if not self._identifier.links.exists(encoded):
                    return None
                raise
            if link.type == h5l.TYPE_SOFT:
                raise DataError("is a soft link, which is not followed")
            if link.type != h5l.TYPE_HARD:
                raise DataError("is a link to another file, which is not followed")
            self.source.budget.visit(link.u, self._address, encoded)
            found = h5o.open(self._identifier, encoded)
            if isinstance(found, h5g.GroupID):
                return SafeGroup(found, self.source, link.u)
            if isinstance(found, h5d.DatasetID):
                return SafeDataset(found, self.source, link.u)
            raise DataError("is neither a group nor a dataset")

    def dataset(self, name: str) -> SafeDataset:
        """The dataset of that name; its absence is an error."""
        found = self._find(name)
        if isinstance(found, SafeGroup):
            raise DataError("is a group, expected a dataset", field=name)
        return found

    def group(self, name: str) -> SafeGroup:
        """The group of that name; its absence is an error."""
        found = self._find(name)
        if isinstance(found, SafeDataset):
            raise DataError("is a dataset, expected a group", field=name)
        return found

    def _find(self, name: str) -> SafeGroup | SafeDataset:
        found = self.get(name)
        if found is None:
            raise DataError("is missing", field=name)
        return found

    def attributes(self) -> dict[str, int | float | str]:
        """The scalar attributes that are numbers or fixed-length text; others are left out."""
        found: dict[str, int | float | str] = {}
        with one_line("attributes"):
            count = h5a.get_num_attrs(self._identifier)
            if count > ATTRIBUTES_PER_OBJECT:
                raise DataError(f"{count:,}, expected at most {ATTRIBUTES_PER_OBJECT:,}")
            self.source.budget.count("attributes", self._address, count)
            for index in range(count):
                attribute = h5a.open(self._identifier, index=index)
                value = _attribute_value(attribute)
                if value is not None:
                    found[attribute.name.decode("utf-8", "replace")] = value
        return found


def open_handle(path: str | os.PathLike[str]) -> tuple[h5py.File, int]:
    """Open an HDF5 file for reading, and its size; the caller closes it."""
    try:
        # Not blocked by a named pipe; what it is shows when it is open, and stays so.
        descriptor = os.open(path, READ_FLAGS)
    except FileNotFoundError:
        raise DataError("no such file", file=path) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise DataError(f"cannot be opened: {reason}", file=path) from error
    try:
        status = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise DataError("not a regular file", file=path)
    if status.st_size == 0:
        raise DataError("is empty", file=path)
    try:
        # A chunk that several episodes share is decompressed once, not once per episode.
        return h5py.File(path, "r", rdcc_nbytes=CHUNK_BYTES), status.st_size
    except _H5PY_ERRORS as error:
        raise DataError(_describe_other(Path(path)), file=path) from error


def _describe_other(path: Path) -> str:
    """What to do with a file that is not HDF5, by its ending."""
    ending = path.suffix.lower()
    if ending in (".xlsx", ".xlsm", ".xls", ".ods"):
        return "is a spreadsheet: save its table as a CSV file, and name that file"
    if ending in (".gz", ".bz2", ".xz", ".zst", ".zip", ".7z", ".tar"):
        return "is packed: unpack it, and name the file in it"
    if ending in (".txt", ".dat", ".data", ".tab"):
        return "is not an HDF5 file; if it is a table, give it the ending .csv"
    if ending in (".json", ".npz", ".npy", ".pkl", ".pickle", ".feather", ".mat"):
        return (
            "is not an HDF5 file; if it is a table, load it in Python and save it as CSV or Parquet"
        )
    return "is not an HDF5 file, or is damaged"


def _checked_dtype(datatype: h5t.TypeID) -> np.dtype[Any]:
    kind = datatype.get_class()
    if kind in _KINDS:
        raise UnsupportedType(f"holds {_KINDS[kind]}, expected numbers")
    dtype: np.dtype[Any] = np.dtype(datatype.dtype)
    if dtype.kind not in "fiub" or dtype.itemsize > 8:
        raise UnsupportedType(f"holds values of type {dtype}, expected numbers of at most 8 bytes")
    return dtype


def _check_storage(
    identifier: h5d.DatasetID,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    source: Source,
    address: int,
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
    stored = identifier.get_storage_size()
    chunks = size = 0
    if layout == h5d.CHUNKED:
        chunk = tuple(int(length) for length in plan.get_chunk())
        chunks = math.prod(-(-length // part) for length, part in zip(shape, chunk, strict=True))
        size = dtype.itemsize * math.prod(chunk)
        if size > max(CHUNK_BYTES, source.budget.max_bytes or 0):
            raise DataError(
                f"is stored in chunks of {show_bytes(size)}, more than {show_bytes(CHUNK_BYTES)}"
            )
    source.budget.pay_data(math.prod(shape) * dtype.itemsize, stored, chunks)
    if h5z.FILTER_DEFLATE in filters:
        source.deflated.add(address)
    elif filters and stored:
        only = (0,) * len(shape) if chunks == 1 else None
        _check_chunks(identifier, plan, filters, size, only)
        if h5z.FILTER_LZF in filters:
            source.compressed.add(address)
            source.ensure_probed()


def _check_chunks(
    identifier: h5d.DatasetID,
    plan: h5p.PropDCID,
    filters: list[int],
    size: int,
    only: tuple[int, ...] | None,
) -> None:
    """Refuse chunks that hold less than HDF5 takes from them: it reads on behind their end.

    `only` is the place of the one chunk that is read; None where there are several.
    """
    packer = filters.index(h5z.FILTER_LZF) if h5z.FILTER_LZF in filters else None
    if packer is not None and plan.get_filter(packer)[2][2:3] != (size,):
        raise DataError("is compressed for chunks of another size")
    smallest = size

    def look(found: Any) -> None:
        nonlocal smallest
        is_plain = packer is None or found.filter_mask >> packer & 1
        if is_plain and found.byte_offset is not None:
            smallest = min(smallest, found.size)

    if only is not None:
        look(identifier.get_chunk_info_by_coord(only))
    else:
        identifier.chunk_iter(look)
    if smallest < size:
        raise DataError(f"holds a chunk of {smallest} bytes, expected {size}")


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
