"""What a person sees of long work: bars in a terminal, a line now and then anywhere else.

All of it goes to stderr, so that stdout holds results only.

A stage of a decomposition is called "group: detail", for example "fitting the rewards: pairs". The
groups follow each other in the order of `GROUPS`. Before a group begins, its time is estimated from
the size of the data and from the groups that are done. Where the last fit runs in a second process,
the stages hear of it late, and it hardly counts. The bar covers the time that is left, so that it
never goes back when there turns out to be more to do.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from rich.console import Console, RenderableType
from rich.console import Group as Stack
from rich.padding import Padding
from rich.panel import Panel
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TimeElapsedColumn
from rich.table import Column, Table
from rich.text import Text

from grd_offline.core.observer import Observer
from grd_offline.core.words import count, format_percentage, format_seconds
from grd_offline.io.files.results import EVALUATIONS_FILE, read_rows

from .terminal import Stop, catch_signals, echo, print_warning, say

if TYPE_CHECKING:
    from grd_offline.core.episodes import EpisodeSet
    from grd_offline.lab.sweep.folder import Mark
    from grd_offline.lab.sweep.plan import Job
    from grd_offline.learning.runs.run import Run, RunFolder, TrainingResult

LINE_SECONDS = 10.0
"""Shortest time between two lines about a number of units, or about jobs."""
RUN_LINE_SECONDS = 30.0
"""Shortest time between two lines about the speed of a run."""
SAMPLE_SECONDS = 0.5
"""Shortest time between two measurements of the speed of a run."""
LOOK_SECONDS = 2.0
"""Shortest time between two looks at the members of a run. A look costs a forward pass of each."""
LOOK_SHARE = 0.01
"""Largest fraction of the time that looks may take."""
JOB_SECONDS = 1.0
"""Seconds between two looks at how far the running jobs are."""
MOST_BARS = 16
_HEIGHTS = "▁▂▃▄▅▆▇█"
_CURVE, _SHORT_CURVE = 20, 8
_GROUP, _GROUP_SHORT = 22, 12
"""Width of the names of groups at which they are folded, and their smallest width."""
_TITLES = {
    "group": "group", "seeds": "seeds", "return": "return", "best": "best", "curve": "evaluations",
    "correlation": "corr.", "edges": "edges", "compact": "compact", "skipped": "skipped",
}  # fmt: skip
_LEAST_FIRST = ("edges", "at", "seeds", "best", "curve", "compact", "correlation", "skipped")
"""Columns that are left out, in this order, until the table fits."""

Advance = Callable[[int], None]
"""Reports one more episode: the number of its steps."""


class Told(ProgressColumn):
    """A column with a text that a function makes of the task."""

    def __init__(self, tell: Callable[[Task], str], **column: Any) -> None:
        super().__init__(Column(no_wrap=True, **column))
        self._tell = tell

    def render(self, task: Task) -> Text:
        return Text(self._tell(task))


LABEL = Told(lambda task: task.description, overflow="ellipsis")
BAR = BarColumn(bar_width=None, table_column=Column(ratio=1, min_width=6))
LEFT = Told(lambda task: str(task.fields["left"]))


class ProgressBars(Progress):
    """Bars that are drawn in a terminal. Anywhere else, who fills them prints lines instead."""

    def __init__(
        self,
        *columns: ProgressColumn,
        draw: Callable[[ProgressBars], RenderableType] | None = None,
        refreshes: float = 4,
    ) -> None:
        self._draw = draw  # a thread of its own calls it: it goes on while a stage computes
        super().__init__(
            *columns,
            console=Console(stderr=True, highlight=False),
            disable=not sys.stderr.isatty(),
            refresh_per_second=refreshes,
            speed_estimate_period=120,
            get_time=lambda: time.monotonic(),
            transient=True,
            expand=True,
        )
        self._told = time.monotonic()

    def get_renderables(self) -> Iterable[RenderableType]:
        # Two columns stay free: the ^C that a terminal echoes must not begin another line.
        drawn = self._draw(self) if self._draw else self.make_tasks_table(self.tasks)
        yield Padding(drawn, (0, 2, 0, 0))

    def say(self, text: str) -> None:
        """Print a line, above the bars where there are any."""
        if self.disable:
            say(text)
        else:
            self.console.print(text, highlight=False, markup=False)

    def is_line_due(self, seconds: float) -> bool:
        """Whether it is time for another line. There is none in a terminal."""
        if not self.disable or time.monotonic() - self._told < seconds:
            return False
        self._told = time.monotonic()
        return True


def format_left(seconds: float | None, is_least: bool = False) -> str:
    """The time left in words, no finer than an estimate deserves; empty if it is not known."""
    if seconds is None:
        return ""
    if seconds >= 20:  # to 5 s, 10 s, 1 min, 10 min
        grain = 5 if seconds < 60 else 10 if seconds < 600 else 60 if seconds < 36_000 else 600
        seconds = grain * max(1, round(seconds / grain))
    return f"{'over' if is_least else 'about'} {format_seconds(max(seconds, 1))} left"


@contextmanager
def show_progress(label: str, total: int, stop: Stop | None = None) -> Iterator[Advance]:
    """Show how many episodes of `total` are done, and how many of their steps pass per second.

    with show_progress("collecting", 500) as advance:
        advance(len(episode))

    What `stop` has to say then goes above the bar.
    """

    def tell_left(task: Task) -> str:
        left = (task.elapsed or 0) * (total - task.completed) / max(task.completed, 1)
        return format_left(left if task.completed else None)

    def tell_rate(task: Task) -> str:
        return f"{task.fields['steps'] / max(task.elapsed or 0, 1e-9):,.0f} steps/s"

    done = Told(lambda task: f"{task.completed:,}/{total:,} episodes")
    bars = ProgressBars(LABEL, BAR, done, Told(tell_left), Told(tell_rate))
    number = bars.add_task(label, total=total, steps=0)
    (task,) = bars.tasks
    if stop is not None:
        stop.show = bars.say

    def advance(steps: int) -> None:
        bars.update(number, advance=1, steps=task.fields["steps"] + steps)
        if bars.is_line_due(LINE_SECONDS):
            done = f"{task.completed:,} of {total:,} episodes"
            say(f"{label}: {done}, {tell_rate(task)}, {tell_left(task)}")

    with bars:
        yield advance


class Watched(Observer):
    """Work that a person watches: warnings are printed, and a signal stops it."""

    stop: Stop

    def on_warning(self, text: str) -> None:
        print_warning(text)

    def should_stop(self) -> bool:
        return self.stop.is_set()


class EpisodeCounter(Watched):
    """Counts the episodes that were collected."""

    def __init__(self, advance: Advance, stop: Stop) -> None:
        self._advance, self.stop = advance, stop

    def on_result(self, work: Any, result: Any) -> None:
        self._advance(len(result.rewards))


def make_stage_bar(forecast: Forecast) -> ProgressBars:
    """One line: the stage, the bar of the whole, its percentage and the time left."""

    def draw(bars: ProgressBars) -> Table:
        look = forecast.look()
        left = format_left(look.seconds_left, look.is_least) or "measuring the time left"
        for task in bars.tasks:
            bars.update(task.id, description=look.stage, completed=look.fraction, left=left)
        return bars.make_tasks_table(bars.tasks)

    share = Told(lambda task: format_percentage(min(task.completed, 0.99)).rjust(4))
    bars = ProgressBars(LABEL, BAR, share, LEFT, draw=draw)
    bars.add_task("", total=1.0, left="")
    return bars


@contextmanager
def show_stages(parts: Sequence[str] = ("",)) -> Iterator[Forecast]:
    """Show one bar for a command with several stages: the bar and the time left are of the whole.

    The command reports to `forecast.hear`. `parts` are the names of several decompositions that
    follow each other. Where there is no terminal, a line tells when a stage begins.
    """
    forecast, begin, said = Forecast(parts), time.monotonic(), ""

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

    with make_stage_bar(forecast) as bars:
        if bars.disable:
            forecast.on_stage = tell
        yield forecast


class JobsDisplay(Watched):
    """Shows a bar for all jobs and one for each that runs, and a line for each that ends."""

    def __init__(self, folder: Path, jobs: Sequence[Job], what: str, stop: Stop) -> None:
        from grd_offline.lab.sweep.folder import FINISHED, describe_marks

        self._what, self.stop = what, stop
        self._folder, self._jobs = folder, {job.name: job for job in jobs}
        self._marks = dict(describe_marks(folder, tuple(jobs)))
        self._done = {n for n, mark in self._marks.items() if mark and mark.state == FINISHED}
        self._given_up: set[str] = set()
        self._busy: set[str] = set()
        self._running: dict[str, Job] = {}
        self._begin, self._looked = time.monotonic(), 0.0
        self._at_begin = sum(map(self._measure, self._jobs))
        share = Told(lambda task: f"{task.percentage:3.0f} %")
        self.bars = ProgressBars(LABEL, BAR, share, TimeElapsedColumn(), LEFT)
        self.say = stop.show = self.bars.say
        if self._done:
            self.say(f"{len(self._done)} of {len(jobs)} {what} had finished before")
        self._all = self.bars.add_task(f"all {what}", total=len(jobs), left="")
        self._tasks: dict[str, TaskID] = {}

    def on_start(self, work: Job) -> None:
        self._running[work.name] = work
        self._given_up.discard(work.name)
        before = self._marks.get(work.name)
        if before is not None and before.tries:
            self.say(f"repeating {work.name}: {before.reason or 'it was cut off'}")

    def on_result(self, work: Job, result: Mark | None) -> None:
        name = work.name
        self._running.pop(name, None)
        if name in self._tasks:
            self.bars.remove_task(self._tasks.pop(name))
        if result is None:
            if name not in self._busy:
                self._busy.add(name)
                self.say(f"waiting for {name}: a process of an earlier sweep still works on it")
            return
        self._marks[name] = result
        if result.state == "finished":
            self._done.add(name)
            self.say(f"finished {name} in {format_seconds(result.seconds)}")
        else:
            self._given_up.add(name)
            self.say(f"{result.state}: {name}: {result.reason}")

    def on_progress(self, stage: str, share: float) -> None:
        """Look at how far the jobs are, if it is time to."""
        if time.monotonic() - self._looked < JOB_SECONDS:
            return
        self._looked = time.monotonic()
        shares = {name: self._measure(name) for name in self._running}
        left = format_left(self.estimate_left())
        if self.bars.is_line_due(LINE_SECONDS):
            done = f"{len(self._done)} of {len(self._jobs)} {self._what} finished"
            parts = [f"; {n} {format_percentage(part)}" for n, part in shares.items() if part > 0]
            self.say(f"{done}{left and f', {left}'}{''.join(parts):.300}")
        for name, part in shares.items():
            # With Ray, jobs that wait for a machine are among those that run.
            if name not in self._tasks and len(self._tasks) < MOST_BARS and part > 0:
                self._tasks[name] = self.bars.add_task(name, total=1.0, left="")
            if name in self._tasks:
                self.bars.update(self._tasks[name], completed=part)
        self.bars.update(self._all, completed=sum(map(self._measure, self._jobs)), left=left)

    def _measure(self, name: str) -> float:
        from grd_offline.lab.sweep.folder import measure_progress

        return 1.0 if name in self._done else measure_progress(self._folder, self._jobs[name])

    def estimate_left(self) -> float | None:
        """Seconds until all jobs are finished, at the speed so far. None if nothing is known."""
        shares = {n: self._measure(n) for n in self._jobs if n not in self._given_up}
        gained = sum(shares.values()) - self._at_begin
        if gained <= 0.01:
            return None
        return (time.monotonic() - self._begin) / gained * (len(shares) - sum(shares.values()))


class Terminal(Watched, AbstractContextManager["Terminal"]):
    """The display of a training run, and of decompositions before it. It also handles Ctrl-C.

    The first Ctrl-C stops the run, the second ends it at once.
    """

    def __init__(self) -> None:
        self.line = ["grd-offline", *sys.argv[1:]]
        self.stop = Stop()
        self.shown: RunDisplay | None = None
        self._forecast = Forecast()
        self._open = ExitStack()

    def on_start(self, work: Any) -> None:
        if isinstance(work, str):  # a decomposition by the method of this name
            self._forecast = self._open.enter_context(show_stages((work,)))
        elif self.shown is None:
            self.stop = self._open.enter_context(catch_signals())
            self.shown = RunDisplay(work.run, work, self.stop)
            self._open.enter_context(self.shown.bars)
            if work.run.step:
                echo(f"continuing {work.path} at {work.run.unit} {work.run.step:,}")
        else:
            self.shown.on_start(work)

    def on_progress(self, stage: str, share: float) -> None:
        if self.shown is not None:
            self.shown.on_progress(stage, share)
        else:
            self._forecast.hear(stage, share)

    def on_result(self, work: Any, result: Any) -> None:
        if self.shown is None:
            self._open.close()
            line = f"{work}: {result.about['fit']} in {result.about['seconds']:.1f} s"
            if truth := result.about.get("against_truth"):
                line += f", Pearson {truth['pearson']:.3f} with the true rewards"
            say(line)
        elif work is self.shown.files:
            self._open.close()
            self.shown.look()
        else:
            self.shown.on_result(work, result)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._open.close()
        if isinstance(error, KeyboardInterrupt) and self.shown is not None:
            # Nothing more is written, and what is there stays.
            say(f"stopped at once: {self.shown.files.path} holds what was written before")
            raise SystemExit(130) from None

    def tell_end(self, result: TrainingResult, what_next: str) -> None:
        """Say what was written. If the run was stopped, say `what_next` and end the command."""
        assert self.shown is not None
        unit, members = self.shown.unit, count(self.shown.members, "member")
        if self.stop.is_set():
            echo(f"stopped at {unit} {result.step:,}{what_next}")
            self.stop.leave()
        else:
            echo(f"wrote {result.folder}: {count(result.step, unit)} of {members}")


class Point(NamedTuple):
    """An evaluation of a group: mean and standard deviation over its members."""

    step: int
    mean: float
    spread: float


@dataclass
class Group:
    """Members that differ by their seed alone."""

    name: str
    members: list[int]
    """Places of the members in the run."""
    curve: list[Point] = field(default_factory=list)
    correlation: float = math.nan
    edges: float = math.nan
    """Fraction of the edges that are on, as the mean of the four masks; nan without masks."""
    compact: float = math.nan
    """Number of dimensions of the compact state."""
    skipped: int = 0
    """Number of updates of all members that were skipped because they were not finite."""

    @property
    def last(self) -> Point | None:
        return self.curve[-1] if self.curve else None

    @property
    def best(self) -> Point | None:
        """The evaluation with the highest mean."""
        return max(self.curve, key=lambda point: point.mean, default=None)


class RunDisplay(Observer):
    """Shows how far a run is and what its groups of members have reached.

    A thread of its own draws it. Every value is replaced as a whole, so that at worst a number of
    the moment before is shown.
    """

    def __init__(self, run: Run, files: RunFolder, stop: Stop | None = None) -> None:
        self.title, self.unit, self.states = run.title, run.unit, run.states
        self.members, self.total = len(run.members), run.total
        self.run, self.files = run, files
        groups: dict[str, Group] = {}
        for place, member in enumerate(run.members):
            groups.setdefault(member.group, Group(member.group, [])).members.append(place)
        self.groups = list(groups.values())
        self._read_curves()
        self._looked = self._sampled = time.monotonic()
        self._look_seconds = 0.0
        self._is_evaluating = False
        self.always = ["group", "seeds", "return"]
        """Columns that are shown also where they hold nothing."""
        self.notice = ""
        """What the command says when it is asked to stop."""
        tell = Told(lambda task: f"{self.unit} {self.run.step:,} of {self.total:,}")
        share = Told(lambda task: format_percentage(run.step / run.total))
        self.bars = ProgressBars(tell, BAR, share, draw=self._draw, refreshes=1)
        self.bars.add_task("steps", total=run.total, completed=run.step)
        self.bars.add_task("updates", completed=run.learner.updates, visible=False)
        if stop is not None:
            stop.show = self._acknowledge
        if self.bars.disable:
            phase = f", {run.phase}" if run.phase else ""
            say(
                f"{self.title}: {count(self.members, 'member')}, "
                f"{count(self.total, self.unit)} each{phase}; writing to {files.path}"
            )

    def _draw(self, bars: ProgressBars) -> RenderableType:
        if not bars.tasks:
            return ""
        return draw_panel(self, bars.console.width - 2, bars.console.height)

    def _acknowledge(self, notice: str) -> None:
        self.notice = notice
        if self.bars.disable:
            say(notice)
        self.bars.refresh()

    def _read_curves(self) -> None:
        rows = read_rows(self.files.path / EVALUATIONS_FILE)
        for group in self.groups:
            returns: dict[int, list[float]] = {}
            for row in rows:
                if row["group"] == group.name:
                    returns.setdefault(int(row["step"]), []).append(float(row["mean_return"]))
            group.curve = [summarise(step, values) for step, values in sorted(returns.items())]

    def on_progress(self, stage: str, share: float) -> None:
        self._sample()
        # While an evaluation is under way, what was seen at its start belongs to it.
        is_due = time.monotonic() - self._looked >= self._look_seconds and not self._is_evaluating
        if is_due and not self.run.phase:
            self.look()
        if self.bars.is_line_due(RUN_LINE_SECONDS):
            say(f"{self.unit} {self.run.step:,} of {self.total:,}, {describe_speed(self)}")

    def on_start(self, work: Any) -> None:
        """Look at the members: what is seen belongs to the evaluation."""
        self._is_evaluating = True
        self.look()

    def on_result(self, work: Any, result: Any) -> None:
        self._is_evaluating = False
        if result.returns is not None:
            means = result.returns.mean(1)
            for group in self.groups:
                group.curve.append(summarise(result.step, means[group.members]))
        if self.bars.disable and result.returns is None:
            say(f"{self.unit} {result.step:,}  policies saved")
        elif self.bars.disable:
            for group in self.groups:
                say(describe_group(group, self))

    def _sample(self) -> None:
        """Take note of the steps and the updates that are done."""
        steps, updates = self.bars.tasks
        now = self.run.learner.updates
        if now > updates.completed and not updates.fields.get("is_learning"):
            # Warm-up and first updates, in which kernels are compiled, tell nothing of the speed.
            self.bars.reset(steps.id, completed=int(steps.completed))
            self.bars.reset(updates.id, completed=int(updates.completed), is_learning=True)
        elif time.monotonic() - self._sampled < SAMPLE_SECONDS:
            return
        self._sampled = time.monotonic()
        self.bars.update(steps.id, completed=self.run.step)
        self.bars.update(updates.id, completed=now)

    def look(self) -> None:
        """Bring correlations, masks and skipped updates of all groups up to date."""
        begin, measures = time.monotonic(), self.run.measure()
        if measures is None:
            return
        self.always = ["group", "seeds", "return", "correlation"]
        for group in self.groups:
            group.correlation = mean_known(measures.correlations[group.members])
            group.edges = mean_known(measures.edges[group.members])
            group.compact = float(measures.compact[group.members].mean())
            group.skipped = int(measures.skipped[group.members].sum())
        self._looked = time.monotonic()
        self._look_seconds = max(LOOK_SECONDS, (self._looked - begin) / LOOK_SHARE)

    @property
    def rates(self) -> tuple[float | None, float | None]:
        """Steps and updates of each member per second; None if they are not known yet."""
        steps, updates = self.bars.tasks
        return steps.speed, updates.speed

    @property
    def seconds_left(self) -> float | None:
        """Estimated time until the end; None during the warm-up, which is faster than learning."""
        steps = self.bars.tasks[0]
        if self.run.phase or not steps.speed:
            return None
        passed = time.monotonic() - self._sampled
        return max((steps.remaining or 0.0) / steps.speed - passed, 0.0)


def summarise(step: int, values: Any) -> Point:
    """Mean and standard deviation of the returns of the members of a group."""
    return Point(step, float(np.mean(values)), float(np.std(values)))


def mean_known(values: Any) -> float:
    """The mean of the values that are finite; nan if none is."""
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else math.nan


def draw_panel(shown: RunDisplay, width: int, height: int) -> Panel:
    """Everything about a run that fits a terminal of this size."""
    bar = shown.bars.make_tasks_table(shown.bars.tasks[:1])
    speed = f"{describe_speed(shown)}, {format_seconds(shown.files.seconds)} so far"
    rows = max(height - (12 if shown.notice else 10), 1)
    groups = shown.groups[:rows]
    curve = _CURVE if width >= 110 else _SHORT_CURVE
    cells = [describe_columns(group, shown.states, curve) for group in groups]
    table = make_table(_TITLES, cells, width - 4, shown.always)
    speeds = Text(speed, style="yellow" if shown.run.phase else "")
    parts: list[RenderableType] = [bar, speeds, Text(), table]
    if len(shown.groups) > rows:
        parts.append(Text(f"and {len(shown.groups) - rows} more", style="dim"))
    if shown.notice:
        parts += [Text(), Text(shown.notice, style="bold yellow")]
    parts += [Text(), Text(f"files: {shown.files.path}", style="dim", overflow="fold")]
    title = Text(f"{shown.title}, {count(shown.members, 'member')}", style="bold")
    return Panel(
        Stack(*parts), title=title, title_align="left", border_style="dim", width=max(width, 1)
    )


def make_table(
    titles: Mapping[str, str],
    rows: Sequence[Mapping[str, str]],
    width: int,
    always: Collection[str],
) -> Table:
    """A table with a row for each group: without columns in which nothing is known, and without
    those that matter least if it is narrow."""
    kept = [n for n in titles if n in always or any(row[n] not in ("-", "0") for row in rows)]
    sizes = {name: max(len(titles[name]), *(len(row[name]) for row in rows)) + 2 for name in kept}
    sizes["group"] = min(sizes["group"], _GROUP)
    for name in _LEAST_FIRST:
        if sum(sizes[name] for name in kept) - 2 > width and name in kept:
            kept.remove(name)
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    looks: dict[str, dict[str, Any]] = {
        "group": {"overflow": "fold", "min_width": min(_GROUP_SHORT, width)},
        "curve": {"no_wrap": True, "style": "cyan"},
    }
    for name in kept:
        table.add_column(titles[name], **looks.get(name, {"no_wrap": True, "justify": "right"}))
    for row in rows:
        table.add_row(*(Text(row[name]) for name in kept))
    return table


def describe_columns(group: Group, states: int, curve: int = 0) -> dict[str, str]:
    """The cells of a group. Without a curve, they are those of the closing table."""
    seeds, best = len(group.members), group.best
    return {
        "group": group.name,
        "seeds": str(seeds),
        "return": format_point(group.last, seeds),
        "best": format_point(best, 1 if curve else seeds),
        "at": "-" if best is None else f"{best.step:,}",
        "curve": draw_curve([point.mean for point in group.curve], curve) if curve else "-",
        "correlation": format_correlation(group.correlation),
        "edges": format_percentage(group.edges),
        "compact": "-" if math.isnan(group.edges) else f"{group.compact:.3g}/{states}",
        "skipped": str(group.skipped),
    }


def describe_group(group: Group, shown: RunDisplay) -> str:
    """One line about the last evaluation of a group."""
    assert group.last is not None
    cells, seeds = describe_columns(group, shown.states, 1), len(group.members)
    parts = [f"return {cells['return']}", f"best {cells['best']}"]
    parts += [f"{name} {cells[name]}" for name in ("correlation", "edges") if cells[name] != "-"]
    if cells["compact"] != "-":
        parts.append(f"compact state {cells['compact'].replace('/', ' of ')}")
    if group.skipped:
        parts.append(f"{count(group.skipped, 'update')} skipped")
    when = f"{shown.unit} {group.last.step:,}"
    return f"{when}  {group.name} ({count(seeds, 'seed')}): {', '.join(parts)}"


def describe_speed(shown: RunDisplay) -> str:
    """Describe the speed and the time left. Before the first update, name the phase of the run."""
    steps, updates = shown.rates
    if shown.run.phase:
        return f"{shown.run.phase}{f', {steps:,.0f} steps/s' if steps else ''}"
    if not steps or not updates:
        return "measuring speed"
    parts = [f"{steps:,.0f} steps/s"] if shown.unit == "step" else []
    parts.append(f"{updates:,.0f} updates/s")
    if shown.seconds_left is not None:
        parts.append(f"{format_seconds(shown.seconds_left)} left")
    return ", ".join(parts)


def draw_curve(values: Sequence[float], width: int) -> str:
    """A curve as blocks of different heights, at most `width` of them."""
    if not values:
        return "-"
    means = [float(part.mean()) for part in np.array_split(values, min(width, len(values)))]
    low, high = min(means), max(means)
    scale = (len(_HEIGHTS) - 1) / (high - low) if high > low else 0.0
    return "".join(_HEIGHTS[round((value - low) * scale)] for value in means)


def format_point(point: Point | None, seeds: int) -> str:
    """A mean, and its standard deviation if there are several seeds."""
    if point is None:
        return "-"
    digits = 0 if abs(point.mean) >= 1000 else 1 if abs(point.mean) >= 100 else 2
    is_small = 0 < max(abs(point.mean), point.spread) < 0.1
    form = ".3g" if is_small else f",.{digits}f"
    mean = f"{point.mean:{form}}"
    return f"{mean} ± {point.spread:{form}}" if seeds > 1 else mean


def format_correlation(value: float | None) -> str:
    """A correlation; a dash where there is none."""
    if value is None or math.isnan(value):
        return "-"
    return f"{round(value, 2) + 0.0:.2f}"  # no -0.00


def print_closing(shown: RunDisplay | None) -> None:
    """Print how every group ended and where its best policy is, if there was an evaluation."""
    if shown is None or not any(group.curve for group in shown.groups):
        return
    console = Console(highlight=False)
    titles = {
        "group": "group", "seeds": "seeds", "return": "final return", "best": "best return",
        "at": f"at {shown.unit}", "correlation": "corr.",
    }  # fmt: skip
    rows = [describe_columns(group, shown.states) for group in shown.groups]
    console.print(make_table(titles, rows, console.width, shown.always))
    best, members = shown.files.best, shown.run.members
    for group in shown.groups:
        names = [members[i].name for i in group.members if members[i].name in best]
        if names:  # on a line of its own, unbroken, to be copied
            name = max(names, key=lambda name: best[name])
            folder = shown.files.path / "members" / name / "policies" / "best"
            console.print(Text(f"best policy of {group.name}: {folder}"), soft_wrap=True)


READING = "reading the data"
TESTING = "testing on held-out episodes"
COMPARING = "comparing with other fits"
FITTING = "fitting the rewards"
GRAPH = "finding the causal graph"
DYNAMICS = "fitting the dynamics"
DYNAMICS_TEST = "testing the dynamics"
REWARDS = "computing step rewards"
WRITING = "writing the results"
REPORT = "making the report"
GROUPS = (
    READING, TESTING, COMPARING, FITTING, GRAPH, DYNAMICS, DYNAMICS_TEST, REWARDS, WRITING, REPORT,
)  # fmt: skip
_WITH_SHARES = frozenset({GRAPH, DYNAMICS, DYNAMICS_TEST, REWARDS})
"""Groups that report which fraction of them is done."""
_FITS = frozenset({TESTING, COMPARING, FITTING})

_REPEATED = 1.2
"""The last fit has a quarter more episodes than the fit that is tested."""
_LATE = 0.3
"""A group that takes longer than expected will take at least this fraction of its time more."""
_KNOWN_SHARE = 0.05
"""Fraction of a stage from which on its whole time can be told."""


class Look(NamedTuple):
    """What can be said about a decomposition at one moment."""

    stage: str
    fraction: float
    seconds_left: float | None
    """`None` while nothing is known about the time left."""
    is_least: bool
    """Whether stages may follow whose time is not known yet."""


class Forecast:
    """Hears of stages, and estimates the fraction of the whole that is done and the time left."""

    def __init__(
        self, parts: Sequence[str] = ("",), clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Several `parts` are decompositions of the same data that follow each other. A stage then
        begins with the name of its part."""
        self._clock, self._parts = clock, tuple(parts)
        self._parts_done: list[float] = []
        self._size: dict[str, float] = {}
        """Seconds of each group as the size of the data tells."""
        self._is_beside = False
        """Whether the last fit runs in a second process, and takes no time of its own."""
        self.on_stage: Callable[[str, str], None] = lambda stage, detail: None
        """Hears of each stage and its detail."""
        self._fraction = 0.0
        self._looked = clock()
        self._begin_part()

    def _begin_part(self) -> None:
        self._part = self._parts[len(self._parts_done)]
        self._part_begun = self._group_begun = self._detail_begun = self._clock()
        self._taken: dict[str, float] = {}
        self._group, self._detail, self._share = "", "", 0.0

    def take_size(self, episodes: EpisodeSet, fitted: EpisodeSet, *, is_closed_form: bool) -> None:
        """Estimate the seconds of each group from the size of the data, and of the part of them
        that models are fitted to.

        Nothing is known about fits other than the closed form before they have begun.
        """
        from grd_offline.methods.choose import is_worth_a_process

        found = estimate_seconds(episodes, fitted)
        self._size = {n: s for n, s in found.items() if is_closed_form or n not in _FITS}
        self._is_beside = is_closed_form and is_worth_a_process(fitted)
        if self._is_beside:
            self._size |= {READING: 0.1 + 4e-6 * episodes.total_steps, FITTING: 0.0}

    def hear(self, stage: str, share: float) -> None:
        """Take note of a stage and of the fraction of it that is done."""
        now = self._clock()
        to_come = self._parts[len(self._parts_done) + 1 :]
        if to_come and stage.startswith(f"{to_come[0]}: "):
            self._parts_done.append(now - self._part_begun)
            self._begin_part()
        group, _, detail = stage.removeprefix(f"{self._part}: ").partition(": ")
        if group != self._group:
            if self._group:
                self._taken[self._group] = now - self._group_begun
            self._group, self._detail = group, detail
            self._group_begun = self._detail_begun = now
        elif detail != self._detail or share < self._share:
            self._detail, self._detail_begun = detail, now
        self._share = share
        self.on_stage(self._name(), detail)

    def _name(self) -> str:
        return f"{self._part}: {self._group}" if self._part else self._group or READING

    def look(self) -> Look:
        """Say how far the decomposition is now."""
        now = self._clock()
        expected = self._expect(now - self._group_begun)
        place = GROUPS.index(self._group) + 1 if self._group in GROUPS else len(GROUPS)
        later = [
            name
            for name in GROUPS[place:]
            if name not in (COMPARING, *self._taken) and (self._size or name in expected)
        ]
        is_least = self._group == COMPARING or any(name not in expected for name in later)
        left = self._estimate_group(now, expected.get(self._group))
        if left is not None:
            left += sum(expected.get(name, 0.0) for name in later)
            done = self._parts_done or [now - self._part_begun + left]
            parts_to_come = len(self._parts) - 1 - len(self._parts_done)
            left += parts_to_come * sum(done) / len(done)
            if now > self._looked:
                passed = now - self._looked
                self._fraction += (1 - self._fraction) * passed / (passed + left)
        self._looked = now
        return Look(self._name(), self._fraction, left, is_least)

    def _expect(self, so_far: float) -> dict[str, float]:
        """Seconds of each group, scaled by what the groups took that are done or late."""
        taken = dict(self._taken)
        if so_far > self._size.get(self._group, math.inf):
            taken[self._group] = (1 + _LATE) * so_far
        measured = [name for name in taken if name in self._size]
        pace = (1 + sum(taken[n] for n in measured)) / (1 + sum(self._size[n] for n in measured))
        scale = min(max(pace, 0.5), 3.0)
        expected = {n: s if n in _FITS else scale * s for n, s in self._size.items()}
        if TESTING in taken and not self._is_beside:
            expected[FITTING] = _REPEATED * taken[TESTING]
        return expected

    def _estimate_group(self, now: float, expected: float | None) -> float | None:
        """Seconds until the current group is done."""
        taken = now - self._group_begun
        has_share = self._group in _WITH_SHARES or expected is None
        if has_share and _KNOWN_SHARE <= self._share <= 1:
            return (now - self._detail_begun) * (1 - self._share) / self._share
        return None if expected is None else max(expected - taken, _LATE * taken)


def estimate_seconds(episodes: EpisodeSet, fitted: EpisodeSet) -> dict[str, float]:
    """Rough seconds of each group for the closed form on one core, from the size of the data.

    They serve until the groups themselves have been timed.
    """
    from grd_offline.methods.choose import estimate_fit_seconds

    states, inputs = episodes.state_size, episodes.state_size + episodes.action_size
    seen, steps = min(fitted.total_steps, 100_000), episodes.total_steps
    fit = estimate_fit_seconds(len(fitted), fitted.total_steps, states, inputs - states)
    graph = 0.3 + 2e-7 * states * inputs * seen
    dynamics = 0.3 + 3.4e-6 * inputs * seen
    return {
        READING: 0.1,
        TESTING: fit,
        FITTING: _REPEATED * fit,
        GRAPH: graph,
        DYNAMICS: dynamics,
        DYNAMICS_TEST: 0.5 * graph + dynamics,
        REWARDS: 0.4 + 4e-6 * steps + 3e-3 * len(episodes),
        WRITING: 0.2,
        REPORT: 0.5 + 2e-6 * steps + 9e-4 * len(episodes),
    }
