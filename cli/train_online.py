"""`grd-offline train-online`: collect and refit in turn, and learn to act from returns alone."""

import shlex
import sys
from typing import Any

import click
from click.core import ParameterSource

from grd_offline.online.settings import OnlineSettings, parse_sets

from .live import Terminal
from .options import (
    device_option,
    pick_settings,
    print_warning,
    setting_option,
    setting_options,
    workers_option,
)
from .report import leave_report


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
@setting_options(OnlineSettings, "policy_discount", "eval_every", "eval_episodes", "warmup")
@setting_options(OnlineSettings, "env_args", "max_episode_steps")
@device_option
@workers_option("Number of processes that step environments.")
@click.option(
    "--alternate",
    "overlap",
    flag_value=False,
    default=True,
    help="Collect and update strictly in turn, instead of collecting during the updates.",
)
@click.option("--out", type=click.Path(), help="Folder of the run.  [default: runs/ENV-METHOD]")
@click.option("--resume", type=click.Path(), metavar="DIR", help="Continue the run in DIR.")
def train_online(resume: str | None, out: str | None, **options: Any) -> None:
    """Train agents that see only the return of each episode.

    Collection and learning alternate: a model of the reward is fitted to the returns of finished
    episodes, and a policy is trained on the rewards of that model. Evaluation is by the true
    return. Ctrl-C saves a checkpoint; --resume goes on from the last one.
    """
    from grd_offline.online.training import resume_online, train_online

    terminal = Terminal()
    given = {"device": options["device"], "workers": options["workers"]}
    given |= {"watch": terminal.watch, "warn": print_warning}
    if resume is not None:
        _refuse_settings(click.get_current_context())
        result = resume_online(resume, environment=options["environment"], **given)
    elif options["environment"] is None:
        raise click.UsageError("Missing option '--env' (or '--resume').")
    else:
        settings = pick_settings(OnlineSettings, options)
        folder = out or _default_folder(settings)
        result = train_online(
            out=folder, command=["grd-offline", *sys.argv[1:]], **settings, **given
        )
    terminal.print_closing()
    leave_report(result.folder)
    line = f"grd-offline train-online --resume {shlex.quote(str(result.folder))}"
    terminal.tell_end(result, f"; to go on: {line}")


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


def _default_folder(settings: dict[str, Any]) -> str:
    name = settings["environment"].rsplit("/", 1)[-1]
    return f"runs/{name}-{'-'.join(settings['methods'])}"
