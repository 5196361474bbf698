"""Online runs on the point mass, in this process: whole, stopped, and continued."""

import csv
import os
import subprocess
import sys
import time
from pathlib import Path

import point_mass
from places import HELPERS

from grd_offline.core.observer import Observer, Observers
from grd_offline.learning.online.run import OnlineFolder, OnlineRun
from grd_offline.learning.settings import OnlineSettings


def make_settings(**changes):
    given = {
        "steps": 3000, "warmup": 400, "round_steps": 20, "round_updates": 20, "batch": 64,
        "hidden": (32, 32), "learning_rate": 3e-3, "model_rate": 3e-3, "eval_every": 1000,
        "policy_discount": 0.9, "seeds": 1, "eval_episodes": 10,
    }  # fmt: skip
    return OnlineSettings(**{"environment": point_mass.ID, **given, **changes})


class Keeper(Observer):
    """Keeps the evaluations of a run."""

    def __init__(self):
        self.evaluations = []

    def on_result(self, work, result):
        self.evaluations.append(result)


class Warned(Observer):
    """Keeps the warnings."""

    def __init__(self):
        self.told = []

    def on_warning(self, text):
        self.told.append(text)


class Stopper(Observer):
    """Stops when something is true."""

    def __init__(self, is_enough):
        self.should_stop = is_enough


def train_while(run, is_enough):
    """Train until something is true. The observer of the run is one that others can join."""
    run.observer.all.append(Stopper(is_enough))
    run.train()
    run.observer.all.pop()


def train(settings, **options):
    keeper = Keeper()
    with OnlineRun(settings, workers=0, observer=keeper, **options) as run:
        run.train()
        return run, keeper.evaluations


def weights_of(run):
    return run.learner.export_actors()


def train_until(path, settings, is_enough, *observers, board=True, workers=0):
    """Train in a folder until a stop, and save a checkpoint; gives the run."""
    folder = OnlineFolder(path)
    with OnlineRun(settings, workers=workers, observer=Observers([folder, *observers])) as run:
        folder.create(run, command=[], workers=0, device="cpu")
        if not board:
            folder._board = None
        train_while(run, lambda: is_enough(run))
        folder.save(run)
        folder.close()
    return run


def write_stopped(path, at, *, board=True, **changes):
    """The folder of a small run that was stopped at a step."""
    point_mass.register()
    small = {
        "round_steps": 20, "hidden": (4,), "batch": 8, "eval_every": 100, "eval_episodes": 1,
        "round_updates": 1,
    }  # fmt: skip
    settings = OnlineSettings(point_mass.ID, **{**small, **changes})
    train_until(path, settings, lambda run: run.step >= at, board=board)
    return path


def start_command(folder, *arguments):
    """Start a command that trains small networks, in a process of its own."""
    return subprocess.Popen(
        [sys.executable, HELPERS / "small_networks.py", *arguments],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def read_table(path):
    with Path(path).open(newline="") as file:
        return list(csv.DictReader(file))


def wait_for_rows(process, table, rows=1):
    """Wait until the table of a command that runs has so many rows."""
    deadline = time.monotonic() + 600
    while not table.exists() or len(read_table(table)) < rows:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
