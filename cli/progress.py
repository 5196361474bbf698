"""Progress of a long command: a bar in a terminal, a line now and then anywhere else.

All of it goes to stderr, so that stdout holds results only.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from grd_offline.words import format_percentage, format_seconds

from .forecast import COMPARING, Forecast, Look
from .signals import Stop, say

if TYPE_CHECKING:
    from rich.table import Table

LINE_SECONDS = 10.0
"""Seconds between two lines of progress without a terminal."""
NARROW = 76
"""Width of a terminal below which the bar of a decomposition says less."""

Advance = Callable[[int, int], None]
"""Reports progress: the number of further units that are done, and the work of them."""


@contextmanager
def show_progress(
    label: str, total: int, *, unit: str, work: str, stop: Stop | None = None
) -> Iterator[Advance]:
    """Show how many `unit`s of `total` are done and how many units of `work` pass per second.

    with show_progress("collecting", 500, unit="episodes", work="steps") as advance:
        advance(1, len(episode))

    What `stop` has to say then goes above the bar.
    """
    show = _show_bar if sys.stderr.isatty() else _show_lines
    with show(label, total, unit, work, stop) as advance:
        yield advance


@contextmanager
def _show_bar(label: str, total: int, unit: str, work: str, stop: Stop | None) -> Iterator[Advance]:
    from rich import progress
    from rich.console import Console

    bar = progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(bar_width=None),
        progress.MofNCompleteColumn(),
        progress.TextColumn(unit),
        progress.TextColumn("{task.fields[rate]}"),
        progress.TextColumn("{task.fields[left]}"),
        console=Console(stderr=True),
        transient=True,
        expand=True,
    )
    if stop is not None:
        stop.show = lambda notice: bar.console.print(notice, highlight=False)
    begin, done, finished = time.monotonic(), 0, 0
    with bar:
        task = bar.add_task(label, total=total, rate="", left="")

        def advance(count: int, amount: int) -> None:
            nonlocal done, finished
            finished, done = finished + count, done + amount
            left = format_left(_extrapolate(begin, finished, total))
            bar.update(task, advance=count, rate=_rate(done, begin, work), left=left)

        yield advance


@contextmanager
def _show_lines(
    label: str, total: int, unit: str, work: str, stop: Stop | None
) -> Iterator[Advance]:
    begin = last = time.monotonic()
    finished = done = 0

    def advance(count: int, amount: int) -> None:
        nonlocal finished, done, last
        finished, done = finished + count, done + amount
        if time.monotonic() - last < LINE_SECONDS:
            return
        last = time.monotonic()
        left = format_left(_extrapolate(begin, finished, total))
        say(f"{label}: {finished:,} of {total:,} {unit}, {_rate(done, begin, work)}, {left}")

    yield advance


def _extrapolate(begin: float, finished: int, total: int) -> float:
    return (time.monotonic() - begin) * (total - finished) / max(finished, 1)


def _rate(done: int, begin: float, work: str) -> str:
    return f"{done / max(time.monotonic() - begin, 1e-9):,.0f} {work}/s"


def format_left(seconds: float | None, is_least: bool = False) -> str:
    """The time left in words, no finer than an estimate deserves; empty if it is not known."""
    if seconds is None:
        return ""
    if seconds >= 20:  # to 5 s, 10 s, 1 min, 10 min
        grain = 5 if seconds < 60 else 10 if seconds < 600 else 60 if seconds < 36_000 else 600
        seconds = grain * max(1, round(seconds / grain))
    return f"{'over' if is_least else 'about'} {format_seconds(max(seconds, 1))} left"


@contextmanager
def show_stages(parts: Sequence[str] = ("",)) -> Iterator[Forecast]:
    """Show one bar for a command with several stages: the bar and the time left are of the whole.

    The command reports to `forecast.hear`. `parts` are the names of several decompositions that
    follow each other.
    """
    forecast = Forecast(parts)
    show = _show_stage_bar if sys.stderr.isatty() else _show_stage_lines
    with show(forecast):
        yield forecast


@contextmanager
def _show_stage_bar(forecast: Forecast) -> Iterator[None]:
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True, highlight=False)
    # Drawn by a thread of its own: the bar goes on while a stage computes for long.
    with Live(
        get_renderable=lambda: draw_stage(forecast.look(), console.width),
        console=console,
        refresh_per_second=4,
        transient=True,
    ):
        yield


def draw_stage(look: Look, width: int) -> Table:
    """One line: the stage, the bar of the whole, its percentage and the time left."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    left = format_left(look.seconds_left, look.is_least) or "measuring the time left"
    if width < NARROW:
        left = left.removeprefix("about ").removeprefix("measuring the time left")
    line = Table.grid(padding=(0, 1), expand=True)
    line.add_column(no_wrap=True, overflow="ellipsis")
    line.add_column(ratio=1, min_width=8)
    line.add_column(no_wrap=True, justify="right", min_width=5)
    line.add_column(no_wrap=True)
    bar = ProgressBar(total=1.0, completed=look.fraction)
    share = format_percentage(min(look.fraction, 0.99))
    line.add_row(Text(look.stage), bar, share, Text(left))
    return line


@contextmanager
def _show_stage_lines(forecast: Forecast) -> Iterator[None]:
    """Print a line when a stage begins."""
    begin, said = time.monotonic(), ""

    def tell(stage: str, detail: str) -> None:
        nonlocal said
        # Networks that are compared say for themselves how long they will take.
        line = f"{stage}: {detail.rpartition(': ')[0]}" if stage.endswith(COMPARING) else stage
        if line == said:
            return
        said = line
        look = forecast.look()
        left = format_left(look.seconds_left, look.is_least)
        say(f"{time.monotonic() - begin:6.1f} s  {line}{f' ({left})' if left else ''}")

    forecast.on_stage = tell
    yield
