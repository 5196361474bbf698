"""Learning curves and settings of runs, for the pages of runs and of judgements."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from grd_offline.core.errors import DataError, printable
from grd_offline.core.statistics import pearson
from grd_offline.core.typing import Array
from grd_offline.io.files.results import (
    EVALUATIONS_FILE,
    LARGEST,
    OFFLINE,
    EpisodeRewards,
    RunRecord,
)
from grd_offline.report.evidence import FEW_SEEDS
from grd_offline.report.page import show_number

METRICS = {
    "return": ("mean_return", "true return"),
    "success": ("success_rate", "success rate"),
    "correlation": ("correlation", "correlation with the true reward"),
    "edges": ("edges_on", "share of edges on"),
    "compact": ("compact_states", "dimensions of the compact state"),
}
"""For each metric, its column in `evaluations.csv` and the label of its axis."""


@dataclass(frozen=True, eq=False)
class Curve:
    """A metric of a group of members over time: mean and standard deviation over seeds."""

    label: str
    is_oracle: bool
    steps: Array
    means: Array
    spreads: Array
    seeds: int
    lines: Mapping[str, tuple[Array, Array]]
    """The steps and values of each seed."""

    @property
    def last_scores(self) -> list[float]:
        """The last value of each seed."""
        return [float(values[-1]) for _, values in self.lines.values()]


def make_curves(runs: Sequence[RunRecord], metric: str) -> list[Curve]:
    """Make one curve for each group of each run that has values of the metric."""
    curves = []
    for run in runs:
        groups: dict[str, list[Mapping[str, str]]] = {}
        for row in run.rows:
            groups.setdefault(row["group"], []).append(row)
        for group, rows in groups.items():
            label = group if len(runs) == 1 else f"{run.name}: {group}"
            curve = _make_curve(run, rows, label, METRICS[metric][0])
            if curve is not None:
                curves.append(curve)
    return curves


def _make_curve(
    run: RunRecord, rows: Sequence[Mapping[str, str]], label: str, column: str
) -> Curve | None:
    values: dict[int, list[float]] = {}
    lines: dict[str, dict[int, float]] = {}
    for row in rows:
        if row.get(column, "") != "":
            step, value = int(row["step"]), _number(run, row[column], column)
            values.setdefault(step, []).append(value)
            lines.setdefault(row["seed"], {})[step] = value
    if not values:
        return None
    steps = sorted(values)
    return Curve(
        printable(label),
        rows[0]["group"].split("-")[0] in ("oracle", "true"),
        np.array(steps, np.float64),
        np.array([np.mean(values[step]) for step in steps]),
        np.array([np.std(values[step]) for step in steps]),
        len({row["seed"] for row in rows}),
        {
            seed: (np.array(list(line), np.float64), np.array(list(line.values())))
            for seed, line in lines.items()
        },
    )


def _number(run: RunRecord, text: str, column: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not abs(number) <= LARGEST:
        reason = f"expected a number, got {text[:40]!r}"
        raise DataError(reason, file=run.path / EVALUATIONS_FILE, field=column)
    return number


def find_unit(runs: Sequence[RunRecord]) -> str:
    """Name the unit of the steps of the runs."""
    return " or ".join(dict.fromkeys(run.unit for run in runs))


def find_count(runs: Sequence[RunRecord]) -> str:
    """Name the unit in one word."""
    return find_unit(runs).replace("environment ", "")


def find_seconds(run: RunRecord) -> float:
    """Find the seconds of training."""
    return max((read_seconds(row) for row in run.rows), default=0.0)


def read_seconds(row: Mapping[str, str]) -> float:
    """Read the seconds of training up to an evaluation; 0 if they are missing."""
    try:
        return float(row.get("seconds", ""))
    except ValueError:
        return 0.0


def pack_metrics(
    runs: Sequence[RunRecord], returns: Sequence[Curve], looks: Mapping[str, int] | None = None
) -> list[dict[str, Any]]:
    """Pack the curves of every metric; `looks` numbers the colours of the groups."""
    if looks is None:
        own = [curve for curve in returns if not curve.is_oracle]
        looks = {curve.label: place for place, curve in enumerate(own)}
    metrics = []
    offline = all(run.about["format"] == OFFLINE for run in runs)
    for key, (_, label) in METRICS.items():
        if offline and key == "correlation":  # their rewards do not change
            continue
        curves = list(returns) if key == "return" else make_curves(runs, key)
        if curves:
            entries = [_pack_curve(curve, looks.get(curve.label, 0)) for curve in curves]
            metrics.append({"key": key, "label": label, "curves": entries})
    return metrics


def _pack_curve(curve: Curve, look: int) -> dict[str, Any]:
    return {
        "label": curve.label,
        "oracle": curve.is_oracle,
        "look": look,
        "seeds": curve.seeds,
        "few": curve.seeds < FEW_SEEDS,
        "steps": curve.steps.tolist(),
        "means": shorten(curve.means),
        "spreads": shorten(curve.spreads),
        "lines": [
            {"seed": seed, "steps": steps.tolist(), "values": shorten(values)}
            for seed, (steps, values) in curve.lines.items()
        ],
    }


def shorten(values: Array) -> list[float | None]:
    """Round to six digits; numbers that are not finite become None."""
    return [float(f"{value:.6g}") if np.isfinite(value) else None for value in values]


def describe_lines(curves: Sequence[Curve]) -> str:
    """Explain the lines of the drawing; with one seed there is nothing to explain."""
    seeds = {curve.seeds for curve in curves}
    if seeds == {1}:
        return ""
    said = "A thick line is the mean over seeds. "
    if any(1 < count < FEW_SEEDS for count in seeds):
        said += "Each thin line is one seed. "
    if any(count >= FEW_SEEDS for count in seeds):
        said += "The band is one standard deviation to either side. "
    return said


def show_spread(mean: float, spread: float, seeds: int) -> str:
    """Write a mean and, with several seeds, its standard deviation.

    Both to the same place: three digits of the larger.
    """
    largest = max(abs(mean), spread)
    if seeds < 2 or largest == 0:
        return show_number(mean)
    decimals = max(0, 2 - math.floor(math.log10(largest)))
    texts = [f"{value:,.{decimals}f}" for value in (mean, spread)]
    if decimals:
        texts = [text.rstrip("0").rstrip(".") for text in texts]
    if texts[1] == "0":
        texts[1] = show_number(spread)
    return "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}".join(texts)


def scales_differ(first: Array, second: Array) -> bool:
    """Return whether one curve would look flat or far away beside the other."""
    narrow, wide = sorted((float(first.std()), float(second.std())))
    return wide > 2 * narrow or abs(float(first.mean() - second.mean())) > 2 * wide


def align_rewards(episode: EpisodeRewards) -> tuple[Array, Array, bool]:
    """Return the found and the true rewards, standardised if their scales differ."""
    found, true = episode.found, episode.true
    is_scaled = scales_differ(found, true) and min(np.ptp(found), np.ptp(true)) > 0
    if is_scaled:
        found, true = ((values - values.mean()) / values.std() for values in (found, true))
    return found, true, bool(is_scaled)


def describe_match(episode: EpisodeRewards) -> str:
    """Say how well the found rewards follow the true ones."""
    for name, values in (("reward found", episode.found), ("true reward", episode.true)):
        if np.ptp(values) == 0:
            return f"the {name} is constant"
    return f"correlation {pearson(episode.found, episode.true):.2f}"
