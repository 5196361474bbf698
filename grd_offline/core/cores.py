"""Bounds on the steps of an episode and on the number of processes."""

import os
from contextlib import suppress

DEFAULT_STEP_LIMIT = 1000
"""The limit of environments that have none: that of Gymnasium's MuJoCo tasks."""
LARGEST_STEP_LIMIT = 1_000_000
"""A higher limit is refused, because the arrays of a whole episode are held in memory."""

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
