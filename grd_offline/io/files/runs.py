"""The folder of a run of `train-online` or `train-offline`, and where a sweep keeps its runs.

settings.json           settings, members, versions, the command
evaluations.csv         every evaluation of every member
log.csv                 losses and training returns, every 1,000 steps
members/NAME/masks/     the masks at each evaluation
members/NAME/episodes/  rewards found and true along one episode, at each evaluation

Reading needs numpy only: neither the networks nor the environments of the run. A link that leads
out of the folder is refused.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, TypeVar

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from grd_offline.core.errors import DataError
from grd_offline.core.typing import Array
from grd_offline.io.files.plain import (
    TABLE_BYTES,
    convert,
    folder_errors,
    read_json,
    read_record,
    read_table,
)
from grd_offline.io.files.storage import append_file, make_folder, replace_file

ABOUT_BYTES = 8 * 2**20
MASK_BYTES = 16 * 2**20
EPISODE_BYTES = 4 * 2**20
LOG_BYTES = 256 * 2**20
MOST_EDGES = 2**20
"""Edges of one mask: a thousand states to a thousand states."""
MOST_MEMBERS = 2000
MOST_GROUPS = 500
MOST_NAME_BYTES = 200
MOST_DIGITS = 20
"""Digits of a seed."""
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
