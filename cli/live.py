"""The display of a run: a panel in a terminal, lines anywhere else, and a table at the end.

While it trains all of it goes to stderr; the closing table is the result and goes to stdout.
"""

from __future__ import annotations

import itertools
import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Self

from grd_offline.core.observer import Observer, Observers
from grd_offline.core.words import count, format_percentage, format_seconds

from .options import print_warning
from .run_state import Group, Point, RunState
from .signals import Stop, catch_signals
from .text import echo, say

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.panel import Panel
    from rich.table import Table

    from grd_offline.learning.runs.folder import RunFolder
    from grd_offline.learning.runs.result import TrainingResult

REFRESHES = 1
"""Number of times per second that the panel is drawn. Each takes about ten milliseconds."""
LINE_SECONDS = 30.0
"""Shortest time between two lines of progress."""
_BARS = "▁▂▃▄▅▆▇█"
_CURVE, _SHORT_CURVE = 20, 8
_COLUMNS = (
    "group", "seeds", "return", "best", "curve", "correlation", "edges", "compact", "skipped",
)  # fmt: skip
_TITLES = {name: name for name in _COLUMNS} | {"curve": "evaluations", "correlation": "corr."}
_CLOSING_TITLES = {
    "group": "group", "seeds": "seeds", "return": "final return", "best": "best return",
    "at": "at", "correlation": "corr.",
}  # fmt: skip
_GROUP, _GROUP_SHORT = 22, 12
"""Width of the names of groups at which they are folded, and their smallest width."""
_LEAST_FIRST = ("edges", "at", "seeds", "best", "curve", "compact", "correlation", "skipped")
"""Columns that are left out, in this order, until the table fits."""


class Terminal(Observer):
    """The display of a training run. It also handles Ctrl-C.

    The first Ctrl-C stops the run, the second ends it at once.
    """

    def __init__(self) -> None:
        self.stop = Stop()
        self.state: RunState | None = None
        self._shown: Observer = Observers(())
        self._open = ExitStack()

    def on_start(self, work: Any) -> None:
        if self.state is None:
            self._begin(work)
        else:
            self._shown.on_start(work)

    def _begin(self, files: RunFolder) -> None:
        """Show the run while it trains."""
        self.stop = self._open.enter_context(catch_signals())
        self.state = RunState(files.run, files)
        show = _show_panel if sys.stderr.isatty() else _show_lines
        others = self._open.enter_context(show(self.state, self.stop))
        self._shown = Observers([self.state, *others])
        if files.run.step:
            echo(f"continuing {files.path} at {files.run.unit} {files.run.step:,}")

    def on_progress(self, stage: str, share: float) -> None:
        self._shown.on_progress(stage, share)

    def on_result(self, work: Any, result: Any) -> None:
        if self.state is not None and work is self.state.files:
            self._open.close()
            self.state.look()
        else:
            self._shown.on_result(work, result)

    def on_warning(self, text: str) -> None:
        print_warning(text)

    def should_stop(self) -> bool:
        return self.stop.is_set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._open.close()
        if isinstance(error, KeyboardInterrupt) and self.state is not None:
            # Nothing more is written, and what is there stays.
            say(f"stopped at once: {self.state.files.path} holds what was written before")
            raise SystemExit(130) from None

    def print_closing(self) -> None:
        if self.state is not None:
            print_closing(self.state)

    def tell_end(self, result: TrainingResult, what_next: str) -> None:
        """Say what was written. If the run was stopped, say `what_next` and end the command."""
        assert self.state is not None
        unit, members = self.state.unit, self.state.members
        if not self.stop.is_set():
            trained = f"{count(result.step, unit)} of {count(members, 'member')}"
            echo(f"wrote {result.folder}: {trained}")
            return
        echo(f"stopped at {unit} {result.step:,}{what_next}")
        raise SystemExit(128 + self.stop.signal_number)


class Lines(Observer):
    """A line per group and evaluation, and now and then one that tells how far the run is."""

    def __init__(self, state: RunState) -> None:
        self.state = state
        self._last = time.monotonic()
        phase = f", {state.run.phase}" if state.run.phase else ""
        say(
            f"{state.title}: {count(state.members, 'member')}, "
            f"{count(state.total, state.unit)} each{phase}; writing to {state.files.path}"
        )

    def on_progress(self, stage: str, share: float) -> None:
        if time.monotonic() - self._last >= LINE_SECONDS:
            self._last = time.monotonic()
            say(f"{describe_step(self.state)}, {describe_speed(self.state)}")

    def on_result(self, work: Any, result: Any) -> None:
        if result.returns is None:
            say(f"{self.state.unit} {result.step:,}  policies saved")
            return
        for group in self.state.groups:
            say(describe_group(group, self.state))


@contextmanager
def _show_lines(state: RunState, stop: Stop) -> Iterator[list[Observer]]:
    yield [Lines(state)]


@contextmanager
def _show_panel(state: RunState, stop: Stop) -> Iterator[list[Observer]]:
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True, highlight=False)
    # Drawn by a thread of its own: the clock goes on while the run waits or updates for long.
    with Live(
        # Two columns stay free: the ^C that a terminal echoes must not begin another line.
        get_renderable=lambda: draw_panel(state, console.width - 2, console.height),
        console=console,
        refresh_per_second=REFRESHES,
        transient=True,
    ) as live:

        def show(notice: str) -> None:
            state.notice = notice
            live.refresh()

        stop.show = show
        yield []


def draw_panel(state: RunState, width: int, height: int) -> Panel:
    """Everything about a run that fits a terminal of this size."""
    from rich.console import Group as Stack
    from rich.panel import Panel
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    inside = max(width - 4, 1)
    bar = Table.grid(padding=(0, 1), expand=True)
    for column in ({"no_wrap": True}, {"ratio": 1}, {"no_wrap": True}):
        bar.add_column(**column)
    step, total = state.run.step, state.total
    bar.add_row(
        describe_step(state),
        ProgressBar(total=total, completed=step),
        format_percentage(step / total),
    )
    style = "yellow" if state.run.phase else ""
    speed = f"{describe_speed(state)}, {format_seconds(state.files.seconds)} so far"
    rows = max(height - (12 if state.notice else 10), 1)
    parts: list[RenderableType] = [
        bar,
        Text(speed, style=style),
        Text(),
        _draw_groups(state, inside, rows),
    ]
    if len(state.groups) > rows:
        parts.append(Text(f"and {len(state.groups) - rows} more", style="dim"))
    if state.notice:
        parts += [Text(), Text(state.notice, style="bold yellow")]
    parts += [Text(), Text(f"files: {state.files.path}", style="dim", overflow="fold")]
    title = Text(f"{state.title}, {count(state.members, 'member')}", style="bold")
    return Panel(
        Stack(*parts), title=title, title_align="left", border_style="dim", width=max(width, 1)
    )


def _draw_groups(state: RunState, width: int, rows: int) -> Table:
    groups = state.groups[:rows]
    hidden = set() if any(group.has_masks for group in groups) else {"edges", "compact"}
    if not any(group.skipped for group in groups):
        hidden.add("skipped")
    if not any(group.curve for group in groups):
        hidden |= {"best", "curve"}
    if not state.is_measured:
        hidden.add("correlation")
    titles = {name: title for name, title in _TITLES.items() if name not in hidden}
    table = [describe_columns(group, state.states) for group in groups]
    if _measure(titles, table, folded=False) > width:
        table = [describe_columns(group, state.states, _SHORT_CURVE) for group in groups]
    return make_table(titles, table, width)


def make_table(titles: Mapping[str, str], rows: Sequence[Mapping[str, str]], width: int) -> Table:
    """A table with a row for each group, without the columns that matter least if it is narrow."""
    from rich.table import Table
    from rich.text import Text

    titles = dict(titles)
    for name in _LEAST_FIRST:
        if _measure(titles, rows, folded=True) > width:
            titles.pop(name, None)
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for name, title in titles.items():
        if name == "group":
            table.add_column(title, overflow="fold", min_width=min(_GROUP_SHORT, width))
        elif name == "curve":
            table.add_column(title, no_wrap=True, style="cyan")
        else:
            table.add_column(title, no_wrap=True, justify="right")
    for row in rows:
        table.add_row(*(Text(row[name]) for name in titles))
    return table


def _measure(titles: Mapping[str, str], rows: Sequence[Mapping[str, str]], folded: bool) -> int:
    """Width of a table; `folded`: with long names of groups in several lines."""
    widths = [max(len(titles[name]), *(len(row[name]) for row in rows)) for name in titles]
    if folded:
        widths[0] = min(widths[0], _GROUP)
    return sum(widths) + 2 * (len(widths) - 1)


def describe_columns(group: Group, states: int, curve: int = _CURVE) -> dict[str, str]:
    return {
        "group": group.name,
        "seeds": str(len(group.members)),
        "return": format_point(group.last, len(group.members)),
        "best": format_point(group.best, 1),
        "curve": draw_curve([point.mean for point in group.curve], curve),
        "correlation": format_correlation(group.correlation),
        "edges": format_percentage(group.edges),
        "compact": f"{group.compact:.3g}/{states}" if group.has_masks else "-",
        "skipped": str(group.skipped),
    }


def describe_group(group: Group, state: RunState) -> str:
    assert group.last is not None
    seeds = len(group.members)
    parts = [f"return {format_point(group.last, seeds)}", f"best {format_point(group.best, 1)}"]
    if not math.isnan(group.correlation):
        parts.append(f"correlation {format_correlation(group.correlation)}")
    if group.has_masks:
        parts.append(f"edges {format_percentage(group.edges)}")
        parts.append(f"compact state {group.compact:.3g} of {state.states}")
    if group.skipped:
        parts.append(f"{count(group.skipped, 'update')} skipped")
    when = f"{state.unit} {group.last.step:,}"
    return f"{when}  {group.name} ({count(seeds, 'seed')}): {', '.join(parts)}"


def describe_step(state: RunState) -> str:
    return f"{state.unit} {state.run.step:,} of {state.total:,}"


def describe_speed(state: RunState) -> str:
    """Describe the speed and the time left. Before the first update, name the phase of the run."""
    steps, updates = state.rates
    if state.run.phase:
        speed = "" if math.isnan(steps) else f", {steps:,.0f} steps/s"
        return f"{state.run.phase}{speed}"
    if math.isnan(steps):
        return "measuring speed"
    speed = f"{updates:,.0f} updates/s"
    if state.unit == "step":
        speed = f"{steps:,.0f} steps/s, {speed}"
    left = state.seconds_left
    return speed if math.isnan(left) else f"{speed}, {format_seconds(left)} left"


def draw_curve(values: Sequence[float], width: int) -> str:
    """A curve as blocks of different heights, at most `width` of them."""
    if not values:
        return "-"
    size = min(width, len(values))
    edges = [round(i * len(values) / size) for i in range(size + 1)]
    means = [
        math.fsum(values[start:stop]) / (stop - start) for start, stop in itertools.pairwise(edges)
    ]
    low, high = min(means), max(means)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BARS[round((value - low) * scale)] for value in means)


def format_point(point: Point | None, seeds: int) -> str:
    """A mean, and its standard deviation if there are several seeds."""
    if point is None:
        return "-"
    digits = 0 if abs(point.mean) >= 1000 else 1 if abs(point.mean) >= 100 else 2
    is_small = 0 < max(abs(point.mean), point.spread) < 0.1
    form = ".3g" if is_small else f",.{digits}f"
    mean = f"{point.mean:{form}}"
    return f"{mean} ± {point.spread:{form}}" if seeds > 1 else mean


def format_correlation(value: float) -> str:
    """A correlation; a dash where there is none."""
    return "-" if math.isnan(value) else f"{round(value, 2) + 0.0:.2f}"  # no -0.00


def print_closing(state: RunState) -> None:
    """Print how every group ended and where its best policy is, if there was an evaluation."""
    from rich.console import Console
    from rich.text import Text

    if not any(group.curve for group in state.groups):
        return
    console = Console(highlight=False)
    rows = [describe_end(group, state.states) for group in state.groups]
    titles = _CLOSING_TITLES | {"at": f"at {state.unit}"}
    if not state.is_measured:
        del titles["correlation"]
    console.print(make_table(titles, rows, console.width))
    for group in state.groups:
        folder = state.find_best_policy(group)
        if folder is not None:  # on a line of its own, unbroken, to be copied
            console.print(Text(f"best policy of {group.name}: {folder}"), soft_wrap=True)


def describe_end(group: Group, states: int) -> dict[str, str]:
    best = group.best
    return {
        **describe_columns(group, states),
        "best": format_point(best, len(group.members)),
        "at": "-" if best is None else f"{best.step:,}",
    }
