"""Runs from start to end: agents learn from returns, stop and go on, survive what goes wrong."""

import errno
import os
import signal
from dataclasses import replace

import numpy as np
import point_mass
import pytest
import torch
from online_runs import Warned, make_settings, train, train_while, weights_of

import grd_offline
from grd_offline.core.errors import DataError, StorageError
from grd_offline.core.observer import Observers
from grd_offline.io.files import storage
from grd_offline.io.files.results import append_rows, read_rows
from grd_offline.learning.online.run import OnlineFolder, OnlineRun
from grd_offline.learning.online.sources import Oracle
from grd_offline.learning.runs import run as shared
from grd_offline.learning.settings import METHODS


@pytest.fixture(autouse=True)
def _register():
    point_mass.register()


GOOD = -12.0
"""Mean return. Random actions have about -40; the true reward leads to about -2."""


@pytest.mark.long
def test_every_method_and_fit_learns_to_act_from_returns():
    settings = make_settings(
        methods=tuple(m for m in METHODS if m != "grd-no-compact"), steps=750, eval_every=750,
        fits=("closed-form", "quadratic", "joint-net", "paper"), hidden=(16, 16), warmup=300,
        batch=32,
    )  # fmt: skip
    run, evaluations = train(settings)
    final = evaluations[-1].returns.mean(1)
    names = [member.group for member in run.members]
    scores = dict(zip(names, final, strict=True))
    # Without a decomposition it is luck: over three seeds -5, -16 and -43.
    assert np.isfinite(scores.pop("none"))
    for name, score in scores.items():
        assert score > GOOD, (name, scores)


@pytest.mark.long
@pytest.mark.parametrize("backbone", ["td3", "ddpg"])
def test_every_backbone_learns_to_act_from_returns(backbone):
    settings = make_settings(
        backbone=backbone, methods=("grd", "grd-no-compact", "oracle"), exploration=0.3, steps=1000,
        eval_every=1000, batch=32, hidden=(16, 16),
    )  # fmt: skip
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


@pytest.mark.long
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


@pytest.mark.long
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

    with OnlineRun(settings, workers=1, observer=Observers([])) as run:
        train_while(run, kill_once)
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


@pytest.mark.long
def test_too_many_bad_updates_stop_the_run_with_a_line(tmp_path, monkeypatch):
    monkeypatch.setattr(shared, "MOST_SKIPPED", 30)
    settings = make_settings(
        steps=700, warmup=200, methods=("oracle", "none"), eval_every=300, eval_episodes=1,
        batch=16, hidden=(16, 16),
    )  # fmt: skip
    folder = OnlineFolder(tmp_path / "run")
    with OnlineRun(settings, workers=0, observer=Observers([folder])) as run:
        folder.create(run, command=[], workers=0, device="cpu")

        spoiled = []

        def spoil():
            if run.step == 400 and not spoiled:
                spoiled.append(True)
                folder.save(run)
                (oracle,) = (s for s in run.learner.sources if isinstance(s, Oracle))
                oracle._true[:] = torch.nan
            return False

        with pytest.raises(DataError, match=r"oracle-seed0: \d+ updates were not finite"):
            train_while(run, spoil)
        assert run.learner.count_skipped()[[m.method for m in run.members].index("none")] == 0
        folder.close()
    folder = OnlineFolder(tmp_path / "run")
    with OnlineRun(settings, workers=0, observer=folder) as again:
        folder.resume(again)
        assert again.step == 400
        assert np.isfinite(weights_of(again)).all()
        again.train()
        assert again.step == 700


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


def test_train_online_is_a_function(tmp_path):
    warned, small = Warned(), {"batch": 8, "hidden": (4,), "round_steps": 20, "round_updates": 1}
    result = grd_offline.train_online(
        point_mass.ID, tmp_path / "run", methods=("grd", "none"), steps=120, warmup=40,
        eval_every=60, eval_episodes=1, workers=0, device="cpu", observer=warned, **small,
    )  # fmt: skip
    assert (result.step, result.is_complete, warned.told) == (120, True, [])
    rows = [(row["step"], row["member"]) for row in result.evaluations]
    members = ("grd-closed-form-seed0", "none-seed0")
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
