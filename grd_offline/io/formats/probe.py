"""A first reading of what HDF5 has to unpack, by a child process that may die.

Unpacking is where HDF5 runs the most code on bytes that a stranger chose: a chunk can be made to
crash it, or to grow from kilobytes into gigabytes, whatever its dataset declares. For deflate
`unpack` stands in for it. For the other filters it happens first in a fork of this process, under
limits on memory and time, and its end says whether this process may do the same. Where a process
cannot fork, or not safely, it is a new process of Python. There is no limit on memory outside of
Linux, and on Windows the limit on time is one of the clock. Data that are not
compressed are copied as they are and are not read twice: with many short episodes that took 2.1
times as long (50 episodes in Minari's layout, 263 ms instead of 125), with one compressed table
1.5 times.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

import h5py

from grd_offline.core.errors import DataError
from grd_offline.core.process import Process, ProcessDied
from grd_offline.io.formats.guard import Budget, SafeDataset, SafeGroup, Source

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

MEMORY_BYTES = 256 * 2**20
"""More than this process has, for the library itself and one chunk at a time."""
SECONDS, SECONDS_PER_MB = 4.0, 1.0
_BLOCK_BYTES = 8 * 2**20
_DEPTH = 16
_MESSAGE_BYTES = 500
_TOO_LONG = -signal.SIGXCPU if hasattr(signal, "SIGXCPU") else None
_START_SECONDS = 20.0
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
        if not reader.connection.poll(_START_SECONDS + _count_seconds(budget)):
            raise DataError("takes too long to read for a file of its size")
        return 0, reader.receive()
    except ProcessDied:
        return reader.process.exitcode or 1, ""
    finally:
        reader.end()


def read_limited(pipe: Connection[Any, Any], path: str | os.PathLike[str], budget: Budget) -> None:
    """Read a file in a process of its own, and tell what is wrong with it."""
    _limit(budget)
    pipe.send(_read_all(path, budget)[:_MESSAGE_BYTES])


def _become_reader(path: str | os.PathLike[str], budget: Budget, writer: int) -> None:
    """The life of the child: never returns."""
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for stream in (1, 2):  # whatever a crash prints is not for the user
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
        _limit(budget)
        message = _read_all(path, budget)
        os.write(writer, message.encode("utf-8", "replace")[:_MESSAGE_BYTES])
        code = 0
    finally:
        os._exit(code)


def _count_seconds(budget: Budget) -> float:
    megabytes = min(max(budget.file_bytes, budget.max_bytes or 0) / 2**20, 1e6)
    return SECONDS + SECONDS_PER_MB * megabytes


def _limit(budget: Budget) -> None:
    if resource is None:
        return
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc").is_dir() else 0
    if pages:
        more = max(MEMORY_BYTES, budget.max_bytes or 0)
        limit = min(pages * resource.getpagesize() + more, 2**62)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    seconds = int(used + _count_seconds(budget)) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _read_all(path: str | os.PathLike[str], budget: Budget) -> str:
    """What is wrong with the file, in one line; nothing where it can be read.

    Only what fails in the reading itself: of what the guard refuses, this process says more.
    """
    with h5py.File(path, "r") as file:
        source = Source(Budget(budget.file_bytes, budget.max_bytes))
        return _read_group(SafeGroup(file.id, source), "", 0)


def _read_group(group: SafeGroup, path: str, depth: int) -> str:
    try:
        group.attributes()
        names = group.names() if depth < _DEPTH else []
    except DataError:
        return ""
    for name in names:
        try:
            found = group.get(name)
        except DataError:
            continue
        inner = f"{path}/{name}" if path else name
        if isinstance(found, SafeGroup):
            message = _read_group(found, inner, depth + 1)
        else:
            is_compressed = found is not None and found.address in group.source.compressed
            message = _read_dataset(found, inner) if found is not None and is_compressed else ""
        if message:
            return message
    return ""


def _read_dataset(dataset: SafeDataset, path: str) -> str:
    try:
        if not dataset.shape:
            dataset.read()
            return ""
        rows = max(1, _BLOCK_BYTES // max(1, dataset.nbytes // max(1, dataset.shape[0])))
        for start in range(0, dataset.shape[0], rows):
            dataset.read(start, start + rows)
    except DataError as error:
        return f"{path}: {error.reason}"
    return ""
