"""Workers that die, or whose parent dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from fleets import assert_same, make_fleet, make_odd, make_weights, run_round

from grd_offline import DataError
from grd_offline.learning.fleet.fleet import Fleet

pytestmark = pytest.mark.long


def kill_worker(fleet: Fleet, number: int) -> None:
    process = fleet.processes[number]
    os.kill(process.pid, signal.SIGKILL)
    process.join()


def test_a_killed_worker_is_replaced() -> None:
    """Its members go on with their next episode, the others and the evaluation as if nothing."""
    with make_fleet() as fleet:
        expected = [run_round(fleet, index) for index in range(4)]
        weights = make_weights(fleet, 9)
        fleet.start_evaluation(0, weights, 3)
        evaluated = fleet.finish_evaluation()
    with make_fleet(workers=2) as fleet:
        run_round(fleet, 0)
        before = fleet.state()["episodes"]
        fleet.start_evaluation(0, weights, 3)
        fleet.start_round(1, make_weights(fleet, 1))
        kill_worker(fleet, 1)
        second = fleet.finish_round()
        assert second.restarted.tolist() == [False, False, True, True]
        for name, array in second._asdict().items():
            np.testing.assert_array_equal(array[:2], getattr(expected[1], name)[:2])
        state = fleet.state()
        ended = (second.terminations | second.truncations).sum(axis=1)
        np.testing.assert_array_equal(state["episodes"], before + ended + second.restarted)
        third = run_round(fleet, 2)
        assert not third.restarted.any()
        result = fleet.finish_evaluation()
        np.testing.assert_array_equal(result.returns, evaluated.returns)
        kill_worker(fleet, 0)  # while it has nothing to do
        assert run_round(fleet, 3).restarted.tolist() == [True, True, False, False]
        kill_worker(fleet, 1)  # before it is put somewhere else, where nothing is lost
        fleet.restore(state)
        assert_same(third, run_round(fleet, 2))
    # What happens after a death can be repeated as well.
    with make_fleet() as fleet:
        fleet.restore(state)
        assert_same(third, run_round(fleet, 2))


def test_a_worker_that_dies_with_two_rounds() -> None:
    """It repeats the older round from the next episodes on. Giving up goes back before both."""
    with make_fleet() as fleet:
        expected = [run_round(fleet, index) for index in range(3)]
    with make_fleet(workers=2) as fleet:
        run_round(fleet, 0)
        before = fleet.state()
        weights = [make_weights(fleet, index) for index in range(3)]
        for index in (1, 2):
            fleet.start_round(index, weights[index])
        kill_worker(fleet, 1)
        second, third = fleet.finish_round(), fleet.finish_round()
        assert second.restarted.tolist() == [False, False, True, True]
        assert not third.restarted.any()
        for one, found in ((expected[1], second), (expected[2], third)):
            for name, array in found._asdict().items():
                np.testing.assert_array_equal(array[:2], getattr(one, name)[:2])
        fleet.restore(before)
        for index in (1, 2):
            fleet.start_round(index, weights[index])
        fleet.wait_round(5.0)
        fleet.abandon()
        for name, array in fleet.state().items():
            np.testing.assert_array_equal(array, before[name])


def test_deaths_that_are_far_apart_do_not_add_up() -> None:
    """A death is told one round later if the worker had finished all that was under way."""
    with make_fleet([0], workers=1) as fleet:
        weights = make_weights(fleet)
        fleet.start_round(0, weights)
        restarts = 0
        for index in range(1, 12):
            fleet.start_round(index, weights)
            if index % 3 == 0:
                kill_worker(fleet, 0)
            restarts += int(fleet.finish_round().restarted.sum())
        assert restarts == 3
        assert len(fleet._rounds) == 1


@pytest.mark.parametrize(
    ("mode", "cause"), [("exit", "with exit code 3"), ("kill", "of signal SIGKILL")]
)
def test_a_worker_that_keeps_dying(mode: str, cause: str) -> None:
    with make_odd(mode, seeds=[1, 2, 3], after=0, workers=1) as fleet:
        fleet.start_round(0, None)
        message = f"worker process of members 0, 1, 2 died 3 times in a row, the last time {cause}"
        with pytest.raises(DataError, match=message):
            fleet.finish_round()


def test_what_a_death_between_rounds_cost_is_known_after_resuming() -> None:
    with make_fleet(workers=2) as fleet:
        run_round(fleet, 0)
        fleet.start_evaluation(0, make_weights(fleet), 3)
        kill_worker(fleet, 1)
        fleet.finish_evaluation()
        state = fleet.state()
        assert state["lost"].tolist() == [False, False, True, True]
        expected = run_round(fleet, 1)
        assert expected.restarted.tolist() == [False, False, True, True]
    with make_fleet() as fleet:
        fleet.restore(state)
        assert_same(expected, run_round(fleet, 1))
        assert not run_round(fleet, 2).restarted.any()


def test_an_evaluation_that_keeps_killing_its_worker() -> None:
    with make_odd("exit", seeds=[1], after=0, workers=1, steps=1) as fleet:
        run_round(fleet, 0)
        fleet.start_evaluation(0, make_weights(fleet), 2)
        with pytest.raises(DataError, match="died 3 times in a row, the last time with exit code"):
            fleet.finish_evaluation()


def test_workers_are_gone_after_closing_and_deaf_to_interrupts() -> None:
    fleet = make_fleet(workers=2)
    run_round(fleet, 0)
    processes = fleet.processes
    for process in processes:
        os.kill(process.pid, signal.SIGINT)
    run_round(fleet, 1)
    assert all(process.is_alive() for process in processes)
    fleet.start_evaluation(0, make_weights(fleet), 50)
    begin = time.monotonic()
    fleet.close()
    assert time.monotonic() - begin < 10
    assert not any(process.is_alive() for process in processes)
    with pytest.raises(RuntimeError, match="the fleet is closed"):
        fleet.start_round(2, None)


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc and /dev/shm")
def test_a_killed_parent_leaves_nothing_behind() -> None:
    script = (
        "from grd_offline.learning.fleet.fleet import Fleet\n"
        "if __name__ == '__main__':\n"
        "    fleet = Fleet('Factored', [0, 1], workers=2)\n"
        "    fleet.start_round(0, None); fleet.finish_round()\n"
        "    print(*(process.pid for process in fleet.processes), flush=True)\n"
        "    while True: fleet.start_round(1, None); fleet.finish_round()\n"
    )
    memory = set(os.listdir("/dev/shm"))
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    children = parent.stdout.readline().split()
    assert len(children) == 2
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and any(is_running(child) for child in children):
        time.sleep(0.05)
    assert not any(is_running(child) for child in children)
    ours = {name for name in set(os.listdir("/dev/shm")) - memory if str(parent.pid) in name}
    assert not ours


def is_running(process: str) -> bool:
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
