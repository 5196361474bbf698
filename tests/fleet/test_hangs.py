"""What hangs is noticed, and does not keep a command from ending with its data saved."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest
from online_runs import Warned
from places import HELPERS

from grd_offline import read
from grd_offline.io.files.results import read_rows
from grd_offline.learning.collecting.dataset import run_episodes
from grd_offline.learning.fleet import worker
from grd_offline.learning.fleet.fleet import Fleet
from grd_offline.learning.settings import CollectSettings

pytestmark = pytest.mark.long

ID = "hanging:Hanging-v0"
LIMIT_SECONDS = 120.0  # a busy computer takes long; a command that hangs would never end


def be_impatient(monkeypatch, seconds):
    monkeypatch.setattr(worker, "SILENT_SECONDS", seconds)


# Two workers take some seconds to start, during which they are silent.
@pytest.mark.parametrize(("workers", "silence"), [(1, 1.0), (2, 8.0)])
def test_a_step_that_never_returns_is_told(workers, silence, monkeypatch):
    be_impatient(monkeypatch, silence)
    warned = Warned()
    settings = CollectSettings(ID, env_args={"after": 50}, episodes=8, workers=workers)
    deadline = time.monotonic() + 240
    warned.should_stop = lambda: bool(warned.told) or time.monotonic() > deadline
    _, records = run_episodes(settings, warned)
    if workers == 1:  # in this process, where only a signal ends it
        before = signal.signal(signal.SIGALRM, _raise_stuck)
        signal.setitimer(signal.ITIMER_REAL, 6)
    try:
        assert len(list(records)) in (2, 3, 4)
    finally:
        if workers == 1:
            signal.signal(signal.SIGALRM, before)
    assert "episode" in warned.told[0]
    since = re.search(r"no step for \d+ s, since (\d\d:\d\d:\d\d): ", warned.told[0])
    assert since
    hours, minutes, seconds = (int(part) for part in since[1].split(":"))
    now = time.localtime()
    passed = 3600 * (now.tm_hour - hours) + 60 * (now.tm_min - minutes) + now.tm_sec - seconds
    assert passed % 86400 < 300  # also across midnight


def _raise_stuck(number, frame):
    raise worker.Stuck


def test_a_member_that_hangs_is_named(monkeypatch):
    warned = Warned()
    warned.should_stop = lambda: bool(warned.told)
    with Fleet(ID, [0, 1, 2], workers=3, steps=5, hidden=(4,), observer=warned) as fleet:
        fleet.start_round(0, None)
        fleet.finish_round()
        be_impatient(monkeypatch, 4.0)
        stopped = fleet.processes[1].pid
        os.kill(stopped, signal.SIGSTOP)
        fleet.start_round(1, None)
        with pytest.raises(worker.Hung, match=r"member 1 .*does not answer"):
            fleet.finish_round()
        fleet.abandon()
        state = fleet.state()
    assert "member 1 (worker process" in warned.told[0]
    assert len(warned.told) == 1
    assert state["steps"].tolist() == [5, 5, 5]


def start(folder, *arguments):
    environment = {**os.environ, "PYTHONPATH": str(HELPERS), "HANGING_FOLDER": str(folder)}
    return subprocess.Popen(
        [sys.executable, HELPERS / "small_networks.py", *arguments],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_until_it_hangs(folder, workers):
    """Wait for all workers, and for the command to wait for them."""
    deadline = time.monotonic() + 480
    while len(list(folder.glob("hangs-*"))) < workers:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    time.sleep(1)


def end(process, number):
    """Send the signal, and see how and how soon the command ends."""
    process.send_signal(number)
    begin = time.monotonic()
    out, err = process.communicate(timeout=240)
    assert "Traceback" not in err, err
    assert time.monotonic() - begin < LIMIT_SECONDS, err
    return out, err


@pytest.mark.parametrize("workers", ["1", "2"])
def test_collect_ends_and_keeps_what_is_finished(workers, tmp_path):
    arguments = ("--env-arg", "after=50", "--episodes", "8", "--out", "data.h5")
    process = start(tmp_path, "collect", "--env", ID, *arguments, "--workers", workers)
    wait_until_it_hangs(tmp_path, int(workers))
    out, _ = end(process, signal.SIGINT)
    assert process.returncode == 130
    assert "stopped: data.partial.h5 holds" in out
    assert len(read(tmp_path / "data.partial.h5")) >= 2


def test_training_ends_and_saves_a_checkpoint(tmp_path):
    arguments = ("--warmup", "100", "--eval-every", "100", "--steps", "5000", "--workers", "2")
    process = start(
        tmp_path, "train-online", "--env", ID, "--env-arg", "after=550", "--method", "oracle",
        "--eval-episodes", "1", "--seeds", "2", "--out", "run", *arguments,
    )  # fmt: skip
    wait_until_it_hangs(tmp_path, 2)
    _, err = end(process, signal.SIGTERM)
    assert process.returncode == 128 + signal.SIGTERM
    assert "does not answer" in err
    assert (tmp_path / "run" / "checkpoint.pt").is_file()
    assert read_rows(tmp_path / "run" / "evaluations.csv")
