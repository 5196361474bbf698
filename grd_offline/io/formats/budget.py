"""Limits on the cost of reading a file of unknown origin.

A file of a few kilobytes can claim gigabytes, name one object a million times, or cut its data
into chunks of one byte. So each file gets one budget, in proportion to its size, and everything
that is looked at or read is paid from it once. `--max-size` lifts it.
"""

from __future__ import annotations

from grd_offline.core.errors import DataError

FREE_BYTES = 16 * 2**20
EXPANSION = 20
"""Data may take this many times the size of their file: real states compress far less."""
FREE_COUNT = 10_000
BYTES_PER_LINK = 64
BYTES_PER_CHUNK = 64
"""Each link and each chunk of an honest file takes more than this, with what it leads to."""
BYTES_PER_EPISODE = 16
ATTRIBUTES_PER_OBJECT = 1_000


class Budget:
    """The budget that is left for one file."""

    def __init__(self, file_bytes: int, max_bytes: int | None = None) -> None:
        size = max(file_bytes, max_bytes or 0)
        self.file_bytes, self.max_bytes = file_bytes, max_bytes
        self._bytes = max(FREE_BYTES + EXPANSION * file_bytes, max_bytes or 0)
        self._limit = self._bytes
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
