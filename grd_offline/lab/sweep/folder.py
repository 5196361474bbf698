"""The folder of a sweep.

sweep.toml      a copy of the sweep file
sweep.json      title, jobs and the command
jobs/NAME/      one folder for each job
report.html     one page over all jobs
comparison/     tables and figures over all runs
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from grd_offline.comparison.compare import Comparison, compare_scores
from grd_offline.comparison.paper import FILE_BYTES, Printed, parse_printed
from grd_offline.comparison.scores import collect_scores, find_runs
from grd_offline.core.errors import DataError, printable
from grd_offline.core.words import format_seconds
from grd_offline.io.files.plain import (
    convert,
    folder_errors,
    read_bytes,
    read_record,
    write_json,
)
from grd_offline.io.files.results import (
    JOBS_FOLDER,
    RESULT_FOLDER,
    SWEEP_FILE,
    RunRecord,
    check_job_name,
    is_decomposition,
    is_judgement,
    is_sweep,
    read_judgement,
)
from grd_offline.io.files.storage import (
    LOCK_FILE,
    Lock,
    check_writable,
    lock_folder,
    replace_file,
    storage_errors,
)
from grd_offline.lab.sweep.job import FINISHED, STARTED, Mark, read_mark
from grd_offline.lab.sweep.plan import Job, SweepPlan
from grd_offline.methods.result import read_decomposition

FORMAT, VERSION = "grd-offline sweep", 1
COPY_FILE = "sweep.toml"
COMPARISON_FOLDER = "comparison"


class _Sweep(TypedDict):
    """What is read of `sweep.json`."""

    title: str
    about: str
    jobs: tuple[Job, ...]


@dataclass(frozen=True)
class SweepRecord:
    """What a sweep left on disk."""

    path: Path
    title: str
    about: str
    jobs: tuple[Job, ...]
    printed: tuple[Printed, ...]
    marks: dict[str, Mark | None]
    """The mark of each job, by name. None if it was never started."""


def hold_new_sweep(folder: Path) -> Lock:
    """Make the folder of a sweep where there is none, and keep other sweeps out of it."""
    if folder.exists() and not is_sweep(folder):
        if not folder.is_dir():
            raise DataError("is not a folder: choose another name with --out", file=folder)
        if any(entry.name != LOCK_FILE for entry in folder.iterdir()):
            reason = "exists and is not a sweep: choose another name with --out"
            raise DataError(reason, file=folder)
    check_writable(folder)
    with storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return hold_sweep(folder)


def write_sweep(folder: Path, plan: SweepPlan, command: Sequence[str], scale: float) -> None:
    """Write what a sweep consists of, or bring it up to date."""
    contents = {
        "format": FORMAT,
        "version": VERSION,
        "title": plan.title,
        "about": plan.about,
        "command": list(command),
        "scale": scale,
        "jobs": [{**vars(job), "command": list(job.command)} for job in plan.jobs],
        "paper": [number.to_json() for number in plan.printed],
    }
    write_json(folder / SWEEP_FILE, json.loads(json.dumps(contents)))
    with replace_file(folder / COPY_FILE) as output:
        output.write(read_bytes(plan.path, FILE_BYTES))


def hold_sweep(folder: Path) -> Lock:
    """Keep other sweeps out of a folder until the lock is released."""
    try:
        return lock_folder(folder)
    except BlockingIOError:
        raise DataError("another command is at work in it", file=folder) from None


def read_sweep(folder: Path) -> SweepRecord:
    """Read the folder of a sweep."""
    path = folder / SWEEP_FILE
    contents = read_record(path, (FORMAT,), VERSION)
    found = convert(contents, _Sweep, path)
    jobs = tuple(Job(job.name, job.command, job.total) for job in found["jobs"])
    with folder_errors(path, "cannot be read as a sweep"):
        for job in jobs:
            if printable(check_job_name(job.name)) != job.name or not job.command:
                raise ValueError(f"expected a name and a command, got {job.name[:40]!r}")
        marks = {job.name: _read_own_mark(folder, job) for job in jobs}
        printed = parse_printed(contents["paper"], path)
    title, about = printable(found["title"]), printable(found["about"])
    return SweepRecord(folder, title, about, jobs, printed, marks)


def _read_own_mark(folder: Path, job: Job) -> Mark | None:
    """The mark of a job; None also where a link leads to the job of another sweep."""
    place = folder / JOBS_FOLDER
    is_link = place.is_symlink() or (place / job.name).is_symlink()
    return None if is_link else read_mark(place / job.name)


def find_link(folder: Path, job: Job) -> Path | None:
    """A link on the way to the result of a job, which may lead out of the sweep. None if none."""
    place = folder / JOBS_FOLDER
    ways = (place, place / job.name, place / job.name / RESULT_FOLDER)
    return next((way for way in ways if way.is_symlink()), None)


def list_others(folder: Path, jobs: Sequence[Job]) -> list[str]:
    """Folders of jobs that the sweep does not have, or does not have any more."""
    place, known = folder / JOBS_FOLDER, {job.name for job in jobs}
    found = sorted(entry.name for entry in place.iterdir()) if place.is_dir() else []
    return [name for name in found if name not in known]


def compare_sweep(record: SweepRecord) -> tuple[Comparison, list[RunRecord]] | str:
    """Compare the methods of all jobs that are finished, or say why that cannot be done.

    A job whose result cannot be read is left out, and a note says so.
    """
    runs, notes = [], []
    for job in record.jobs:
        mark = record.marks[job.name]
        if job.command[0] == "decompose":
            continue
        if (link := find_link(record.path, job)) is not None:
            notes.append(f"The job {job.name} is left out: {_tell_link(link)}.")
        elif mark is not None and mark.state == FINISHED:
            try:
                runs += find_runs(record.path / JOBS_FOLDER / job.name / RESULT_FOLDER)
            except DataError as error:
                notes.append(f"The job {job.name} is left out: {error}.")
    try:
        scores = collect_scores(runs)
    except DataError as error:
        return str(error)
    if not scores:
        return "no job has evaluations"
    return compare_scores(scores, printed=record.printed, notes=notes), runs


def list_jobs(record: SweepRecord) -> list[tuple[str, ...]]:
    """A row for each job: name, state, tries, time, result and command."""
    rows: list[tuple[str, ...]] = []
    for job in record.jobs:
        mark = record.marks[job.name]
        state = "new" if mark is None else "cut off" if mark.state == STARTED else mark.state
        tries = "0" if mark is None else str(mark.tries)
        seconds = "-" if mark is None else format_seconds(mark.seconds)
        command = f"grd-offline {' '.join(job.command)}"
        rows.append((job.name, state, tries, seconds, describe_result(record, job), command))
    return rows


def describe_result(record: SweepRecord, job: Job) -> str:
    """What came out of a job, in a few words."""
    if (link := find_link(record.path, job)) is not None:
        return _tell_link(link)
    mark = record.marks[job.name]
    if mark is None:
        return ""
    if mark.state != FINISHED:
        return mark.reason
    try:
        return _describe_folder(record.path / JOBS_FOLDER / job.name / RESULT_FOLDER)
    except DataError as error:
        return str(error)


def _tell_link(link: Path) -> str:
    return printable(f"{link} is a link, which is not followed")


def _describe_folder(result: Path) -> str:
    if is_decomposition(result):
        with folder_errors(result, "cannot be read as a decomposition"):
            return printable(str(read_decomposition(result).metrics["verdict"]["level"]))
    if is_judgement(result):
        best = read_judgement(result).best
        return printable(f"{best.source} {best.mean:,.4g}")
    runs = find_runs(result)
    means = [f"{s.method} {sum(s.values) / len(s.values):,.4g}" for s in collect_scores(runs)]
    more = f" and {len(means) - 3} more" if len(means) > 3 else ""
    return printable(", ".join(means[:3]) + more)
