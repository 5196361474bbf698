"""Reading datasets that are compressed with deflate, without HDF5's own filters.

HDF5 unpacks a chunk until its stream ends, however little the dataset says that it holds: a
megabyte can become a gigabyte. Here no chunk is unpacked beyond its declared size, at the same
speed, and each one once while it is in use.
"""

from __future__ import annotations

import itertools
import math
import zlib
from collections import OrderedDict
from typing import Any

import numpy as np
from h5py import h5d, h5p, h5z
from numpy.typing import NDArray

from grd_offline.core.errors import DataError

CACHE_BYTES = 32 * 2**20
_CHECKSUM_BYTES = 4


class Unpacker:
    """One dataset whose filters are deflate, and perhaps shuffle and a checksum."""

    def __init__(
        self,
        identifier: h5d.DatasetID,
        plan: h5p.PropDCID,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
    ) -> None:
        self._identifier, self._shape, self._dtype = identifier, shape, dtype
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
        first = range(start - start % self._chunk[0], stop, self._chunk[0])
        others = [
            range(0, n, part) for n, part in zip(self._shape[1:], self._chunk[1:], strict=True)
        ]
        for offset in itertools.product(first, *others):
            begin, end = max(start, offset[0]), min(stop, offset[0] + self._chunk[0])
            there = [slice(begin - start, end - start)]
            here = [slice(begin - offset[0], end - offset[0])]
            for place, n, part in zip(offset[1:], self._shape[1:], self._chunk[1:], strict=True):
                length = min(part, n - place)
                there.append(slice(place, place + length))
                here.append(slice(0, length))
            rows[tuple(there)] = self._load(offset)[tuple(here)]
        return rows

    def _load(self, offset: tuple[int, ...]) -> NDArray[Any]:
        chunk = self._cache.pop(offset, None)
        if chunk is None:
            chunk = self._unpack(offset)
        self._cache[offset] = chunk
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
