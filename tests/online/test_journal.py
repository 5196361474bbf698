"""Stops, kills and full disks in any order leave the tables of a run that nothing has stopped."""

import errno
import os
import random
from contextlib import suppress

import point_mass
import pytest
from online_runs import Stopper, make_settings, read_table

from grd_offline import StorageError
from grd_offline.core.observer import Observers
from grd_offline.io.files import storage
from grd_offline.learning.online.run import OnlineFolder, OnlineRun

pytestmark = pytest.mark.long

TIMES = int(os.environ.get("GRD_OFFLINE_FUZZ", "1"))
SEQUENCES = TIMES
WRITES = ("write", "pwrite", "fsync", "replace", "rename", "ftruncate", "mkdir")


class Killed(BaseException):
    """What a kill is to everything that would clean up."""


class Trouble:
    """From the N-th call that changes the disk on, every call fails."""

    def __init__(self, patch, at, error):
        self.left, self.error = at, error
        for name in WRITES:
            patch.setattr(storage.os, name, self._wrap(getattr(os, name)))

    def _wrap(self, function):
        def call(*arguments, **options):
            self.left -= 1
            if self.left < 0:
                raise self.error
            return function(*arguments, **options)

        return call


def choose_settings(chance):
    return make_settings(
        steps=1200, warmup=100, eval_every=400, eval_episodes=1, round_steps=100,
        round_updates=25, hidden=(4,), batch=8, overlap=chance.random() < 0.5,
        methods=("oracle",),
    )  # fmt: skip


def advance(path, settings, polls=10**9, *, is_new=False):
    """Begin or continue a run, until it is asked so many times whether to stop."""
    left = iter(range(polls))
    folder = OnlineFolder(path)
    folder._open_board = lambda step: None  # TensorBoard's files are its own
    stopper = Stopper(lambda: next(left, None) is None)
    try:
        with OnlineRun(settings, workers=0, observer=Observers([folder, stopper])) as run:
            if is_new:
                folder.create(run, command=[], workers=0, device="cpu")
            else:
                folder.resume(run)
            run.train()
            folder.save(run)
            return run.is_done()
    finally:
        folder.close()


def read_journal(path):
    """The rows of both tables without times."""
    return {
        name: [
            {k: v for k, v in row.items() if not k.endswith("seconds")}
            for row in read_table(path / name)
        ]
        for name in ("evaluations.csv", "log.csv")
    }


@pytest.mark.parametrize("number", range(SEQUENCES))
def test_a_run_with_troubles_has_the_tables_of_one_without(number, tmp_path):
    point_mass.register()
    chance = random.Random(number)
    settings = choose_settings(chance)
    advance(tmp_path / "whole", settings, is_new=True)
    expected = read_journal(tmp_path / "whole")
    assert len(expected["evaluations.csv"]) == 3
    assert len(expected["log.csv"]) == 1
    path = tmp_path / "run"
    advance(path, settings, chance.randrange(1, 30), is_new=True)
    is_done = False
    for _ in range(chance.randrange(2, 8)):
        polls, at = chance.choice([1, 3, 10, 40]), chance.randrange(1, 60)
        kind = chance.choice(["stop", "kill", "full"])
        with pytest.MonkeyPatch.context() as patch:
            if kind == "kill":
                Trouble(patch, at, Killed())
            elif kind == "full":
                Trouble(patch, at, OSError(errno.ENOSPC, "No space left on device"))
            with suppress(Killed, StorageError, RuntimeError):  # torch makes the last of a kill
                is_done = advance(path, settings, polls)
    if not is_done:
        assert advance(path, settings)
    assert read_journal(path) == expected
