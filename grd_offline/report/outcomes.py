"""The page of several outcomes: their effects side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from grd_offline.core.typing import Array
from grd_offline.io.files import REPORT_FILE
from grd_offline.methods.result import Decomposition
from grd_offline.report.effects import name_together
from grd_offline.report.page import count_steps, render_page

_WIDTH, _HEIGHT, _EDGE = 180, 70, 4
_MOST_SHOWN = 30


def make_outcomes_page(records: Mapping[str, Decomposition], correlation: Array) -> str:
    """Make the page; `correlation` is that of the step rewards of the outcomes."""
    metrics = [record.metrics for record in records.values()]
    order = ("unreliable", "careful", "note", "fine")
    worst = min((one["verdict"] for one in metrics), key=lambda one: order.index(one["level"]))
    rows = _compare_effects(records)
    return render_page(
        "outcomes.html",
        {"kind": "outcomes"},
        tab=f"{metrics[0]['data']}: several outcomes",
        kind="Several outcomes",
        level=worst["level"],
        verdict=worst["text"],
        about="",
        source=[str(metrics[0]["data"]), *count_steps(metrics[0])],
        nav={
            "outcomes": "Outcomes",
            "effects": "Effects side by side",
            "together": "Do the outcomes agree?",
        },
        records=records,
        report_file=REPORT_FILE,
        rows=rows[:_MOST_SHOWN],
        total=len(rows),
        width=_WIDTH,
        height=_HEIGHT,
        correlation=[
            [name, *(f"{value:.2f}" for value in row)]
            for name, row in zip(records, correlation, strict=True)
        ],
    )


def _compare_effects(
    records: Mapping[str, Decomposition],
) -> list[tuple[str, list[dict[str, Any] | None]]]:
    """A row for each effect, the largest first, with a cell for each outcome."""
    by_name = [
        {name_together(effect["references"]): effect for effect in record.effects}
        for record in records.values()
    ]
    size: dict[str, float] = {}
    for effects in by_name:
        for inputs, effect in effects.items():
            size[inputs] = max(size.get(inputs, 0.0), float(effect["share"]))
    return [
        (inputs, [_describe(effects.get(inputs)) for effects in by_name])
        for inputs in sorted(size, key=lambda inputs: -size[inputs])
    ]


def _describe(effect: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The share of an effect and, for one input, its curve and band as points of a drawing."""
    if effect is None:
        return None
    if len(effect["references"]) > 1:
        return {"share": float(effect["share"]), "outline": ""}
    grid, mean, std = (
        np.asarray(part, np.float64) for part in (effect["grids"][0], effect["mean"], effect["std"])
    )
    below, above = mean - 1.645 * std, mean + 1.645 * std
    low, high = float(below.min()), float(above.max())
    across = _EDGE + (grid - grid[0]) / (float(np.ptp(grid)) or 1.0) * (_WIDTH - 2 * _EDGE)

    def place(values: Array) -> Array:
        return _HEIGHT - _EDGE - (values - low) / ((high - low) or 1.0) * (_HEIGHT - 2 * _EDGE)

    def list_points(x: Array, y: Array) -> str:
        return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))

    return {
        "share": float(effect["share"]),
        "low": low,
        "high": high,
        "line": list_points(across, place(mean)),
        "outline": list_points(
            np.concatenate([across, across[::-1]]),
            np.concatenate([place(above), place(below)[::-1]]),
        ),
    }
