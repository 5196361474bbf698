"""Datasets in parts: a job for each part, on this machine or on a cluster.

FOLDER/part-00000.h5      the data, in as many files as there are parts
FOLDER/parts.json         the settings; a folder of other settings is refused
FOLDER/jobs/part-00000/   the mark of the part, and what its command printed

A part is written in full or not at all, and depends on nothing but the settings and its number. So
it does not matter where it is made, after what fault, or together with how many others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from grd_offline.io.files.locks import Lock
from grd_offline.io.files.parts import Manifest, check_manifest, read_manifest, write_manifest
from grd_offline.io.files.storage import check_writable, storage_errors
from grd_offline.lab.sweep.folder import hold_sweep
from grd_offline.lab.sweep.job import FAILED, describe_marks, find_folder, read_mark, write_mark
from grd_offline.lab.sweep.plan import Job


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
