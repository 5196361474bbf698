"""The headline of a decomposition's page: the verdict, the drivers and how sure they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import grd_offline.report.page as page
from grd_offline.core.outcomes import NUMBER, Outcome
from grd_offline.io.files.decomposition import DecompositionRecord
from grd_offline.report.importance import Importance

UNRELIABLE = "unreliable"
LEVELS = {"fine": "Fine", "note": "Note", "careful": "Careful", UNRELIABLE: "Unreliable"}
"""Levels of findings and verdicts, from good to bad, as they are shown."""
MAJOR = 0.6
"""An input with this share of the reward's variation is a headline of its own."""


def tell_headline(record: DecompositionRecord, importance: Sequence[Importance]) -> str:
    metrics = record.metrics
    source = page.list_source(
        str(metrics["data"]),
        str(metrics.get("environment") or ""),
        f"{metrics['episodes']:,} episodes",
        f"{metrics['steps']:,} steps",
    )
    title, said = _say_drivers(record, importance), _say_how_sure(record, importance)
    verdict = _read_verdict(metrics)
    explained = metrics.get("held_out_return_r2")
    # What the fit says is no headline where it should not be relied on.
    if explained is not None and explained <= 0:
        title = "No reliable decomposition."
    elif verdict[0] == UNRELIABLE:
        title = "These rewards should not be relied on."
    facts = _list_facts(record)
    kind = f"{read_outcome(metrics).singular.capitalize()} decomposition"
    return page.make_headline(kind, title, said, facts, source, verdict)


def read_outcome(metrics: Mapping[str, Any]) -> Outcome:
    """Read what is known of the episodes. Earlier versions knew returns only."""
    return Outcome(metrics.get("outcome", NUMBER))


def is_relied_on(metrics: Mapping[str, Any]) -> bool:
    """Return whether the verdict lets a reader use the rewards, perhaps with care."""
    return _read_verdict(metrics)[0] != UNRELIABLE


def _read_verdict(metrics: Mapping[str, Any]) -> tuple[str, str]:
    """Read the level and the sentence; a fit that predicts nothing is unreliable."""
    level, text = _read_stored_verdict(metrics)
    explained = metrics.get("held_out_return_r2")
    return (UNRELIABLE if explained is not None and explained <= 0 else level), text


def _read_stored_verdict(metrics: Mapping[str, Any]) -> tuple[str, str]:
    verdict = metrics.get("verdict")
    if verdict is None:
        return "careful", "Use these rewards with care: an earlier version made them, unchecked."
    level = str(verdict["level"])
    return level if level in LEVELS else UNRELIABLE, str(verdict["text"])


def _say_drivers(record: DecompositionRecord, importance: Sequence[Importance]) -> str:
    """Write the headline as HTML, with the names marked."""
    names = [one.name for one in importance] or list(record.inputs)
    if not names:
        return "Nothing was found to drive the reward."
    if not importance:
        shown = [*names[:3], *([f"{len(names) - 3} more"] if len(names) > 3 else [])]
        return f"{_mark(shown)} {'drives' if len(names) == 1 else 'drive'} the reward."
    top = importance[0].total
    if top >= MAJOR or len(names) == 1:
        # The inputs of one effect have the same share.
        first = [one.name for one in importance if one.total > top - 0.005][:4]
        part = "" if top > 0.995 else f"{page.show_share(top)} of "
        verb = "drives" if len(first) == 1 else "together drive"
        return f"{_mark(first)} {verb} {part}the reward's variation."
    return f"Most of the reward's variation comes from {_mark(names[:3])}."


def _say_how_sure(record: DecompositionRecord, importance: Sequence[Importance]) -> list[str]:
    metrics, outcome = record.metrics, read_outcome(record.metrics)
    said = []
    others = [one for one in importance[1:] if one.total > 0.001]
    if is_relied_on(metrics) and others and importance[0].total >= MAJOR:
        named = [f"{one.name} ({page.show_share(one.total)})" for one in others[:3]]
        more = [f"{len(others) - 3} more"] if len(others) > 3 else []
        said.append(f"Next come {page.join_names(named + more)}.")
    explained = metrics.get("held_out_return_r2")
    if explained is None:
        said.append(
            "There were too few episodes to hold any out. So it is not known how well the rewards "
            f"predict the {outcome.plural} of other episodes."
        )
    elif explained <= 0:
        said.append(
            f"The rewards predict the {outcome.plural} of held-out episodes no better than the "
            f"mean {outcome.singular} does. Nothing below should be taken for a result. More "
            "episodes may help."
        )
    else:
        said.append(
            f"The rewards explain {page.show_share(explained)} of the variance of the "
            f"{outcome.plural} of held-out episodes."
        )
    truth = metrics.get("truth")
    if truth is not None:
        said.append(
            f"Their correlation with the true rewards of the steps is {truth['pearson']:.2f}, and "
            f"the {page.NINETY} bands contain {page.show_share(truth['coverage_90'])} of the true "
            f"rewards."
        )
    return said


def _list_facts(record: DecompositionRecord) -> list[tuple[str, str]]:
    metrics, masks = record.metrics, record.masks
    facts = []
    if metrics.get("held_out_return_r2") is not None:
        explained, inside = metrics["held_out_return_r2"], metrics["held_out_return_coverage_90"]
        plural = read_outcome(metrics).plural
        held = f"{metrics['held_out_returns']:,} held-out {plural}"
        facts.append(
            (page.show_share(explained), f"of the variance of {held} explained (R²)")
            if explained > 0
            else (f"{explained:.2f}", f"R² of {held}")
        )
        facts.append((page.show_share(inside), f"of them inside their {page.NINETY} interval"))
    if is_relied_on(metrics):
        driving = sum(masks["state_to_reward"]) + sum(masks["action_to_reward"])
        inputs = len(masks["state_names"]) + len(masks["action_names"])
        facts.append((f"{driving} of {inputs}", "dimensions drive the reward"))
        compact = masks["compact"]["closure"]
        facts.append((f"{sum(compact)} of {len(compact)}", "state dimensions in the compact state"))
    if "truth" in metrics:
        facts.append((f"{metrics['truth']['pearson']:.2f}", "correlation with the true reward"))
    return facts


def _mark(names: Sequence[str]) -> str:
    return page.join_names([f"<em>{escape(name)}</em>" for name in names])
