"""Figures of a comparison: means with intervals, performance profiles, chances of improvement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from grd_offline.core.statistics import Estimate
from grd_offline.lab.comparison.compare import THRESHOLDS, Comparison
from grd_offline.lab.comparison.metrics import METRICS
from grd_offline.report.colours import GROUPS
from grd_offline.report.evidence import FEW_SEEDS
from grd_offline.report.figures import (
    COLUMN,
    FONT,
    GREYS,
    PAGE,
    STYLE,
    make_figure,
    shorten,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_ACROSS = 3
"""Tasks beside each other."""


def draw_comparison_figures(comparison: Comparison) -> dict[str, Figure]:
    """Draw all figures of a comparison, by file name."""
    from matplotlib import rc_context

    with rc_context(STYLE):
        figures = {"tasks": _draw_tasks(comparison)}
        if any(total.middle is not None for total in comparison.totals):
            figures["means"] = _draw_means(comparison)
            figures["profiles"] = _draw_profiles(comparison)
        if any(total.improvement is not None for total in comparison.totals):
            figures["improvement"] = _draw_improvement(comparison)
    return figures


def _find_colour(comparison: Comparison, method: str) -> str:
    if method == comparison.reference:
        return GREYS[0]
    own = [name for name in comparison.methods if name != comparison.reference]
    return GROUPS[own.index(method) % len(GROUPS)]


def _plot_estimates(
    axes: Axes, comparison: Comparison, entries: Sequence[tuple[str, Estimate]]
) -> None:
    """Draw a row for each method, the first on top: a point and its interval."""
    for place, (method, estimate) in enumerate(entries):
        colour = _find_colour(comparison, method)
        axes.plot([estimate.low, estimate.high], [place, place], color=colour, linewidth=4,
                  alpha=0.35, solid_capstyle="butt")  # fmt: skip
        axes.plot([estimate.value], [place], "o", color=colour, markersize=4)
    axes.set_yticks(range(len(entries)), [shorten(method) for method, _ in entries])
    axes.set_ylim(len(entries) - 0.4, -0.6)


def _draw_tasks(comparison: Comparison) -> Figure:
    """Draw the interquartile mean over seeds of each method on each task."""
    tasks = comparison.tasks
    across = min(len(tasks), MOST_ACROSS)
    down = -(-len(tasks) // across)
    height = down * (0.55 + 0.17 * len(comparison.methods))
    figure = make_figure(PAGE if across > 1 else COLUMN, max(1.2, height) + 0.3)
    places = figure.subplots(down, across, squeeze=False)
    for axes, task in zip(places.ravel(), tasks, strict=False):
        rows = [r for method in comparison.methods if (r := comparison.find(task, method))]
        _plot_estimates(axes, comparison, [(row.method, row.middle) for row in rows])
        for place, row in enumerate(rows):
            if len(row.scores) < FEW_SEEDS:  # each seed, beside an interval of few
                seeds = np.full(len(row.scores), float(place))
                colour = _find_colour(comparison, row.method)
                axes.plot(row.scores, seeds, "|", color=colour, markersize=8)
        axes.set_title(shorten(task))
    for axes in places.ravel()[len(tasks) :]:
        axes.set_axis_off()
    figure.supxlabel(
        f"{METRICS[comparison.metric][1]}, interquartile mean over seeds", fontsize=FONT
    )
    return figure


def _draw_means(comparison: Comparison) -> Figure:
    entries = [(total.method, total.middle) for total in comparison.totals if total.middle]
    figure = make_figure(COLUMN, 0.8 + 0.22 * len(entries))
    axes = figure.subplots()
    _plot_estimates(axes, comparison, entries)
    axes.set_xlabel(f"interquartile mean of\n{_name_scale(comparison)}")
    return figure


def _draw_profiles(comparison: Comparison) -> Figure:
    totals = [total for total in comparison.totals if total.profile is not None]
    figure = make_figure(COLUMN, 2.3 + 0.15 * len(totals))
    axes = figure.subplots()
    for total in totals:
        assert total.profile is not None
        assert total.band is not None
        colour = _find_colour(comparison, total.method)
        axes.plot(THRESHOLDS, total.profile, color=colour, label=shorten(total.method))
        axes.fill_between(THRESHOLDS, *total.band, color=colour, alpha=0.15, linewidth=0)
    axes.set(xlabel=_name_scale(comparison), ylabel="share of runs above", ylim=(-0.02, 1.02))
    axes.margins(x=0)
    figure.legend(loc="outside lower center", ncols=1)
    return figure


def _draw_improvement(comparison: Comparison) -> Figure:
    entries = [(total.method, total.improvement) for total in comparison.totals]
    shown = [(method, estimate) for method, estimate in entries if estimate is not None]
    figure = make_figure(COLUMN, 0.95 + 0.22 * len(shown))
    axes = figure.subplots()
    axes.axvline(0.5, color="0.8", linewidth=0.8, zorder=0)
    _plot_estimates(axes, comparison, shown)
    axes.set(xlim=(-0.02, 1.02), xlabel="probability that it does better")
    axes.set_xticks(np.linspace(0, 1, 5))
    axes.set_title(f"{shorten(comparison.chosen)} against")
    return figure


def _name_scale(comparison: Comparison) -> str:
    if comparison.metric == "return":
        return f"return, 0: random, 1: {comparison.reference}"
    return METRICS[comparison.metric][1]
