"""`grd-offline train-online`: collect and refit in turn, and learn to act from returns alone."""

import shlex
import sys
from pathlib import Path
from typing import Any

import click

from grd_offline.core.settings import describe_settings
from grd_offline.learning.online.settings import DISCRETE, MANY_STATES, OnlineSettings, parse_sets

from .options import (
    command,
    device_option,
    is_given,
    option,
    out_option,
    setting_options,
    workers_option,
)
from .report import leave_report

_DEFAULTS = describe_settings(OnlineSettings)


@command()
@setting_options(
    OnlineSettings,
    *("environment", "methods", "fits", "backbone", "critic_width", "steps", "seeds", "seed"),
    *("sets", "policy_discount", "eval_every", "eval_episodes", "warmup", "batch"),
    *("round_updates", "environments", "env_args", "max_episode_steps"),
    sets={
        "type": str,
        "metavar": "NAME=V1,V2,...",
        "callback": lambda context, parameter, texts: parse_sets(texts),
    },
    environments={"show_default": f"1, or 2 with {MANY_STATES} states or more"},
    **{
        name: {"show_default": f"{_DEFAULTS[name].default}, or {value} where actions are discrete"}
        for name, value in DISCRETE.items()
    },
)
@device_option
@workers_option(
    "Number of processes that step environments.",
    "one per core, or one per environment if there are more, up to two per core",
)
@option(
    "--alternate",
    "overlap",
    flag_value=False,
    default=True,
    show_default=False,
    help="Collect and update strictly in turn, instead of collecting during the updates.",
)
@out_option("Folder of the run.  [default: runs/ENV-METHOD]")
@option("--resume", type=click.Path(), metavar="DIR", help="Continue the run in DIR.")
def train_online(resume: str | None, out: Path | None, **options: Any) -> None:
    """Train policies that see only episode returns.

    Collection and learning alternate. A reward model is fitted to the returns of finished episodes,
    and a policy is trained on the rewards of this model. Policies are evaluated by the true return.
    Ctrl-C saves a checkpoint, and --resume continues from the last checkpoint.

    \b
    Examples:
      grd-offline train-online --env Walker2d
      grd-offline train-online --env HalfCheetah --seeds 5 --steps 300000 --out runs/cheetah
      grd-offline train-online --env Hopper --method grd,rrd,ircr,oracle --backbone td3
      grd-offline train-online --env Swimmer --fit paper --policy-discount 1.0 \\
          --set lambda_state_reward=0,3e-6,5e-6,5e-5 --seeds 5 --device cuda
      grd-offline train-online --env CartPole --seeds 3
      grd-offline train-online --resume runs/cheetah

    All methods, fits, values and seeds are members of one run. They are trained side by
    side. On an accelerator, 20 members of HalfCheetah take about twice as long as five.
    """
    from grd_offline.learning.online.training import resume_online, train_online

    from .display import Terminal, print_closing

    terminal = Terminal()
    environment = options["environment"]
    if resume is not None:
        _refuse_settings(click.get_current_context())
        with terminal:
            result = resume_online(
                resume, environment=environment, observer=terminal,
                device=options["device"], workers=options["workers"],
            )  # fmt: skip
    elif environment is None:
        raise click.UsageError("Missing option '--env' (or '--resume').")
    else:
        task, methods = environment.rsplit("/", 1)[-1], "-".join(options["methods"])
        for name in (*DISCRETE, "environments"):  # their defaults depend on the environment
            if not is_given(name):
                options.pop(name, None)
        line = ["grd-offline", *sys.argv[1:]]
        with terminal:
            result = train_online(
                out=out or f"runs/{task}-{methods}", command=line, observer=terminal, **options
            )
    print_closing(terminal.shown)
    leave_report(result.folder)
    again = name_resume(result.folder, environment or "")
    terminal.tell_end(result, f"; to continue: {again}")


def name_resume(folder: Path, environment: str) -> str:
    """The command that continues a run. An id that imports a module has to be given again."""
    line = f"grd-offline train-online --resume {shlex.quote(str(folder))}"
    return f"{line} --env {shlex.quote(environment)}" if ":" in environment else line


def _refuse_settings(context: click.Context) -> None:
    """Refuse settings beside --resume. A run continues with the settings that it began with."""
    for parameter in context.command.params:
        name = parameter.name or ""
        if is_given(name) and name not in ("resume", "device", "workers", "environment"):
            raise click.UsageError(
                f"--resume cannot be combined with {parameter.opts[0]}: a run continues with the "
                "settings that it began with (--device and --workers can be changed)"
            )
