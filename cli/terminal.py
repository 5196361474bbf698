"""The terminal: text that fits it without a broken word, and the signals that ask to stop."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import textwrap
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from grd_offline.core.errors import printable

if TYPE_CHECKING:
    from rich.console import Console

_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:%|±|s|min|h|B|kB|MB|GB|TB)(?:[ .,;:)/]|$))")
_GLUE = "\0"
_GAP = 2
FILE_WIDTH = 140
"""Letters in a line of a table that is not printed to a terminal."""


def wrap(text: str, width: int) -> list[str]:
    """Lines of at most `width` characters. A word that is longer has a line of its own."""
    glued = _BEFORE_UNIT.sub(_GLUE, text)
    lines = textwrap.wrap(glued, max(width, 1), break_long_words=False, break_on_hyphens=False)
    return [line.replace(_GLUE, " ") for line in lines] or [""]


def echo(text: str, err: bool = False) -> None:
    """Print lines without what would steer a terminal.

    In a terminal that is too narrow for them, no word is broken.
    """
    lines = [printable(line) for line in text.split("\n")]
    stream = sys.stderr if err else sys.stdout
    if stream.isatty():
        width = shutil.get_terminal_size().columns
        lines = [part for line in lines for part in wrap(line, width)]
    click.echo("\n".join(lines), err=err)


def say(text: str) -> None:
    """Print a line about the progress of a command, on stderr."""
    with suppress(OSError):  # the terminal may be gone
        echo(text, err=True)


def print_warning(text: str) -> None:
    echo(f"warning: {text}", err=True)


def print_text(console: Console, text: str, style: str = "", indent: str = "") -> None:
    """Print a paragraph; lines after the first are indented."""
    from rich.text import Text

    first, *others = wrap(printable(text), console.width - len(indent))
    for line in (first, *(f"{indent}{other}" for other in others)):
        console.print(Text(line, style=style), soft_wrap=True)


def print_facts(console: Console, facts: Mapping[str, str]) -> None:
    """Print a name and a text in each row: side by side, or below each other if it is narrow."""
    from rich.text import Text

    width = max(len(name) for name in facts) + _GAP
    is_narrow = 3 * width > console.width
    indent = " " * (_GAP if is_narrow else width)
    for name, text in facts.items():
        lines = wrap(printable(text), console.width - len(indent))
        head = Text(name, style="bold")
        if is_narrow and name:
            console.print(head, soft_wrap=True)
        elif not is_narrow:
            head.append(" " * (width - len(name)))
            console.print(head + Text(lines.pop(0)), soft_wrap=True)
        for line in lines:
            console.print(Text(f"{indent}{line}"), soft_wrap=True)


def print_table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], words: Collection[str]
) -> None:
    """Print a table whose columns hold words or numbers. A row with one entry is a heading."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for title in titles:  # Text, because names of methods are no markup
        if title in words:
            table.add_column(Text(title), overflow="fold")
        else:
            table.add_column(Text(title), justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*map(Text, row), style="bold" if len(row) == 1 < len(titles) else None)
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = FILE_WIDTH
    console.print(table)


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
    import socket  # slow for a help text

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
