"""The page of a judgement: how well policies do that were trained on each source of rewards."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import grd_offline.report.page as page
from grd_offline.agents.algorithms import find_title
from grd_offline.files.judgement import JUDGE_FILE, MISFIT, OBSERVED, TRUE, JudgementRecord, Verdict
from grd_offline.files.plain import folder_errors
from grd_offline.report.curves import (
    Curve,
    describe_lines,
    find_seconds,
    make_again,
    make_curves,
    make_learning,
    make_select,
    pack_metrics,
    show_minutes,
    show_spread,
)

TRUTH = {
    "pearson": "Pearson",
    "pearson_within_episodes": "Pearson within episodes",
    "spearman": "Spearman",
    "r2": "R²",
    "error_after_affine_fit": "error after affine fit",
}
"""Measures of rewards against the true rewards: names in `judge.json`, and words."""


def make_judgement_page(judgement: JudgementRecord) -> str:
    """Make the page of a judgement."""
    with folder_errors(judgement.path / JUDGE_FILE, MISFIT):
        return _make_page(judgement)


def _make_page(judgement: JudgementRecord) -> str:
    # The best method has the first colour, on every drawing.
    own = [*judgement.methods, *(v for v in judgement.ranking if v.source == OBSERVED)]
    looks = {verdict.source: place for place, verdict in enumerate(own)}
    order = [verdict.source for verdict in judgement.ranking]
    curves = [curve for curve in make_curves([judgement.run], "return") if curve.label in order]
    curves.sort(key=lambda curve: order.index(curve.label))
    metrics = pack_metrics([judgement.run], curves, looks)
    near = _pack_nearness(judgement, looks)
    true, first = judgement.find(TRUE), int(judgement.about["settings"]["seed"])
    payload = {
        "kind": "judge",
        "unit": judgement.run.unit,
        "metrics": metrics,
        "data": judgement.data_mean,
        "true": None if true is None else true.mean,
        "seeds": [first + place for place in range(len(judgement.best.scores))],
        "verdicts": [_pack_verdict(verdict, looks) for verdict in judgement.ranking],
        "nearness": near,
    }
    sections = [
        ("verdict", "Verdict", _tell_verdicts(judgement)),
        ("learning", "Learning", _tell_learning(judgement, curves, metrics)),
    ]
    if near:
        sections.append(("truth", "Against the truth", _tell_truth(judgement)))
    sections.append(("methods", "Methods", _tell_methods(judgement)))
    again = make_again(judgement.about, judgement.path.name)
    title = "Make it again"
    sections.append(("again", title, page.make_section("again", title, "", again)))
    body = page.make_body(_tell_headline(judgement), sections)
    return page.make_page(f"{judgement.about['data']['file']}: rewards judged", body, payload)


def _show_reached(verdict: Verdict) -> str:
    """Write the mean and the standard deviation of the return."""
    return show_spread(verdict.mean, verdict.spread, len(verdict.scores))


def _is_gain_clear(judgement: JudgementRecord) -> bool:
    """Whether the true rewards gain more over the data than their seeds spread."""
    true, data = judgement.find(TRUE), judgement.data_mean
    return true is not None and data is not None and true.mean - data > true.spread


def _choose_measure(judgement: JudgementRecord) -> str:
    """Choose the measure of the headline: share_of_true, share_of_gain or return.

    A share that is not above 0, or of what may be chance, says less than the return.
    """
    best = judgement.best
    if best.share_of_true is not None and best.share_of_true > 0:
        return "share_of_true"
    if best.share_of_gain is not None and best.share_of_gain > 0 and _is_gain_clear(judgement):
        return "share_of_gain"
    return "return"


def _tell(verdict: Verdict, measure: str) -> str:
    """Write a verdict in one measure."""
    share = getattr(verdict, measure) if measure != "return" else None
    return page.show_number(verdict.mean) if share is None else _show_share(share)


def _tell_headline(judgement: JudgementRecord) -> str:
    data, best = judgement.about["data"], judgement.best
    facts = [(_show_reached(best), f"true return with the rewards of {best.source}")]
    for source, words in ((TRUE, "with the true rewards"), (OBSERVED, "with the delayed rewards")):
        verdict = judgement.find(source)
        if verdict is not None and verdict is not best:
            facts.append((_show_reached(verdict), words))
    if judgement.data_mean is not None:
        facts.append((page.show_number(judgement.data_mean), "mean return of the data"))
    source = page.list_source(
        str(data["file"]),
        judgement.run.environment,
        f"{data['episodes']:,} episodes",
        f"{data['steps']:,} steps",
    )
    kind = "Rewards judged by the policies they teach"
    return page.make_headline(kind, _say_best(judgement), _say_how(judgement), facts, source)


def _say_best(judgement: JudgementRecord) -> str:
    """Write the headline as HTML, with the name marked."""
    best, measure = judgement.best, _choose_measure(judgement)
    told = _tell(best, measure)
    reached = {
        "share_of_true": f"reach {told} of what the true rewards reach",
        "share_of_gain": f"gain {told} of what the true rewards gain over the data",
        "return": f"reach {escape(_show_reached(best))} on {escape(judgement.run.environment)}",
    }
    name = f"<em>{escape(best.source)}</em>"
    return f"Policies trained on rewards found by {name} {reached[measure]}."


def _say_how(judgement: JudgementRecord) -> list[str]:
    """Say what was done, how the other methods compare, and what calls for care."""
    settings, data, best = judgement.about["settings"], judgement.about["data"], judgement.best
    algorithm = find_title(settings["algorithm"])
    seeds = len(best.scores)
    said = [
        f"{seeds} {'policy' if seeds == 1 else 'policies'} per source of rewards, trained by "
        f"{algorithm} with {settings['updates']:,} updates on nothing but {data['episodes']:,} "
        f"episodes, and judged by the true return in {judgement.run.environment}."
    ]
    rest = [v for v in judgement.ranking if v is not best]
    measure = _choose_measure(judgement)
    named = [f"{v.source} {_tell(v, measure)}" for v in rest if v.source != TRUE]
    if named:
        said.append(f"Beside it: {page.join_names(named)}.")
    above = judgement.find(OBSERVED)
    if above is not None and above.mean > best.mean:
        said.append("The delayed rewards as they are do better than any that were found.")
    close = [v.source for v in rest if abs(v.mean - best.mean) <= v.spread + best.spread]
    if seeds == 1:
        said.append("With one seed, merit and chance cannot be told apart.")
    elif close:
        named = ["the true rewards" if name == TRUE else name for name in close]
        rivals = page.join_names(named)
        said.append(f"Spreads overlap: {best.source} is not told apart from {rivals}.")
    if best.share_of_gain is not None and not _is_gain_clear(judgement):
        said.append(
            "The true rewards themselves gain no more over the data than chance may: shares of "
            "that gain say little."
        )
    if judgement.about.get("stopped"):
        said.append("Training was stopped before its end.")
    return said


def _tell_verdicts(judgement: JudgementRecord) -> str:
    ranking, data = judgement.ranking, judgement.data_mean
    seeds = len(judgement.best.scores)
    lead = f"The true return, {judgement.about['score']}."
    if seeds > 1:
        lead += " Large dot: mean over seeds. Bar: one standard deviation. Small dots: each seed."
    scales = [("return", "true return")]
    if any(verdict.share_of_true is not None for verdict in ranking):
        scales.append(("share", "share of what the true rewards reach"))
    if any(verdict.share_of_gain is not None for verdict in ranking):
        scales.append(("gain", "share of their gain over the data"))
    choice = make_select("scale", "Scale", scales)
    label = "Return reached with each source of rewards: " + page.join_names(
        [f"{verdict.source} {_show_reached(verdict)}" for verdict in ranking]
    )
    if data is not None:
        label += f"; the data have {page.show_number(data)}"
    rows = [
        (
            verdict.source,
            _show_reached(verdict),
            _show_share(verdict.share_of_true),
            _show_share(verdict.share_of_gain),
            _show_measure({"pearson": verdict.pearson}, "pearson"),
        )
        for verdict in ranking
    ]
    columns = [
        place
        for place in range(5)
        if place < 2 or any(row[place] != "-" for row in rows)  # without the truth: no shares
    ]
    titles = ("rewards", "return", "of true", "of true's gain", "Pearson with the true rewards")
    table = page.make_table(
        [titles[place] for place in columns],
        [[row[place] for place in columns] for row in rows],
        "Verdicts",
        range(1, len(columns)),
    )
    parts = [f"<div class='controls'>{choice}</div>" if choice else ""]
    parts += [page.make_chart("verdicts", label), table, _explain_columns(judgement)]
    title = "What each source of rewards is worth"
    return page.make_section("verdict", title, escape(lead), *parts)


def _show_share(share: float | None) -> str:
    """Write a share in whole per cent, as the command prints it."""
    return "-" if share is None else f"{100 * share:.0f}\N{NO-BREAK SPACE}%"


def _explain_columns(judgement: JudgementRecord) -> str:
    if judgement.find(TRUE) is None:
        words = (
            "The data hold no true rewards, so there is no share of what these would reach; "
            "grd-offline collect --keep-true-rewards stores them."
        )
    else:
        words = "of true: the mean as a share of that with the true rewards"
        if judgement.best.share_of_true is None:
            words = "Shares of what the true rewards reach are left out, as that is not above 0"
        if judgement.best.share_of_gain is not None:
            words += (
                "; of true's gain: the same of what is above the mean return of the data, so that "
                "0\N{NO-BREAK SPACE}% is no better than the data"
            )
        words += "."
    return f"<p class='note'>{escape(words)}</p>"


def _tell_learning(
    judgement: JudgementRecord, curves: Sequence[Curve], metrics: Sequence[Mapping[str, Any]]
) -> str:
    lead = (
        f"{describe_lines(curves)}Returns are true and undiscounted. "
        f"All policies were trained side by side, in {show_minutes(find_seconds(judgement.run))}."
    )
    twins = _find_twins(judgement.ranking)
    if twins:
        lead += f" {page.join_names(twins)} reach the same with every seed: their lines coincide."
    return page.make_section("learning", "Learning curves", escape(lead), make_learning(metrics))


def _find_twins(ranking: Sequence[Verdict]) -> list[str]:
    """Find sources that led to the same policies."""
    for verdict in ranking:
        same = [v.source for v in ranking if _agree(v.scores, verdict.scores)]
        if len(same) > 1:
            return same
    return []


def _agree(first: Sequence[float], second: Sequence[float]) -> bool:
    return len(first) == len(second) and all(
        math.isclose(a, b, rel_tol=1e-6) for a, b in zip(first, second, strict=True)
    )


def _tell_truth(judgement: JudgementRecord) -> str:
    sources = judgement.sources
    known = [v for v in judgement.ranking if v.pearson is not None]
    label = "Return reached against Pearson's correlation of the rewards with the true ones: "
    reached = [f"{v.source} {page.show_number(v.mean)} at {v.pearson:.2f}" for v in known]
    label += page.join_names(reached)
    chart = page.make_chart("nearness", label)
    rows = [
        (v.source, *(_show_measure(sources[v.source]["against_truth"], name) for name in TRUTH))
        for v in known
        if v.source != TRUE and "against_truth" in sources.get(v.source, {})
    ]
    table = page.make_table(
        ("rewards", *TRUTH.values()), rows, "Rewards against the true ones", range(1, 6)
    )
    lead = (
        "Do rewards that are nearer to the true ones, step by step, teach better policies? "
        "All measures are over all steps of the data."
    )
    return page.make_section("truth", "Against the true rewards", lead, chart, table)


def _show_measure(measures: Mapping[str, Any], name: str) -> str:
    value = measures.get(name)
    return "-" if value is None else f"{round(float(value), 3) + 0.0:.3f}"  # no -0.000


def _tell_methods(judgement: JudgementRecord) -> str:
    rows = [
        (
            verdict.source,
            about.get("fit", "-"),
            _show_measure(about, "held_out_return_r2"),
            f"{float(about.get('seconds', 0)):.1f}",
            about.get("reason", "-"),
        )
        for verdict in judgement.methods
        for about in [judgement.sources.get(verdict.source, {})]
    ]
    head = ("method", "fit", "R² of returns held out", "seconds", "why this fit")
    lead = (
        "Each method saw the returns of the same episodes, and named a reward for every step. "
        "The true and the delayed rewards are there to compare with."
    )
    table = page.make_table(head, rows, "What each method chose", (2, 3))
    return page.make_section("methods", "What each method chose", lead, table)


def _pack_verdict(verdict: Verdict, looks: Mapping[str, int]) -> dict[str, Any]:
    return {
        "source": verdict.source,
        "oracle": verdict.source == TRUE,
        "look": looks.get(verdict.source, 0),
        "scores": list(verdict.scores),
        "mean": verdict.mean,
        "spread": verdict.spread,
        "reached": _show_reached(verdict),
        "share": verdict.share_of_true,
        "gain": verdict.share_of_gain,
    }


def _pack_nearness(judgement: JudgementRecord, looks: Mapping[str, int]) -> list[dict[str, Any]]:
    """Make a point for each source whose correlation with the true rewards is known.

    Sources that agree in all are one point.
    """
    points: list[dict[str, Any]] = []
    for verdict in judgement.ranking:
        if verdict.pearson is None:
            continue
        at = {**_pack_verdict(verdict, looks), "pearson": verdict.pearson}
        twin = next(
            (p for p in points if _agree((p["pearson"], p["mean"]), (at["pearson"], at["mean"]))),
            None,
        )
        if twin is None:
            points.append(at)
        else:
            twin["source"] += f", {verdict.source}"
    return points if len(points) > 1 else []
