"""Pages of training: runs, judgements, comparisons and sweeps, and what they share.

Two methods differ if that is not chance. A permutation test asks how often a split of all scores
into two groups at random gives a difference as large as the one seen. With two seeds of each
method this is never rarer than one time in six, so two seeds cannot name a best method.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from grd_offline.comparison.compare import (
    Comparison,
    Printed,
    collect_scores,
    compare_scores,
    read_number,
)
from grd_offline.core.errors import DataError, printable
from grd_offline.core.statistics import Estimate, pearson
from grd_offline.core.typing import Array
from grd_offline.core.words import format_seconds
from grd_offline.io.files import results
from grd_offline.io.files.plain import folder_errors
from grd_offline.io.files.results import OBSERVED, TRUE, JudgementRecord, RunRecord, SourceScores
from grd_offline.report.page import (
    count_steps,
    encode,
    find_extremes,
    join_names,
    pack,
    render_page,
    show_number,
    show_share,
)

METRICS = {
    "return": ("mean_return", "true return"),
    "success": ("success_rate", "success rate"),
    "correlation": ("correlation", "correlation with the true reward"),
    "edges": ("edges_on", "share of edges on"),
    "compact": ("compact_states", "dimensions of the compact state"),
}
"""For each metric, its column in `evaluations.csv` and the label of its axis."""


@dataclass(frozen=True, eq=False)
class Curve:
    """A metric of a group of members over time: mean and standard deviation over seeds."""

    label: str
    is_oracle: bool
    steps: Array
    means: Array
    spreads: Array
    seeds: int
    lines: Mapping[str, tuple[Array, Array]]
    """The steps and values of each seed."""

    @property
    def last_scores(self) -> list[float]:
        """The last value of each seed."""
        return [float(values[-1]) for _, values in self.lines.values()]


def make_curves(runs: Sequence[RunRecord], metric: str) -> list[Curve]:
    """Make one curve for each group of each run that has values of the metric."""
    curves = [
        _make_curve(run, group, METRICS[metric][0], len(runs) > 1)
        for run in runs
        for group in dict.fromkeys(row["group"] for row in run.rows)
    ]
    return [curve for curve in curves if len(curve.steps)]


def _make_curve(run: RunRecord, group: str, column: str, is_one_of_several: bool) -> Curve:
    values: dict[int, list[float]] = {}
    lines: dict[str, dict[int, float]] = {}
    rows = [row for row in run.rows if row["group"] == group]
    for row in rows:
        if row.get(column, "") != "":
            step, value = int(row["step"]), read_number(run, row[column], column)
            values.setdefault(step, []).append(value)
            lines.setdefault(row["seed"], {})[step] = value
    steps = sorted(values)
    return Curve(
        printable(f"{run.name}: {group}" if is_one_of_several else group),
        group.split("-")[0] in ("oracle", "true"),
        np.array(steps, np.float64),
        np.array([np.mean(values[step]) for step in steps]),
        np.array([np.std(values[step]) for step in steps]),
        len({row["seed"] for row in rows}),
        {n: (np.array(list(x), np.float64), np.array(list(x.values()))) for n, x in lines.items()},
    )


def find_unit(runs: Sequence[RunRecord]) -> str:
    """Name the unit of the steps of the runs."""
    return " or ".join(dict.fromkeys(run.unit for run in runs))


def find_seconds(run: RunRecord) -> float:
    """Find the seconds of training."""
    return max((read_seconds(row) for row in run.rows), default=0.0)


def read_seconds(row: Mapping[str, str]) -> float:
    """Read the seconds of training up to an evaluation; 0 if they are missing."""
    try:
        return float(row.get("seconds", ""))
    except ValueError:
        return 0.0


def pack_metrics(
    runs: Sequence[RunRecord], returns: Sequence[Curve], looks: Mapping[str, int] | None = None
) -> list[dict[str, Any]]:
    """Pack the curves of every metric; `looks` numbers the colours of the groups."""
    if looks is None:
        own = [curve for curve in returns if not curve.is_oracle]
        looks = {curve.label: place for place, curve in enumerate(own)}
    metrics = []
    offline = all(run.about["format"] == results.OFFLINE for run in runs)
    for key, (_, label) in METRICS.items():
        if offline and key == "correlation":  # their rewards do not change
            continue
        curves = list(returns) if key == "return" else make_curves(runs, key)
        if curves:
            entries = [_pack_curve(curve, looks.get(curve.label, 0)) for curve in curves]
            metrics.append({"key": key, "label": label, "curves": entries})
    return metrics


def _pack_curve(curve: Curve, look: int) -> dict[str, Any]:
    return {
        "label": curve.label,
        "oracle": curve.is_oracle,
        "look": look,
        "seeds": curve.seeds,
        "few": curve.seeds < FEW_SEEDS,
        "steps": curve.steps.tolist(),
        "means": shorten(curve.means),
        "spreads": shorten(curve.spreads),
        "lines": [
            {"seed": seed, "steps": steps.tolist(), "values": shorten(values)}
            for seed, (steps, values) in curve.lines.items()
        ],
    }


def shorten(values: Array) -> list[float | None]:
    """Round to six digits; numbers that are not finite become None."""
    return [float(f"{value:.6g}") if np.isfinite(value) else None for value in values]


def describe_lines(curves: Sequence[Curve]) -> str:
    """Explain the lines of the drawing; with one seed there is nothing to explain."""
    seeds = {curve.seeds for curve in curves}
    if seeds == {1}:
        return ""
    said = "A thick line is the mean over seeds. "
    if any(1 < count < FEW_SEEDS for count in seeds):
        said += "Each thin line is one seed. "
    if any(count >= FEW_SEEDS for count in seeds):
        said += "The band is one standard deviation to either side. "
    return said


def show_spread(mean: float, spread: float, seeds: int) -> str:
    """Write a mean and, with several seeds, its standard deviation.

    Both to the same place: three digits of the larger.
    """
    largest = max(abs(mean), spread)
    if seeds < 2 or largest == 0:
        return show_number(mean)
    decimals = max(0, 2 - math.floor(math.log10(largest)))
    texts = [f"{value:,.{decimals}f}" for value in (mean, spread)]
    if decimals:
        texts = [text.rstrip("0").rstrip(".") for text in texts]
    if texts[1] == "0":
        texts[1] = show_number(spread)
    return "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}".join(texts)


def scales_differ(first: Array, second: Array) -> bool:
    """Return whether one curve would look flat or far away beside the other."""
    narrow, wide = sorted((float(first.std()), float(second.std())))
    return wide > 2 * narrow or abs(float(first.mean() - second.mean())) > 2 * wide


def align_rewards(episode: results.EpisodeRewards) -> tuple[Array, Array, bool]:
    """Return the found and the true rewards, standardised if their scales differ."""
    found, true = episode.found, episode.true
    is_scaled = scales_differ(found, true) and min(np.ptp(found), np.ptp(true)) > 0
    if is_scaled:
        found, true = ((values - values.mean()) / values.std() for values in (found, true))
    return found, true, bool(is_scaled)


def describe_match(episode: results.EpisodeRewards) -> str:
    """Say how well the found rewards follow the true ones."""
    for name, values in (("reward found", episode.found), ("true reward", episode.true)):
        if np.ptp(values) == 0:
            return f"the {name} is constant"
    return f"correlation {pearson(episode.found, episode.true):.2f}"


FEW_SEEDS = 5
"""Fewer seeds than this are drawn one by one, without a band."""
LEVEL = 0.05
"""A difference is clear if chance gives one as large in at most this share of all splits."""
SPLITS = 10_000
"""If there are more splits than this, this many are drawn at random."""


def is_clearly_better(first: Sequence[float], second: Sequence[float]) -> bool:
    """Return whether the first scores are higher than the second ones, and not by chance."""
    scores = np.asarray([*first, *second], np.float64)
    count = len(first)
    if math.comb(len(scores), count) <= SPLITS:
        chosen = np.array(list(combinations(range(len(scores)), count)))
    else:
        rng = np.random.default_rng(0)
        chosen = np.array([rng.permutation(len(scores))[:count] for _ in range(SPLITS)])
    sums = scores[chosen].sum(1)
    own = scores[:count].sum()
    is_as_large = sums >= own - 1e-9 * np.abs(scores).sum()
    return bool(is_as_large.mean() <= LEVEL)


def find_rivals(scores: Mapping[str, Sequence[float]], best: str) -> list[str]:
    """List the methods that the best one is not clearly better than."""
    return [
        name
        for name, others in scores.items()
        if name != best and not is_clearly_better(scores[best], others)
    ]


def say_no_best(seeds: int) -> str:
    """Write a headline for methods of which none is clearly the best."""
    if seeds < 3:
        return f"{('One seed is', 'Two seeds are')[seeds - 1]} too few to name a best method"
    return "No method is clearly the best"


def warn_of_chance(seeds: int) -> str:
    """Say why there is no best method."""
    few = f"Each method has only {seeds} {'seed' if seeds == 1 else 'seeds'}. "
    return (few if seeds < FEW_SEEDS else "") + "Differences between the means may be chance."


MASK_BYTES = 1_200_000
REWARD_BYTES = 1_200_000
"""Bytes for masks and for rewards in the page; with more members, fewer moments are shown."""
MOST_MOMENTS = 40
MISFIT = "settings, evaluations and members do not fit together"
MOST_STEPS = 1000
"""Longer episodes are drawn with fewer points."""


def make_run_page(runs: Sequence[RunRecord]) -> str:
    """Make the page of one run, or of several side by side."""
    with folder_errors(runs[0].path, MISFIT):
        return _make_run_page(runs)


def _make_run_page(runs: Sequence[RunRecord]) -> str:
    curves = make_curves(runs, "return")
    if not curves:
        raise DataError("no return in any evaluation", file=runs[0].path / results.EVALUATIONS_FILE)
    payload = {
        "unit": find_unit(runs),
        "metrics": pack_metrics(runs, curves),
        "masks": _pack_masks(runs),
        "episodes": _pack_episodes(runs),
        "speed": [_pack_speed(run) for run in runs],
    }
    try:
        comparison = compare_scores(collect_scores(runs))
        has_spread = any(len(row.scores) > 1 for row in comparison.rows)
        compared = describe_comparison(
            comparison if len(comparison.methods) > 1 and has_spread else None
        )
    except DataError:  # two runs with the same members stand side by side, and are not pooled
        compared = describe_comparison(None)
    # What the top of the page says: who is best, if anyone, and what others reach.
    own = [curve for curve in curves if not curve.is_oracle] or curves
    best = max(own, key=lambda curve: float(curve.means[-1]))
    is_clear = not find_rivals({curve.label: curve.last_scores for curve in own}, best.label)
    offline = all(run.about["format"] == results.OFFLINE for run in runs)
    oracle = next((curve for curve in curves if curve.is_oracle and curve is not best), None)
    place = join_names(dict.fromkeys(run.environment for run in runs))
    count = find_unit(runs).replace("environment ", "")
    speeds = [_describe_speed(run) for run in runs]
    return render_page(
        "runs.html",
        payload,
        tab=f"{place}: training",
        source=[_describe_source(run) for run in runs],
        nav={
            "learning": "Learning",
            **(NAV if compared["comparison"] else {}),
            "masks": "Masks" if payload["masks"] else "",
            "rewards": "Rewards" if payload["episodes"] else "",
            "speed": "Speed",
            "again": "Make it again",
        },
        runs=runs,
        place=place,
        count=count,
        kind="Training from data" if offline else "Training from returns",
        level="fine" if is_clear else "careful",
        verdict="" if is_clear else warn_of_chance(best.seeds),
        facts=[
            (f"{sum(len(run.members) for run in runs)}", "members trained"),
            (f"{len(curves)}", "groups of members that differ only in their seed"),
            (f"{max(float(curve.steps[-1]) for curve in curves):,.0f}", f"{count} per member"),
            (format_seconds(sum(find_seconds(run) for run in runs)), "of training"),
        ],
        is_clear=is_clear,
        no_best=say_no_best(best.seeds),
        offline=offline,
        best=best,
        reached=_show_last(best),
        oracle=oracle and (oracle.label, _show_last(oracle)),
        others=[(curve.label, _show_last(curve)) for curve in own if curve is not best][:4],
        about_lines=describe_lines(curves),
        groups=_list_groups(runs, curves),
        **compared,
        speeds=speeds,
        rates=[f"{row[0]} makes {row[4]} {count} per second, all members" for row in speeds],
    )


def _show_last(curve: Curve) -> str:
    return show_spread(curve.means[-1], curve.spreads[-1], curve.seeds)


def _describe_source(run: RunRecord) -> str:
    """Name the run and, for an offline run, its data."""
    data = run.about.get("data")
    file = data.get("file") if isinstance(data, dict) else None
    return run.name if file is None else f"{run.name}, from {file}"


def _list_groups(runs: Sequence[RunRecord], curves: Sequence[Curve]) -> list[tuple[object, ...]]:
    found = {curve.label: curve for curve in make_curves(runs, "correlation")}
    rows: list[tuple[object, ...]] = []
    for curve in sorted(curves, key=lambda curve: -float(curve.means[-1])):
        peaks = [float(values.max()) for _, values in curve.lines.values()]
        best = show_spread(float(np.mean(peaks)), float(np.std(peaks)), curve.seeds)
        near = f"{found[curve.label].means[-1]:.2f}" if curve.label in found else "-"
        rows.append((curve.label, curve.seeds, _show_last(curve), best, near))
    return rows


def _describe_speed(run: RunRecord) -> tuple[object, ...]:
    steps, seconds = max(int(row["step"]) for row in run.rows), find_seconds(run)
    rate = show_number(steps * len(run.members) / seconds if seconds > 0 else 0.0)
    device = str(run.about.get("device", "-"))
    return run.name, len(run.members), f"{steps:,}", format_seconds(seconds), rate, device


def _label(run: RunRecord, member: str, runs: Sequence[RunRecord]) -> str:
    return member if len(runs) == 1 else f"{run.name}: {member}"


def _list_members(runs: Sequence[RunRecord], kind: str) -> list[tuple[RunRecord, str]]:
    members = [(run, member) for run in runs for member in run.members]
    return [(run, member) for run, member in members if results.list_steps(run, member, kind)]


def _pack_masks(runs: Sequence[RunRecord]) -> list[dict[str, Any]]:
    members = _list_members(runs, "masks")
    packed = []
    for run, member in members:
        last = results.read_masks(run, member, 1)[0]
        actions, states = last["action_to_state"].shape
        size = (states + actions) * (states + 1)
        moments = max(2, min(MOST_MOMENTS, MASK_BYTES // (size * len(members))))
        packed.append(
            {
                "label": _label(run, member, runs),
                "states": _list_names(run, "observation_names", "s", states),
                "actions": _list_names(run, "action_names", "a", actions),
                "moments": [_pack_moment(at) for at in results.read_masks(run, member, moments)],
            }
        )
    return packed


def _pack_moment(at: Mapping[str, Any]) -> dict[str, Any]:
    masks = {name: encode((at[name] > 0).astype(np.uint8)) for name, _ in results.MASKS}
    return {"step": at["step"], "compact": at["compact"], "masks": masks}


def _list_names(run: RunRecord, field: str, letter: str, count: int) -> list[str]:
    names = run.about.get(field)
    if isinstance(names, list) and len(names) == count:
        return [str(name) for name in names]
    return [f"{letter}{i}" for i in range(count)]


def _pack_episodes(runs: Sequence[RunRecord]) -> list[dict[str, Any]]:
    members = _list_members(runs, "episodes")
    if not members:
        return []
    moments = max(2, min(MOST_MOMENTS, REWARD_BYTES // (8 * MOST_STEPS * len(members))))
    packed = [
        {
            "label": _label(run, member, runs),
            "moments": [_pack_episode(at) for at in results.read_episodes(run, member, moments)],
        }
        for run, member in members
    ]
    return [member for member in packed if member["moments"]]


def _pack_episode(episode: results.EpisodeRewards) -> dict[str, Any]:
    found, true, is_scaled = align_rewards(episode)
    return {
        "step": episode.step,
        "match": describe_match(episode),
        "scaled": is_scaled,
        "found": _pack_line(found),
        "true": _pack_line(true),
    }


def _pack_line(values: Array) -> dict[str, Any]:
    steps = np.arange(len(values), dtype=np.float64)
    if len(values) > MOST_STEPS:
        places, extremes = find_extremes(values, -(-2 * len(values) // MOST_STEPS))
        steps, values = places.ravel().astype(np.float64), extremes.ravel()
    return {"x": pack(steps), "y": pack(values)}


def _pack_speed(run: RunRecord) -> dict[str, Any]:
    reached: dict[int, float] = {}
    for row in run.rows:
        step = int(row["step"])
        reached[step] = max(reached.get(step, 0.0), read_seconds(row))
    return {"name": run.name, "steps": list(reached), "seconds": list(reached.values())}


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
    with folder_errors(judgement.path / results.JUDGE_FILE, results.JUDGE_MISFIT):
        return _make_judgement_page(judgement)


def _make_judgement_page(judgement: JudgementRecord) -> str:
    # The best method has the first colour, on every drawing.
    own = [*judgement.methods, *(v for v in judgement.ranking if v.source == OBSERVED)]
    looks = {verdict.source: place for place, verdict in enumerate(own)}
    order = [verdict.source for verdict in judgement.ranking]
    curves = [curve for curve in make_curves([judgement.run], "return") if curve.label in order]
    curves.sort(key=lambda curve: order.index(curve.label))
    near = _pack_nearness(judgement, looks)
    true, observed = judgement.find(TRUE), judgement.find(OBSERVED)
    about, best, ranking = judgement.about, judgement.best, judgement.ranking
    first, seeds = int(about["settings"]["seed"]), len(best.scores)
    payload = {
        "unit": judgement.run.unit,
        "metrics": pack_metrics([judgement.run], curves, looks),
        "data": judgement.data_mean,
        "true": None if true is None else true.mean,
        "seeds": [first + place for place in range(seeds)],
        "verdicts": [_pack_verdict(verdict, looks) for verdict in ranking],
        "nearness": near,
    }
    scores = {verdict.source: verdict.scores for verdict in ranking if verdict.source != TRUE}
    rivals, measure = find_rivals(scores, best.source), _choose_measure(judgement)
    columns, rows = _list_verdicts(ranking)
    # Sources that led to the same policies.
    same = ([v.source for v in ranking if _agree(v.scores, one.scores)] for one in ranking)
    return render_page(
        "judgement.html",
        payload,
        tab=f"{about['data']['file']}: rewards judged",
        kind="Rewards, judged by policies that were trained on them",
        level="careful" if rivals or seeds < 3 else "fine",
        verdict=warn_of_chance(seeds) if rivals or seeds < 3 else "",
        facts=_list_facts(judgement, rivals),
        source=[about["data"]["file"], judgement.run.environment, *count_steps(about["data"])],
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
        twins=next((sources for sources in same if len(sources) > 1), []),
        near=[
            f"{verdict.source} {show_number(verdict.mean)} at {verdict.pearson:.2f}"
            for verdict in ranking
            if verdict.pearson is not None
        ],
        truth=TRUTH.values(),
        measures=_list_measures(judgement),
        methods=_list_methods(judgement),
    )


def _show_reached(verdict: SourceScores) -> str:
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
    if (judgement.best.share_of_true or 0) > 0:
        return "share_of_true"
    is_gain = (judgement.best.share_of_gain or 0) > 0 and _is_gain_clear(judgement)
    return "share_of_gain" if is_gain else "return"


def _tell(verdict: SourceScores, measure: str) -> str:
    """Write a verdict in one measure."""
    share = getattr(verdict, measure) if measure != "return" else None
    return show_number(verdict.mean) if share is None else _show_share(share)


def _list_facts(judgement: JudgementRecord, rivals: Sequence[str]) -> list[tuple[str, str]]:
    shown = judgement.methods[:3] if rivals else [judgement.best]
    facts = [(_show_reached(v), f"true return with the rewards of {v.source}") for v in shown]
    for source, words in ((TRUE, "with the true rewards"), (OBSERVED, "with the delayed rewards")):
        if (verdict := judgement.find(source)) and verdict not in shown:
            facts.append((_show_reached(verdict), words))
    if judgement.data_mean is not None:
        facts.append((show_number(judgement.data_mean), "mean return of the data"))
    return facts


def _list_verdicts(ranking: Sequence[SourceScores]) -> tuple[list[str], list[tuple[str, ...]]]:
    """The table of verdicts, without the columns that no source has a number in."""
    columns = {
        "rewards": [verdict.source for verdict in ranking],
        "return": [_show_reached(verdict) for verdict in ranking],
        "of true": [_show_share(verdict.share_of_true) for verdict in ranking],
        "of true's gain": [_show_share(verdict.share_of_gain) for verdict in ranking],
        "correlation with the true rewards": [
            _show_measure(verdict.pearson) for verdict in ranking
        ],
    }
    shown = {title: cells for title, cells in columns.items() if {*cells} != {"-"}}
    return list(shown), list(zip(*shown.values(), strict=True))


def _show_share(share: float | None) -> str:
    """Write a share in whole per cent, as the command prints it."""
    return "-" if share is None else f"{100 * share:.0f}\N{NO-BREAK SPACE}%"


def _agree(first: Sequence[float], second: Sequence[float]) -> bool:
    is_close = partial(math.isclose, rel_tol=1e-6)
    return len(first) == len(second) and all(map(is_close, first, second))


def _list_measures(judgement: JudgementRecord) -> list[tuple[str, ...]]:
    return [
        (verdict.source, *(_show_measure(measures.get(name)) for name in TRUTH))
        for verdict in judgement.ranking
        if verdict.pearson is not None and verdict.source != TRUE
        for measures in [judgement.sources.get(verdict.source, {}).get("against_truth")]
        if measures is not None
    ]


def _show_measure(value: Any) -> str:
    return "-" if value is None else f"{round(float(value), 3) + 0.0:.3f}"  # no -0.000


def _list_methods(judgement: JudgementRecord) -> list[tuple[str, ...]]:
    return [
        (
            verdict.source,
            about.get("fit", "-"),
            _show_measure(about.get("held_out_return_r2")),
            f"{float(about.get('seconds', 0)):.1f}",
            about.get("reason", "-"),
        )
        for verdict in judgement.methods
        for about in [judgement.sources.get(verdict.source, {})]
    ]


def _pack_verdict(verdict: SourceScores, looks: Mapping[str, int]) -> dict[str, Any]:
    return {
        "source": verdict.source,
        "oracle": verdict.source == TRUE,
        "look": looks.get(verdict.source, 0),
        "scores": list(verdict.scores),
        "mean": verdict.mean,
        "spread": verdict.spread,
        "few": len(verdict.scores) < FEW_SEEDS,
        "reached": _show_reached(verdict),
    }


def _pack_nearness(judgement: JudgementRecord, looks: Mapping[str, int]) -> list[dict[str, Any]]:
    """Make a point for each source whose correlation with the true rewards is known.

    Sources that agree in all are one point.
    """
    points: list[dict[str, Any]] = []
    for verdict in judgement.ranking:
        if verdict.pearson is None:
            continue
        at = verdict.pearson, verdict.mean
        for twin in (p for p in points if _agree((p["pearson"], p["mean"]), at)):
            twin["source"] += f", {verdict.source}"
            break
        else:
            points.append({**_pack_verdict(verdict, looks), "pearson": verdict.pearson})
    return points if len(points) > 1 else []


CAPTIONS = {
    "means": "Interquartile means over seeds and tasks with 95 % intervals",
    "profiles": "Performance profiles: the share of runs above each score",
    "improvement": "Probability of improvement",
    "tasks": "Interquartile means over seeds on each task with 95 % intervals",
}
NAV = {"statistics": "Statistics", "tasks": "Tasks"}
COLUMNS = (
    *("task", "method", "seeds", "step", "mean", "interquartile mean", "of the reference"),
    "paper",
)


def make_comparison_page(comparison: Comparison, title: str, about: str = "") -> str:
    """Make the page of a comparison; `about` says in a few words what it is of."""
    total = next(t for t in comparison.totals if t.method == comparison.chosen)
    runs = sum(len(row.scores) for row in comparison.rows)
    if total.share is not None and comparison.reference is not None:
        reached = show_share_interval(total.share)
        about = f"{about} {total.method} reaches {reached} of {comparison.reference}."
    return render_page(
        "comparison.html",
        {},
        tab=f"{title}: comparison",
        kind="Comparison",
        title=title,
        about=about,
        facts=[*_count_tasks(comparison), (str(runs), "runs of a seed")],
        nav=NAV,
        **describe_comparison(comparison),
    )


def _count_tasks(comparison: Comparison) -> list[tuple[str, str]]:
    return [(str(len(comparison.tasks)), "tasks"), (str(len(comparison.methods)), "methods")]


def make_sweep_page(
    title: str, about: str, jobs: Sequence[Sequence[str]], comparison: Comparison | None
) -> str:
    """Make the page of a sweep: its jobs, and the comparison of its methods.

    A job has a name, a state, a number of tries, a time, a result and a command.
    """
    finished = sum(job[1] == "finished" for job in jobs)
    facts = [(str(len(jobs)), "jobs"), (str(finished), "finished")]
    if comparison is not None:
        facts += _count_tasks(comparison)
    return render_page(
        "comparison.html",
        {},
        tab=f"{title}: sweep",
        kind="Sweep",
        title=title,
        about=about,
        facts=facts,
        nav={**(NAV if comparison else {}), "jobs": "Jobs"},
        jobs=jobs,
        **describe_comparison(comparison),
    )


def describe_comparison(comparison: Comparison | None) -> dict[str, Any]:
    """Collect what the sections of a comparison show; without one there are no sections."""
    if comparison is None:
        return {"comparison": None}
    from grd_offline.report.figures import draw_comparison_figures, write_figure

    rows = list_rows(comparison)
    width = len(COLUMNS) if any(row[-1] != "-" for row in rows) else len(COLUMNS) - 1
    pictures = {
        name: encode(write_figure(figure, "svg", CAPTIONS[name], fonttype="path"))
        for name, figure in draw_comparison_figures(comparison).items()
    }
    return {
        "comparison": comparison,
        "explanation": explain(comparison),
        "totals": list_totals(comparison),
        "columns": COLUMNS[:width],
        "rows": [row[:width] for row in rows],
        "captions": CAPTIONS,
        "pictures": pictures,
    }


def explain(comparison: Comparison) -> str:
    """Say what the numbers over tasks mean."""
    parts = []
    is_scaled = any(total.scaled for total in comparison.totals)
    if comparison.metric == "return" and comparison.reference is not None and is_scaled:
        parts.append(
            "Scores are normalised on each task: 0 is the return of random actions, and 1 is the "
            f"mean return of {comparison.reference}."
        )
    elif comparison.metric == "return" and comparison.reference is None:
        parts.append("There is no oracle, so scores of different tasks have no common scale.")
    parts.append(
        "The 95 % intervals come from a bootstrap, which draws seeds with replacement within each "
        "task."
    )
    if len(comparison.totals) > 1:
        parts.append(
            f"Improvement is the probability that {comparison.chosen} does better than the method "
            "of the row."
        )
    return " ".join(parts)


def list_totals(comparison: Comparison) -> list[tuple[str, ...]]:
    """The table over tasks as text."""
    return [
        (
            total.method,
            f"{len(total.scaled)} of {len(total.tasks)}"
            if total.middle is not None and total.scaled != total.tasks
            else str(len(total.tasks)),
            show_interval(total.middle),
            show_share_interval(total.share),
            show_share_interval(total.improvement),
        )
        for total in comparison.totals
    ]


def list_rows(comparison: Comparison) -> list[tuple[str, ...]]:
    """The table of tasks as text."""
    return [
        (
            row.task,
            row.method,
            str(len(row.scores)),
            f"{row.step:,}",
            show_spread(row.mean, row.spread, len(row.scores)),
            show_interval(row.middle),
            "-" if row.share is None else show_share(row.share),
            show_printed(row.printed),
        )
        for task in comparison.tasks
        for method in comparison.methods
        if (row := comparison.find(task, method)) is not None
    ]


def show_printed(number: Printed | None) -> str:
    """The paper's number, with its standard deviation where the paper has one."""
    if number is None:
        return "-"
    text = show_spread(number.mean, number.std or 0.0, 1 if number.std is None else 2)
    return f"{text} {number.note}".strip()


def show_interval(
    estimate: Estimate | None, show: Callable[[float], str] = show_number, unit: str = ""
) -> str:
    """A number and its interval; the number alone where all draws are the same, as of one seed."""
    if estimate is None:
        return "-"
    low, middle, high = map(show, (estimate.low, estimate.value, estimate.high))
    ends = "" if estimate.low == estimate.high else f" ({low} to {high})"
    return f"{middle}{unit}{ends}"


def show_share_interval(estimate: Estimate | None) -> str:
    """A share and its interval; see `show_interval`."""
    return show_interval(estimate, lambda share: f"{100 * share:.0f}", "\N{NO-BREAK SPACE}%")
