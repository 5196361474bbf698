"""Figures of training runs, comparisons and decompositions, for papers.

Widths are those of a column of a paper (3.25 inches) or of two (6.75), text has 8 points, and its
fonts are embedded as TrueType; colours and scales are those of the pages. Nothing here opens a
window.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from grd_offline.comparison.compare import THRESHOLDS, Comparison
from grd_offline.comparison.metrics import METRICS as SCORES
from grd_offline.core.errors import DataError, printable
from grd_offline.core.inputs import InputRef
from grd_offline.core.statistics import NORMAL_90, Estimate
from grd_offline.core.typing import Array
from grd_offline.io.files import results
from grd_offline.io.files.results import EpisodeRewards, RunRecord
from grd_offline.io.files.storage import replace_file
from grd_offline.methods.result import Decomposition
from grd_offline.report.decomposed import (
    MOST_BARS,
    Importance,
    Shape,
    Track,
    find_landmarks,
    measure_edges,
    measure_importance,
    read_outcome,
    read_tracks,
    shape_effects,
)
from grd_offline.report.page import GROUPS, LIGHT, show_share
from grd_offline.report.training import (
    FEW_SEEDS,
    METRICS,
    Curve,
    align_rewards,
    describe_match,
    find_unit,
    make_curves,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

COLUMN, PAGE = 3.25, 6.75
"""Widths in inches: one column, and two."""
FONT = 8
"""Size of all text in points."""
GREYS = (LIGHT["muted"], LIGHT["faint"], LIGHT["ink"])
"""Greys for the oracle, and for the oracles of further runs."""
WEAK = "#D2E5EF"
"""The colour of an edge that hardly matters; where there is no edge, the map is grey."""
FOUND, TRUE, OBSERVED = LIGHT["accent"], LIGHT["second"], LIGHT["third"]
"""Colours of what was found, of what is true, and of what was observed."""
SHORT_LABEL = 14
"""Two labels of this many letters fit beside each other."""
ORDER = ("-", "--", "-.", ":")
"""If there are more groups than colours, colours repeat with another line style."""
STYLE: dict[Any, Any] = {
    "font.size": FONT,
    "axes.titlesize": FONT,
    "figure.titlesize": FONT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "lines.linewidth": 1.2,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "pdf.fonttype": 42,  # TrueType: journals refuse the other kind
    "text.parse_math": False,  # a dollar in a name is a dollar
}
MOST_EFFECTS = 9
MOST_ACROSS = 3
"""Effects or tasks beside each other."""
MOST_STROKES = 400
"""This many steps of the data are strokes below a curve."""
MOST_TICKS = 13
"""This many labels fit beside a mask without touching."""


def make_grid(count: int, height: float, margin: float = 0.2) -> tuple[Figure, Sequence[Axes]]:
    """Make a figure of `count` axes of some height, up to three beside each other."""
    columns = min(count, MOST_ACROSS)
    rows = -(-count // columns)
    size = PAGE if columns > 1 else COLUMN, margin + max(1.2, height * rows)
    figure, places = make_figure(*size, rows, columns, squeeze=False)
    for axes in places.flat[count:]:
        axes.set_axis_off()
    return figure, list(places.flat)


@contextmanager
def styled() -> Iterator[None]:
    """Draw in the style of the figures."""
    from matplotlib import rc_context

    with rc_context(STYLE):
        yield


def draw_curves(curves: Sequence[Curve], metric: str, title: str, unit: str) -> Figure:
    """Draw the mean over seeds as a line, and their standard deviation as a band.

    Below five seeds, each seed is a thin line instead of the band.
    """
    columns = 2 if max(len(curve.label) for curve in curves) <= SHORT_LABEL else 1
    rows = -(-len(curves) // columns)
    figure, axes = make_figure(COLUMN, 2.3 + 0.15 * rows)
    _plot_curves(axes, curves)
    axes.set(xlabel=unit, ylabel=METRICS[metric][1], title=title)
    if metric == "correlation":
        axes.axhline(0, color="0.8", linewidth=0.6, zorder=0)
        axes.set_ylim(top=1.02)
    if metric == "edges":
        axes.set_ylim(-0.02, 1.02)
    figure.legend(loc="outside lower center", ncols=columns)
    return figure


def _plot_curves(axes: Axes, curves: Sequence[Curve]) -> None:
    from matplotlib.collections import LineCollection
    from matplotlib.ticker import EngFormatter

    looks = itertools.product(ORDER, GROUPS)
    greys = itertools.cycle(GREYS)
    for curve in curves:
        line, colour = ("--", next(greys)) if curve.is_oracle else next(looks, ("-", GROUPS[0]))
        marker = "o" if len(curve.steps) == 1 else None
        label = curve.label if curve.seeds == 1 else f"{curve.label} ({curve.seeds} seeds)"
        axes.plot(
            curve.steps, curve.means, color=colour, linestyle=line, marker=marker, label=label
        )
        if 1 < curve.seeds < FEW_SEEDS:
            seeds = [np.stack(line, 1) for line in curve.lines.values()]
            axes.add_collection(
                LineCollection(seeds, colors=colour, linewidths=0.5, alpha=0.6), autolim=True
            )
        elif curve.seeds > 1:
            plot_band(axes, curve.steps, curve.means, curve.spreads, colour)
    axes.autoscale_view()
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))


def plot_band(axes: Axes, x: Any, middle: Array, half: Array, colour: str = FOUND) -> None:
    axes.fill_between(x, middle - half, middle + half, color=colour, alpha=0.2, linewidth=0)


def draw_masks(masks: Sequence[Mapping[str, Any]], member: str) -> Figure:
    """Draw the four masks at each moment: causes are rows, effects are columns."""
    actions, states = masks[-1]["action_to_state"].shape
    gap, thick = _choose_gap(states)
    share = (states + gap + actions) / (states + gap + thick)
    width = PAGE if len(masks) > 1 else COLUMN
    figure, grid = make_figure(width, min(1.5 + 2.0 * share, 8.0), 1, len(masks), squeeze=False)
    places = grid[0]
    drawn = [_plot_masks(axes, at) for axes, at in zip(places, masks, strict=True)]
    if any(
        ((mask > 0) & (mask < 1)).any() for mask in (masks[-1][name] for name, _ in results.MASKS)
    ):
        figure.colorbar(drawn[-1], ax=places, label="strength", shrink=0.5)
    between = ": " if len(masks) > 1 else "\n"
    figure.suptitle(f"masks of {shorten(member)}{between}rows are causes, columns are effects")
    return figure


def _choose_gap(states: int) -> tuple[float, float]:
    """Choose the gap between masks and the width of the reward's column."""
    return max(0.5, states / 30), max(1.0, states / 25)


def _plot_masks(axes: Axes, masks: Mapping[str, Any]) -> ScalarMappable:
    actions, states = masks["action_to_state"].shape
    gap, thick = _choose_gap(states)
    to_state, to_reward = np.arange(states + 1.0), states + gap + np.array([0, thick])
    of_state, of_action = np.arange(states + 1.0), states + gap + np.arange(actions + 1.0)
    blocks = (
        (to_reward, of_state, masks["state_to_reward"].T),
        (to_reward, of_action, masks["action_to_reward"].T),
        (to_state, of_state, masks["state_to_state"]),
        (to_state, of_action, masks["action_to_state"]),
    )
    lined: dict[str, Any] = (
        {"edgecolors": "white", "linewidth": 0.4} if states + actions <= 50 else {}
    )
    colours = _mix_colours(WEAK, FOUND).with_extremes(bad=LIGHT["soft"])
    for across, down, mask in (block for block in blocks if block[2].size):
        edges = np.ma.masked_equal(mask, 0.0)
        drawn = axes.pcolormesh(across, down, edges, cmap=colours, vmin=0, vmax=1, **lined)
    axes.set_aspect("equal")
    axes.invert_yaxis()
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, pad=1)
    every = -(-(states + actions) // MOST_TICKS)
    shown_states, shown_actions = np.arange(0, states, every), np.arange(0, actions, every)
    of_states = masks.get("state_names", [f"s{i}" for i in range(states)])
    of_actions = masks.get("action_names", [f"a{i}" for i in range(actions)])
    causes = [shorten(of_states[i]) for i in shown_states]
    axes.set_xticks([*(shown_states + 0.5), to_reward.mean()], [*causes, "reward"], rotation=90)
    axes.set_yticks(
        [*(shown_states + 0.5), *(of_action[shown_actions] + 0.5)],
        [*causes, *(shorten(of_actions[i]) for i in shown_actions)],
    )
    known = [(name, title) for name, title in results.MASKS if masks[name].size]
    shares = [f"{title} {(masks[name] > 0).mean():.0%}" for name, title in known]
    if "step" in masks:
        axes.set_title(f"step {masks['step']:,}")
    axes.set_xlabel("\n".join(shares))
    return drawn


def draw_episode(episode: EpisodeRewards) -> Figure:
    """Draw the found and the true rewards; if their scales differ, both are standardised."""
    found, true, is_scaled = align_rewards(episode)
    figure, axes = make_figure(PAGE, 2.2)
    axes.plot(true, color=TRUE, label="true reward")
    axes.plot(found, color=FOUND, linewidth=0.9, label="found reward")
    title = f"{printable(episode.member)}, last episode at step {episode.step:,}: "
    label = "reward, standardised" if is_scaled else "reward"
    axes.set(xlabel="step of the episode", ylabel=label, title=title + describe_match(episode))
    axes.margins(x=0.01)
    figure.legend(loc="outside lower center", ncols=2)
    return figure


def make_figure(width: float, height: float, *grid: int, **options: Any) -> tuple[Figure, Any]:
    """Make a figure of a size in inches with one pair of axes, or with a grid of them."""
    # A figure without pyplot has no window and no backend to choose: saving uses Agg for png.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(*grid, **options)


@styled()
def draw_run(run: RunRecord, metric: str) -> dict[str, Figure]:
    """Draw all figures of one run, by file name."""
    figures = {metric: draw_comparison([run], metric)}
    if edges := make_curves([run], "edges"):
        figures["edges"] = draw_curves(edges, "edges", printable(run.environment), run.unit)
    if masked := results.choose_member(run, "masks"):
        figures["masks"] = draw_masks(results.read_masks(run, masked), masked)
    explained = results.choose_member(run, "episodes")
    if explained and (episode := results.read_episode(run, explained)):
        figures["episode"] = draw_episode(episode)
    return figures


@styled()
def draw_comparison(runs: Sequence[RunRecord], metric: str) -> Figure:
    """Draw the learning curves of all groups of one or more runs."""
    curves = make_curves(runs, metric)
    if not curves:
        file = runs[0].path / results.EVALUATIONS_FILE
        raise DataError(f"no {metric} in any evaluation", file=file)
    title = ", ".join(dict.fromkeys(printable(run.environment) for run in runs))
    return draw_curves(curves, metric, title, find_unit(runs))


@styled()
def draw_decomposition(record: Decomposition) -> dict[str, Figure]:
    """Draw all figures of a decomposition, by file name."""
    tracks = read_tracks(record)
    outcome = read_outcome(record.metrics).singular
    importance = measure_importance(record, tracks)
    edges = measure_edges(record, measure_importance(record, tracks, by_column=False))
    names = {f"{kind}_names": record.masks[f"{kind}_names"] for kind in ("state", "action")}
    masks = {**names, **{name: np.atleast_2d(edges[name]) for name, _ in results.MASKS}}
    states = len(record.masks["state_names"])
    masks["action_to_state"] = masks["action_to_state"].reshape(-1, states)  # [] without actions
    median = find_landmarks(tracks)["median"]
    figures = {"returns": draw_returns(tracks.returns, record.metrics.get("held_out"), outcome)}
    if importance:
        figures["importance"] = draw_importance(importance[:MOST_BARS])
    if record.effects:
        figures["effects"] = draw_effects(record.effects[:MOST_EFFECTS], tracks.sample)
    figures["masks"] = draw_masks([masks], str(record.metrics["data"]))
    figures["rewards"] = draw_track(tracks.chosen[median], median, outcome)
    return figures


def draw_importance(importance: Sequence[Importance]) -> Figure:
    """Draw the share of the reward's variation that comes from each input."""
    figure, axes = make_figure(COLUMN, 0.7 + 0.19 * len(importance))
    rows = np.arange(len(importance))
    alone, joint = (
        np.array([100 * getattr(one, part) for one in importance]) for part in ("alone", "joint")
    )
    axes.barh(rows, alone, 0.65, color=FOUND, label="alone")
    if joint.any():
        axes.barh(rows, joint, 0.65, alone, color=FOUND, alpha=0.4, label="together with others")
        figure.legend(loc="outside lower center", ncols=2)
    for row, one in enumerate(importance):
        axes.text(min(100 * one.total, 100) + 1.5, row, show_share(one.total), va="center")
    axes.set_yticks(rows, [shorten(one.name) for one in importance])
    axes.set(xlim=(0, 118), ylim=(len(rows) - 0.4, -0.6))
    axes.set_xticks(range(0, 101, 20))
    axes.set_xlabel("share of the reward's variation, %")
    return figure


def draw_returns(returns: Array, held_out: Mapping[str, Any] | None, outcome: str) -> Figure:
    """Draw predicted against observed returns; held-out returns have intervals."""
    figure, axes = make_figure(COLUMN, COLUMN)
    axes.axline((0, 0), slope=1, color="0.8", linewidth=0.8, zorder=0)
    axes.plot(*returns.T, ".", color=GREYS[1], markersize=3, label="in the fit")
    if held_out is not None:
        axes.errorbar(
            held_out["observed"],
            held_out["predicted"],
            NORMAL_90 * np.asarray(held_out["std"], np.float64),
            fmt=".",
            color=FOUND,
            markersize=4,
            elinewidth=0.6,
            label="held out",
        )
    low, high = float(returns.min()), float(returns.max())
    pad = 0.04 * (high - low or 1.0)
    axes.set(xlabel=f"observed {outcome}", ylabel=f"predicted {outcome}")
    axes.set(xlim=(low - pad, high + pad), ylim=(low - pad, high + pad))
    axes.legend(loc="upper left")
    return figure


def draw_effects(effects: Sequence[Mapping[str, Any]], sample: Mapping[InputRef, Array]) -> Figure:
    """Draw curves with bands, and surfaces; a third input is at the middle of its range.

    Short strokes below a curve show where the values of `sample` are.
    """
    figure, places = make_grid(len(effects), 1.7)
    for axes, effect, shape in zip(places, effects, shape_effects(effects, sample), strict=False):
        axes.set_title(f"{show_share(effect['share'])} of the variation")
        _plot_effect(axes, shape)
        if len(shape.inputs) == 1 and shape.ticks[0] is None:
            values = shape.values[0][:MOST_STROKES]
            axes.plot(values, np.zeros_like(values), "|", color=GREYS[0], alpha=0.3, markersize=5,
                      transform=axes.get_xaxis_transform(), clip_on=False)  # fmt: skip
    return figure


def _plot_effect(axes: Axes, shape: Shape) -> None:
    names = [shorten(name) for name in shape.inputs]
    grids, mean, std = shape.grids, shape.mean, shape.std
    axes.set_xlabel(names[0])
    if len(names) == 1:
        axes.set_ylabel("adds to the reward")
        if shape.ticks[0] is None:
            axes.plot(grids[0], mean, color=FOUND)
            plot_band(axes, grids[0], mean, NORMAL_90 * std)
        else:
            places = np.arange(len(mean))
            axes.bar(places, mean, 0.6, yerr=NORMAL_90 * std, color=FOUND, capsize=3)
            axes.set_xticks(places, [shorten(tick) for tick in shape.ticks[0]])
        return
    surface = mean if len(names) == 2 else mean[:, :, mean.shape[2] // 2]
    most = float(np.abs(mean).max()) or 1.0
    colours = _mix_colours(FOUND, LIGHT["soft"], TRUE)
    # A value of few has an area of its own.
    shading: Any = "nearest" if any(shape.ticks) else "gouraud"
    drawn = axes.pcolormesh(
        grids[0], grids[1], surface.T, cmap=colours, vmin=-most, vmax=most, shading=shading
    )
    drawn.set_rasterized(True)
    axes.figure.colorbar(drawn, ax=axes, label="adds to the reward")
    axes.locator_params(nbins=4)
    axes.set_ylabel(names[1])


def draw_track(track: Track, index: int, outcome: str) -> Figure:
    """Draw the rewards of one episode with their band, and their sum so far."""
    figure, (above, below) = make_figure(PAGE, 2.9, 2, 1, sharex=True, height_ratios=(2, 1))
    steps = np.arange(len(track.rewards))
    plot_band(above, steps, track.rewards, NORMAL_90 * track.std)
    above.plot(steps, track.rewards, color=FOUND, linewidth=0.8, label="found, 90 % band")
    below.plot(steps, np.cumsum(track.rewards * track.weights), color=FOUND)
    if track.true is not None:
        above.plot(steps, track.true, color=TRUE, linewidth=0.6, label="true")
        below.plot(steps, np.cumsum(track.true * track.weights), color=TRUE, linewidth=0.8)
    below.plot(steps[-1], track.delivered, "D", color=OBSERVED, label=f"observed {outcome}")
    above.set(ylabel="reward", title=f"episode {index}, of median {outcome}")
    below.set(ylabel="sum so far", xlabel="step")
    above.margins(x=0.01)
    figure.legend(loc="outside lower center", ncols=3)
    return figure


def _mix_colours(*colours: str) -> Colormap:
    """Make a scale that runs through these colours."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("page", colours)


def shorten(name: str) -> str:
    """A name of at most 24 letters."""
    return printable(name) if len(name) <= 24 else f"{printable(name)[:23]}…"


def save_figure(figure: Figure, path: Path, form: str) -> None:
    """Write a figure in full or not at all; equal figures give equal bytes."""
    with replace_file(path) as output:
        output.write(write_figure(figure, form, path.name))


def write_figure(figure: Figure, form: str, name: str, fonttype: str = "none") -> bytes:
    """Write a figure as bytes. Ids in an svg follow from the name, and are not random."""
    from matplotlib import rc_context

    memory = BytesIO()
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(form, {})
    with rc_context({**STYLE, "svg.hashsalt": name, "svg.fonttype": fonttype}):
        figure.savefig(memory, format=form, dpi=300, metadata=metadata)
    return memory.getvalue()


@styled()
def draw_comparison_figures(comparison: Comparison) -> dict[str, Figure]:
    """Draw all figures of a comparison, by file name."""
    figures = {"tasks": _draw_tasks(comparison)}
    if means := [(one.method, one.middle) for one in comparison.totals if one.middle]:
        figures["means"], axes = make_figure(COLUMN, 0.8 + 0.22 * len(means))
        _plot_estimates(axes, comparison, means)
        axes.set_xlabel(f"interquartile mean of\n{_name_scale(comparison)}")
        figures["profiles"] = _draw_profiles(comparison)
    if better := [(one.method, one.improvement) for one in comparison.totals if one.improvement]:
        figures["improvement"], axes = make_figure(COLUMN, 0.95 + 0.22 * len(better))
        axes.axvline(0.5, color="0.8", linewidth=0.8, zorder=0)
        _plot_estimates(axes, comparison, better)
        axes.set(xlim=(-0.02, 1.02), xlabel="probability that it does better")
        axes.set_xticks(np.linspace(0, 1, 5))
        axes.set_title(f"{shorten(comparison.chosen)} against")
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
    height = 0.55 + 0.17 * len(comparison.methods)
    figure, places = make_grid(len(comparison.tasks), height, 0.3)
    for axes, task in zip(places, comparison.tasks, strict=False):
        rows = [r for method in comparison.methods if (r := comparison.find(task, method))]
        _plot_estimates(axes, comparison, [(row.method, row.middle) for row in rows])
        for place, row in enumerate(rows):
            if len(row.scores) < FEW_SEEDS:  # each seed, beside an interval of few
                colour = _find_colour(comparison, row.method)
                axes.plot(row.scores, [place] * len(row.scores), "|", color=colour, markersize=8)
        axes.set_title(shorten(task))
    label = f"{SCORES[comparison.metric][1]}, interquartile mean over seeds"
    figure.supxlabel(label, fontsize=FONT)
    return figure


def _draw_profiles(comparison: Comparison) -> Figure:
    totals = [total for total in comparison.totals if total.profile is not None]
    figure, axes = make_figure(COLUMN, 2.3 + 0.15 * len(totals))
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


def _name_scale(comparison: Comparison) -> str:
    if comparison.metric == "return":
        return f"return, 0: random, 1: {comparison.reference}"
    return SCORES[comparison.metric][1]
