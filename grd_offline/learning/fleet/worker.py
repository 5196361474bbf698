"""One protocol for workers, whatever they do.

A worker holds a task. It takes orders from a pipe, gives each to its task, and sends the reply
back. While no order has come, it lets its task go on with background work. A `DataError` of the
task is the worker's last reply. A closed pipe tells a worker to leave.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from multiprocessing import connection
from typing import TYPE_CHECKING, Any, Protocol

from grd_offline.core.errors import DataError
from grd_offline.core.process import GRACE_SECONDS, Process

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

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
