"""Scores of runs: one number for each task, method and seed."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from grd_offline.comparison.metrics import LAST, METRICS
from grd_offline.errors import DataError, printable
from grd_offline.files.judgement import RUN_FOLDER, is_judgement
from grd_offline.files.runs import EVALUATIONS_FILE, LARGEST, SETTINGS_FILE, RunRecord, read_run

MOST_DEPTH = 4
"""Folders below a folder of results that are searched for runs."""
_NOT_VARIANTS = frozenset(
    (
        *("environment", "env_args", "methods", "fits", "rewards", "seeds", "seed", "sets"),
        *("eval_every", "eval_episodes"),
    )
)
"""Settings that do not make another method of a group."""


@dataclass(frozen=True)
class Task:
    """A task that policies were trained for."""

    name: str
    environment: str


@dataclass(frozen=True)
class Score:
    """The scores of one method on one task."""

    task: Task
    method: str
    step: int
    """Step of the last evaluation that counts."""
    seeds: tuple[str, ...]
    values: tuple[float, ...]
    """One score for each seed."""


def find_runs(path: Path) -> list[RunRecord]:
    """Read the run, the judgement, or all runs below a folder such as that of a sweep.

    Runs below a folder that have no evaluation yet are left out.
    """
    if is_judgement(path):
        return [read_run(path / RUN_FOLDER)]
    if (path / SETTINGS_FILE).is_file() or not path.is_dir():
        return [read_run(path)]
    found = []
    for folder in _list_runs(path, MOST_DEPTH):
        try:
            found.append(read_run(folder))
        except DataError as error:
            if error.reason != "no evaluation yet":
                raise
    if not found:
        raise DataError("no run with an evaluation in it", file=path)
    return found


def _list_runs(folder: Path, depth: int) -> Iterator[Path]:
    for inner in sorted(folder.iterdir()):
        if not inner.is_dir() or inner.is_symlink():
            continue
        if (inner / SETTINGS_FILE).is_file():
            yield inner
        elif depth > 1:
            yield from _list_runs(inner, depth - 1)


def collect_scores(
    runs: Sequence[RunRecord], *, metric: str = "return", at: int | None = None, last: int = LAST
) -> list[Score]:
    """The scores of all runs: each is the mean of the last evaluations of a member.

    With `at`, evaluations after that step do not count, and members that have not got so far have
    no score.
    """
    column = METRICS[metric][0]
    labels = _label_groups(runs)
    curves: dict[tuple[str, str], dict[str, dict[int, float]]] = {}
    owners: dict[tuple[str, str, str], Path] = {}
    tasks: dict[str, Task] = {}
    for place, run in enumerate(runs):
        task = name_task(run)
        tasks[task.name] = task
        for row in run.rows:
            if row.get(column, "") == "":
                continue
            key = (task.name, labels[place, row["group"]])
            owner = owners.setdefault((*key, row["seed"]), run.path)
            if owner != run.path:
                reason = f"{key[1]} with seed {row['seed']} is also in {owner}: leave one out"
                raise DataError(f"{task.name}: {reason}", file=run.path)
            values = curves.setdefault(key, {}).setdefault(row["seed"], {})
            values[int(row["step"])] = _read_number(run, row[column], column)
    scores = [
        _make_score(tasks[task], method, lines, at, last)
        for (task, method), lines in curves.items()
    ]
    return [score for score in scores if score is not None]


def _make_score(
    task: Task, method: str, lines: Mapping[str, Mapping[int, float]], at: int | None, last: int
) -> Score | None:
    seeds, values, reached = [], [], 0
    for seed, line in lines.items():
        steps = sorted(step for step in line if at is None or step <= at)
        if not steps or (at is not None and max(line) < at):
            continue
        seeds.append(seed)
        values.append(float(np.mean([line[step] for step in steps[-last:]])))
        reached = max(reached, steps[-1])
    return Score(task, method, reached, tuple(seeds), tuple(values)) if seeds else None


def name_task(run: RunRecord) -> Task:
    """The environment with its arguments, and the data that policies learn from."""
    settings = run.about.get("settings", {})
    arguments = settings.get("env_args") or {}
    parts = [run.environment.rsplit("/", 1)[-1] or run.name]
    if "env_name" in arguments:  # of MetaWorld: a name among many in one environment
        parts = [str(arguments["env_name"])]
    parts += [
        f"{name}={value}" for name, value in arguments.items() if name not in ("env_name", "seed")
    ]
    data = run.about.get("data")
    if isinstance(data, Mapping) and data.get("file"):
        parts.append(Path(str(data["file"])).name)
    return Task(printable(" ".join(parts)), run.environment)


def _label_groups(runs: Sequence[RunRecord]) -> dict[tuple[int, str], str]:
    """A label for each group of each run.

    Runs of the same group on the same task whose settings differ are different methods: the label
    names the settings.
    """
    owners: dict[tuple[str, str], list[int]] = {}
    for place, run in enumerate(runs):
        for group in dict.fromkeys(row["group"] for row in run.rows):
            owners.setdefault((name_task(run).name, group), []).append(place)
    variants = [_describe_variant(run) for run in runs]
    labels = {}
    for (_, group), places in owners.items():
        names = [
            name
            for name in variants[places[0]]
            if all(name in variants[place] for place in places)
            and len({variants[place][name] for place in places}) > 1
        ]
        for place in places:
            parts = [group, *(f"{name}={variants[place][name]}" for name in names)]
            labels[place, group] = printable(" ".join(parts))
    return labels


def _describe_variant(run: RunRecord) -> dict[str, str]:
    settings: Mapping[str, Any] = run.about.get("settings", {})
    plain = {name: value for name, value in settings.items() if name not in _NOT_VARIANTS}
    for name, values in (settings.get("sets") or {}).items():
        if isinstance(values, Sequence) and len(values) == 1:  # several are part of the group
            plain[name] = values[0]
    return {name: json.dumps(value).strip('"') for name, value in plain.items()}


def _read_number(run: RunRecord, text: str, column: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not abs(number) <= LARGEST:
        raise DataError(
            f"expected a number, got {text[:40]!r}", file=run.path / EVALUATIONS_FILE, field=column
        )
    return number
