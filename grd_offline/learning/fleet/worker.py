"""One protocol for workers, whatever they do, and a watch that notices environments that hang.

A worker holds a task. It takes orders from a pipe, gives each to its task, and sends the reply
back. While no order has come, it lets its task go on with background work. A `DataError` of the
task is the worker's last reply. A closed pipe tells a worker to leave.

Whoever steps an environment counts in a heartbeat: up before each call and up after it. A count
that stands still says that nothing happens. An odd count says that a call is running.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import connection
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from grd_offline.core.errors import DataError
from grd_offline.core.observer import Warn
from grd_offline.core.process import GRACE_SECONDS, Process

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

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


POLL_SECONDS = 0.2
"""Whoever waits for workers looks up after so many seconds."""


class WorkerTask(Protocol):
    """What a worker does. By itself, a task has no background work."""

    @property
    def has_background_work(self) -> bool:
        """Whether `advance` has anything to do."""
        return False

    def carry_out(self, order: Any) -> Any | None:
        """Carry out an order. The reply may also come later, from `advance`."""

    def advance(self) -> Any | None:
        """Do a little background work. Gives the reply when a piece of it is finished."""
        return None

    def close(self) -> None:
        """Close the environments."""


class InProcessWorker:
    """A worker without a process: its task runs in this process when a reply is asked for."""

    process = None
    label = ""

    def __init__(self, make_task: Callable[[], WorkerTask]) -> None:
        self._make_task = make_task

    def start(self) -> None:
        self._task = self._make_task()
        self._orders: deque[Any] = deque()

    def send(self, order: Any) -> None:
        self._orders.append(order)

    def receive(self) -> Any | None:
        """Carry out the next order, or go on with background work."""
        if self._orders:
            return self._task.carry_out(self._orders.popleft())
        return self._task.advance() if self._task.has_background_work else None

    def let_go(self) -> None:
        self._task.close()

    def end(self, deadline: float) -> None:
        """There is no process to wait for."""


Worker = Process | InProcessWorker


def make_worker(make_task: Callable[[], WorkerTask]) -> Process:
    """A worker in a process of its own."""
    return Process(_work, make_task, imports_script=True)


def find_ready(workers: Sequence[Worker], timeout: float) -> list[bool]:
    """Wait until some workers have replied or died. Says of each whether it has.

    A worker of this process is always ready.
    """
    remote = [worker for worker in workers if isinstance(worker, Process)]
    if len(remote) < len(workers):
        return [True] * len(workers)
    ready = connection.wait([worker.connection for worker in remote], timeout)
    # A process that a dead worker left behind can hold its pipe open.
    return [worker.connection in ready or not worker.process.is_alive() for worker in remote]


def end_workers(workers: Sequence[Worker]) -> None:
    """Tell all workers to leave, and kill those that are still there a moment later."""
    for worker in workers:
        worker.let_go()
    deadline = time.monotonic() + GRACE_SECONDS
    for worker in workers:
        worker.end(deadline)


def _work(pipe: Connection[Any, Any], make_task: Callable[[], WorkerTask]) -> None:
    """The life of a worker process: orders come first, background work while there are none."""
    task: WorkerTask | None = None
    try:
        task = make_task()
        while True:
            if task.has_background_work and not pipe.poll():
                reply = task.advance()
            else:
                reply = task.carry_out(pipe.recv())
            if reply is not None:
                pipe.send(reply)
    except DataError as error:
        pipe.send(error)
        # The worker stays until it is told to leave, so that its end is not taken for a death.
        while True:
            pipe.recv()
    finally:
        if task is not None:
            task.close()
