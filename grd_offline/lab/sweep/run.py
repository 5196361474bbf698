"""Running the jobs of a sweep: which is next, what is repeated, and when to stop.

A runner starts them: on this machine, as many at a time as it has cores and accelerators for, or on
others.

With Ray, these are all machines of a cluster. Ray decides where and when a job runs. Its folder
must be the same on all machines. What a job is, how it is marked and how it goes on is the same as
on one machine: see `folder`.
"""

from __future__ import annotations

import glob
import logging
import os
import socket
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from grd_offline.core.errors import DataError, StorageError
from grd_offline.core.observer import NOBODY, Observer
from grd_offline.core.threads import count_cores
from grd_offline.lab.sweep.folder import (
    FAILED,
    FINISHED,
    STARTED,
    STOPPED,
    Busy,
    JobProcess,
    Mark,
    Resources,
    describe_marks,
    find_folder,
    read_mark,
)
from grd_offline.lab.sweep.plan import Job

KILL_SECONDS = 5.0
"""Seconds that a process has to end before it is killed."""
POLL_SECONDS = 0.1
"""Seconds between two looks at the jobs that are running."""
BUSY_SECONDS = 2.0
"""Seconds until a job is tried again that another process works on."""
TRIES = 2
"""Tries of a job in one sweep."""


Ended: TypeAlias = tuple[Job, Mark | None]
"""A job that has ended, with its mark: None if another process works on it."""


Runner: TypeAlias = "LocalRunner | RayRunner"
"""Runs jobs: on this machine, or on others."""


def run_jobs(
    sweep: Path,
    jobs: Sequence[Job],
    runner: Runner,
    *,
    tries: int = TRIES,
    observer: Observer = NOBODY,
) -> dict[str, Mark | None]:
    """Run all jobs that are not finished, and give the marks of all.

    A job that fails is repeated, up to so many `tries`. The others go on. The observer hears of
    each job that starts, and of its mark when it ends: None if another process works on it.
    """
    marks = describe_marks(sweep, tuple(jobs))
    waiting = [job for job in jobs if (mark := marks[job.name]) is None or mark.state != FINISHED]
    running: dict[str, Job] = {}
    tried: Counter[str] = Counter()
    not_before: dict[str, float] = {}
    is_stopping = False
    while running or (waiting and not is_stopping):
        if observer.should_stop() and not is_stopping:
            is_stopping = True
            runner.stop()
        ended: list[Ended] = []
        for job in () if is_stopping else tuple(waiting):
            if not runner.has_room():
                break
            if not_before.get(job.name, 0.0) > time.monotonic():
                continue
            waiting.remove(job)
            running[job.name] = job
            try:
                runner.start(job)
                observer.on_start(job)
            except StorageError as error:
                known = marks[job.name] or Mark(STARTED, job.command, 0)
                failed = Mark(FAILED, job.command, known.tries + 1, reason=str(error))
                ended.append((job, failed))
        ended += runner.poll()
        for job, mark in ended:
            del running[job.name]
            observer.on_result(job, mark)
            if mark is None:
                not_before[job.name] = time.monotonic() + BUSY_SECONDS
                waiting.append(job)
                continue
            marks[job.name] = mark
            tried[job.name] += 1
            if mark.state != FINISHED and not is_stopping and tried[job.name] < tries:
                waiting.append(job)
        if not ended:
            observer.on_progress("running", 1 - (len(running) + len(waiting)) / len(jobs))
            time.sleep(POLL_SECONDS)
    return marks


@dataclass(frozen=True)
class Machine:
    """What there is for all jobs together."""

    cores: int
    devices: tuple[str, ...]
    """Accelerators, as CUDA_VISIBLE_DEVICES names them."""


def find_machine() -> Machine:
    """The cores and accelerators that this process may use."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        # The driver has a file for each device. Asking torch would take seconds and memory on each.
        found = [path for path in glob.glob("/dev/nvidia*") if path[11:].isdigit()]
        visible = ",".join(map(str, range(len(found))))
    names = [name.strip() for name in visible.split(",") if name.strip() not in ("", "-1")]
    return Machine(count_cores(), tuple(names))


def divide(machine: Machine, cpus: int | None, gpus: float | None) -> list[Resources]:
    """What each of the jobs that run at the same time may use.

    `cpus` are the cores of each job, and `gpus` is its part of an accelerator. Without them, each
    accelerator has one job, and the cores are divided among them.
    """
    share = gpus if gpus is not None else float(bool(machine.devices))
    if share and not machine.devices:
        raise DataError("no accelerator here: expected 0", field="gpus")
    if share > 1:
        raise DataError("a job uses one accelerator at most: expected at most 1", field="gpus")
    per_device = int(1 / share + 1e-9) if share else 0
    cores = cpus
    if cores is None:
        cores = max(1, machine.cores // max(1, per_device * len(machine.devices)))
    room = max(1, machine.cores // cores)
    if not share:
        return [Resources(cores, "" if machine.devices else None)] * room
    places = [name for _ in range(per_device) for name in machine.devices]
    return [Resources(cores, name) for name in places[:room]]


class LocalRunner(AbstractContextManager["LocalRunner", None]):
    """Runs each job in a process of its own. At the end, what is still running is killed."""

    def __init__(self, sweep: Path, places: Sequence[Resources], directory: Path) -> None:
        self._sweep, self._directory = sweep, directory
        self._free = list(places)
        self._running: list[tuple[JobProcess, Resources]] = []
        self._ended: list[Ended] = []

    def has_room(self) -> bool:
        """Whether one more job may be started."""
        return bool(self._free)

    def start(self, job: Job) -> None:
        """Start a job, or go on with one."""
        try:
            process = JobProcess(self._sweep, job, self._free[0], self._directory)
        except Busy:
            self._ended.append((job, None))
            return
        self._running.append((process, self._free.pop(0)))

    def poll(self) -> list[Ended]:
        """The jobs that have ended since the last call."""
        for process, resources in [one for one in self._running if one[0].poll()]:
            self._running.remove((process, resources))
            self._free.append(resources)
            self._ended.append((process.job, process.finish()))
        ended, self._ended = self._ended, []
        return ended

    def stop(self) -> None:
        """Ask all jobs to end. Those that can, save what they have."""
        for process, _ in self._running:
            process.stop()

    def __exit__(self, *error: object) -> None:
        self.stop()
        for process, _ in self._running:
            if not process.wait(KILL_SECONDS):
                process.kill()
            process.finish()
        self._running.clear()


EARLIER_SECONDS = 60.0
"""Seconds that a job waits for the process of an earlier try to end."""
STOP_SECONDS = 120.0
"""Seconds that a job that is to stop has for a checkpoint."""
ANSWER_SECONDS = 10.0
"""Seconds that the machine at an address has to answer."""
WAIT_SECONDS = 0.2
STORE_BYTES = 100 * 2**20
"""Memory for what jobs pass on to each other, which is a few words."""


def _check_address(address: str) -> None:
    """Refuse an address where nothing listens. Ray would try for minutes."""
    if address == "auto":
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise DataError(f"expected auto or HOST:PORT, got {address!r}", field="address")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_SECONDS).close()
    except OSError as error:
        raise DataError(
            f"nothing answers at {address} ({error.strerror or error}): is Ray running there? "
            "`ray start --head` prints the address",
            field="address",
        ) from error


class RayRunner(AbstractContextManager["RayRunner", None]):
    """Hands all jobs to Ray, with the methods of `LocalRunner`."""

    def __init__(
        self,
        sweep: Path,
        machine: Machine,
        *,
        address: str | None,
        directory: Path,
        cpus: int | None,
        gpus: float | None,
    ) -> None:
        self._ray = _load_ray()
        self._sweep, self._directory = sweep, directory
        self._cores = cpus if cpus is not None else divide(machine, None, None)[0].cores
        self._jobs: dict[Any, Job] = {}
        self._connect(address, machine)
        devices = float(self._ray.cluster_resources().get("GPU", 0))
        share = gpus if gpus is not None else float(devices > 0)
        # What no machine of the cluster can run is refused: Ray would wait forever.
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        most = max((node.get("CPU", 0) for node in nodes), default=0)
        if self._cores > most or (share and not devices):
            self._ray.shutdown()
        if self._cores > most:
            raise DataError(f"no machine has {self._cores} cores, only {most:g}", field="cpus")
        if share and not devices:
            raise DataError("no accelerator in the cluster: expected 0", field="gpus")
        options = {"num_cpus": self._cores, "num_gpus": share, "max_retries": 0}
        self._task = self._ray.remote(**options)(_run_job)

    def _connect(self, address: str | None, machine: Machine) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if address is None:
            # The same priority as with the local runner. Ray would take the lowest but four.
            os.environ.setdefault("RAY_worker_niceness", "0")
            options |= {"num_cpus": machine.cores, "num_gpus": len(machine.devices)}
            options |= {"include_dashboard": False, "object_store_memory": STORE_BYTES}
            address = "local"
        else:
            _check_address(address)
        try:
            self._ray.init(address=address, **options)
        except Exception as error:
            reason = " ".join(str(error).split())[:300]
            raise DataError(f"Ray cannot be reached at {address}: {reason}") from error

    def has_room(self) -> bool:
        return True  # Ray has the queue

    def start(self, job: Job) -> None:
        resources = Resources(self._cores)
        reference = self._task.remote(self._sweep, job, resources, self._directory)
        self._jobs[reference] = job

    def poll(self) -> list[Ended]:
        if not self._jobs:
            return []
        ready, _ = self._ray.wait(list(self._jobs), num_returns=len(self._jobs), timeout=0)
        return [(job, self._fetch(one, job)) for one in ready for job in [self._jobs.pop(one)]]

    def _fetch(self, reference: Any, job: Job) -> Mark | None:
        """What became of a job, also if its worker died."""
        errors = self._ray.exceptions
        try:
            mark: Mark | None = self._ray.get(reference)
        except errors.TaskCancelledError:
            return self._describe(job, STOPPED, "it was stopped")
        except errors.RayTaskError as error:
            cause = error.as_instanceof_cause()
            return self._describe(job, FAILED, f"{type(cause).__name__}: {cause}".splitlines()[0])
        except errors.RayError as error:
            return self._describe(job, FAILED, f"its worker ended ({type(error).__name__})")
        if mark is None or mark.state != FINISHED or self._read(job) == mark:
            return mark
        reason = f"its machine does not share the folder {self._sweep} with this one"
        return self._describe(job, FAILED, reason)

    def _read(self, job: Job) -> Mark | None:
        """The mark of a job as this machine sees it. None also if it cannot be read."""
        with suppress(DataError):
            return read_mark(find_folder(self._sweep, job))
        return None

    def _describe(self, job: Job, state: str, reason: str) -> Mark:
        before = self._read(job)
        return Mark(state, job.command, before.tries if before else 0, reason=reason)

    def stop(self) -> None:
        for reference in self._jobs:
            self._ray.cancel(reference)

    def __exit__(self, *_: object) -> None:
        for reference in self._jobs:
            with suppress(Exception):
                self._ray.cancel(reference, force=True)
        self._jobs.clear()
        self._ray.shutdown()


def _load_ray() -> Any:
    try:
        import ray
        import ray.exceptions
    except ImportError:
        raise DataError("Ray is not installed: pip install ray") from None
    return ray


def _run_job(sweep: Path, job: Job, resources: Resources, directory: Path) -> Mark | None:
    """Run a job in a worker of Ray. None if another process works on it."""
    try:
        process = _start(sweep, job, resources, directory)
    except StorageError as error:
        return Mark(FAILED, job.command, 1, reason=str(error))
    if process is None:
        return None
    try:
        while not process.wait(WAIT_SECONDS):
            pass
    except KeyboardInterrupt:  # what Ray makes of a cancelled task
        process.stop()
        if not process.wait(STOP_SECONDS):
            process.kill()
    return process.finish()


def _start(sweep: Path, job: Job, resources: Resources, directory: Path) -> JobProcess | None:
    """Start a job. The process of an earlier try gets some time to end."""
    end = time.monotonic() + EARLIER_SECONDS
    while True:
        try:
            return JobProcess(sweep, job, resources, directory)
        except Busy:
            if time.monotonic() > end:
                return None
            time.sleep(WAIT_SECONDS)
