"""What can be told of recorded updates without a device to record them on."""

from __future__ import annotations

import subprocess
import sys

import pytest
import test_offline_learner
import test_online_learner
import torch

from grd_offline.offline.settings import ALGORITHMS
from grd_offline.online.learner import _find_tensors

MANY_SIZES = """
import torch
from torch._dynamo.utils import counters
from grd_offline.online.capture import compiling_every_size

double = torch.compile(lambda x: 2 * x, dynamic=False, backend="eager")
with compiling_every_size():
    for size in range(1, 31):
        assert double(torch.ones(size)).tolist() == [2.0] * size
double(torch.ones(40))  # outside torch's own limit holds
print(counters["stats"]["unique_graphs"])
"""


def test_every_size_is_compiled():
    """In a process of its own: others have compiled nothing there."""
    result = subprocess.run(
        [sys.executable, "-c", MANY_SIZES], capture_output=True, text=True, timeout=300
    )
    assert result.stdout == "30\n", result.stderr[-3000:]


def snapshot(tensors):
    return [(tensor.data_ptr(), tensor.clone()) for tensor in tensors]


def assert_moved_in_place(before, tensors):
    """A graph writes where it wrote when it was recorded; some tensors have new values there."""
    assert [tensor.data_ptr() for tensor in tensors] == [place for place, _ in before]
    changed = [not torch.equal(old, new) for (_, old), new in zip(before, tensors, strict=True)]
    assert sum(changed) > len(changed) / 2


@pytest.mark.parametrize("backbone", ["sac", "td3"])
def test_online_updates_work_in_place(backbone):
    settings = test_online_learner.make_settings(
        methods=("grd", "rrd", "ircr", "none", "oracle"),
        fits=("closed-form", "neural", "paper"),
        backbone=backbone,
        seeds=1,
    )
    learner = test_online_learner.make_learner(settings)
    before = snapshot(_find_tensors(learner.state()))
    learner.run_updates(2)
    assert_moved_in_place(before, list(_find_tensors(learner.state())))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_offline_updates_work_in_place(algorithm):
    learner = test_offline_learner.make_learner(
        test_offline_learner.make_settings(algorithm=algorithm)
    )
    before = snapshot([learner.counter, *learner.agent.tensors()])
    learner.run_updates(2)
    assert_moved_in_place(before, [learner.counter, *learner.agent.tensors()])
