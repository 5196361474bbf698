"""Worker processes: how they start, how they end, and what ended them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker

GRACE_SECONDS = 1.0


POLL_SECONDS = 0.2


def describe_death(process: multiprocessing.process.BaseProcess) -> str:
    """What ended a worker: its exit code or a signal."""
    process.join(GRACE_SECONDS)
    code = process.exitcode
    if code is not None and code < 0:
        return f"of signal {signal.Signals(-code).name}"
    return f"with exit code {code}"


@contextmanager
def environment_for_workers() -> Iterator[None]:
    """What a process must be given before it starts: one thread each, and deaf to Ctrl-C.

    A blocked signal stays blocked in the children, so that a Ctrl-C while they import does not
    end them; ours is delivered when it is unblocked.
    """
    # Started now, because it unblocks the signal when it starts.
    resource_tracker.ensure_running()
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def become_worker() -> None:
    """What a process does first: deaf to the terminal's signals, gone when its parent is."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.setpgid(0, 0)
    threading.Thread(target=_leave_with_parent, daemon=True).start()


def _leave_with_parent() -> None:
    """However the parent ends, kill -9 included, its workers do not outlive it."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def count_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
