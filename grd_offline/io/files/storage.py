"""Writing so that nothing is lost, and nothing outside is touched.

Whatever is written goes into a hidden staging file (or folder) beside its destination, is synced
to the disk, checked, and only then renamed into place: a full disk, a kill or a Ctrl-C leaves the
old file or the whole new one. A staging file has a name that nobody can guess, so that no link can
lie in wait for it. A lock file beside it keeps a second writer away. The lock is free again when
the process dies, and the next writer removes what was left.

A lock is an empty file that one process holds. The package `filelock` does the holding: by the
kernel on Linux, macOS and Windows, so that the lock of a process that died is free at once, and
elsewhere by the process number in the file. The file is removed when the lock is let go.

A destination that is a link is followed only inside its own folder.

Where a system lacks a call, the next best is done. Windows cannot sync a folder to the disk. Only
Linux can swap two folders in one step: elsewhere a kill at that very moment leaves the old folder
under a hidden name that ends in `.old`.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import io
import os
import re
import secrets
import shutil
import stat
import sys
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from grd_offline.core.errors import DataError, StorageError

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


PLAIN_FILE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
"""Flags for opening what may be a link or a named pipe, where the system has them."""
BINARY = getattr(os, "O_BINARY", 0)
"""Bytes are written as they are, also on Windows."""
_OPENS_FOLDERS = hasattr(os, "O_DIRECTORY")
"""Whether a folder has a descriptor, and a file that is open for reading can be synced."""


class OutputFile(io.FileIO):
    """A file that takes every write and remembers the first one that failed.

    HDF5 writes through this object. It cannot be told of a full disk without being left in a
    state in which it aborts the process at exit, so it is not told: after a failure the rest is
    swallowed, HDF5 closes in peace, and `check` raises what went wrong.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "r+", closefd=False)
        self._descriptor = descriptor
        self._failure: OSError | None = None

    def fileno(self) -> int:
        """Refuse: whoever wrote to the descriptor itself would pass by `write`."""
        raise io.UnsupportedOperation("fileno")

    def check(self) -> None:
        """Raise the first failure, if there was one."""
        if self._failure is not None:
            raise self._failure

    def write(self, data: Any) -> int:
        """Write all of it; a failure is kept for `check`."""
        view, begin, done = memoryview(data).cast("B"), self.tell(), 0
        try:
            while self._failure is None and done < len(view):
                if hasattr(os, "pwrite"):
                    done += os.pwrite(self._descriptor, view[done:], begin + done)
                else:
                    os.lseek(self._descriptor, begin + done, os.SEEK_SET)
                    done += os.write(self._descriptor, view[done:])
        except OSError as failure:
            self._failure = failure
        self.seek(begin + len(view))
        return len(view)

    def truncate(self, size: int | None = None) -> int:
        """Set the file's size; a failure is kept for `check`."""
        size = self.tell() if size is None else size
        try:
            if self._failure is None:
                os.ftruncate(self._descriptor, size)
        except OSError as failure:
            self._failure = failure
        return size


@contextmanager
def replace_file(
    path: str | os.PathLike[str], *, verify: Callable[[Path], None] | None = None
) -> Iterator[OutputFile]:
    """Write a file in full or not at all.

    `verify` is called with the finished staging file, before it takes its place, and raises if
    what it finds is not what was meant.
    """
    check_file(path)
    with _staged(path) as (destination, staging):
        # It is closed before it is renamed: Windows renames no file that is open.
        with _opened(staging, os.O_RDWR | os.O_CREAT | os.O_EXCL | PLAIN_FILE) as descriptor:
            if destination.exists() and hasattr(os, "fchmod"):
                os.fchmod(descriptor, stat.S_IMODE(destination.stat().st_mode))
            output = OutputFile(descriptor)
            yield output
            output.check()
            os.fsync(descriptor)
        if verify is not None:
            verify(staging)
        os.replace(staging, destination)


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
    check_folder(path, is_replaceable=is_replaceable)
    with _staged(path) as (destination, staging):
        try:
            os.mkdir(staging)
            yield staging
            for root, _, files in os.walk(staging):
                for inner in (*(Path(root) / name for name in files), Path(root)):
                    _sync(inner)
            if verify is not None:
                verify(staging)
            if destination.exists():
                # What somebody put there meanwhile stays, and so do the rights of the folder.
                check_folder(path, is_replaceable=is_replaceable)
                staging.chmod(stat.S_IMODE(destination.stat().st_mode))
                _exchange(staging, destination)
                shutil.rmtree(staging)
            else:
                os.rename(staging, destination)
        # Files in it are named as a user knows them.
        except StorageError as error:
            raise StorageError(str(error).replace(str(staging), os.fspath(path))) from error
        except DataError as error:
            if error.file is not None:
                error.file = error.file.replace(str(staging), os.fspath(path))
            raise


def append_file(path: Path, data: bytes) -> None:
    """Add to the end of a file that this program made: all of it or, on a full disk, nothing."""
    with storage_errors(path):
        if path.is_symlink():
            raise OSError(errno.ELOOP, "is a link, which is not followed")
        with _opened(path, os.O_WRONLY | os.O_APPEND | PLAIN_FILE) as descriptor:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise OSError(errno.EINVAL, "is not a regular file")
            try:
                done = 0
                while done < len(data):
                    done += os.write(descriptor, data[done:])
            except OSError:
                os.ftruncate(descriptor, status.st_size)
                raise


def make_folder(root: Path, *parts: str) -> Path:
    """A folder inside `root`, made where it is missing; a link that leads out is refused."""
    folder = root.joinpath(*parts)
    with storage_errors(folder):
        top = _resolve(root)
        for depth in range(1, len(parts) + 1):
            inner = root.joinpath(*parts[:depth])
            if not _resolve(inner).is_relative_to(top):
                raise OSError(
                    errno.ELOOP, f"{inner} is a link that leads out of {root}, not followed"
                )
            inner.mkdir(exist_ok=True)
    return folder


def check_file(path: str | os.PathLike[str]) -> None:
    """Refuse a place that `replace_file` would refuse, before any work is spent."""
    with storage_errors(path):
        destination = _find_destination(Path(path))
        if destination.exists() and not destination.is_file():
            raise OSError(errno.EEXIST, "exists and is not a regular file")
        _check_parent(destination)


def check_folder(path: str | os.PathLike[str], *, is_replaceable: Callable[[Path], bool]) -> None:
    """Refuse a place that `replace_folder` would refuse, before any work is spent."""
    with storage_errors(path):
        folder = _find_destination(Path(path))
        _check_parent(folder)
        if not os.access(folder.parent, os.W_OK):
            raise OSError(errno.EACCES, "no permission to write there")
        if not folder.exists():
            return
        if not folder.is_dir():
            raise OSError(errno.EEXIST, "exists and is not a folder")
        if any(folder.iterdir()) and not is_replaceable(folder):
            raise OSError(errno.EEXIST, "exists and holds something else: choose another name")


def holds_only(folder: Path, names: Collection[str]) -> bool:
    """Whether all that is in a folder, at any depth, has one of these names.

    A name is a path below the folder; `*` stands for any part of a file's name. Folders are those
    that the names need: another one is not known even if it is empty.
    """
    known = {parent for name in names for parent in Path(name).parents}
    for root, folders, files in os.walk(folder):
        inner = Path(root).relative_to(folder)
        paths = [(inner / name).as_posix() for name in files]
        is_named = all(any(fnmatchcase(path, name) for name in names) for path in paths)
        if not is_named or not {inner / name for name in folders} <= known:
            return False
    return True


def check_writable(path: Path) -> None:
    """Refuse a place where a folder, and the folders above it, cannot be made or written to."""
    with storage_errors(path):
        if not os.access(_find_existing(_resolve(path)), os.W_OK):
            raise OSError(errno.EACCES, "no permission to write there")


def _check_parent(destination: Path) -> None:
    """Refuse a destination whose folder is missing."""
    parent = destination.parent
    if _find_existing(parent) != parent:
        raise OSError(errno.ENOENT, f"there is no folder {parent}")


def _find_existing(folder: Path) -> Path:
    """This folder, or the nearest one above it that exists. A file in its place is refused."""
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir():
        raise OSError(errno.ENOTDIR, f"{folder} is not a folder")
    return folder


@contextmanager
def create_file(path: Path) -> Iterator[OutputFile]:
    """Write a new file inside a folder that `replace_folder` handed out."""
    with _opened(path, os.O_RDWR | os.O_CREAT | os.O_EXCL) as descriptor:
        output = OutputFile(descriptor)
        yield output
        output.check()


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    descriptor = os.open(path, flags | BINARY, 0o666)
    try:
        yield descriptor
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
    if not isinstance(filename, str | os.PathLike):
        return False
    try:
        return Path(filename).resolve().is_relative_to(path.resolve().parent)
    except (OSError, RuntimeError):
        return True


def _find_destination(path: Path) -> Path:
    """Where a path leads: through links above it, and through itself inside its folder only."""
    if path.name in ("", "..") or not path.is_symlink():
        return _resolve(path)
    target = _resolve(path)
    if not target.is_relative_to(_resolve(path.parent)):
        raise OSError(
            errno.ELOOP,
            f"is a link that leads out of its folder, not followed: remove it, or name {target}",
        )
    return target


def _resolve(path: Path) -> Path:
    try:
        return path.resolve()
    except RuntimeError:  # what Python before 3.13 makes of it
        raise OSError(errno.ELOOP, "is a link that leads to itself") from None


def lock_folder(path: Path) -> Lock:
    """Hold a folder against others that do the same, until the lock is released.

    BlockingIOError where another holds it. On a file system without locks nothing is held.
    """
    return take_lock(path / LOCK_FILE)


@contextmanager
def _staged(path: str | os.PathLike[str]) -> Iterator[tuple[Path, Path]]:
    """Where a path leads, and a name for its staging file or folder."""
    with storage_errors(path):
        destination = _find_destination(Path(path))
        name = destination.name
        if len(os.fsencode(name)) > 200:  # with what is added, file systems take 255 bytes
            name = hashlib.sha256(os.fsencode(name)).hexdigest()
        staging = destination.with_name(f".{name}.{secrets.token_hex(8)}.partial")
        lock = take_lock(staging.with_suffix(LOCK_FILE))
        try:
            _clear_leftovers(destination.parent, f".{name}.", staging)
            yield destination, staging
            _sync(destination.parent)
        except BaseException:
            _remove(staging)
            raise
        finally:
            lock.release()


def _clear_leftovers(folder: Path, prefix: str, own: Path) -> None:
    """Remove what a killed writer of the same file left; refuse if another one is at work."""
    pattern = re.compile(re.escape(prefix) + r"[0-9a-f]{16}(\.partial|\.lock)")
    with os.scandir(folder) as entries:
        names = {entry.name for entry in entries if pattern.fullmatch(entry.name)}
    others = {(folder / name).with_suffix(own.suffix) for name in names} - {own}
    for path in others:
        try:
            lock = take_lock(path.with_suffix(LOCK_FILE))
        except BlockingIOError:
            raise OSError(errno.EBUSY, "another process is writing it") from None
        except OSError:  # a link, or of another user
            continue
        try:
            if lock.is_held and _is_own(path):
                _remove(path)
        finally:
            lock.release()


def _is_own(path: Path) -> bool:
    """Whether something is there that is no link and belongs to this user."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    user = os.geteuid() if hasattr(os, "geteuid") else status.st_uid
    return not stat.S_ISLNK(status.st_mode) and status.st_uid == user


def _remove(path: Path) -> None:
    """Remove a staging file or folder; links are removed, never followed."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    if not _OPENS_FOLDERS and path.is_dir():
        return
    with _opened(path, os.O_RDONLY if _OPENS_FOLDERS else os.O_RDWR) as descriptor:
        os.fsync(descriptor)


_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def _exchange(new: Path, old: Path) -> None:
    """Swap two folders, on Linux in one step, so that there is no moment without either."""
    library = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
    renameat2 = getattr(library, "renameat2", None)
    if renameat2 is not None:
        failed = renameat2(
            _AT_FDCWD, os.fsencode(new), _AT_FDCWD, os.fsencode(old), _RENAME_EXCHANGE
        )
        if not failed:
            return
        if ctypes.get_errno() not in (errno.ENOSYS, errno.EINVAL):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    aside = new.with_suffix(".old")
    os.rename(old, aside)
    try:
        os.rename(new, old)
    except BaseException:
        os.rename(aside, old)
        raise
    os.rename(aside, new)
