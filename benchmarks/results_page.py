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
import csv
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import fill

import numpy as np

from grd_offline.comparison.compare import Comparison, compare_scores
from grd_offline.comparison.paper import find_printed, read_printed
from grd_offline.comparison.scores import Score, collect_scores, find_runs, name_group, name_task
from grd_offline.files.runs import RunRecord
from grd_offline.report.compared import show_interval, show_printed, show_share_interval
from grd_offline.report.curves import show_spread
from grd_offline.report.page import show_number
from grd_offline.statistics import estimate_mean

ROOT = Path(__file__).parents[1]
RESULTS, PAGE = ROOT / "benchmarks" / "results", ROOT / "docs" / "results.md"
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
STEPS, SEEDS = 1_000_000, 5
PUBLISHED = {
    "Ant-v5": 5850,
    "HalfCheetah-v5": 12139,
    "Hopper-v5": 3542,
    "Walker2d-v5": 5007,
    "Humanoid-v5": 5489,
    "Swimmer-v5": 44,
    "Reacher-v5": -2.6,
}
"""Dense-reward SAC after 1,000,000 steps as another project publishes it: the maximum over
training, ten seeds."""
MISSING = "missing"
WEIGHT = "lambda_state_reward"
"""Lambda 1 of the paper, which its Table 1 varies."""
HEAD = """# Results

`python benchmarks/results_page.py` makes this page from the files in
[benchmarks/results](../benchmarks/results), which hold the evaluations, settings and commands. Do
not edit it by hand. A cell says "missing" if no file has a result for it. [sweeps.md](sweeps.md)
explains the statistics, and [experiments](../experiments/README.md) has the commands.
"""
OTHERS = {
    "backbones": ("Other backbones on HalfCheetah", "return"),
    "metaworld": ("Success rates on MetaWorld", "success"),
}
"""Folders of further experiments: their titles, and what is compared."""
REWARD_STEPS = (100_000, 200_000, 500_000, STEPS)
MASK_STEPS = (10_000, 100_000, 500_000, STEPS)
MASK_TASKS = ("grd/PaddedAnt-v0", "Ant-v5", "Swimmer-v5")
"""Tasks whose masks the paper shows. Its Ant is the padded one."""


def make_page() -> str:
    """The whole page."""
    runs = find_runs(RESULTS / "online")
    plain = [run for run in runs if _is_plain(run) and name_task(run).name in TASKS]
    long = _choose([run for run in plain if _find_last(run) >= STEPS])
    scores = collect_scores(long, at=STEPS)
    short = _choose([run for run in plain if STEPS / 2 <= _find_last(run) < STEPS])
    parts = [HEAD, _tell_main(scores, collect_scores(short)), _tell_versions([*long, *short])]
    parts += [_tell_totals(scores), _tell_published(long)]
    parts += [_tell_table(runs), _tell_noise(), _tell_rewards(long), _tell_masks(runs)]
    parts += [_tell_other(name, *about) for name, about in OTHERS.items()]
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


def _find_last(run: RunRecord) -> int:
    return max(int(row["step"]) for row in run.rows)


def _is_plain(run: RunRecord) -> bool:
    """Whether a run is of SAC and varies nothing but methods, fits and seeds."""
    settings = run.about.get("settings", {})
    return settings.get("backbone") == "sac" and not settings.get("sets")


def wrap(text: str) -> str:
    """A paragraph in lines that are not too long."""
    return fill(text, 100, break_on_hyphens=False) + "\n\n"


def make_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


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
            f"{done} of {wanted} cells have five seeds and all steps. The README shows another "
            "statistic, the mean and standard deviation of the last evaluation alone, so its "
            "figures differ."
        )
        + make_table(["method", *(task.removesuffix("-v5") for task in TASKS)], rows)
    )


def _tell_versions(runs: Sequence[RunRecord]) -> str:
    """The versions of this package that the runs were made with."""
    found: dict[str, dict[str, list[str]]] = {}
    for run in runs:
        version = run.about.get("versions", {}).get("grd-offline", "unknown")
        task = run.environment.removesuffix("-v5")
        for group in dict.fromkeys(row["group"] for row in run.rows):
            found.setdefault(version, {}).setdefault(group, []).append(task)
    if len(found) < 2:
        return ""
    newest = max(found)
    told = [
        f"Version {version} made {group} on {', '.join(sorted(tasks))}."
        for version, groups in sorted(found.items())
        for group, tasks in sorted(groups.items())
        if version != newest
    ]
    return wrap(f"{' '.join(told)} Version {newest} made the other cells.").rstrip("\n") + "\n"


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
    """The oracle beside SAC with the true reward of another project."""
    rows = []
    best, anchors = _find_best(runs), RESULTS / "anchors"
    for task, published in PUBLISHED.items():
        rows.append([task, _show_best(best.get(task, {})), show_number(published)])
        # Tasks that are nearer to those of the published numbers.
        for run in find_runs(anchors) if anchors.is_dir() else ():
            if run.environment == task:
                name = f"{task} without contact forces, {_find_last(run):,} steps"
                rows.append([name, _show_best(_find_best([run])[task]), show_number(published)])
    return (
        "## The oracle beside published numbers\n\n"
        + wrap(
            "This table shows SAC with the true reward after 1,000,000 steps. Both columns have "
            "the best evaluation of the whole training, which is higher than a fair score. Our "
            "column is the mean and standard deviation over seeds. The column of the other "
            "project is its mean over ten seeds. In older versions of Ant contact forces are "
            "always 0, so Ant was also trained without them, in its states and as a cost, with an "
            "evaluation every 50,000 steps."
        )
        + make_table(["task", "oracle, best evaluation", "published, best evaluation"], rows)
    )


def _find_best(runs: Sequence[RunRecord]) -> dict[str, dict[str, float]]:
    """The best evaluation of each seed of the oracle, by task."""
    best: dict[str, dict[str, float]] = {}
    for run in runs:
        for row in run.rows:
            if row["group"] == "oracle" and int(row["step"]) <= STEPS:
                seeds = best.setdefault(run.environment, {})
                value = float(row["mean_return"])
                seeds[row["seed"]] = max(value, seeds.get(row["seed"], -np.inf))
    return best


def _show_best(seeds: Mapping[str, float]) -> str:
    values = list(seeds.values())
    if not values:
        return MISSING
    return show_spread(float(np.mean(values)), float(np.std(values)), len(values))


def _tell_table(runs: Sequence[RunRecord]) -> str:
    numbers = read_printed(ROOT / "experiments" / "table1.toml")
    steps = sorted({number.step for number in numbers if number.step is not None})
    varied = [run for run in runs if _varies_weights(run)]
    rows: list[list[str]] = []
    others: list[str] = []
    for method in dict.fromkeys(number.method for number in numbers):
        ours, papers = [], []
        having = [
            run for run in varied if any(name_group(run, r["group"]) == method for r in run.rows)
        ]
        longest = max(having, key=_find_last, default=None)
        for step in steps:
            scores = [] if longest is None else collect_scores([longest], at=step, last=1)
            score = next((s for s in scores if s.method == method), None)
            ours.append(MISSING if score is None else _show_mean(score))
            papers.append(show_printed(find_printed(numbers, "Swimmer-v5", method, step)))
        weight = method.rsplit("=", 1)[1]
        for run in having:
            scores = [] if run is longest else collect_scores([run], last=1)
            others += [
                f" A shorter run with {weight} had {_show_mean(score)} after {score.step:,} steps."
                for score in scores
                if score.method == method
            ]
        rows += [[weight, "ours", *ours], ["", "paper", *papers]]
    return (
        "## Table 1: Swimmer by weight of the sparsity penalty\n\n"
        + wrap(
            "The cells show the true return of `--fit paper` at one evaluation, as the mean and "
            "standard deviation over five seeds. Each row is from its longest run."
            + "".join(others)
        )
        + make_table(["lambda 1", "", *(f"{step:,} steps" for step in steps)], rows)
    )


def _show_mean(score: Score) -> str:
    spread = float(np.std(score.values))
    return show_spread(float(np.mean(score.values)), spread, len(score.values))


def _varies_weights(run: RunRecord) -> bool:
    return WEIGHT in (run.about.get("settings", {}).get("sets") or {})


def _tell_noise() -> str:
    head = "## Noise on the unused dimensions of Ant\n\n"
    path = RESULTS / "noise.csv"
    if not path.is_file():
        return (
            f"{head}There is no result yet. `experiments/noise.toml` and "
            "`benchmarks/noise_test.py` make it.\n"
        )
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
    steps = max(int(row["step"]) for row in rows)
    about = wrap(
        f"Policies after {steps:,} steps, trained without noise on the 111 dimensions. The "
        "columns are standard deviations of the noise on the 84 dimensions that are always 0 in "
        "training. The cells are true returns without noise of the actions: the interquartile "
        "mean over seeds of the mean of ten episodes, with its 95 % interval."
    )
    return f"{head}{about}" + make_table(["method", *(f"{level:g}" for level in levels)], table)


def _tell_rewards(runs: Sequence[RunRecord]) -> str:
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
    about = wrap(
        "Figures 7 and 10 of the paper draw learned beside true rewards, without a number. These "
        "are the runs of the main table. The cells show the correlation over the steps of the last "
        "episode of training: the interquartile mean over seeds, and in brackets the lowest seed. "
        "The other methods learn no reward, or are not in the table. `experiments/rewards.toml` "
        "makes other fits on Ant. [measured.md](measured.md) tells why it falls on Humanoid, while "
        "returns keep up."
    )
    head = ["task", "method", *(f"{step:,} steps" for step in REWARD_STEPS)]
    return "## Correlation of learned with true rewards\n\n" + (
        about + make_table(head, rows) if rows else "There is no result yet.\n"
    )


def _show_correlation(score: Score | None) -> str:
    if score is None:
        return MISSING
    middle = estimate_mean([score.values], np.random.default_rng(0)).value
    return f"{middle:.2f} ({min(score.values):.2f})"


def _tell_masks(runs: Sequence[RunRecord]) -> str:
    """How many states are in the compact state, for the tasks whose masks the paper shows."""
    rows = []
    for task in MASK_TASKS:
        for run in runs:
            group = "grd-closed-form"
            mine = [row for row in run.rows if row["group"] == group and row["compact_states"]]
            if run.environment != task or not mine or _find_last(run) < STEPS / 2:
                continue
            rows.append([task, *(_show_counts(mine, step) for step in MASK_STEPS)])
    about = wrap(
        "These are the states that the policy of grd-closed-form sees: the mean over seeds, and in "
        "brackets the fewest and the most. The padded Ant has 111 states, 84 of them always 0. "
        "Ant-v5 has 105, of which 78 are forces that it pays for, and Swimmer-v5 has 8. The paper "
        "has drawings, and shares of links by their kind after 10,000 steps of Ant. Those are "
        "missing here: `experiments/masks.toml` makes them."
    )
    head = ["task", *(f"{step:,} steps" for step in MASK_STEPS)]
    return "## Masks of Ant and Swimmer\n\n" + (
        about + make_table(head, rows) if rows else "There is no result yet.\n"
    )


def _show_counts(rows: Sequence[Mapping[str, str]], step: int) -> str:
    counts = [int(row["compact_states"]) for row in rows if int(row["step"]) == step]
    if not counts:
        return MISSING
    return f"{np.mean(counts):.3g} ({min(counts)} to {max(counts)})"


def _tell_other(name: str, title: str, metric: str) -> str:
    """An experiment in a folder of its own, as it is at the end of its runs."""
    if not (RESULTS / name).is_dir():
        return f"## {title}\n\nThere is no result yet. `experiments/{name}.toml` makes it.\n"
    comparison = compare_scores(collect_scores(find_runs(RESULTS / name), metric=metric))
    rows = [
        [row.task, row.method, str(len(row.scores)), f"{row.step:,}", show_interval(row.middle)]
        for row in comparison.rows
    ]
    head = ["task", "method", "seeds", "step", "interquartile mean"]
    return f"## {title}\n\n{make_table(head, rows)}"


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
