"""The folders of results: what belongs to each, how they are written and read, and their names.

A run of `train-online` or `train-offline`:

settings.json           settings, members, versions, the command
evaluations.csv         every evaluation of every member
log.csv                 losses and training returns, every 1,000 steps
members/NAME/masks/     the masks at each evaluation
members/NAME/episodes/  rewards found and true along one episode, at each evaluation

A decomposition:

metrics.json        how good the decomposition is, what the data cannot tell, settings, versions
masks.json          the four masks of the causal graph, their scores, and the compact state
effects.json        the effects that add up to the reward, each with its curve and band
relabelled.h5       the data with a reward at every step; a folder if the data were Minari's
relabelled.csv      the rewards as a table, if the data were one (or .parquet, .jsonl)
reward_model/       the reward as a function
dynamics_model/     the next state as a function

Decompositions of several outcomes:

outcomes.json       the names of the outcomes, and how their rewards correlate
report.html         the effects of all outcomes side by side
NAME/               the decomposition of one outcome

A judgement:

judge.json          verdicts on all sources of rewards, how they were found, settings, versions
judge.csv           the verdicts as a table
run/                the run of offline training behind them

Reading needs numpy only: neither the networks nor the environments of a run. A link that leads out
of a folder is refused.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict, TypeVar

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from grd_offline.core.errors import DataError, printable
from grd_offline.core.inputs import InputRef
from grd_offline.core.typing import Array
from grd_offline.io.files import MINARI_FILES, PLOTS_FOLDER, REPORT_FILE
from grd_offline.io.files.models import DYNAMICS_FOLDER, MODEL_FILES, REWARD_FOLDER
from grd_offline.io.files.plain import (
    TABLE_BYTES,
    convert,
    folder_errors,
    read_json,
    read_record,
    read_table,
    refuse_outside,
    write_json,
)
from grd_offline.io.files.storage import (
    append_file,
    create_file,
    holds_only,
    make_folder,
    replace_file,
)

ABOUT_BYTES, MASK_BYTES, EPISODE_BYTES, LOG_BYTES = 8 * 2**20, 16 * 2**20, 4 * 2**20, 256 * 2**20
MOST_EDGES = 2**20
"""Edges of one mask: a thousand states to a thousand states."""
MOST_MEMBERS, MOST_GROUPS, MOST_NAME_BYTES, MOST_DIGITS = 2000, 500, 200, 20
"""Digits are those of a seed."""
LARGEST = 1e100
"""Larger numbers in a table are refused: their squares leave the range of floats."""
Item = TypeVar("Item")
SWEEP_FILE = "sweep.json"
JOBS_FOLDER, RESULT_FOLDER = "jobs", "result"
SETTINGS_FILE, EVALUATIONS_FILE, LOG_FILE = "settings.json", "evaluations.csv", "log.csv"
_ENDINGS = {"masks": "json", "episodes": "csv"}
"""Endings of the files that a member writes at each evaluation."""
EVALUATION_COLUMNS = (
    "step", "seconds", "member", "group", "seed", "mean_return", "std_return", "min_return",
    "max_return", "mean_length", "correlation", "edges_on", "compact_states", "policy_states",
    "success_rate",
)  # fmt: skip
FORMAT, OFFLINE = "grd-offline run", "grd-offline offline run"
"""The format in `settings.json` of a run of `train-online`, and of `train-offline`."""
VERSION = 2
MASKS = (
    ("state_to_reward", "state → reward"),
    ("action_to_reward", "action → reward"),
    ("state_to_state", "state → state"),
    ("action_to_state", "action → state"),
)
"""Names of the masks in files, and in words."""


@dataclass(frozen=True)
class RunRecord:
    """The files of a run."""

    path: Path
    environment: str
    rows: Sequence[Mapping[str, str]]
    """The rows of `evaluations.csv`."""
    members: tuple[str, ...]
    """Names of the members in the order of training."""
    about: Mapping[str, Any]
    """The contents of `settings.json`: settings, versions, the command."""

    @property
    def name(self) -> str:
        return self.path.resolve().name

    @property
    def unit(self) -> str:
        """The unit of its steps."""
        return "updates" if self.about["format"] == OFFLINE else "environment steps"


@dataclass(frozen=True, eq=False)
class EpisodeRewards:
    """The found and the true rewards along one episode."""

    member: str
    step: int
    found: Array
    true: Array


def read_run(path: Path) -> RunRecord:
    """Read a run that has at least one evaluation."""
    contents = read_about(path, (FORMAT, OFFLINE))
    table = path / EVALUATIONS_FILE
    rows = read_rows(table)
    if not rows:
        raise DataError("no evaluation yet", file=path)
    missing = {"group", "seed", "member", "mean_return"} - rows[0].keys()
    if missing:
        raise DataError(f"expected a column {min(missing)}", file=table)
    members = tuple(dict.fromkeys(row["member"] for row in rows))
    if len(members) > MOST_MEMBERS:
        raise DataError(f"{len(members)} members, more than {MOST_MEMBERS}", file=table)
    for member in members:
        _check_name(member, table)
    owners = {(row["member"], row["group"], row["seed"]) for row in rows}
    groups = {group for _, group, _ in owners}
    if len(owners) > len(members) or len(groups) > MOST_GROUPS:
        raise DataError(
            f"expected one group and one seed for each member and at most {MOST_GROUPS} groups, "
            f"got {len(owners)} of {len(members)} members in {len(groups)} groups",
            file=table,
        )
    for _, group, seed in owners:
        _check_name(group, table)
        if not _is_whole(seed) or len(seed) > MOST_DIGITS:
            raise DataError(f"seed: expected a whole number, got {seed[:40]!r}", file=table)
    return RunRecord(path, str(contents.get("environment") or ""), rows, members, contents)


def _check_name(member: str, table: Path) -> None:
    """Refuse a member's name that, as a folder, would lead out of the run."""
    is_fine = member.isprintable() and len(member.encode()) <= MOST_NAME_BYTES
    if not is_fine or Path(member).name != member or member == "..":
        raise DataError(f"expected the name of a member, got {member[:40]!r}", file=table)


class About(TypedDict, total=False):
    """Types of the values in `settings.json`."""

    command: list[str]
    environment: str | None
    settings: dict[str, Any]
    members: list[Any]
    device: str
    workers: int
    versions: dict[str, Any]


def read_about(folder: Path, formats: Sequence[str] = (FORMAT,)) -> dict[str, Any]:
    """Read the `settings.json` of a run, of the version that this package writes."""
    path = folder / SETTINGS_FILE
    try:
        contents = read_record(path, formats, VERSION, ABOUT_BYTES, inside=folder)
    except FileNotFoundError:
        reason = f"not a run: no {SETTINGS_FILE}" if folder.exists() else "no such folder"
        raise DataError(reason, file=folder) from None
    convert(contents, About, path)
    return contents


def start_table(path: Path, columns: Sequence[str], rows: Sequence[Mapping[str, Any]] = ()) -> None:
    """Write a table of a run in full or not at all."""
    with replace_file(path) as output:
        output.write(_as_csv(columns, rows, header=True))


def append_rows(path: Path, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Append rows to a table of a run; missing values stay empty."""
    append_file(path, _as_csv(columns, rows))


def _as_csv(
    columns: Sequence[str], rows: Sequence[Mapping[str, Any]], *, header: bool = False
) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, restval="", extrasaction="ignore")
    if header:
        writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def read_rows(path: Path, limit: int = TABLE_BYTES) -> list[dict[str, str]]:
    """Read a table of a run; a row that was cut off by a kill is left out."""
    table = read_table(path, limit, inside=path.parent)
    return [row for row in table if _is_step(row.get("step", ""))]


def _is_step(text: str) -> bool:
    return _is_whole(text) and len(text) <= 15


def _is_whole(text: str) -> bool:
    return text.isascii() and text.isdecimal()


def write_masks(
    folder: Path, member: str, step: int, masks: Mapping[str, ArrayLike], compact: NDArray[Any]
) -> None:
    """Write a member's masks and compact state into the folder of its run."""
    plain = {name: np.asarray(mask).astype(int).tolist() for name, mask in masks.items()}
    contents = {"step": step, **plain, "compact": compact.astype(int).tolist()}
    with replace_file(_name_file(folder, member, "masks", step)) as output:
        # The module json takes a hundred times as long, and training waits meanwhile.
        output.write(msgspec.json.encode(contents))


def write_episode(
    folder: Path, member: str, step: int, found: NDArray[Any], true: NDArray[Any]
) -> None:
    """Write the rewards of one episode, found and true, into the folder of its run."""
    lines = ["reward,true_reward"]
    lines += [f"{ours:.6g},{theirs:.6g}" for ours, theirs in zip(found, true, strict=True)]
    with replace_file(_name_file(folder, member, "episodes", step)) as output:
        output.write(("\n".join(lines) + "\n").encode())


def _name_file(folder: Path, member: str, kind: str, step: int) -> Path:
    return make_folder(folder, "members", member, kind) / f"step-{step:09d}.{_ENDINGS[kind]}"


def list_steps(run: RunRecord, member: str, kind: str) -> list[Path]:
    """List a member's files of one kind (masks or episodes) in the order of training."""
    return sorted((run.path / "members" / member / kind).glob(f"step-*.{_ENDINGS[kind]}"))


def read_masks(run: RunRecord, member: str, moments: int = 3) -> list[dict[str, Any]]:
    """Read a member's masks at up to `moments` evaluations, with the first and the last."""
    files = spread_out(list_steps(run, member, "masks"), moments)
    return [_read_mask(run, file) for file in files]


def spread_out(items: Sequence[Item], most: int) -> list[Item]:
    """Choose at most `most` items evenly, with the first and the last."""
    if len(items) <= most:
        return list(items)
    if most == 1:
        return [items[-1]]
    return [items[k * (len(items) - 1) // (most - 1)] for k in range(most)]


def _read_mask(run: RunRecord, file: Path) -> dict[str, Any]:
    with folder_errors(file, "cannot be read as masks"):
        contents = read_json(file, MASK_BYTES, inside=run.path)
        masks: dict[str, Any] = {"step": int(contents["step"])}
        for (name, _), dimensions in zip(MASKS, (1, 1, 2, 2), strict=True):
            mask = np.array(contents[name], np.float64)
            if mask.ndim != dimensions or not 0 < mask.size <= MOST_EDGES:
                raise ValueError(f"{name}: expected {dimensions} dimensions, got {mask.shape}")
            masks[name] = np.atleast_2d(mask)
        states, actions = masks["state_to_reward"].size, masks["action_to_reward"].size
        shapes = {"state_to_state": (states, states), "action_to_state": (actions, states)}
        for name, shape in shapes.items():
            if masks[name].shape != shape:
                raise ValueError(f"{name}: expected shape {shape}, got {masks[name].shape}")
        masks["compact"] = int(np.sum(contents.get("compact", 0)))
        return masks


def read_episodes(run: RunRecord, member: str, moments: int) -> list[EpisodeRewards]:
    """Read up to `moments` episodes of a member, with the first and the last."""
    files = spread_out(list_steps(run, member, "episodes"), moments)
    return [episode for file in files if (episode := _read_one(run, member, file))]


def read_episode(run: RunRecord, member: str) -> EpisodeRewards | None:
    """Read the last episode of a member, or return None if there is none."""
    return next(iter(read_episodes(run, member, 1)), None)


def _read_one(run: RunRecord, member: str, file: Path) -> EpisodeRewards | None:
    with folder_errors(file, "cannot be read as rewards"):
        rows = read_table(file, EPISODE_BYTES, inside=run.path)
        found = np.array([float(row["reward"]) for row in rows])
        true = np.array([float(row["true_reward"]) for row in rows])
        if not (np.abs(found) <= LARGEST).all() or not (np.abs(true) <= LARGEST).all():
            raise ValueError("expected finite numbers")
        step = file.stem.removeprefix("step-")
        if not _is_step(step):
            raise ValueError(f"expected a step in the name, got {step[:40]!r}")
    return EpisodeRewards(member, int(step), found, true) if rows else None


def choose_member(run: RunRecord, kind: str) -> str | None:
    """Choose the first member with files of this kind, if possible one with masks too."""
    for needed in (("masks", kind), (kind,)):
        for member in run.members:
            if all(list_steps(run, member, name) for name in needed):
                return member
    return None


def is_sweep(folder: Path) -> bool:
    return (folder / SWEEP_FILE).is_file()


def list_results(folder: Path) -> list[Path]:
    """Where the jobs of a sweep write, in its order. Jobs of earlier versions of its file are not
    among them."""
    path = folder / SWEEP_FILE
    contents = read_json(path)
    with folder_errors(path, "cannot be read as a sweep"):
        names = [check_job_name(str(job["name"])) for job in contents["jobs"]]
    return [folder / JOBS_FOLDER / name / RESULT_FOLDER for name in names]


def check_job_name(name: str) -> str:
    """Refuse a name that leads out of the folder of the jobs."""
    if Path(name).name != name or name in ("", ".."):
        raise ValueError(f"expected the name of a job, got {name[:40]!r}")
    return name


METRICS_FILE, MASKS_FILE, EFFECTS_FILE = "metrics.json", "masks.json", "effects.json"
RELABELLED = ("relabelled.h5", "relabelled")
TABLES = ("relabelled.csv", "relabelled.parquet", "relabelled.jsonl")
"""The rewards as a table, where the data came as one."""
MISFIT = "metrics, masks and effects do not fit together"
_FIGURES = ("returns", "importance", "effects", "masks", "rewards")
_ENTRIES = {
    RELABELLED[0], *TABLES, METRICS_FILE, MASKS_FILE, EFFECTS_FILE, REPORT_FILE,
    *(f"{RELABELLED[1]}/data/{name}" for name in MINARI_FILES),
    *(f"{model}/{name}" for model in (REWARD_FOLDER, DYNAMICS_FOLDER) for name in MODEL_FILES),
    *(f"{PLOTS_FOLDER}/{name}.*" for name in _FIGURES),
}  # fmt: skip
"""All files that a decomposition may hold, with the figures of `plot`."""
OUTCOMES_FILE = "outcomes.json"
JUDGE_FILE, TABLE_FILE, RUN_FOLDER = "judge.json", "judge.csv", "run"
JUDGE_FORMAT, JUDGE_VERSION = "grd-offline judge", 1
JUDGE_MISFIT = "cannot be read as verdicts"
TRUE, OBSERVED = "true", "observed"
"""The sources that no method found: the true rewards, and the delayed rewards as they are."""


def is_decomposition(folder: Path) -> bool:
    return (folder / METRICS_FILE).is_file() and (folder / REWARD_FOLDER).is_dir()


def is_replaceable(folder: Path) -> bool:
    """Whether a new decomposition may replace the folder: it holds an old one, nothing else."""
    return is_decomposition(folder) and holds_only(folder, _ENTRIES)


def find_relabelled(folder: Path) -> Path | None:
    """The relabelled data in the folder of a decomposition, or None."""
    return next((folder / name for name in RELABELLED if (folder / name).exists()), None)


def write_decomposition(
    folder: Path,
    *,
    metrics: Mapping[str, Any],
    masks: Mapping[str, Any],
    effects: Mapping[str, Any],
) -> None:
    """Write the three JSON files into a folder that `replace_folder` handed out."""
    files = {EFFECTS_FILE: effects, MASKS_FILE: masks, METRICS_FILE: metrics}
    for name, contents in files.items():
        with create_file(folder / name) as output:
            output.write(json.dumps(contents, indent=1, default=_encode).encode())


def _encode(value: Any) -> Any:
    return value.to_json() if isinstance(value, InputRef) else float(value)


def check_outcomes(names: Sequence[str]) -> None:
    """Refuse names that cannot be folders, or that stand there twice."""
    for name in names:
        if not re.fullmatch(r"[\w][\w .+-]{0,99}", name):
            raise DataError(f"{name!r:.60} cannot be the name of a folder", field="outcomes")
        if name in (OUTCOMES_FILE, REPORT_FILE):
            raise DataError(f"{name} is the name of a file of the results", field="outcomes")
    if len({name.casefold() for name in names}) < len(names):
        raise DataError("expected each of them once", field="outcomes")
    if len(names) < 2:
        raise DataError("expected at least two", field="outcomes")


def holds_outcomes_only(folder: Path) -> bool:
    """Whether new results may replace the folder: it holds old ones, nothing else."""
    if not (folder / OUTCOMES_FILE).is_file():
        return False
    entries = [e for e in folder.iterdir() if e.name not in (OUTCOMES_FILE, REPORT_FILE)]
    return all(is_replaceable(entry) and not entry.is_symlink() for entry in entries)


def write_outcomes(
    folder: Path, names: Sequence[str], correlation: Sequence[Sequence[float]]
) -> None:
    """Write the list of outcomes."""
    contents: Mapping[str, object] = {"outcomes": list(names), "correlation": correlation}
    with create_file(folder / OUTCOMES_FILE) as output:
        output.write(json.dumps(contents, indent=1).encode())


def has_outcomes(folder: Path) -> bool:
    """Whether a folder holds the decompositions of several outcomes."""
    return (folder / OUTCOMES_FILE).is_file()


class _Outcomes(TypedDict):
    """What is read of `outcomes.json`."""

    outcomes: list[str]
    correlation: list[list[float]]


def read_names(folder: Path) -> tuple[list[str], NDArray[np.float64]]:
    """Read the names of the outcomes, and the correlation of their rewards."""
    file = folder / OUTCOMES_FILE
    found = convert(read_json(file, inside=folder), _Outcomes, file)
    names, rows = found["outcomes"], found["correlation"]
    try:
        check_outcomes(names)
    except DataError as error:
        raise error.at(file=file) from None
    if [len(row) for row in rows] != [len(names)] * len(names):
        raise DataError("expected a number for each pair", file=file, field="correlation")
    return names, np.array(rows)


class SeedScores:
    """The mean and the standard deviation of the scores of several seeds."""

    scores: tuple[float, ...]

    @property
    def mean(self) -> float:
        return float(np.mean(self.scores))

    @property
    def spread(self) -> float:
        return float(np.std(self.scores))


@dataclass(frozen=True)
class SourceScores(SeedScores):
    """Scores of the policies that were trained on one source of rewards."""

    source: str
    scores: tuple[float, ...]
    """The score of each seed."""
    share_of_true: float | None
    """Mean score as a share of that with the true rewards; None where that is not above 0."""
    share_of_gain: float | None
    """Gain over the mean return of the data, as a fraction of the gain with the true rewards. None
    if there is no gain."""
    pearson: float | None
    """Correlation of the rewards with the true ones over all steps of the data."""

    def to_json(self) -> dict[str, Any]:
        means = {"source": self.source, "mean_return": self.mean, "std_return": self.spread}
        measures = {name: value for name, value in vars(self).items() if name != "scores"}
        return {**means, **measures, "scores": list(self.scores)}


@dataclass(frozen=True)
class JudgementRecord:
    """The files of a judgement."""

    path: Path
    about: Mapping[str, Any]
    """The contents of `judge.json`."""
    run: RunRecord
    ranking: tuple[SourceScores, ...]
    """The verdict with the best mean score comes first."""
    sources: Mapping[str, Mapping[str, Any]]
    """For each source, a description of how its rewards were found."""

    @property
    def methods(self) -> list[SourceScores]:
        """The verdicts on methods; there is at least one."""
        return [verdict for verdict in self.ranking if verdict.source not in (TRUE, OBSERVED)]

    @property
    def best(self) -> SourceScores:
        return self.methods[0]

    @property
    def data_mean(self) -> float | None:
        """Mean return of the episodes in the data."""
        mean = self.about["data_mean_return"]
        return None if mean is None else float(mean)

    def find(self, source: str) -> SourceScores | None:
        """Return the verdict on a source, if there is one."""
        return next((verdict for verdict in self.ranking if verdict.source == source), None)


def is_judgement(folder: Path) -> bool:
    return (folder / JUDGE_FILE).is_file()


def write_judgement(
    folder: Path, verdicts: Sequence[SourceScores], about: Mapping[str, Any]
) -> None:
    """Write the verdicts as JSON, together with `about`, and as a table."""
    rows = [verdict.to_json() for verdict in verdicts]
    contents = {"format": JUDGE_FORMAT, "version": JUDGE_VERSION, **about, "verdicts": rows}
    write_json(folder / JUDGE_FILE, contents)
    start_table(folder / TABLE_FILE, [name for name in rows[0] if name != "scores"], rows)


class _About(TypedDict):
    """What is read of `judge.json`."""

    verdicts: list[SourceScores]
    sources: dict[str, dict[str, Any] | None]


def read_judgement(folder: Path) -> JudgementRecord:
    """Read a judgement of the version that this package writes."""
    path = folder / JUDGE_FILE
    try:
        about = read_record(path, (JUDGE_FORMAT,), JUDGE_VERSION, inside=folder)
    except FileNotFoundError:
        raise DataError(f"not a folder of judge: no {JUDGE_FILE}", file=folder) from None
    found = convert(about, _About, path)
    refuse_outside(folder / RUN_FOLDER, folder)
    run = read_run(folder / RUN_FOLDER)
    verdicts = [replace(one, source=printable(one.source)) for one in found["verdicts"]]
    for one in verdicts:
        if not one.scores or not math.isfinite(one.mean) or not math.isfinite(one.spread):
            raise DataError(f"{one.source}: expected finite scores", file=path)
    if all(one.source in (TRUE, OBSERVED) for one in verdicts):
        raise DataError("expected a verdict on at least one method", file=path)
    ranking = tuple(sorted(verdicts, key=lambda verdict: -verdict.mean))
    sources = {printable(name): one or {} for name, one in found["sources"].items()}
    return JudgementRecord(folder, about, run, ranking, sources)
