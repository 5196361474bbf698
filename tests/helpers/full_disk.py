"""`grd-offline` on a disk that is full for one part, until somebody makes room."""

import errno
import os
import sys
from pathlib import Path

from grd_offline.cli import main
from grd_offline.io.files import storage


def fill_disk(room: Path) -> None:
    """Refuse every write until there is a file called `room`."""
    real = os.pwrite

    def write(descriptor, data, place):
        if not room.exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor, data, place)

    storage.os.pwrite = write


if __name__ == "__main__":
    out = Path(sys.argv[sys.argv.index("--out") + 1])
    if out.stem.endswith("1"):
        fill_disk(out.with_name("room"))
    main()
