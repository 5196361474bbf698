"""Sweep files: a grid of commands in TOML, and the jobs that follow from it.

    title = "Two methods on two tasks"

    [[jobs]]
    command = "train-online"
    options = { method = ["grd", "oracle"], steps = 100_000 }
    grid = { env = ["Hopper", "Walker2d"], seed = [0, 1, 2, 3, 4] }

Every combination of the values in a grid is a job. Seeds of the same command are the exception:
they are members of one run, as far as `members` allows.

A scale makes jobs shorter, to try a sweep file out: fewer steps, updates, evaluations, episodes and
seeds.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grd_offline.comparison.compare import Printed, read_printed, read_toml, refuse_unknown
from grd_offline.core.errors import DataError, located
from grd_offline.core.settings import describe_settings
from grd_offline.learning.settings import OfflineSettings, OnlineSettings

LEAST_STEPS = 200
"""Steps, or updates, of a run that is made shorter."""
LEARNING_STEPS = 100
"""Steps after the warm-up, which is not scaled and would be longer than the run."""
LEAST_UPDATES = 5
"""Updates of a block after 100 steps."""
LEAST_BATCH = 32
LEAST_EPISODE = 50
"""Steps after which episodes are truncated."""
LEAST_EVALUATIONS = 2
LONGEST_EPISODE = 1000
"""Steps of an episode where the file does not say it."""


def scale_options(
    command: str, options: Mapping[str, Any], scale: float
) -> tuple[dict[str, Any], int | None]:
    """The options of a job that is `scale` times as long, and the steps that it has."""
    if not 0 < scale <= 1:
        raise DataError(f"scale: expected more than 0 and at most 1, got {scale:g}")
    if command == "decompose":
        return dict(options), None
    count = "steps" if command == "train-online" else "updates"
    settings = OnlineSettings if command == "train-online" else OfflineSettings
    if scale == 1:
        return dict(options), _read(options, count)
    known = {n.replace("_", "-"): d.default for n, d in describe_settings(settings).items()}
    given = {**known, "max-episode-steps": LONGEST_EPISODE, **options}

    def shrink(key: str, least: int) -> int:
        return _shrink(_read(given, key), scale, least)

    total = shrink(count, LEAST_STEPS)
    before = max(1, given[count] // _read(given, "eval-every"))
    evaluations = _shrink(before, scale, LEAST_EVALUATIONS)
    changed = {count: total, "eval-every": max(1, total // evaluations)}
    changed["eval-episodes"] = shrink("eval-episodes", 1)
    changed["max-episode-steps"] = shrink("max-episode-steps", LEAST_EPISODE)
    if command == "train-online":
        changed["warmup"] = min(_read(given, "warmup"), max(0, total - LEARNING_STEPS))
        changed["round-updates"] = shrink("round-updates", LEAST_UPDATES)
    return {**options, **changed, "batch": shrink("batch", LEAST_BATCH)}, total


def _read(options: Mapping[str, Any], key: str) -> Any:
    value = options.get(key)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        if key == "warmup" and value == 0:
            return value
        raise DataError(f"{key}: expected a whole number of at least 1, got {value!r:.40}")
    return value


def _shrink(value: int, scale: float, least: int) -> int:
    return min(value, max(least, round(value * scale)))


SEEDED = ("judge", "train-offline", "train-online")
"""Commands that train several seeds in one run."""
COMMANDS = ("decompose", *SEEDED)
FILE = "file"
"""The key of the argument that is no option: the data of all commands but `train-online`."""
ENVIRONMENT_ARGUMENT = "env-arg"
"""The option whose values are JSON or text."""
MOST_MEMBERS = 50
"""Members of one run at most, unless the file says otherwise."""
MOST_JOBS = 10_000
MOST_SEEDS = 10_000
MOST_LETTERS = 150
"""Length of the name of a job."""
_TOP = {"title", "about", "members", "jobs", "paper"}
_BLOCK = {"name", "command", "options", "grid", "members"}
_DECIDED = {
    "out": "each job has a folder of its own",
    "resume": "broken jobs go on by themselves",
    "help": "it is no setting",
}
"""Options that a sweep gives itself, or never."""


@dataclass(frozen=True)
class Job:
    """One command of a sweep."""

    name: str
    """Also the name of its folder."""
    command: tuple[str, ...]
    """The command and its options, without the folder for the results."""
    total: int | None = None
    """Steps or updates of the whole run, where they are known."""
    file: str | None = None
    """The file in the folder of the sweep that the command writes. None: it writes a folder."""
    members: int = 1
    """Members of a run of `train-online`."""


@dataclass(frozen=True)
class SweepPlan:
    """What a sweep file says."""

    path: Path
    title: str
    about: str
    jobs: tuple[Job, ...]
    printed: tuple[Printed, ...]
    """Numbers of the paper, to set beside the results."""


def read_plan(path: Path, *, scale: float = 1.0) -> SweepPlan:
    """Read a sweep file. `scale` makes every job shorter, for a try."""
    contents = read_toml(path)
    with located(file=path):
        refuse_unknown(contents, _TOP)
    blocks = contents.get("jobs")
    if not isinstance(blocks, list) or not blocks or not all(isinstance(b, dict) for b in blocks):
        raise DataError("expected at least one [[jobs]]", file=path)
    jobs: list[Job] = []
    for place, block in enumerate(blocks, 1):
        with located(file=path):
            members = _read({"members": MOST_MEMBERS, **contents, **block}, "members")
        with located(file=path, field=f"jobs, block {place}"):
            jobs += itertools.islice(_expand(block, members, scale), MOST_JOBS + 1 - len(jobs))
        if len(jobs) > MOST_JOBS:
            raise DataError(f"more than {MOST_JOBS:,} jobs", file=path)
    seen: set[str] = set()
    for job in jobs:
        # Some file systems do not tell large and small letters apart.
        if job.name.lower() in seen:
            reason = (
                f"two jobs are called {job.name}: give their blocks a name, as in name = 'a', or "
                "their files different names"
            )
            raise DataError(reason, file=path)
        seen.add(job.name.lower())
    printed = read_printed(path, contents)
    title, about = (contents.get(key, "") for key in ("title", "about"))
    if not isinstance(title, str) or not isinstance(about, str):
        raise DataError("expected text", file=path, field="title, about")
    return SweepPlan(path, title or path.stem, about.strip(), tuple(jobs), printed)


def _expand(block: Mapping[str, Any], members: int, scale: float) -> Iterator[Job]:
    """All jobs of one block."""
    refuse_unknown(block, _BLOCK)
    command = block.get("command")
    if command not in COMMANDS:
        expected = f"expected a command out of {', '.join(COMMANDS)}"
        raise DataError(f"{expected}, got {command!r:.40}" if command is not None else expected)
    options, grid = (_read_table(block, key) for key in ("options", "grid"))
    for key, values in grid.items():
        if not isinstance(values, list) or not values:
            raise DataError(f"grid: {key}: expected a list of values, got {values!r:.40}")
        if key in options:
            raise DataError(f"{key} is among the options and in the grid: leave one out")
        if len({repr(value) for value in values}) < len(values):
            raise DataError(f"grid: {key}: the same value twice")
    name = block.get("name", command)
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,60}", name):
        raise DataError(f"name: expected letters, digits, '.', '_' and '-', got {name!r:.70}")
    seeds = _take_seeds(command, options, grid)
    for values in itertools.product(*grid.values()):
        chosen = dict(zip(grid, values, strict=True))
        given, total = scale_options(command, {**options, **chosen}, scale)
        parts = [name, *(_name_value(key, value) for key, value in chosen.items())]
        choices = count_choices(command, given)
        if seeds is None:
            line = _make_command(command, given)
            yield Job(_make_name(parts), line, total, members=choices)
            continue
        few = seeds[: _shrink(len(seeds), scale, 1)]
        for first, count in _group_seeds(few, max(1, members // choices)):
            ends = f"seed{first}" if count == 1 else f"seed{first}-{first + count - 1}"
            line = _make_command(command, {**given, "seed": first, "seeds": count})
            yield Job(_make_name([*parts, ends]), line, total, members=count * choices)


def _read_table(block: Mapping[str, Any], key: str) -> dict[str, Any]:
    table = block.get(key, {})
    if not isinstance(table, dict):
        raise DataError(f"{key}: expected a table, got {table!r:.40}")
    plain = {name.replace("_", "-"): value for name, value in table.items()}
    if len(plain) < len(table):
        raise DataError(f"{key}: the same option twice")
    for name in plain:
        if not re.fullmatch(r"[a-z][a-z-]*", name):
            raise DataError(f"{key}: expected the name of an option, got {name!r:.40}")
        if name in _DECIDED:
            raise DataError(f"{key}: {name} cannot be given: {_DECIDED[name]}")
    return plain


def _take_seeds(command: str, options: dict[str, Any], grid: dict[str, Any]) -> list[int] | None:
    """Take the seeds out of options and grid. None if the command decides."""
    if command not in SEEDED:
        return None
    first, count = options.pop("seed", 0), options.pop("seeds", None)
    listed = grid.pop("seed", None)
    if "seeds" in grid:
        raise DataError("grid: seeds cannot be in a grid: list them as seed = [0, 1, 2]")
    if listed is not None and count is not None:
        raise DataError("seeds is among the options and seed in the grid: leave one out")
    whole = [first, 1 if count is None else count] if listed is None else listed
    if not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in whole):
        if listed is None:
            raise DataError(f"seed, seeds: expected whole numbers, got {first!r} and {count!r}")
        raise DataError(f"grid: seed: expected whole numbers, got {listed!r:.60}")
    if listed is not None:
        return sorted(listed)
    if not 1 <= whole[1] <= MOST_SEEDS:
        raise DataError(f"seeds: expected 1 to {MOST_SEEDS:,}, got {whole[1]}")
    return None if count is None and first == 0 else list(range(first, first + whole[1]))


def count_choices(command: str, options: Mapping[str, Any]) -> int:
    """Members of a run for each seed, at most: methods with each fit and each value of a set."""
    if command != "train-online":
        names = _list_names(options.get("methods", options.get("rewards", ())))
        return max(1, len(names) + (2 if command == "judge" else 0))  # true and observed rewards
    sets = options.get("set")
    listed = sets.values() if isinstance(sets, dict) else ()
    values = math.prod(len(one) for one in listed if isinstance(one, list))
    methods = _list_names(options.get("method", "grd"))
    fits = _list_names(options.get("fit", "closed-form"))
    return values * sum(len(fits) if name.startswith("grd") else 1 for name in methods) or 1


def _list_names(value: Any) -> list[str]:
    if isinstance(value, str):
        return value.split(",")
    return [str(name) for name in value] if isinstance(value, list | tuple) else [str(value)]


def _group_seeds(seeds: Sequence[int], most: int) -> Iterator[tuple[int, int]]:
    """First seeds and numbers of seeds: in a row, and at most so many."""
    start = 0
    for place in range(1, len(seeds) + 1):
        is_next = place < len(seeds) and seeds[place] == seeds[place - 1] + 1
        if not is_next or place - start == most:
            yield seeds[start], place - start
            start = place


def _make_command(command: str, options: Mapping[str, Any]) -> tuple[str, ...]:
    parts = [command]
    if FILE in options:
        file = options[FILE]
        if not isinstance(file, str):
            raise DataError(
                f"file: expected one name, got {file!r:.40}: a list of files belongs into the grid"
            )
        if not file or file.startswith("-"):  # such as an option
            raise DataError(f"file: expected a name that does not begin with '-', got {file!r:.40}")
        parts.append(file)
    elif command != "train-online":
        raise DataError(f"{command} needs data: expected a file among the options or in the grid")
    parts += [part for key in options if key != FILE for part in _make_option(key, options[key])]
    if any("\0" in part for part in parts):
        raise DataError("a text with a zero byte cannot be given to a command")
    return tuple(parts)


def _make_option(key: str, value: Any) -> list[str]:
    """An option as it stands on a command line."""
    if isinstance(value, bool):
        return [f"--{key}" if value else f"--no-{key}"]
    if key == ENVIRONMENT_ARGUMENT:
        pairs = _make_arguments(value)
    elif isinstance(value, dict):
        pairs = [f"{name}={_show(inner)}" for name, inner in value.items()]
    else:
        pairs = [_show(value)]
        # Behind a flag it would be an option of its own. Numbers may be negative.
        if isinstance(value, str | list) and re.match(r"-(?![\d.])", pairs[0]):
            raise DataError(f"{key}: a text cannot begin with '-', got {pairs[0]!r:.40}")
    return [part for pair in pairs for part in (f"--{key}", pair)]


def _make_arguments(value: Any) -> list[str]:
    """Arguments of an environment as `NAME=VALUE`, which a command reads as they were meant."""
    if isinstance(value, str):
        return [value]
    if not isinstance(value, dict):
        raise DataError(
            f"{ENVIRONMENT_ARGUMENT}: expected a table such as {{ size = 3 }}, got {value!r:.40}"
        )
    for name in value:
        if not name.isidentifier():
            raise DataError(f"{ENVIRONMENT_ARGUMENT}: expected a plain name, got {name!r:.40}")
    return [f"{name}={_show_argument(name, inner)}" for name, inner in value.items()]


def _show_argument(name: str, value: Any) -> str:
    """A value as JSON. A text is left as it is, unless it would be read as something else."""
    if isinstance(value, str):
        try:
            json.loads(value)
        except json.JSONDecodeError:
            return value
        except (ValueError, RecursionError):  # a number of many digits, or deep brackets
            pass
        return json.dumps(value)
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        expected = "expected finite numbers, texts, lists or tables"
        raise DataError(f"{ENVIRONMENT_ARGUMENT}: {name}: {expected}, got {value!r:.40}") from None


def _show(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(_show(inner) for inner in value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)


def _name_value(key: str, value: Any) -> str:
    if isinstance(value, dict):
        return "-".join(_name_value(name, inner) for name, inner in value.items())
    if isinstance(value, str):
        return Path(value).stem if key == FILE else value
    return f"{key}={_show(value)}"


def _make_name(parts: Sequence[str]) -> str:
    name = re.sub(r"[^A-Za-z0-9._=-]+", "-", "-".join(parts)).strip("-")
    if len(name) <= MOST_LETTERS:
        return name
    end = f"-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return name[: MOST_LETTERS - len(end)] + end
