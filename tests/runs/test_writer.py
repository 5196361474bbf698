"""Files written beside the training: in order, and failures are told."""

import threading

import pytest

from grd_offline.learning.runs.run import Writer


def test_functions_are_called_in_order_beside_the_caller():
    writer, called, gate = Writer(), [], threading.Event()
    writer.submit(gate.wait)
    for number in range(5):
        writer.submit(called.append, number)
    assert called == []
    gate.set()
    writer.wait()
    assert called == [0, 1, 2, 3, 4]
    writer.close()


def test_a_failure_is_told_once():
    writer = Writer()
    gate = threading.Event()

    def fail():
        gate.wait()
        raise OSError("disk full")

    writer.submit(fail)
    gate.set()
    with pytest.raises(OSError, match="disk full"):
        writer.wait()
    writer.close()
