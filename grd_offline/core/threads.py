"""Number of processes, and of threads that numpy, scipy and torch use.

The matrices here are small. Threads that share one save about 10 % of a decomposition on an idle
computer, and wait for each other on a busy one (`benchmarks/busy.py`). So both work in one
thread, whatever the environment variables say. So do the networks that challenge a closed form, and
small networks that are trained (`grd_offline.learning.runs.process`). Larger ones gain from
torch's threads, so their number is left alone: results depend on it. `grd_offline.core.waiting`
keeps them from harm beside a busy process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MANY_CORES = 4


def count_cores() -> int:
    """Number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def divide_cores(cores: int, environments: int = 0) -> int:
    """Number of workers for so many cores: one each.

    Where there are many, one is left to the process that learns. More environments than that get a
    worker each, up to two for each core: otherwise some workers would step two of them while
    others, and their cores, wait.
    """
    workers = cores if cores < MANY_CORES else cores - 1
    return max(workers, min(environments, 2 * workers))


def lower_priority(step: int = 5) -> None:
    """Let other processes go first, where the system can do that."""
    if hasattr(os, "nice"):
        os.nice(step)


def yield_to_others() -> None:
    """Use only cores that nobody else has work for, where the system can do that.

    A low priority is not enough on Linux: such a process goes on for some milliseconds after
    another one has woken up that would like the core.
    """
    lower_priority(19)
    if hasattr(os, "SCHED_IDLE"):
        with suppress(OSError):  # a system that does not allow it
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def is_numpys(library: str) -> bool:
    """Whether a matrix library at that path is not the one that torch brings along."""
    return Path(library).parts[-3:-1] != ("torch", "lib")


@contextmanager
def one_numpy_thread() -> Iterator[None]:
    """Let numpy's and scipy's matrix libraries use one thread, until the end; also a decorator."""
    # Both load a matrix library, whose threads are meant here.
    import numpy as np  # noqa: F401
    import scipy.linalg  # noqa: F401
    from threadpoolctl import ThreadpoolController

    found = ThreadpoolController().select(user_api="blas")
    paths = [one.filepath for one in found.lib_controllers if is_numpys(one.filepath)]
    with found.select(filepath=paths).limit(limits=1):
        yield


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Let torch use one thread, until the end.

    On an idle computer, two threads save up to a third of a small network's time. Beside a busy
    process they wait for each other, and take many times as long.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
