"""Writing so that nothing is lost.

Whatever is written goes into a hidden partial file (or folder) beside its destination, is synced
to the disk, checked, and only then renamed into place: a full disk, a kill or a Ctrl-C leaves the
old file or the whole new one. The partial file is also the lock against a second writer; the
kernel lets go of it when the process dies, and the next writer clears what was left.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from grd_offline.errors import StorageError


class OutputFile:
    """A file that takes every write and remembers the first one that failed.

    HDF5 writes through this object. It cannot be told of a full disk without being left in a
    state in which it aborts the process at exit, so it is not told: after a failure the rest is
    swallowed, HDF5 closes in peace, and `check` raises what went wrong.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._position = 0
        self._failure: OSError | None = None

    def check(self) -> None:
        """Raise the first failure, if there was one."""
        if self._failure is not None:
            raise self._failure

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move the position, as files do."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size()}
        self._position = base[whence] + offset
        return self._position

    def tell(self) -> int:
        """The position."""
        return self._position

    def write(self, data: bytes | memoryview) -> int:
        """Write all of it; a failure is kept for `check`."""
        view = memoryview(data).cast("B")
        done = 0
        try:
            while self._failure is None and done < len(view):
                done += os.pwrite(self._descriptor, view[done:], self._position + done)
        except OSError as failure:
            self._failure = failure
        self._position += len(view)
        return len(view)

    def readinto(self, buffer: bytearray | memoryview) -> int:
        """Read into a buffer."""
        count = os.preadv(self._descriptor, [buffer], self._position)
        self._position += count
        return count

    def read(self, count: int = -1) -> bytes:
        """Read bytes."""
        data = os.pread(self._descriptor, self._size() if count < 0 else count, self._position)
        self._position += len(data)
        return data

    def truncate(self, size: int | None = None) -> int:
        """Set the file's size."""
        size = self._position if size is None else size
        try:
            if self._failure is None:
                os.ftruncate(self._descriptor, size)
        except OSError as failure:
            self._failure = failure
        return size

    def flush(self) -> None:
        """Nothing is buffered here."""

    def _size(self) -> int:
        return os.fstat(self._descriptor).st_size


@contextmanager
def replace_file(
    path: str | os.PathLike[str], *, verify: Callable[[Path], None] | None = None
) -> Iterator[OutputFile]:
    """Write a file in full or not at all.

    `verify` is called with the finished partial file, before it takes its place, and raises if
    what it finds is not what was meant.
    """
    destination = Path(path).resolve()
    with storage_errors(path):
        if destination.exists() and not destination.is_file():
            raise OSError(errno.EEXIST, "exists and is not a regular file")
        partial = _partial(destination)
        descriptor = _lock(partial, os.O_RDWR | os.O_CREAT)
        try:
            os.ftruncate(descriptor, 0)
            if destination.exists():
                os.fchmod(descriptor, stat.S_IMODE(destination.stat().st_mode))
            output = OutputFile(descriptor)
            yield output
            output.check()
            os.fsync(descriptor)
            if verify is not None:
                verify(partial)
            os.replace(partial, destination)
            _sync_folder(destination.parent)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)


@contextmanager
def replace_folder(
    path: str | os.PathLike[str],
    *,
    is_replaceable: Callable[[Path], bool],
    verify: Callable[[Path], None] | None = None,
) -> Iterator[Path]:
    """Write a folder in full or not at all: fill the folder that is handed out.

    A folder that is there already is replaced as a whole, so only one that `is_replaceable`
    recognises as an earlier output, or an empty one, is.
    """
    destination = Path(path).resolve()
    check_folder(path, is_replaceable=is_replaceable)
    with storage_errors(path):
        partial = _partial(destination)
        partial.mkdir(exist_ok=True)
        descriptor = _lock(partial, os.O_RDONLY | os.O_DIRECTORY)
        try:
            _clear(partial)
            yield partial
            _sync_tree(partial)
            if verify is not None:
                verify(partial)
            if destination.exists():
                _exchange(partial, destination)
                shutil.rmtree(partial)
            else:
                os.rename(partial, destination)
            _sync_folder(destination.parent)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        finally:
            os.close(descriptor)


def check_folder(path: str | os.PathLike[str], *, is_replaceable: Callable[[Path], bool]) -> None:
    """Refuse a place that `replace_folder` would refuse, before any work is spent."""
    folder = Path(path).resolve()
    with storage_errors(path):
        if not folder.parent.is_dir():
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        if not os.access(folder.parent, os.W_OK):
            raise OSError(errno.EACCES, "no permission to write there")
        if not folder.exists():
            return
        if not folder.is_dir():
            raise OSError(errno.EEXIST, "exists and is not a folder")
        if any(folder.iterdir()) and not is_replaceable(folder):
            raise OSError(errno.EEXIST, "exists and holds something else: choose another name")


def check_writable(path: Path) -> None:
    """Refuse a place where a folder, and the folders above it, cannot be made or written to."""
    with storage_errors(path):
        above = path.resolve()
        while not above.exists():
            above = above.parent
        if not above.is_dir():
            raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if not os.access(above, os.W_OK):
            raise OSError(errno.EACCES, "no permission to write there")


@contextmanager
def create_file(path: Path) -> Iterator[OutputFile]:
    """Write a new file inside a folder that `replace_folder` handed out."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        output = OutputFile(descriptor)
        yield output
        output.check()
    finally:
        os.close(descriptor)


@contextmanager
def storage_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Errors of the file system in this path, in one line that names it."""
    try:
        yield
    except StorageError:
        raise
    except OSError as failure:
        if failure.filename is not None and not _is_within(failure.filename, Path(path)):
            raise
        reason = failure.strerror or str(failure)
        raise StorageError(f"{os.fspath(path)}: cannot be written: {reason}") from failure


def _is_within(filename: object, path: Path) -> bool:
    folder = path.resolve().parent
    return isinstance(filename, str | os.PathLike) and Path(filename).resolve().is_relative_to(
        folder
    )


def _partial(destination: Path) -> Path:
    return destination.with_name(f".{destination.name}.partial")


def lock_folder(path: Path) -> int:
    """Hold a folder against others that do the same; gives a descriptor, whose closing ends it.

    BlockingIOError where another holds it. On a file system without locks nothing is held.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise
    except OSError:
        pass
    return descriptor


def _lock(partial: Path, flags: int) -> int:
    while True:
        descriptor = os.open(partial, flags, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Another writer may have renamed the file away between the open and the lock.
            if os.path.samestat(os.fstat(descriptor), os.stat(partial)):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            raise OSError(errno.EBUSY, "another process is writing it") from None
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _clear(folder: Path) -> None:
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def _sync_tree(folder: Path) -> None:
    for root, _, files in os.walk(folder):
        for name in files:
            descriptor = os.open(Path(root) / name, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        _sync_folder(Path(root))


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def _exchange(new: Path, old: Path) -> None:
    """Swap two folders in one step, so that there is no moment without either."""
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is not None:
        failed = renameat2(
            _AT_FDCWD, os.fsencode(new), _AT_FDCWD, os.fsencode(old), _RENAME_EXCHANGE
        )
        if not failed:
            return
        if ctypes.get_errno() not in (errno.ENOSYS, errno.EINVAL):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    aside = old.with_name(f".{old.name}.old")
    os.rename(old, aside)
    os.rename(new, old)
    os.rename(aside, new)
