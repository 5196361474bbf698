"""A watch that notices environments that hang.

Whoever steps an environment counts in a heartbeat: up before each call and up after it. A count
that stands still says that nothing happens. An odd count says that a call is running.
"""

import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grd_offline.core.errors import DataError
from grd_offline.core.observer import Warn

SILENT_SECONDS = 60.0
"""After so many seconds without a step, a warning is printed."""
STOP_SECONDS = 3.0
"""A command that is to stop waits for an environment for so many seconds."""
LOOK_SECONDS = 1.0
"""Seconds between two looks at an environment of this process."""
Heartbeat = NDArray[np.int64]
"""One number, in memory that the process which watches can see."""


def make_heartbeat(memory: Any = None, index: int = 0) -> Heartbeat:
    """The heartbeat at that index of shared memory. Without memory, nobody watches it."""
    return np.zeros(1, np.int64) if memory is None else np.ndarray(1, np.int64, memory, 8 * index)


class Hung(DataError):
    """An environment did not answer while the command was to stop."""


class Stuck(KeyboardInterrupt):
    """Raised by a signal handler when an environment of this process hangs and has to be left."""


class HangWatch:
    """Warns once of each environment that has been silent for long."""

    def __init__(self, warn: Warn = lambda text: None) -> None:
        self._warn = warn
        self._seen: dict[Hashable, tuple[Any, float, float]] = {}
        self._told: set[Hashable] = set()

    def look(self, key: Hashable, heartbeat: Any, describe: Callable[[], str]) -> None:
        """Compare a heartbeat with the last look at it."""
        now = time.monotonic()
        known = self._seen.get(key)
        if known is None or known[0] != heartbeat:
            self._seen[key] = (heartbeat, now, time.time())
            self._told.discard(key)
        elif now - known[1] >= SILENT_SECONDS and key not in self._told:
            self._told.add(key)
            since = time.strftime("%H:%M:%S", time.localtime(known[2]))
            self._warn(
                f"{describe()}: no step for {now - known[1]:.0f} s, since {since}: the "
                "environment hangs, or its process was stopped (Ctrl-C ends the command and keeps "
                "what is finished)"
            )

    def forget(self, key: Hashable) -> None:
        """Nobody waits for that environment any more."""
        self._seen.pop(key, None)
        self._told.discard(key)


@contextmanager
def watch_this_process(
    heartbeat: Heartbeat, describe: Callable[[], str], warn: Warn
) -> Iterator[None]:
    """Watch an environment that this process steps itself, from a thread."""
    done = threading.Event()

    def look() -> None:
        watch = HangWatch(warn)
        while not done.wait(LOOK_SECONDS):
            count = int(heartbeat[0])
            if count % 2:  # inside a call of the environment
                watch.look(0, count, describe)

    threading.Thread(target=look, daemon=True).start()
    try:
        yield
    finally:
        done.set()
