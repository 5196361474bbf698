"""Number of threads that numpy and scipy use, and how torch's threads wait for each other.

The matrices here are small. Threads that share one save about 10 % of a decomposition on an idle
computer, and wait for each other on a busy one (`benchmarks/busy.py`). So both work in one
thread, whatever the environment variables say. So do the networks that challenge a closed form, and
small networks that are trained (`grd_offline.runs.process`). Larger ones gain from torch's threads,
so their number is left alone: results depend on it.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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

    found = ThreadpoolController()
    paths = [
        library.filepath
        for library in found.lib_controllers
        if library.user_api == "blas" and is_numpys(library.filepath)
    ]
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


_SHORT_WAIT = "3000"
"""Rounds in which a thread looks for work before it sleeps. libgomp's own number is 300,000."""
_SPACE = 0.5  # cores that others may use on an idle computer


def wait_briefly_if_busy(seconds: float = 0.2, statistics: Path = Path("/proc/stat")) -> None:
    """Let torch's threads sleep soon after their work, if other processes use the cores now.

    A thread that waits in a loop takes the core from the one it waits for. Beside a busy process
    that made updates many times slower; sleeping early costs a quarter on an idle computer
    (`benchmarks/research/online.md`). The arithmetic stays the same. This has an effect before
    torch is loaded, on Linux; environment variables of the user stand.
    """
    names = {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "OMP_NUM_THREADS"}
    if "torch" in sys.modules or names & os.environ.keys() or not statistics.exists():
        return
    begin, before = time.monotonic(), _read_busy_seconds(statistics)
    time.sleep(seconds)
    used = (_read_busy_seconds(statistics) - before) / (time.monotonic() - begin)
    if used > _SPACE:
        os.environ["GOMP_SPINCOUNT"] = _SHORT_WAIT


def _read_busy_seconds(statistics: Path) -> float:
    """Seconds of work of all cores since the system began."""
    _, user, nice, system, *_ = statistics.read_text().split(maxsplit=4)
    return (int(user) + int(nice) + int(system)) / os.sysconf("SC_CLK_TCK")
