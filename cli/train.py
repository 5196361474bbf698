"""`train-online`, `train-offline` and `judge`: policies from the rewards that were found."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from grd_offline.comparison.metrics import LAST
from grd_offline.core.settings import describe_settings
from grd_offline.core.words import count, format_percentage
from grd_offline.io.files import beside, name_path
from grd_offline.learning.settings import (
    DISCRETE,
    JUDGED,
    MANY_STATES,
    SOURCES,
    OfflineSettings,
    OnlineSettings,
    is_path,
    parse_sets,
)
from grd_offline.methods.registry import AUTO, list_fits, list_judged

from .options import (
    NamesType,
    command,
    device_option,
    is_given,
    max_size_option,
    option,
    options,
    out_option,
    setting_options,
    table_options,
    workers_option,
)
from .results import leave_report
from .terminal import echo, print_table, print_text, print_warning

if TYPE_CHECKING:
    from grd_offline.lab.judge import JudgingResult

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
    from grd_offline.learning.online.run import resume_online, train_online

    from .display import Terminal, print_closing

    terminal = Terminal()
    environment = options["environment"]
    if resume is not None:
        _refuse_settings(click.get_current_context())
        names = ("environment", "env_args", "device", "workers")
        changed = {name: options[name] for name in names}
        with terminal:
            result = resume_online(resume, observer=terminal, **changed)
    elif environment is None:
        raise click.UsageError("Missing option '--env' (or '--resume').")
    else:
        task, methods = environment.rsplit("/", 1)[-1], "-".join(options["methods"])
        folder = out or f"runs/{task}-{methods}"
        for name in (*DISCRETE, "environments"):  # their defaults depend on the environment
            if not is_given(name):
                options.pop(name, None)
        with terminal:
            result = train_online(out=folder, command=terminal.line, observer=terminal, **options)
    print_closing(terminal.shown)
    leave_report(result.folder)
    again = name_resume(result.folder, environment or "", options["env_args"])
    terminal.tell_end(result, f"; to continue: {again}")


def name_resume(folder: Path, environment: str, env_args: Mapping[str, Any]) -> str:
    """The command that continues a run, with what has to be trusted again."""
    words = ["grd-offline", "train-online", "--resume", str(folder)]
    words += ["--env", environment] if ":" in environment else []
    for name, value in env_args.items():
        words += ["--env-arg", f"{name}={value}"] if is_path(value) else []
    return shlex.join(words)


_BESIDE_RESUME = ("resume", "device", "workers", "environment", "env_args")


def _refuse_settings(context: click.Context) -> None:
    """Refuse settings beside --resume. A run continues with the settings that it began with."""
    for parameter in context.command.params:
        name = parameter.name or ""
        if is_given(name) and name not in _BESIDE_RESUME:
            raise click.UsageError(
                f"--resume cannot be combined with {parameter.opts[0]}: a run continues with the "
                "settings that it began with (--device and --workers can be changed)"
            )


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
    from grd_offline.learning.offline.run import train_offline

    from .display import Terminal, print_closing

    tell_unused(given["algorithm"])
    path = name_path(file)
    # Every decomposition calls its data the same; its folder has the name.
    name = path.parent.name if path.stem == "relabelled" and path.parent.name else path.stem
    folder = out or f"runs/{name}-{given['algorithm']}"
    with Terminal() as terminal:
        result = train_offline(file, folder, observer=terminal, command=terminal.line, **given)
    print_closing(terminal.shown)
    if result.evaluations:
        leave_report(result.folder)
    terminal.tell_end(result, f": {result.folder} holds the policies so far")


def tell_unused(algorithm: str) -> None:
    """Warn of options of the algorithm that was not chosen."""
    for name, owner in (("alpha", "td3bc"), ("expectile", "iql"), ("temperature", "iql")):
        if owner != algorithm and is_given(name):
            print_warning(f"--{name} is an option of {owner}: {algorithm} does not use it")


@command()
@click.argument("file")
@setting_options(
    OfflineSettings,
    "environment",
    environment={
        "required": True,
        "help": "Gymnasium id of the environment to evaluate in. The name alone means its latest "
        "version.",
    },
)
@option(
    "--methods",
    type=NamesType(list_judged),
    default=",".join(JUDGED),
    help="Methods to compare. grd-next-state is grd with the next state as a further input.",
)
@option(
    "--fit",
    type=click.Choice(list_fits()),
    default=AUTO,
    help="Model of the reward that grd fits. auto compares several.",
)
@option(
    "--observed/--no-observed",
    default=True,
    help="Also train on the delayed rewards as they are.",
)
@training_options
@out_option("Folder for the results.  [default: FILE without its ending, plus -judge]")
def judge(file: str, out: Path | None, **given: Any) -> None:
    """Measure how well policies learn from the rewards of each method.

    The command decomposes FILE with several methods, trains policies on the rewards of each method,
    and compares the true returns of these policies. FILE holds episodes with delayed rewards, as
    `grd-offline collect` writes them. If FILE also holds the true rewards (collect
    --keep-true-rewards), policies are trained on them too, and each method is compared with them.
    All policies of all methods are trained at once.

    \b
    Examples:
      grd-offline judge hc.h5 --env HalfCheetah
      grd-offline judge hc.h5 --env HalfCheetah --methods grd,grd-next-state,rrd,uniform \\
          --algo td3bc --alpha 20 --seeds 5 --device cuda --out hc-judge
      grd-offline judge factored.h5 --env grd/Factored-v0 --seeds 2 --updates 5000 --eval-every 1000
      grd-offline report hc-judge
      grd-offline plot hc-judge/run

    A score is the mean of the last three evaluations. It is not the best evaluation, because nobody
    can choose that one without the true returns.
    """
    from grd_offline.lab.judge import judge

    from .display import Terminal

    tell_unused(given["algorithm"])
    folder = out if out is not None else beside(file, "-judge")
    with Terminal() as terminal:
        result = judge(file, folder, observer=terminal, command=terminal.line, **given)
    if result.verdicts:
        _print_table(result)
        if result.unsteady:
            _tell_unsteady(result.unsteady, given["seeds"])
        leave_report(folder)
        echo(f"wrote {folder}: judge.json, judge.csv, run/")
    else:
        echo("stopped before the first evaluation: there is nothing to compare")
    terminal.stop.leave()


def _print_table(result: JudgingResult) -> None:
    from rich.console import Console

    from grd_offline.io.files.results import TRUE

    from .display import Point, format_correlation, format_point

    rows = [
        (
            verdict.source,
            format_point(Point(0, verdict.mean, verdict.spread), len(verdict.scores)),
            format_percentage(verdict.share_of_true),
            format_percentage(verdict.share_of_gain),
            format_correlation(verdict.pearson),
        )
        for verdict in result.verdicts
    ]
    print_table(("rewards", "return", "of true", "of true's gain", "Pearson"), rows, ("rewards",))
    seeds = len(result.verdicts[0].scores)
    words = (
        f"return: true, mean ± standard deviation over {count(seeds, 'seed')} of the mean "
        f"of the last {count(min(LAST, result.evaluations), 'evaluation')}"
    )
    if result.data_mean_return is not None:
        words += f"; the data have {format_point(Point(0, result.data_mean_return, 0.0), 1)}"
    if any(verdict.source == TRUE for verdict in result.verdicts):
        words += ", above which gain begins; Pearson: with the true rewards, per step"
    print_text(Console(highlight=False), words, "dim")


def _tell_unsteady(unsteady: dict[str, list[int]], seeds: int) -> None:
    told = ", ".join(f"{len(lost)} of {seeds} of {name}" for name, lost in unsteady.items())
    echo(
        f"unsteady seeds: {told}. They end with less than two thirds of the gain over the data "
        "that their best evaluation had. Look at the curves before you trust the means, and use "
        "more seeds.",
        err=True,
    )
