"""`grd-offline train-online`: collect and refit in turn, and learn to act from returns alone."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
from click.core import ParameterSource

from grd_offline.online.settings import OnlineSettings, parse_sets

from .options import device_option, pick_settings, print_warning, setting_option, setting_options
from .report import leave_report
from .signals import catch_signals

if TYPE_CHECKING:
    from grd_offline.online.run import OnlineRun
    from grd_offline.online.run_folder import OnlineFolder


@click.command(
    epilog="""
    \b
    Examples:
      grd-offline train-online --env Walker2d
      grd-offline train-online --env HalfCheetah --seeds 5 --steps 300000 --out runs/cheetah
      grd-offline train-online --env Hopper --method grd,rrd,ircr,oracle --backbone td3
      grd-offline train-online --env Swimmer --fit paper --policy-discount 1.0 \\
          --set lambda_state_reward=0,3e-6,5e-6,5e-5 --seeds 5 --device cuda
      grd-offline train-online --resume runs/cheetah

    Several methods, fits, values and seeds are members of one run: they are trained side by side
    and cost little more than one on an accelerator.
    """
)
@setting_options(
    OnlineSettings, "environment", "methods", "fits", "backbone", "steps", "seeds", "seed"
)
@setting_option(
    OnlineSettings,
    "sets",
    type=str,
    metavar="NAME=V1,V2,...",
    callback=lambda context, parameter, texts: parse_sets(texts),
)
@setting_options(
    OnlineSettings,
    "policy_discount",
    "eval_every",
    "eval_episodes",
    "warmup",
    "env_args",
    "max_episode_steps",
)
@device_option
@click.option(
    "--workers",
    type=int,
    help="Number of processes that step environments.  [default: the number of cores]",
)
@click.option(
    "--alternate",
    "overlap",
    flag_value=False,
    default=True,
    help="Collect and update strictly in turn, instead of collecting during the updates.",
)
@click.option("--out", type=click.Path(), help="Folder of the run.  [default: runs/ENV-METHOD]")
@click.option("--resume", type=click.Path(), metavar="DIR", help="Continue the run in DIR.")
def train_online(**options: Any) -> None:
    """Train agents that only learn how well each episode went.

    Collection and learning alternate: a model of the reward is fitted to the returns of finished
    episodes, and a policy is trained on the rewards that it names. Evaluation is by the true
    return. Ctrl-C saves a checkpoint; --resume goes on from the last one.
    """
    if options["resume"] is not None:
        _refuse_settings(click.get_current_context())
        _resume(Path(options["resume"]), options)
    elif options["environment"] is None:
        raise click.UsageError("Missing option '--env' (or '--resume').")
    else:
        _begin(options)


def _refuse_settings(context: click.Context) -> None:
    """A run goes on with the settings that it began with."""
    for parameter in context.command.params:
        given = context.get_parameter_source(parameter.name or "")
        is_given = given is ParameterSource.COMMANDLINE
        if is_given and parameter.name not in ("resume", "device", "workers", "environment"):
            raise click.UsageError(
                f"--resume: takes --device and --workers alone, not {parameter.opts[0]}: a run "
                "goes on with the settings that it began with"
            )


def _begin(options: dict[str, Any]) -> None:
    from grd_offline.environments import resolve_environment_id
    from grd_offline.online.run import OnlineRun
    from grd_offline.online.run_folder import OnlineFolder
    from grd_offline.runs.process import choose_device, choose_workers, prepare_process

    settings = OnlineSettings(**pick_settings(OnlineSettings, options))
    folder = Path(options["out"] or _default_folder(settings))
    device, workers = choose_device(options["device"]), choose_workers(options["workers"])
    resolve_environment_id(settings.environment)
    files = OnlineFolder(folder)
    files.check_free()
    prepare_process(device)
    with OnlineRun(
        settings, workers=workers, device=device, observers=[files], warn=print_warning
    ) as run:
        command = ["grd-offline", *sys.argv[1:]]
        files.create(run, command=command, workers=workers, device=device)
        steps = run.total
        if settings.warmup > steps:
            click.echo(
                f"warning: nothing will be learned in {steps:,} steps: the warm-up alone takes "
                f"{settings.warmup:,} (--warmup)",
                err=True,
            )
        _train(run, files)


def _resume(folder: Path, options: dict[str, Any]) -> None:
    from grd_offline.online.run import OnlineRun
    from grd_offline.online.run_folder import OnlineFolder, read_settings
    from grd_offline.runs.process import choose_device, choose_workers, prepare_process

    settings, rest = read_settings(folder)
    _confirm_environment(folder, settings.environment, options["environment"])
    device = choose_device(rest["device"] if options["device"] == "auto" else options["device"])
    asked = options["workers"]
    workers = choose_workers(rest["workers"] if asked is None else asked)
    files = OnlineFolder(folder)
    prepare_process(device)
    with OnlineRun(
        settings, workers=workers, device=device, observers=[files], warn=print_warning
    ) as run:
        for warning in files.resume(run):
            print_warning(warning)
        click.echo(f"going on with {folder} at step {run.step:,}")
        _train(run, files)


def _confirm_environment(folder: Path, stored: str, given: str | None) -> None:
    """An id that imports a module is taken from the command line, never from a file alone."""
    from grd_offline.errors import DataError

    if given is not None and given != stored:
        raise click.UsageError(
            f"--resume: the environment of {folder} is {stored}, not {given}: a run goes on with "
            "the settings that it began with"
        )
    if ":" in stored and given is None:
        raise DataError(
            f"its environment {stored} imports a Python module: if you trust it, add "
            f"--env {shlex.quote(stored)}",
            file=folder,
        )


def _train(run: OnlineRun, files: OnlineFolder) -> None:
    from .live import print_closing, show_run

    with catch_signals() as stop, show_run(run, files) as state:
        try:
            run.train(stop.is_set)
            files.save(run)
        except KeyboardInterrupt:
            tell_stopped_at_once(files.path)
    files.close()
    if run.restarts:
        click.echo(
            f"warning: unfinished episodes lost: {run.restarts} (a worker process died, or the "
            "environment does not repeat itself)",
            err=True,
        )
    print_closing(state)
    leave_report(files.path)
    if stop.is_set():
        click.echo(f"stopped at step {run.step:,}; to go on: {_resume_line(files.path)}")
        raise SystemExit(128 + stop.signal_number)
    click.echo(f"wrote {files.path}: {run.step:,} steps of {len(run.members)} members")


def tell_stopped_at_once(folder: Path) -> NoReturn:
    """A second Ctrl-C: nothing more is written, and what is there stays."""
    click.echo(f"stopped at once: {folder} holds what was written before", err=True)
    raise SystemExit(130)


def _resume_line(folder: Path) -> str:
    return f"grd-offline train-online --resume {shlex.quote(str(folder))}"


def _default_folder(settings: OnlineSettings) -> str:
    name = settings.environment.rsplit("/", 1)[-1]
    return f"runs/{name}-{'-'.join(settings.methods)}"
