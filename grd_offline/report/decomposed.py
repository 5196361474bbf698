"""The page of a decomposition."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

import grd_offline.report.page as page
from grd_offline.evaluate import STEP_BANDS, give_chance
from grd_offline.files.decomposition import MISFIT, DecompositionRecord
from grd_offline.files.plain import folder_errors
from grd_offline.outcomes import NUMBER, PREFERENCE, SUCCESS, UNITS, speak_of
from grd_offline.report.effects import name_together, pack_effects, tell_effects
from grd_offline.report.film import Film, make_film
from grd_offline.report.graph import pack_graph, tell_graph
from grd_offline.report.packing import pack
from grd_offline.report.viewer import Tracks, find_landmarks, pack_tracks, read_tracks

Array = NDArray[np.float64]

MOST_POINTS = 2000
"""This many returns are drawn as points."""
UNRELIABLE = "unreliable"
LEVELS = {"fine": "Fine", "note": "Note", "careful": "Careful", UNRELIABLE: "Unreliable"}
"""Levels of findings and verdicts, from good to bad, as they are shown."""
TOO_NARROW = 0.8
"""Bands that are meant to hold 90 % and hold less than this are said to be too narrow."""
HIDDEN = {
    "moment": "the moment of a step at which the reward looks at the state",
    "potentials": "terms that cancel between steps, h(next state) - h(state)",
    "effects left out": "effects of inputs that were left out",
}
"""What may be in the reward and does not show in returns."""
CLEARLY = 0.95
"""Where this share of every effect is known, one sentence says so instead of a drawing."""


def make_decomposition_page(
    record: DecompositionRecord,
    *,
    video: str | None = None,
    warn: Callable[[str], None] = lambda text: None,
) -> str:
    """Make the page; `video` names the environment that renders a few episodes.

    `warn` is called with the reason why there is no video. The page gives the same reason.
    """
    with folder_errors(record.path, MISFIT):
        tracks = read_tracks(record)
    film = None
    if video is not None:
        shown = sorted(set(find_landmarks(tracks).values()))
        film = make_film(record.path, shown, video)
        if not film.clips:
            warn(film.note)
    with folder_errors(record.path, MISFIT):
        return compose_page(record, tracks, film)


def compose_page(record: DecompositionRecord, tracks: Tracks, film: Film | None = None) -> str:
    """Put the sections and the numbers of the drawings together."""
    metrics = record.metrics
    payload: dict[str, Any] = {
        "kind": "decomposition",
        "effects": pack_effects(record.effects),
        "graph": pack_graph(record.masks),
        "returns": _pack_returns(metrics, tracks),
        "calibration": metrics.get("calibration"),
        "pinned": metrics["identifiability"].get("pinned_down", {}),
        "film": None if film is None else film.clips,
    }
    sections = [
        ("episodes", "Episodes", _tell_episodes(metrics, tracks, film)),
        ("effects", "Effects", tell_effects(record.effects, str(metrics["fit"]))),
        ("graph", "Causal graph", tell_graph(record.masks)),
        ("returns", "Returns", _tell_returns(metrics, tracks)),
        ("limits", "What the data can tell", _tell_limits(metrics["identifiability"])),
        ("again", "Make it again", _tell_settings(metrics)),
    ]
    outcome = str(metrics.get("outcome", NUMBER))
    sections = [
        (name, speak_of(title, outcome), text if name == "again" else _speak(outcome, text))
        for name, title, text in sections
        if text
    ]
    body = page.make_body(_speak(outcome, _tell_headline(record)), sections)
    used = page.count_fixed_bytes() + len(body.encode()) + len(page.embed(payload))
    payload["viewer"] = pack_tracks(tracks, max(page.PAGE_BYTES - used, 200_000))
    return page.make_page(f"{metrics['data']}: return decomposition", body, payload)


def _tell_headline(record: DecompositionRecord) -> str:
    metrics = record.metrics
    source = page.list_source(
        str(metrics["data"]),
        str(metrics.get("environment") or ""),
        f"{metrics['episodes']:,} episodes",
        f"{metrics['steps']:,} steps",
    )
    title, said, verdict = _say_drivers(record), _say_how_sure(record), _read_verdict(metrics)
    if verdict[0] == UNRELIABLE:
        # What the fit says is no headline where it should not be relied on.
        title = "These rewards should not be relied on."
    facts = _list_facts(record)
    return page.make_headline("Return decomposition", title, said, facts, source, verdict)


def _read_verdict(metrics: Mapping[str, Any]) -> tuple[str, str]:
    """Level and sentence."""
    verdict = metrics.get("verdict")
    if verdict is None:
        return "careful", "Use these rewards with care: an earlier version made them, unchecked."
    level = str(verdict["level"])
    return level if level in LEVELS else UNRELIABLE, str(verdict["text"])


def _say_drivers(record: DecompositionRecord) -> str:
    """Write the headline as HTML, with the names marked."""
    effects, names = record.effects, record.inputs
    if not effects:
        if not names:
            return "Nothing was found to drive the reward."
        shown = [*names[:3], *([f"{len(names) - 3} more"] if len(names) > 3 else [])]
        verb = "drives" if len(names) == 1 else "drive"
        return f"{_mark(shown)} {verb} the reward."
    top = effects[0]
    if top["share"] >= 0.6 or len(effects) == 1:
        name = _mark([name_together(top["inputs"])])
        verb = "drives" if len(top["inputs"]) == 1 else "drive"
        part = "" if top["share"] > 0.995 else f"{page.show_share(top['share'])} of "
        return f"{name} {verb} {part}the reward's variation."
    largest = [name_together(effect["inputs"]) for effect in effects[:3]]
    return f"Most of the reward comes from {_mark(largest)}."


def _say_how_sure(record: DecompositionRecord) -> list[str]:
    metrics, effects = record.metrics, record.effects
    said = []
    others = [e for e in effects[1:] if e["share"] > 0.001]
    if (
        _read_verdict(metrics)[0] != UNRELIABLE
        and effects
        and effects[0]["share"] >= 0.6
        and others
    ):
        shares = [(name_together(e["inputs"]), page.show_share(e["share"])) for e in others[:3]]
        named = [f"{name} ({share})" for name, share in shares]
        more = [f"{len(others) - 3} more"] if len(others) > 3 else []
        said.append(f"The rest comes from {page.join_names(named + more)}.")
    explained = metrics.get("held_out_return_r2")
    if explained is None:
        said.append("Too few episodes to hold any out: how well it predicts is not known.")
    elif explained <= 0:
        said.append("It explains nothing of the returns of episodes that it had not seen.")
    else:
        said.append(
            f"The rewards found explain {page.show_share(explained)} of how returns differ between "
            f"episodes that the fit had not seen."
        )
    truth = metrics.get("truth")
    if truth is not None:
        said.append(
            f"Against the true reward of every step the correlation is {truth['pearson']:.2f}, and "
            f"the {page.NINETY} bands hold {page.show_share(truth['coverage_90'])} of the steps."
        )
    return said


def _list_facts(record: DecompositionRecord) -> list[tuple[str, str]]:
    metrics, masks = record.metrics, record.masks
    facts = []
    if metrics.get("held_out_return_r2") is not None:
        explained, inside = metrics["held_out_return_r2"], metrics["held_out_return_coverage_90"]
        counted = f"of {metrics['held_out_returns']:,} returns held out explained (R²)"
        facts.append((page.show_share(explained), counted))
        facts.append(
            (page.show_share(inside), f"of these returns inside their {page.NINETY} interval")
        )
    driving = sum(masks["state_to_reward"]) + sum(masks["action_to_reward"])
    inputs = len(masks["state_names"]) + len(masks["action_names"])
    facts.append((f"{driving} of {inputs}", "inputs drive the reward"))
    compact = masks["compact"]["closure"]
    facts.append((f"{sum(compact)} of {len(compact)}", "state dimensions a policy needs"))
    if "truth" in metrics:
        facts.append((f"{metrics['truth']['pearson']:.2f}", "correlation with the true reward"))
    return facts


def _tell_episodes(metrics: Mapping[str, Any], tracks: Tracks, film: Film | None) -> str:
    shown, total = len(tracks.chosen), len(tracks.returns)
    lead = (
        "The reward found for every step, and what it adds up to. The band is where "
        f"{page.NINETY} of rewards are expected. {metrics.get('bands', STEP_BANDS)}"
    )
    outcome = metrics.get("outcome", NUMBER)
    lead += f" {UNITS[outcome]}" if outcome in UNITS else ""
    truth = metrics.get("truth")
    if truth is not None and truth["coverage_90"] < TOO_NARROW:
        held = page.show_share(truth["coverage_90"])
        lead += f" Here it is too narrow: it holds {held} of the true rewards."
    if shown < total:
        lead += f" {shown} of {total:,} episodes are here, evenly by their return."
    picture = ""
    if film is not None:
        picture = f"<p class='note'>{escape(film.note)}</p>"
        if film.clips:
            picture = (
                "<figure class='film'><div class='frame' role='img' "
                "aria-label='The episode as rendered'></div>"
                f"<figcaption><button type='button' id='play'>Play</button> "
                f"<span>{escape(film.note)}</span></figcaption></figure>"
            )
    drawing = picture + page.make_chart("viewer", "The rewards of one episode")
    viewer = page.fill("page.viewer.html", drawing=drawing).replace("\n", "")
    return page.make_section("episodes", "Episodes", escape(lead), viewer)


def _tell_returns(metrics: Mapping[str, Any], tracks: Tracks) -> str:
    if metrics.get("outcome") == PREFERENCE:
        return ""
    observed, found = _match_outcome(metrics, tracks).T
    gap = float(np.sqrt(np.mean((observed - found) ** 2)))
    scatter = (
        f"Predicted against observed returns: observed from {page.show_number(observed.min())} to "
        f"{page.show_number(observed.max())}, typical gap {page.show_number(gap)}"
    )
    parts = [page.make_figure("Predicted against observed", page.make_chart("returns", scatter))]
    calibration = metrics.get("calibration") or {}
    if calibration.keys() & {"held_out_returns", "true_rewards"}:
        pairs = calibration.get("held_out_returns") or []
        at = [c for level, c in zip(calibration["levels"], pairs, strict=False) if level == 0.9]
        label = "Calibration: how many values lie inside intervals of each level"
        if at:
            held = page.show_share(at[0])
            label += f"; the {page.NINETY} intervals hold {held} of the returns held out"
        caption = "Calibration: do intervals hold what they promise?"
        parts.append(page.make_figure(caption, page.make_chart("calibration", label)))
    lead = "Points on the line are predicted exactly. Good returns do not prove good steps."
    if metrics.get("held_out"):
        lead += " Those in colour were held out: the fit that predicts them never saw them."
    else:
        lead += " All returns were part of the fit; none were held out."
    drawings = f"<div class='pair'>{''.join(parts)}</div>"
    return page.make_section("returns", "Returns", lead, drawings)


def _tell_limits(found: Mapping[str, Any]) -> str:
    findings = "".join(_show_finding(f) for f in found["findings"])
    lead = (
        "Returns fix rewards only up to what cancels over an episode: what moves reward from "
        "one step to another without changing any return cannot be seen in returns."
    )
    parts = [f"<ul class='findings'>{findings}</ul>" if findings else ""]
    if not findings:
        parts.append("<p>This fit was not examined: only the closed form can be.</p>")
    pinned = found.get("pinned_down") or {}
    if pinned:
        worst = min(pinned, key=lambda name: pinned[name])
        if pinned[worst] > CLEARLY:
            text = f"Of every effect, {page.show_share(pinned[worst])} or more is known."
            parts.append(f"<p class='note'>{escape(text)}</p>")
        else:
            label = (
                f"How much is known of each of {len(pinned)} effects; the least of {worst}, "
                f"{page.show_share(pinned[worst])}"
            )
            caption = "How much of each effect is known: 100 % is a curve without a band"
            parts.append(page.make_figure(caption, page.make_chart("pinned", label)))
    if found.get("hidden"):
        parts.append(_tell_hidden(found["hidden"], float(found["reward_spread"])))
    return page.make_section("limits", "What the data can and cannot tell", lead, *parts)


def _show_finding(finding: Mapping[str, Any]) -> str:
    level = finding["level"] if finding["level"] in LEVELS else UNRELIABLE
    text = escape(str(finding["text"]))
    return f"<li class='{level}'><strong>{LEVELS[level]}</strong> {text}</li>"


def _tell_hidden(hidden: Mapping[str, float], spread: float) -> str:
    """The parts of the reward that returns cannot exclude, as a table that unfolds."""
    rows = [
        (
            HIDDEN.get(name, name),
            page.show_number(size),
            page.show_share(size / max(spread, 1e-300)),
        )
        for name, size in sorted(hidden.items(), key=lambda item: -item[1])
    ]
    note = (
        "<p class='note'>Standard deviations per step. Each part is taken to be no larger than the "
        "effects that were found. The bands include all of them.</p>"
    )
    head = ("part", "size", "of the spread of the rewards")
    table = page.make_table(head, rows, "What returns cannot exclude", (1, 2))
    return page.make_details("How large can it be, what returns cannot exclude?", note + table)


def _tell_settings(metrics: Mapping[str, Any]) -> str:
    command = metrics.get("command")
    if command is None:
        command = shlex.join(["grd-offline", "decompose", str(metrics["data"])])
    judged = [
        (
            entry["fit"],
            f"{entry['held_out_return_r2']:.4f}",
            page.show_share(entry["held_out_return_coverage_90"]),
            entry["held_out_returns"],
        )
        for entry in metrics["alternatives"]
    ]
    head = ("fit", "R² of returns held out", "inside 90 % intervals", "returns")
    tables = "".join(
        f"<div><h3>{title}</h3>{page.make_settings(metrics[key], title)}</div>"
        for title, key in (("Settings", "settings"), ("Versions", "versions"))
        if key == "settings" or metrics.get(key)
    )
    parts = [
        page.make_command(str(command)),
        f"<p>Fit: <strong>{escape(str(metrics['fit']))}</strong>, since "
        f"{escape(str(metrics['reason']))}.</p>",
        page.make_table(head, judged, "Fits that were compared", (1, 2, 3)) if judged else "",
        "".join(f"<p class='note'>Warning: {escape(w)}</p>" for w in metrics["warnings"]),
        f"<div class='pair'>{tables}</div>",
    ]
    lead = f"Made in {page.show_number(float(metrics['seconds']))} s by this command."
    return page.make_section("again", "Make it again", lead, *parts)


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
    if metrics.get("outcome") == SUCCESS:
        found = give_chance(found)
    return np.stack([observed, found], 1)


def _speak(outcome: str, text: str) -> str:
    """`speak_of` for HTML: what stands in tags stays as it is."""
    parts = re.split(r"(<[^>]*>)", text)
    return "".join(part if part.startswith("<") else speak_of(part, outcome) for part in parts)


def _mark(names: Sequence[str]) -> str:
    return page.join_names([f"<em>{escape(name)}</em>" for name in names])
