"""Every example runs, on the sample that comes with the repository, and prints what it says."""

import os
import runpy
import shutil
import sys
from pathlib import Path

import pytest
from places import ROOT

from grd_offline import DecomposeSettings, decompose_file

pytestmark = pytest.mark.long

EXAMPLES = {
    "gymnasium_reward": "learned return",
    "sb3_sac": "mean true return",
    "torchrl_replay": "mean reward of a batch",
    "corl_dataset": "a policy needs 11 of 11 dimensions: (1418, 11)",
    "onnx_reward": "1418 rewards, largest difference",
    "turn_credit": "correlation with the true credit of 2,086 turns: 1.000",
    "own_loop": "after 60 updates the mean reward is",
}


def test_every_example_is_tested_and_listed():
    scripts = {path.stem for path in (ROOT / "examples").glob("*.py")}
    # d3rlpy's runs in its own environment, with the other tests of it.
    assert scripts == {*EXAMPLES, "d3rlpy_iql"}
    listed = (ROOT / "examples" / "README.md").read_text()
    assert all(f"`{name}.py`" in listed for name in scripts)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("examples")
    shutil.copy(ROOT / "datasets" / "sample.h5", folder)
    decompose_file(folder / "sample.h5", folder / "sample-grd", DecomposeSettings())
    return folder


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_run(name, folder, monkeypatch, capfd):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", [name, "sample-grd"])
    commands = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    monkeypatch.setenv("PATH", commands)
    runpy.run_path(str(ROOT / "examples" / f"{name}.py"), run_name="__main__")
    assert EXAMPLES[name] in capfd.readouterr().out
