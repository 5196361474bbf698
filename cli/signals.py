"""Ctrl-C and the other signals that ask a long command to stop."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any


@dataclass
class Stop:
    """Says whether a signal has asked the command to stop, and which signal it was."""

    signal_number: int = 0
    is_heard: bool = False
    """Whether the command has asked for the flag since the signal came."""

    def is_set(self) -> bool:
        self.is_heard = self.signal_number != 0
        return self.is_heard


@contextmanager
def catch_signals(*, impatient: bool = False) -> Iterator[Stop]:
    """Turn the first Ctrl-C, SIGTERM or loss of the terminal into a flag.

    The command stops between two writes, so that no file is torn. A second signal raises
    KeyboardInterrupt. With `impatient`, an environment may run in this very process and hang.
    Then the first signal raises `Stuck` if nobody has asked for the flag some seconds later.
    """
    from grd_offline.fleet.watch import STOP_SECONDS, Stuck

    stop = Stop()

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.signal_number:
            raise KeyboardInterrupt
        stop.signal_number = number
        if impatient:
            signal.setitimer(signal.ITIMER_REAL, STOP_SECONDS)

    def wake(number: int, frame: FrameType | None) -> None:
        if not stop.is_heard:
            raise Stuck

    handlers: dict[int, Any] = {signal.SIGINT: handle, signal.SIGTERM: handle}
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup
        handlers[signal.SIGHUP] = handle
    if impatient:
        handlers[signal.SIGALRM] = wake
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield stop
    finally:
        if impatient:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)
