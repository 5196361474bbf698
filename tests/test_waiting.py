"""torch's threads sleep soon after their work while other processes are busy."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from grd_offline.core import waiting

pytestmark = pytest.mark.skipif(not Path("/proc/stat").exists(), reason="no /proc/stat")


@pytest.fixture
def two_threads(monkeypatch):
    for name in waiting._CHOSEN:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(waiting, "LOOK_SECONDS", 0.01)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def count_threads():
    """Threads of this process, also those that Python does not know."""
    return len(list(Path("/proc/self/task").iterdir()))


def wait_until(is_there, seconds=20.0):
    begin = time.monotonic()
    while time.monotonic() - begin < seconds:
        if is_there():
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize(("cores", "holders"), [(1, 1), (2, 1), (3, 2), (4, 3)])
def test_there_are_more_threads_than_cores_until_they_are_released(two_threads, cores, holders):
    """This thread has a helper. So has each that holds, and all of these count, and this one."""
    torch.ones(2**18).add_(1)
    before = count_threads()
    holder = waiting.Holder(cores)
    assert wait_until(lambda: count_threads() == before + 2 * holders)
    assert 1 + 1 + holders > cores
    holder.release()
    assert wait_until(lambda: count_threads() == before)


def test_threads_are_held_while_others_are_busy(two_threads, monkeypatch):
    """A fake says that others use a core, and then none."""
    torch.ones(2**18).add_(1)
    busy, seen = threading.Event(), []

    def pretend(own):
        seen.append(list(own))
        return time.monotonic() if busy.is_set() else 0.0

    monkeypatch.setattr(waiting, "_count_seconds", pretend)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    before = count_threads()
    with waiting.sleep_beside_others(lambda: [7]):
        assert wait_until(lambda: len(seen) > 2)
        assert count_threads() == before + 1
        busy.set()
        assert wait_until(lambda: count_threads() == before + 3)
        busy.clear()
        assert wait_until(lambda: count_threads() == before + 1)
        busy.set()
        assert wait_until(lambda: count_threads() == before + 3)
    assert wait_until(lambda: count_threads() == before)
    assert seen[-1] == [7]


def test_nobody_watches_one_thread_or_what_the_user_chose(two_threads, monkeypatch):
    before = count_threads()
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")
    with waiting.sleep_beside_others():
        assert count_threads() == before
    monkeypatch.delenv("OMP_WAIT_POLICY")
    torch.set_num_threads(1)
    with waiting.sleep_beside_others():
        assert count_threads() == before


def test_the_work_of_others_is_all_but_our_own(tmp_path, monkeypatch):
    """Two cores of which we have the first, and a process of ours with a name that misleads."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    monkeypatch.setattr(time, "process_time", lambda: 2.0)
    ticks = os.sysconf("SC_CLK_TCK")
    cores = f"cpu  1 2 3 4\ncpu0 {5 * ticks} {ticks} {2 * ticks} 900 7\ncpu1 {ticks} 0 0 5 5\n"
    (tmp_path / "stat").write_text(cores + "intr 1 2 3\n")
    (tmp_path / "12").mkdir()
    fields = ["12", "(a ) 1 2 (b)", "S", *["0"] * 10, str(ticks), str(2 * ticks), "77"]
    (tmp_path / "12" / "stat").write_text(" ".join(fields))
    assert waiting._count_seconds([12, 13], tmp_path) == pytest.approx(8 - 3 - 2)


def test_a_busy_process_is_noticed():
    """The real statistics count the work of a process, unless it is one of ours."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        begin = waiting._count_seconds([]) - waiting._count_seconds([process.pid])

        def has_worked():
            return waiting._count_seconds([]) - waiting._count_seconds([process.pid]) > begin + 0.1

        assert wait_until(has_worked)
    finally:
        process.kill()
        process.wait()
