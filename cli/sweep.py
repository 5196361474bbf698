"""`grd-offline sweep`: a grid of commands, on this machine or on a cluster."""

from __future__ import annotations

import functools
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from grd_offline.core.errors import DataError
from grd_offline.core.packages import find_missing, tell_missing
from grd_offline.core.words import count
from grd_offline.io.files import REPORT_FILE
from grd_offline.learning.offline.settings import OfflineSettings
from grd_offline.learning.online.settings import OnlineSettings
from grd_offline.methods.settings import DecomposeSettings

from .jobs import Where, run_all, runner_options
from .options import command, option, out_option, path_argument, pick_settings
from .text import echo, print_table

if TYPE_CHECKING:
    from grd_offline.lab.sweep.folder import SweepRecord
    from grd_offline.lab.sweep.plan import Job, SweepPlan


@command()
@path_argument("file", metavar="FILE.toml")
@out_option("Folder of the sweep.  [default: sweeps/ and the name of the file]")
@runner_options("jobs")
@option(
    "--cpus",
    type=click.IntRange(min=1),
    help="Cores of each job.  [default: the cores of this machine, divided by its accelerators]",
)
@option(
    "--gpus",
    type=click.FloatRange(min=0, max=1),
    help="Part of an accelerator that each job has. With 0.5, two jobs share one.  [default: 1, or "
    "0 where there is none]",
)
@option(
    "--scale",
    type=click.FloatRange(min=0, min_open=True, max=1),
    default=1.0,
    help="Multiply steps, updates, evaluations, episodes and seeds by this, down to what is just "
    "enough to run. For trying a file out.",
)
@option("--dry-run", is_flag=True, help="Print the jobs and their commands, and run nothing.")
def sweep(
    file: Path, out: Path | None, where: Where, scale: float, dry_run: bool, **resources: Any
) -> None:
    """Run a grid of decompose, judge, train-online and train-offline jobs.

    Each job is a command with its own folder inside the folder of the sweep. A job that is finished
    is skipped. A job that broke is repeated, and a training run continues from its last checkpoint.
    Seeds of the same command are members of one run. At the end, the command prints a table and
    writes a comparison of all methods and one report about all jobs.

    \b
    Examples:
      grd-offline sweep experiments/table1.toml
      grd-offline sweep experiments/main.toml --dry-run
      grd-offline sweep experiments/main.toml --scale 0.001 --out try
      grd-offline sweep experiments/main.toml --cpus 4 --gpus 0.5
      grd-offline sweep experiments/main.toml --runner ray --address auto
      grd-offline compare sweeps/main

    \b
    A sweep file:
      title = "Two methods on two tasks"
      [[jobs]]
      command = "train-online"
      options = { method = ["grd", "oracle"] }
      grid = { env = ["Hopper", "Walker2d"], seed = [0, 1] }

    To continue a sweep that was stopped, run the same command again. Jobs that are finished are
    skipped.
    """
    from grd_offline.lab.sweep.job import describe_marks
    from grd_offline.lab.sweep.plan import read_plan

    plan = read_plan(file, scale=scale)
    owners: dict[Any, str] = {}
    for job in plan.jobs:
        settings = _check_job(plan, job)
        _refuse_twice(plan, job, settings, owners)
    folder = out if out is not None else Path("sweeps") / _name_folder(file, scale)
    folder = Path(os.path.abspath(folder))
    if dry_run:
        marks = describe_marks(folder, plan.jobs)
        for job in plan.jobs:
            mark = marks[job.name]
            state = "new" if mark is None else mark.state
            click.echo(f"{job.name} ({state}): grd-offline {shlex.join(job.command)}")
        return
    _run(plan, folder, where, scale, resources)


def _name_folder(file: Path, scale: float) -> str:
    return file.stem if scale == 1 else f"{file.stem}-x{scale:g}"


def _refuse_twice(plan: SweepPlan, job: Job, settings: Any, owners: dict[Any, str]) -> None:
    """Refuse a member that another job has too: it would be trained twice, and compared once."""
    if not isinstance(settings, OnlineSettings) or not _can_train():
        return
    from grd_offline.worlds.environments import resolve_environment_id

    # Settings with several values make members of their own.
    single = {name: values for name, values in settings.sets.items() if len(values) == 1}
    named = settings.environment
    task = named if "/" in named or ":" in named else resolve_environment_id(named)
    split = {"methods", "fits", "sets", "seed", "seeds", "environment"}
    plain = [(name, value) for name, value in vars(settings).items() if name not in split]
    rest = repr((task, single, plain))
    for member in settings.make_members():
        owner = owners.setdefault((rest, member.name), job.name)
        if owner != job.name:
            reason = f"{job.name}: {member.name} is also in {owner}: leave it out of one of them"
            raise DataError(reason, file=plan.path)


def _check_job(plan: SweepPlan, job: Job) -> Any:
    """The settings of a job. Options and values that its command would refuse are refused."""
    context = click.get_current_context()
    root = context.find_root().command
    assert isinstance(root, click.Group)
    name, *arguments = job.command
    command = root.get_command(context, name)
    assert command is not None
    kinds: dict[str, type[Any]] = {"decompose": DecomposeSettings, "train-online": OnlineSettings}
    kind = kinds.get(name, OfflineSettings)
    try:
        parsed = command.make_context(name, arguments)
        if parsed.params.get("environment", "") is None and name == "train-online":
            raise DataError("Missing option '--env'.")
        settings = kind(**pick_settings(kind, parsed.params))
        # A name of another package may be known where the job runs.
        if name == "train-online" and "/" not in settings.environment and _can_train():
            from grd_offline.worlds.environments import resolve_environment_id

            resolve_environment_id(settings.environment)
    except click.UsageError as error:
        raise DataError(f"{job.name}: {error.format_message()}", file=plan.path) from None
    except DataError as error:
        raise DataError(f"{job.name}: {error}", file=plan.path) from None
    return settings


@functools.cache
def _can_train() -> bool:
    """Whether the packages are here, which the machine that hands out jobs need not have."""
    return not find_missing("train-online")


def _run(
    plan: SweepPlan, folder: Path, where: Where, scale: float, resources: dict[str, Any]
) -> None:
    from grd_offline.lab.sweep.folder import (
        hold_new_sweep,
        list_jobs,
        list_others,
        read_sweep,
        write_sweep,
    )
    from grd_offline.lab.sweep.job import FINISHED, describe_marks
    from grd_offline.lab.sweep.run import find_machine

    for name in {job.command[0] for job in plan.jobs} if where.kind == "local" else ():
        if missing := find_missing(name):
            raise click.ClickException(tell_missing(f"the job {name}", missing))
    held = hold_new_sweep(folder)
    try:
        describe_marks(folder, plan.jobs)  # other commands are refused before anything is changed
        write_sweep(folder, plan, ["grd-offline", *sys.argv[1:]], scale)
        if others := list_others(folder, plan.jobs):
            echo(
                f"{folder / 'jobs'} has {count(len(others), 'job')} that the file does not name, "
                f"such as {others[0]}: what they have is not used",
                err=True,
            )
        runner = where.start(folder, find_machine(), **resources)
        _, stop = run_all(folder, plan.jobs, runner, where.tries, "jobs")
        record = read_sweep(folder)
        titles = ("job", "state", "tries", "time", "result")
        print_table(titles, [row[:-1] for row in list_jobs(record)], ("job", "state", "result"))
        click.echo()
        leave_sweep_report(record)
    finally:
        held.release()
    stop.leave("stopped: run the same command again to continue")
    open_jobs = [n for n, mark in record.marks.items() if mark is None or mark.state != FINISHED]
    if open_jobs:
        raise click.ClickException(
            f"{len(open_jobs)} of {count(len(record.jobs), 'job')} failed, the first is "
            f"{open_jobs[0]}: look at {folder / 'jobs' / open_jobs[0] / 'output.txt'}"
        )


def leave_sweep_report(record: SweepRecord) -> None:
    """Compare the methods of a sweep and write the page over all of its jobs."""
    from grd_offline.lab.sweep.folder import COMPARISON_FOLDER, compare_sweep

    from .compare import print_comparison, write_comparison
    from .report import make_sweep, write_page

    compared = compare_sweep(record)
    if isinstance(compared, str):
        echo(f"nothing is compared: {compared}", err=True)
    else:
        print_comparison(compared[0])
        place = record.path / COMPARISON_FOLDER
        write_comparison(place, *compared, title=record.title, form="png")
    write_page(record.path / REPORT_FILE, make_sweep(record))
    echo(f"look at {record.path / REPORT_FILE}")
