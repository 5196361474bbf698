"""What runs the jobs of `sweep`, `collect --parts` and `relabel`: this machine, or Ray."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from .options import Decorator, join_options, option, options
from .terminal import Stop, catch_signals, print_warning

if TYPE_CHECKING:
    from grd_offline.lab.sweep.folder import Mark
    from grd_offline.lab.sweep.parts import PartsPlan
    from grd_offline.lab.sweep.plan import Job
    from grd_offline.lab.sweep.run import Machine, Runner


class Where(NamedTuple):
    """What runs the jobs of a command."""

    kind: str
    """`local` or `ray`."""
    address: str | None
    """The address of a Ray cluster."""
    tries: int
    """Number of times that a job is tried."""


def _join_where(kind: str, address: str | None, tries: int) -> dict[str, Where]:
    if address is not None and kind != "ray":
        raise click.UsageError("--address is for --runner ray")
    return {"where": Where(kind, address, tries)}


def runner_options(what: str) -> Decorator:
    """--runner, --address and --tries, for commands that run several `what`."""
    return options(
        option(
            "--runner",
            "kind",
            type=click.Choice(("local", "ray")),
            default="local",
            help=f"What works on the {what}: this machine, or Ray. Ray needs: pip install ray.",
        ),
        option(
            "--address",
            help="Ray cluster to use: auto, or HOST:PORT. Its machines must share the folder. "
            " [default: Ray is started on this machine]",
        ),
        option(
            "--tries",
            type=click.IntRange(min=1),
            default=2,
            help=f"Number of times that each of the {what} is tried before it is given up.",
        ),
        join_options(_join_where),
    )


def run_parts(out: Path, plan: PartsPlan, where: Where, workers: int | None) -> None:
    """Make all parts of a dataset that are not there yet, one core for each."""
    from grd_offline.lab.sweep.folder import FINISHED, describe_marks
    from grd_offline.lab.sweep.parts import describe_versions, hold_parts
    from grd_offline.lab.sweep.run import find_machine

    if workers is not None and where.address is not None:
        raise click.UsageError("--workers is for this machine: leave it out with --address")
    folder, machine = Path(os.path.abspath(out)), find_machine()
    if workers is not None:
        machine = replace(machine, cores=workers)
    with hold_parts(folder, plan):
        if versions := describe_versions(folder, plan):
            print_warning(f"{out}: {versions}")
        if all(m and m.state == FINISHED for m in describe_marks(folder, plan.jobs).values()):
            where = where._replace(kind="local")  # Ray need not be started
        marks, stop = run_all(folder, plan.jobs, where, machine, "parts", cpus=1, gpus=0)
    stop.leave("stopped: run the same command again to continue")
    if missing := [n for n, mark in marks.items() if mark is None or mark.state != FINISHED]:
        mark = marks[missing[0]]
        reason = mark.reason if mark is not None else "it was not begun"
        raise click.ClickException(
            f"{len(missing)} of {len(marks)} parts are missing, the first is {missing[0]}: "
            f"{reason}; run the same command again to continue"
        )


def run_all(
    folder: Path, jobs: Sequence[Job], where: Where, machine: Machine, what: str, **uses: Any
) -> tuple[dict[str, Mark | None], Stop]:
    """Run jobs, each of which `uses` so many cpus and gpus, and show how far they are.

    Gives their marks, and whether they were stopped.
    """
    from grd_offline.lab.sweep.run import LocalRunner, RayRunner, divide, run_jobs

    from .display import JobsDisplay

    saving = ", which save first" if what == "jobs" else ""
    notice = f"stopping the running {what}{saving}; press Ctrl-C again to quit"
    here = Path.cwd()
    if where.kind == "local":
        runner: Runner = LocalRunner(folder, divide(machine, **uses), here)
    else:
        runner = RayRunner(folder, machine, address=where.address, directory=here, **uses)
    with runner, catch_signals(notice=notice) as stop:  # after Ray, which has its own handler
        display = JobsDisplay(folder, jobs, what, stop)
        with display.bars:
            return run_jobs(folder, jobs, runner, tries=where.tries, observer=display), stop
