"""The page of several outcomes: their effects side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

import grd_offline.report.page as page
from grd_offline.io.files import REPORT_FILE
from grd_offline.io.files.decomposition import DecompositionRecord
from grd_offline.report.effects import name_together

Array = NDArray[np.float64]
_WIDTH, _HEIGHT, _EDGE = 180, 70, 4
_MOST_SHOWN = 30


def make_outcomes_page(
    records: Mapping[str, DecompositionRecord], correlation: NDArray[np.float64]
) -> str:
    """Make the page; `correlation` is that of the step rewards of the outcomes."""
    names = list(records)
    first = records[names[0]].metrics
    source = page.list_source(
        str(first["data"]), f"{first['episodes']:,} episodes", f"{first['steps']:,} steps"
    )
    worst = _find_worst([records[name].metrics for name in names])
    title = f"What drives {page.join_names([f'<em>{escape(name)}</em>' for name in names])}"
    headline = page.make_headline("Several outcomes", title, [], [], source, worst)
    sections = [
        ("outcomes", "Outcomes", _tell_outcomes(records)),
        ("effects", "Effects side by side", _tell_effects(records)),
        ("together", "Do the outcomes agree?", _tell_correlation(names, correlation)),
    ]
    body = page.make_body(headline, sections)
    return page.make_page(f"{first['data']}: several outcomes", body, {"kind": "outcomes"})


def _find_worst(metrics: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """The verdict that calls for the most care."""
    order = ("unreliable", "careful", "note", "fine")
    verdicts = [one["verdict"] for one in metrics]
    worst = min(verdicts, key=lambda verdict: order.index(verdict["level"]))
    return str(worst["level"]), str(worst["text"])


def _tell_outcomes(records: Mapping[str, DecompositionRecord]) -> str:
    rows = []
    for name, record in records.items():
        metrics = record.metrics
        explained = metrics.get("held_out_return_r2")
        link = f"<a href='{quote(name)}/{REPORT_FILE}'>{escape(name)}</a>"
        rows.append(
            f"<tr><td>{link}</td><td>{escape(str(metrics.get('outcome', 'number')))}</td>"
            f"<td class='number'>{'none' if explained is None else page.show_share(explained)}</td>"
            f"<td>{escape(str(metrics['verdict']['text']))}</td></tr>"
        )
    head = "".join(
        f"<th scope='col'>{title}</th>"
        for title in ("outcome", "kind", "R² of held-out returns", "verdict")
    )
    table = (
        f"<div class='scroll'><table><thead><tr>{head}</tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )
    return page.make_section(
        "outcomes", "Outcomes", "Each outcome has rewards and a report of its own.", table
    )


def _tell_effects(records: Mapping[str, DecompositionRecord]) -> str:
    """A row for each effect, the largest first, and a column for each outcome."""
    by_name = {
        name: {name_together(effect["inputs"]): effect for effect in record.effects}
        for name, record in records.items()
    }
    size: dict[str, float] = {}
    for effects in by_name.values():
        for inputs, effect in effects.items():
            size[inputs] = max(size.get(inputs, 0.0), float(effect["share"]))
    ranked = sorted(size, key=lambda inputs: -size[inputs])[:_MOST_SHOWN]
    head = "".join(f"<th scope='col'>{escape(name)}</th>" for name in ("effect", *records))
    rows = "".join(
        f"<tr><th scope='row'>{escape(inputs)}</th>"
        + "".join(f"<td>{_show_effect(effects.get(inputs))}</td>" for effects in by_name.values())
        + "</tr>"
        for inputs in ranked
    )
    lead = (
        "The number is the share of the effect in the variation of the rewards of this outcome. A "
        "curve shows what an input adds to the reward, with its 90 % band."
    )
    if len(size) > _MOST_SHOWN:
        lead += f" The table has the {_MOST_SHOWN} largest of {len(size)} effects."
    table = (
        f"<div class='scroll'><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        "</div>"
        if ranked
        else "<p>No effects were found.</p>"
    )
    return page.make_section("effects", "Effects side by side", lead, table)


def _show_effect(effect: Mapping[str, Any] | None) -> str:
    if effect is None:
        return "<span class='note'>not found</span>"
    share = page.show_share(float(effect["share"]))
    if len(effect["inputs"]) > 1:
        return share
    grid, mean, std = (
        np.asarray(part, np.float64) for part in (effect["grids"][0], effect["mean"], effect["std"])
    )
    return f"{share}<br>{_draw_curve(grid, mean, 1.645 * std)}"


def _draw_curve(grid: Array, mean: Array, band: Array) -> str:
    low, high = float((mean - band).min()), float((mean + band).max())
    span = float(np.ptp(grid)) or 1.0
    across = _EDGE + (grid - grid[0]) / span * (_WIDTH - 2 * _EDGE)

    def place(values: Array) -> Array:
        return _HEIGHT - _EDGE - (values - low) / ((high - low) or 1.0) * (_HEIGHT - 2 * _EDGE)

    def points(x: Array, y: Array) -> str:
        return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))

    outline = points(
        np.concatenate([across, across[::-1]]),
        np.concatenate([place(mean + band), place(mean - band)[::-1]]),
    )
    label = f"from {page.show_number(low)} to {page.show_number(high)}"
    return (
        f"<svg viewBox='0 0 {_WIDTH} {_HEIGHT}' width='{_WIDTH}' height='{_HEIGHT}' role='img' "
        f"aria-label='Curve {escape(label)}'>"
        f"<polygon points='{outline}' fill='currentColor' opacity='.15'/>"
        f"<polyline points='{points(across, place(mean))}' fill='none' stroke='currentColor' "
        f"stroke-width='1.5'/></svg><br><span class='note'>{escape(label)}</span>"
    )


def _tell_correlation(names: Sequence[str], correlation: Array) -> str:
    lead = (
        "The table has the correlation of the step rewards of each pair of outcomes. It is close "
        "to 1 if steps that are good for one outcome are good for the other. It is negative if "
        "they are bad for the other."
    )
    rows = [
        [name, *(f"{value:.2f}" for value in row)]
        for name, row in zip(names, correlation, strict=True)
    ]
    numbers = range(1, len(names) + 1)
    table = page.make_table(["", *names], rows, "Correlation of step rewards", list(numbers))
    return page.make_section("together", "Do the outcomes agree?", lead, table)
