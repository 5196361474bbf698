"""Jobs on Ray: on this machine, or on all machines of a cluster.

Ray decides where and when a job runs. Its folder must be the same on all machines. What a job is,
how it is marked and how it goes on is the same as on one machine: see `job`.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from grd_offline.core.errors import DataError, StorageError
from grd_offline.lab.sweep.job import (
    FAILED,
    FINISHED,
    STOPPED,
    Busy,
    JobProcess,
    Mark,
    Resources,
    find_folder,
    read_mark,
)
from grd_offline.lab.sweep.plan import Job
from grd_offline.lab.sweep.run import Ended, Machine, Runner, divide

BUSY_SECONDS = 60.0
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


class RayRunner(Runner):
    """Hands all jobs to Ray."""

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
        self._check_room(devices, share)
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

    def _check_room(self, devices: float, share: float) -> None:
        """Refuse what no machine of the cluster can run: Ray would wait forever."""
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        most = max((node.get("CPU", 0) for node in nodes), default=0)
        if self._cores > most:
            self.close()
            raise DataError(f"no machine has {self._cores} cores, only {most:g}", field="cpus")
        if share and not devices:
            self.close()
            raise DataError("no accelerator in the cluster: expected 0", field="gpus")

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
        return [Ended(job, self._fetch(one, job)) for one in ready for job in [self._jobs.pop(one)]]

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
        if mark is not None and mark.state == FINISHED:
            with suppress(DataError):
                if read_mark(find_folder(self._sweep, job)) == mark:
                    return mark
            reason = f"its machine does not share the folder {self._sweep} with this one"
            return self._describe(job, FAILED, reason)
        return mark

    def _describe(self, job: Job, state: str, reason: str) -> Mark:
        before = None
        with suppress(DataError):
            before = read_mark(find_folder(self._sweep, job))
        return Mark(state, job.command, before.tries if before else 0, reason=reason)

    def stop(self) -> None:
        for reference in self._jobs:
            self._ray.cancel(reference)

    def close(self) -> None:
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
    try:
        return process.finish()
    except StorageError as error:
        return Mark(FAILED, job.command, process.mark.tries, reason=str(error))


def _start(sweep: Path, job: Job, resources: Resources, directory: Path) -> JobProcess | None:
    """Start a job. The process of an earlier try gets some time to end."""
    end = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            return JobProcess(sweep, job, resources, directory)
        except Busy:
            if time.monotonic() > end:
                return None
            time.sleep(WAIT_SECONDS)
