"""The result of an earlier try: whether its checkpoint is whole, and how it is kept.

A training may have taken days. So its result is never deleted: where a job begins anew, a result
with a checkpoint gets another name. A try that went on and failed says little about the
checkpoint, because the disk may be full or a package missing. The checkpoint itself is looked at.
"""

from __future__ import annotations

import os
import stat
import struct
import zipfile
import zlib
from pathlib import Path

from grd_offline.io.files.plain import MISFITS, READ_FLAGS
from grd_offline.io.files.storage import PLAIN_FILE

CHECKPOINT_FILE = "checkpoint.pt"
_DAMAGES = (*MISFITS, zipfile.BadZipFile, zlib.error, struct.error, EOFError)
"""What reading a damaged archive raises. An OSError says nothing about what is in it."""


def has_checkpoint(result: Path) -> bool:
    """Whether there is a checkpoint that a training can go on from. Links are not followed."""
    return not result.is_symlink() and (result / CHECKPOINT_FILE).is_file()


def is_damaged(result: Path) -> bool:
    """Whether the checkpoint of a result is cut off, changed, or of another kind.

    A checkpoint is an archive that holds a checksum for each of its parts, which are read one
    after the other. A checkpoint that cannot be read at the moment does not count as damaged.
    """
    path = result / CHECKPOINT_FILE
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            if sum(entry.file_size for entry in entries) > path.stat().st_size:
                return True  # torch does not compress
            is_kept = any(entry.filename.endswith("/data.pkl") for entry in entries)
            return not is_kept or archive.testzip() is not None
    except OSError:
        return False
    except _DAMAGES:
        return True


def find_free_name(result: Path) -> Path:
    """A name that is free beside a result: `result-1`, `result-2` and so on."""
    number = 1
    while os.path.lexists(place := result.with_name(f"{result.name}-{number}")):
        number += 1
    return place


def read_end(path: Path, size: int) -> bytes:
    """The last bytes of a regular file. A link is not followed, and a named pipe not waited for."""
    descriptor = os.open(path, READ_FLAGS | PLAIN_FILE)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(f"{path} is not a regular file")
        file.seek(max(0, status.st_size - size))
        return file.read(size)
