"""Recorded updates: what can be told without a device to record them on, and with one."""

from __future__ import annotations

import subprocess
import sys

import offline_learners
import online_learners
import pytest
import torch
from traced import run_traced

from grd_offline.learning.agents.algorithms import list_offline
from grd_offline.networks.members.device import find_tensors

MANY_SIZES = """
import torch
from torch._dynamo.utils import counters
from grd_offline.networks.members.device import compiling_every_size

double = torch.compile(lambda x: 2 * x, dynamic=False, backend="eager")
with compiling_every_size():
    for size in range(1, 31):
        assert double(torch.ones(size)).tolist() == [2.0] * size
double(torch.ones(40))  # outside torch's own limit holds
print(counters["stats"]["unique_graphs"])
"""


@pytest.mark.long
def test_every_size_is_compiled():
    """In a process of its own: others have compiled nothing there."""
    result = subprocess.run(
        [sys.executable, "-c", MANY_SIZES], capture_output=True, text=True, timeout=900
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
    settings = online_learners.make_settings(
        methods=("grd", "rrd", "ircr", "none", "oracle"),
        fits=("quadratic", "joint-net", "paper"),
        backbone=backbone,
        seeds=1,
    )
    learner = online_learners.make_learner(settings)
    before = snapshot(find_tensors(learner.state()))
    learner.run_updates(2)
    assert_moved_in_place(before, list(find_tensors(learner.state())))


@pytest.mark.parametrize("algorithm", list_offline())
def test_offline_updates_work_in_place(algorithm):
    learner = offline_learners.make_learner(offline_learners.make_settings(algorithm=algorithm))
    before = snapshot([learner.counter, *find_tensors(learner.agent.state())])
    learner.run_updates(2)
    assert_moved_in_place(before, [learner.counter, *find_tensors(learner.agent.state())])


ONLINE = """
from online_learners import make_learner, make_settings

settings = make_settings(seeds=1, {changes})
make = lambda capture: make_learner(settings, device="cuda", capture=capture)
"""
OFFLINE = """
import torch
from offline_learners import make_learner, make_settings

settings = make_settings(averaging=0.2, {changes})
make = lambda capture: make_learner(settings, device=torch.device("cuda"), capture=capture)
"""
COMPARE = """
import numpy as np

recorded, plain = make(True), make(False)
begin = plain.export_actors()
for learner in (recorded, plain):
    learner.run_updates(20)
ours, theirs = recorded.export_actors(), plain.export_actors()
assert np.abs(theirs - begin).max() > 1e-3
np.testing.assert_allclose(ours, theirs, rtol=1e-2, atol=2e-4)
print("equal")
"""


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(
    ("setup", "changes"),
    [
        (ONLINE, 'methods=("grd", "rrd"), fits=("quadratic", "joint-net", "paper")'),
        (ONLINE, 'methods=("grd",), fits=("closed-form",), warmup=0'),
        (ONLINE, 'methods=("oracle",), backbone="td3"'),
        (OFFLINE, 'algorithm="iql"'),
        (OFFLINE, 'algorithm="td3bc"'),
    ],
)
def test_recorded_updates_equal_plain_ones(setup, changes):
    run_traced(setup.format(changes=changes) + COMPARE)
