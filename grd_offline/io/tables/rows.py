"""Rows of numbers that are kept in a temporary file while they come, and then mapped from it."""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray


class Rows:
    """One growing array. A table larger than memory has room here."""

    def __init__(self, dtype: DTypeLike) -> None:
        self._file = tempfile.TemporaryFile(prefix="grd-offline-")  # noqa: SIM115
        self._dtype = np.dtype(dtype)
        self._shape: tuple[int, ...] = (0,)

    def close(self) -> None:
        """Let go of the file; what `finish` gave stays."""
        self._file.close()

    def add(self, block: NDArray[Any]) -> None:
        """Add some rows."""
        values = np.ascontiguousarray(block, self._dtype)
        if values.size:
            self._file.write(values.reshape(-1).view(np.uint8).data)
        self._shape = (self._shape[0] + len(values), *values.shape[1:])

    def finish(self) -> NDArray[Any]:
        """All rows, mapped from the file, which goes when the array does."""
        if 0 in self._shape:
            return np.zeros(self._shape, self._dtype)
        self._file.flush()
        # As a plain array: slices of a memmap are slow to make.
        return np.asarray(np.memmap(self._file, self._dtype, "r", shape=self._shape))
