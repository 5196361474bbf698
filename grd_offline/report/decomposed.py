"""The page of a decomposition."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

import grd_offline.report.page as page
from grd_offline.core.outcomes import PREFERENCE, Outcome, describe_bands
from grd_offline.core.words import format_percentage
from grd_offline.io.datasets import Recording
from grd_offline.io.files.decomposition import MISFIT, DecompositionRecord
from grd_offline.io.files.plain import folder_errors
from grd_offline.report.effects import pack_effects, shape_effects, tell_effects
from grd_offline.report.film import Film, make_film
from grd_offline.report.graph import measure_edges, pack_graph, tell_graph
from grd_offline.report.headline import (
    LEVELS,
    UNRELIABLE,
    is_relied_on,
    read_outcome,
    tell_headline,
)
from grd_offline.report.importance import (
    measure_importance,
    pack_importance,
    tell_importance,
)
from grd_offline.report.packing import pack
from grd_offline.report.tracks import Tracks, read_tracks
from grd_offline.report.viewer import find_landmarks, pack_tracks
from grd_offline.rewards.effect_inputs import explain_primes, name_effect

Array = NDArray[np.float64]

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
AGAIN = "Use it, make it again"
CLEARLY = 0.95
"""Where this share of every effect is known, one sentence says so instead of a drawing."""


def make_decomposition_page(
    record: DecompositionRecord,
    *,
    name: str | None = None,
    video: str | None = None,
    relabelled: Recording | None = None,
    warn: Callable[[str], None] = lambda text: None,
) -> str:
    """Make the page; `video` names the environment that renders a few episodes.

    `name` is that of the folder, if it is still to be moved to its place. `relabelled` holds its
    episodes, if they are at hand.
    `warn` is called with the reason why there is no video. The page gives the same reason.
    """
    with folder_errors(record.path, MISFIT):
        tracks = read_tracks(record, relabelled)
    film = None
    if video is not None:
        shown = sorted(set(find_landmarks(tracks).values()))
        film = make_film(record.path, shown, video)
        if not film.clips:
            warn(film.note)
    with folder_errors(record.path, MISFIT):
        return compose_page(record, tracks, film, name)


def compose_page(
    record: DecompositionRecord, tracks: Tracks, film: Film | None = None, name: str | None = None
) -> str:
    """Put the sections and the numbers of the drawings together."""
    metrics, outcome = record.metrics, read_outcome(record.metrics)
    importance = measure_importance(record, tracks)
    edges = measure_edges(record, measure_importance(record, tracks, by_column=False))
    shapes = shape_effects(record.effects, tracks.sample)
    is_folded = not is_relied_on(metrics)
    payload: dict[str, Any] = {
        "kind": "decomposition",
        "reward": outcome.reward_unit,
        "outcome": {"singular": outcome.singular, "plural": outcome.plural, "paid": outcome.paid},
        "importance": pack_importance(importance),
        "effects": pack_effects(record.effects, shapes),
        "graph": pack_graph(record.masks, edges, importance),
        "returns": _pack_returns(metrics, tracks),
        "calibration": metrics.get("calibration"),
        "pinned": _name_known(record),
        "film": None if film is None else film.clips,
    }
    fit = str(metrics["fit"])
    sections = [
        (
            "importance",
            "Importance",
            tell_importance(importance, is_sum=bool(record.effects), is_folded=is_folded),
        ),
        ("episodes", "Episodes", _tell_episodes(metrics, tracks, film, is_folded)),
        ("effects", "Effects", tell_effects(record.effects, shapes, fit, is_folded=is_folded)),
        ("graph", "Causal graph", tell_graph(record.masks, is_folded=is_folded)),
        ("returns", outcome.plural.capitalize(), _tell_returns(metrics, tracks)),
        ("limits", "What the data can tell", _tell_limits(metrics["identifiability"], outcome)),
        ("again", AGAIN, _tell_settings(metrics, name or record.path.resolve().name)),
    ]
    sections = [section for section in sections if section[2]]
    body = page.make_body(tell_headline(record, importance), sections)
    used = page.count_fixed_bytes() + len(body.encode()) + len(page.embed(payload))
    payload["viewer"] = pack_tracks(tracks, max(page.PAGE_BYTES - used, 200_000))
    return page.make_page(f"{metrics['data']}: return decomposition", body, payload)


def _tell_episodes(
    metrics: Mapping[str, Any], tracks: Tracks, film: Film | None, is_folded: bool
) -> str:
    shown, total = len(tracks.chosen), len(tracks.returns)
    outcome = read_outcome(metrics)
    lead = (
        "The reward of every step, and the sum of the rewards so far. "
        f"{page.NINETY} of the rewards are expected inside the band. "
        f"{metrics.get('bands') or describe_bands(outcome, True)}"
    )
    lead += f" {outcome.unit}" if outcome.unit else ""
    truth = metrics.get("truth")
    if truth is not None and truth["coverage_90"] < TOO_NARROW:
        held = page.show_share(truth["coverage_90"])
        lead += f" Here the band is too narrow: it contains only {held} of the true rewards."
    if explained := explain_primes(tracks.inputs):
        lead += f" {explained}"
    if shown < total:
        lead += (
            f" The page shows {shown} of {total:,} episodes, chosen evenly by their "
            f"{outcome.singular}."
        )
    picture = ""
    if film is not None:
        picture = f"<p class='note'>{escape(film.note)}</p>"
        if film.clips:
            picture = (
                "<figure class='film'><div class='frame' role='img' "
                "aria-label='The rendered episode'></div>"
                f"<figcaption><button type='button' id='play'>Play</button> "
                f"<span>{escape(film.note)}</span></figcaption></figure>"
            )
    drawing = picture + page.make_chart("viewer", "The rewards of one episode")
    viewer = page.fill("page.viewer.html", drawing=drawing, outcome=outcome.singular).replace(
        "\n", ""
    )
    parts = _tell_waterfall(tracks, is_folded)
    return page.make_section("episodes", "Episodes", escape(lead), viewer, parts)


def _tell_waterfall(tracks: Tracks, is_folded: bool) -> str:
    """Make the drawing of what a reward consists of, if it is a sum of effects."""
    if not tracks.terms:
        return ""
    text = (
        "The reward of a step is the mean reward plus what each effect adds. The bars of a step "
        "lead from the mean reward of the data to the reward of this step. Blue bars lower the "
        "reward, orange bars raise it."
    )
    chart = page.make_chart("waterfall", "What each effect adds to the reward of one step")
    parts = f"<h3 id='waterfall-title'>The chosen step</h3><p class='note'>{text}</p>{chart}"
    return page.fold_doubtful(parts) if is_folded else parts


def _tell_returns(metrics: Mapping[str, Any], tracks: Tracks) -> str:
    outcome = read_outcome(metrics)
    if outcome == PREFERENCE:
        return ""
    returns = outcome.plural
    observed, found = _match_outcome(metrics, tracks).T
    gap = float(np.sqrt(np.mean((observed - found) ** 2)))
    scatter = (
        f"Predicted against observed {returns}: observed from {page.show_number(observed.min())} "
        f"to {page.show_number(observed.max())}, typical gap {page.show_number(gap)}"
    )
    parts = [page.make_figure("Predicted against observed", page.make_chart("returns", scatter))]
    calibration = metrics.get("calibration") or {}
    if calibration.keys() & {"held_out_returns", "true_rewards"}:
        pairs = calibration.get("held_out_returns") or []
        at = [c for level, c in zip(calibration["levels"], pairs, strict=False) if level == 0.9]
        label = "Calibration: the share of values inside the intervals of each level"
        if at:
            held = page.show_share(at[0])
            label += f"; the {page.NINETY} intervals contain {held} of the held-out {returns}"
        caption = "Calibration: do the intervals contain as much as they should?"
        parts.append(page.make_figure(caption, page.make_chart("calibration", label)))
    lead = (
        f"A point on the line is a {outcome.singular} that was predicted exactly. "
        f"{returns.capitalize()} that are predicted well do not prove that the rewards of single "
        "steps are right."
    )
    if metrics.get("held_out"):
        lead += (
            f" Coloured points are held-out {returns}: the fit that predicts them did not see them."
        )
    else:
        lead += f" All {returns} were part of the fit; none was held out."
    drawings = f"<div class='pair'>{''.join(parts)}</div>"
    return page.make_section("returns", returns.capitalize(), lead, drawings)


def _tell_limits(found: Mapping[str, Any], outcome: Outcome) -> str:
    findings = "".join(_show_finding(f) for f in found["findings"])
    lead = (
        f"{outcome.plural.capitalize()} do not determine everything about rewards. If reward moves "
        f"from one step of an episode to another, its {outcome.singular} stays the same. So data "
        f"that contain only {outcome.plural} cannot show such a change."
    )
    parts = [f"<ul class='findings'>{findings}</ul>" if findings else ""]
    if not findings:
        parts.append("<p>This fit was not examined. Only the closed form can be examined.</p>")
    pinned = found.get("pinned_down") or {}
    if pinned:
        worst = min(pinned, key=lambda name: pinned[name])
        if pinned[worst] > CLEARLY:
            text = f"At least {page.show_share(pinned[worst])} of every effect is known."
            parts.append(f"<p class='note'>{escape(text)}</p>")
        else:
            label = (
                f"How much is known of each of {len(pinned)} effects; the least of {worst}, "
                f"{page.show_share(pinned[worst])}"
            )
            caption = "How much of each effect is known; at 100 % its curve has no band"
            parts.append(page.make_figure(caption, page.make_chart("pinned", label)))
    if found.get("hidden"):
        parts.append(_tell_hidden(found["hidden"], float(found["reward_spread"]), outcome))
    return page.make_section("limits", "What the data can and cannot tell", lead, *parts)


def _show_finding(finding: Mapping[str, Any]) -> str:
    level = finding["level"] if finding["level"] in LEVELS else UNRELIABLE
    text = escape(str(finding["text"]))
    return f"<li class='{level}'><strong>{LEVELS[level]}</strong> {text}</li>"


def _show_whole(share: float) -> str:
    """Write a share as findings on what may hide do, no finer than it deserves."""
    return "less than 1 %" if share < 0.01 else format_percentage(share)


def _tell_hidden(hidden: Mapping[str, float], spread: float, outcome: Outcome) -> str:
    """The parts of the reward that outcomes cannot exclude, as a table that unfolds."""
    sizes = {HIDDEN.get(n, n): size for n, size in hidden.items() if n != "moment" and size > 0}
    if not sizes:
        return ""
    ranked = sorted(sizes.items(), key=lambda item: -item[1])
    if len(ranked) > 1:
        ranked.append(("all of them together", sum(size**2 for size in sizes.values()) ** 0.5))
    rows = [
        (name, page.show_number(size), _show_whole(size / max(spread, 1e-300)))
        for name, size in ranked
    ]
    note = (
        "The sizes are standard deviations per step. Each part is assumed to be no larger than the "
        "effects that were found. The bands include all of them."
    )
    if hidden.get("moment", 0) > 0:
        note += " A finding above says how much depends on the moment of a step."
    head = ("part", "size", "relative to the spread of the rewards")
    table = page.make_table(head, rows, f"What {outcome.plural} cannot exclude", (1, 2))
    title = f"How large is what {outcome.plural} cannot exclude?"
    return page.make_details(title, f"<p class='note'>{note}</p>{table}")


def _tell_settings(metrics: Mapping[str, Any], name: str) -> str:
    command = metrics.get("command")
    if command is None:
        command = shlex.join(["grd-offline", "decompose", str(metrics["data"])])
    if " --out " not in str(command):
        command = f"{command} --out {shlex.quote(name)}"
    judged = [
        (
            entry["fit"],
            f"{entry['held_out_return_r2']:.4f}",
            page.show_share(entry["held_out_return_coverage_90"]),
            entry["held_out_returns"],
        )
        for entry in metrics["alternatives"]
    ]
    held_out = f"held-out {read_outcome(metrics).plural}"
    head = ("fit", f"R² of {held_out}", "inside 90 % intervals", held_out)
    tables = "".join(
        f"<div><h3>{title}</h3>{page.make_settings(metrics[key], title)}</div>"
        for title, key in (("Settings", "settings"), ("Versions", "versions"))
        if key == "settings" or metrics.get(key)
    )
    code = f"from grd_offline import RewardModel\n\nmodel = RewardModel.load({json.dumps(name)})"
    parts = [
        page.make_code(code),
        f"<p>The decomposition took {page.show_number(float(metrics['seconds']))} s. This command "
        "makes it again:</p>",
        page.make_code(str(command)),
        f"<p>Fit: <strong>{escape(str(metrics['fit']))}</strong>. Reason: "
        f"{escape(str(metrics['reason']))}.</p>",
        page.make_table(head, judged, "Fits that were compared", (1, 2, 3)) if judged else "",
        "".join(f"<p class='note'>Warning: {escape(w)}</p>" for w in metrics["warnings"]),
        f"<div class='pair'>{tables}</div>",
    ]
    lead = "These lines load the reward as a function. Its method predict gives rewards of steps."
    return page.make_section("again", AGAIN, lead, *parts)


def _pack_returns(metrics: Mapping[str, Any], tracks: Tracks) -> dict[str, Any]:
    returns = _match_outcome(metrics, tracks)
    keep = np.linspace(0, len(returns) - 1, min(len(returns), MOST_POINTS)).round().astype(int)
    held = metrics.get("held_out")
    return {
        "observed": pack(returns[keep, 0]),
        "found": pack(returns[keep, 1]),
        "episodes": keep.tolist(),
        "held_out": held and {name: pack(values) for name, values in held.items()},
    }


def _match_outcome(metrics: Mapping[str, Any], tracks: Tracks) -> Array:
    """(episode, 2) the observed outcome, and what the rewards say of it: a chance for labels."""
    observed, found = tracks.returns.T
    found = read_outcome(metrics).predict(found, metrics.get("base", 0.0))
    return np.stack([observed, found], 1)


def _name_known(record: DecompositionRecord) -> dict[str, float]:
    """How much is known of each effect, by the name that the page gives to it."""
    names = {" x ".join(one["inputs"]): name_effect(one["inputs"]) for one in record.effects}
    known = record.metrics["identifiability"].get("pinned_down", {})
    return {names.get(name, name): share for name, share in known.items()}
