"""Progress of a long command: a bar in a terminal, a line now and then anywhere else.

All of it goes to stderr, so that stdout holds results only.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from grd_offline.core.words import format_percentage, format_seconds

from .forecast import COMPARING, Forecast, Look
from .signals import Stop
from .text import say

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

LINE_SECONDS = 10.0
"""Seconds between two lines of progress without a terminal."""
_SHORTEST_BAR = 8

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
    begin, done, finished = time.monotonic(), 0, 0

    def draw(width: int) -> Table:
        left = format_left(_extrapolate(begin, finished, total) if finished else None)
        texts = [f"{finished:,}/{total:,} {unit}", left, _rate(done, begin, work)]
        return draw_bar(label, finished / max(total, 1), texts, width)

    def advance(count: int, amount: int) -> None:
        nonlocal done, finished
        finished, done = finished + count, done + amount

    with _show_live(draw) as console:
        if stop is not None:
            stop.show = lambda notice: console.print(notice, highlight=False)
        yield advance


@contextmanager
def _show_live(draw: Callable[[int], Table]) -> Iterator[Console]:
    """Show a line that is drawn again and again, and is gone at the end."""
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True, highlight=False)
    # Drawn by a thread of its own: the bar goes on while a stage computes for long. Two columns
    # stay free: the ^C that a terminal echoes must not begin another line.
    with Live(
        get_renderable=lambda: draw(console.width - 2),
        console=console,
        refresh_per_second=4,
        transient=True,
    ):
        yield console


def draw_bar(label: str, fraction: float, texts: Sequence[str], width: int) -> Table:
    """One line: a label, a bar and texts, of which the last are left out if it is narrow."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    shown = [text for text in texts if text]
    while len(shown) > 1 and len(label) + sum(len(t) + 1 for t in shown) + _SHORTEST_BAR > width:
        shown.pop()
    line = Table.grid(padding=(0, 1), expand=True)
    line.width = width
    line.add_column(no_wrap=True, overflow="ellipsis")
    line.add_column(ratio=1, min_width=_SHORTEST_BAR - 2)
    for _ in shown:
        line.add_column(no_wrap=True)
    bar = ProgressBar(total=1.0, completed=fraction)
    line.add_row(Text(label), bar, *(Text(text) for text in shown))
    return line


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
    with _show_live(lambda width: draw_stage(forecast.look(), width)):
        yield


def draw_stage(look: Look, width: int) -> Table:
    """One line: the stage, the bar of the whole, its percentage and the time left."""
    share = format_percentage(min(look.fraction, 0.99)).rjust(4)
    left = format_left(look.seconds_left, look.is_least) or "measuring the time left"
    return draw_bar(look.stage, look.fraction, (share, left), width)


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
