"""Pages of a comparison and of a sweep, and the sections of a comparison on the page of runs."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from grd_offline.comparison.compare import Comparison, TaskRow, Total
from grd_offline.comparison.paper import Printed
from grd_offline.core.statistics import Estimate
from grd_offline.report.curves import show_spread
from grd_offline.report.page import render_page, show_number, show_share

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CAPTIONS = {
    "means": "Interquartile means over seeds and tasks with 95 % intervals",
    "profiles": "Performance profiles: the share of runs above each score",
    "improvement": "Probability of improvement",
    "tasks": "Interquartile means over seeds on each task with 95 % intervals",
}
NAV = {"statistics": "Statistics", "tasks": "Tasks"}
COLUMNS = (
    *("task", "method", "seeds", "step", "mean", "interquartile mean", "of the reference"),
    "paper",
)


def make_comparison_page(comparison: Comparison, title: str, about: str = "") -> str:
    """Make the page of a comparison; `about` says in a few words what it is of."""
    total = next(t for t in comparison.totals if t.method == comparison.chosen)
    if total.share is not None and comparison.reference is not None:
        reached = show_share_interval(total.share)
        about = f"{about} {total.method} reaches {reached} of {comparison.reference}."
    return render_page(
        "comparison.html",
        {"kind": "comparison"},
        tab=f"{title}: comparison",
        kind="Comparison",
        title=title,
        about=about,
        facts=[
            (str(len(comparison.tasks)), "tasks"),
            (str(len(comparison.methods)), "methods"),
            (str(sum(len(row.scores) for row in comparison.rows)), "runs of a seed"),
        ],
        nav=NAV,
        **describe_comparison(comparison),
    )


def make_sweep_page(
    title: str, about: str, jobs: Sequence[Sequence[str]], comparison: Comparison | None
) -> str:
    """Make the page of a sweep: its jobs, and the comparison of its methods.

    A job has a name, a state, a number of tries, a time, a result and a command.
    """
    finished = sum(job[1] == "finished" for job in jobs)
    facts = [(str(len(jobs)), "jobs"), (str(finished), "finished")]
    if comparison is not None:
        facts.append((str(len(comparison.tasks)), "tasks"))
        facts.append((str(len(comparison.methods)), "methods"))
    return render_page(
        "comparison.html",
        {"kind": "sweep"},
        tab=f"{title}: sweep",
        kind="Sweep",
        title=title,
        about=about,
        facts=facts,
        nav={**(NAV if comparison else {}), "jobs": "Jobs"},
        jobs=jobs,
        **describe_comparison(comparison),
    )


def describe_comparison(comparison: Comparison | None) -> dict[str, Any]:
    """Collect what the sections of a comparison show; without one there are no sections."""
    if comparison is None:
        return {"comparison": None}
    from grd_offline.report.figures import draw_comparison_figures, write_figure

    def encode(name: str, figure: Figure) -> str:
        """Write a figure as the address of a picture that needs no script."""
        picture = write_figure(figure, "svg", CAPTIONS[name], fonttype="path")
        return f"data:image/svg+xml;base64,{b64encode(picture).decode()}"

    rows = list_rows(comparison)
    width = len(COLUMNS) if any(row[-1] != "-" for row in rows) else len(COLUMNS) - 1
    figures = draw_comparison_figures(comparison)
    return {
        "comparison": comparison,
        "explanation": explain(comparison),
        "totals": list_totals(comparison),
        "columns": COLUMNS[:width],
        "rows": [row[:width] for row in rows],
        "captions": CAPTIONS,
        "pictures": {name: encode(name, figure) for name, figure in figures.items()},
    }


def explain(comparison: Comparison) -> str:
    """Say what the numbers over tasks mean."""
    parts = []
    is_scaled = any(total.scaled for total in comparison.totals)
    if comparison.metric == "return" and comparison.reference is not None and is_scaled:
        parts.append(
            "Scores are normalised on each task: 0 is the return of random actions, and 1 is the "
            f"mean return of {comparison.reference}."
        )
    elif comparison.metric == "return" and comparison.reference is None:
        parts.append("There is no oracle, so scores of different tasks have no common scale.")
    parts.append(
        "The 95 % intervals come from a bootstrap, which draws seeds with replacement within each "
        "task."
    )
    if len(comparison.totals) > 1:
        parts.append(
            f"Improvement is the probability that {comparison.chosen} does better than the method "
            "of the row."
        )
    return " ".join(parts)


def list_totals(comparison: Comparison) -> list[tuple[str, ...]]:
    """The table over tasks as text."""
    return [_show_total(total) for total in comparison.totals]


def _show_total(total: Total) -> tuple[str, ...]:
    tasks = str(len(total.tasks))
    if total.middle is not None and total.scaled != total.tasks:
        tasks = f"{len(total.scaled)} of {tasks}"
    return (
        total.method,
        tasks,
        "-" if total.middle is None else show_interval(total.middle),
        "-" if total.share is None else show_share_interval(total.share),
        "-" if total.improvement is None else show_share_interval(total.improvement),
    )


def list_rows(comparison: Comparison) -> list[tuple[str, ...]]:
    """The table of tasks as text."""
    found = [
        (task, comparison.find(task, m)) for task in comparison.tasks for m in comparison.methods
    ]
    return [_show_row(row) for _, row in found if row is not None]


def _show_row(row: TaskRow) -> tuple[str, ...]:
    return (
        row.task,
        row.method,
        str(len(row.scores)),
        f"{row.step:,}",
        show_spread(row.mean, row.spread, len(row.scores)),
        show_interval(row.middle),
        "-" if row.share is None else show_share(row.share),
        show_printed(row.printed),
    )


def show_printed(number: Printed | None) -> str:
    """The paper's number, with its standard deviation where the paper has one."""
    if number is None:
        return "-"
    text = show_spread(number.mean, number.std or 0.0, 1 if number.std is None else 2)
    return f"{text} {number.note}".strip()


def show_interval(estimate: Estimate) -> str:
    """A number and its interval; the number alone where all draws are the same, as of one seed."""
    if estimate.low == estimate.high:
        return show_number(estimate.value)
    ends = f"{show_number(estimate.low)} to {show_number(estimate.high)}"
    return f"{show_number(estimate.value)} ({ends})"


def show_share_interval(estimate: Estimate) -> str:
    """A share and its interval; see `show_interval`."""
    if estimate.low == estimate.high:
        return f"{100 * estimate.value:.0f}\N{NO-BREAK SPACE}%"
    ends = f"{100 * estimate.low:.0f} to {100 * estimate.high:.0f}"
    return f"{100 * estimate.value:.0f}\N{NO-BREAK SPACE}% ({ends})"


def is_worth_comparing(comparison: Comparison) -> bool:
    """Whether there is more than one method, and more than one seed."""
    return len(comparison.methods) > 1 and any(len(row.scores) > 1 for row in comparison.rows)
