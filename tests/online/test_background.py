"""Work beside the updates, in processes of its own."""

import math
import os
import time

import pytest
from starved import double_unless_starved, end_elsewhere

from grd_offline.learning.online import closed_form as module
from grd_offline.learning.online.closed_form import Background


def double(number):
    return 2 * number


def test_work_beside_the_updates_gives_the_same():
    for beside in (False, True):
        background = Background(beside=beside, most=2)
        jobs = [background.start(abs, -number) for number in range(3)]
        assert [job.finish() for job in jobs] == [0, 1, 2]
        background.close()


def test_work_is_done_here_where_processes_cannot_be_started(monkeypatch):
    class Broken:
        def submit(self, *arguments):
            raise OSError

    background = Background(beside=True, most=2)
    monkeypatch.setattr(background, "_find_pool", Broken)
    assert background.start(double, 4).finish() == 8
    assert background.seconds > 0


def test_work_of_a_process_that_dies_is_done_here():
    here = os.getpid()
    background = Background(beside=True, most=2)
    assert background.start(end_elsewhere, here).finish() == here
    assert background.start(end_elsewhere, here).finish() == here
    background.close()


def test_an_error_is_raised_when_the_result_is_asked_for():
    background = Background(beside=True, most=2)
    with pytest.raises(ValueError, match="domain error"):
        background.start(math.sqrt, -1.0).finish()
    background.close()


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="Linux alone has it")
def test_work_that_gets_no_core_is_begun_anew(monkeypatch):
    """Idle processes of a computer whose cores are all busy never finish."""
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.5)
    background = Background(beside=True, most=2)
    jobs = [background.start(double_unless_starved, number) for number in range(5)]
    assert [job.finish() for job in jobs] == [0, 2, 4, 6, 8]
    assert background.start(double_unless_starved, 5).finish() == 10
    background.close()


def test_closing_does_not_wait_for_work():
    background = Background(beside=True, most=1)
    background.start(time.sleep, 600)
    processes = [one.process for one in background._pool.processes]
    background.close()
    # An idle process may need long to end beside busy ones. If a thread of the pool learns of the
    # end at the same moment, `join` returns before `is_alive` knows.
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and any(process.is_alive() for process in processes):
        time.sleep(0.05)
    assert not any(process.is_alive() for process in processes)
