"""Work of the host beside the updates of an accelerator, in processes of their own.

Threads would share the interpreter with the loop that feeds the device. On a CPU the cores are busy
with updates anyway, so the work is done at once.

These processes use only cores that nobody else needs. On a computer whose cores are all busy with
other programs they would never finish. Work that has been waited for long enough is begun anew in
processes like any others, and so is all later work.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from queue import SimpleQueue
from typing import Any

from grd_offline.core.process import Process, ProcessDied, answer_calls
from grd_offline.core.threads import count_cores, yield_to_others

PATIENCE_SECONDS = 30.0
"""Work that is waited for is begun anew after so long. A usual wait takes a few seconds."""


class Background:
    """Calls functions with picklable arguments, and hands over what they return."""

    def __init__(self, *, beside: bool, most: int) -> None:
        """Run in this process, or `beside` it in at most so many others at a time."""
        self.seconds = 0.0
        """Seconds that this process has worked or waited."""
        self._most = max(1, min(most, count_cores() * 3 // 4))
        self._is_beside, self._is_patient = beside, True
        """Whether there are other processes, and whether they let all others go first."""
        self._pool: _Pool | None = None
        self._unfinished: list[BackgroundCall] = []

    def start(self, function: Callable[..., Any], *arguments: Any) -> BackgroundCall:
        """Begin to call a function."""
        call = BackgroundCall(function, arguments, self)
        self._unfinished.append(call)
        if self._is_beside:
            try:
                call.future = self._find_pool().submit(function, arguments)
            except (OSError, AssertionError):
                self._is_beside = False
        if call.future is None:
            call.finish()
        return call

    def wait(self, call: BackgroundCall) -> Any:
        """Wait for a call, and give its result."""
        began = time.perf_counter()
        try:
            if call.future is not None and self._is_patient:
                wait([call.future], PATIENCE_SECONDS)
                if not call.future.done():
                    self._hurry()
            result = call.future.result() if call.future is not None else call.run()
        except ProcessDied:
            self._is_beside, result = False, call.run()
        self._unfinished.remove(call)
        self.seconds += time.perf_counter() - began
        return result

    def _hurry(self) -> None:
        """Begin all that is not finished anew, in processes that do not let others go first."""
        slow, self._pool, self._is_patient = self._pool, None, False
        for call in self._unfinished:
            if call.future is not None and not call.future.done():
                call.future = self._find_pool().submit(call.function, call.arguments)
        if slow is not None:
            slow.close()

    def _find_pool(self) -> _Pool:
        if self._pool is None:
            self._pool = _Pool(self._most, yield_to_others if self._is_patient else None)
        return self._pool

    def close(self) -> None:
        """Give up what is not finished."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None


class BackgroundCall:
    """One call, which may not be finished yet. One without an owner has returned already."""

    def __init__(
        self,
        function: Callable[..., Any],
        arguments: tuple[Any, ...] = (),
        owner: Background | None = None,
    ) -> None:
        self.function, self.arguments = function, arguments
        self.future: Future[Any] | None = None
        self._owner = owner
        self._result = None if owner is not None else function(*arguments)

    def run(self) -> Any:
        """Call the function in this process."""
        return self.function(*self.arguments)

    def finish(self) -> Any:
        """Wait for the function, and return its result."""
        if self._owner is not None:
            self._result = self._owner.wait(self)
            self._owner, self.arguments = None, ()
        return self._result


class _Pool:
    """Processes that answer calls, at most so many."""

    def __init__(self, most: int, prepare: Callable[[], None] | None) -> None:
        self._most, self._prepare = most, prepare
        self._threads = ThreadPoolExecutor(most, thread_name_prefix="grd-offline-background")
        self.processes: list[Process] = []
        self._free: SimpleQueue[Process] = SimpleQueue()

    def submit(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Future[Any]:
        if len(self.processes) < self._most:
            process = Process(answer_calls, self._prepare)
            process.start()
            self.processes.append(process)
            self._free.put(process)
        return self._threads.submit(self._call, function, arguments)

    def _call(self, *call: Any) -> Any:
        process = self._free.get()
        try:
            process.send(call)
            return process.receive()
        finally:
            self._free.put(process)

    def close(self) -> None:
        """End the processes, so that the program does not wait for them when it ends."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for process in self.processes:
            process.process.kill()
