"""Sections of the results page: Table 1 of the paper and its smaller experiments.

`results_page.py` puts them below the main table. What no file has is named as missing.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill

import numpy as np

from grd_offline.core.statistics import estimate_mean
from grd_offline.io.files.runs import RunRecord
from grd_offline.lab.comparison.compare import compare_scores
from grd_offline.lab.comparison.paper import find_printed, read_printed
from grd_offline.lab.comparison.scores import Score, collect_scores, find_runs, name_group
from grd_offline.report.compared import show_interval, show_printed
from grd_offline.report.curves import show_spread

ROOT = Path(__file__).parents[1]
STEPS = 1_000_000
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
MISSING = "missing"
WEIGHT = "lambda_state_reward"
"""Lambda 1 of the paper, which its Table 1 varies."""
OTHERS = {
    "backbones": ("Other backbones on HalfCheetah", "return"),
    "metaworld": ("Success rates on MetaWorld", "success"),
}
"""Folders of further experiments: their titles, and what is compared."""
REWARD_STEPS = (100_000, 200_000, 500_000, STEPS)
MASK_STEPS = (10_000, 100_000, 500_000, STEPS)
MASK_TASKS = ("grd/PaddedAnt-v0", "Ant-v5", "Swimmer-v5")
"""Tasks whose masks the paper shows. Its Ant is the padded one."""


def wrap(text: str) -> str:
    """A paragraph in lines that are not too long."""
    return fill(text, 100, break_on_hyphens=False) + "\n\n"


def make_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def find_last(run: RunRecord) -> int:
    return max(int(row["step"]) for row in run.rows)


def tell_table(runs: Sequence[RunRecord]) -> str:
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
        longest = max(having, key=find_last, default=None)
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


def tell_noise(results: Path) -> str:
    head = "## Noise on the unused dimensions of Ant\n\n"
    path = results / "noise.csv"
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
        "mean over seeds of the mean of ten episodes, with its 95 % interval." + _tell_same(rows)
    )
    return f"{head}{about}" + make_table(["method", *(f"{level:g}" for level in levels)], table)


def _tell_same(rows: Sequence[Mapping[str, str]]) -> str:
    """Which seeds of two methods are one policy: without noise they have the same returns."""
    owners: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if float(row["noise"]) == 0:
            owners.setdefault((row["seed"], row["mean_return"]), []).append(row["group"])
    told: dict[tuple[str, ...], list[str]] = {}
    for (seed, _), groups in sorted(owners.items()):
        if len(groups) > 1:
            told.setdefault(tuple(groups), []).append(seed)
    return "".join(
        f" Without noise, the policies of {' and '.join(groups)} with seed {' and '.join(seeds)} "
        "are the same: in the column of 0 only the other seeds differ."
        for groups, seeds in told.items()
    )


def tell_rewards(runs: Sequence[RunRecord]) -> str:
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
        "makes other fits on Ant. On Humanoid the correlation falls while returns keep up, for a "
        "[probable cause](../benchmarks/research/online.md#humanoid-over-1000000-steps) that is "
        "not tested."
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


def tell_masks(runs: Sequence[RunRecord]) -> str:
    """How many states are in the compact state, for the tasks whose masks the paper shows."""
    rows = []
    for task in MASK_TASKS:
        for run in runs:
            group = "grd-closed-form"
            mine = [row for row in run.rows if row["group"] == group and row["compact_states"]]
            if run.environment != task or not mine or find_last(run) < STEPS / 2:
                continue
            rows.append([task, *(_show_counts(mine, step) for step in MASK_STEPS)])
    about = wrap(
        "These are the states in the compact state of grd-closed-form: the mean over seeds, and in "
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


def tell_other(results: Path, name: str, title: str, metric: str) -> str:
    """An experiment in a folder of its own, as it is at the end of its runs."""
    if not (results / name).is_dir():
        return f"## {title}\n\nThere is no result yet. `experiments/{name}.toml` makes it.\n"
    comparison = compare_scores(collect_scores(find_runs(results / name), metric=metric))
    rows = [
        [row.task, row.method, str(len(row.scores)), f"{row.step:,}", show_interval(row.middle)]
        for row in comparison.rows
    ]
    head = ["task", "method", "seeds", "step", "interquartile mean"]
    return f"## {title}\n\n{make_table(head, rows)}"
