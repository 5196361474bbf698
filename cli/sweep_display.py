"""The display of a sweep: bars in a terminal, lines anywhere else, and a table at the end."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grd_offline.core.observer import Observer
from grd_offline.core.words import format_percentage, format_seconds

from .progress import LINE_SECONDS, format_left
from .signals import Stop
from .text import echo

if TYPE_CHECKING:
    from grd_offline.lab.sweep.folder import SweepRecord
    from grd_offline.lab.sweep.job import Mark
    from grd_offline.lab.sweep.plan import Job

MOST_BARS = 16
LOOK_SECONDS = 1.0
"""Seconds between two looks at how far the running jobs are."""


class Display(Observer):
    """Lines about jobs, and how far all of them are together."""

    def __init__(self, folder: Path, jobs: Sequence[Job], what: str, stop: Stop) -> None:
        from grd_offline.lab.sweep.job import FINISHED, describe_marks

        marks = describe_marks(folder, tuple(jobs))
        self._what, self._stop = what, stop
        stop.show = self.say
        self._folder, self._jobs = folder, {job.name: job for job in jobs}
        self._done = {name for name, mark in marks.items() if mark and mark.state == FINISHED}
        self._given_up: set[str] = set()
        self._busy: set[str] = set()
        self._running: dict[str, Job] = {}
        self._marks: dict[str, Mark | None] = dict(marks)
        self._begin = time.monotonic()
        self._at_begin = sum(self._measure(name) for name in self._jobs)
        self._looked = self._told = 0.0
        if self._done:
            self.say(f"{len(self._done)} of {len(jobs)} {what} had finished before")

    def say(self, text: str) -> None:
        """Print a line about the sweep."""
        echo(text, err=True)

    def on_start(self, work: Job) -> None:
        self._running[work.name] = work
        self._given_up.discard(work.name)
        before = self._marks.get(work.name)
        if before is not None and before.tries:
            self.say(f"repeating {work.name}: {before.reason or 'it was cut off'}")

    def on_result(self, work: Job, result: Mark | None) -> None:
        job, mark = work, result
        self._running.pop(job.name, None)
        if mark is None:
            if job.name not in self._busy:
                self._busy.add(job.name)
                self.say(f"waiting for {job.name}: a process of an earlier sweep still works on it")
            return
        self._marks[job.name] = mark
        if mark.state == "finished":
            self._done.add(job.name)
            self.say(f"finished {job.name} in {format_seconds(mark.seconds)}")
        else:
            self._given_up.add(job.name)
            self.say(f"{mark.state}: {job.name}: {mark.reason}")

    def should_stop(self) -> bool:
        return self._stop.is_set()

    def on_progress(self, stage: str, share: float) -> None:
        now = time.monotonic()
        if now - self._looked >= LOOK_SECONDS:
            self._looked = now
            self.look(tuple(self._running.values()))

    def look(self, running: Sequence[Job]) -> None:
        """Tell how far the sweep is."""
        if time.monotonic() - max(self._told, self._begin) >= LINE_SECONDS:
            self._told = time.monotonic()
            left = self.estimate_left()
            time_left = "" if left is None else f", {format_left(left)}"
            shares = [(job.name, self._measure(job.name)) for job in running]
            parts = [f"; {n} {format_percentage(share)}" for n, share in shares if share > 0]
            done = f"{len(self._done)} of {len(self._jobs)} {self._what} finished"
            self.say(f"{done}{time_left}{''.join(parts):.300}")

    def _measure(self, name: str) -> float:
        from grd_offline.lab.sweep.job import measure_progress

        return 1.0 if name in self._done else measure_progress(self._folder, self._jobs[name])

    def estimate_left(self) -> float | None:
        """Seconds until all jobs are finished, at the speed so far. None if nothing is known."""
        shares = {n: self._measure(n) for n in self._jobs if n not in self._given_up}
        gained = sum(shares.values()) - self._at_begin
        if gained <= 0.01:
            return None
        return (time.monotonic() - self._begin) / gained * (len(shares) - sum(shares.values()))


class Bars(Display):
    """Shows a bar for the sweep and a bar for each running job."""

    def __init__(self, folder: Path, jobs: Sequence[Job], what: str, stop: Stop, bars: Any) -> None:
        self._bars = bars
        self._tasks: dict[str, Any] = {}
        super().__init__(folder, jobs, what, stop)
        total, done = len(jobs), len(self._done)
        self._all = bars.add_task(f"all {what}", total=total, completed=done, left="")

    def say(self, text: str) -> None:
        self._bars.console.print(text, highlight=False, markup=False)

    def on_result(self, work: Job, result: Mark | None) -> None:
        super().on_result(work, result)
        task = self._tasks.pop(work.name, None)
        if task is not None:
            self._bars.remove_task(task)

    def look(self, running: Sequence[Job]) -> None:
        for job in running:
            is_shown = job.name in self._tasks
            # With Ray, `running` also holds the jobs that wait for a machine.
            if not is_shown and len(self._tasks) < MOST_BARS and self._measure(job.name) > 0:
                self._tasks[job.name] = self._bars.add_task(job.name, total=1.0, left="")
            if job.name in self._tasks:
                self._bars.update(self._tasks[job.name], completed=self._measure(job.name))
        left = self.estimate_left()
        done = sum(self._measure(name) for name in self._jobs)
        self._bars.update(self._all, completed=done, left=format_left(left))


@contextmanager
def show_jobs(
    folder: Path, jobs: Sequence[Job], stop: Stop, what: str = "jobs"
) -> Iterator[Display]:
    """Show how far a sweep is. Its jobs are called `what`."""
    if not sys.stderr.isatty():
        yield Display(folder, jobs, what, stop)
        return
    from rich import progress
    from rich.console import Console

    bars = progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.TextColumn("{task.percentage:3.0f} %"),
        progress.TimeElapsedColumn(),
        progress.TextColumn("{task.fields[left]}"),
        console=Console(stderr=True),
        transient=True,
    )
    with bars:
        yield Bars(folder, jobs, what, stop, bars)


def print_jobs(record: SweepRecord) -> None:
    """Print a table of all jobs."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from .compare import FILE_WIDTH

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for title in ("job", "state", "tries", "time", "result"):
        numeric = title in ("tries", "time")
        table.add_column(title, justify="right" if numeric else "left", overflow="fold")
    for row in list_jobs(record):
        table.add_row(*(Text(cell) for cell in row[:-1]))
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = FILE_WIDTH
    console.print(table)
    console.print()


def list_jobs(record: SweepRecord) -> list[tuple[str, ...]]:
    """A row for each job: name, state, tries, time, result and command."""
    from grd_offline.lab.sweep.folder import describe_result

    rows: list[tuple[str, ...]] = []
    for job in record.jobs:
        mark = record.marks[job.name]
        state = "new" if mark is None else "cut off" if mark.state == "started" else mark.state
        tries = "0" if mark is None else str(mark.tries)
        seconds = "-" if mark is None else format_seconds(mark.seconds)
        command = f"grd-offline {' '.join(job.command)}"
        rows.append((job.name, state, tries, seconds, describe_result(record, job), command))
    return rows
