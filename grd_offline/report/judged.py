"""The page of a judgement: how well policies do that were trained on each source of rewards."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import compress
from typing import Any

from grd_offline.core.words import format_seconds
from grd_offline.io.files.plain import folder_errors
from grd_offline.io.files.results import (
    JUDGE_FILE,
    JUDGE_MISFIT,
    OBSERVED,
    TRUE,
    JudgementRecord,
    Verdict,
)
from grd_offline.report.curves import (
    describe_lines,
    find_seconds,
    make_curves,
    pack_metrics,
    show_spread,
)
from grd_offline.report.evidence import FEW_SEEDS, find_rivals, say_no_best, warn_of_chance
from grd_offline.report.page import count_steps, render_page, show_number

TRUTH = {
    "pearson": "correlation (Pearson)",
    "pearson_within_episodes": "within episodes",
    "spearman": "rank correlation (Spearman)",
    "r2": "R²",
    "error_after_affine_fit": "error after affine fit",
}
"""Measures of rewards against the true rewards: names in `judge.json`, and words."""
SCALES = (
    ("return", "mean", "true return"),
    ("share", "share_of_true", "share of the return with the true rewards"),
    ("gain", "share_of_gain", "share of the gain of the true rewards over the data"),
)
"""Scales of the drawing of verdicts: key, field of a verdict, and words."""


def make_judgement_page(judgement: JudgementRecord) -> str:
    """Make the page of a judgement."""
    with folder_errors(judgement.path / JUDGE_FILE, JUDGE_MISFIT):
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
    true, observed = judgement.find(TRUE), judgement.find(OBSERVED)
    about, best, ranking = judgement.about, judgement.best, judgement.ranking
    first, seeds = int(about["settings"]["seed"]), len(best.scores)
    payload = {
        "kind": "judge",
        "unit": judgement.run.unit,
        "metrics": metrics,
        "data": judgement.data_mean,
        "true": None if true is None else true.mean,
        "seeds": [first + place for place in range(seeds)],
        "verdicts": [_pack_verdict(verdict, looks) for verdict in ranking],
        "nearness": near,
    }
    rivals, measure = _list_rivals(judgement), _choose_measure(judgement)
    columns, rows = _list_verdicts(ranking)
    return render_page(
        "judgement.html",
        payload,
        tab=f"{about['data']['file']}: rewards judged",
        kind="Rewards, judged by policies that were trained on them",
        level="careful" if rivals or seeds < 3 else "fine",
        verdict=warn_of_chance(seeds) if rivals or seeds < 3 else "",
        facts=_list_facts(judgement, rivals),
        source=[
            str(about["data"]["file"]),
            judgement.run.environment,
            *count_steps(about["data"]),
        ],
        nav={
            "verdict": "Verdict",
            "learning": "Learning",
            "truth": "Against the truth" if near else "",
            "methods": "Methods",
            "again": "Make it again",
        },
        judgement=judgement,
        best=best,
        rivals=rivals,
        no_best=say_no_best(seeds),
        measure=measure,
        told=_tell(best, measure),
        reached=_show_reached(best),
        algorithm=about.get("algorithm", about["settings"]["algorithm"]),
        others=[
            f"{verdict.source} {_tell(verdict, measure)}"
            for verdict in ranking
            if verdict is not best and verdict.source != TRUE
        ],
        is_delayed_better=observed is not None and observed.mean > best.mean,
        is_gain_clear=_is_gain_clear(judgement),
        seeds=seeds,
        few_seeds=FEW_SEEDS,
        scales=[
            {"key": key, "label": label}
            for key, field, label in SCALES
            if any(getattr(verdict, field) is not None for verdict in ranking)
        ],
        named=[f"{verdict.source} {_show_reached(verdict)}" for verdict in ranking],
        columns=columns,
        rows=rows,
        about_lines=describe_lines(curves),
        time=format_seconds(find_seconds(judgement.run)),
        twins=_find_twins(ranking),
        metrics=metrics,
        near=[
            f"{verdict.source} {show_number(verdict.mean)} at {verdict.pearson:.2f}"
            for verdict in ranking
            if verdict.pearson is not None
        ],
        truth=TRUTH.values(),
        measures=_list_measures(judgement),
        methods=_list_methods(judgement),
    )


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
    return show_number(verdict.mean) if share is None else _show_share(share)


def _list_facts(judgement: JudgementRecord, rivals: Sequence[str]) -> list[tuple[str, str]]:
    shown = judgement.methods[:3] if rivals else [judgement.best]
    facts = [(_show_reached(v), f"true return with the rewards of {v.source}") for v in shown]
    for source, words in ((TRUE, "with the true rewards"), (OBSERVED, "with the delayed rewards")):
        verdict = judgement.find(source)
        if verdict is not None and verdict not in shown:
            facts.append((_show_reached(verdict), words))
    if judgement.data_mean is not None:
        facts.append((show_number(judgement.data_mean), "mean return of the data"))
    return facts


def _list_rivals(judgement: JudgementRecord) -> list[str]:
    """List the sources, but for the truth, that the best method is not clearly better than."""
    scores = {v.source: v.scores for v in judgement.ranking if v.source != TRUE}
    return find_rivals(scores, judgement.best.source)


def _list_verdicts(ranking: Sequence[Verdict]) -> tuple[list[str], list[list[str]]]:
    """The table of verdicts, without the columns that no source has a number in."""
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
    titles = ("rewards", "return", "of true", "of true's gain", "correlation with the true rewards")
    shown = [place < 2 or any(row[place] != "-" for row in rows) for place in range(5)]
    return list(compress(titles, shown)), [list(compress(row, shown)) for row in rows]


def _show_share(share: float | None) -> str:
    """Write a share in whole per cent, as the command prints it."""
    return "-" if share is None else f"{100 * share:.0f}\N{NO-BREAK SPACE}%"


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


def _list_measures(judgement: JudgementRecord) -> list[tuple[str, ...]]:
    against = {
        verdict.source: judgement.sources.get(verdict.source, {}).get("against_truth")
        for verdict in judgement.ranking
        if verdict.pearson is not None and verdict.source != TRUE
    }
    return [
        (source, *(_show_measure(measures, name) for name in TRUTH))
        for source, measures in against.items()
        if measures is not None
    ]


def _show_measure(measures: Mapping[str, Any], name: str) -> str:
    value = measures.get(name)
    return "-" if value is None else f"{round(float(value), 3) + 0.0:.3f}"  # no -0.000


def _list_methods(judgement: JudgementRecord) -> list[tuple[str, ...]]:
    return [
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
