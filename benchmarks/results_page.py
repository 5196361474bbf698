"""The page of results, made from the files in benchmarks/results alone.

python benchmarks/results_page.py           # writes docs/results.md
python benchmarks/results_page.py --check   # says whether it is up to date

Runs of SAC below benchmarks/results/online with at least 1,000,000 steps fill the main table. A
cell that has only a shorter run, of at least half of that, shows its step. Each row of Table 1 is
from the longest run there with its lambda 1. Other experiments are in folders of their own. What no
file has is named as missing. A run needs `settings.json`, and `evaluations.csv` or
`evaluations.csv.gz`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np
from results_experiments import (
    METHODS,
    MISSING,
    OTHERS,
    STEPS,
    TASKS,
    find_last,
    make_table,
    tell_masks,
    tell_noise,
    tell_other,
    tell_rewards,
    tell_table,
    wrap,
)

from grd_offline.core.statistics import estimate_mean
from grd_offline.io.files.runs import RunRecord
from grd_offline.lab.comparison.compare import Comparison, compare_scores
from grd_offline.lab.comparison.paper import find_printed, read_printed
from grd_offline.lab.comparison.scores import Score, collect_scores, find_runs, name_task
from grd_offline.report.compared import show_interval, show_printed, show_share_interval
from grd_offline.report.curves import show_spread

ROOT = Path(__file__).parents[1]
RESULTS, PAGE = ROOT / "benchmarks" / "results", ROOT / "docs" / "results.md"
SEEDS = 5
T = TypeVar("T", str, int)
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
ANCHORS = {
    "Ant-v5-no-contact-950000": "without contact forces",
    "HalfCheetah-v5-rate-700000": "with a learning rate of .001",
}
"""Runs in benchmarks/results/anchors: what is nearer to the published ones in them."""
HEAD = """# Results

`python benchmarks/results_page.py` makes this page from the files in
[benchmarks/results](../benchmarks/results), which hold the evaluations, settings and commands. Do
not edit it by hand. A cell says "missing" if no file has a result for it. [sweeps.md](sweeps.md)
explains the statistics, and [experiments](../experiments/README.md) has the commands.
"""


def make_page() -> str:
    """The whole page."""
    runs = find_runs(RESULTS / "online")
    plain = [run for run in runs if _is_plain(run) and name_task(run).name in TASKS]
    long = _choose([run for run in plain if find_last(run) >= STEPS])
    scores = collect_scores(long, at=STEPS)
    short = _choose([run for run in plain if STEPS / 2 <= find_last(run) < STEPS])
    parts = [HEAD, _tell_main(scores, collect_scores(short)), _tell_origins([*long, *short])]
    parts += [_tell_totals(scores), _tell_published(long)]
    parts += [tell_table(runs), tell_noise(RESULTS), tell_rewards(long), tell_masks(runs)]
    parts += [tell_other(RESULTS, name, *about) for name, about in OTHERS.items()]
    return "\n".join(part for part in parts if part)


def _choose(runs: Sequence[RunRecord]) -> list[RunRecord]:
    """The same runs, without members that a run of a later version, or with more seeds, has too."""
    order = sorted(runs, key=lambda run: (run.about["version"], len(run.members)), reverse=True)
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


def _is_plain(run: RunRecord) -> bool:
    """Whether a run is of SAC and varies nothing but methods, fits and seeds."""
    settings = run.about.get("settings", {})
    return settings.get("backbone") == "sac" and not settings.get("sets")


def _tell_main(scores: Sequence[Score], shorter: Sequence[Score]) -> str:
    found = {(score.task.name, score.method): score for score in (*shorter, *scores)}
    others = sorted({score.method for score in scores} - set(METHODS))
    rows, done, wanted = [], 0, 0
    for method in (*METHODS, *others):
        cells = []
        for task in TASKS:
            score = found.get((task, method))
            wanted, done = wanted + 1, done + (score is not None and _is_whole(score))
            cells.append(MISSING if score is None else _show(score))
        rows.append([method, *cells])
    return (
        "## Eight tasks after 1,000,000 steps\n\n"
        + wrap(
            "The cells show the true return: the interquartile mean over seeds with its 95 % "
            "interval. The score of a seed is the mean of its last three evaluations of ten "
            "episodes. If there are fewer than five seeds or fewer steps, the cell says how many. "
            f"{done} of {wanted} cells have five seeds and all steps. "
            "[measured.md](measured.md) shows another statistic, the mean and standard deviation "
            "of the last evaluation alone, so its figures differ."
        )
        + make_table(["method", *(task.removesuffix("-v5") for task in TASKS)], rows)
    )


def _tell_origins(runs: Sequence[RunRecord]) -> str:
    """The versions of this package that made the runs, and how far apart their evaluations are."""
    told = []
    versions = _list_cells(runs, lambda run: run.about.get("versions", {}).get("grd-offline", "?"))
    newest = max(versions, default=None)
    told += [f"Version {one} made {versions[one]}." for one in sorted(versions) if one != newest]
    told += [f"Version {newest} made the other cells."] if len(versions) > 1 else []
    apart = _list_cells(runs, lambda run: run.about.get("settings", {}).get("eval_every", 0))
    least = min(apart, default=0)
    told += [
        f"Evaluations of {apart[one]} are {one:,} steps apart, and not {least:,}, so that their "
        "scores are means over more of the training."
        for one in sorted(apart)
        if one != least
    ]
    return wrap(" ".join(told)).rstrip("\n") + "\n" if told else ""


def _list_cells(runs: Sequence[RunRecord], read: Callable[[RunRecord], T]) -> dict[T, str]:
    """The cells of the main table in words, by what is read from their runs."""
    found: dict[T, dict[str, list[str]]] = {}
    for run in runs:
        for group in dict.fromkeys(row["group"] for row in run.rows):
            tasks = found.setdefault(read(run), {}).setdefault(group, [])
            tasks.append(run.environment.removesuffix("-v5"))
    return {
        value: ", ".join(
            f"{group} ({', '.join(sorted(groups[group]))})" for group in sorted(groups)
        )
        for value, groups in found.items()
    }


def _is_whole(score: Score) -> bool:
    return len(score.values) >= SEEDS and score.step >= STEPS


def _show(score: Score) -> str:
    text = show_interval(estimate_mean([score.values], np.random.default_rng(0)))
    if len(score.values) < SEEDS:
        text += f", {len(score.values)} seeds"
    return text if score.step >= STEPS else f"{text}, {score.step:,} steps"


def _tell_totals(scores: Sequence[Score]) -> str:
    if not scores:
        return ""
    known = [method for method in METHODS if method.startswith("grd")]
    tasks = {method: sum(score.method == method for score in scores) for method in known}
    chosen = max(known, key=lambda method: tasks[method])
    comparison: Comparison = compare_scores(scores, chosen=chosen if tasks[chosen] else None)
    rows = []
    for total in comparison.totals:
        rows.append(
            [
                total.method,
                f"{len(total.tasks)} of {len(TASKS)}",
                "-" if total.middle is None else show_interval(total.middle),
                _show_same(scores, chosen, total.tasks),
                "-" if total.share is None else show_share_interval(total.share),
                "-" if total.improvement is None else show_share_interval(total.improvement),
            ]
        )
    better = f"P({comparison.chosen} does better)"
    same = f"{comparison.chosen} on the same tasks"
    head = ["method", "tasks", "interquartile mean", same, "of the oracle", better]
    return (
        "## Over tasks\n\n"
        + wrap(
            "Only results after 1,000,000 steps count here. Scores are normalised on each task: 0 "
            "is the return of random actions, and 1 is the mean of the oracle. Intervals are from "
            "a bootstrap that draws seeds again within each task, also those of the oracle. "
            "Methods have different tasks so far, so compare a method with the column beside it, "
            "and not with other rows."
        )
        + make_table(head, rows)
    )


def _show_same(scores: Sequence[Score], method: str, tasks: Sequence[str]) -> str:
    """The interquartile mean of a method over some tasks."""
    chosen = [score for score in scores if score.task.name in tasks]
    total = next((one for one in compare_scores(chosen).totals if one.method == method), None)
    return "-" if total is None or total.middle is None else show_interval(total.middle)


def _tell_published(runs: Sequence[RunRecord]) -> str:
    """The oracle beside SAC of another project, and grd beside what the paper's text says."""
    numbers = read_printed(ROOT / "experiments" / "main.toml")
    anchors = RESULTS / "anchors"
    rows = []
    for task in PUBLISHED:
        paper = show_printed(find_printed(numbers, task, "grd-paper", None))
        mine = [run for run in runs if run.environment == task]
        ours = [_show_highest(mine, method) for method in ("oracle", "grd-closed-form")]
        rows.append([task, ours[0], PUBLISHED[task], ours[1], paper])
        for run in find_runs(anchors) if anchors.is_dir() else ():
            if run.environment == task:
                name = f"{task} {ANCHORS[run.path.name]}, {find_last(run):,} steps"
                rows.append([name, _show_highest([run], "oracle"), PUBLISHED[task], "-", "-"])
    about = wrap(
        "Here the numbers are the highest of the curve: the mean over seeds at the step where it "
        "is highest, with the standard deviation over seeds at that step. That is more than a fair "
        "score. The other project publishes the same of SAC with the true reward after 1,000,000 "
        "steps, over ten seeds. The text of the paper has three numbers of GRD, from 3,000,000 "
        "steps. In older versions of Ant contact forces are always 0, so Ant was also trained "
        "without them, in its states and as a cost, with an evaluation every 50,000 steps. The "
        "learning rate of all other runs is .0003, as in the paper."
    )
    head = ["task", "oracle", "published SAC", "grd-closed-form", "paper's GRD, 3,000,000 steps"]
    return f"## Beside published numbers\n\n{about}" + make_table(head, rows)


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
        return MISSING
    highest = max(whole, key=lambda values: float(np.mean(values)))
    return show_spread(float(np.mean(highest)), float(np.std(highest)), most)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    page = make_page()
    if not parser.parse_args().check:
        PAGE.write_text(page)
        print(f"wrote {PAGE.relative_to(ROOT)}")
    elif PAGE.read_text() != page:
        sys.exit("docs/results.md is not up to date: run python benchmarks/results_page.py")


if __name__ == "__main__":
    main()
