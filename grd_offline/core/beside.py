"""One call of a function in a second Python process, beside the work of this one.

`multiprocessing` would run the script of the user again in its new process, where a script does not
guard its main part. The process here imports what the function needs, and nothing else. It gets the
call through a pipe and sends the result back.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

_CHILD = (
    "import pickle, sys; sys.path[:] = pickle.load(sys.stdin.buffer); "
    "from grd_offline.core.beside import main; main()"
)
_LOOK_EVERY = 2.0
_WAIT = 0.2  # seconds after which a wait hears of Ctrl-C, on systems that need it


class Beside:
    """A call in a second process. Leaving the `with` block ends the process.

    >>> from math import hypot
    >>> with Beside(hypot, 3, 4) as call:
    ...     call.finish()
    (5.0,)
    """

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Begin to call a function that a module defines, with arguments that can be pickled."""
        call = pickle.dumps(sys.path) + pickle.dumps((os.getpid(), function, arguments), 5)
        self._answer = b""
        self._process = _start_python()
        self._thread = threading.Thread(target=self._exchange, args=(call,), daemon=True)
        self._thread.start()

    def _exchange(self, call: bytes) -> None:
        if self._process is not None:
            self._answer, _ = self._process.communicate(call)

    def finish(self) -> tuple[Any] | None:
        """Wait for the function. Returns its result in a tuple, or None if it did not get to its
        end there: then the caller calls it, and hears of the error."""
        while self._thread.is_alive():
            self._thread.join(_WAIT)
        if self._process is None or self._process.returncode != 0:
            return None
        return (pickle.loads(self._answer),)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self._process.kill()


def _start_python() -> subprocess.Popen[bytes] | None:
    """Start a Python that waits for a call; None where that is not possible."""
    if getattr(sys, "frozen", False):  # the executable is a program, and no Python
        return None
    try:
        return subprocess.Popen(
            [sys.executable, "-P", "-c", _CHILD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        )
    except OSError:
        return None


def main() -> None:
    """Answer one call: what the second process does."""
    from grd_offline.core.threads import one_numpy_thread

    answers, sys.stdout = sys.stdout.buffer, sys.stderr  # what functions print is no answer
    parent, function, arguments = pickle.load(sys.stdin.buffer)
    follow_parent(parent)
    with one_numpy_thread():
        result = function(*arguments)
    answers.write(pickle.dumps(result, 5))
    answers.flush()


def follow_parent(parent: int) -> None:
    """End this process when the one that started it is gone, and leave Ctrl-C to that one."""

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK_EVERY)
        os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=look, daemon=True).start()
