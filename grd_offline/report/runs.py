"""The page of one or more runs of `train-online` or `train-offline`."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

import grd_offline.report.page as page
from grd_offline.core.errors import DataError
from grd_offline.io.files.plain import folder_errors
from grd_offline.io.files.runs import (
    EVALUATIONS_FILE,
    MASKS,
    OFFLINE,
    EpisodeRewards,
    RunRecord,
    list_steps,
    read_episodes,
    read_masks,
)
from grd_offline.lab.comparison.compare import compare_scores
from grd_offline.lab.comparison.scores import collect_scores
from grd_offline.report.compared import is_worth_comparing, list_sections
from grd_offline.report.curves import (
    Curve,
    align_rewards,
    describe_lines,
    describe_match,
    find_count,
    find_seconds,
    find_unit,
    make_again,
    make_curves,
    make_learning,
    pack_metrics,
    read_seconds,
    show_minutes,
    show_spread,
)
from grd_offline.report.evidence import find_rivals, say_no_best, warn_of_chance
from grd_offline.report.packing import encode, find_extremes, pack

Array = NDArray[np.float64]
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
    sections = [("learning", "Learning", _tell_learning(runs, curves, metrics))]
    sections += _compare(runs)
    if masks:
        sections.append(("masks", "Masks", _tell_masks(masks)))
    if episodes:
        sections.append(("rewards", "Rewards", _tell_rewards(episodes)))
    sections.append(("speed", "Speed", _tell_speed(runs)))
    sections.append(("again", "Make it again", _tell_settings(runs)))
    body = page.make_body(_tell_headline(runs, curves), sections)
    return page.make_page(f"{_list_environments(runs)}: training", body, payload)


def _compare(runs: Sequence[RunRecord]) -> list[tuple[str, str, str]]:
    """Sections with statistics, if there is more than one method and more than one seed."""
    try:
        comparison = compare_scores(collect_scores(runs))
    except DataError:  # two runs with the same members stand side by side, and are not pooled
        return []
    return list_sections(comparison) if is_worth_comparing(comparison) else []


def _list_environments(runs: Sequence[RunRecord]) -> str:
    return page.join_names(list(dict.fromkeys(run.environment for run in runs)))


def _tell_headline(runs: Sequence[RunRecord], curves: Sequence[Curve]) -> str:
    own = [curve for curve in curves if not curve.is_oracle] or list(curves)
    best = max(own, key=lambda curve: float(curve.means[-1]))
    scores = {curve.label: curve.last_scores for curve in own}
    is_clear = not find_rivals(scores, best.label)
    offline = all(run.about["format"] == OFFLINE for run in runs)
    count = find_count(runs)
    name = f"<em>{escape(best.label)}</em>"
    reaches = f"Policies trained on {name} rewards reach" if offline else f"{name} reaches"
    reached = show_spread(best.means[-1], best.spreads[-1], best.seeds)
    place = escape(_list_environments(runs))
    title, verdict = f"{reaches} {escape(reached)} on {place}.", None
    if not is_clear:
        title, verdict = f"{say_no_best(best.seeds)} on {place}.", warn_of_chance(best.seeds)
    said = [
        f"These are true returns at the last evaluation, after {best.steps[-1]:,.0f} {count}"
        + (f": mean and standard deviation over {best.seeds} seeds." if best.seeds > 1 else ".")
    ]
    if not is_clear:
        said.append(f"{best.label} has {reached}.")
    oracle = next((curve for curve in curves if curve.is_oracle and curve is not best), None)
    if oracle is not None:
        who = "policies reach" if offline else f"{oracle.label} reaches"
        told = show_spread(oracle.means[-1], oracle.spreads[-1], oracle.seeds)
        said.append(f"With the true reward, {who} {told}.")
    for curve in [c for c in own if c is not best][:4]:
        told = show_spread(curve.means[-1], curve.spreads[-1], curve.seeds)
        said.append(f"{curve.label} has {told}.")
    facts = [
        (f"{sum(len(run.members) for run in runs)}", "members trained"),
        (f"{len(curves)}", "groups of members that differ only in their seed"),
        (f"{max(float(curve.steps[-1]) for curve in curves):,.0f}", f"{count} per member"),
        (show_minutes(sum(find_seconds(run) for run in runs)), "of training"),
    ]
    kind = "Training from data" if offline else "Training from returns"
    source = page.list_source(*map(_describe_source, runs))
    banner = None if verdict is None else ("careful", verdict)
    return page.make_headline(kind, title, said, facts, source, banner)


def _describe_source(run: RunRecord) -> str:
    """Name the run and, for an offline run, its data."""
    data = run.about.get("data")
    file = data.get("file") if isinstance(data, dict) else None
    return run.name if file is None else f"{run.name}, from {file}"


def _tell_learning(
    runs: Sequence[RunRecord], curves: Sequence[Curve], metrics: Sequence[dict[str, Any]]
) -> str:
    found = {curve.label: curve for curve in make_curves(runs, "correlation")}
    rows = []
    for curve in sorted(curves, key=lambda curve: -float(curve.means[-1])):
        peaks = [float(values.max()) for _, values in curve.lines.values()]
        match = found.get(curve.label)
        rows.append(
            (
                curve.label,
                curve.seeds,
                show_spread(curve.means[-1], curve.spreads[-1], curve.seeds),
                show_spread(float(np.mean(peaks)), float(np.std(peaks)), curve.seeds),
                f"{match.means[-1]:.2f}" if match else "-",
            )
        )
    head = ("group", "seeds", "last evaluation", "best evaluation", "correlation with true reward")
    lead = f"{describe_lines(curves)}Returns are sums of the true rewards, without a discount."
    table = page.make_table(head, rows, "Groups side by side", (1, 2, 3, 4))
    return page.make_section("learning", "Learning curves", lead, make_learning(metrics), table)


def _make_choice(name: str, members: Sequence[dict[str, Any]]) -> str:
    options = page.make_options((index, member["label"]) for index, member in enumerate(members))
    last = max(len(member["moments"]) for member in members) - 1
    return (
        f"<div class='controls'><label>Member <select id='{name}-member'>{options}</select></label>"
        f"<label class='wide'>Evaluation <input type='range' id='{name}-moment' min='0' "
        f"max='{last}' value='{last}'></label></div>"
        f"<output id='{name}-reading' for='{name}-moment'></output>"
    )


def _tell_masks(members: Sequence[dict[str, Any]]) -> str:
    chart = page.make_chart("run-masks", "The four masks of one member at one evaluation")
    box = page.make_scroll(chart, "Heat maps")
    lead = (
        "What drives what, as the model has learned it at each evaluation. Rows are causes, "
        "columns are effects."
    )
    return page.make_section("masks", "Masks over time", lead, _make_choice("mask", members), box)


def _tell_rewards(members: Sequence[dict[str, Any]]) -> str:
    chart = page.make_chart("rewards", "Found and true rewards of one episode")
    lead = "The found and the true rewards of the last training episode before each evaluation."
    parts = (_make_choice("reward", members), chart)
    return page.make_section("rewards", "Found and true rewards", lead, *parts)


def _tell_speed(runs: Sequence[RunRecord]) -> str:
    rows = []
    for run in runs:
        steps, seconds = max(int(row["step"]) for row in run.rows), find_seconds(run)
        rate = steps * len(run.members) / seconds if seconds > 0 else 0.0
        rows.append(
            (
                run.name,
                len(run.members),
                f"{steps:,}",
                show_minutes(seconds),
                page.show_number(rate),
                str(run.about.get("device", "-")),
            )
        )
    count = find_count(runs)
    rate_of = f"{count} per second, all members"
    head = ("run", "members", f"{count} of each", "time", rate_of, "device")
    table = page.make_table(head, rows, "Speed of each run", (1, 2, 3, 4))
    label = f"{count.capitalize()} over minutes of training: " + page.join_names(
        [f"{row[0]} makes {row[4]} {rate_of}" for row in rows]
    )
    return page.make_section("speed", "Speed", "", table, page.make_chart("speed", label))


def _tell_settings(runs: Sequence[RunRecord]) -> str:
    parts = [f"<h3>{escape(run.name)}</h3>{make_again(run.about, run.name)}" for run in runs]
    return page.make_section("again", "Make it again", "", *parts)


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
