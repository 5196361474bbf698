"""Datasets in parts: a job for each part, on this machine or on a cluster.

FOLDER/part-00000.h5      the data, in as many files as there are parts
FOLDER/parts.json         the settings; a folder of other settings is refused
FOLDER/jobs/part-00000/   the mark of the part, and what its command printed

A part is written in full or not at all, and depends on nothing but the settings and its number. So
it does not matter where it is made, after what fault, or together with how many others.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from grd_offline.core.errors import DataError
from grd_offline.core.settings import describe_settings
from grd_offline.io.datasets import open_recording
from grd_offline.io.files.models import CONFIG, REWARD_FOLDER, WEIGHTS, find_model
from grd_offline.io.files.storage import Lock, check_writable, storage_errors
from grd_offline.io.formats.parts import (
    MOST_PARTS,
    Manifest,
    check_manifest,
    find_parts,
    name_part,
    read_manifest,
    write_manifest,
)
from grd_offline.lab.sweep.folder import hold_sweep
from grd_offline.lab.sweep.job import FAILED, describe_marks, find_folder, read_mark, write_mark
from grd_offline.lab.sweep.plan import Job
from grd_offline.learning.agents import EXPLORATIONS
from grd_offline.learning.collecting.runner import EpisodeRunner
from grd_offline.learning.collecting.settings import CollectSettings
from grd_offline.methods.matching import check_inputs
from grd_offline.methods.relabelling import check_exact
from grd_offline.rewards.model import RewardModel


def plan_collection(settings: CollectSettings, parts: int) -> PartsPlan:
    """The parts of a collection, which share its episodes as evenly as can be.

    The environment and the policies are tried first, so that a mistake is told once.
    """
    most = min(MOST_PARTS, settings.episodes)
    if not 1 <= parts <= most:
        raise DataError(
            f"expected at least 1 and at most {most:,} for {settings.episodes:,} episodes, got "
            f"{parts:,}",
            field="parts",
        )
    runner = EpisodeRunner(settings)
    runner.close()
    made = dict(json.loads(json.dumps(runner.header.settings)))
    versions = made.pop("versions")
    made["parts"] = parts
    count, more = divmod(settings.episodes, parts)
    jobs, first = [], settings.first_episode
    for number in range(parts):
        size = count + (number < more)
        one = replace(settings, episodes=size, first_episode=first, workers=1)
        jobs.append(make_part_job(name_part(number), _make_collect_command(one)))
        first += size
    names = tuple(str(job.file) for job in jobs)
    return PartsPlan(tuple(jobs), Manifest("collect", names, made, versions))


def _make_collect_command(settings: CollectSettings) -> list[str]:
    """The command that collects a part; it leaves nothing behind if it is stopped."""
    command = ["collect", "--no-partial"]
    for name, described in describe_settings(CollectSettings).items():
        option = described.setting.option or f"--{name.replace('_', '-')}"
        value = getattr(settings, name)
        if name == "policy" and value not in EXPLORATIONS:
            value = os.path.abspath(value)
        if isinstance(value, Mapping):
            for key, inner in value.items():
                command += [option, f"{key}={json.dumps(inner)}"]
        elif value is True:
            command.append(option)
        elif name == "workers" or (value != described.default and value is not None):
            command += [option, str(value)]
    return command


def plan_relabelling(
    source: str | os.PathLike[str],
    model: str | os.PathLike[str],
    *,
    exact_returns: bool = False,
    max_episode_steps: int | None = None,
    max_bytes: int | None = None,
) -> PartsPlan:
    """The parts of a dataset in parts with the rewards of a model: one for each.

    The model and the first part are read first, so that a mistake is told once.
    """
    folder = Path(os.path.abspath(source))
    paths = find_parts(folder)
    if not paths:
        raise DataError("holds no parts (part-00000.h5)", file=source)
    place = Path(os.path.abspath(model))
    loaded = RewardModel.load(place)
    check_exact(loaded, exact_returns)
    with open_recording(
        paths[0], max_episode_steps=max_episode_steps, max_bytes=max_bytes
    ) as first:
        check_inputs(loaded, first, paths[0])
    options = ["--model", str(place), *(["--exact-returns"] if exact_returns else [])]
    for name, value in (("max-episode-steps", max_episode_steps), ("max-size", max_bytes)):
        options += [] if value is None else [f"--{name}", str(value)]
    before = read_manifest(folder)
    settings = {
        "data": str(folder),
        "data_settings": None if before is None else dict(before.settings),
        "model": _identify_model(place),
        "exact_returns": exact_returns,
        "max_episode_steps": max_episode_steps,
    }
    return PartsPlan(
        tuple(make_part_job(path.name, ["relabel", str(path), *options]) for path in paths),
        Manifest(
            "relabel",
            tuple(path.name for path in paths) if before is None else before.parts,
            settings,
            sources={path.name: _identify_file(path) for path in paths},
        ),
    )


def _identify_model(folder: Path) -> str:
    """A short digest of a saved reward model."""
    place = find_model(folder, REWARD_FOLDER)
    digest = hashlib.sha256()
    for name in (CONFIG, WEIGHTS):
        digest.update((place / name).read_bytes())
    return digest.hexdigest()[:16]


def _identify_file(path: Path) -> list[int]:
    status = path.stat()
    return [status.st_size, status.st_mtime_ns]


@dataclass(frozen=True)
class PartsPlan:
    """What is to be made: a job for each part, and what all of them have in common."""

    jobs: tuple[Job, ...]
    manifest: Manifest


def make_part_job(file: str, command: list[str]) -> Job:
    """The job that makes a part."""
    return Job(file.removesuffix(".h5"), tuple(command), file=file)


def hold_parts(folder: Path, plan: PartsPlan) -> Lock:
    """Make the folder ready, and keep others out of it until the lock is released.

    A folder of other settings is refused. A part whose source has changed is to be made again.
    """
    check_manifest(folder, plan.manifest)
    check_writable(folder)
    with storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    held = hold_sweep(folder)
    try:
        describe_marks(folder, plan.jobs)  # other commands are refused before anything changes
        before = read_manifest(folder)
        if before is not None:
            for job in plan.jobs:
                _drop_outdated(folder, job, before.sources, plan.manifest.sources)
        begun = plan.manifest if before is None else before
        write_manifest(folder, replace(plan.manifest, versions=begun.versions))
    except BaseException:
        held.release()
        raise
    return held


def describe_versions(folder: Path, plan: PartsPlan) -> str | None:
    """Say which packages have another version than when the folder was begun, if any have."""
    before = read_manifest(folder)
    then, now = (before.versions if before else {}), plan.manifest.versions
    changed = [
        f"{name} {then[name]}, now {now[name]}"
        for name in now
        if then.get(name, now[name]) != now[name]
    ]
    return f"the first parts were made with {'; '.join(changed)}" if changed else None


def _drop_outdated(
    folder: Path, job: Job, before: Mapping[str, list[int]], now: Mapping[str, list[int]]
) -> None:
    """Take the mark of a part back whose source is another file than it was."""
    name = str(job.file)
    mark = read_mark(find_folder(folder, job))
    if mark is not None and name in before and before[name] != now.get(name):
        outdated = replace(mark, state=FAILED, reason="its data have changed")
        write_mark(find_folder(folder, job), outdated)
