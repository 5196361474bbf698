"""The result of an earlier try: a training is not deleted because going on with it failed."""

import sys
import zipfile

import numpy as np
import pytest
import torch

from grd_offline.lab.sweep import folder as jobs_module
from grd_offline.lab.sweep.folder import (
    FAILED,
    FINISHED,
    GONE,
    Job,
    Mark,
    Resources,
    is_damaged,
    write_mark,
)
from grd_offline.lab.sweep.run import LocalRunner, run_jobs
from grd_offline.learning.online.run import write_checkpoint

FULL = "grd-offline: error: checkpoint.pt: cannot be written: No space left on device"
TRAINING = f"""
import sys
from pathlib import Path
options = dict(zip(sys.argv[2::2], sys.argv[3::2]))
folder = Path(options.get("--out") or options["--resume"])
if "--resume" in options and not (folder.parent / "room").exists():
    print({FULL!r})
    sys.exit(2)
folder.mkdir(exist_ok="--resume" in options)
(folder / "evaluations.csv").touch()
"""
"""In place of `grd-offline`: a training that cannot go on before there is room on the disk."""
JOB = Job("a", ("train-online", "--steps", "3"))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of a job that was killed and then failed to go on."""
    program = tmp_path / "training.py"
    program.write_text(TRAINING)
    monkeypatch.setattr(jobs_module, "PROGRAM", (sys.executable, str(program)))
    folder = tmp_path / "jobs" / "a"
    (folder / "result").mkdir(parents=True)
    write_checkpoint({"weights": torch.ones(1000), "steps": 17_700}, folder / "result")
    write_mark(folder, Mark(FAILED, JOB.command, 2, 5.0, 2, "exit code 2", resumed=True))
    return folder


def run(folder, tries):
    sweep = folder.parents[1]
    with LocalRunner(sweep, [Resources(1)], sweep) as runner:
        return run_jobs(sweep, [JOB], runner, tries=tries)["a"]


def read_commands(folder):
    """Whether each try went on."""
    lines = (folder / "output.txt").read_text().splitlines()
    return ["--resume" in line for line in lines if line.startswith("$")]


def test_a_full_disk_costs_no_training(folder):
    mark = run(folder, tries=3)
    assert (mark.state, mark.resumed, read_commands(folder)) == (FAILED, True, [True] * 3)
    assert "No space left on device" in mark.reason
    assert (folder / "result" / "checkpoint.pt").is_file()
    assert not (folder / "result-1").exists()
    (folder / "room").touch()
    mark = run(folder, tries=1)
    assert (mark.state, mark.resumed, mark.seconds > 5) == (FINISHED, True, True)


def test_a_damaged_checkpoint_is_given_up_and_kept(folder):
    checkpoint = folder / "result" / "checkpoint.pt"
    checkpoint.write_bytes(checkpoint.read_bytes()[:-500])
    (folder / "result-1").mkdir()
    mark = run(folder, tries=1)
    assert (mark.state, mark.resumed, read_commands(folder)) == (FINISHED, False, [False])
    assert (folder / "result-2" / "checkpoint.pt").is_file()
    assert [entry.name for entry in (folder / "result").iterdir()] == ["evaluations.csv"]
    told = "the checkpoint is damaged: beginning anew, the earlier result is kept in result-2\n"
    assert (folder / "output.txt").read_text().startswith(told)


def test_a_training_whose_evaluations_were_removed_is_kept(folder):
    write_mark(folder, Mark(FINISHED, JOB.command, 1, 5.0, 0))
    assert run(folder, tries=1).state == FINISHED
    assert read_commands(folder) == [False]
    assert (folder / "result-1" / "checkpoint.pt").is_file()
    assert (folder / "output.txt").read_text().startswith(f"{GONE}: beginning anew")


def damage(path, kind):
    data = bytearray(path.read_bytes())
    if kind == "changed":
        data[len(data) // 2] ^= 1
    path.write_bytes({"empty": b"", "text": b"of no use", "cut": data[: len(data) // 2]}.get(
        kind, bytes(data)
    ))  # fmt: skip
    if kind == "large":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("archive/data.pkl", b"\0" * 10**6)
    if kind == "other":
        np.savez(path.with_suffix(".npz"), a=np.zeros(3))
        path.with_suffix(".npz").replace(path)


@pytest.mark.parametrize("kind", ["empty", "text", "cut", "changed", "large", "other"])
def test_damage_is_found(tmp_path, kind):
    path = tmp_path / "checkpoint.pt"
    write_checkpoint({"weights": torch.ones(1000), "steps": 17_700}, tmp_path)
    assert not is_damaged(tmp_path)
    damage(path, kind)
    assert is_damaged(tmp_path)


def test_a_checkpoint_that_cannot_be_read_now_is_not_damaged(tmp_path, monkeypatch):
    def fail(*arguments):
        raise OSError(5, "Input/output error")

    write_checkpoint({"steps": 1}, tmp_path)
    monkeypatch.setattr(zipfile.ZipFile, "testzip", fail)
    assert not is_damaged(tmp_path)
    assert not is_damaged(tmp_path / "nowhere")
