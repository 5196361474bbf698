"""Work that never ends where all other processes go first, as on a computer with busy cores."""

import os
import time


def double_unless_starved(number: int) -> int:
    while os.sched_getscheduler(0) == os.SCHED_IDLE:
        time.sleep(0.1)
    return 2 * number


def end_elsewhere(process: int) -> int:
    if os.getpid() != process:
        os._exit(1)
    return process
