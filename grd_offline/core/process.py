"""Other Python processes, each with a pipe to this one: a call of a function, or work that goes on.

A process that is started here begins with one thread, does not hear Ctrl-C, and does not outlive
this one, however this one ends.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

GRACE_SECONDS = 1.0
"""A process whose pipe is closed has so many seconds before it is killed."""
_WAIT = 0.2  # seconds after which a wait hears of Ctrl-C, on systems that need it
_START = threading.Lock()


class ProcessDied(Exception):
    """A process ended by itself. The text says how."""


class Process:
    """A process that runs `target(pipe, *arguments)`, a function that a module defines."""

    process: multiprocessing.process.BaseProcess
    connection: Connection[Any, Any]

    def __init__(
        self, target: Callable[..., None], *arguments: Any, imports_script: bool = False
    ) -> None:
        """With `imports_script` the process imports the script of the user, which may register
        environments, and needs `if __name__ == "__main__"`."""
        self._target, self._arguments = target, arguments
        self._imports_script = imports_script

    def start(self) -> None:
        """Start the process. One that has ended can be started again."""
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        arguments = self._target, theirs, *self._arguments
        self.process = context.Process(target=_live, args=arguments, daemon=True)
        with _START, _prepare_for_start(self._imports_script):
            self.process.start()
        theirs.close()

    def send(self, order: Any) -> None:
        # A broken pipe means that the process died, which shows when its reply is due.
        with suppress(OSError):
            self.connection.send(order)

    def receive(self) -> Any:
        """The next reply. One that is an error is raised."""
        try:
            if not self.process.is_alive() and not self.connection.poll():
                raise EOFError
            reply = self.connection.recv()
        except (EOFError, OSError):
            raise ProcessDied(self._describe_death()) from None
        if isinstance(reply, Exception):
            raise reply
        return reply

    def let_go(self) -> None:
        """Tell the process to leave."""
        self.connection.close()

    def end(self, deadline: float = 0.0) -> None:
        """Wait for the process until the deadline, and then kill it."""
        self.process.join(max(0.0, deadline - time.monotonic()))
        self.process.kill()
        self.process.join()

    @property
    def label(self) -> str:
        """The process, as an addition to a message."""
        return f" (worker process {self.process.pid})"

    def _describe_death(self) -> str:
        self.process.join(GRACE_SECONDS)
        code = self.process.exitcode
        if code is not None and code < 0:
            return f"of signal {signal.Signals(-code).name}"
        return f"with exit code {code}"


class Call:
    """A call of a function in a second process. Leaving the `with` block ends the process.

    >>> from math import hypot
    >>> with Call(hypot, 3, 4) as call:
    ...     call.finish()
    (5.0,)
    """

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Begin to call a function that a module defines, with arguments that can be pickled."""
        self.process: Process | None = Process(answer_calls)
        self._answer: tuple[Any] | None = None
        try:
            if getattr(sys, "frozen", False):  # the executable is a program, and no Python
                raise OSError
            self.process.start()
        except (OSError, AssertionError):  # multiprocessing asserts that children are allowed
            self.process = None
        call = function, arguments
        self._thread = threading.Thread(target=self._exchange, args=call, daemon=True)
        self._thread.start()

    def _exchange(self, *call: Any) -> None:
        with suppress(Exception):
            if self.process is not None:
                self.process.send(call)
                self._answer = (self.process.receive(),)

    def finish(self) -> tuple[Any] | None:
        """Wait for the function. Returns its result in a tuple, or None if it did not get to its
        end there: then the caller calls it, and hears of the error."""
        while self._thread.is_alive():
            self._thread.join(_WAIT)
        return self._answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self.process.end()


def answer_calls(pipe: Connection[Any, Any], prepare: Callable[[], None] | None = None) -> None:
    """Answer each call (function, arguments) with its result, or with the error. A target."""
    if prepare is not None:
        prepare()
    silence = os.open(os.devnull, os.O_WRONLY)  # what functions print is no answer
    for stream in (1, 2):
        os.dup2(silence, stream)
    while True:
        function, arguments = pipe.recv()
        try:
            reply = function(*arguments)
        except Exception as error:
            error.add_note(traceback.format_exc())
            reply = error
        pipe.send(reply)


@contextmanager
def _prepare_for_start(imports_script: bool) -> Iterator[None]:
    """What a new process inherits.

    A blocked signal stays blocked in child processes, so that a Ctrl-C while they import does not
    end them. This process receives it when the signal is unblocked. Windows cannot block signals:
    there a process hears Ctrl-C until it has imported what it needs. Modules in the working folder
    are not in the way of Python's own.
    """
    can_block = hasattr(signal, "pthread_sigmask")
    if can_block:
        from multiprocessing import resource_tracker

        # Started now, because it unblocks the signal when it starts.
        resource_tracker.ensure_running()
    threads = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    before = {name: os.environ.get(name) for name in (*threads, "PYTHONSAFEPATH")}
    script = sys.modules["__main__"]
    os.environ.update(dict.fromkeys(before, "1"))
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT]) if can_block else ()
    if not imports_script:
        sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script
        if can_block:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _live(target: Callable[..., None], pipe: Connection[Any, Any], *arguments: Any) -> None:
    """The life of a process. A closed pipe ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(os, "setpgid"):
        os.setpgid(0, 0)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        target(pipe, *arguments)


def _leave_with_parent() -> None:
    """However the parent process ends, even by kill -9, this one does not outlive it."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
