"""Commands of offline training, run in this process, and the data that they are run on."""

import io
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple

import numpy as np
import offline_data
import point_mass
import pytest
from small_networks import small_networks

from grd_offline.cli import main
from grd_offline.io.datasets import Header, Leaf, Record, write_dataset
from grd_offline.learning.settings import OfflineSettings

EPISODES, TRUE = offline_data.make_data(100)
SMALL = (
    *("--env", "Factored", "--env-arg", "length=12", "--env-arg", "states=5"),
    *("--env-arg", "actions=2"),
)
FEW = ("--seeds", 1, "--updates", 40, "--batch", 16, "--eval-every", 10, "--workers", 0)


class Done(NamedTuple):
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


def run_command(folder, *arguments):
    """In this process, which has everything loaded already, with small networks."""
    given, before = [str(argument) for argument in arguments], (sys.argv, os.getcwd())
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), small_networks():
        try:
            sys.argv = ["grd-offline", *given]
            os.chdir(folder)
            with pytest.raises(SystemExit) as stopped:
                main(given)
        finally:
            sys.argv = before[0]
            os.chdir(before[1])
    return Done(stopped.value.code, out.getvalue(), err.getvalue())


def make_settings(**changes):
    given = {
        "rewards": ("true",), "environment": point_mass.ID, "seeds": 2, "updates": 600,
        "batch": 64, "discount": 0.9, "hidden": (32, 32), "learning_rate": 3e-3,
        "eval_every": 300, "eval_episodes": 20,
    }  # fmt: skip
    return OfflineSettings(**{**given, **changes})


def write_file(path, *, truth=True, delay="end", episodes=None, true=None, final=True):
    """The point mass as a file of ours."""
    episodes, true = (EPISODES, TRUE) if episodes is None else (episodes, true)
    parts = np.split(true, np.cumsum(episodes.lengths)[:-1])
    records = [
        Record(
            {"": episode.observations if final else episode.observations[:-1]},
            {"": episode.actions},
            rewards if delay == "step" else episode.rewards,
            episode.terminations,
            episode.truncations,
            extras={"true_rewards": rewards} if truth else {},
        )
        for episode, rewards in zip(episodes, parts, strict=True)
    ]
    leaf = Leaf("", (2,), "float32"), Leaf("", (1,), "float32")
    write_dataset(path, Header((leaf[0],), (leaf[1],), delay=delay), records)


def collect_factored(folder):
    """A small file with the true rewards, by our own collector."""
    done = run_command(
        folder, "collect", *SMALL, "--episodes", 40, "--keep-true-rewards", "--out", "data.h5"
    )
    assert done.returncode == 0, done.stderr
    return folder / "data.h5"
