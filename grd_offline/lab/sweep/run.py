"""Running the jobs of a sweep: which is next, what is repeated, and when to stop.

A runner starts them: on this machine, as many at a time as it has cores and accelerators for, or on
others.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, Self

from grd_offline.core.errors import DataError, StorageError
from grd_offline.core.observer import NOBODY, Observer
from grd_offline.core.threads import count_cores
from grd_offline.lab.sweep.job import (
    FAILED,
    FINISHED,
    STARTED,
    Busy,
    JobProcess,
    Mark,
    Resources,
    describe_marks,
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


class Ended(NamedTuple):
    """A job that has ended."""

    job: Job
    mark: Mark | None
    """None if another process works on it."""


class Runner(ABC):
    """Runs jobs: on this machine, or on others."""

    @abstractmethod
    def has_room(self) -> bool:
        """Whether one more job may be started."""

    @abstractmethod
    def start(self, job: Job) -> None:
        """Start a job, or go on with one."""

    @abstractmethod
    def poll(self) -> list[Ended]:
        """The jobs that have ended since the last call."""

    @abstractmethod
    def stop(self) -> None:
        """Ask all jobs to end. Those that can, save what they have."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Let go of everything. What is still running is killed."""


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
                ended.append(Ended(job, failed))
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
    if visible is not None:
        names = [name.strip() for name in visible.split(",") if name.strip() not in ("", "-1")]
        return Machine(count_cores(), tuple(names))
    # The driver has a file for each device. Asking torch would take seconds and memory on each.
    try:
        files = os.listdir("/dev")
    except OSError:
        files = []
    found = sorted(
        int(name[6:]) for name in files if name.startswith("nvidia") and name[6:].isdigit()
    )
    return Machine(count_cores(), tuple(str(number) for number in range(len(found))))


def divide(machine: Machine, cores: int | None, share: float | None) -> list[Resources]:
    """What each of the jobs that run at the same time may use.

    `cores` are the cores of each job, and `share` is its part of an accelerator. Without them, each
    accelerator has one job, and the cores are divided among them.
    """
    if share is None:
        share = 1.0 if machine.devices else 0.0
    if share and not machine.devices:
        raise DataError("no accelerator here: expected 0", field="gpus")
    if share > 1:
        raise DataError("a job uses one accelerator at most: expected at most 1", field="gpus")
    per_device = int(1 / share + 1e-9) if share else 0
    if cores is None:
        cores = max(1, machine.cores // max(1, per_device * len(machine.devices)))
    room = max(1, machine.cores // cores)
    if not share:
        return [Resources(cores, "" if machine.devices else None)] * room
    places = [name for _ in range(per_device) for name in machine.devices]
    return [Resources(cores, name) for name in places[:room]]


class LocalRunner(Runner):
    """Runs each job in a process of its own."""

    def __init__(self, sweep: Path, places: Sequence[Resources], directory: Path) -> None:
        self._sweep, self._directory = sweep, directory
        self._free = list(places)
        self._running: list[tuple[JobProcess, Resources]] = []
        self._ended: list[Ended] = []

    def has_room(self) -> bool:
        return bool(self._free)

    def start(self, job: Job) -> None:
        try:
            process = JobProcess(self._sweep, job, self._free[0], self._directory)
        except Busy:
            self._ended.append(Ended(job, None))
            return
        self._running.append((process, self._free.pop(0)))

    def poll(self) -> list[Ended]:
        for entry in [entry for entry in self._running if entry[0].poll()]:
            process, resources = entry
            self._running.remove(entry)
            self._free.append(resources)
            try:
                mark = process.finish()
            except StorageError as error:
                mark = replace(process.mark, state=FAILED, reason=str(error))
            self._ended.append(Ended(process.job, mark))
        ended, self._ended = self._ended, []
        return ended

    def stop(self) -> None:
        for process, _ in self._running:
            process.stop()

    def close(self) -> None:
        for process, _ in self._running:
            process.stop()
        for process, _ in self._running:
            if not process.wait(KILL_SECONDS):
                process.kill()
            process.finish()
        self._running.clear()
