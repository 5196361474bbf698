"""`grd-offline train-online`: collect and refit in turn, and learn to act from returns alone."""

import shlex
import sys
from pathlib import Path
from typing import Any

import click

from grd_offline.core.settings import describe_settings
from grd_offline.learning.online.settings import DISCRETE, MANY_STATES, OnlineSettings, parse_sets

from .options import (
    Decorator,
    command,
    device_option,
    is_given,
    option,
    out_option,
    pick_settings,
    setting_option,
    setting_options,
    workers_option,
)
from .report import leave_report


def _two_defaults(name: str) -> Decorator:
    """The option of a setting whose default depends on the environment's actions."""
    default = describe_settings(OnlineSettings)[name].default
    shown = f"{default}, or {DISCRETE[name]} where actions are discrete"
    return setting_option(OnlineSettings, name, show_default=shown)


@command()
@setting_options(OnlineSettings, "environment", "methods", "fits")
@_two_defaults("backbone")
@setting_options(OnlineSettings, "critic_width")
@_two_defaults("steps")
@setting_options(OnlineSettings, "seeds", "seed")
@setting_option(
    OnlineSettings,
    "sets",
    type=str,
    metavar="NAME=V1,V2,...",
    callback=lambda context, parameter, texts: parse_sets(texts),
)
@setting_options(OnlineSettings, "policy_discount")
@_two_defaults("eval_every")
@setting_options(OnlineSettings, "eval_episodes")
@_two_defaults("warmup")
@_two_defaults("batch")
@_two_defaults("round_updates")
@setting_option(
    OnlineSettings, "environments", show_default=f"1, or 2 with {MANY_STATES} states or more"
)
@setting_options(OnlineSettings, "env_args", "max_episode_steps")
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
    given = {"device": options["device"], "workers": options["workers"], "observer": terminal}
    if resume is not None:
        _refuse_settings(click.get_current_context())
        with terminal:
            result = resume_online(resume, environment=options["environment"], **given)
    elif options["environment"] is None:
        raise click.UsageError("Missing option '--env' (or '--resume').")
    else:
        settings = pick_settings(OnlineSettings, options)
        folder = out or _default_folder(settings)
        depending = {*DISCRETE, "environments"}
        settings = {n: v for n, v in settings.items() if n not in depending or is_given(n)}
        line = ["grd-offline", *sys.argv[1:]]
        with terminal:
            result = train_online(out=folder, command=line, **settings, **given)
    print_closing(terminal.shown)
    leave_report(result.folder)
    again = name_resume(result.folder, options["environment"] or "")
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


def _default_folder(settings: dict[str, Any]) -> str:
    name = settings["environment"].rsplit("/", 1)[-1]
    return f"runs/{name}-{'-'.join(settings['methods'])}"
