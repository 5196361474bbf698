"""What runs the jobs of `sweep`, `collect --parts` and `relabel`: this machine, or Ray."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .options import SettingOption, print_warning
from .signals import catch_signals
from .text import echo

if TYPE_CHECKING:
    from grd_offline.lab.sweep.local import Machine
    from grd_offline.lab.sweep.parts import PartsPlan
    from grd_offline.lab.sweep.run import Runner


_STOPPING = "stopping the running parts; press Ctrl-C again to quit"


def runner_options(what: str) -> Callable[..., Any]:
    """--runner, --address and --tries, for commands that run several `what`."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        command = click.option(
            "--tries",
            cls=SettingOption,
            type=click.IntRange(min=1),
            metavar="INTEGER",
            bounds="at least 1",
            default=2,
            show_default=True,
            help=f"Number of times that each of the {what} is tried before it is given up.",
        )(command)
        command = click.option(
            "--address",
            help="Ray cluster to use: auto, or HOST:PORT. Its machines must share the folder. "
            " [default: Ray is started on this machine]",
        )(command)
        return click.option(
            "--runner",
            "kind",
            type=click.Choice(("local", "ray")),
            default="local",
            show_default=True,
            help=f"What works on the {what}: this machine, or Ray. Ray needs: pip install ray.",
        )(command)

    return decorate


def check_address(kind: str, address: str | None) -> None:
    """Refuse the address of a cluster without Ray."""
    if address is not None and kind != "ray":
        raise click.UsageError("--address is for --runner ray")


def make_runner(
    folder: Path,
    machine: Machine,
    kind: str,
    address: str | None,
    *,
    cpus: int | None,
    gpus: float | None,
) -> Runner:
    """The runner of this kind, whose jobs use so much each."""
    if kind == "ray":
        from grd_offline.lab.sweep.ray_runner import RayRunner

        return RayRunner(
            folder, machine, address=address, directory=Path.cwd(), cpus=cpus, gpus=gpus
        )
    from grd_offline.lab.sweep.local import LocalRunner, divide

    return LocalRunner(folder, divide(machine, cpus, gpus), Path.cwd())


def run_parts(
    out: Path, plan: PartsPlan, kind: str, address: str | None, tries: int, workers: int | None
) -> None:
    """Make all parts of a dataset that are not there yet, one core for each."""
    from grd_offline.lab.sweep.job import FINISHED, describe_marks
    from grd_offline.lab.sweep.local import find_machine
    from grd_offline.lab.sweep.parts import describe_versions, hold_parts
    from grd_offline.lab.sweep.run import run_jobs

    from .sweep_display import show_jobs

    folder = Path(os.path.abspath(out))
    machine = find_machine()
    if workers is not None:
        machine = replace(machine, cores=workers)
    with ExitStack() as stack:
        stack.callback(hold_parts(folder, plan).release)
        versions = describe_versions(folder, plan)
        if versions is not None:
            print_warning(f"{out}: {versions}")
        is_done = all(m and m.state == FINISHED for m in describe_marks(folder, plan.jobs).values())
        where = "local" if is_done else kind  # then Ray need not be started
        runner = stack.enter_context(make_runner(folder, machine, where, address, cpus=1, gpus=0))
        stop = stack.enter_context(catch_signals(notice=_STOPPING))  # after Ray, which has one
        display = stack.enter_context(show_jobs(folder, plan.jobs, stop, "parts"))
        marks = run_jobs(folder, plan.jobs, runner, tries=tries, observer=display)
    if stop.signal_number:
        echo("stopped: run the same command again to continue", err=True)
        raise SystemExit(128 + stop.signal_number)
    missing = [(n, mark) for n, mark in marks.items() if mark is None or mark.state != FINISHED]
    if missing:
        name, mark = missing[0]
        reason = mark.reason if mark is not None else "it was not begun"
        raise click.ClickException(
            f"{len(missing)} of {len(marks)} parts are missing, the first is {name}: {reason}; run "
            "the same command again to continue"
        )
