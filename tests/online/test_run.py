"""Runs from start to end: agents learn from returns, stop and go on, survive what goes wrong."""

import csv
import errno
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import point_mass
import pytest
import torch
from click.testing import CliRunner
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import grd_offline
from grd_offline import RewardModel
from grd_offline.cli.program import cli
from grd_offline.errors import DataError, StorageError
from grd_offline.files import storage
from grd_offline.files.runs import append_rows, read_rows
from grd_offline.online import training
from grd_offline.online.run import OnlineRun
from grd_offline.online.run_folder import OnlineFolder, read_settings
from grd_offline.online.settings import METHODS, OnlineSettings
from grd_offline.online.sources import Oracle
from grd_offline.runs import run as shared
from grd_offline.runs.observer import Observer

COMMAND = str(Path(sys.executable).with_name("grd-offline"))


@pytest.fixture(autouse=True)
def _register():
    point_mass.register()


def make_settings(**changes):
    given = {
        "steps": 3000, "warmup": 400, "round_steps": 20, "round_updates": 20, "batch": 64,
        "hidden": (32, 32), "learning_rate": 3e-3, "model_rate": 3e-3, "eval_every": 1000,
        "policy_discount": 0.9, "seeds": 1, "eval_episodes": 10,
    }  # fmt: skip
    return OnlineSettings(**{"environment": point_mass.ID, **given, **changes})


class Keeper(Observer):
    """Keeps the evaluations of a run."""

    def __init__(self):
        self.evaluations = []

    def on_evaluation(self, run, evaluation):
        self.evaluations.append(evaluation)


def train(settings, **options):
    keeper = Keeper()
    with OnlineRun(settings, workers=0, observers=[keeper], **options) as run:
        run.train()
        return run, keeper.evaluations


GOOD = -12.0
"""Mean return. Random actions have about -40; the true reward leads to about -2."""


def test_every_method_and_fit_learns_to_act_from_returns():
    settings = make_settings(
        methods=tuple(m for m in METHODS if m != "grd-no-compact"), steps=1100, eval_every=1100,
        fits=("quadratic", "joint-net", "paper"),
        hidden=(16, 16),
    )  # fmt: skip
    run, evaluations = train(settings)
    final = evaluations[-1].returns.mean(1)
    names = [member.group for member in run.members]
    scores = dict(zip(names, final, strict=True))
    # Without a decomposition it is luck: over three seeds -5, -16 and -43.
    assert np.isfinite(scores.pop("none"))
    for name, score in scores.items():
        assert score > GOOD, (name, scores)


@pytest.mark.parametrize("backbone", ["td3", "ddpg"])
def test_every_backbone_learns_to_act_from_returns(backbone):
    settings = make_settings(
        backbone=backbone, methods=("grd", "grd-no-compact", "oracle"), exploration=0.3, steps=1500
    )
    run, evaluations = train(settings)
    final = evaluations[-1].returns.mean(1)
    assert (final > GOOD).all(), dict(zip([m.name for m in run.members], final, strict=True))


def test_evaluations_come_at_every_multiple_and_at_the_end():
    settings = make_settings(
        steps=750, round_steps=40, round_updates=1, warmup=100, eval_every=150, eval_episodes=1
    )
    run, evaluations = train(settings)
    assert run.step == 760
    assert [evaluation.step for evaluation in evaluations] == [160, 320, 480, 600, 760]


def weights_of(run):
    return run.learner.export_actors()


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize(
    ("stop", "replay"),
    [(200, 10_000), (450, 10_000), (460, 10_000), (600, 300)],
    ids=["warm-up", "mid-episode", "at-reset", "full-buffer"],
)
def test_going_on_equals_not_having_stopped(tmp_path, overlap, stop, replay):
    settings = make_settings(
        steps=700, round_steps=10, round_updates=3, eval_every=250, overlap=overlap,
        replay=replay, methods=("grd", "rrd"), fits=("quadratic", "joint-net"),
        eval_episodes=2,
    )  # fmt: skip
    whole, evaluations = train(settings)
    expected = weights_of(whole)
    folder, keeper = OnlineFolder(tmp_path / "run"), Keeper()
    with OnlineRun(settings, workers=0, observers=[folder, keeper]) as first:
        folder.create(first, command=[], workers=0, device="cpu")
        first.train(lambda: first.step >= stop)
        folder.save(first)
        folder.close()
    folder = OnlineFolder(tmp_path / "run")
    with OnlineRun(settings, workers=0, observers=[folder, keeper]) as second:
        assert folder.resume(second) == []
        assert second.step == stop
        second.train()
        np.testing.assert_array_equal(weights_of(second), expected)
        assert torch.equal(second.learner.replay.observations, whole.learner.replay.observations)
    assert len(keeper.evaluations) == len(evaluations)
    for ours, theirs in zip(keeper.evaluations, evaluations, strict=True):
        assert ours.step == theirs.step
        np.testing.assert_array_equal(ours.returns, theirs.returns)


@pytest.mark.parametrize("before_the_end", [1, 61])
def test_a_stop_in_the_middle_of_a_round_goes_on_exactly(tmp_path, monkeypatch, before_the_end):
    """A block of updates can take minutes: a stop does not wait for its end."""
    monkeypatch.setattr("grd_offline.online.run.CHUNK", 1)
    settings = make_settings(
        steps=600, round_steps=10, round_updates=3, eval_every=250, eval_episodes=1
    )
    whole, evaluations = train(settings)
    stop = whole.learner.updates - before_the_end
    folder, keeper = OnlineFolder(tmp_path / "run"), Keeper()
    with OnlineRun(settings, workers=0, observers=[folder, keeper]) as first:
        folder.create(first, command=[], workers=0, device="cpu")
        first.train(lambda: first.learner.updates >= stop)
        assert first.learner.updates == stop
        folder.save(first)
        folder.close()
    folder = OnlineFolder(tmp_path / "run")
    with OnlineRun(settings, workers=0, observers=[folder, keeper]) as second:
        assert folder.resume(second) == []
        second.train()
        np.testing.assert_array_equal(weights_of(second), weights_of(whole))
    assert [e.step for e in keeper.evaluations] == [e.step for e in evaluations]


def test_overlap_and_workers_change_what_they_should():
    # Worker processes do not know what this one has registered.
    settings = make_settings(
        environment="Factored", steps=600, eval_every=600, eval_episodes=1, round_steps=50
    )
    here, _ = train(settings)
    with OnlineRun(settings, workers=1) as elsewhere:
        elsewhere.train()
        np.testing.assert_array_equal(weights_of(here), weights_of(elsewhere))
    in_turn, _ = train(replace(settings, overlap=False))
    assert not np.array_equal(weights_of(here), weights_of(in_turn))


def test_a_dead_worker_is_replaced_and_the_run_goes_on():
    settings = make_settings(environment="Factored", steps=800, eval_every=800, eval_episodes=1)
    killed = []

    def kill_once():
        if not killed and run.step >= 500:
            process = run.fleet.processes[0]
            os.kill(process.pid, signal.SIGKILL)
            process.join()
            killed.append(run.step)
        return False

    with OnlineRun(settings, workers=1) as run:
        run.train(kill_once)
        assert run.step == 800
        assert run.restarts == 1
        assert np.isfinite(weights_of(run)).all()
    assert killed


def test_only_finished_episodes_enter_the_replay():
    settings = make_settings(steps=450, warmup=10_000, round_steps=50)
    run, evaluations = train(settings)
    assert evaluations == []
    assert run.learner.replay.layouts[0].steps == 440
    assert len(np.concatenate(run.unfinished[0].rewards)) == 10
    assert run.learner.updates == 0


def test_ends_and_time_limits_are_told_apart():
    settings = make_settings(steps=2000, warmup=10_000, round_steps=50, env_args={"ends": True})
    run, _ = train(settings)
    replay = run.learner.replay
    lengths = replay.episode_lengths[0, : replay.layouts[0].episodes]
    ends = replay.numbers[0, :, 0].sum()
    assert 0 < ends < len(lengths)
    # Every short episode ended by itself; a full one hardly ever does.
    assert ends - (lengths < point_mass.LENGTH).sum() in (0, 1, 2)


def test_too_many_bad_updates_stop_the_run_with_a_line(tmp_path, monkeypatch):
    monkeypatch.setattr(shared, "MOST_SKIPPED", 30)
    settings = make_settings(steps=1000, methods=("oracle", "none"), eval_every=500)
    folder = OnlineFolder(tmp_path / "run")
    with OnlineRun(settings, workers=0, observers=[folder]) as run:
        folder.create(run, command=[], workers=0, device="cpu")

        spoiled = []

        def spoil():
            if run.step == 600 and not spoiled:
                spoiled.append(True)
                folder.save(run)
                (oracle,) = (s for s in run.learner.sources if isinstance(s, Oracle))
                oracle._true[:] = torch.nan
            return False

        with pytest.raises(DataError, match=r"oracle-seed0: \d+ updates were not finite"):
            run.train(spoil)
        assert run.learner.count_skipped()[[m.method for m in run.members].index("none")] == 0
        folder.close()
    folder = OnlineFolder(tmp_path / "run")
    with OnlineRun(settings, workers=0, observers=[folder]) as again:
        folder.resume(again)
        assert again.step == 600
        assert np.isfinite(weights_of(again)).all()
        again.train()
        assert again.step == 1000


def read(path):
    with Path(path).open(newline="") as file:
        return list(csv.DictReader(file))


def run_command(folder, *arguments, code=0):
    result = subprocess.run(
        [COMMAND, "train-online", *arguments], cwd=folder, capture_output=True, text=True,
        timeout=200, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert result.returncode == code, result.stderr
    return result


SMALL = (
    "--env", "grd/Factored-v0", "--steps", "600", "--warmup", "300", "--eval-every", "200",
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
    rows = read(folder / "evaluations.csv")
    assert [row["step"] for row in rows if row["member"] == "oracle-seed0"] == ["400", "600"]
    assert all(np.isfinite(float(row["mean_return"])) for row in rows)
    model = RewardModel.load(folder / "members" / "grd-quadratic-seed0")
    assert (model.about["method"], model.about["fit"]) == ("grd", "quadratic")
    assert model.predict(np.zeros((4, 10)), np.zeros((4, 3))).shape == (4,)
    masks = json.loads(
        (folder / "members/grd-quadratic-seed0/masks/step-000000400.json").read_text()
    )
    assert np.shape(masks["state_to_state"]) == (10, 10)
    episode = read(folder / "members/grd-quadratic-seed0/episodes/step-000000400.csv")
    assert len(episode) == 100
    assert (folder / "members/oracle-seed0/policies/best/config.json").is_file()
    board = EventAccumulator(str(folder / "tensorboard")).Reload()
    shown = board.Scalars("mean_return/oracle-seed0")
    assert [event.step for event in shown] == [400, 600]
    written = [float(row["mean_return"]) for row in rows if row["member"] == "oracle-seed0"]
    np.testing.assert_allclose([event.value for event in shown], written, rtol=1e-5)
    again = run_command(tmp_path, *SMALL, "--out", "run", code=2)
    assert "exists already; to go on with it: --resume" in again.stderr
    assert again.stderr.count("\n") == 1


def test_a_killed_run_goes_on_exactly(tmp_path):
    arguments = [*SMALL, "--steps", "700", "--method", "grd"]
    run_command(tmp_path, *arguments, "--out", "whole")
    script = (
        "import sys\n"
        "from grd_offline.online import run_folder\n"
        "run_folder.CHECKPOINT_SECONDS = 0.0\n"
        "from grd_offline.cli import main\n"
        "main(sys.argv[1:])\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, "train-online", *arguments, "--out", "killed"],
        cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    table, deadline = tmp_path / "killed/evaluations.csv", time.monotonic() + 150
    while time.monotonic() < deadline and (not table.exists() or len(read(table)) < 2):
        assert process.poll() is None
        time.sleep(0.02)
    process.kill()
    process.wait()
    result = run_command(tmp_path, "--resume", "killed")
    assert "going on with killed at step" in result.stdout
    drop = ("seconds",)
    ours, theirs = (
        [
            {name: value for name, value in row.items() if name not in drop}
            for row in read(tmp_path / name / "evaluations.csv")
        ]
        for name in ("killed", "whole")
    )
    assert ours == theirs
    for name in ("config.json", "model.safetensors"):
        place = f"members/grd-quadratic-seed0/policies/best/{name}"
        assert (tmp_path / "killed" / place).read_bytes() == (
            tmp_path / "whole" / place
        ).read_bytes()


def test_ctrl_c_saves_and_says_how_to_go_on(tmp_path):
    process = subprocess.Popen(
        [COMMAND, "train-online", *SMALL, "--steps", "100000", "--out", "run"], cwd=tmp_path,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    table, deadline = tmp_path / "run/evaluations.csv", time.monotonic() + 150
    while time.monotonic() < deadline and (not table.exists() or not read(table)):
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "to go on: grd-offline train-online --resume run" in output
    assert (tmp_path / "run/checkpoint.pt").is_file()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "Missing option '--env'"),
        (("--env", "Hoper"), "did you mean Hopper-v5"),
        (("--env", "CartPole-v1"), "action"),
        (("--env", "Factored", "--method", "best"), "expected grd"),
        (("--env", "Factored", "--set", "x=1"), "expected one of lambda_state_reward"),
        (("--env", "Factored", "--steps", "0"), "steps: expected a whole number"),
        (("--env", "Factored", "--seed", "5000000000000000000"), "seeds: expected whole numbers"),
        (("--resume", "nowhere"), "no such folder"),
        (
            ("--resume", "nowhere", "--steps", "5"),
            "takes --device and --workers alone, not --steps",
        ),
    ],
)
def test_mistakes_end_in_one_line(tmp_path, arguments, words):
    result = run_command(tmp_path, *arguments, code=2)
    assert words in result.stderr
    assert result.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["text", "torn", "other", "members"])
def test_a_checkpoint_that_does_not_fit_is_refused(tmp_path, kind):
    settings = make_settings(steps=100, warmup=10_000)
    folder = OnlineFolder(tmp_path / "run")
    with OnlineRun(settings, workers=0, observers=[folder]) as run:
        folder.create(run, command=[], workers=0, device="cpu")
        run.train()
        folder.save(run)
        with pytest.raises(DataError, match="run: another process is training in it"):
            OnlineFolder(tmp_path / "run").resume(run)
        folder.close()
    path = tmp_path / "run/checkpoint.pt"
    if kind == "text":
        path.write_text("hello")
    elif kind == "torn":
        path.write_bytes(path.read_bytes()[:1000])
    elif kind == "other":
        torch.save({"a": 1}, path)
    other = make_settings(steps=100, seeds=2) if kind == "members" else settings
    with OnlineRun(other, workers=0) as again, pytest.raises(DataError, match=r"checkpoint\.pt"):
        OnlineFolder(tmp_path / "run").resume(again)


def test_a_run_without_updates_is_told_beforehand(tmp_path):
    result = run_command(tmp_path, *SMALL, "--steps", "200", "--out", "run")
    words = "nothing will be learned in 200 steps: the warm-up alone takes 300 (--warmup)"
    assert words in result.stderr


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

    monkeypatch.setattr(training, "OnlineRun", refuse)
    result = CliRunner().invoke(cli, ["train-online", "--resume", str(tmp_path / "run"), *given])
    assert isinstance(result.exception, DataError)
    assert asked == [expected]


def test_a_full_disk_and_a_lost_table_are_told_in_a_line(tmp_path, monkeypatch):
    full = tmp_path / "log.csv"
    full.write_text("a\n")

    def write_half(descriptor, data):
        """What a disk does that is full in the middle of a row."""
        if len(data) < 100:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.pwrite(descriptor, data[:50], 0) and 50

    monkeypatch.setattr(storage.os, "write", write_half)
    with pytest.raises(StorageError, match=r"log\.csv: cannot be written: No space left"):
        append_rows(full, ("a",), [{"a": "1" * 100}])
    monkeypatch.undo()
    assert full.stat().st_size == 2
    with pytest.raises(DataError, match=r"lost\.csv: cannot be read"):
        read_rows(tmp_path / "lost.csv")


def test_a_run_of_an_earlier_version_goes_on_under_the_new_names(tmp_path):
    settings = make_settings(
        steps=700, warmup=100, round_steps=10, round_updates=3, eval_every=250, eval_episodes=2
    )
    path = tmp_path / "run"
    folder = OnlineFolder(path)
    with OnlineRun(settings, workers=0, observers=[folder]) as first:
        folder.create(first, command=[], workers=0, device="cpu")
        first.train(lambda: first.step >= 450)
        folder.save(first)
        folder.close()
    for name in ("settings.json", "evaluations.csv", "log.csv"):
        text = (path / name).read_text()
        (path / name).write_text(text.replace("quadratic", "closed-form"))
    (path / "members/grd-quadratic-seed0").rename(path / "members/grd-closed-form-seed0")
    contents = torch.load(path / "checkpoint.pt", weights_only=True)
    contents["members"] = ["grd-closed-form-seed0"]
    best = contents["extra"]["best"]
    contents["extra"]["best"] = {"grd-closed-form-seed0": best["grd-quadratic-seed0"]}
    torch.save(contents, path / "checkpoint.pt")
    old, _ = read_settings(path)
    assert old == settings
    folder = OnlineFolder(path)
    with OnlineRun(old, workers=0, observers=[folder]) as second:
        assert folder.resume(second) == []
        assert folder.best == best
        second.train()
        folder.close()
    assert [entry.name for entry in (path / "members").iterdir()] == ["grd-quadratic-seed0"]
    rows = read_rows(path / "evaluations.csv")
    assert {row["member"] for row in rows} == {"grd-quadratic-seed0"}
    assert [int(row["step"]) for row in rows] == [250, 500, 700]


def test_train_online_is_a_function(tmp_path):
    warnings, small = [], {"batch": 8, "hidden": (4,), "round_steps": 20, "round_updates": 1}
    result = grd_offline.train_online(
        point_mass.ID, tmp_path / "run", methods=("grd", "none"), steps=120, warmup=40,
        eval_every=60, eval_episodes=1, workers=0, device="cpu", warn=warnings.append, **small,
    )  # fmt: skip
    assert (result.step, result.is_complete, warnings) == (120, True, [])
    rows = [(row["step"], row["member"]) for row in result.evaluations]
    members = ("grd-quadratic-seed0", "none-seed0")
    assert rows == [(step, member) for step in (60, 120) for member in members]
    assert all(np.isfinite(row["mean_return"]) for row in result.evaluations)
    assert set(result.policies) == set(members)
    assert all((path / "config.json").is_file() for path in result.policies.values())
    again = grd_offline.resume_online(tmp_path / "run", workers=0, device="cpu")
    assert again.step == 120
    with pytest.raises(DataError, match="exists already"):
        grd_offline.train_online(point_mass.ID, tmp_path / "run", device="cpu", workers=0)
    with pytest.raises(DataError, match="warmup: expected a whole number"):
        grd_offline.train_online(point_mass.ID, tmp_path / "other", warmup=-1)
