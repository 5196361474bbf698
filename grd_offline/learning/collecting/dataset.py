"""Collect episodes and write them to a file."""

import itertools
import os
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grd_offline.core.errors import DataError, StorageError
from grd_offline.core.observer import NOBODY, Observer
from grd_offline.core.words import count
from grd_offline.io import datasets
from grd_offline.io.files.storage import check_file, storage_errors
from grd_offline.io.formats.record import Record
from grd_offline.learning.collecting.settings import CollectSettings
from grd_offline.learning.collecting.workers import run_episodes


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
