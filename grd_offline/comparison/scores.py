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
from grd_offline.core.errors import DataError, printable
from grd_offline.core.words import count
from grd_offline.io.files.plain import refuse_outside
from grd_offline.io.files.results import (
    EVALUATIONS_FILE,
    LARGEST,
    RUN_FOLDER,
    SETTINGS_FILE,
    SWEEP_FILE,
    RunRecord,
    is_judgement,
    is_sweep,
    list_results,
    read_run,
)

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
class ScoredTask:
    """A task that policies were trained for."""

    name: str
    environment: str


@dataclass(frozen=True)
class Score:
    """The scores of one method on one task."""

    task: ScoredTask
    method: str
    steps: tuple[int, ...]
    """Step of the last evaluation that counts, for each seed."""
    seeds: tuple[str, ...]
    values: tuple[float, ...]
    """One score for each seed."""

    @property
    def step(self) -> int:
        """The last step that any seed has."""
        return max(self.steps)


def find_runs(path: Path) -> list[RunRecord]:
    """Read the run, the judgement, or all runs below a folder such as that of a sweep.

    Runs below a folder that have no evaluation yet are left out, and so are jobs that the file of
    a sweep does not have any more. Nothing is read through a link that leads out of the folder.
    """
    if is_judgement(path):
        refuse_outside(path / RUN_FOLDER, path)
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
    if is_sweep(folder):
        refuse_outside(folder / SWEEP_FILE, folder)
        for result in list_results(folder):
            for run in (result, result / RUN_FOLDER):
                if not (run / SETTINGS_FILE).is_file():
                    continue
                refuse_outside(run, folder)
                if not run.is_symlink():
                    yield run
        return
    for inner in sorted(folder.iterdir()):
        # A folder that is being written, or was left by a killed command, has a hidden name.
        if not inner.is_dir() or inner.is_symlink() or inner.name.startswith("."):
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
    named = name_tasks(runs)
    labels = _label_groups(runs, named)
    curves: dict[tuple[str, str], dict[str, dict[int, float]]] = {}
    owners: dict[tuple[str, str, str], tuple[Path, str]] = {}
    tasks: dict[str, ScoredTask] = {}
    for place, run in enumerate(runs):
        task = named[place]
        tasks[task.name] = task
        for row in run.rows:
            if row.get(column, "") == "":
                continue
            key = (task.name, labels[place, name_group(run, row["group"])])
            mine = run.path, row["member"]
            owner = owners.setdefault((*key, row["seed"]), mine)
            if owner != mine:
                where = owner[0] if owner[0] != run.path else f"the member {owner[1]} of this run"
                reason = f"{key[1]} with seed {row['seed']} is also in {where}: leave one out"
                raise DataError(f"{task.name}: {reason}", file=run.path)
            # A run that was resumed twice from one checkpoint may have a step twice. The last row
            # is that of the training which went on.
            values = curves.setdefault(key, {}).setdefault(row["seed"], {})
            values[int(row["step"])] = _read_number(run, row[column], column)
    scores = [
        _make_score(tasks[task], method, lines, at, last)
        for (task, method), lines in curves.items()
    ]
    return [score for score in scores if score is not None]


def _make_score(
    task: ScoredTask,
    method: str,
    lines: Mapping[str, Mapping[int, float]],
    at: int | None,
    last: int,
) -> Score | None:
    seeds, values, reached = [], [], []
    for seed, line in lines.items():
        steps = sorted(step for step in line if at is None or step <= at)
        if not steps or (at is not None and max(line) < at):
            continue
        seeds.append(seed)
        values.append(float(np.mean([line[step] for step in steps[-last:]])))
        reached.append(steps[-1])
    return Score(task, method, tuple(reached), tuple(seeds), tuple(values)) if seeds else None


def list_left_out(everything: Sequence[Score], scores: Sequence[Score], at: int) -> list[str]:
    """What `scores` lack, because it has not got as far as the step `at`, in whole sentences."""
    found = {(score.task, score.method): score.seeds for score in scores}
    notes = []
    for score in everything:
        seeds = found.get((score.task, score.method), ())
        if len(seeds) < len(score.seeds):
            notes.append(
                f"{score.task.name}: {len(seeds)} of {count(len(score.seeds), 'seed')} of "
                f"{score.method} got as far as step {at:,}. The others do not count."
            )
    return notes


def name_tasks(runs: Sequence[RunRecord]) -> list[ScoredTask]:
    """The task of each run. Where short names mean several environments, names are whole ids.

    Where files of the same name hold different data, their folders are named, too.
    """
    short = [name_task(run) for run in runs]
    owners: dict[str, set[str]] = {}
    digests: dict[str, set[str]] = {}
    for task, run in zip(short, runs, strict=True):
        owners.setdefault(task.name, set()).add(task.environment)
        digests.setdefault(task.name, set()).add(_read_data(run).get("digest", ""))
    tasks = [
        name_task(
            run,
            is_whole=len(owners[task.name]) > 1,
            has_folder=len(digests[task.name] - {""}) > 1,
        )
        for task, run in zip(short, runs, strict=True)
    ]
    _refuse_alike(tasks, runs)
    return tasks


def _refuse_alike(tasks: Sequence[ScoredTask], runs: Sequence[RunRecord]) -> None:
    """Refuse different data whose files and folders have the same names."""
    owners: dict[str, tuple[str, Path]] = {}
    for task, run in zip(tasks, runs, strict=True):
        digest = _read_data(run).get("digest", "")
        known, path = owners.setdefault(task.name, (digest, run.path))
        if digest and known and digest != known:
            raise DataError(
                f"the data of this run and those of {path} differ, and both are called "
                f"{task.name}: compare them one at a time",
                file=run.path,
            )


def _read_data(run: RunRecord) -> dict[str, str]:
    """What a run says of the data that its policies learned from."""
    data = run.about.get("data")
    data = data if isinstance(data, Mapping) else {}
    return {name: str(data[name]) for name in ("file", "folder", "digest") if data.get(name)}


def name_task(run: RunRecord, *, is_whole: bool = False, has_folder: bool = False) -> ScoredTask:
    """The environment with its arguments, and the data that policies learn from."""
    settings = run.about.get("settings", {})
    arguments = settings.get("env_args") or {}
    if not isinstance(arguments, Mapping):
        raise DataError("expected a table", file=run.path / SETTINGS_FILE, field="env_args")
    parts = [run.environment if is_whole else run.environment.rsplit("/", 1)[-1] or run.name]
    if "env_name" in arguments:  # of MetaWorld: a name among many in one environment
        parts = [str(arguments["env_name"])]
    parts += [
        f"{name}={value}" for name, value in arguments.items() if name not in ("env_name", "seed")
    ]
    data = _read_data(run)
    if "file" in data:
        folder = Path(data.get("folder", "")).name if has_folder else ""
        parts.append(str(Path(folder) / Path(data["file"]).name))
    return ScoredTask(printable(" ".join(parts)), run.environment)


def _label_groups(
    runs: Sequence[RunRecord], tasks: Sequence[ScoredTask]
) -> dict[tuple[int, str], str]:
    """A label for each group of each run.

    Runs of the same group on the same task whose settings differ are different methods: the label
    names the settings, on every task.
    """
    owners: dict[tuple[str, str], list[int]] = {}
    for place, run in enumerate(runs):
        for group in dict.fromkeys(name_group(run, row["group"]) for row in run.rows):
            owners.setdefault((tasks[place].name, group), []).append(place)
    variants = [_describe_variant(run) for run in runs]
    differing: dict[str, dict[str, None]] = {}
    """The settings that differ on any task, by group."""
    for (_, group), places in owners.items():
        for name in variants[places[0]]:
            values = {variants[place].get(name) for place in places}
            if None not in values and len(values) > 1:
                differing.setdefault(group, {})[name] = None
    labels = {}
    for (_, group), places in owners.items():
        for place in places:
            named = [name for name in differing.get(group, ()) if name in variants[place]]
            parts = [group, *(f"{name}={variants[place][name]}" for name in named)]
            labels[place, group] = printable(" ".join(parts))
    return labels


def name_group(run: RunRecord, group: str) -> str:
    """A group with the settings of `--set` that have one value; several are in its name already."""
    sets = run.about.get("settings", {}).get("sets") or {}
    if not isinstance(sets, Mapping):
        raise DataError("expected a table", file=run.path / SETTINGS_FILE, field="sets")
    for name, values in sets.items():
        is_for_all = not str(name).startswith("lambda_") or "paper" in group.split("-")
        if not isinstance(values, Sequence) or not all(isinstance(v, int | float) for v in values):
            raise DataError("expected numbers", file=run.path / SETTINGS_FILE, field=f"sets.{name}")
        if is_for_all and len(values) == 1:
            group += f"-{name}={values[0]:g}"
    return group


def _describe_variant(run: RunRecord) -> dict[str, str]:
    settings: Mapping[str, Any] = run.about.get("settings", {})
    plain = {name: value for name, value in settings.items() if name not in _NOT_VARIANTS}
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
