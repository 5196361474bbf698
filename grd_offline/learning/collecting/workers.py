"""Episodes from one or several workers, handed on in order."""

import multiprocessing
from collections import deque
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from grd_offline.core.errors import DataError
from grd_offline.core.observer import NOBODY, Observer
from grd_offline.core.process import ProcessDied
from grd_offline.io.formats.record import Header, Record
from grd_offline.learning.collecting.runner import EpisodeRunner
from grd_offline.learning.collecting.settings import CollectSettings
from grd_offline.learning.fleet import worker as processes
from grd_offline.learning.fleet.watch import (
    HangWatch,
    Heartbeat,
    Stuck,
    make_heartbeat,
    watch_this_process,
)

EPISODES_QUEUED = 2
"""A worker process is given so many episodes at a time, so that it never waits for the next."""
EPISODES_AHEAD = 4
"""Number of episodes that each worker may begin before the one that is due. This bounds memory."""


@dataclass(eq=False)
class EpisodeWorker:
    """A worker, and the episodes that it was given."""

    worker: processes.Worker
    heartbeat: Heartbeat
    most_queued: int
    queue: deque[int] = field(default_factory=deque)
    """Episodes that were given to the worker and are not back yet, in order."""
    has_failed: bool = False

    def describe(self) -> str:
        return f"episode {self.queue[0]}{self.worker.label}"

    def receive(self) -> tuple[int, Record | DataError]:
        """The next episode, or the error that ended it. A worker that failed has nothing more."""
        index = self.queue[0]
        result: Record | DataError | None
        try:
            result = self.worker.receive()
        except ProcessDied as death:
            result = DataError(f"the worker process died {death}", episode=index)
        except DataError as error:
            result = error
        assert result is not None
        self.has_failed = isinstance(result, DataError)
        self.queue.popleft()
        return index, result


def run_episodes(
    settings: CollectSettings, observer: Observer = NOBODY
) -> tuple[Header, Generator[Record, None, None]]:
    """The header of a new dataset, and its episodes one by one, in order.

    Episodes are run while they are asked for. Closing the generator ends the workers. When the
    observer says to stop, episodes that are finished still come, and no more.
    """
    runner = EpisodeRunner(settings)
    workers = min(settings.workers, settings.episodes)
    if workers == 1:
        return runner.header, _run_here(runner, observer)
    runner.close()
    return runner.header, _run_in_workers(settings, workers, observer)


def _run_here(runner: EpisodeRunner, observer: Observer) -> Generator[Record, None, None]:
    """Run episodes in this process. A thread watches the environment."""
    here = EpisodeWorker(processes.InProcessWorker(lambda: runner), runner.heartbeat, most_queued=1)
    with watch_this_process(here.heartbeat, here.describe, observer.on_warning):
        yield from _run([here], _number(runner.settings), observer)


def _run_in_workers(
    settings: CollectSettings, count: int, observer: Observer
) -> Generator[Record, None, None]:
    memory = multiprocessing.get_context("spawn").RawArray("q", count)
    workers = []
    for index in range(count):
        worker = processes.make_worker(partial(_make_runner, settings, memory, index))
        heartbeat = make_heartbeat(memory, index)
        workers.append(EpisodeWorker(worker, heartbeat, EPISODES_QUEUED))
    yield from _run(workers, _number(settings), observer)


def _number(settings: CollectSettings) -> range:
    """The numbers of the episodes."""
    return range(settings.first_episode, settings.first_episode + settings.episodes)


def _make_runner(settings: CollectSettings, memory: Any, index: int) -> EpisodeRunner:
    return EpisodeRunner(settings, make_heartbeat(memory, index))


def _run(workers: list[EpisodeWorker], episodes: range, observer: Observer) -> Iterator[Record]:
    """Give episodes to workers that are free, and pass the results on in order."""
    started, watch = [], HangWatch(observer.on_warning)
    results: dict[int, Record | DataError] = {}
    waiting, due = deque(episodes), episodes.start
    try:
        for each in workers:
            each.worker.start()
            started.append(each.worker)
        while due < episodes.stop:
            stopping = observer.should_stop()
            if not stopping:
                _hand_out(workers, waiting, due + EPISODES_AHEAD * len(workers))
            try:
                results.update(worker.receive() for worker in _wait(workers, watch))
            except Stuck:
                return
            while due in results:
                result = results.pop(due)
                if isinstance(result, DataError):
                    # Errors wait for their turn, so that every run ends with the same error.
                    # A signal for the whole process group may have ended a worker.
                    if observer.should_stop():
                        return
                    raise result
                due += 1
                yield result
            if stopping:
                return
    finally:
        processes.end_workers(started)


def _hand_out(workers: list[EpisodeWorker], waiting: deque[int], limit: int) -> None:
    for depth in range(1, EPISODES_QUEUED + 1):
        for worker in workers:
            is_free = not worker.has_failed and len(worker.queue) < min(depth, worker.most_queued)
            if is_free and waiting and waiting[0] < limit:
                worker.queue.append(waiting.popleft())
                worker.worker.send(worker.queue[-1])


def _wait(workers: list[EpisodeWorker], watch: HangWatch) -> list[EpisodeWorker]:
    """Wait a moment. Gives the workers that have replied or died while they had work."""
    busy = [worker for worker in workers if worker.queue and not worker.has_failed]
    for worker in workers:
        if worker in busy:
            watch.look(id(worker), int(worker.heartbeat[0]), worker.describe)
        else:
            watch.forget(id(worker))
    ready = (
        processes.find_ready([worker.worker for worker in busy], processes.POLL_SECONDS)
        if busy
        else []
    )
    return [worker for worker, is_ready in zip(busy, ready, strict=True) if is_ready]
