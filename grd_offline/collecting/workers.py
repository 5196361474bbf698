"""Episodes from several processes, handed on in order."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import connection
from typing import TYPE_CHECKING, Any

from grd_offline.collecting.runner import EpisodeRunner
from grd_offline.collecting.settings import CollectSettings
from grd_offline.errors import DataError
from grd_offline.fleet.processes import (
    GRACE_SECONDS,
    POLL_SECONDS,
    become_worker,
    describe_death,
    environment_for_workers,
)
from grd_offline.fleet.watch import Pulse, Stuck, Warn, Watch, make_pulse
from grd_offline.formats.record import Record

if TYPE_CHECKING:
    from multiprocessing.connection import Connection


def collect_here(
    runner: EpisodeRunner, should_stop: Callable[[], bool], warn: Warn
) -> Generator[Record, None, None]:
    """Episodes made by this process."""
    done = threading.Event()
    index = 0

    def look() -> None:
        watch = Watch(warn)
        while not done.wait(LOOK_SECONDS):
            pulse = int(runner.pulse[0])
            if pulse % 2:  # inside of the environment
                watch.look(0, pulse, lambda: f"episode {index}")

    threading.Thread(target=look, daemon=True).start()
    try:
        for index in range(runner.settings.episodes):
            if should_stop():
                return
            try:
                record = runner.run(index)
            except Stuck:
                return
            yield record
    finally:
        done.set()
        runner.close()


EPISODES_QUEUED = 2
"""Episodes handed to a worker at a time: it never waits for the next, and none holds many."""
EPISODES_AHEAD = 4
"""Episodes per worker that may be finished or begun before the one that is due: bounds memory."""
LOOK_SECONDS = 1.0


@dataclass(eq=False)
class _Worker:
    process: multiprocessing.process.BaseProcess
    connection: Connection[int, Record | DataError]
    pulse: Pulse
    queue: deque[int] = field(default_factory=deque)
    """Episodes handed to it and not yet back, in order."""

    def describe(self) -> str:
        """Who it is, for a warning."""
        return f"episode {self.queue[0]} (worker process {self.process.pid})"


def collect_in_workers(
    settings: CollectSettings, count: int, should_stop: Callable[[], bool], warn: Warn
) -> Generator[Record, None, None]:
    """Episodes made by other processes."""
    workers = _start_workers(settings, count)
    try:
        yield from _in_order(workers, settings.episodes, should_stop, Watch(warn))
    finally:
        _end_workers(workers)


def _in_order(
    workers: list[_Worker], episodes: int, should_stop: Callable[[], bool], watch: Watch
) -> Iterator[Record]:
    """Hand out episodes to whoever is free, and pass the results on in order."""
    results: dict[int, Record | DataError] = {}
    window = EPISODES_AHEAD * len(workers)
    workers = list(workers)
    waiting = deque(range(episodes))
    due = 0
    while due < episodes:
        _hand_out(workers, waiting, due + window)
        for worker in workers:
            if worker.queue:
                watch.look(worker.process.pid, int(worker.pulse[0]), worker.describe)
            else:
                watch.forget(worker.process.pid)
        for worker in _wait(workers):
            index, result = _receive(worker)
            results[index] = result
            if isinstance(result, DataError):
                # It ends the run when its turn comes, so that every run ends with the same error.
                workers.remove(worker)
        stopping = should_stop()
        while due in results:
            result = results.pop(due)
            if isinstance(result, DataError):
                # A signal for the whole process group may have ended a worker.
                if should_stop():
                    return
                raise result
            due += 1
            yield result
        if stopping:
            return


def _hand_out(workers: list[_Worker], waiting: deque[int], limit: int) -> None:
    for depth in range(1, EPISODES_QUEUED + 1):
        for worker in workers:
            if len(worker.queue) < depth and waiting and waiting[0] < limit:
                worker.queue.append(waiting.popleft())
                # A broken pipe means that it died, which shows when its result is due.
                with suppress(OSError):
                    worker.connection.send(worker.queue[-1])


def _wait(workers: list[_Worker]) -> list[_Worker]:
    """Workers that have sent something, or died, while they had something to do."""
    busy = [worker for worker in workers if worker.queue]
    ready = connection.wait([worker.connection for worker in busy], POLL_SECONDS)
    if ready:
        return [worker for worker in busy if worker.connection in ready]
    # A process that a worker left behind can hold its pipe open.
    return [worker for worker in busy if not worker.process.is_alive()]


def _receive(worker: _Worker) -> tuple[int, Record | DataError]:
    index = worker.queue.popleft()
    try:
        if worker.process.is_alive() or worker.connection.poll():
            return index, worker.connection.recv()
    except (EOFError, OSError):
        pass
    cause = describe_death(worker.process)
    return index, DataError(f"the worker process died {cause}", episode=index)


def _start_workers(settings: CollectSettings, count: int) -> list[_Worker]:
    context = multiprocessing.get_context("spawn")
    memory = context.RawArray("q", count)
    workers = []
    with environment_for_workers():
        for place in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_work,
                args=(settings, theirs, memory, place),
                name="grd-offline-collect",
                daemon=True,
            )
            process.start()
            theirs.close()
            workers.append(_Worker(process, ours, make_pulse(memory, place)))
    return workers


def _end_workers(workers: list[_Worker]) -> None:
    """A closed pipe tells a worker to close its environment and leave; then it is made to."""
    for worker in workers:
        worker.connection.close()
    deadline = time.monotonic() + GRACE_SECONDS
    for worker in workers:
        worker.process.join(max(0.0, deadline - time.monotonic()))
        worker.process.kill()
        worker.process.join()


def _work(
    settings: CollectSettings, pipe: Connection[Record | DataError, int], memory: Any, place: int
) -> None:
    """The life of a worker: an episode's number in, the episode or its error out."""
    become_worker()
    runner: EpisodeRunner | DataError
    try:
        runner = EpisodeRunner(settings)
        runner.pulse = make_pulse(memory, place)
    except DataError as error:
        runner = error
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            pipe.send(_attempt(runner, pipe.recv()))
    if isinstance(runner, EpisodeRunner):
        runner.close()


def _attempt(runner: EpisodeRunner | DataError, index: int) -> Record | DataError:
    if isinstance(runner, DataError):
        return runner
    try:
        return runner.run(index)
    except DataError as error:
        return error
