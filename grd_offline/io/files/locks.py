"""Locks between processes, on every system.

A lock is an empty file that one process holds. The package `filelock` does the holding: by the
kernel on Linux, macOS and Windows, so that the lock of a process that died is free at once, and
elsewhere by the process number in the file. The file is removed when the lock is let go.
"""

from __future__ import annotations

import errno
import os
import stat
import warnings
from contextlib import suppress
from pathlib import Path

from grd_offline.core.errors import StorageError

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # that the system itself has no locks: they work all the same
    from filelock import BaseFileLock, FileLock, SoftFileLock, Timeout, UnixFileLock

LOCK_FILE = ".lock"
"""Name of the lock file inside a folder."""
WAIT_SECONDS = 0.1
"""A lock that another process holds is asked for again for so long."""


class Lock:
    """A lock that this process holds until `release`, or until it ends."""

    def __init__(self, held: BaseFileLock | None, descriptor: int | None) -> None:
        self.descriptor = descriptor
        """What a child process can inherit to hold the lock as well. None if there is none."""
        self._held = held
        self._process = os.getpid()

    @property
    def is_held(self) -> bool:
        """Whether there is a lock at all: on a file system without locks nothing is held."""
        return self._held is not None

    def release(self) -> None:
        """Let go, and remove the lock file. A second call does nothing."""
        held, self._held, self.descriptor = self._held, None, None
        if held is None or os.getpid() != self._process:
            return
        if isinstance(held, UnixFileLock):
            # While it is held: whoever waits for it sees that the file is gone, and makes it anew.
            with suppress(OSError):
                os.unlink(held.lock_file)
        with suppress(OSError):
            held.release()


def take_lock(path: Path) -> Lock:
    """Hold a lock file, which is made if it is missing.

    BlockingIOError where another process holds it, StorageError where it is a link or no regular
    file. On a file system without locks nothing is held.
    """
    _check_plain(path)
    borrowed: list[int] = []
    is_soft = issubclass(FileLock, SoftFileLock)
    held = FileLock(
        path,
        timeout=WAIT_SECONDS,
        poll_interval=WAIT_SECONDS / 10,
        thread_local=False,
        on_acquired=None if is_soft else borrowed.append,
    )
    try:
        held.acquire()
    except Timeout:
        raise BlockingIOError(errno.EAGAIN, "another process holds it") from None
    except OSError as error:
        if error.errno in _WITHOUT_LOCKS:
            return Lock(None, None)
        raise
    return Lock(held, borrowed[0] if borrowed else None)


_WITHOUT_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL}


def _check_plain(path: Path) -> None:
    """Refuse a link, a pipe or a second name of another file, which somebody may have planted."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        raise StorageError(f"{path}: is a link or no regular file, not followed: remove it")
