"""The page of a decomposition."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from grd_offline.core.inputs import explain_marks, name_effect
from grd_offline.core.outcomes import NUMBER, PREFERENCE, Outcome, describe_bands
from grd_offline.core.typing import Array
from grd_offline.core.words import format_percentage
from grd_offline.io.files import REPORT_FILE
from grd_offline.io.files.plain import folder_errors
from grd_offline.io.files.results import MISFIT
from grd_offline.methods.result import Decomposition
from grd_offline.report.effects import (
    MOST_BARS,
    Importance,
    describe_cards,
    describe_graph,
    measure_edges,
    measure_importance,
    name_together,
    pack_effects,
    pack_graph,
    pack_importance,
    shape_effects,
)
from grd_offline.report.film import Film, make_film
from grd_offline.report.page import (
    PAGE_BYTES,
    count_steps,
    pack,
    render_page,
    show_number,
    show_share,
)
from grd_offline.report.tracks import Tracks, find_landmarks, pack_tracks, read_tracks

UNRELIABLE = "unreliable"
LEVELS = ("fine", "note", "careful", UNRELIABLE)
"""Levels of findings and verdicts, from good to bad."""
MOST_POINTS = 2000
"""This many returns are drawn as points."""
TOO_NARROW = 0.8
"""Bands that are meant to hold 90 % and hold less than this are said to be too narrow."""
HIDDEN = {
    "potentials": "terms that cancel between steps, h(next state) - h(state)",
    "effects left out": "effects of inputs that were left out",
    "interactions left out": "interactions of inputs that were left out",
}
"""What may be in the reward and does not show in returns. How much depends on the moment of a step
is said by a finding."""
CLEARLY = 0.95
"""Where this share of every effect is known, one sentence says so instead of a drawing."""
MAJOR = 0.6
"""An input with this share of the reward's variation is a headline of its own."""


def make_decomposition_page(
    record: Decomposition,
    *,
    name: str | None = None,
    video: str | None = None,
    warn: Callable[[str], None] = lambda text: None,
) -> str:
    """Make the page; `video` names the environment that renders a few episodes.

    `name` is that of the folder, if the decomposition is still to be saved. `warn` is called with
    the reason why there is no video. The page gives the same reason.
    """
    place = record.folder or Path(name or "")
    with folder_errors(place, MISFIT):
        tracks = read_tracks(record)
    film = None
    if video is not None:
        shown = sorted(set(find_landmarks(tracks).values()))
        with record.open() as recording:
            film = make_film(recording, shown, video)
        if not film.clips:
            warn(film.note)
    with folder_errors(place, MISFIT):
        return compose_page(record, tracks, film, name or place.resolve().name)


def compose_page(
    record: Decomposition, tracks: Tracks, film: Film | None = None, name: str = "decomposition"
) -> str:
    """Collect what the template speaks of and the numbers of the drawings."""
    metrics, masks, effects = record.metrics, record.masks, record.effects
    outcome = read_outcome(metrics)
    importance = measure_importance(record, tracks)
    edges = measure_edges(record, measure_importance(record, tracks, by_column=False))
    shapes = shape_effects(effects, tracks.sample)
    # (episode, 2) the observed outcome, and what the rewards say of it: a chance for labels.
    observed, found = tracks.returns.T
    returns = np.stack([observed, outcome.predict(found, metrics.get("base", 0.0))], 1)
    pinned = metrics["identifiability"].get("pinned_down") or {}
    level, verdict = _read_verdict(metrics)
    payload: dict[str, Any] = {
        "reward": outcome.reward_unit,
        "outcome": {"singular": outcome.singular, "plural": outcome.plural, "paid": outcome.paid},
        "importance": pack_importance(importance),
        "effects": pack_effects(effects, shapes),
        "graph": pack_graph(masks, edges, importance),
        "returns": _pack_returns(returns, metrics.get("held_out")),
        "calibration": metrics.get("calibration"),
        "pinned": pinned,
        "film": None if film is None else film.clips,
    }
    command = metrics.get("command") or shlex.join(["grd-offline", "decompose", metrics["data"]])
    kind = f"{outcome.singular.capitalize()} decomposition"
    context = {
        "tab": f"{metrics['data']}: {kind[0].lower()}{kind[1:]}",
        "kind": kind,
        "level": level,
        "verdict": verdict,
        "facts": _list_facts(record, outcome, level),
        "source": [metrics["data"], metrics.get("environment"), *count_steps(metrics)],
        "nav": {
            "importance": "Importance" if importance else "",
            "episodes": "Episodes",
            "effects": "Effects",
            "graph": "Causal graph",
            "returns": "" if outcome == PREFERENCE else outcome.plural.capitalize(),
            "limits": "What the data can tell",
            "again": "Use it, make it again",
        },
        "metrics": metrics,
        "masks": masks,
        "outcome": outcome,
        "tracks": tracks,
        "film": film,
        "effects": effects,
        "importance": importance,
        **_find_drivers(record, importance),
        "bands": describe_bands(outcome, True),
        "too_narrow": TOO_NARROW,
        "explain_marks": explain_marks,
        "most_bars": MOST_BARS,
        "cards": describe_cards(effects, shapes),
        "has_few_values": any(ticks is not None for shape in shapes for ticks in shape.ticks),
        "shares": [(name_effect(one["references"]), show_share(one["share"])) for one in effects],
        "graph": describe_graph(masks),
        "returns": _describe_returns(returns, metrics.get("calibration") or {}),
        "levels": LEVELS,
        "clearly": CLEARLY,
        "hidden": _list_hidden(metrics["identifiability"]),
        "quoted_name": json.dumps(name),
        "command": command if " --out " in command else f"{command} --out {shlex.quote(name)}",
        "alternatives": [
            (
                entry["fit"],
                f"{entry['held_out_return_r2']:.4f}",
                show_share(entry["held_out_return_coverage_90"]),
                entry["held_out_returns"],
            )
            for entry in metrics["alternatives"]
        ],
    }
    used = len(render_page("decomposition.html", payload, **context).encode())
    payload["viewer"] = pack_tracks(tracks, max(PAGE_BYTES - used, 200_000))
    return render_page("decomposition.html", payload, **context)


def read_outcome(metrics: Mapping[str, Any]) -> Outcome:
    """Read what is known of the episodes. Earlier versions knew returns only."""
    return Outcome(metrics.get("outcome", NUMBER))


def _read_verdict(metrics: Mapping[str, Any]) -> tuple[str, str]:
    """Read the level and the sentence; a fit that predicts nothing is unreliable."""
    verdict = metrics.get("verdict") or {
        "level": "careful",
        "text": "Use these rewards with care: an earlier version made them, unchecked.",
    }
    explained = metrics.get("held_out_return_r2")
    is_empty = explained is not None and explained <= 0
    is_known = verdict["level"] in LEVELS and not is_empty
    return verdict["level"] if is_known else UNRELIABLE, str(verdict["text"])


def _list_facts(record: Decomposition, outcome: Outcome, level: str) -> list[tuple[str, str]]:
    metrics, masks = record.metrics, record.masks
    facts = []
    if (explained := metrics.get("held_out_return_r2")) is not None:
        inside = metrics["held_out_return_coverage_90"]
        held = f"{metrics['held_out_returns']:,} held-out {outcome.plural}"
        facts.append(
            (show_share(explained), f"of the variance of {held} explained (R²)")
            if explained > 0
            else (f"{explained:.2f}", f"R² of {held}")
        )
        facts.append((show_share(inside), f"of them inside their {show_share(0.9)} interval"))
    if level != UNRELIABLE:
        driving = sum(masks["state_to_reward"]) + sum(masks["action_to_reward"])
        inputs = len(masks["state_names"]) + len(masks["action_names"])
        facts.append((f"{driving} of {inputs}", "dimensions drive the reward"))
        compact = masks["compact"]["closure"]
        facts.append((f"{sum(compact)} of {len(compact)}", "state dimensions in the compact state"))
    if "truth" in metrics:
        facts.append((f"{metrics['truth']['pearson']:.2f}", "correlation with the true reward"))
    return facts


def _find_drivers(record: Decomposition, importance: Sequence[Importance]) -> dict[str, list[str]]:
    """Names for the headline: all inputs, those that come first if they are clear, and the rest."""
    names = [one.name for one in importance or record.inputs]
    top = importance[0].total if importance else 0.0
    # The inputs of one effect have the same share.
    first = [one.name for one in importance if one.total > top - 0.005][:4]
    others = [one for one in importance[1:] if one.total > 0.001] if top >= MAJOR else []
    return {
        "drivers": names,
        "leaders": first if top >= MAJOR or len(names) == 1 else [],
        "others": [f"{one.name} ({show_share(one.total)})" for one in others],
        "bars": [f"{one.name} {show_share(one.total)}" for one in importance[:MOST_BARS]],
    }


def _pack_returns(returns: Array, held: Mapping[str, Any] | None) -> dict[str, Any]:
    keep = np.linspace(0, len(returns) - 1, min(len(returns), MOST_POINTS)).round().astype(int)
    return {
        "observed": pack(returns[keep, 0]),
        "found": pack(returns[keep, 1]),
        "episodes": keep.tolist(),
        "held_out": held and {name: pack(values) for name, values in held.items()},
    }


def _describe_returns(returns: Array, calibration: Mapping[str, Any]) -> dict[str, Any]:
    observed, found = returns.T
    levels, held = calibration.get("levels", ()), calibration.get("held_out_returns") or ()
    return {
        "low": observed.min(),
        "high": observed.max(),
        "gap": float(np.sqrt(np.mean((observed - found) ** 2))),
        "calibrated": calibration.keys() & {"held_out_returns", "true_rewards"},
        "inside": dict(zip(levels, held, strict=False)).get(0.9),
    }


def _list_hidden(found: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """List the parts of the reward that outcomes cannot exclude, with their sizes."""
    hidden = found.get("hidden") or {}
    sizes = {HIDDEN.get(n, n): size for n, size in hidden.items() if n != "moment" and size > 0}
    ranked = sorted(sizes.items(), key=lambda item: -item[1])
    if len(ranked) > 1:
        ranked.append(("all of them together", sum(size**2 for size in sizes.values()) ** 0.5))
    spread = max(float(found["reward_spread"]), 1e-300) if ranked else 1.0
    # As findings on what may hide write shares, no finer than they deserve.
    shares = [size / spread for _, size in ranked]
    shown = ["less than 1 %" if share < 0.01 else format_percentage(share) for share in shares]
    return [
        (name, show_number(size), share) for (name, size), share in zip(ranked, shown, strict=True)
    ]


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
        {},
        tab=f"{metrics[0]['data']}: several outcomes",
        kind="Several outcomes",
        level=worst["level"],
        verdict=worst["text"],
        about="",
        source=[metrics[0]["data"], *count_steps(metrics[0])],
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

    def list_points(x: Array, values: Array) -> str:
        y = _HEIGHT - _EDGE - (values - low) / ((high - low) or 1.0) * (_HEIGHT - 2 * _EDGE)
        return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))

    return {
        "share": float(effect["share"]),
        "low": low,
        "high": high,
        "line": list_points(across, mean),
        "outline": list_points(np.r_[across, across[::-1]], np.r_[above, below[::-1]]),
    }
