"""What a person sees of an offline run: a panel in a terminal, lines anywhere else.

All of it goes to stderr; the closing table is the result and goes to stdout.
"""

from __future__ import annotations

import math
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from .live import LINE_SECONDS, REFRESHES, count, describe_columns, describe_end, make_table
from .progress import format_seconds
from .standing import RATE_SECONDS, SAMPLE_SECONDS, Group, summarise

if TYPE_CHECKING:
    from rich.panel import Panel

    from grd_offline.offline.run import Checkpoint, OfflineRun
    from grd_offline.offline.run_folder import OfflineFolder

_TITLES = {"group": "rewards", "seeds": "seeds", "return": "return", "best": "best",
           "curve": "evaluations"}  # fmt: skip
_CLOSING_TITLES = {"group": "rewards", "seeds": "seeds", "return": "final return",
                   "best": "best return", "at": "at update"}  # fmt: skip


class OfflineStanding:
    """Hears of a run and keeps what a display shows; a display may read from another thread."""

    def __init__(self, run: OfflineRun, files: OfflineFolder) -> None:
        self.run, self.files = run, files
        self.total = run.settings.updates
        environment = "no environment" if run.fleet is None else run.fleet.environment
        self.title = f"{run.settings.algorithm}, {environment}, {count(len(run.members), 'member')}"
        self.groups = [
            Group(name, [i for i, member in enumerate(run.members) if member.group == name])
            for name in run.settings.rewards
        ]
        self._samples: deque[tuple[float, int]] = deque()

    def on_progress(self, run: OfflineRun) -> None:
        """Note how far the run is."""
        now, samples = time.monotonic(), self._samples
        # The first updates, in which kernels are compiled, tell nothing of the speed.
        if not samples or now - samples[-1][0] >= SAMPLE_SECONDS:
            samples.append((now, run.step))
            while now - samples[0][0] > RATE_SECONDS and len(samples) > 2:
                samples.popleft()

    def on_checkpoint(self, run: OfflineRun, checkpoint: Checkpoint) -> None:
        """Take in how every group did."""
        if checkpoint.returns is None:
            return
        means = checkpoint.returns.mean(1).tolist()
        for group in self.groups:
            values = [means[member] for member in group.members]
            group.curve.append(summarise(checkpoint.step, values))

    def describe_speed(self) -> str:
        """How fast, and how long it will take."""
        if len(self._samples) < 2:
            return "measuring speed"
        (begin, first), (end, last) = self._samples[0], self._samples[-1]
        rate = (last - first) / (end - begin)
        left = format_seconds((self.total - last) / rate)
        return f"{rate:,.0f} updates/s, {left} left"


@contextmanager
def show_offline_run(run: OfflineRun, files: OfflineFolder) -> Iterator[OfflineStanding]:
    """Show how the run does while it trains."""
    standing = OfflineStanding(run, files)
    run.observers.append(standing)
    if not sys.stderr.isatty():
        run.observers.append(Lines(standing))
        yield standing
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True, highlight=False)
    with Live(
        # Two columns stay free: the ^C that a terminal echoes must not begin another line.
        get_renderable=lambda: draw_panel(standing, console.width - 2),
        console=console,
        refresh_per_second=REFRESHES,
        transient=True,
    ):
        yield standing


class Lines:
    """A line per group and evaluation, and now and then one that tells how far the run is."""

    def __init__(self, standing: OfflineStanding) -> None:
        self.standing = standing
        self._last = time.monotonic()
        _say(f"{standing.title}, {standing.total:,} updates; writing to {standing.files.path}")

    def on_progress(self, run: OfflineRun) -> None:
        """Tell how far the run is, if it is time."""
        if time.monotonic() - self._last >= LINE_SECONDS:
            self._last = time.monotonic()
            speed = self.standing.describe_speed()
            _say(f"update {run.step:,} of {self.standing.total:,}, {speed}")

    def on_checkpoint(self, run: OfflineRun, checkpoint: Checkpoint) -> None:
        """Tell how every group did."""
        if checkpoint.returns is None:
            _say(f"update {checkpoint.step:,}  policies saved")
            return
        for group in self.standing.groups:
            cells = describe_columns(group, run.states)
            seeds = count(len(group.members), "seed")
            _say(
                f"update {checkpoint.step:,}  {group.name} ({seeds}): return {cells['return']}, "
                f"best {cells['best']}"
            )


def _say(line: str) -> None:
    click.echo(line, err=True)


def draw_panel(standing: OfflineStanding, width: int) -> Panel:
    """Everything about a run that fits a terminal of this width."""
    from rich.console import Group as Stack
    from rich.panel import Panel
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    run = standing.run
    bar = Table.grid(padding=(0, 1), expand=True)
    bar.add_column(no_wrap=True)
    bar.add_column(ratio=1)
    bar.add_row(
        f"update {run.step:,} of {standing.total:,}",
        ProgressBar(total=standing.total, completed=run.step),
    )
    rows = [describe_columns(group, run.states) for group in standing.groups]
    so_far = format_seconds(standing.files.seconds)
    return Panel(
        Stack(
            bar,
            Text(f"{standing.describe_speed()}, {so_far} so far"),
            Text(),
            make_table(_TITLES, rows, max(width - 4, 1)),
            Text(),
            Text(f"files: {standing.files.path}", style="dim", overflow="fold"),
        ),
        title=Text(standing.title, style="bold"),
        title_align="left",
        border_style="dim",
        width=max(width, 1),
    )


def print_offline_closing(standing: OfflineStanding) -> None:
    """How every group ended; nothing where nothing was evaluated."""
    from rich.console import Console

    if not any(group.curve for group in standing.groups):
        return
    rows = [describe_end(group, standing.run.states) for group in standing.groups]
    console = Console(highlight=False)
    console.print(make_table(_CLOSING_TITLES, rows, console.width))


def format_share_of(value: float | None) -> str:
    """A share in per cent; a dash where there is none."""
    return "-" if value is None or math.isnan(value) else f"{value:.0%}"
