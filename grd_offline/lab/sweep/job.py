"""The folder of a job, and the process that runs it.

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
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from grd_offline.core.errors import DataError, StorageError, printable
from grd_offline.core.threads import count_cores, divide_cores
from grd_offline.io.files.plain import (
    MISFITS,
    READ_FLAGS,
    convert,
    read_bytes,
    read_json,
    read_record,
    write_json,
)
from grd_offline.io.files.results import (
    EVALUATIONS_FILE,
    JOBS_FOLDER,
    LOG_FILE,
    RESULT_FOLDER,
    SETTINGS_FILE,
)
from grd_offline.io.files.storage import (
    PLAIN_FILE,
    Lock,
    append_file,
    create_file,
    lock_folder,
    make_folder,
    storage_errors,
)
from grd_offline.lab.sweep.plan import SEEDED, Job

CHECKPOINT_FILE = "checkpoint.pt"
_DAMAGES = (*MISFITS, zipfile.BadZipFile, zlib.error, struct.error, EOFError)
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


def find_free_name(result: Path) -> Path:
    """A name that is free beside a result: `result-1`, `result-2` and so on."""
    number = 1
    while os.path.lexists(place := result.with_name(f"{result.name}-{number}")):
        number += 1
    return place


def read_end(path: Path, size: int) -> bytes:
    """The last bytes of a regular file. A link is not followed, and a named pipe not waited for."""
    descriptor = os.open(path, READ_FLAGS | PLAIN_FILE)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(f"{path} is not a regular file")
        file.seek(max(0, status.st_size - size))
        return file.read(size)


FORMAT, VERSION = "grd-offline job", 1
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
    return sweep / JOBS_FOLDER / job.name


def find_result(sweep: Path, job: Job) -> Path:
    """What a job writes: a folder in its own folder, or a file in that of the sweep."""
    return find_folder(sweep, job) / RESULT_FOLDER if job.file is None else sweep / job.file


def read_mark(folder: Path) -> Mark | None:
    """Read the mark of a job; None if it was never started."""
    path = folder / MARK_FILE
    try:
        contents = read_record(path, (FORMAT,), VERSION)
    except FileNotFoundError:
        return None
    mark = convert(contents, Mark, path)
    if mark.tries < 0 or mark.seconds < 0:
        raise DataError("expected numbers of at least 0 as tries and seconds", file=path)
    state, reason = printable(mark.state)[:40], printable(mark.reason)[:MOST_LETTERS]
    return replace(mark, state=state, reason=reason)  # nothing that would steer a terminal


def write_mark(folder: Path, mark: Mark) -> None:
    write_json(folder / MARK_FILE, {"format": FORMAT, "version": VERSION, **vars(mark)})


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
    if mark is not None and mark.state == FINISHED and not _has_result(sweep, job):
        return replace(mark, state=FAILED, reason=GONE)
    return mark


def _has_result(sweep: Path, job: Job) -> bool:
    """Whether the result of a job is there, with its evaluations if it always has some."""
    result = find_result(sweep, job)
    is_run = job.command[0] == "train-online"
    return result.exists() and (not is_run or any(result.glob(f"{EVALUATIONS_FILE}*")))


def measure_progress(sweep: Path, job: Job) -> float:
    """How much of a job is done, from 0 to 1, as far as its log tells."""
    result = find_result(sweep, job)
    if result.is_symlink():
        return 0.0
    total = job.total or _read_total(result)
    if not total:
        return 0.0
    for place in (result / LOG_FILE, result / "run" / LOG_FILE):
        with suppress(OSError, ValueError, ArithmeticError):
            lines = read_end(place, LOG_BYTES).decode(errors="replace").splitlines()
            done = max(int(line.split(",", 1)[0]) for line in lines[-1:]) / total
            return min(1.0, max(0.0, done))
    return 0.0


def _read_total(result: Path) -> int:
    """Steps or updates of a run as its settings say; 0 if there are none yet."""
    for place in (result / SETTINGS_FILE, result / "run" / SETTINGS_FILE):
        with suppress(OSError, *MISFITS):
            settings = read_json(place)["settings"]
            return max(0, int(settings.get("steps") or settings["updates"]))
    return 0


class JobProcess:
    """A job that is running."""

    def __init__(self, sweep: Path, job: Job, resources: Resources, directory: Path) -> None:
        """Start a job, or go on with it.

        Raises `Busy` if another process works on it.
        """
        make_folder(sweep, JOBS_FOLDER, job.name)
        self.job, self.folder = job, find_folder(sweep, job)
        self._result = find_result(sweep, job)
        try:
            self._lock = lock_folder(self.folder)
        except BlockingIOError:
            raise Busy from None
        self._process: subprocess.Popen[bytes] | None = None
        self._begin = time.monotonic()
        try:
            before = check_command(sweep, job)
            self.mark = before or Mark(STARTED, job.command, 0)
            if self.mark.state != FINISHED:
                self._start(before, resources, directory)
        except OSError as error:  # a planted link, for example: other jobs go on
            self._lock.release()
            if isinstance(error, StorageError):
                raise
            raise StorageError(f"{self.folder}: {error}") from error
        except BaseException:
            self._lock.release()
            raise

    def _start(self, before: Mark | None, resources: Resources, directory: Path) -> None:
        obstacle = self._find_obstacle(before)
        is_resumed = obstacle is None
        if is_resumed:
            command = ["train-online", "--resume", str(self._result)]
            given = self.job.command
            if "--env" in given and ":" in given[given.index("--env") + 1]:
                command += ["--env", given[given.index("--env") + 1]]
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
        self._process = _start_process(
            command, self.folder / OUTPUT_FILE, self._lock, resources, directory
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
        if _has_failed_to_resume(before) and is_damaged(self._result):
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
        kept = find_free_name(result)
        self._write_output(f"{obstacle}: beginning anew, the earlier result is kept in {kept.name}")
        with storage_errors(result):
            result.rename(kept)

    def _write_output(self, line: str) -> None:
        """Add a line to the output of the command."""
        output = self.folder / OUTPUT_FILE
        if not output.exists():
            with create_file(output):
                pass
        append_file(output, f"{line}\n".encode())

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
        """Write the mark of a process that has ended, and let the job go."""
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
        finally:
            self._lock.release()

    def _find_reason(self, code: int) -> str:
        if code < 0:
            return f"it was killed ({signal.Signals(-code).name})"
        try:
            text = read_bytes(self.folder / OUTPUT_FILE, OUTPUT_BYTES).decode(errors="replace")
        except (OSError, DataError):
            text = ""
        lines = [line for line in text.splitlines() if line.strip()]
        last = lines[-1].removeprefix("grd-offline: error: ") if lines else "it said nothing"
        return printable(f"exit code {code}: {last}")[:MOST_LETTERS]


def _has_failed_to_resume(mark: Mark | None) -> bool:
    """Whether a try went on from a checkpoint and ended with an error.

    A damaged checkpoint may be the reason. A process that was killed says nothing about it.
    """
    if mark is None or mark.state != FAILED or not mark.resumed:
        return False
    return mark.code is not None and mark.code > 0


def _start_process(
    command: list[str], output: Path, lock: Lock, resources: Resources, directory: Path
) -> subprocess.Popen[bytes]:
    """Start a command that ends with its parent. The lock is held as long as it lives.

    On Windows a command cannot inherit the lock, and goes on if its parent is killed.
    """
    is_posix = os.name == "posix"
    guard = [sys.executable, "-P", "-m", "grd_offline.lab.sweep.guard", str(os.getpid())]
    line = [*(guard if is_posix else ()), *PROGRAM, *command]
    with output.open("ab") as file:
        return subprocess.Popen(
            line,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            cwd=directory,
            env=resources.make_environment(),
            start_new_session=True,  # Ctrl-C is for the sweep, which passes it on
            pass_fds=(lock.descriptor,) if is_posix and lock.descriptor is not None else (),
        )


def describe_marks(sweep: Path, jobs: tuple[Job, ...]) -> dict[str, Mark | None]:
    """The marks of all jobs, by name. A command that has changed is refused."""
    return {job.name: check_command(sweep, job) for job in jobs}
