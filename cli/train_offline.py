"""`grd-offline train-offline`: policies from a dataset alone, by the rewards of one's choice."""

import sys
from pathlib import Path
from typing import Any

import click

from grd_offline.io.files import name_path
from grd_offline.learning.offline.settings import SOURCES, OfflineSettings

from .options import (
    NamesType,
    command,
    device_option,
    is_given,
    max_size_option,
    options,
    out_option,
    setting_options,
    table_options,
    workers_option,
)
from .report import leave_report
from .text import print_warning

training_options = options(
    setting_options(
        OfflineSettings,
        *("algorithm", "seeds", "seed", "updates", "batch", "discount", "alpha", "expectile"),
        *("temperature", "pessimism", "averaging", "eval_every", "eval_episodes", "env_args"),
        "max_episode_steps",
    ),
    max_size_option,
    device_option,
    workers_option("Number of processes that evaluate. 0 evaluates in the process of the command."),
    table_options,
)
"""The options that `train-offline` and `judge` share."""


@command()
@click.argument("file")
@setting_options(OfflineSettings, "rewards", "environment", rewards={"type": NamesType(SOURCES)})
@training_options
@out_option("Folder of the run.  [default: runs/FILE-ALGO]")
def train_offline(file: str, out: Path | None, **given: Any) -> None:
    """Train policies from a dataset, without an environment.

    FILE is relabelled data that `grd-offline decompose` wrote, or any dataset that `grd-offline
    inspect` reads. With --env, the policies are evaluated in an environment during the training, by
    the true return. Ctrl-C ends the run and keeps the policies so far.

    \b
    Examples:
      grd-offline train-offline hc-grd/relabelled.h5 --env HalfCheetah
      grd-offline train-offline hc-grd/relabelled.h5 --env HalfCheetah --algo td3bc \\
          --rewards relabelled,observed,true --seeds 5 --device cuda --out runs/hc
      grd-offline train-offline hc-grd/relabelled.h5 --updates 20000
      grd-offline train-offline hc-grd/relabelled.h5 --env HalfCheetah --pessimism 1
      grd-offline train-offline trips.csv --columns actions=throttle,return=fuel --rewards observed
      grd-offline plot runs/hc
      grd-offline collect --env HalfCheetah --policy runs/hc --out better.h5

    All reward sources and seeds are members of one run. They are trained side by side,
    which saves time on an accelerator.
    """
    from grd_offline.learning.offline.training import train_offline

    from .display import Terminal, print_closing

    tell_unused(given["algorithm"])
    folder, line = out or _default_folder(file, given["algorithm"]), ["grd-offline", *sys.argv[1:]]
    with Terminal() as terminal:
        result = train_offline(file, folder, observer=terminal, command=line, **given)
    print_closing(terminal.shown)
    if result.evaluations:
        leave_report(result.folder)
    terminal.tell_end(result, f": {result.folder} holds the policies so far")


def tell_unused(algorithm: str) -> None:
    """Warn of options of the algorithm that was not chosen."""
    for name, owner in (("alpha", "td3bc"), ("expectile", "iql"), ("temperature", "iql")):
        if owner != algorithm and is_given(name):
            print_warning(f"--{name} is an option of {owner}: {algorithm} does not use it")


def _default_folder(file: str, algorithm: str) -> str:
    path = name_path(file)
    # Every decomposition calls its data the same; its folder has the name.
    name = path.parent.name if path.stem == "relabelled" and path.parent.name else path.stem
    return f"runs/{name}-{algorithm}"
