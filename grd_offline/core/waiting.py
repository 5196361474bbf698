"""How torch's threads wait for each other while other processes use the cores.

A thread that is done with its part of a product waits in a loop for the others, which is the
fastest way on an idle computer. Beside a busy process it takes the core from the thread that it
waits for, and updates become ten times slower. libgomp, which has torch's threads on Linux, lets
them sleep at once if there are more threads than cores. So while others are busy, a thread that
does nothing else holds some more of them. The arithmetic stays the same.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

LOOK_SECONDS = 0.5
"""Seconds between two looks at what others do."""
BUSY, QUIET = 0.3, 0.15
"""Cores that others use: from the first number on, threads sleep; below the second, they do not."""
_CHOSEN = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
_PART = 2**15  # numbers per thread: torch divides no smaller parts


@contextmanager
def sleep_beside_others(list_own: Callable[[], Iterable[int]] = tuple) -> Iterator[None]:
    """Let torch's threads sleep soon after their work whenever other processes use the cores.

    `list_own` gives the numbers of processes that work for this one. Variables with which the user
    chose how threads wait stand.
    """
    is_chosen = any(name in os.environ for name in _CHOSEN)
    if is_chosen or torch.get_num_threads() == 1:
        yield
        return
    over = threading.Event()
    watch = threading.Thread(target=_watch, args=(over, list_own), daemon=True)
    watch.start()
    try:
        yield
    finally:
        over.set()
        watch.join()


def _watch(over: threading.Event, list_own: Callable[[], Iterable[int]]) -> None:
    holder: Holder | None = None
    try:
        before, since = _count_seconds(list_own()), time.monotonic()
    except (OSError, ValueError, AttributeError):  # not Linux, or a part of it is hidden
        return
    while not over.wait(LOOK_SECONDS):
        now, at = _count_seconds(list_own()), time.monotonic()
        used, before, since = (now - before) / (at - since), now, at
        if holder is None and used > BUSY:
            holder = Holder()
        elif holder is not None and used < QUIET:
            holder.release()
            holder = None
    if holder is not None:
        holder.release()


class Holder:
    """Holds so many threads that there are more than cores. They sleep until they are released."""

    def __init__(self, cores: int | None = None) -> None:
        helpers = torch.get_num_threads() - 1
        missing = (len(os.sched_getaffinity(0)) if cores is None else cores) - helpers
        self._over = threading.Event()
        count = max(1, -(-missing // helpers))
        self._threads = [threading.Thread(target=self._hold, daemon=True) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def _hold(self) -> None:
        # Work that torch divides: each thread that asks for that gets helpers of its own.
        torch.ones(2 * _PART * torch.get_num_threads()).add_(1)
        self._over.wait()

    def release(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()


def _count_seconds(own: Iterable[int], system: Path = Path("/proc")) -> float:
    """Seconds of work that other processes have had on the cores of this one."""
    cores = {f"cpu{core}" for core in os.sched_getaffinity(0)}
    ticks = 0
    for line in (system / "stat").read_text().splitlines():
        name, *counts = line.split()
        if name in cores:
            ticks += sum(map(int, counts[:3]))
    for process in own:
        try:
            text = (system / str(process) / "stat").read_text()
        except OSError:  # it has just ended
            continue
        ticks -= sum(map(int, text.rpartition(")")[2].split()[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK") - time.process_time()
