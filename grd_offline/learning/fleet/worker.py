"""One protocol for worker processes, whatever they do.

A worker holds a task. It takes orders from a pipe, gives each to its task, and sends the reply
back. While no order has come, it lets its task go on with background work. A `DataError` of the
task is the worker's last reply. A closed pipe tells a worker to leave.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import connection
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from grd_offline.core.errors import DataError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

GRACE_SECONDS = 1.0
"""A worker that was told to leave has so many seconds before it is killed."""
POLL_SECONDS = 0.2
"""Whoever waits for workers looks up after so many seconds."""

Order = TypeVar("Order")
Reply = TypeVar("Reply")
_Order = TypeVar("_Order", contravariant=True)
_Reply = TypeVar("_Reply", covariant=True)


class Task(Protocol[_Order, _Reply]):
    """What a worker does. By itself, a task has no background work."""

    @property
    def has_background_work(self) -> bool:
        """Whether `advance` has anything to do."""
        return False

    def carry_out(self, order: _Order) -> _Reply | None:
        """Carry out an order. The reply may also come later, from `advance`."""

    def advance(self) -> _Reply | None:
        """Do a little background work. Gives the reply when a piece of it is finished."""
        return None

    def close(self) -> None:
        """Close the environments."""


class WorkerDied(Exception):
    """A worker process ended by itself. The text says how."""


class InProcessWorker(Generic[Order, Reply]):
    """A worker without a process: its task runs in this process when a reply is asked for."""

    process = None
    label = ""

    def __init__(self, make_task: Callable[[], Task[Order, Reply]]) -> None:
        self._make_task = make_task

    def start(self) -> None:
        self._task = self._make_task()
        self._orders: deque[Order] = deque()

    def send(self, order: Order) -> None:
        self._orders.append(order)

    def receive(self) -> Reply | None:
        """Carry out the next order, or go on with background work."""
        if self._orders:
            return self._task.carry_out(self._orders.popleft())
        return self._task.advance() if self._task.has_background_work else None

    def let_go(self) -> None:
        self._task.close()

    def end(self, deadline: float) -> None:
        """There is no process to wait for."""


class WorkerProcess(Generic[Order, Reply]):
    """A worker in a process of its own."""

    process: multiprocessing.process.BaseProcess

    def __init__(self, make_task: Callable[[], Task[Order, Reply]]) -> None:
        self._make_task = make_task

    def start(self) -> None:
        """Start the process. A worker that has died can be started again."""
        context = multiprocessing.get_context("spawn")
        self.connection: Connection[Order, Reply | DataError]
        self.connection, theirs = context.Pipe()
        self.process = context.Process(
            target=_work, args=(self._make_task, theirs), name="grd-offline-worker", daemon=True
        )
        with _prepare_for_start():
            self.process.start()
        theirs.close()

    def send(self, order: Order) -> None:
        # A broken pipe means that the worker died, which shows when its reply is due.
        with suppress(OSError):
            self.connection.send(order)

    def receive(self) -> Reply | None:
        """The next reply, or the error that ended the task."""
        try:
            if not self.process.is_alive() and not self.connection.poll():
                raise EOFError
            reply = self.connection.recv()
        except (EOFError, OSError):
            raise WorkerDied(self._describe_death()) from None
        if isinstance(reply, DataError):
            raise reply
        return reply

    def let_go(self) -> None:
        self.connection.close()

    def end(self, deadline: float) -> None:
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


Worker = WorkerProcess[Order, Reply] | InProcessWorker[Order, Reply]


def find_ready(workers: Sequence[Worker[Order, Reply]], timeout: float) -> list[bool]:
    """Wait until some workers have replied or died. Says of each whether it has.

    A worker of this process is always ready.
    """
    remote = [worker for worker in workers if isinstance(worker, WorkerProcess)]
    if len(remote) < len(workers):
        return [True] * len(workers)
    ready = connection.wait([worker.connection for worker in remote], timeout)
    # A process that a dead worker left behind can hold its pipe open.
    return [worker.connection in ready or not worker.process.is_alive() for worker in remote]


def end_workers(workers: Sequence[Worker[Order, Reply]]) -> None:
    """Tell all workers to leave, and kill those that are still there a moment later."""
    for worker in workers:
        worker.let_go()
    deadline = time.monotonic() + GRACE_SECONDS
    for worker in workers:
        worker.end(deadline)


@contextmanager
def _prepare_for_start() -> Iterator[None]:
    """A worker process starts with one thread and does not hear Ctrl-C.

    A blocked signal stays blocked in child processes, so that a Ctrl-C while they import does not
    end them. This process receives it when the signal is unblocked. Windows cannot block signals:
    there a worker hears Ctrl-C until it has imported what it needs.
    """
    can_block = hasattr(signal, "pthread_sigmask")
    if can_block:
        from multiprocessing import resource_tracker

        # Started now, because it unblocks the signal when it starts.
        resource_tracker.ensure_running()
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT]) if can_block else ()
    try:
        yield
    finally:
        if can_block:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _work(
    make_task: Callable[[], Task[Order, Reply]], pipe: Connection[Reply | DataError, Order]
) -> None:
    """The life of a worker process: orders come first, background work while there are none."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(os, "setpgid"):
        os.setpgid(0, 0)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    task: Task[Order, Reply] | None = None
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
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
    if task is not None:
        task.close()


def _leave_with_parent() -> None:
    """However the parent process ends, even by kill -9, its workers do not outlive it."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
