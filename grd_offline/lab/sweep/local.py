"""Jobs on this machine, as many at a time as it has cores and accelerators for."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from grd_offline.core.cores import count_cores
from grd_offline.core.errors import DataError, StorageError
from grd_offline.lab.sweep.job import FAILED, Busy, JobProcess, Resources
from grd_offline.lab.sweep.plan import Job
from grd_offline.lab.sweep.run import Ended, Runner

KILL_SECONDS = 5.0
"""Seconds that a process has to end before it is killed."""


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
