"""Noticing environments that hang.

Whoever steps an environment counts in a `Pulse`: up before each call and up after it. A count that
stands still says that nothing happens, and an odd one says inside of which call.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grd_offline.errors import DataError

SILENT_SECONDS = 60.0
"""Without any step, after which a line says so."""
STOP_SECONDS = 3.0
"""That a command which is to stop waits for an environment."""
Warn = Callable[[str], None]
Pulse = NDArray[np.int64]
"""One number, in memory that who watches can see."""


def make_pulse(memory: Any = None, place: int = 0) -> Pulse:
    """The pulse at that place of shared memory; without, one that nobody watches."""
    return np.zeros(1, np.int64) if memory is None else np.ndarray(1, np.int64, memory, 8 * place)


class Hung(DataError):
    """An environment did not answer while the command was to stop."""


class Stuck(KeyboardInterrupt):
    """Raised by a signal handler when an environment of this process hangs and has to be left."""


class Watch:
    """Tells of those that have been silent for long, each time once."""

    def __init__(self, warn: Warn = lambda text: None) -> None:
        self._warn = warn
        self._seen: dict[Hashable, tuple[Any, float, float]] = {}
        self._told: set[Hashable] = set()

    def look(self, who: Hashable, pulse: Any, describe: Callable[[], str]) -> None:
        """Note how far someone is who is being waited for."""
        now = time.monotonic()
        known = self._seen.get(who)
        if known is None or known[0] != pulse:
            self._seen[who] = (pulse, now, time.time())
            self._told.discard(who)
        elif now - known[1] >= SILENT_SECONDS and who not in self._told:
            self._told.add(who)
            since = time.strftime("%H:%M:%S", time.localtime(known[2]))
            self._warn(
                f"{describe()}: no step for {now - known[1]:.0f} s, since {since}: the "
                "environment hangs, or its process was stopped (Ctrl-C ends the command and keeps "
                "what is finished)"
            )

    def forget(self, who: Hashable) -> None:
        """It is not waited for any more."""
        self._seen.pop(who, None)
        self._told.discard(who)
