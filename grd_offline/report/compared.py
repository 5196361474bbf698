"""The page of a comparison, and its section on the page of runs."""

from __future__ import annotations

from base64 import b64encode
from html import escape
from io import BytesIO
from typing import TYPE_CHECKING

import grd_offline.report.page as page
from grd_offline.core.statistics import Estimate
from grd_offline.lab.comparison.compare import Comparison, TaskRow, Total
from grd_offline.lab.comparison.paper import Printed
from grd_offline.report.curves import show_spread

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURES = {
    "means": "Interquartile means over seeds and tasks with 95 % intervals",
    "profiles": "Performance profiles: the share of runs above each score",
    "improvement": "Probability of improvement",
    "tasks": "Interquartile means over seeds on each task with 95 % intervals",
}


def make_comparison_page(comparison: Comparison, title: str, about: str = "") -> str:
    """Make the page of a comparison; `about` says in a few words what it is of."""
    sections = list_sections(comparison)
    body = page.make_body(_tell_headline(comparison, title, about), sections)
    return page.make_page(f"{title}: comparison", body, {"kind": "comparison"})


def list_sections(comparison: Comparison) -> list[tuple[str, str, str]]:
    """The sections of a comparison: name, title and HTML."""
    from grd_offline.report.comparison_figures import draw_comparison_figures

    figures = draw_comparison_figures(comparison)
    sections = [("statistics", "Statistics", _tell_totals(comparison, figures))]
    sections.append(("tasks", "Tasks", _tell_tasks(comparison, figures)))
    return sections


def _tell_headline(comparison: Comparison, title: str, about: str) -> str:
    total = next(t for t in comparison.totals if t.method == comparison.chosen)
    said = [about] if about else []
    if total.share is not None and comparison.reference is not None:
        said.append(
            f"{total.method} reaches {show_share_interval(total.share)} of {comparison.reference}."
        )
    facts = [
        (str(len(comparison.tasks)), "tasks"),
        (str(len(comparison.methods)), "methods"),
        (str(sum(len(row.scores) for row in comparison.rows)), "runs of a seed"),
    ]
    return page.make_headline("Comparison", escape(title), said, facts, "")


def _tell_totals(comparison: Comparison, figures: dict[str, Figure]) -> str:
    head = ("method", "tasks", "interquartile mean", "of the reference", "improvement")
    table = page.make_table(head, list_totals(comparison), "Methods over all tasks", (1, 2, 3, 4))
    notes = "".join(f"<p>{escape(note)}</p>" for note in comparison.notes)
    shown = [_embed(figures[n], FIGURES[n]) for n in FIGURES if n in figures and n != "tasks"]
    lead = escape(explain(comparison))
    return page.make_section("statistics", "Statistics", lead, table, notes, *shown)


def _tell_tasks(comparison: Comparison, figures: dict[str, Figure]) -> str:
    head = (
        "task",
        "method",
        "seeds",
        "step",
        "mean",
        "interquartile mean",
        "of the reference",
        "paper",
    )
    rows = list_rows(comparison)
    width = len(head) if any(row[-1] != "-" for row in rows) else len(head) - 1
    shown = [row[:width] for row in rows]
    table = page.make_table(head[:width], shown, "Methods on each task", range(2, width))
    drawn = _embed(figures["tasks"], FIGURES["tasks"])
    lead = (
        "The columns have the mean and standard deviation over seeds, and the interquartile mean "
        "with its 95 % interval."
    )
    return page.make_section("tasks", "Tasks", lead, table, drawn)


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
        "-" if row.share is None else page.show_share(row.share),
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
        return page.show_number(estimate.value)
    ends = f"{page.show_number(estimate.low)} to {page.show_number(estimate.high)}"
    return f"{page.show_number(estimate.value)} ({ends})"


def show_share_interval(estimate: Estimate) -> str:
    """A share and its interval; see `show_interval`."""
    if estimate.low == estimate.high:
        return f"{100 * estimate.value:.0f}\N{NO-BREAK SPACE}%"
    ends = f"{100 * estimate.low:.0f} to {100 * estimate.high:.0f}"
    return f"{100 * estimate.value:.0f}\N{NO-BREAK SPACE}% ({ends})"


def _embed(figure: Figure, label: str) -> str:
    """Put a figure into a page as a picture that needs no script."""
    from matplotlib import rc_context

    from grd_offline.report.figures import STYLE

    memory = BytesIO()
    with rc_context({**STYLE, "svg.hashsalt": label, "svg.fonttype": "path"}):
        figure.savefig(memory, format="svg", metadata={"Date": None})
    data = b64encode(memory.getvalue()).decode()
    picture = f"<img src='data:image/svg+xml;base64,{data}' alt='{escape(label)}'>"
    return f"<figure class='picture'><figcaption>{escape(label)}</figcaption>{picture}</figure>"


def is_worth_comparing(comparison: Comparison) -> bool:
    """Whether there is more than one method, and more than one seed."""
    return len(comparison.methods) > 1 and any(len(row.scores) > 1 for row in comparison.rows)
