"""Statistics of methods over seeds and tasks.

The folder of a comparison, which `grd-offline compare` writes:

comparison.json     the statistics of every method, and the runs that were compared
scores.csv          the score of each seed
report.html         a page with tables and figures
*.png               the figures (or .svg, .pdf)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from grd_offline.comparison.paper import Printed, find_printed
from grd_offline.comparison.scores import Score
from grd_offline.core.errors import DataError
from grd_offline.core.statistics import (
    Estimate,
    estimate_improvement,
    estimate_mean,
    estimate_share,
    performance_profile,
    profile_band,
)
from grd_offline.core.typing import Array
from grd_offline.io.files.plain import read_json
from grd_offline.io.files.results import start_table
from grd_offline.io.files.storage import check_folder, check_writable

RANDOM_RETURNS = {
    "Ant-v5": -56.13,  # standard error 9.5
    "HalfCheetah-v5": -286,  # standard error 8.4
    "Hopper-v5": 16.67,  # standard error 1.8
    "Humanoid-v5": 112.6,  # standard error 3.6
    "HumanoidStandup-v5": 3.332e04,  # standard error 2e+02
    "Reacher-v5": -43.29,  # standard error 0.39
    "Swimmer-v5": 0.8029,  # standard error 0.93
    "Walker2d-v5": 1.77,  # standard error 0.77
    "grd/PaddedAnt-v0": -56.13,  # standard error 9.5
    "CartPole-v1": 23.68,  # standard error 1.2
    "Acrobot-v1": -497.1,  # standard error 1.9
}


COMPARISON_FILE, SCORES_FILE = "comparison.json", "scores.csv"
_COLUMNS = ("task", "method", "step", "seed", "score")
_KEYS = {"metric", "chosen", "tasks", "methods"}
"""Some of what `Comparison.to_json` gives."""
_FORMULA = ("=", "+", "-", "@")
"""A spreadsheet takes text that begins with one of these for a formula."""


def is_comparison(folder: Path) -> bool:
    """Whether the folder holds a comparison of this program."""
    try:
        contents = read_json(folder / COMPARISON_FILE, inside=folder)
    except (DataError, FileNotFoundError):
        return False
    return isinstance(contents, dict) and contents.keys() >= _KEYS


def check_place(folder: Path) -> None:
    """Refuse a place for a comparison that cannot be written to, or holds something else."""
    check_writable(folder)
    if folder.exists():
        check_folder(folder, is_replaceable=is_comparison)


def write_scores(folder: Path, comparison: Comparison) -> None:
    """Write the score of each seed as a table that a spreadsheet can open safely."""
    rows = [
        {
            "task": _as_text(row.task),
            "method": _as_text(row.method),
            "step": row.step,
            "seed": seed,
            "score": score,
        }
        for row in comparison.rows
        for seed, score in zip(row.seeds, row.scores, strict=True)
    ]
    start_table(folder / SCORES_FILE, _COLUMNS, rows)


def _as_text(name: str) -> str:
    """A name that no spreadsheet takes for a formula: an apostrophe makes it text."""
    return f"'{name}" if name.startswith(_FORMULA) else name


REFERENCES = ("oracle", "true")
"""Methods that learn from the true reward, online and from data."""
SEED = 0
"""Intervals are drawn from this seed, so that the same results give the same intervals."""
SMALLEST_GAIN = 1e-9
"""A reference that is better than random actions by less, for each unit of their return, is not."""
THRESHOLDS = np.linspace(0.0, 1.2, 61)
"""Normalised scores at which performance profiles are known."""


@dataclass(frozen=True)
class TaskRow:
    """A method on one task."""

    task: str
    method: str
    step: int
    seeds: tuple[str, ...]
    scores: tuple[float, ...]
    """The score of each seed."""
    middle: Estimate
    """The interquartile mean over the seeds."""
    share: float | None
    """Mean gain over random actions, as a share of the reference's. None without one."""
    printed: Printed | None
    """The number that the paper prints, if it has one."""

    @property
    def mean(self) -> float:
        return float(np.mean(self.scores))

    @property
    def spread(self) -> float:
        return float(np.std(self.scores))


@dataclass(frozen=True, eq=False)
class Total:
    """A method over all of its tasks."""

    method: str
    tasks: tuple[str, ...]
    scaled: tuple[str, ...]
    """The tasks whose scores could be normalised. Means and shares are over these."""
    middle: Estimate | None
    """Interquartile mean of normalised scores over seeds and tasks. None without a reference."""
    share: Estimate | None
    """The score as a fraction of the score of the reference."""
    improvement: Estimate | None
    """Probability that the chosen method does better, over all tasks that both have.

    None for that method itself.
    """
    profile: Array | None
    """Share of runs above each of `THRESHOLDS`."""
    band: tuple[Array, Array] | None


@dataclass(frozen=True, eq=False)
class Comparison:
    """The comparison of several methods."""

    metric: str
    chosen: str
    """The method that the others are set against."""
    reference: str | None
    """The method whose mean score is 1 after normalising."""
    rows: tuple[TaskRow, ...]
    totals: tuple[Total, ...]
    notes: tuple[str, ...]
    """Warnings about the comparison, in whole sentences."""

    @property
    def tasks(self) -> list[str]:
        return list(dict.fromkeys(row.task for row in self.rows))

    @property
    def methods(self) -> list[str]:
        return [total.method for total in self.totals]

    def find(self, task: str, method: str) -> TaskRow | None:
        """The row of a method on a task, if there is one."""
        return next((r for r in self.rows if (r.task, r.method) == (task, method)), None)

    def to_json(self) -> dict[str, Any]:
        """Plain values for a file."""
        hidden = ("profile", "band")
        totals = [
            {name: value for name, value in asdict(total).items() if name not in hidden}
            for total in self.totals
        ]
        rows = [
            {**asdict(row), "printed": None if row.printed is None else row.printed.to_json()}
            for row in self.rows
        ]
        return {
            "metric": self.metric,
            "chosen": self.chosen,
            "reference": self.reference,
            "tasks": rows,
            "methods": totals,
            "notes": list(self.notes),
        }


def compare_scores(
    scores: Sequence[Score],
    *,
    metric: str = "return",
    chosen: str | None = None,
    reference: str | None = None,
    printed: Sequence[Printed] = (),
    notes: Sequence[str] = (),
) -> Comparison:
    """Compare methods. Normalised scores are 0 for random actions and 1 for the reference's mean.

    Without `chosen`, the others are set against the first method that is no reference. Without
    `reference`, it is the oracle, if there is one. A success rate is not normalised. `notes` are
    put before those that are found here. Numbers of a paper are returns.
    """
    if not scores:
        raise DataError("no evaluation to compare")
    methods = list(dict.fromkeys(score.method for score in scores))
    reference = _choose(
        methods, reference, [name for name in methods if name.partition(" ")[0] in REFERENCES]
    )
    others = [name for name in methods if name != reference]
    chosen = _choose(methods, chosen, others or methods)
    assert chosen is not None
    gains, left_out = _measure_gains(scores, metric, reference)
    is_scaled = metric == "return" and reference is not None
    scale = {task: gains[task, str(reference)] for task, _ in gains} if is_scaled else None
    normalised = {
        key: gain if scale is None else gain / scale[key[0]].mean() for key, gain in gains.items()
    }
    rows = tuple(
        _make_row(
            score,
            normalised.get((score.task.name, score.method)) if metric == "return" else None,
            printed if metric == "return" else (),
        )
        for score in sorted(scores, key=lambda score: methods.index(score.method))
    )
    plain = {(score.task.name, score.method): np.array(score.values) for score in scores}
    totals = tuple(_make_total(name, chosen, scale, plain, gains, normalised) for name in methods)
    if is_scaled:
        left_out = [*_tell_reference(methods, str(reference)), *left_out]
    told = (*notes, *_find_notes(scores, totals), *left_out)
    return Comparison(metric, chosen, reference, rows, totals, told)


def _choose(methods: Sequence[str], asked: str | None, preferred: Sequence[str]) -> str | None:
    if asked is not None and asked not in methods:
        raise DataError(f"no method {asked!r} in the results: expected {', '.join(methods)}")
    return asked if asked is not None else next(iter(preferred), None)


Values = Mapping[tuple[str, str], Array]
"""Scores of all seeds by task and method."""


def _measure_gains(
    scores: Sequence[Score], metric: str, reference: str | None
) -> tuple[dict[tuple[str, str], Array], list[str]]:
    """Scores above those of random actions, on tasks with a reference, and what was left out."""
    values = {(score.task.name, score.method): np.array(score.values) for score in scores}
    if metric != "return":
        return values, []
    if reference is None:
        return {}, []
    found: dict[tuple[str, str], Array] = {}
    left_out, without, unknown = [], [], []
    for task in dict.fromkeys(score.task for score in scores):
        if (task.name, reference) not in values:
            without.append(task.name)
            continue
        is_known = task.environment in RANDOM_RETURNS
        low = RANDOM_RETURNS.get(task.environment, 0.0)
        gain = float(values[task.name, reference].mean()) - low
        if gain <= SMALLEST_GAIN * max(1.0, abs(low)):
            what = (
                f"{reference} is not better than {low:g}, the return of random actions"
                if is_known
                else f"{reference} returns less than 0, and what random actions return is not known"
            )
            left_out.append(
                f"{task.name}: {what}: the task is left out of means and shares over tasks."
            )
            continue
        if not is_known:
            unknown.append(task.name)
        found |= {key: v - low for key, v in values.items() if key[0] == task.name}
    if unknown:
        left_out.append(
            f"What random actions return is not known, and counted as 0, for: {', '.join(unknown)}."
        )
    if without:
        left_out.append(f"Without {reference}, and left out of means and shares over tasks: "
                        f"{', '.join(without)}.")  # fmt: skip
    return found, left_out


def _tell_reference(methods: Sequence[str], reference: str) -> list[str]:
    """Say which method is the reference, where it may be another one."""
    others = [n for n in methods if n != reference and n.partition(" ")[0] in REFERENCES]
    if not others:
        return []
    return [
        f"{reference} is the reference, which has 1. It could as well be {' or '.join(others)}: "
        "choose it with --reference."
    ]


def _make_row(score: Score, normalised: Array | None, printed: Sequence[Printed]) -> TaskRow:
    rng = np.random.default_rng(SEED)
    return TaskRow(
        score.task.name,
        score.method,
        score.step,
        score.seeds,
        score.values,
        estimate_mean([score.values], rng),
        None if normalised is None else float(normalised.mean()),
        find_printed(printed, score.task.name, score.method, score.step),
    )


def _make_total(
    method: str,
    chosen: str,
    scale: Mapping[str, Array] | None,
    plain: Values,
    gains: Values,
    normalised: Values,
) -> Total:
    tasks = tuple(task for task, name in plain if name == method)
    scaled = tuple(task for task in tasks if (task, method) in normalised)
    ours = [gains[task, method] for task in scaled]
    theirs = None if scale is None else [scale[task] for task in scaled]
    if theirs is not None and all(one is other for one, other in zip(ours, theirs, strict=True)):
        theirs = ours  # the reference itself
    middle = share = profile = band = improvement = None
    rng = np.random.default_rng(SEED)
    if ours:
        middle = estimate_mean(ours, rng, theirs)
        profile = performance_profile([normalised[task, method] for task in scaled], THRESHOLDS)
        band = profile_band(ours, THRESHOLDS, rng, theirs)
    if ours and scale is not None:
        units = [scale[task].mean() for task in scaled]
        share = estimate_share(
            [normalised[task, method] for task in scaled],
            [scale[task] / unit for task, unit in zip(scaled, units, strict=True)],
            rng,
        )
        share = share if np.isfinite([share.value, share.low, share.high]).all() else None
    common = [task for task in tasks if (task, chosen) in plain]
    if method != chosen and common:
        improvement = estimate_improvement(
            [plain[task, chosen] for task in common], [plain[task, method] for task in common], rng
        )
    return Total(method, tasks, scaled, middle, share, improvement, profile, band)


def _find_notes(scores: Sequence[Score], totals: Sequence[Total]) -> list[str]:
    notes = []
    for task in dict.fromkeys(score.task.name for score in scores):
        steps = {step for score in scores if score.task.name == task for step in score.steps}
        if len(steps) > 1:
            low, high = min(steps), max(steps)
            notes.append(
                f"{task}: some runs end at step {low:,} and others at {high:,}. Use --at {low} to "
                "compare them at the same step."
            )
    if len({frozenset(total.tasks) for total in totals}) > 1:
        notes.append("Not every method has every task: what is over tasks is over different ones.")
    few = [score for score in scores if len(score.values) < 3]
    if few:
        count = f"{len(few)} of {len(scores)} rows have" if len(few) < len(scores) else "All have"
        notes.append(f"{count} fewer than three seeds: their intervals say little.")
    return notes
