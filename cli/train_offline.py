"""`grd-offline train-offline`: policies from a dataset alone, by the rewards of one's choice."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from grd_offline.files.naming import name_path
from grd_offline.offline.settings import SOURCES, OfflineSettings

from .options import (
    NamesType,
    device_option,
    max_size_option,
    pick_settings,
    print_warning,
    setting_option,
    setting_options,
)
from .report import leave_report
from .signals import Stop, catch_signals
from .train_online import tell_stopped_at_once

if TYPE_CHECKING:
    from grd_offline.offline.data import OfflineData
    from grd_offline.runs.observer import Observer

_SHARED = (
    "algorithm", "seeds", "seed", "updates", "batch", "discount", "alpha", "expectile",
    "temperature", "averaging", "eval_every", "eval_episodes", "env_args", "max_episode_steps",
)  # fmt: skip


def training_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that `train-offline` and `judge` share."""
    others = (
        max_size_option,
        device_option,
        click.option(
            "--workers",
            type=int,
            help="Number of processes that evaluate. 0 evaluates in the process of the command.  "
            "[default: the number of cores]",
        ),
    )
    for option in (*reversed(others), setting_options(OfflineSettings, *_SHARED)):
        command = option(command)
    return command


@click.command(
    epilog="""
    \b
    Examples:
      grd-offline train-offline hc-grd/relabelled.h5 --env HalfCheetah
      grd-offline train-offline hc-grd/relabelled.h5 --env HalfCheetah --algo td3bc \\
          --rewards relabelled,observed,true --seeds 5 --device cuda --out runs/hc
      grd-offline train-offline hc-grd/relabelled.h5 --updates 20000
      grd-offline plot runs/hc
      grd-offline collect --env HalfCheetah --policy runs/hc --out better.h5

    All reward sources and seeds are members of one run: they are trained side by side and cost
    little more than one on an accelerator.
    """
)
@click.argument("file")
@setting_option(OfflineSettings, "rewards", type=NamesType(SOURCES))
@setting_options(OfflineSettings, "environment")
@training_options
@click.option("--out", type=click.Path(), help="Folder of the run.  [default: runs/FILE-ALGO]")
def train_offline(file: str, out: str | None, **options: Any) -> None:
    """Train policies on a dataset alone.

    FILE is what `grd-offline decompose` wrote, or whatever `grd-offline inspect` reads. Evaluation
    is by the true return, while training goes on. Ctrl-C ends the run and keeps what there is.
    """
    from grd_offline.errors import DataError
    from grd_offline.offline.data import load_data
    from grd_offline.offline.run import check_environment
    from grd_offline.offline.run_folder import OfflineFolder

    settings = make_settings(options)
    folder = Path(out or _default_folder(file, settings.algorithm))
    OfflineFolder(folder).check_free()
    find_environment(settings.environment)
    try:
        data = load_data(
            file, max_episode_steps=options["max_episode_steps"], max_bytes=options["max_size"]
        )
        rewards = {name: data.find(name) for name in settings.rewards}
    except DataError as error:
        raise error.at(file=file) from None
    check_environment(settings, data.episodes)
    for warning in data.warnings:
        click.echo(f"note: {warning}", err=True)
    if settings.environment is None:
        click.echo("note: no --env: policies are trained and saved, not evaluated", err=True)
    tell_other_environment(settings, data)
    stop = train(settings, data, rewards, folder, file=file, options=options)
    if stop.is_set():
        raise SystemExit(128 + stop.signal_number)


def make_settings(options: dict[str, Any]) -> OfflineSettings:
    """The settings among the options of `train-offline` and `judge`."""
    _tell_unused(options["algorithm"])
    return OfflineSettings(**pick_settings(OfflineSettings, options))


def _tell_unused(algorithm: str) -> None:
    """Options of the algorithm that was not chosen."""
    given = click.get_current_context().get_parameter_source
    for name, owner in (("alpha", "td3bc"), ("expectile", "iql"), ("temperature", "iql")):
        if owner != algorithm and given(name) is click.core.ParameterSource.COMMANDLINE:
            click.echo(f"warning: --{name} is for {owner}: {algorithm} has no use for it", err=True)


def find_environment(name: str | None) -> None:
    """Refuse an environment that is not there before any time is spent."""
    from grd_offline.environments import resolve_environment_id

    if name is not None:
        resolve_environment_id(name)


def tell_other_environment(settings: OfflineSettings, data: OfflineData) -> None:
    """Where evaluations are not in the environment that the data say they are of."""
    from grd_offline.environments import resolve_environment_id
    from grd_offline.errors import printable

    if settings.environment is None:
        return
    chosen, recorded = resolve_environment_id(settings.environment), data.episodes.environment
    if recorded is not None and chosen.rpartition(":")[2] != recorded.rpartition(":")[2]:
        click.echo(
            f"warning: the data are of {printable(recorded)}, evaluations of {chosen}", err=True
        )
    elif data.env_args is not None and dict(settings.env_args) != dict(data.env_args):
        arguments = " ".join(
            f"--env-arg {printable(name)}={json.dumps(value)}"
            for name, value in data.env_args.items()
        )
        click.echo(
            f"warning: the data are of {chosen} with {arguments or 'no --env-arg'}, evaluations "
            "are not",
            err=True,
        )


def train(
    settings: OfflineSettings,
    data: OfflineData,
    rewards: dict[str, Any],
    folder: Path,
    *,
    file: str,
    options: dict[str, Any],
    observers: Sequence[Observer] = (),
    alone: bool = True,
) -> Stop:
    """Train, show how it goes, and print how it ended; a run that is alone has a table and page."""
    from grd_offline.offline.run import OfflineRun
    from grd_offline.offline.run_folder import OfflineFolder
    from grd_offline.runs.process import choose_device, choose_workers, prepare_process

    from .live import print_closing, show_run

    correlations = {name: data.correlate(values) for name, values in rewards.items()}
    files = OfflineFolder(folder, correlations=correlations)
    device, workers = choose_device(options["device"]), choose_workers(options["workers"])
    prepare_process(device)
    with OfflineRun(
        settings,
        data.episodes,
        rewards,
        workers=workers,
        device=device,
        observers=[files, *observers],
        warn=print_warning,
    ) as run:
        if run.outside > 0:
            click.echo(
                f"warning: {max(run.outside, 0.001):.1%} of the data's actions are outside of what "
                "the environment takes: policies cannot take them either",
                err=True,
            )
        files.create(
            run,
            data=describe_data(file, data),
            command=["grd-offline", *sys.argv[1:]],
            workers=workers,
            device=device,
        )
        with catch_signals() as stop, show_run(run, files) as state:
            try:
                run.train(stop.is_set)
            except KeyboardInterrupt:
                tell_stopped_at_once(files.path)
    if alone:
        print_closing(state)
        if run.fleet is not None:  # else nothing was evaluated
            leave_report(files.path)
    if stop.is_set():
        click.echo(f"stopped at update {run.step:,}: {files.path} holds the policies so far")
    else:
        click.echo(f"wrote {files.path}: {run.step:,} updates of {len(run.members)} members")
    return stop


def describe_data(file: str, data: OfflineData) -> dict[str, Any]:
    """What was learned from, in plain values."""
    return {
        "file": Path(file).name,
        "episodes": len(data.episodes),
        "steps": data.episodes.total_steps,
        "environment": data.episodes.environment,
    }


def _default_folder(file: str, algorithm: str) -> str:
    path = name_path(file)
    # Every decomposition calls its data the same; its folder has the name.
    name = path.parent.name if path.stem == "relabelled" and path.parent.name else path.stem
    return f"runs/{name}-{algorithm}"
