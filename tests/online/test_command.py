"""`grd-offline train-online` as people run it, stop it and kill it."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import forked
import numpy as np
import pytest
from click.testing import CliRunner
from online_runs import make_settings, read_table, start_command, wait_for_rows
from places import HELPERS
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from grd_offline import RewardModel
from grd_offline.cli.program import cli
from grd_offline.cli.train import name_resume
from grd_offline.core.errors import DataError
from grd_offline.core.words import format_bytes
from grd_offline.learning.online.run import OnlineFolder, OnlineRun, check_space, read_settings

pytestmark = pytest.mark.long


def run_command(folder, *arguments, code=0):
    result = forked.run("train-online", *arguments, cwd=folder, small=True)
    assert result.returncode == code, result.stderr
    return result


SMALL = (
    "--env", "grd/Factored-v0", "--steps", "300", "--warmup", "150", "--eval-every", "100",
    "--eval-episodes", "1", "--workers", "1",
)  # fmt: skip


def test_the_command_leaves_what_it_says(tmp_path):
    result = run_command(tmp_path, *SMALL, "--method", "grd,oracle", "--out", "run")
    assert "wrote run" in result.stdout
    folder = tmp_path / "run"
    settings, contents = read_settings(folder)
    assert settings.methods == ("grd", "oracle")
    assert contents["environment"] == "grd/Factored-v0"
    assert "torch" in contents["versions"]
    rows = read_table(folder / "evaluations.csv")
    assert [row["step"] for row in rows if row["member"] == "oracle-seed0"] == ["200", "300"]
    assert all(np.isfinite(float(row["mean_return"])) for row in rows)
    model = RewardModel.load(folder / "members" / "grd-closed-form-seed0")
    assert (model.about["method"], model.about["fit"]) == ("grd", "closed-form")
    zeros = np.zeros((4, 10))
    assert model.predict(zeros, np.zeros((4, 3)), zeros, np.zeros(4)).shape == (4,)
    masks = json.loads(
        (folder / "members/grd-closed-form-seed0/masks/step-000000200.json").read_text()
    )
    assert np.shape(masks["state_to_state"]) == (10, 10)
    episode = read_table(folder / "members/grd-closed-form-seed0/episodes/step-000000200.csv")
    assert len(episode) == 100
    assert (folder / "members/oracle-seed0/policies/best/config.json").is_file()
    board = EventAccumulator(str(folder / "tensorboard")).Reload()
    shown = board.Scalars("mean_return/oracle-seed0")
    assert [event.step for event in shown] == [200, 300]
    written = [float(row["mean_return"]) for row in rows if row["member"] == "oracle-seed0"]
    np.testing.assert_allclose([event.value for event in shown], written, rtol=1e-5)
    again = run_command(tmp_path, *SMALL, "--out", "run", code=2)
    assert "exists already; to continue it: --resume" in again.stderr
    assert again.stderr.count("\n") == 1


def test_a_killed_run_goes_on_exactly(tmp_path):
    arguments = [*SMALL, "--steps", "400", "--method", "grd"]
    run_command(tmp_path, *arguments, "--out", "whole")
    script = (
        "import sys\n"
        "from grd_offline.learning.online import run\n"
        "run.CHECKPOINT_SECONDS = 0.0\n"
        "from grd_offline.cli import main\n"
        "from small_networks import small_networks\n"
        "with small_networks():\n"
        "    main(sys.argv[1:])\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, "train-online", *arguments, "--out", "killed"],
        cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(HELPERS)},
    )  # fmt: skip
    wait_for_rows(process, tmp_path / "killed/evaluations.csv", 2)
    process.kill()
    process.wait()
    result = run_command(tmp_path, "--resume", "killed")
    assert "continuing killed at step" in result.stdout
    drop = ("seconds",)
    ours, theirs = (
        [
            {name: value for name, value in row.items() if name not in drop}
            for row in read_table(tmp_path / name / "evaluations.csv")
        ]
        for name in ("killed", "whole")
    )
    assert ours == theirs
    for name in ("config.json", "model.safetensors"):
        place = f"members/grd-closed-form-seed0/policies/best/{name}"
        assert (tmp_path / "killed" / place).read_bytes() == (
            tmp_path / "whole" / place
        ).read_bytes()


def test_ctrl_c_saves_and_says_how_to_go_on(tmp_path):
    arguments = (*SMALL, "--steps", "100000", "--out", "run")
    process = start_command(tmp_path, "train-online", *arguments)
    wait_for_rows(process, tmp_path / "run/evaluations.csv")
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=480)
    assert process.returncode == 130
    assert "to continue: grd-offline train-online --resume run" in output
    assert (tmp_path / "run/checkpoint.pt").is_file()


def test_the_command_to_go_on_names_what_has_to_be_trusted_again():
    arguments = {"xml_file": "./robot.xml", "size": 3}
    line = name_resume(Path("runs/a b"), "mine:Env-v0", arguments)
    again = "--env mine:Env-v0 --env-arg xml_file=./robot.xml"
    assert line == f"grd-offline train-online --resume 'runs/a b' {again}"
    assert name_resume(Path("run"), "Hopper", {}).endswith("--resume run")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "Missing option '--env'"),
        (("--env", "Hoper"), "did you mean Hopper-v5"),
        (
            ("--env", "CartPole-v1", "--backbone", "sac"),
            "CartPole-v1: backbone: sac is for continuous actions, these are discrete: use dqn",
        ),
        (("--env", "Factored", "--backbone", "dqn"), "dqn is for discrete actions"),
        (("--env", "Factored", "--method", "best"), "expected grd"),
        (("--env", "Factored", "--set", "x=1"), "expected one of lambda_state_reward"),
        (("--env", "Factored", "--steps", "0"), "steps: expected a whole number"),
        (("--env", "Factored", "--seed", "5000000000000000000"), "seeds: expected whole numbers"),
        (("--env", "Factored", "--environments", "3"), "environments: expected a divisor of 100"),
        (("--resume", "nowhere"), "no such folder"),
        (
            ("--resume", "nowhere", "--steps", "5"),
            "cannot be combined with --steps",
        ),
    ],
)
def test_mistakes_end_in_one_line(tmp_path, arguments, words):
    result = run_command(tmp_path, *arguments, code=2)
    assert words in result.stderr
    assert result.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_run_without_updates_is_told_beforehand(tmp_path):
    result = run_command(tmp_path, *SMALL, "--steps", "100", "--environments", "2", "--out", "run")
    assert read_settings(tmp_path / "run")[0].environments == 2
    words = "nothing will be learned in 100 steps: the warm-up alone takes 150 (--warmup)"
    assert words in result.stderr


def test_a_disk_that_is_too_small_is_told_beforehand(tmp_path, monkeypatch):
    told = []
    with OnlineRun(make_settings(environment="Factored"), workers=0) as run:
        size = 4 * len(run.members) * run.total * (run.fleet.observation_size + len(run.fleet.low))
        for free in (2 * size - 1, 2 * size):
            usage = SimpleNamespace(free=free)
            monkeypatch.setattr(shutil, "disk_usage", lambda folder, usage=usage: usage)
            check_space(run, tmp_path, told.append)
    assert len(told) == 1
    assert f"checkpoints will grow to {format_bytes(size)}" in told[0]


@pytest.mark.parametrize(("given", "expected"), [((), 3), (("--workers", "0"), 0)])
def test_a_resumed_run_has_as_many_workers_as_asked(tmp_path, monkeypatch, given, expected):
    settings = make_settings(environment="Factored")
    folder = OnlineFolder(tmp_path / "run")
    with OnlineRun(settings, workers=0) as run:
        folder.create(run, command=[], workers=3, device="cpu")
    asked = []

    def refuse(settings, *, workers, **options):
        asked.append(workers)
        raise DataError("seen")

    monkeypatch.setattr("grd_offline.learning.online.run.OnlineRun", refuse)
    result = CliRunner().invoke(cli, ["train-online", "--resume", str(tmp_path / "run"), *given])
    assert isinstance(result.exception, DataError)
    assert asked == [expected]
