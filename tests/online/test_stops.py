"""A run that was stopped goes on as if it had not been; what does not fit is refused."""

import threading
import time

import numpy as np
import point_mass
import pytest
import torch
from online_runs import (
    Keeper,
    Warned,
    make_settings,
    train,
    train_until,
    train_while,
    weights_of,
)

from grd_offline.core.errors import DataError
from grd_offline.core.observer import Observers
from grd_offline.io.files.results import read_rows
from grd_offline.learning.online import run
from grd_offline.learning.online.run import OnlineFolder, OnlineRun

pytestmark = pytest.mark.long


@pytest.fixture(autouse=True)
def _register():
    point_mass.register()


@pytest.fixture(scope="module")
def whole_runs():
    """Runs that are not stopped, by their settings: once for all places where others stop."""
    return {}


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize(
    ("stop", "replay"),
    [(200, 10_000), (450, 10_000), (460, 10_000), (600, 300)],
    ids=["warm-up", "mid-episode", "at-reset", "full-buffer"],
)
def test_going_on_equals_not_having_stopped(tmp_path, whole_runs, overlap, stop, replay):
    settings = make_settings(
        steps=640, round_steps=10, round_updates=2, eval_every=250, overlap=overlap,
        replay=replay, methods=("grd", "rrd"), fits=("quadratic", "joint-net"),
        eval_episodes=2, batch=16, hidden=(16, 16),
    )  # fmt: skip
    if (overlap, replay) not in whole_runs:
        whole_runs[overlap, replay] = train(settings)
    whole, evaluations = whole_runs[overlap, replay]
    expected = weights_of(whole)
    keeper = Keeper()
    train_until(tmp_path / "run", settings, lambda run: run.step >= stop, keeper)
    folder = OnlineFolder(tmp_path / "run")
    with OnlineRun(settings, workers=0, observer=Observers([folder, keeper])) as second:
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
    monkeypatch.setattr("grd_offline.learning.online.run.CHUNK", 1)
    settings = make_settings(
        steps=600, round_steps=10, round_updates=3, eval_every=250, eval_episodes=1
    )
    whole, evaluations = train(settings)
    stop = whole.learner.updates - before_the_end
    keeper = Keeper()
    first = train_until(tmp_path / "run", settings, lambda run: run.learner.updates >= stop, keeper)
    assert first.learner.updates == stop
    folder = OnlineFolder(tmp_path / "run")
    with OnlineRun(settings, workers=0, observer=Observers([folder, keeper])) as second:
        assert folder.resume(second) == []
        second.train()
        np.testing.assert_array_equal(weights_of(second), weights_of(whole))
    assert [e.step for e in keeper.evaluations] == [e.step for e in evaluations]


def test_a_stop_while_an_environment_hangs_during_updates_saves_a_checkpoint(tmp_path, monkeypatch):
    """The round that is collected meanwhile is given up; the block of updates goes on later."""
    monkeypatch.setattr("grd_offline.learning.online.run.CHUNK", 1)
    monkeypatch.setattr("grd_offline.learning.fleet.fleet.STOP_SECONDS", 0.5)
    monkeypatch.setenv("HANGING_FOLDER", str(tmp_path))
    settings = make_settings(
        environment="hanging:Hanging-v0", env_args={"after": 70}, steps=100, warmup=20,
        round_steps=20, round_updates=5, batch=8, hidden=(4,), methods=("oracle",), eval_episodes=1,
    )  # fmt: skip
    warned, deadline = Warned(), time.monotonic() + 240

    def is_enough(run):
        """In the middle of the updates after step 60, once the next round hangs."""
        if run.step == 60 and run._updates_left == 2:
            while not list(tmp_path.glob("hangs-*")):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            return True
        return False

    path = tmp_path / "run"
    first = train_until(path, settings, is_enough, warned, workers=1)
    assert (first.step, first.learner.updates) == (60, 13)
    assert any("does not answer: given up: the steps since 60" in text for text in warned.told)
    folder = OnlineFolder(path)
    with OnlineRun(settings, workers=1, observer=folder) as second:
        assert folder.resume(second) == []
        assert (second.step, second.learner.updates) == (60, 13)
        second.train()  # the new environment hangs after 70 steps
        assert (second.step, second.learner.updates) == (100, 25)
        folder.close()


def test_a_round_that_was_kept_outlives_an_evaluation_that_hangs():
    """Only what is still under way is given up: the run goes on as if it had not stopped."""
    settings = make_settings(steps=600, round_steps=10, round_updates=3, eval_every=600)
    whole, _ = train(settings)
    with OnlineRun(settings, workers=0, observer=Observers([])) as run:
        train_while(run, lambda: run.step >= 400)
        assert run.state()["collected"] is not None
        run._give_up()
        assert run.state()["collected"] is not None
        run.train()
        np.testing.assert_array_equal(weights_of(run), weights_of(whole))


def test_a_run_goes_on_while_its_checkpoint_is_written(tmp_path, monkeypatch):
    """And the checkpoint holds the moment at which it was asked for, not a later one."""
    settings = make_settings(
        steps=600, round_steps=10, round_updates=3, warmup=200, eval_every=200, eval_episodes=1,
        batch=16, hidden=(16, 16),
    )  # fmt: skip
    whole, _ = train(settings)
    may_write, wrote, write = threading.Event(), [], run.write_checkpoint

    def write_late(contents, folder):
        assert may_write.wait(60)
        write(contents, folder)
        wrote.append(first.step)

    monkeypatch.setattr(run, "write_checkpoint", write_late)
    path = tmp_path / "run"
    folder = OnlineFolder(path)
    with OnlineRun(settings, workers=0, observer=Observers([folder])) as first:
        folder.create(first, command=[], workers=0, device="cpu")
        train_while(first, lambda: first.step >= 300)
        folder._last_checkpoint -= 2 * run.CHECKPOINT_SECONDS
        train_while(first, lambda: first.step >= 500)
        assert wrote == []
        assert not (path / "checkpoint.pt").exists()
        may_write.set()
        folder.close()
        assert wrote == [500]
    folder = OnlineFolder(path)
    with OnlineRun(settings, workers=0, observer=folder) as second:
        assert folder.resume(second) == []
        assert 300 <= second.step < 320
        second.train()
        np.testing.assert_array_equal(weights_of(second), weights_of(whole))
        folder.close()
    assert [row["step"] for row in read_rows(path / "evaluations.csv")] == ["200", "400", "600"]


@pytest.mark.parametrize("kind", ["text", "torn", "other", "members"])
def test_a_checkpoint_that_does_not_fit_is_refused(tmp_path, kind):
    settings = make_settings(steps=100, warmup=10_000)
    folder = OnlineFolder(tmp_path / "run")
    with OnlineRun(settings, workers=0, observer=folder) as run:
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
