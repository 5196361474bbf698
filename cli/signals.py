"""Ctrl-C and the other signals that ask a long command to stop."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from .text import say

SAVING = "saving after this round; press Ctrl-C again to quit"
"""What a command says at once when it is asked to stop."""


def _forget_in_child() -> None:
    """A child process must not tell its parent of the signals that it gets itself."""
    with suppress(ValueError, OSError):
        signal.set_wakeup_fd(-1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)


@dataclass
class Stop:
    """Says whether a signal has asked the command to stop, and which signal it was."""

    signal_number: int = 0
    is_heard: bool = False
    """Whether the command has asked for the flag since the signal came."""
    notice: str = ""
    """What the command said when the signal came; empty before."""
    show: Callable[[str], None] = field(default=say)
    """Shows the notice. A display that draws over the terminal sets its own."""

    def is_set(self) -> bool:
        """Whether the command should stop."""
        self.is_heard = self.signal_number != 0
        return self.is_heard

    def leave(self, text: str = "") -> None:
        """End the command with this text and the exit code of the signal, if there was one."""
        if self.signal_number:
            if text:
                say(text)
            raise SystemExit(128 + self.signal_number)

    def acknowledge(self, notice: str) -> None:
        """Show the notice the first time."""
        if not self.notice:
            self.notice = notice
            self.show(notice)


@contextmanager
def catch_signals(*, notice: str = SAVING, impatient: bool = False) -> Iterator[Stop]:
    """Turn the first Ctrl-C, SIGTERM or loss of the terminal into a flag, and show `notice`.

    The command stops between two writes, so that no file is torn. A second signal raises
    KeyboardInterrupt. With `impatient`, an environment may run in this very process and hang.
    Then the first signal raises `Stuck` if nobody has asked for the flag some seconds later.
    """
    from grd_offline.learning.fleet.worker import STOP_SECONDS, Stuck

    stop = Stop()
    can_wake = impatient and hasattr(signal, "setitimer")  # Windows has no timer of this kind

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.signal_number:
            raise KeyboardInterrupt
        stop.signal_number = number
        if can_wake:
            signal.setitimer(signal.ITIMER_REAL, STOP_SECONDS)

    def wake(number: int, frame: FrameType | None) -> None:
        if not stop.is_heard:
            raise Stuck

    handlers: dict[int, Any] = {signal.SIGINT: handle, signal.SIGTERM: handle}
    hang_up = getattr(signal, "SIGHUP", None)
    if hang_up is not None and signal.getsignal(hang_up) != signal.SIG_IGN:  # nohup
        handlers[hang_up] = handle
    asking = frozenset(handlers)
    if can_wake:
        handlers[signal.SIGALRM] = wake
    with _hear_signals(lambda number: stop.acknowledge(notice) if number in asking else None):
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        try:
            yield stop
        finally:
            if can_wake:
                signal.setitimer(signal.ITIMER_REAL, 0)
            for number, handler in before.items():
                signal.signal(number, handler)


@contextmanager
def _hear_signals(hear: Callable[[int], None]) -> Iterator[None]:
    """Call `hear` with the number of each signal, in a thread of its own.

    Python runs its handlers between two of its own instructions. A long computation in a library
    would hold them back, but not this thread.
    """
    receiving, sending = socket.socketpair()
    sending.setblocking(False)
    before = signal.set_wakeup_fd(sending.fileno(), warn_on_full_buffer=False)

    def listen() -> None:
        while numbers := receiving.recv(64):
            for number in numbers:
                if number:  # 0 asks the thread to end
                    hear(number)
            if 0 in numbers:
                return

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        sending.send(b"\0")
        listener.join(timeout=1)
        receiving.close()
        sending.close()
