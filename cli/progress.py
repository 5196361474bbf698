"""Progress of a long command: a bar in a terminal, a line now and then anywhere else.

All of it goes to stderr, so that stdout holds results only.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LINE_SECONDS = 10.0
"""Seconds between two lines of progress without a terminal."""

Advance = Callable[[int, int], None]
"""Reports progress: the number of further units that are done, and the work of them."""


@contextmanager
def show_progress(label: str, total: int, *, unit: str, work: str) -> Iterator[Advance]:
    """Show how many `unit`s of `total` are done and how many units of `work` pass per second.

    with show_progress("collecting", 500, unit="episodes", work="steps") as advance:
        advance(1, len(episode))
    """
    show = _show_bar if sys.stderr.isatty() else _show_lines
    with show(label, total, unit, work) as advance:
        yield advance


@contextmanager
def _show_bar(label: str, total: int, unit: str, work: str) -> Iterator[Advance]:
    from rich import progress
    from rich.console import Console

    bar = progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TextColumn(unit),
        progress.TextColumn("{task.fields[rate]}"),
        progress.TimeRemainingColumn(),
        progress.TextColumn("left"),
        console=Console(stderr=True),
        transient=True,
    )
    begin, done = time.monotonic(), 0
    with bar:
        task = bar.add_task(label, total=total, rate="")

        def advance(count: int, amount: int) -> None:
            nonlocal done
            done += amount
            bar.update(task, advance=count, rate=_rate(done, begin, work))

        yield advance


@contextmanager
def _show_lines(label: str, total: int, unit: str, work: str) -> Iterator[Advance]:
    begin = last = time.monotonic()
    finished = done = 0

    def advance(count: int, amount: int) -> None:
        nonlocal finished, done, last
        finished, done = finished + count, done + amount
        now = time.monotonic()
        if now - last < LINE_SECONDS:
            return
        last = now
        seconds_left = (now - begin) * (total - finished) / max(finished, 1)
        print(
            f"{label}: {finished} of {total} {unit}, {_rate(done, begin, work)}, "
            f"{format_seconds(seconds_left)} left",
            file=sys.stderr,
            flush=True,
        )

    yield advance


def _rate(done: int, begin: float, work: str) -> str:
    return f"{done / max(time.monotonic() - begin, 1e-9):,.0f} {work}/s"


def format_seconds(seconds: float) -> str:
    """A duration in words: 8 s, 3 min 20 s, 2 h 5 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def format_bytes(count: int) -> str:
    """A size in words: 312 B, 1.4 MB."""
    size, unit = float(count), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"


@contextmanager
def show_stages() -> Iterator[Callable[[str, float], None]]:
    """Show what a command with several stages is doing: `report(stage, fraction done)`."""
    show = _show_stage_bars if sys.stderr.isatty() else _show_stage_lines
    with show() as report:
        yield report


@contextmanager
def _show_stage_bars() -> Iterator[Callable[[str, float], None]]:
    from rich import progress
    from rich.console import Console

    bar = progress.Progress(
        progress.SpinnerColumn(finished_text="✓"),
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    tasks: dict[str, progress.TaskID] = {}
    current = ""
    with bar:

        def report(stage: str, share: float) -> None:
            nonlocal current
            if stage != current and current:
                bar.update(tasks[current], completed=1.0)
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=1.0)
            current = stage
            bar.update(tasks[stage], completed=share)

        yield report


@contextmanager
def _show_stage_lines() -> Iterator[Callable[[str, float], None]]:
    begin = time.monotonic()
    current = ""

    def report(stage: str, share: float) -> None:
        nonlocal current
        if stage != current:
            current = stage
            print(f"{time.monotonic() - begin:6.1f} s  {stage}", file=sys.stderr, flush=True)

    yield report
