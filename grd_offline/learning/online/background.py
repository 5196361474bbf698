"""Work of the host beside the updates of an accelerator, in processes of their own.

Threads would share the interpreter with the loop that feeds the device. On a CPU the cores are busy
with updates anyway, so the work is done at once.

These processes use only cores that nobody else needs. On a computer whose cores are all busy with
other programs they would never finish. Work that has been waited for long enough is begun anew in
processes like any others, and so is all later work.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from grd_offline.core.beside import follow_parent
from grd_offline.core.cores import count_cores, yield_to_others

PATIENCE_SECONDS = 30.0
"""Work that is waited for is begun anew after so long. A usual wait takes a few seconds."""


class Background:
    """Calls functions with picklable arguments, and hands over what they return."""

    def __init__(self, *, beside: bool, most: int) -> None:
        """Run in this process, or `beside` it in at most so many others at a time."""
        self.seconds = 0.0
        """Seconds that this process has worked or waited."""
        self._most = max(1, min(most, count_cores() * 3 // 4))
        self._is_beside = beside
        self._pool: ProcessPoolExecutor | None = None
        self._is_patient = True
        """Whether all other processes go first."""
        self._unfinished: list[Job] = []

    def start(self, function: Callable[..., Any], *arguments: Any) -> Job:
        """Begin to call a function."""
        future = None
        if self._is_beside:
            try:
                future = self._find_pool().submit(function, *arguments)
            except BrokenProcessPool:
                self._is_beside = False
        job = Job(self, future, function, arguments)
        if future is None:
            job.finish()
        else:
            self._unfinished.append(job)
        return job

    def _hurry(self) -> None:
        """Begin all that is not finished anew, in processes that do not let others go first."""
        slow, self._pool, self._is_patient = self._pool, None, False
        for job in self._unfinished:
            job.begin_anew(self._find_pool())
        _end(slow)

    def _find_pool(self) -> ProcessPoolExecutor:
        if self._pool is None:
            self._pool = ProcessPoolExecutor(
                self._most,
                mp_context=multiprocessing.get_context("spawn"),
                initializer=_follow,
                initargs=(os.getpid(), self._is_patient),
            )
        return self._pool

    def close(self) -> None:
        """Give up what is not finished."""
        _end(self._pool)
        self._pool = None


class Job:
    """One call, which may not be finished yet."""

    def __init__(
        self,
        owner: Background,
        future: Future[Any] | None,
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
    ) -> None:
        self._owner, self._future = owner, future
        self._function, self._arguments = function, arguments
        self._result: Any = None
        self._is_finished = False

    @classmethod
    def make_finished(cls, result: Any) -> Job:
        """A call that has returned already."""
        job = cls(Background(beside=False, most=1), None, lambda: result, ())
        job.finish()
        return job

    def finish(self) -> Any:
        """Wait for the function, and return its result."""
        if not self._is_finished:
            began = time.perf_counter()
            try:
                self._result = self._wait()
            except BrokenProcessPool:  # a script without the guard that processes need
                self._owner._is_beside, self._future = False, None
            if self._future is None:
                self._result = self._function(*self._arguments)
            self._is_finished, self._arguments = True, ()
            if self in self._owner._unfinished:
                self._owner._unfinished.remove(self)
            self._owner.seconds += time.perf_counter() - began
        return self._result

    def begin_anew(self, pool: ProcessPoolExecutor) -> None:
        if self._future is not None and not self._future.done():
            self._future = pool.submit(self._function, *self._arguments)

    def _wait(self) -> Any:
        if self._future is None:
            return None
        wait([self._future], PATIENCE_SECONDS if self._owner._is_patient else None)
        if not self._future.done():
            self._owner._hurry()
        return self._future.result()


def _follow(parent: int, is_patient: bool) -> None:
    """Follow the process that started this one, and let all others go first if `is_patient`."""
    if is_patient:
        yield_to_others()
    follow_parent(parent)


def _end(pool: ProcessPoolExecutor | None) -> None:
    """End a pool and its processes, so that the program does not wait for them when it ends."""
    if pool is not None:
        processes = list((getattr(pool, "_processes", None) or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.kill()
