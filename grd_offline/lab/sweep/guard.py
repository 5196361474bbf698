"""Run a command that ends when its parent does.

python -m grd_offline.lab.sweep.guard PARENT COMMAND...

A sweep that is killed cannot stop its jobs. So the system is asked to send each of them SIGTERM
then, on which a training run saves a checkpoint. Only Linux can do that; elsewhere a job goes on,
and the lock on its folder keeps a new sweep from working on it as well.
"""

import ctypes
import os
import signal
import sys
from contextlib import suppress

_SEND_SIGNAL_WITH_PARENT = 1


def main(arguments: list[str]) -> None:
    """Become the command."""
    parent, *command = arguments
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SEND_SIGNAL_WITH_PARENT, int(signal.SIGTERM))
    if os.getppid() != int(parent):  # it ended before that
        sys.exit(128 + signal.SIGTERM)
    os.execv(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
