"""The page of a judgement: how well policies do that were trained on each source of rewards."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import grd_offline.report.page as page
from grd_offline.io.files.judgement import (
    JUDGE_FILE,
    MISFIT,
    OBSERVED,
    TRUE,
    JudgementRecord,
    Verdict,
)
from grd_offline.io.files.plain import folder_errors
from grd_offline.learning.agents.algorithms import find_title
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
from grd_offline.report.evidence import FEW_SEEDS, find_rivals, say_no_best, warn_of_chance

TRUTH = {
    "pearson": "correlation (Pearson)",
    "pearson_within_episodes": "within episodes",
    "spearman": "rank correlation (Spearman)",
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
    shown = judgement.methods[:3] if _list_rivals(judgement) else [best]
    facts = [(_show_reached(v), f"true return with the rewards of {v.source}") for v in shown]
    for source, words in ((TRUE, "with the true rewards"), (OBSERVED, "with the delayed rewards")):
        verdict = judgement.find(source)
        if verdict is not None and verdict not in shown:
            facts.append((_show_reached(verdict), words))
    if judgement.data_mean is not None:
        facts.append((page.show_number(judgement.data_mean), "mean return of the data"))
    source = page.list_source(
        str(data["file"]),
        judgement.run.environment,
        f"{data['episodes']:,} episodes",
        f"{data['steps']:,} steps",
    )
    kind = "Rewards, judged by policies that were trained on them"
    seeds, is_open = len(best.scores), bool(_list_rivals(judgement))
    title = f"{say_no_best(seeds)}." if is_open else _say_best(judgement)
    banner = ("careful", warn_of_chance(seeds)) if is_open or seeds < 3 else None
    return page.make_headline(kind, title, _say_how(judgement), facts, source, banner)


def _list_rivals(judgement: JudgementRecord) -> list[str]:
    """List the sources, but for the truth, that the best method is not clearly better than."""
    scores = {v.source: v.scores for v in judgement.ranking if v.source != TRUE}
    return find_rivals(scores, judgement.best.source)


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
        f"{algorithm} trained {seeds} {'policy' if seeds == 1 else 'policies'} on the rewards of "
        f"each source, with {settings['updates']:,} updates on {data['episodes']:,} recorded "
        f"episodes. Policies are judged by their true return in {judgement.run.environment}."
    ]
    rest = [v for v in judgement.ranking if v is not best]
    measure = _choose_measure(judgement)
    rivals = _list_rivals(judgement)
    named = [f"{v.source} {_tell(v, measure)}" for v in rest if v.source != TRUE]
    if named and not rivals:
        said.append(f"The other sources: {page.join_names(named)}.")
    above = judgement.find(OBSERVED)
    if above is not None and above.mean > best.mean:
        said.append("No method reaches more than the delayed rewards as they are.")
    if rivals:
        said.append(
            f"{best.source} has the highest mean of the methods, but the seeds do not show that it "
            f"is better than {page.join_names(rivals)}."
        )
    if best.share_of_gain is not None and not _is_gain_clear(judgement):
        said.append(
            "Policies trained on the true rewards do not clearly reach more than the data. So the "
            "shares of this gain say little."
        )
    if judgement.about.get("stopped"):
        said.append("The training was stopped early.")
    return said


def _tell_verdicts(judgement: JudgementRecord) -> str:
    ranking, data = judgement.ranking, judgement.data_mean
    seeds = len(judgement.best.scores)
    lead = f"The true return of policies: {judgement.about['score']}."
    if seeds > 1:
        lead += " A large dot is the mean over seeds, and a small dot is one seed."
    if seeds >= FEW_SEEDS:
        lead += " The bar is one standard deviation to either side."
    scales = [("return", "true return")]
    if any(verdict.share_of_true is not None for verdict in ranking):
        scales.append(("share", "share of the return with the true rewards"))
    if any(verdict.share_of_gain is not None for verdict in ranking):
        scales.append(("gain", "share of the gain of the true rewards over the data"))
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
    titles = ("rewards", "return", "of true", "of true's gain", "correlation with the true rewards")
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
            "The data contain no true rewards. So there are no shares of the return with the true "
            "rewards. The command grd-offline collect --keep-true-rewards stores true rewards."
        )
    else:
        words = "of true: the mean return, divided by the mean return with the true rewards."
        if judgement.best.share_of_true is None:
            words = (
                "There are no shares of the return with the true rewards, because this return is "
                "not above 0."
            )
        if judgement.best.share_of_gain is not None:
            words += (
                " of true's gain: the same after the mean return of the data was subtracted from "
                "both. 0\N{NO-BREAK SPACE}% means no better than the data."
            )
    return f"<p class='note'>{escape(words)}</p>"


def _tell_learning(
    judgement: JudgementRecord, curves: Sequence[Curve], metrics: Sequence[Mapping[str, Any]]
) -> str:
    lead = (
        f"{describe_lines(curves)}Returns are sums of the true rewards, without a discount. "
        f"The training of all policies took {show_minutes(find_seconds(judgement.run))}."
    )
    twins = _find_twins(judgement.ranking)
    if twins:
        lead += f" {page.join_names(twins)} have the same returns, so their lines coincide."
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
        "Do rewards that are closer to the true rewards lead to better policies? All measures are "
        "over all steps of the data."
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
    head = ("method", "fit", "R² of held-out returns", "seconds", "why this fit")
    lead = (
        "Each method found a reward for every step from the returns of the same episodes. Policies "
        "were also trained on the true and on the delayed rewards, for comparison."
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
        "few": len(verdict.scores) < FEW_SEEDS,
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
