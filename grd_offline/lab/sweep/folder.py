"""The folder of a sweep, those of its jobs, and the process that runs a job.

sweep.toml            a copy of the sweep file
sweep.json            title, jobs and the command
report.html           one page over all jobs
comparison/           tables and figures over all runs
jobs/NAME/result/     what the command wrote, unless that is a file in the folder of the sweep
jobs/NAME/result-1/   an earlier result with a checkpoint, if the job was begun anew
jobs/NAME/output.txt  what it printed, of all tries
jobs/NAME/job.json    its mark: which command, whether it is finished, how long it took

The mark is written in full or not at all, and says "finished" only after the command has ended
without an error. Whoever works on a job holds a lock on its folder, and the process of the command
holds it too: so a job is never worked on twice at the same time, even if a sweep was killed.

A training may have taken days. So its result is never deleted: where a job begins anew, a result
with a checkpoint gets another name. A try that went on and failed says little about the
checkpoint, because the disk may be full or a package missing. The checkpoint itself is looked at.
"""

from __future__ import annotations

import os
import shutil
import signal
import stat
import struct
import subprocess
import sys
import time
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import count, pairwise
from pathlib import Path
from typing import TypeAlias, TypedDict

from grd_offline.comparison import compare
from grd_offline.comparison.compare import Comparison
from grd_offline.core.errors import DataError, StorageError, printable
from grd_offline.core.threads import count_cores, divide_cores
from grd_offline.core.words import format_seconds
from grd_offline.io.files import plain, results, storage
from grd_offline.io.files.results import RunRecord, is_decomposition, is_judgement, read_judgement
from grd_offline.io.files.storage import LOCK_FILE
from grd_offline.lab.sweep.plan import SEEDED, Job, SweepPlan
from grd_offline.methods.result import read_decomposition

CHECKPOINT_FILE = "checkpoint.pt"
_DAMAGES = (*plain.MISFITS, zipfile.BadZipFile, zlib.error, struct.error, EOFError)
"""What reading a damaged archive raises. An OSError says nothing about what is in it."""


def has_checkpoint(result: Path) -> bool:
    """Whether there is a checkpoint that a training can go on from. Links are not followed."""
    return not result.is_symlink() and (result / CHECKPOINT_FILE).is_file()


def is_damaged(result: Path) -> bool:
    """Whether the checkpoint of a result is cut off, changed, or of another kind.

    A checkpoint is an archive that holds a checksum for each of its parts, which are read one
    after the other. A checkpoint that cannot be read at the moment does not count as damaged.
    """
    path = result / CHECKPOINT_FILE
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            if sum(entry.file_size for entry in entries) > path.stat().st_size:
                return True  # torch does not compress
            is_kept = any(entry.filename.endswith("/data.pkl") for entry in entries)
            return not is_kept or archive.testzip() is not None
    except OSError:
        return False
    except _DAMAGES:
        return True


def read_end(path: Path, size: int) -> bytes:
    """The last bytes of a regular file. A link is not followed, and a named pipe not waited for."""
    descriptor = os.open(path, plain.READ_FLAGS | storage.PLAIN_FILE)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(f"{path} is not a regular file")
        file.seek(max(0, status.st_size - size))
        return file.read(size)


MARK_FORMAT, FORMAT, VERSION = "grd-offline job", "grd-offline sweep", 1
MARK_FILE, OUTPUT_FILE = "job.json", "output.txt"
GONE = "its result is gone"
STARTED, FINISHED, FAILED, STOPPED = "started", "finished", "failed", "stopped"
PROGRAM = (sys.executable, "-P", "-m", "grd_offline.cli")
"""What a job runs, before its command. Modules in the working folder are not in its way (-P)."""
OUTPUT_BYTES = 64 * 2**20
"""Number of bytes of the output of a command that are read to find its last line."""
MOST_LETTERS = 300
"""Length of the reason of a mark."""
LOG_BYTES = 4096
"""Number of bytes at the end of a log that are read to find its last row."""


@dataclass(frozen=True)
class Mark:
    """What is known of a job."""

    state: str
    command: tuple[str, ...]
    tries: int
    seconds: float = 0.0
    """Seconds of the last try, with those of the tries that it went on with."""
    code: int | None = None
    """Exit code of the last try."""
    reason: str = ""
    """What the command said last, if it failed."""
    resumed: bool = False
    """Whether the last try went on from a checkpoint."""


@dataclass(frozen=True)
class Resources:
    """What a job may use."""

    cores: int
    device: str | None = None
    """The accelerators that it sees, as CUDA_VISIBLE_DEVICES has them. None leaves that alone."""

    def make_environment(self) -> dict[str, str]:
        """Environment variables of the job. The number of threads decides the last bits."""
        variables = {**os.environ, "OMP_NUM_THREADS": str(self.cores)}
        if self.device is not None:
            variables["CUDA_VISIBLE_DEVICES"] = self.device
        return variables


class Busy(Exception):
    """Another process works on this job."""


def find_folder(sweep: Path, job: Job) -> Path:
    """The folder of a job."""
    return sweep / results.JOBS_FOLDER / job.name


def find_result(sweep: Path, job: Job) -> Path:
    """What a job writes: a folder in its own folder, or a file in that of the sweep."""
    folder = find_folder(sweep, job)
    return folder / results.RESULT_FOLDER if job.file is None else sweep / job.file


def read_mark(folder: Path) -> Mark | None:
    """Read the mark of a job; None if it was never started."""
    path = folder / MARK_FILE
    try:
        contents = plain.read_record(path, (MARK_FORMAT,), VERSION)
    except FileNotFoundError:
        return None
    mark = plain.convert(contents, Mark, path)
    if mark.tries < 0 or mark.seconds < 0:
        raise DataError("expected numbers of at least 0 as tries and seconds", file=path)
    state, reason = printable(mark.state)[:40], printable(mark.reason)[:MOST_LETTERS]
    return replace(mark, state=state, reason=reason)  # nothing that would steer a terminal


def write_mark(folder: Path, mark: Mark) -> None:
    plain.write_json(folder / MARK_FILE, {"format": MARK_FORMAT, "version": VERSION, **vars(mark)})


def check_command(sweep: Path, job: Job) -> Mark | None:
    """The mark of a job, which must be of the same command.

    A job whose result has been removed, or the evaluations in it, is not finished any more.
    """
    mark = read_mark(find_folder(sweep, job))
    if mark is not None and mark.command != job.command:
        raise DataError(
            "was begun with another command: choose another folder with --out, or remove this one",
            file=find_folder(sweep, job),
        )
    if mark is None or mark.state != FINISHED:
        return mark
    result, is_run = find_result(sweep, job), job.command[0] == "train-online"
    found = result.glob(f"{results.EVALUATIONS_FILE}*") if is_run else [result]
    is_there = result.exists() and any(found)
    return mark if is_there else replace(mark, state=FAILED, reason=GONE)


def measure_progress(sweep: Path, job: Job) -> float:
    """How much of a job is done, from 0 to 1, as far as its log tells."""
    result = find_result(sweep, job)
    for place in () if result.is_symlink() else (result, result / results.RUN_FOLDER):
        with suppress(OSError, *plain.MISFITS):
            total = job.total or _read_total(place)
            text = read_end(place / results.LOG_FILE, LOG_BYTES).decode(errors="replace")
            done = max(int(line.split(",", 1)[0]) for line in text.splitlines()[-1:]) / total
            return min(1.0, max(0.0, done))
    return 0.0


def _read_total(run: Path) -> int:
    """Steps or updates of a run as its settings say."""
    settings = plain.read_json(run / results.SETTINGS_FILE)["settings"]
    return int(settings.get("steps") or settings["updates"])


class JobProcess:
    """A job that is running."""

    def __init__(self, sweep: Path, job: Job, resources: Resources, directory: Path) -> None:
        """Start a job, or go on with it.

        Raises `Busy` if another process works on it.
        """
        storage.make_folder(sweep, results.JOBS_FOLDER, job.name)
        self.job, self.folder = job, find_folder(sweep, job)
        self._result = find_result(sweep, job)
        try:
            self._lock = storage.lock_folder(self.folder)
        except BlockingIOError:
            raise Busy from None
        self._process: subprocess.Popen[bytes] | None = None
        self._begin = time.monotonic()
        try:
            before = check_command(sweep, job)
            self.mark = before or Mark(STARTED, job.command, 0)
            if self.mark.state != FINISHED:
                self._start(before, resources, directory)
        except BaseException as error:
            self._lock.release()
            # A planted link, for example: other jobs go on.
            if isinstance(error, OSError) and not isinstance(error, StorageError):
                raise StorageError(f"{self.folder}: {error}") from error
            raise

    def _start(self, before: Mark | None, resources: Resources, directory: Path) -> None:
        obstacle = self._find_obstacle(before)
        is_resumed = obstacle is None
        if is_resumed:
            command = ["train-online", "--resume", str(self._result)]
            for option, value in pairwise(self.job.command):
                if option in ("--env", "--env-arg"):  # what it has to be trusted with
                    command += [option, value]
        else:
            if self.job.file is None:  # a file is replaced once the new one is complete
                self._clear_result(obstacle)
            command = [*self.job.command, "--out", str(self._result)]
        # A job that has the whole machine chooses its workers itself: it knows its environments.
        is_shared = resources.cores != count_cores()
        if self.job.command[0] in SEEDED and is_shared and "--workers" not in command:
            members = self.job.members if self.job.command[0] == "train-online" else 0
            command += ["--workers", str(divide_cores(resources.cores, members))]
        spent = self.mark.seconds if is_resumed else 0.0
        tries = self.mark.tries + 1
        self.mark = Mark(STARTED, self.job.command, tries, spent, resumed=is_resumed)
        write_mark(self.folder, self.mark)
        self._write_output(f"$ grd-offline {' '.join(command)}")
        self._run(command, resources, directory)

    def _run(self, command: list[str], resources: Resources, directory: Path) -> None:
        """Start a command that ends with its parent. The lock is held as long as it lives.

        On Windows a command cannot inherit the lock, and goes on if its parent is killed.
        """
        is_posix, held = os.name == "posix", self._lock.descriptor
        guard = [sys.executable, "-P", "-m", "grd_offline.lab.sweep.guard", str(os.getpid())]
        with (self.folder / OUTPUT_FILE).open("ab") as file:
            self._process = subprocess.Popen(
                [*(guard if is_posix else ()), *PROGRAM, *command],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                cwd=directory,
                env=resources.make_environment(),
                start_new_session=True,  # Ctrl-C is for the sweep, which passes it on
                pass_fds=(held,) if is_posix and held is not None else (),
            )

    def _find_obstacle(self, before: Mark | None) -> str | None:
        """Why the job cannot go on from a checkpoint. None if it can.

        A checkpoint is given up only if it is damaged. Other errors of the try that went on from
        it have other reasons, such as a full disk.
        """
        if before is not None and before.reason == GONE:
            return GONE
        if self.job.command[0] != "train-online" or not has_checkpoint(self._result):
            return "no checkpoint to go on from"
        # A process that was killed says nothing about the checkpoint.
        has_failed = before is not None and before.state == FAILED and (before.code or 0) > 0
        if before is not None and before.resumed and has_failed and is_damaged(self._result):
            return "the checkpoint is damaged"
        return None

    def _clear_result(self, obstacle: str | None) -> None:
        """Make room for a new result. An earlier one with a checkpoint gets another name."""
        result = self._result
        if not os.path.lexists(result):
            return
        if result.is_symlink() or not os.path.lexists(result / CHECKPOINT_FILE):
            shutil.rmtree(result)  # it refuses a link
            return
        names = (result.with_name(f"{result.name}-{number}") for number in count(1))
        kept = next(name for name in names if not os.path.lexists(name))
        self._write_output(f"{obstacle}: beginning anew, the earlier result is kept in {kept.name}")
        with storage.storage_errors(result):
            result.rename(kept)

    def _write_output(self, line: str) -> None:
        """Add a line to the output of the command."""
        output = self.folder / OUTPUT_FILE
        if not output.exists():
            with storage.create_file(output):
                pass
        storage.append_file(output, f"{line}\n".encode())

    def poll(self) -> bool:
        """Whether the process has ended."""
        return self._process is None or self._process.poll() is not None

    def wait(self, seconds: float) -> bool:
        """Wait for the end of the process for so long. Whether it has ended."""
        with suppress(subprocess.TimeoutExpired):
            if self._process is not None:
                self._process.wait(seconds)
        return self.poll()

    def stop(self) -> None:
        """Ask the process to end. It may save a checkpoint first."""
        if self._process is not None and not self.poll():
            self._process.terminate()

    def kill(self) -> None:
        """End the process at once."""
        if self._process is not None and not self.poll():
            self._process.kill()

    def finish(self) -> Mark:
        """Write the mark of a process that has ended, and let the job go.

        A mark that cannot be written says so, and that the job failed.
        """
        if self._process is None:
            self._lock.release()
            return self.mark
        try:
            code = self._process.wait()
            seconds = round(self.mark.seconds + time.monotonic() - self._begin, 3)
            mark = replace(self.mark, seconds=seconds, code=code)
            if code == 0 and self._result.exists():
                mark = replace(mark, state=FINISHED)
            elif code in (128 + signal.SIGINT, 128 + signal.SIGTERM, -signal.SIGTERM):
                mark = replace(mark, state=STOPPED, reason="it was stopped")
            else:
                mark = replace(mark, state=FAILED, reason=self._find_reason(code))
            write_mark(self.folder, mark)
            return mark
        except StorageError as error:
            return replace(self.mark, state=FAILED, reason=str(error))
        finally:
            self._lock.release()

    def _find_reason(self, code: int) -> str:
        if code < 0:
            return f"it was killed ({signal.Signals(-code).name})"
        text = b""
        with suppress(OSError, DataError):
            text = plain.read_bytes(self.folder / OUTPUT_FILE, OUTPUT_BYTES)
        lines = [line for line in text.decode(errors="replace").splitlines() if line.strip()]
        last = lines[-1].removeprefix("grd-offline: error: ") if lines else "it said nothing"
        return printable(f"exit code {code}: {last}")[:MOST_LETTERS]


def describe_marks(sweep: Path, jobs: tuple[Job, ...]) -> dict[str, Mark | None]:
    """The marks of all jobs, by name. A command that has changed is refused."""
    return {job.name: check_command(sweep, job) for job in jobs}


COPY_FILE = "sweep.toml"
COMPARISON_FOLDER = "comparison"


class _Sweep(TypedDict):
    """What is read of `sweep.json`."""

    title: str
    about: str
    jobs: tuple[Job, ...]


@dataclass(frozen=True)
class SweepRecord(SweepPlan):
    """What a sweep left on disk, in the folder `path`."""

    marks: dict[str, Mark | None]
    """The mark of each job, by name. None if it was never started."""


def hold_new_sweep(folder: Path) -> AbstractContextManager[None]:
    """Make the folder of a sweep where there is none, and keep other sweeps out of it."""
    if folder.exists() and not results.is_sweep(folder):
        if not folder.is_dir():
            raise DataError("is not a folder: choose another name with --out", file=folder)
        if any(entry.name != LOCK_FILE for entry in folder.iterdir()):
            reason = "exists and is not a sweep: choose another name with --out"
            raise DataError(reason, file=folder)
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
        "jobs": [vars(job) for job in plan.jobs],
        "paper": [number.to_json() for number in plan.printed],
    }
    plain.write_json(folder / results.SWEEP_FILE, contents)
    with storage.replace_file(folder / COPY_FILE) as output:
        output.write(plain.read_bytes(plan.path, compare.FILE_BYTES))


@contextmanager
def hold_sweep(folder: Path) -> Iterator[None]:
    """Make the folder, and keep other sweeps out of it meanwhile."""
    storage.check_writable(folder)
    with storage.storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    try:
        lock = storage.lock_folder(folder)
    except BlockingIOError:
        raise DataError("another command is at work in it", file=folder) from None
    try:
        yield
    finally:
        lock.release()


def read_sweep(folder: Path) -> SweepRecord:
    """Read the folder of a sweep."""
    path = folder / results.SWEEP_FILE
    contents = plain.read_record(path, (FORMAT,), VERSION)
    found = plain.convert(contents, _Sweep, path)
    jobs = tuple(Job(job.name, job.command, job.total) for job in found["jobs"])
    with plain.folder_errors(path, "cannot be read as a sweep"):
        for job in jobs:
            if printable(results.check_job_name(job.name)) != job.name or not job.command:
                raise ValueError(f"expected a name and a command, got {job.name[:40]!r}")
        marks = {job.name: _read_own_mark(folder, job) for job in jobs}
        printed = compare.parse_printed(contents["paper"], path)
    title, about = printable(found["title"]), printable(found["about"])
    return SweepRecord(folder, title, about, jobs, printed, marks)


def _read_own_mark(folder: Path, job: Job) -> Mark | None:
    """The mark of a job; None also where a link leads to the job of another sweep."""
    place = find_folder(folder, job)
    return None if place.is_symlink() or place.parent.is_symlink() else read_mark(place)


def find_link(folder: Path, job: Job) -> Path | None:
    """A link on the way to the result of a job, which may lead out of the sweep. None if none."""
    ways = (folder / results.JOBS_FOLDER, find_folder(folder, job), find_result(folder, job))
    return next((way for way in ways if way.is_symlink()), None)


def list_others(folder: Path, jobs: Sequence[Job]) -> list[str]:
    """Folders of jobs that the sweep does not have, or does not have any more."""
    place, known = folder / results.JOBS_FOLDER, {job.name for job in jobs}
    found = sorted(entry.name for entry in place.iterdir()) if place.is_dir() else []
    return [name for name in found if name not in known]


SweepComparison: TypeAlias = tuple[Comparison, list[RunRecord]] | str
"""A comparison of some runs, or why there is none."""


def compare_sweep(record: SweepRecord) -> SweepComparison:
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
                runs += compare.find_runs(find_result(record.path, job))
            except DataError as error:
                notes.append(f"The job {job.name} is left out: {error}.")
    try:
        scores = compare.collect_scores(runs)
    except DataError as error:
        return str(error)
    if not scores:
        return "no job has evaluations"
    return compare.compare_scores(scores, printed=record.printed, notes=notes), runs


def list_jobs(record: SweepRecord) -> list[tuple[str, ...]]:
    """A row for each job: name, state, tries, time, result and command."""
    rows: list[tuple[str, ...]] = []
    for job in record.jobs:
        told, mark = ("new", "0", "-"), record.marks[job.name]
        if mark is not None:
            state = "cut off" if mark.state == STARTED else mark.state
            told = state, str(mark.tries), format_seconds(mark.seconds)
        command = f"grd-offline {' '.join(job.command)}"
        rows.append((job.name, *told, describe_result(record, job), command))
    return rows


def describe_result(record: SweepRecord, job: Job) -> str:
    """What came out of a job, in a few words."""
    if (link := find_link(record.path, job)) is not None:
        return _tell_link(link)
    mark, result = record.marks[job.name], find_result(record.path, job)
    if mark is None or mark.state != FINISHED:
        return "" if mark is None else mark.reason
    try:
        if is_decomposition(result):
            with plain.folder_errors(result, "cannot be read as a decomposition"):
                return printable(str(read_decomposition(result).metrics["verdict"]["level"]))
        if is_judgement(result):
            best = read_judgement(result).best
            return printable(f"{best.source} {best.mean:,.4g}")
        scores = compare.collect_scores(compare.find_runs(result))
    except DataError as error:
        return str(error)
    means = [f"{one.method} {sum(one.values) / len(one.values):,.4g}" for one in scores]
    more = f" and {len(means) - 3} more" if len(means) > 3 else ""
    return printable(", ".join(means[:3]) + more)


def _tell_link(link: Path) -> str:
    return printable(f"{link} is a link, which is not followed")
