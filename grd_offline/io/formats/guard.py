"""Reading HDF5 files of unknown origin.

An HDF5 file can name other files, declare sizes it does not hold, and carry types whose reading
runs for minutes. Everything here looks before it reads: links are followed one name at a time and
only hard ones, a dataset's storage, filters, type and size are checked and paid from the file's
`Budget` before its first byte is read, and whatever h5py raises becomes a `DataError` of one line.

A file of a few kilobytes can claim gigabytes, name one object a million times, or cut its data
into chunks of one byte. So each file gets one budget, in proportion to its size, and everything
that is looked at or read is paid from it once. `--max-size` lifts it.

HDF5 unpacks a chunk until its stream ends, however little the dataset says that it holds: a
megabyte can become a gigabyte. So what is compressed with deflate is unpacked here, where no chunk
is unpacked beyond its declared size, at the same speed, and each one once while it is in use.

Unpacking is where HDF5 runs the most code on bytes that a stranger chose: a chunk can be made to
crash it, or to grow from kilobytes into gigabytes, whatever its dataset declares. So what is
compressed with other filters is first read in a fork of this process, under limits on memory and
time, and its end says whether this process may do the same. Where a process cannot fork, or not
safely, it is a new process of Python. There is no limit on memory outside of Linux, and on Windows
the limit on time is one of the clock. Data that are not compressed are copied as they are and are
not read twice: with many short episodes that took 2.1 times as long (50 episodes in Minari's
layout, 263 ms instead of 125), with one compressed table 1.5 times.
"""

from __future__ import annotations

import itertools
import math
import os
import signal
import sys
import warnings
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
from h5py import h5a, h5d, h5g, h5l, h5o, h5p, h5s, h5t, h5z
from numpy.typing import NDArray

from grd_offline.core.errors import DataError
from grd_offline.core.process import Process, ProcessDied
from grd_offline.io.files.plain import open_regular

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

FREE_BYTES = 16 * 2**20
EXPANSION = 20
"""Data may take this many times the size of their file: real states compress far less."""
FREE_COUNT, ATTRIBUTES_PER_OBJECT = 10_000, 1_000
BYTES_PER_LINK = BYTES_PER_CHUNK = 64
"""Each link and each chunk of an honest file takes more than this, with what it leads to."""
BYTES_PER_EPISODE = 16


class Budget:
    """The budget that is left for one file."""

    def __init__(self, file_bytes: int, max_bytes: int | None = None) -> None:
        size = max(file_bytes, max_bytes or 0)
        self.file_bytes, self.max_bytes = file_bytes, max_bytes
        self._bytes = self._limit = max(FREE_BYTES + EXPANSION * file_bytes, max_bytes or 0)
        self._links = FREE_COUNT + size // BYTES_PER_LINK
        self._chunks = FREE_COUNT + size // BYTES_PER_CHUNK
        self._names: dict[int, tuple[int, bytes]] = {}
        self._counted: set[tuple[str, int]] = set()

    def visit(self, address: int, parent: int, name: bytes) -> None:
        """Go to an object of the file by a name in its group; an object may have one name only."""
        known = self._names.setdefault(address, (parent, name))
        if known != (parent, name):
            first = known[1].decode("utf-8", "replace")
            raise DataError(
                f"is the same object as {first!r:.80}: an object with two names is not read"
            )

    def count(self, kind: str, address: int, count: int) -> None:
        """The entries of a group, or the attributes of an object: paid once for each."""
        if (kind, address) in self._counted:
            return
        self._counted.add((kind, address))
        self._links -= count
        if self._links < 0:
            raise DataError(
                f"{count:,} {kind}, more than a file of {show_bytes(self.file_bytes)} needs{_HINT}"
            )

    def pay_data(self, declared: int, stored: int, chunks: int) -> None:
        """A dataset: the bytes that it unpacks to, and the chunks that it is stored in."""
        self._bytes -= declared
        if self._bytes < 0:
            so_far = self._limit - self._bytes
            what = f"declares {show_bytes(declared)} but stores {show_bytes(stored)}"
            if so_far > 1.1 * declared:
                what += f", and the file declares {show_bytes(so_far)} so far"
            raise DataError(f"{what}{_HINT}")
        self._chunks -= chunks
        if self._chunks < 0:
            raise DataError(
                f"is stored in {chunks:,} chunks, more than a file of "
                f"{show_bytes(self.file_bytes)} needs{_HINT}"
            )

    def check_episodes(self, count: int) -> None:
        """Refuse episodes that take no room in the file: each is work."""
        if count > FREE_COUNT + max(self.file_bytes, self.max_bytes or 0) // BYTES_PER_EPISODE:
            raise DataError(
                f"{count:,} episodes, more than is plausible for a file of "
                f"{show_bytes(self.file_bytes)}{_HINT}"
            )

    def check_flat(self, count: int) -> None:
        """Refuse a view of the data as float32 that is out of proportion: one-hot codes."""
        if 4 * count > self._limit:
            raise DataError(
                f"takes {show_bytes(4 * count)} as numbers with one-hot codes, more than is "
                f"plausible for a file of {show_bytes(self.file_bytes)}{_HINT}"
            )


_HINT = "; raise --max-size if you trust the file"


def show_bytes(count: int) -> str:
    """A byte count for people."""
    size = float(count)
    for unit in ("bytes", "KB", "MB", "GB", "TB"):
        if size < 1024 or unit == "TB":
            break
        size /= 1024
    return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"


CACHE_BYTES = 32 * 2**20
_CHECKSUM_BYTES = 4


class Unpacker:
    """One dataset whose filters are deflate, and perhaps shuffle and a checksum."""

    def __init__(
        self, identifier: h5d.DatasetID, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> None:
        self._identifier, self._shape, self._dtype = identifier, shape, dtype
        plan = identifier.get_create_plist()
        self._filters = [plan.get_filter(i)[0] for i in range(plan.get_nfilters())]
        self._chunk = tuple(int(length) for length in plan.get_chunk())
        self._fill = np.zeros((), dtype)
        plan.fill_value_defined()  # refuses damage at which HDF5 crashes in the next line
        plan.get_fill_value(self._fill)
        self._cache: OrderedDict[tuple[int, ...], NDArray[Any]] = OrderedDict()

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Rows [start, stop), in the machine's byte order."""
        rows = np.empty((max(0, stop - start), *self._shape[1:]), self._dtype.newbyteorder("="))
        if not rows.size:
            return rows
        ends = [(start, stop), *((0, n) for n in self._shape[1:])]
        starts = (range(a - a % n, b, n) for (a, b), n in zip(ends, self._chunk, strict=True))
        for offset in itertools.product(*starts):
            there, here = [], []
            for place, part, (low, high) in zip(offset, self._chunk, ends, strict=True):
                begin, end = max(low, place), min(high, place + part)
                there.append(slice(begin - low, end - low))
                here.append(slice(begin - place, end - place))
            rows[tuple(there)] = self._load(offset)[tuple(here)]
        return rows

    def _load(self, offset: tuple[int, ...]) -> NDArray[Any]:
        if offset not in self._cache:
            self._cache[offset] = self._unpack(offset)
        self._cache.move_to_end(offset)
        chunk = self._cache[offset]
        while len(self._cache) > 1 and len(self._cache) * chunk.nbytes > CACHE_BYTES:
            self._cache.popitem(last=False)
        return chunk

    def _unpack(self, offset: tuple[int, ...]) -> NDArray[Any]:
        size = math.prod(self._chunk) * self._dtype.itemsize
        stored = self._identifier.get_chunk_info_by_coord(offset)
        if stored.byte_offset is None:
            return np.broadcast_to(self._fill, self._chunk)
        if stored.size > size + size // 100 + 1024:  # more than deflate makes of anything
            raise DataError(f"stores {stored.size} bytes for a chunk of {size}")
        skipped, data = self._identifier.read_direct_chunk(offset)
        for index in reversed(range(len(self._filters))):
            if not skipped >> index & 1:
                data = _undo(self._filters[index], data, size, self._dtype.itemsize)
        if len(data) != size:
            raise DataError(f"holds a chunk of {len(data)} bytes, expected {size}")
        return np.frombuffer(data, self._dtype).reshape(self._chunk)


def _undo(code: int, data: bytes, size: int, item: int) -> bytes:
    """Undo a filter. The result has at most the size of a chunk and its checksum."""
    if code == h5z.FILTER_FLETCHER32:
        return data[:-_CHECKSUM_BYTES]  # deflate has a checksum of its own
    if code == h5z.FILTER_SHUFFLE:
        count = len(data) // item
        planes = np.frombuffer(data, np.uint8, count * item).reshape(item, count)
        return planes.T.tobytes() + data[count * item :]
    stream = zlib.decompressobj()
    try:
        unpacked = stream.decompress(data, size + _CHECKSUM_BYTES)
        is_longer = not stream.eof and bool(stream.decompress(stream.unconsumed_tail, 1))
    except zlib.error as error:
        raise DataError(f"cannot be read: damaged ({error})") from error
    if is_longer:
        raise DataError(f"holds a chunk that unpacks to more than the {size} bytes it declares")
    return unpacked


CHUNK_BYTES = 64 * 2**20
ATTRIBUTE_BYTES = 2 * 2**20
DEPTH = 8
"""Largest depth of groups within each other."""

_H5PY_ERRORS = (
    OSError, RuntimeError, KeyError, ValueError, TypeError, OverflowError, MemoryError,
    NotImplementedError, SystemError,
)  # fmt: skip
_COMPRESSORS = (h5z.FILTER_DEFLATE, h5z.FILTER_LZF)
_FILTERS = (*_COMPRESSORS, h5z.FILTER_SHUFFLE, h5z.FILTER_FLETCHER32)
_BIG_ENDIAN = "numbers in the other byte order: read in this computer's"
_KINDS = {
    h5t.STRING: "text", h5t.VLEN: "variable-length values", h5t.COMPOUND: "compound values",
    h5t.REFERENCE: "references", h5t.OPAQUE: "opaque values", h5t.ARRAY: "array values",
    h5t.BITFIELD: "bit fields", h5t.TIME: "time values",
}  # fmt: skip


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
        self._identifier, self.address = identifier, address
        is_deflated = address in source.deflated
        self._unpacker = Unpacker(identifier, self.shape, self.dtype) if is_deflated else None
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
        self._identifier, self._address = identifier, address
        self._names: list[str] | None = None
        self.source, self.notes = source, source.notes

    def warn(self, text: str) -> None:
        """Note something odd, once."""
        if text not in self.notes:
            self.notes.append(text)

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


def walk(
    group: SafeGroup, path: str, skip: Callable[[str], None] | None = None, depth: int = 0
) -> Iterator[tuple[str, SafeDataset]]:
    """The datasets at and below the last name of a path, which lies in the group.

    Datasets of other types than numbers are refused, or told to `skip`.
    """
    try:
        found = group.get(path.rpartition("/")[2])
    except UnsupportedType as error:
        if skip is None:
            raise
        skip(f"{path}: {error.reason}: left out")
        return
    except DataError as error:
        raise DataError(error.reason, field=path) from None
    if isinstance(found, SafeDataset):
        yield path, found
    elif found is None:
        raise DataError("holds a name that cannot be read" if depth else "is missing", field=path)
    elif depth == DEPTH:
        raise DataError(f"groups nested more than {DEPTH} deep", field=path)
    else:
        for name in sorted(found.names()):
            yield from walk(found, f"{path}/{name}", skip, depth + 1)


def open_handle(path: str | os.PathLike[str]) -> tuple[h5py.File, int]:
    """Open an HDF5 file for reading, and its size; the caller closes it."""
    with open_regular(path, missing="no such file") as file:
        size = os.fstat(file.fileno()).st_size
    if size == 0:
        raise DataError("is empty", file=path)
    try:
        # A chunk that several episodes share is decompressed once, not once per episode.
        return h5py.File(path, "r", rdcc_nbytes=CHUNK_BYTES), size
    except _H5PY_ERRORS as error:
        raise DataError(_describe_other(Path(path)), file=path) from error


def _describe_other(path: Path) -> str:
    """What to do with a file that is not HDF5, by its ending."""
    ending = path.suffix.lower()
    if ending in (".xlsm", ".xls", ".ods"):
        return "is a spreadsheet: save its table as .xlsx or as a CSV file, and name that file"
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


MEMORY_BYTES = 256 * 2**20
"""More than this process has, for the library itself and one chunk at a time."""
SECONDS, SECONDS_PER_MB = 4.0, 1.0
_BLOCK_BYTES = 8 * 2**20
_DEPTH = 16
_MESSAGE_BYTES = 500
_TOO_LONG = -signal.SIGXCPU if hasattr(signal, "SIGXCPU") else None
START_SECONDS = 20.0
"""A new process has so many seconds more, to import what it needs."""
FORKS = hasattr(os, "fork") and sys.platform != "darwin"
"""Whether the child is a fork. On macOS, libraries do not survive a fork."""


def probe_file(path: str | os.PathLike[str], budget: Budget) -> None:
    """Read what HDF5 has to unpack in a child process; `DataError` where that is not safe."""
    code, message = _read_in_fork(path, budget) if FORKS else _read_in_process(path, budget)
    if code == _TOO_LONG:
        raise DataError("takes too long to read for a file of its size")
    if code < 0 or code > 255:  # what Windows gives for a crash has 32 bits
        name = signal.Signals(-code).name if code < 0 else f"code {code:#x}"
        raise DataError(f"crashes the HDF5 library when it is read ({name}): damaged, or made to")
    if message:
        raise DataError(message)
    if code != 0:
        raise DataError("cannot be read: the first reading failed")


def _read_in_fork(path: str | os.PathLike[str], budget: Budget) -> tuple[int, str]:
    """The exit code of the child, and what it says is wrong with the file."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        # The child reads a file and leaves: it takes no lock that another thread may hold.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        _become_reader(path, budget, writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        message = pipe.read().decode("utf-8", "replace")
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), message


def _read_in_process(path: str | os.PathLike[str], budget: Budget) -> tuple[int, str]:
    """The same in a new process, which is slower to start."""
    reader = Process(read_limited, path, Budget(budget.file_bytes, budget.max_bytes))
    reader.start()
    try:
        if not reader.connection.poll(START_SECONDS + count_seconds(budget)):
            raise DataError("takes too long to read for a file of its size")
        return 0, reader.receive()
    except ProcessDied:
        return reader.process.exitcode or 1, ""
    finally:
        reader.end()


def read_limited(pipe: Connection[Any, Any], path: str | os.PathLike[str], budget: Budget) -> None:
    """Read a file in a process of its own, and tell what is wrong with it."""
    limit_process(budget)
    pipe.send(_read_all(path, budget)[:_MESSAGE_BYTES])


def _become_reader(path: str | os.PathLike[str], budget: Budget, writer: int) -> None:
    """The life of the child: never returns."""
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for stream in (1, 2):  # whatever a crash prints is not for the user
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
        limit_process(budget)
        message = _read_all(path, budget)
        os.write(writer, message.encode("utf-8", "replace")[:_MESSAGE_BYTES])
        code = 0
    finally:
        os._exit(code)


def count_seconds(budget: Budget) -> float:
    megabytes = min(max(budget.file_bytes, budget.max_bytes or 0) / 2**20, 1e6)
    return SECONDS + SECONDS_PER_MB * megabytes


def limit_process(budget: Budget, more_bytes: int = 0) -> None:
    """Bound the memory and the time of this process by the size of what it reads.

    `more_bytes` are those of a library that needs memory of its own.
    """
    if resource is None:
        return
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc").is_dir() else 0
    if pages:
        more = more_bytes + max(MEMORY_BYTES, budget.max_bytes or 0)
        limit = min(pages * resource.getpagesize() + more, 2**62)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    seconds = int(used + count_seconds(budget)) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _read_all(path: str | os.PathLike[str], budget: Budget) -> str:
    """What is wrong with the file, in one line; nothing where it can be read.

    Only what fails in the reading itself: of what the guard refuses, this process says more.
    """
    with h5py.File(path, "r") as file:
        source = Source(Budget(budget.file_bytes, budget.max_bytes))
        try:
            _read_group(SafeGroup(file.id, source), "", 0)
        except DataError as error:
            return str(error)
        return ""


def _read_group(group: SafeGroup, path: str, depth: int) -> None:
    try:
        group.attributes()
        names = group.names() if depth < _DEPTH else []
    except DataError:
        return
    for name in names:
        try:
            found = group.get(name)
        except DataError:
            continue
        inner = f"{path}/{name}" if path else name
        if isinstance(found, SafeGroup):
            _read_group(found, inner, depth + 1)
        elif found is not None and found.address in group.source.compressed:
            length = found.shape[0] if found.shape else 1
            rows = max(1, _BLOCK_BYTES // max(1, found.nbytes // max(1, length)))
            for start in range(0, length, rows):
                with one_line(inner):
                    found.read(start, start + rows)
