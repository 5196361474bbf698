"""The tables of docs/results.md, made from the files in benchmarks/results alone.

python benchmarks/results_page.py           # writes the tables into docs/results.md
python benchmarks/results_page.py --check   # says whether they are up to date

A table stands between `<!-- table: NAME -->` and `<!-- end -->`; the text around it is written by
hand. Runs of SAC below benchmarks/results/online with at least 1,000,000 steps fill the main table.
A cell that has only a shorter run, of at least half of that, shows its step. What no file has is
named once, in the list of what is missing. A run needs `settings.json`, and `evaluations.csv` or
`evaluations.csv.gz`.
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from grd_offline.comparison.compare import (
    Score,
    collect_scores,
    compare_scores,
    find_printed,
    find_runs,
    name_group,
    name_task,
    read_printed,
)
from grd_offline.core.statistics import estimate_mean
from grd_offline.io.files.results import RunRecord
from grd_offline.report.training import (
    show_interval,
    show_printed,
    show_share_interval,
    show_spread,
)

ROOT = Path(__file__).parents[1]
RESULTS, PAGE = ROOT / "benchmarks" / "results", ROOT / "docs" / "results.md"
SEEDS, STEPS = 5, 1_000_000
TASKS = tuple(
    f"{name}-v5"
    for name in (
        *("Ant", "HalfCheetah", "Walker2d", "Humanoid"),
        *("Reacher", "Swimmer", "Hopper", "HumanoidStandup"),
    )
)
METHODS = (
    *("grd-closed-form", "grd-quadratic", "grd-joint-net", "grd-paper"),
    *("grd-no-compact-closed-form", "grd-no-compact-paper"),
    *("rrd", "rrd-unbiased", "ircr", "none", "oracle"),
)
PUBLISHED = {
    "Ant-v5": "5,850",
    "HalfCheetah-v5": "12,139",
    "Hopper-v5": "3,542",
    "Walker2d-v5": "5,007",
    "Humanoid-v5": "5,489",
    "HumanoidStandup-v5": "-",
    "Swimmer-v5": "44",
    "Reacher-v5": "-2.6",
}
"""SAC with the true reward after 1,000,000 steps as another project publishes it: the highest mean
return of ten seeds."""
CROSSQ = {
    "Ant-v5": "6,850 ± 334",
    "HalfCheetah-v5": "12,703 ± 1,667",
    "Hopper-v5": "2,436 ± 395",
    "Walker2d-v5": "6,436 ± 551",
}
"""CrossQ with the true reward as its authors publish it: the mean of the evaluations from 900,000
to 1,000,000 steps over ten seeds, with the standard deviation over seeds, on version 4 of the
tasks."""
ANCHORS = {
    "Ant-v5-no-contact-950000": "without contact forces",
    "HalfCheetah-v5-rate-700000": "with a learning rate of .001",
}
"""Runs in benchmarks/results/anchors: what is nearer to the published ones in them."""
WEIGHT = "lambda_state_reward"
"""Lambda 1 of the paper, which its Table 1 varies."""
REWARD_STEPS = (100_000, 200_000, 500_000, STEPS)
MASK_STEPS = (10_000, 100_000, 500_000, STEPS)
MASK_TASKS = ("grd/PaddedAnt-v0", "Ant-v5", "Swimmer-v5")
"""Tasks whose masks the paper shows. Its Ant is the padded one."""
NONE = "-"


def make_tables() -> dict[str, str]:
    """Every table of the page by its name."""
    runs = find_runs(RESULTS / "online")
    plain = [run for run in runs if _is_plain(run) and name_task(run).name in TASKS]
    long = _choose([run for run in plain if find_last(run) >= STEPS])
    short = _choose([run for run in plain if STEPS / 2 <= find_last(run) < STEPS])
    scores, shorter = collect_scores(long, at=STEPS), collect_scores(short)
    return {
        "main": _make_main(scores, shorter),
        "missing": _list_missing([*shorter, *scores]),
        "totals": _make_totals(scores),
        "published": _make_published(long),
        "crossq": _make_crossq(runs, scores),
        "swimmer": _make_swimmer(runs),
        "noise": _make_noise(RESULTS / "noise.csv"),
        "rewards": _make_rewards(long),
        "masks": _make_masks([run for run in runs if _has_backbone(run, "sac")]),
    }


def fill_page(page: str, tables: Mapping[str, str]) -> str:
    """A page with its tables as they are now."""

    def fill(found: re.Match[str]) -> str:
        return f"<!-- table: {found[1]} -->\n\n{tables[found[1]]}\n<!-- end -->"

    return re.sub(r"<!-- table: ([\w-]+) -->\n.*?<!-- end -->", fill, page, flags=re.DOTALL)


def make_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def find_last(run: RunRecord) -> int:
    return max(int(row["step"]) for row in run.rows)


def _is_plain(run: RunRecord) -> bool:
    """Whether a run is of SAC and varies nothing but methods, fits and seeds."""
    return _has_backbone(run, "sac") and not run.about["settings"].get("sets")


def _has_backbone(run: RunRecord, name: str) -> bool:
    return bool(run.about.get("settings", {}).get("backbone") == name)


def _is_early(run: RunRecord) -> bool:
    """Whether version 0.1.0 made the run, or one before it, without the closed form of today."""
    version = run.about["versions"].get("grd-offline", "0.1.0")
    return version == "0.1.0" and "closed-form" not in run.about["settings"]["fits"]


def _choose(runs: Sequence[RunRecord]) -> list[RunRecord]:
    """The same runs, without members that a run of a later version, or with more seeds, has too."""
    order = sorted(runs, key=lambda run: (not _is_early(run), len(run.members)), reverse=True)
    taken: set[tuple[str, str, str]] = set()
    kept = []
    for run in order:
        owners = {(run.environment, row["group"], row["seed"]) for row in run.rows}
        fresh = owners - taken
        rows = [r for r in run.rows if (run.environment, r["group"], r["seed"]) in fresh]
        taken |= owners
        if rows:
            kept.append(replace(run, rows=rows))
    return kept


def _make_main(scores: Sequence[Score], shorter: Sequence[Score]) -> str:
    found = {(score.task.name, score.method): score for score in (*shorter, *scores)}
    methods = [one for one in METHODS if any(method == one for _, method in found)]
    methods += sorted({method for _, method in found} - set(METHODS))
    rows = [[method, *(_show(found.get((task, method))) for task in TASKS)] for method in methods]
    return make_table(["method", *(task.removesuffix("-v5") for task in TASKS)], rows)


def _show(score: Score | None) -> str:
    if score is None:
        return ""
    text = _show_interval(score)
    if len(score.values) < SEEDS:
        text += f", {len(score.values)} seeds"
    return text if score.step >= STEPS else f"{text}, {score.step:,} steps"


def _show_interval(score: Score) -> str:
    return show_interval(estimate_mean([score.values], np.random.default_rng(0)))


def _list_missing(scores: Sequence[Score]) -> str:
    """What experiments/main.toml would fill and no file has, with the other experiments."""
    whole = {
        (score.task.name, score.method)
        for score in scores
        if len(score.values) >= SEEDS and score.step >= STEPS
    }
    lines = []
    for method in METHODS:
        tasks = [task.removesuffix("-v5") for task in TASKS if (task, method) not in whole]
        if tasks:
            where = "all tasks" if len(tasks) == len(TASKS) else ", ".join(tasks)
            lines.append(f"- `experiments/main.toml`, {method}: {where}")
    for name in ("rewards", "masks", "backbones", "metaworld"):
        if not (RESULTS / name).is_dir():
            lines.append(f"- `experiments/{name}.toml`")
    return "\n".join(lines) + "\n"


def _make_totals(scores: Sequence[Score]) -> str:
    known = [method for method in METHODS if method.startswith("grd")]
    chosen = max(known, key=lambda method: sum(score.method == method for score in scores))
    comparison = compare_scores(scores, chosen=chosen)
    rows = [
        [
            total.method,
            f"{len(total.tasks)} of {len(TASKS)}",
            NONE if total.middle is None else show_interval(total.middle),
            _show_same(scores, chosen, total.tasks),
            NONE if total.share is None else show_share_interval(total.share),
            NONE if total.improvement is None else show_share_interval(total.improvement),
        ]
        for total in comparison.totals
    ]
    same, better = f"{chosen} on the same tasks", f"P({chosen} does better)"
    return make_table(
        ["method", "tasks", "interquartile mean", same, "of the oracle", better], rows
    )


def _show_same(scores: Sequence[Score], method: str, tasks: Sequence[str]) -> str:
    """The interquartile mean of a method over some tasks."""
    chosen = [score for score in scores if score.task.name in tasks]
    total = next((one for one in compare_scores(chosen).totals if one.method == method), None)
    return NONE if total is None or total.middle is None else show_interval(total.middle)


def _make_published(runs: Sequence[RunRecord]) -> str:
    """The oracle beside SAC of another project, and grd beside what the paper's text says."""
    numbers = read_printed(ROOT / "experiments" / "main.toml")
    anchors = find_runs(RESULTS / "anchors") if (RESULTS / "anchors").is_dir() else []
    rows = []
    for task in PUBLISHED:
        paper = show_printed(find_printed(numbers, task, "grd-paper", None))
        mine = [run for run in runs if run.environment == task]
        ours = [_show_highest(mine, method) for method in ("oracle", "grd-closed-form")]
        paper = paper if re.search(r"\d", paper) else NONE
        rows.append([task, ours[0], PUBLISHED[task], ours[1], paper])
        for run in anchors:
            if run.environment == task:
                name = f"{task} {ANCHORS[run.path.name]}, {find_last(run):,} steps"
                rows.append([name, _show_highest([run], "oracle"), PUBLISHED[task], NONE, NONE])
    head = ["task", "oracle", "published SAC", "grd-closed-form", "paper's GRD, 3,000,000 steps"]
    return make_table(head, rows)


def _make_crossq(runs: Sequence[RunRecord], others: Sequence[Score]) -> str:
    """Runs of CrossQ beside SAC on the same task, and beside the oracle of CrossQ's authors."""
    sac = {score.task.name: score for score in others if score.method == "grd-closed-form"}
    rows = []
    for run in runs:
        if _has_backbone(run, "crossq"):
            (score,) = collect_scores([run])
            task, width = score.task.name, run.about["settings"]["critic_width"]
            cells = [task, f"{width:,}", f"{score.step:,}", _show_interval(score)]
            lowest = f"{min(score.values):,.0f}"
            rows.append([*cells, lowest, _show(sac.get(task)), CROSSQ[task]])
    head = ["task", "width", "step", "grd-closed-form, CrossQ", "lowest seed", "the same, SAC"]
    return make_table([*head, "published CrossQ, true reward"], rows)


def _show_highest(runs: Sequence[RunRecord], method: str) -> str:
    """The mean and standard deviation over seeds at the step where the mean is highest."""
    seeds: dict[int, list[float]] = {}
    for run in runs:
        for row in run.rows:
            if row["group"] == method and int(row["step"]) <= STEPS:
                seeds.setdefault(int(row["step"]), []).append(float(row["mean_return"]))
    most = max(map(len, seeds.values()), default=0)
    whole = [values for values in seeds.values() if len(values) == most]
    if not whole:
        return NONE
    highest = max(whole, key=lambda values: float(np.mean(values)))
    return show_spread(float(np.mean(highest)), float(np.std(highest)), most)


def _make_swimmer(runs: Sequence[RunRecord]) -> str:
    """Table 1 of the paper: each row of ours is from its longest run."""
    numbers = read_printed(ROOT / "experiments" / "table1.toml")
    steps = sorted({number.step for number in numbers if number.step is not None})
    varied = [run for run in runs if WEIGHT in (run.about.get("settings", {}).get("sets") or {})]
    rows: list[list[str]] = []
    for method in dict.fromkeys(number.method for number in numbers):
        mine = [
            run for run in varied if any(name_group(run, r["group"]) == method for r in run.rows)
        ]
        longest = max(mine, key=find_last)
        ours = []
        for step in steps:
            scores = collect_scores([longest], at=step, last=1)
            ours.append(_show_mean(next((s for s in scores if s.method == method), None)))
        paper = [show_printed(find_printed(numbers, "Swimmer-v5", method, step)) for step in steps]
        rows += [[method.rsplit("=", 1)[1], "ours", *ours], ["", "paper", *paper]]
    return make_table(["lambda 1", "", *(f"{step:,} steps" for step in steps)], rows)


def _is_of(run: RunRecord, row: Mapping[str, str], method: str) -> bool:
    return name_group(run, row["group"]) == method


def _show_mean(score: Score | None) -> str:
    if score is None:
        return NONE
    return show_spread(float(np.mean(score.values)), float(np.std(score.values)), len(score.values))


def _make_noise(path: Path) -> str:
    with path.open() as file:
        rows = list(csv.DictReader(file))
    levels = sorted({float(row["noise"]) for row in rows})
    table = []
    for group in dict.fromkeys(row["group"] for row in rows):
        cells = []
        for level in levels:
            chosen = [r for r in rows if r["group"] == group and float(r["noise"]) == level]
            scores = [float(row["mean_return"]) for row in chosen]
            cells.append(show_interval(estimate_mean([scores], np.random.default_rng(0))))
        table.append([group, *cells])
    return make_table(["method", *(f"{level:g}" for level in levels)], table)


def _make_rewards(runs: Sequence[RunRecord]) -> str:
    columns = [collect_scores(runs, metric="correlation", at=at, last=1) for at in REWARD_STEPS]
    found = {
        (score.task.name, score.method, at): score
        for at, scores in zip(REWARD_STEPS, columns, strict=True)
        for score in scores
    }
    rows = []
    for task in TASKS:
        for method in METHODS:
            cells = [found.get((task, method, at)) for at in REWARD_STEPS]
            if any(cells):
                rows.append([task, method, *(_show_correlation(cell) for cell in cells)])
    return make_table(["task", "method", *(f"{step:,} steps" for step in REWARD_STEPS)], rows)


def _show_correlation(score: Score | None) -> str:
    if score is None:
        return NONE
    middle = estimate_mean([score.values], np.random.default_rng(0)).value
    return f"{middle:.2f} ({min(score.values):.2f})"


def _make_masks(runs: Sequence[RunRecord]) -> str:
    """How many states are in the compact state, for the tasks whose masks the paper shows."""
    rows = []
    for task in MASK_TASKS:
        for run in runs:
            mine = [r for r in run.rows if r["group"] == "grd-closed-form" and r["compact_states"]]
            if run.environment == task and mine and find_last(run) >= STEPS / 2:
                rows.append([task, *(_show_counts(mine, step) for step in MASK_STEPS)])
    return make_table(["task", *(f"{step:,} steps" for step in MASK_STEPS)], rows)


def _show_counts(rows: Sequence[Mapping[str, str]], step: int) -> str:
    counts = [int(row["compact_states"]) for row in rows if int(row["step"]) == step]
    return f"{np.mean(counts):.3g} ({min(counts)} to {max(counts)})" if counts else NONE


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    old = PAGE.read_text()
    page = fill_page(old, make_tables())
    if not parser.parse_args().check:
        PAGE.write_text(page)
        print(f"wrote {PAGE.relative_to(ROOT)}")
    elif old != page:
        sys.exit("docs/results.md is not up to date: run python benchmarks/results_page.py")


if __name__ == "__main__":
    main()
