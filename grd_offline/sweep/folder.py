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

from grd_offline.comparison.compare import Comparison, compare_scores
from grd_offline.comparison.paper import FILE_BYTES, Printed, parse_printed
from grd_offline.comparison.scores import collect_scores, find_runs
from grd_offline.errors import DataError, printable
from grd_offline.files.decomposition import is_decomposition, read_decomposition
from grd_offline.files.judgement import is_judgement, read_judgement
from grd_offline.files.locks import Lock
from grd_offline.files.plain import folder_errors, read_bytes, read_json
from grd_offline.files.runs import RunRecord, write_json
from grd_offline.files.storage import check_writable, lock_folder, replace_file, storage_errors
from grd_offline.sweep.job import FINISHED, JOBS_FOLDER, RESULT_FOLDER, Mark, read_mark
from grd_offline.sweep.plan import Job, Plan

FORMAT, VERSION = "grd-offline sweep", 1
SWEEP_FILE, COPY_FILE = "sweep.json", "sweep.toml"
COMPARISON_FOLDER = "comparison"


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


def is_sweep(folder: Path) -> bool:
    return (folder / SWEEP_FILE).is_file()


def write_sweep(folder: Path, plan: Plan, command: Sequence[str], scale: float) -> None:
    """Make the folder of a sweep, or bring it up to date."""
    if folder.exists() and not is_sweep(folder) and any(folder.iterdir()):
        raise DataError("exists and is not a sweep: choose another name with --out", file=folder)
    check_writable(folder)
    with storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with replace_file(folder / COPY_FILE) as output:
        output.write(read_bytes(plan.path, FILE_BYTES))
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


def hold_sweep(folder: Path) -> Lock:
    """Keep other sweeps out of a folder until the lock is released."""
    try:
        return lock_folder(folder)
    except BlockingIOError:
        raise DataError("another command is at work in it", file=folder) from None


def read_sweep(folder: Path) -> SweepRecord:
    """Read the folder of a sweep."""
    path = folder / SWEEP_FILE
    contents = read_json(path)
    with folder_errors(path, "cannot be read as a sweep"):
        if contents["format"] != FORMAT or contents["version"] != VERSION:
            raise ValueError(f"expected {FORMAT}, version {VERSION}")
        jobs = tuple(
            Job(_check_name(str(one["name"])), tuple(map(str, one["command"])), one["total"])
            for one in contents["jobs"]
        )
        marks = {job.name: read_mark(folder / JOBS_FOLDER / job.name) for job in jobs}
        printed = parse_printed(contents["paper"], path)
        title, about = printable(str(contents["title"])), printable(str(contents["about"]))
        return SweepRecord(folder, title, about, jobs, printed, marks)


def _check_name(name: str) -> str:
    if Path(name).name != name or name in ("", ".."):
        raise ValueError(f"expected the name of a job, got {name[:40]!r}")
    return name


def find_sweep_runs(record: SweepRecord) -> list[RunRecord]:
    """The training runs of all jobs that are finished."""
    runs = []
    for job in record.jobs:
        mark = record.marks[job.name]
        if mark is not None and mark.state == FINISHED and job.command[0] != "decompose":
            runs += find_runs(record.path / JOBS_FOLDER / job.name / RESULT_FOLDER)
    return runs


def compare_sweep(record: SweepRecord) -> tuple[Comparison, list[RunRecord]] | str:
    """Compare the methods of a sweep, or say why that cannot be done."""
    try:
        runs = find_sweep_runs(record)
        scores = collect_scores(runs)
    except DataError as error:
        return str(error)
    if not scores:
        return "no job has evaluations"
    return compare_scores(scores, printed=record.printed), runs


def describe_result(record: SweepRecord, job: Job) -> str:
    """What came out of a job, in a few words."""
    mark = record.marks[job.name]
    if mark is None:
        return ""
    if mark.state != FINISHED:
        return mark.reason
    try:
        return _describe_folder(record.path / JOBS_FOLDER / job.name / RESULT_FOLDER)
    except DataError as error:
        return str(error)


def _describe_folder(result: Path) -> str:
    if is_decomposition(result):
        return str(read_decomposition(result).metrics["verdict"]["level"])
    if is_judgement(result):
        best = read_judgement(result).best
        return f"{best.source} {best.mean:,.4g}"
    runs = find_runs(result)
    means = [f"{s.method} {sum(s.values) / len(s.values):,.4g}" for s in collect_scores(runs)]
    more = f" and {len(means) - 3} more" if len(means) > 3 else ""
    return printable(", ".join(means[:3]) + more)
