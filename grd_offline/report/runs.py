"""The page of one or more runs of `train-online` or `train-offline`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from grd_offline.comparison.compare import Comparison, compare_scores
from grd_offline.comparison.scores import collect_scores
from grd_offline.core.errors import DataError
from grd_offline.core.typing import Array
from grd_offline.core.words import format_seconds
from grd_offline.io.files.plain import folder_errors
from grd_offline.io.files.results import (
    EVALUATIONS_FILE,
    MASKS,
    OFFLINE,
    EpisodeRewards,
    RunRecord,
    list_steps,
    read_episodes,
    read_masks,
)
from grd_offline.report.compared import NAV, describe_comparison, is_worth_comparing
from grd_offline.report.curves import (
    Curve,
    align_rewards,
    describe_lines,
    describe_match,
    find_count,
    find_seconds,
    find_unit,
    make_curves,
    pack_metrics,
    read_seconds,
    show_spread,
)
from grd_offline.report.evidence import find_rivals, say_no_best, warn_of_chance
from grd_offline.report.packing import encode, find_extremes, pack
from grd_offline.report.page import join_names, render_page, show_number

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
        return _make_page(runs)


def _make_page(runs: Sequence[RunRecord]) -> str:
    curves = make_curves(runs, "return")
    if not curves:
        raise DataError("no return in any evaluation", file=runs[0].path / EVALUATIONS_FILE)
    metrics, masks, episodes = pack_metrics(runs, curves), _pack_masks(runs), _pack_episodes(runs)
    payload = {
        "kind": "runs",
        "unit": find_unit(runs),
        "metrics": metrics,
        "masks": masks,
        "episodes": episodes,
        "speed": [_pack_speed(run) for run in runs],
    }
    compared = describe_comparison(_compare(runs))
    place, count = join_names(dict.fromkeys(run.environment for run in runs)), find_count(runs)
    speeds = [_describe_speed(run) for run in runs]
    return render_page(
        "runs.html",
        payload,
        tab=f"{place}: training",
        source=[_describe_source(run) for run in runs],
        nav={
            "learning": "Learning",
            **(NAV if compared["comparison"] else {}),
            "masks": "Masks" if masks else "",
            "rewards": "Rewards" if episodes else "",
            "speed": "Speed",
            "again": "Make it again",
        },
        runs=runs,
        place=place,
        count=count,
        **_describe_scores(runs, curves, count),
        about_lines=describe_lines(curves),
        metrics=metrics,
        groups=_list_groups(runs, curves),
        **compared,
        masks=masks,
        episodes=episodes,
        speeds=speeds,
        rates=[f"{row[0]} makes {row[4]} {count} per second, all members" for row in speeds],
    )


def _compare(runs: Sequence[RunRecord]) -> Comparison | None:
    """Compare if there is more than one method and more than one seed."""
    try:
        comparison = compare_scores(collect_scores(runs))
    except DataError:  # two runs with the same members stand side by side, and are not pooled
        return None
    return comparison if is_worth_comparing(comparison) else None


def _describe_scores(
    runs: Sequence[RunRecord], curves: Sequence[Curve], count: str
) -> dict[str, Any]:
    """Describe what the top of the page says: who is best, if anyone, and what others reach."""
    own = [curve for curve in curves if not curve.is_oracle] or list(curves)
    best = max(own, key=lambda curve: float(curve.means[-1]))
    scores = {curve.label: curve.last_scores for curve in own}
    is_clear = not find_rivals(scores, best.label)
    offline = all(run.about["format"] == OFFLINE for run in runs)
    oracle = next((curve for curve in curves if curve.is_oracle and curve is not best), None)
    most = max(float(curve.steps[-1]) for curve in curves)
    return {
        "kind": "Training from data" if offline else "Training from returns",
        "level": "fine" if is_clear else "careful",
        "verdict": "" if is_clear else warn_of_chance(best.seeds),
        "facts": [
            (f"{sum(len(run.members) for run in runs)}", "members trained"),
            (f"{len(curves)}", "groups of members that differ only in their seed"),
            (f"{most:,.0f}", f"{count} per member"),
            (format_seconds(sum(find_seconds(run) for run in runs)), "of training"),
        ],
        "is_clear": is_clear,
        "no_best": say_no_best(best.seeds),
        "offline": offline,
        "best": best,
        "reached": _show_last(best),
        "oracle": oracle and (oracle.label, _show_last(oracle)),
        "others": [(curve.label, _show_last(curve)) for curve in own if curve is not best][:4],
    }


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
        match = found.get(curve.label)
        near = f"{match.means[-1]:.2f}" if match else "-"
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
    return [(run, member) for run, member in members if list_steps(run, member, kind)]


def _pack_masks(runs: Sequence[RunRecord]) -> list[dict[str, Any]]:
    members = _list_members(runs, "masks")
    packed = []
    for run, member in members:
        last = read_masks(run, member, 1)[0]
        actions, states = last["action_to_state"].shape
        size = (states + actions) * (states + 1)
        moments = max(2, min(MOST_MOMENTS, MASK_BYTES // (size * len(members))))
        packed.append(
            {
                "label": _label(run, member, runs),
                "states": _list_names(run, "observation_names", "s", states),
                "actions": _list_names(run, "action_names", "a", actions),
                "moments": [
                    {
                        "step": at["step"],
                        "compact": at["compact"],
                        "masks": {
                            name: encode((at[name] > 0).astype(np.uint8)) for name, _ in MASKS
                        },
                    }
                    for at in read_masks(run, member, moments)
                ],
            }
        )
    return packed


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
            "moments": [_pack_episode(episode) for episode in read_episodes(run, member, moments)],
        }
        for run, member in members
    ]
    return [member for member in packed if member["moments"]]


def _pack_episode(episode: EpisodeRewards) -> dict[str, Any]:
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
