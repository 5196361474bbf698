"""Collect episodes with one or several workers, and write them to a file in order."""

import itertools
import multiprocessing
import os
import tempfile
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grd_offline.core.errors import DataError, StorageError
from grd_offline.core.observer import NOBODY, Observer
from grd_offline.core.process import ProcessDied
from grd_offline.core.words import count
from grd_offline.io import datasets
from grd_offline.io.files.storage import check_file, storage_errors
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
    count = min(settings.workers, settings.episodes)
    if count == 1:
        here = EpisodeWorker(
            processes.InProcessWorker(lambda: runner), runner.heartbeat, most_queued=1
        )
        return runner.header, _run([here], settings, observer)
    runner.close()
    memory = multiprocessing.get_context("spawn").RawArray("q", count)
    workers = [
        EpisodeWorker(
            processes.make_worker(partial(EpisodeRunner, settings, memory, index)),
            make_heartbeat(memory, index),
            EPISODES_QUEUED,
        )
        for index in range(count)
    ]
    return runner.header, _run(workers, settings, observer)


def _run(
    workers: list[EpisodeWorker], settings: CollectSettings, observer: Observer
) -> Generator[Record, None, None]:
    """Give episodes to workers that are free, and pass the results on in order."""
    started: list[processes.Worker] = []
    watch = HangWatch(observer.on_warning)
    results: dict[int, Record | DataError] = {}
    episodes = range(settings.first_episode, settings.first_episode + settings.episodes)
    waiting, due, first = deque(episodes), episodes.start, workers[0]
    with ExitStack() as stack:
        if isinstance(first.worker, processes.InProcessWorker):  # then a thread watches it
            stack.enter_context(
                watch_this_process(first.heartbeat, first.describe, observer.on_warning)
            )
        stack.callback(processes.end_workers, started)
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


@dataclass(frozen=True)
class Collected:
    """The result of `collect`."""

    path: Path | None
    """The file. None: `collect` was stopped before there was anything to write."""
    returns: NDArray[np.float64]
    """(episode,) the sum of the delivered rewards."""
    lengths: NDArray[np.int64]
    """(episode,) the number of steps."""
    is_complete: bool
    """Whether the file holds all episodes. If not, its name ends in `.partial` and `.h5`."""


class _NothingFinished(Exception):
    """There is nothing to write."""


def collect(
    environment: str,
    out: str | os.PathLike[str],
    *,
    keep_partial: bool = True,
    observer: Observer = NOBODY,
    **settings: Any,
) -> Collected:
    """Run a policy in an environment and write the episodes into an HDF5 file.

    With several workers, the calling script needs `if __name__ == "__main__":` around its call,
    because each worker imports the script.

    Parameters
    ----------
    environment
        The id of an environment, such as `HalfCheetah`.
    out
        The file to write.
    keep_partial
        Whether finished episodes go into a partial file when the observer says to stop or an
        environment fails. No earlier partial file is replaced.
    observer
        Hears of each episode after it was written, and of environments that hang.
    **settings
        The fields of `CollectSettings`: `episodes`, `policy`, `checkpoints`, `policy_noise`,
        `random_share`, `switch_every`, `seed`, `first_episode`, `workers`, `delay`, `discount`,
        `keep_true_rewards`, `max_episode_steps` and `env_args`.

    Returns
    -------
    Collected
        The file that was written, and the returns and lengths of its episodes.

    Raises
    ------
    DataError
        What is wrong with an argument or an environment.
    StorageError
        Why the file cannot be written.

    Examples
    --------
    >>> import grd_offline
    >>> done = grd_offline.collect("Pendulum", "swing.h5", episodes=3, workers=1)
    >>> len(grd_offline.read("swing.h5"))
    3
    """
    chosen = CollectSettings(environment, **settings)
    out = Path(out)
    _check_out(out)
    header, records = run_episodes(chosen, observer)
    done = _Done(least=1 if keep_partial else chosen.episodes)
    # Whether the file is complete, and so its name, is known only at the end.
    path = _name_partial(out)
    try:
        with closing(records):
            datasets.write_dataset(path, header, done.pass_on(records, chosen, observer))
    except _NothingFinished:
        return done.describe(None, is_complete=False)
    except StorageError as error:
        raise StorageError(str(error).replace(str(path), str(out))) from error
    if done.failure is not None:
        raise _tell_kept(done.failure, path, len(done.returns))
    is_complete = len(done.returns) == chosen.episodes
    if is_complete:
        with storage_errors(out):
            path.replace(out.resolve())
    return done.describe(out if is_complete else path, is_complete=is_complete)


@dataclass
class _Done:
    """The episodes that are finished."""

    least: int
    """With fewer of them, nothing is written."""
    returns: list[float] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    failure: DataError | None = None
    """Why there are no more, if an environment failed."""

    def pass_on(
        self, records: Iterator[Record], settings: CollectSettings, observer: Observer
    ) -> Iterator[Record]:
        """Pass the records on to be written, and count those that were."""
        try:
            for record in records:
                yield record
                self.returns.append(float(record.rewards.sum()))
                self.lengths.append(len(record.rewards))
                observer.on_result(settings, record)
        except DataError as error:
            self.failure = error
        if len(self.returns) < self.least:
            raise self.failure or _NothingFinished

    def describe(self, path: Path | None, *, is_complete: bool) -> Collected:
        lengths = np.array(self.lengths, np.int64)
        return Collected(path, np.array(self.returns), lengths, is_complete)


def _tell_kept(failure: DataError, path: Path, episodes: int) -> DataError:
    kept = f"{failure.reason}; {path.name} holds the {count(episodes, 'episode')} before it"
    return DataError(kept, episode=failure.episode, field=failure.field)


def _check_out(out: Path) -> None:
    """Refuse a file that could not be written or read, before anything is collected."""
    check_destination(out)
    check_file(out)
    datasets.check_ending(out)


def _name_partial(out: Path) -> Path:
    """A name beside `out` that is not taken: NAME.partial.h5, NAME.partial-2.h5, ..."""
    for number in itertools.count(1):
        mark = ".partial" if number == 1 else f".partial-{number}"
        path = out.with_name(f"{out.stem}{mark}{out.suffix or '.h5'}")
        if not os.path.lexists(path):
            return path
    raise AssertionError


def check_destination(out: Path) -> None:
    """Refuse a file that cannot be written before any time is spent."""
    if out.is_dir():
        raise StorageError(f"{out}: is a folder, expected the name of a file")
    if not out.parent.is_dir():
        raise StorageError(f"{out}: cannot be written: the folder {out.parent} does not exist")
    try:
        with tempfile.TemporaryFile(dir=out.parent):
            pass
    except OSError as error:
        raise StorageError(
            f"{out}: cannot be written: {error.strerror} in the folder {out.parent}"
        ) from None
