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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from grd_offline.core.errors import DataError
from grd_offline.core.settings import describe_settings
from grd_offline.io import datasets
from grd_offline.io.files.models import CONFIG, REWARD_FOLDER, WEIGHTS, find_model
from grd_offline.lab.sweep import folder as sweeps
from grd_offline.lab.sweep.plan import Job
from grd_offline.learning.agents import EXPLORATIONS
from grd_offline.learning.collecting.dataset import EpisodeRunner
from grd_offline.learning.settings import CollectSettings
from grd_offline.methods.relabelling import check_exact, check_inputs
from grd_offline.rewards.model import RewardModel


def plan_collection(settings: CollectSettings, parts: int) -> PartsPlan:
    """The parts of a collection, which share its episodes as evenly as can be.

    The environment and the policies are tried first, so that a mistake is told once.
    """
    most = min(datasets.MOST_PARTS, settings.episodes)
    if not 1 <= parts <= most:
        expected = f"expected at least 1 and at most {most:,} for {settings.episodes:,} episodes"
        raise DataError(f"{expected}, got {parts:,}", field="parts")
    runner = EpisodeRunner(settings)
    runner.close()
    made = {**json.loads(json.dumps(runner.header.settings)), "parts": parts}
    versions = made.pop("versions")
    count, more = divmod(settings.episodes, parts)
    jobs, first = [], settings.first_episode
    for number in range(parts):
        size = count + (number < more)
        one = replace(settings, episodes=size, first_episode=first, workers=1)
        jobs.append(make_part_job(datasets.name_part(number), _make_collect_command(one)))
        first += size
    names = tuple(str(job.file) for job in jobs)
    return PartsPlan(tuple(jobs), datasets.Manifest("collect", names, made, versions))


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
    paths = datasets.find_parts(folder)
    if not paths:
        raise DataError("holds no parts (part-00000.h5)", file=source)
    place = Path(os.path.abspath(model))
    loaded = RewardModel.load(place)
    check_exact(loaded, exact_returns)
    limits: dict[str, Any] = {"max_episode_steps": max_episode_steps, "max_bytes": max_bytes}
    with datasets.open_recording(paths[0], **limits) as first:
        check_inputs(loaded, first, paths[0])
    options = ["--model", str(place), *(["--exact-returns"] if exact_returns else [])]
    for name, value in (("max-episode-steps", max_episode_steps), ("max-size", max_bytes)):
        options += [] if value is None else [f"--{name}", str(value)]
    before = datasets.read_manifest(folder)
    settings = {
        "data": str(folder),
        "data_settings": None if before is None else dict(before.settings),
        "model": _identify_model(place),
        "exact_returns": exact_returns,
        "max_episode_steps": max_episode_steps,
    }
    jobs = tuple(make_part_job(path.name, ["relabel", str(path), *options]) for path in paths)
    names = tuple(path.name for path in paths) if before is None else before.parts
    states = {path.name: path.stat() for path in paths}
    sources = {name: [state.st_size, state.st_mtime_ns] for name, state in states.items()}
    return PartsPlan(jobs, datasets.Manifest("relabel", names, settings, sources=sources))


def _identify_model(folder: Path) -> str:
    """A short digest of a saved reward model."""
    place = find_model(folder, REWARD_FOLDER)
    contents = b"".join((place / name).read_bytes() for name in (CONFIG, WEIGHTS))
    return hashlib.sha256(contents).hexdigest()[:16]


@dataclass(frozen=True)
class PartsPlan:
    """What is to be made: a job for each part, and what all of them have in common."""

    jobs: tuple[Job, ...]
    manifest: datasets.Manifest


def make_part_job(file: str, command: list[str]) -> Job:
    """The job that makes a part."""
    return Job(file.removesuffix(".h5"), tuple(command), file=file)


@contextmanager
def hold_parts(folder: Path, plan: PartsPlan) -> Iterator[None]:
    """Make the folder ready, and keep others out of it meanwhile.

    A folder of other settings is refused. A part whose source has changed is to be made again.
    """
    datasets.check_manifest(folder, plan.manifest)
    with sweeps.hold_sweep(folder):
        # Other commands are refused before anything changes.
        sweeps.describe_marks(folder, plan.jobs)
        begun = datasets.read_manifest(folder) or plan.manifest
        for job in plan.jobs:
            source, now = (one.sources.get(str(job.file)) for one in (begun, plan.manifest))
            mark = sweeps.read_mark(sweeps.find_folder(folder, job))
            if mark is not None and source is not None and source != now:
                outdated = replace(mark, state=sweeps.FAILED, reason="its data have changed")
                sweeps.write_mark(sweeps.find_folder(folder, job), outdated)
        datasets.write_manifest(folder, replace(plan.manifest, versions=begun.versions))
        yield


def describe_versions(folder: Path, plan: PartsPlan) -> str | None:
    """Say which packages have another version than when the folder was begun, if any have."""
    before = datasets.read_manifest(folder)
    then, now = (before.versions if before else {}), plan.manifest.versions
    changed = [f"{n} {then[n]}, now {now[n]}" for n in now if then.get(n, now[n]) != now[n]]
    return f"the first parts were made with {'; '.join(changed)}" if changed else None
