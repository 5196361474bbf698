"""Methods side by side: numbers that a paper prints, scores of runs, and statistics over them.

A score is one number for each task, method and seed.

The folder of a comparison, which `grd-offline compare` writes:

comparison.json     the statistics of every method, and the runs that were compared
scores.csv          the score of each seed
report.html         a page with tables and figures
*.png               the figures (or .svg, .pdf)
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from grd_offline.comparison.metrics import LAST, METRICS
from grd_offline.core import statistics
from grd_offline.core.errors import DataError, located, printable
from grd_offline.core.settings import Settings, setting
from grd_offline.core.typing import Array
from grd_offline.core.words import count
from grd_offline.io.files import results
from grd_offline.io.files.plain import read_bytes, read_json, refuse_outside
from grd_offline.io.files.results import RunRecord
from grd_offline.io.files.storage import check_folder, check_writable

FILE_BYTES = 2**20
"""Size of a sweep file at most."""
_NUMBER: dict[str, Any] = {"at_least": -results.LARGEST, "at_most": results.LARGEST}
_KEYS = {"task", "method", "step", "mean", "std", "note"}


@dataclass(frozen=True)
class Printed(Settings):
    """One number of a paper."""

    task: str
    method: str
    mean: float = setting(MISSING, **_NUMBER)
    std: float | None = setting(None, **_NUMBER)
    step: int | None = None
    """Step of training that the number is of. None is the end."""
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if value not in (None, "")}


def parse_printed(entries: Any, file: Path) -> tuple[Printed, ...]:
    """Read the numbers of a sweep file, or of the copy in the folder of a sweep."""
    if not isinstance(entries, list) or not all(isinstance(one, dict) for one in entries):
        raise DataError("expected a list of tables", file=file, field="paper.numbers")
    return tuple(_parse(one, file, place) for place, one in enumerate(entries, 1))


def _parse(entry: Mapping[str, Any], file: Path, place: int) -> Printed:
    texts = {name: printable(str(entry.get(name, ""))) for name in ("task", "method", "note")}
    with located(file=file, field=f"paper.numbers, number {place}"):
        refuse_unknown(sorted(entry), _KEYS)
        for name in ("task", "method", "mean"):
            if name not in entry:
                raise DataError(f"expected a {name}")
        return Printed(**{**entry, **texts})


def find_printed(
    numbers: Sequence[Printed], task: str, method: str, step: int | None
) -> Printed | None:
    """The paper's number for a method on a task, at a step or, with None, at the end."""
    named = (one for one in numbers if (one.task, one.method) == (task, method))
    return next((one for one in named if one.step in (None, step)), None)


def read_toml(file: Path) -> dict[str, Any]:
    """Read a sweep file as it is."""
    try:
        return tomllib.loads(read_bytes(file, FILE_BYTES).decode())
    except FileNotFoundError:
        raise DataError("no such file", file=file) from None
    except (ValueError, RecursionError) as error:
        reason = "nested too deep" if isinstance(error, RecursionError) else error
        raise DataError(f"is not TOML: {reason}", file=file) from error


def refuse_unknown(keys: Iterable[str], known: set[str]) -> None:
    """Refuse keys of a sweep file that nothing reads."""
    if unknown := [key for key in keys if key not in known]:
        raise DataError(f"unknown key {unknown[0]!r}: expected {', '.join(sorted(known))}")


def read_printed(file: Path, contents: Mapping[str, Any] | None = None) -> tuple[Printed, ...]:
    """Read the paper's numbers from a sweep file, or from its contents; none if it has none."""
    paper = (read_toml(file) if contents is None else contents).get("paper", {})
    if not isinstance(paper, dict):
        raise DataError("expected a table", file=file, field="paper")
    return parse_printed(paper.get("numbers", []), file)


MOST_DEPTH = 4
"""Folders below a folder of results that are searched for runs."""
_NOT_VARIANTS = {
    *("environment", "env_args", "methods", "fits", "rewards", "seeds", "seed", "sets"),
    *("eval_every", "eval_episodes"),
}
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
    if results.is_judgement(path):
        refuse_outside(path / results.RUN_FOLDER, path)
        return [results.read_run(path / results.RUN_FOLDER)]
    if (path / results.SETTINGS_FILE).is_file() or not path.is_dir():
        return [results.read_run(path)]
    found = []
    for folder in _list_runs(path, MOST_DEPTH):
        try:
            found.append(results.read_run(folder))
        except DataError as error:
            if error.reason != "no evaluation yet":
                raise
    if not found:
        raise DataError("no run with an evaluation in it", file=path)
    return found


def _list_runs(folder: Path, depth: int) -> Iterator[Path]:
    if results.is_sweep(folder):
        refuse_outside(folder / results.SWEEP_FILE, folder)
        for result in results.list_results(folder):
            for run in (result, result / results.RUN_FOLDER):
                if (run / results.SETTINGS_FILE).is_file():
                    refuse_outside(run, folder)
                    if not run.is_symlink():
                        yield run
        return
    for inner in sorted(folder.iterdir()):
        # A folder that is being written, or was left by a killed command, has a hidden name.
        if not inner.is_dir() or inner.is_symlink() or inner.name.startswith("."):
            continue
        if (inner / results.SETTINGS_FILE).is_file():
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
    column, named = METRICS[metric][0], name_tasks(runs)
    labels = _label_groups(runs, named)
    curves: dict[tuple[str, str], dict[str, dict[int, float]]] = {}
    owners: dict[tuple[str, str, str], tuple[Path, str]] = {}
    tasks = {task.name: task for task in named}
    for place, (run, task) in enumerate(zip(runs, named, strict=True)):
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
            values[int(row["step"])] = read_number(run, row[column], column)
    scores = []
    for (name, method), lines in curves.items():
        found = []
        for seed, line in lines.items():
            steps = sorted(step for step in line if at is None or step <= at)
            if steps and (at is None or max(line) >= at):
                mean = float(np.mean([line[step] for step in steps[-last:]]))
                found.append((steps[-1], seed, mean))
        if found:
            scores.append(Score(tasks[name], method, *zip(*found, strict=True)))
    return scores


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
    tasks = []
    first: dict[str, tuple[str, Path]] = {}
    for known, run in zip(short, runs, strict=True):
        is_whole, has_folder = len(owners[known.name]) > 1, len(digests[known.name] - {""}) > 1
        task, digest = name_task(run, is_whole, has_folder), _read_data(run).get("digest", "")
        other, path = first.setdefault(task.name, (digest, run.path))
        if digest and other and digest != other:
            raise DataError(
                f"the data of this run and those of {path} differ, and both are called "
                f"{task.name}: compare them one at a time",
                file=run.path,
            )
        tasks.append(task)
    return tasks


def _read_data(run: RunRecord) -> dict[str, str]:
    """What a run says of the data that its policies learned from."""
    data = run.about.get("data")
    data = data if isinstance(data, Mapping) else {}
    return {name: str(data[name]) for name in ("file", "folder", "digest") if data.get(name)}


def name_task(run: RunRecord, is_whole: bool = False, has_folder: bool = False) -> ScoredTask:
    """The environment with its arguments, and the data that policies learn from."""
    settings = run.about.get("settings", {})
    arguments = settings.get("env_args") or {}
    if not isinstance(arguments, Mapping):
        raise DataError("expected a table", file=run.path / results.SETTINGS_FILE, field="env_args")
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
    variants = [
        {
            name: json.dumps(value).strip('"')
            for name, value in run.about.get("settings", {}).items()
            if name not in _NOT_VARIANTS
        }
        for run in runs
    ]
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
    sets, file = run.about.get("settings", {}).get("sets") or {}, run.path / results.SETTINGS_FILE
    if not isinstance(sets, Mapping):
        raise DataError("expected a table", file=file, field="sets")
    for name, values in sets.items():
        is_for_all = not str(name).startswith("lambda_") or "paper" in group.split("-")
        if not isinstance(values, Sequence) or not all(isinstance(v, int | float) for v in values):
            raise DataError("expected numbers", file=file, field=f"sets.{name}")
        if is_for_all and len(values) == 1:
            group += f"-{name}={values[0]:g}"
    return group


def read_number(run: RunRecord, text: str, column: str) -> float:
    """A number in a table of a run."""
    number = math.nan
    with suppress(ValueError):
        number = float(text)
    if not abs(number) <= results.LARGEST:
        reason = f"expected a number, got {text[:40]!r}"
        raise DataError(reason, file=run.path / results.EVALUATIONS_FILE, field=column)
    return number


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
_PARTS = {"metric", "chosen", "tasks", "methods"}
"""Some of what `Comparison.to_json` gives."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""A spreadsheet takes text that begins with one of these for a formula."""


def is_comparison(folder: Path) -> bool:
    """Whether the folder holds a comparison of this program."""
    try:
        contents = read_json(folder / COMPARISON_FILE, inside=folder)
    except (DataError, FileNotFoundError):
        return False
    return isinstance(contents, dict) and contents.keys() >= _PARTS


def check_place(folder: Path) -> None:
    """Refuse a place for a comparison that cannot be written to, or holds something else."""
    check_writable(folder)
    if folder.exists():
        check_folder(folder, is_replaceable=is_comparison)


def write_scores(folder: Path, comparison: Comparison) -> None:
    """Write the score of each seed as a table that a spreadsheet can open safely."""
    rows = []
    for row in comparison.rows:
        named = _as_text(row.task), _as_text(row.method), row.step
        for score in zip(row.seeds, row.scores, strict=True):
            rows.append(dict(zip(_COLUMNS, (*named, *score), strict=True)))
    results.start_table(folder / SCORES_FILE, _COLUMNS, rows)


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
class TaskRow(results.SeedScores):
    """A method on one task."""

    task: str
    method: str
    step: int
    seeds: tuple[str, ...]
    scores: tuple[float, ...]
    """The score of each seed."""
    middle: statistics.Estimate
    """The interquartile mean over the seeds."""
    share: float | None
    """Mean gain over random actions, as a share of the reference's. None without one."""
    printed: Printed | None
    """The number that the paper prints, if it has one."""


@dataclass(frozen=True, eq=False)
class Total:
    """A method over all of its tasks."""

    method: str
    tasks: tuple[str, ...]
    scaled: tuple[str, ...]
    """The tasks whose scores could be normalised. Means and shares are over these."""
    middle: statistics.Estimate | None
    """Interquartile mean of normalised scores over seeds and tasks. None without a reference."""
    share: statistics.Estimate | None
    """The score as a fraction of the score of the reference."""
    improvement: statistics.Estimate | None
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
        plain, names = asdict(self), {"rows": "tasks", "totals": "methods"}
        for total in plain["totals"]:
            del total["profile"], total["band"]
        for row, own in zip(plain["rows"], self.rows, strict=True):
            row["printed"] = None if own.printed is None else own.printed.to_json()
        return {names.get(name, name): value for name, value in plain.items()}


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
    references = [name for name in methods if name.partition(" ")[0] in REFERENCES]
    reference = _choose(methods, reference, references)
    others = [name for name in methods if name != reference]
    chosen = _choose(methods, chosen, others or methods)
    assert chosen is not None
    plain = {(score.task.name, score.method): np.array(score.values) for score in scores}
    gains, left_out = _measure_gains(scores, plain, metric, reference)
    is_return = metric == "return"
    scale = reference if is_return else None
    normalised = {
        key: gain if scale is None else gain / gains[key[0], scale].mean()
        for key, gain in gains.items()
    }
    rows = []
    for score in sorted(scores, key=lambda score: methods.index(score.method)):
        key, step = (score.task.name, score.method), score.step
        middle = statistics.estimate_mean([score.values], np.random.default_rng(SEED))
        share = float(normalised[key].mean()) if is_return and key in normalised else None
        number = find_printed(printed, *key, step) if is_return else None
        rows.append(TaskRow(*key, step, score.seeds, score.values, middle, share, number))
    totals = tuple(_make_total(name, chosen, scale, plain, gains, normalised) for name in methods)
    other = [name for name in references if name != reference]
    if scale is not None and other:
        left_out.insert(
            0,
            f"{reference} is the reference, which has 1. It could as well be {' or '.join(other)}: "
            "choose it with --reference.",
        )
    told = (*notes, *_find_notes(scores, totals), *left_out)
    return Comparison(metric, chosen, reference, tuple(rows), totals, told)


def _choose(methods: Sequence[str], asked: str | None, preferred: Sequence[str]) -> str | None:
    if asked is not None and asked not in methods:
        raise DataError(f"no method {asked!r} in the results: expected {', '.join(methods)}")
    return asked if asked is not None else next(iter(preferred), None)


Values = Mapping[tuple[str, str], Array]
"""Scores of all seeds by task and method."""


def _measure_gains(
    scores: Sequence[Score], values: Values, metric: str, reference: str | None
) -> tuple[Values, list[str]]:
    """Scores above those of random actions, on tasks with a reference, and what was left out."""
    if metric != "return" or reference is None:
        return values if metric != "return" else {}, []
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
            what = "returns less than 0, and what random actions return is not known"
            if is_known:
                what = f"is not better than {low:g}, the return of random actions"
            rest = "the task is left out of means and shares over tasks."
            left_out.append(f"{task.name}: {reference} {what}: {rest}")
            continue
        if not is_known:
            unknown.append(task.name)
        found |= {key: v - low for key, v in values.items() if key[0] == task.name}
    for names, reason in (
        (unknown, "What random actions return is not known, and counted as 0, for"),
        (without, f"Without {reference}, and left out of means and shares over tasks"),
    ):
        left_out += [f"{reason}: {', '.join(names)}."] if names else []
    return found, left_out


def _make_total(
    method: str, chosen: str, scale: str | None, plain: Values, gains: Values, normalised: Values
) -> Total:
    """A method over all tasks. `scale` is the method whose mean gain is 1, if there is one."""
    tasks = tuple(task for task, name in plain if name == method)
    scaled = tuple(task for task in tasks if (task, method) in normalised)
    ours = [gains[task, method] for task in scaled]
    theirs = ours if method == scale else None
    if scale not in (None, method):
        theirs = [gains[task, scale] for task in scaled]
    middle = share = profile = band = improvement = None
    rng = np.random.default_rng(SEED)
    shares = [normalised[task, method] for task in scaled]
    if ours:
        middle = statistics.estimate_mean(ours, rng, theirs)
        profile = statistics.performance_profile(shares, THRESHOLDS)
        band = statistics.profile_band(ours, THRESHOLDS, rng, theirs)
    if ours and scale is not None:
        whole = [normalised[task, scale] for task in scaled]
        share = statistics.estimate_share(shares, whole, rng)
        share = share if np.isfinite([share.value, share.low, share.high]).all() else None
    common = [task for task in tasks if (task, chosen) in plain]
    if method != chosen and common:
        improvement = statistics.estimate_improvement(
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
