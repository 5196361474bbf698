"""The page of `grd-offline judge`: what each source of rewards was worth, made from its folder."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from grd_offline.errors import DataError, printable
from grd_offline.files.plain import folder_errors, read_json
from grd_offline.files.runs import Curve, RunRecord, make_curves, read_run
from grd_offline.names import rename_result
from grd_offline.report.curves import (
    describe_lines,
    find_seconds,
    make_again,
    make_learning,
    make_select,
    pack_metrics,
    show_minutes,
    show_spread,
)
from grd_offline.report.page import (
    join_names,
    make_chart,
    make_facts,
    make_navigation,
    make_page,
    make_section,
    make_table,
    show_number,
)

JUDGE_FILE, RUN_FOLDER = "judge.json", "run"
FORMAT, VERSION = "grd-offline judge", 1
"""In `judge.json`."""
MISFIT = "cannot be read as verdicts"
TRUE, OBSERVED = "true", "observed"
ALGORITHMS = {"iql": "IQL", "td3bc": "TD3+BC"}
TRUTH = {
    "pearson": "Pearson",
    "pearson_within_episodes": "Pearson within episodes",
    "spearman": "Spearman",
    "r2": "R²",
    "error_after_affine_fit": "error after affine fit",
}
"""How rewards compare with the true ones: in `judge.json`, and in words."""


def is_judgement(folder: Path) -> bool:
    """Whether a folder is what `grd-offline judge` wrote."""
    return (folder / JUDGE_FILE).is_file()


@dataclass(frozen=True)
class Verdict:
    """On one source of rewards."""

    source: str
    scores: tuple[float, ...]
    """Of each seed."""
    mean: float
    spread: float
    of_true: float | None
    of_gain: float | None
    pearson: float | None
    about: Mapping[str, Any]
    """How the rewards were found."""

    @property
    def reached(self) -> str:
        """Mean and standard deviation of the return, as text."""
        return show_spread(self.mean, self.spread, len(self.scores))

    def overlaps(self, other: Verdict) -> bool:
        """Whether chance may be all that is between them."""
        return abs(self.mean - other.mean) <= self.spread + other.spread


@dataclass(frozen=True)
class Judged:
    """A folder of `grd-offline judge`, read."""

    about: Mapping[str, Any]
    """`judge.json`."""
    run: RunRecord
    ranking: tuple[Verdict, ...]
    """Best mean return first."""

    @property
    def methods(self) -> list[Verdict]:
        """Those that found rewards; never none."""
        return [v for v in self.ranking if v.source not in (TRUE, OBSERVED)]

    @property
    def best(self) -> Verdict:
        """The best of the methods."""
        return self.methods[0]

    @property
    def is_gain_clear(self) -> bool:
        """Whether the true rewards gain more over the data than their seeds spread."""
        true, data = self.find(TRUE), self.data_mean
        return true is not None and data is not None and true.mean - data > true.spread

    @property
    def measure(self) -> str:
        """What the headline has: of_true, of_gain or return.

        A share that is not above 0, or of what may be chance, says less than the return.
        """
        best = self.best
        if best.of_true is not None and best.of_true > 0:
            return "of_true"
        if best.of_gain is not None and best.of_gain > 0 and self.is_gain_clear:
            return "of_gain"
        return "return"

    def tell(self, verdict: Verdict) -> str:
        """A verdict in that measure."""
        share = {"of_true": verdict.of_true, "of_gain": verdict.of_gain}.get(self.measure)
        return show_number(verdict.mean) if share is None else _show_share(share)

    def find(self, source: str) -> Verdict | None:
        """The verdict on a source, if there is one."""
        return next((v for v in self.ranking if v.source == source), None)

    @property
    def data_mean(self) -> float | None:
        """Mean return of the episodes that all was learned from."""
        mean = self.about["data_mean_return"]
        return None if mean is None else float(mean)


def make_judge_page(folder: Path) -> str:
    """The page as text."""
    judged = read_judged(folder)
    with folder_errors(folder / JUDGE_FILE, MISFIT):
        return _make_page(judged, folder)


def read_judged(folder: Path) -> Judged:
    """What `grd-offline judge` wrote, of the version that this package writes."""
    path = folder / JUDGE_FILE
    try:
        about = rename_result(read_json(path))
    except FileNotFoundError:
        raise DataError(f"not a folder of judge: no {JUDGE_FILE}", file=folder) from None
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise DataError("not a verdict of grd-offline judge", file=path)
    if about.get("version") != VERSION:
        raise DataError(f"expected version {VERSION}, got {about.get('version')!r:.40}", file=path)
    run = read_run(folder / RUN_FOLDER)
    with folder_errors(path, MISFIT):
        verdicts = [_read_verdict(one, about["sources"]) for one in about["verdicts"]]
    if not any(verdict.source not in (TRUE, OBSERVED) for verdict in verdicts):
        raise DataError("expected a verdict on at least one method", file=path)
    return Judged(about, run, tuple(sorted(verdicts, key=lambda verdict: -verdict.mean)))


def _read_verdict(one: Mapping[str, Any], sources: Mapping[str, Any]) -> Verdict:
    shares = [one[name] for name in ("share_of_true", "share_of_gain", "pearson")]
    of_true, of_gain, pearson = (None if value is None else float(value) for value in shares)
    scores = tuple(float(score) for score in one["scores"])
    mean, spread = float(one["mean_return"]), float(one["std_return"])
    if not scores or not all(map(math.isfinite, (*scores, mean, spread))):
        raise ValueError(f"{one['source']}: expected finite scores")
    about = sources.get(one["source"]) or {}
    name = printable(str(one["source"]))
    return Verdict(name, scores, mean, spread, of_true, of_gain, pearson, about)


def _make_page(judged: Judged, folder: Path) -> str:
    # The best method has the first colour, on every drawing.
    own = [*judged.methods, *(v for v in judged.ranking if v.source == OBSERVED)]
    looks = {verdict.source: place for place, verdict in enumerate(own)}
    order = [verdict.source for verdict in judged.ranking]
    curves = [curve for curve in make_curves([judged.run], "return") if curve.label in order]
    curves.sort(key=lambda curve: order.index(curve.label))
    metrics = pack_metrics([judged.run], curves, looks)
    near = _pack_nearness(judged, looks)
    true = judged.find(TRUE)
    payload = {
        "kind": "judge",
        "unit": judged.run.unit,
        "metrics": metrics,
        "data": judged.data_mean,
        "true": None if true is None else true.mean,
        "seeds": _list_seeds(judged),
        "verdicts": [_pack_verdict(verdict, looks) for verdict in judged.ranking],
        "nearness": near,
    }
    sections = [
        ("verdict", "Verdict", _tell_verdicts(judged)),
        ("learning", "Learning", _tell_learning(judged, curves, metrics)),
    ]
    if near:
        sections.append(("truth", "Against the truth", _tell_truth(judged)))
    sections.append(("methods", "Methods", _tell_methods(judged)))
    again = make_section("again", "Make it again", "", make_again(judged.about, folder.name))
    sections.append(("again", "Make it again", again))
    body = (
        _tell_headline(judged)
        + make_navigation((name, title) for name, title, _ in sections)
        + f"<main>{''.join(html for _, _, html in sections)}</main>"
    )
    return make_page(f"{judged.about['data']['file']}: rewards judged", body, payload)


def _list_seeds(judged: Judged) -> list[int]:
    """In the order of the scores."""
    first = int(judged.about["settings"]["seed"])
    return list(range(first, first + len(judged.best.scores)))


def _tell_headline(judged: Judged) -> str:
    data, best = judged.about["data"], judged.best
    about = [
        str(data["file"]),
        judged.run.environment,
        f"{data['episodes']:,} episodes",
        f"{data['steps']:,} steps",
    ]
    facts = [(best.reached, f"true return with the rewards of {best.source}")]
    for source, words in ((TRUE, "with the true rewards"), (OBSERVED, "with the delayed rewards")):
        verdict = judged.find(source)
        if verdict is not None and verdict is not best:
            facts.append((verdict.reached, words))
    if judged.data_mean is not None:
        facts.append((show_number(judged.data_mean), "mean return of the data"))
    marked = " · ".join(escape(part) for part in about if part)
    return (
        "<header class='hero'><p class='eyebrow'>Rewards judged by the policies they teach</p>"
        f"<h1>{_say_best(judged)}</h1><p class='lead'>{escape(' '.join(_say_how(judged)))}</p>"
        f"{make_facts(facts)}<p class='source'>{marked}</p></header>"
    )


def _say_best(judged: Judged) -> str:
    """The headline: HTML, with the name marked."""
    best, told = judged.best, judged.tell(judged.best)
    reached = {
        "of_true": f"reach {told} of what the true rewards reach",
        "of_gain": f"gain {told} of what the true rewards gain over the data",
        "return": f"reach {escape(best.reached)} on {escape(judged.run.environment)}",
    }
    name = f"<em>{escape(best.source)}</em>"
    return f"Policies trained on rewards found by {name} {reached[judged.measure]}."


def _say_how(judged: Judged) -> list[str]:
    """What was done, who stands beside the best, and what calls for care."""
    settings, data, best = judged.about["settings"], judged.about["data"], judged.best
    algorithm = ALGORITHMS.get(settings["algorithm"], settings["algorithm"])
    seeds = len(best.scores)
    said = [
        f"{seeds} {'policy' if seeds == 1 else 'policies'} per source of rewards, trained by "
        f"{algorithm} with {settings['updates']:,} updates on nothing but {data['episodes']:,} "
        f"episodes, and judged by the true return in {judged.run.environment}."
    ]
    others = [v for v in judged.ranking if v is not best and v.source != TRUE]
    if others:
        named = [f"{verdict.source} {judged.tell(verdict)}" for verdict in others]
        said.append(f"Beside it: {join_names(named)}.")
    above = judged.find(OBSERVED)
    if above is not None and above.mean > best.mean:
        said.append("The delayed rewards as they are do better than any that were found.")
    close = [v.source for v in judged.ranking if v is not best and v.overlaps(best)]
    if seeds == 1:
        said.append("With one seed, merit and chance cannot be told apart.")
    elif close:
        named = ["the true rewards" if name == TRUE else name for name in close]
        said.append(f"Spreads overlap: {best.source} is not told apart from {join_names(named)}.")
    if best.of_gain is not None and not judged.is_gain_clear:
        said.append(
            "The true rewards themselves gain no more over the data than chance may: shares of "
            "that gain say little."
        )
    if judged.about.get("stopped"):
        said.append("Training was stopped before its end.")
    return said


def _tell_verdicts(judged: Judged) -> str:
    ranking, data = judged.ranking, judged.data_mean
    seeds = len(judged.best.scores)
    lead = f"The true return, {judged.about['score']}."
    if seeds > 1:
        lead += " Large dot: mean over seeds. Bar: one standard deviation. Small dots: each seed."
    scales = [("return", "true return")]
    if any(verdict.of_true is not None for verdict in ranking):
        scales.append(("share", "share of what the true rewards reach"))
    if any(verdict.of_gain is not None for verdict in ranking):
        scales.append(("gain", "share of their gain over the data"))
    choice = make_select("scale", "Scale", scales)
    label = "Return reached with each source of rewards: " + join_names(
        [f"{verdict.source} {verdict.reached}" for verdict in ranking]
    )
    if data is not None:
        label += f"; the data have {show_number(data)}"
    rows = [
        (
            verdict.source,
            verdict.reached,
            _show_share(verdict.of_true),
            _show_share(verdict.of_gain),
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
    table = make_table(
        [titles[place] for place in columns],
        [[row[place] for place in columns] for row in rows],
        "Verdicts",
        range(1, len(columns)),
    )
    parts = [f"<div class='controls'>{choice}</div>" if choice else ""]
    parts += [make_chart("verdicts", label), table, _explain_columns(judged)]
    return make_section("verdict", "What each source of rewards is worth", escape(lead), *parts)


def _show_share(share: float | None) -> str:
    """Whole per cent, as the command prints it: seeds do not tell more."""
    return "-" if share is None else f"{100 * share:.0f}\N{NO-BREAK SPACE}%"


def _explain_columns(judged: Judged) -> str:
    if judged.find(TRUE) is None:
        words = (
            "The data hold no true rewards, so there is no share of what these would reach; "
            "grd-offline collect --keep-true-rewards stores them."
        )
    else:
        words = "of true: the mean as a share of that with the true rewards"
        if judged.best.of_true is None:
            words = "Shares of what the true rewards reach are left out, as that is not above 0"
        if judged.best.of_gain is not None:
            words += (
                "; of true's gain: the same of what is above the mean return of the data, so that "
                "0\N{NO-BREAK SPACE}% is no better than the data"
            )
        words += "."
    return f"<p class='note'>{escape(words)}</p>"


def _tell_learning(
    judged: Judged, curves: Sequence[Curve], metrics: Sequence[Mapping[str, Any]]
) -> str:
    lead = (
        f"{describe_lines(curves)}Returns are true and undiscounted. "
        f"All policies were trained side by side, in {show_minutes(find_seconds(judged.run))}."
    )
    twins = _find_twins(judged.ranking)
    if twins:
        lead += f" {join_names(twins)} reach the same with every seed: their lines coincide."
    return make_section("learning", "Learning curves", escape(lead), make_learning(metrics))


def _find_twins(ranking: Sequence[Verdict]) -> list[str]:
    """The first sources that taught the same policies."""
    for verdict in ranking:
        same = [v.source for v in ranking if _agree(v.scores, verdict.scores)]
        if len(same) > 1:
            return same
    return []


def _agree(first: Sequence[float], second: Sequence[float]) -> bool:
    return len(first) == len(second) and all(
        math.isclose(a, b, rel_tol=1e-6) for a, b in zip(first, second, strict=True)
    )


def _tell_truth(judged: Judged) -> str:
    known = [v for v in judged.ranking if v.pearson is not None]
    label = "Return reached against Pearson's correlation of the rewards with the true ones: "
    label += join_names([f"{v.source} {show_number(v.mean)} at {v.pearson:.2f}" for v in known])
    chart = make_chart("nearness", label)
    rows = [
        (v.source, *(_show_measure(v.about["against_truth"], name) for name in TRUTH))
        for v in known
        if v.source != TRUE and "against_truth" in v.about
    ]
    table = make_table(
        ("rewards", *TRUTH.values()), rows, "Rewards against the true ones", range(1, 6)
    )
    lead = (
        "Do rewards that are nearer to the true ones, step by step, teach better policies? "
        "All measures are over all steps of the data."
    )
    return make_section("truth", "Against the true rewards", lead, chart, table)


def _show_measure(measures: Mapping[str, Any], name: str) -> str:
    value = measures.get(name)
    return "-" if value is None else f"{round(float(value), 3) + 0.0:.3f}"  # no -0.000


def _tell_methods(judged: Judged) -> str:
    rows = [
        (
            v.source,
            v.about.get("fit", "-"),
            _show_measure(v.about, "held_out_return_r2"),
            f"{float(v.about.get('seconds', 0)):.1f}",
            v.about.get("reason", "-"),
        )
        for v in judged.methods
    ]
    head = ("method", "fit", "R² of returns held out", "seconds", "why this fit")
    lead = (
        "Each method saw the returns of the same episodes, and named a reward for every step. "
        "The true and the delayed rewards are there to compare with."
    )
    table = make_table(head, rows, "What each method chose", (2, 3))
    return make_section("methods", "What each method chose", lead, table)


def _pack_verdict(verdict: Verdict, looks: Mapping[str, int]) -> dict[str, Any]:
    return {
        "source": verdict.source,
        "oracle": verdict.source == TRUE,
        "look": looks.get(verdict.source, 0),
        "scores": list(verdict.scores),
        "mean": verdict.mean,
        "spread": verdict.spread,
        "reached": verdict.reached,
        "share": verdict.of_true,
        "gain": verdict.of_gain,
    }


def _pack_nearness(judged: Judged, looks: Mapping[str, int]) -> list[dict[str, Any]]:
    """A point for each source whose nearness to the truth is known; none where only the truth is.

    Sources that agree in all are one point.
    """
    points: list[dict[str, Any]] = []
    for verdict in judged.ranking:
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
