"""A function runs in a second process, and gives the result that it gives here."""

import math
import os
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace

import ends
import numpy as np
import pytest
from places import ROOT

from grd_offline import decompose, read
from grd_offline.core import process
from grd_offline.core.process import Call, Process, answer_calls
from grd_offline.methods import choose as module
from grd_offline.methods.choose import choose, estimate_fit_seconds, is_worth_a_process
from grd_offline.methods.settings import DecomposeSettings

pytestmark = pytest.mark.long

SETTINGS = DecomposeSettings()
SAMPLE = ROOT / "datasets" / "sample.h5"


def read_some():
    return read(SAMPLE)[:30]


def test_gives_the_result_and_several_calls_at_once():
    with Call(math.hypot, 3, 4) as one, Call(math.hypot, 6, 8) as other:
        assert other.finish() == (10.0,)
        assert one.finish() == (5.0,)
        assert one.finish() == (5.0,)


def test_an_error_there_gives_nothing():
    with Call(math.sqrt, -1) as call:
        assert call.finish() is None


def test_an_error_of_a_call_is_raised_with_its_place():
    one = Process(answer_calls)
    one.start()
    try:
        one.send((math.sqrt, (-1,)))
        with pytest.raises(ValueError, match="domain error") as caught:
            one.receive()
        assert "in answer_calls" in caught.value.__notes__[0]
        one.send((math.sqrt, (4,)))
        assert one.receive() == 2.0
    finally:
        one.end()


def test_no_second_process_gives_nothing(monkeypatch):
    def fail(self):
        raise OSError("no such file")

    monkeypatch.setattr(Process, "start", fail)
    with Call(math.sqrt, 4) as call:
        assert call.finish() is None


def test_a_program_that_is_no_python_is_not_started(monkeypatch):
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    with Call(math.sqrt, 4) as call:
        assert call.finish() is None


def test_leaving_the_block_ends_the_process():
    with suppress(RuntimeError), Call(time.sleep, 60) as call:
        process = call.process.process
        raise RuntimeError
    assert process.exitcode != 0


def test_the_process_ends_with_the_one_that_started_it(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import time\nfrom grd_offline.core.process import Call\n"
        "call = Call(time.sleep, 60)\nprint(call.process.process.pid, flush=True)\ntime.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as parent:
        child = int(parent.stdout.readline())
        time.sleep(2)  # the second process has begun its call
        parent.kill()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and _is_running(child):
        time.sleep(0.1)
    assert not _is_running(child)


def _is_running(process):
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_a_script_is_not_run_again_in_the_second_process(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import math\nfrom grd_offline.core.process import Call\nprint('once')\n"
        "print(Call(math.sqrt, 9).finish())\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("once\n(3.0,)\n", "")


def test_modules_in_the_working_folder_are_not_taken(tmp_path, monkeypatch):
    (tmp_path / "pickle.py").write_text("raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)
    assert "" not in sys.path
    with Call(os.getcwd) as call:
        assert call.finish() == (os.getcwd(),)


def test_the_same_fit_in_either_process(monkeypatch):
    episodes, called = read_some(), []
    found = {}
    for is_beside in (True, False):
        monkeypatch.setattr(module, "is_worth_a_process", lambda data, yes=is_beside: yes)
        choice = choose(
            episodes, SETTINGS, 1.0, np.random.default_rng(0),
            lambda stage, share: None, meanwhile=lambda yes=is_beside: called.append(yes),
        )  # fmt: skip
        assert choice.decomposer.rewards_ is not None
        found[is_beside] = choice.decomposer.predict_episode(episodes[0])
    np.testing.assert_array_equal(found[True], found[False])
    assert called == [True]


def test_an_averaged_decomposition_is_the_same_with_either_count_of_processes(
    monkeypatch, tmp_path
):
    monkeypatch.setattr(module, "FEWEST_TO_COMPARE", 5)
    monkeypatch.setattr(module, "GOOD_ENOUGH", 2.0)
    monkeypatch.setattr(module, "_are_level", lambda closed, linear: True)
    monkeypatch.setattr(module, "is_installed", lambda name: False)
    episodes, rewards, errors = read_some(), [], []
    for is_beside in (True, False):
        monkeypatch.setattr(module, "is_worth_a_process", lambda data, yes=is_beside: yes)
        found = decompose(episodes, tmp_path / str(is_beside))
        assert found.metrics["fit"] == module.AVERAGE
        rewards.append(found.rewards_)
        errors.append(found.metrics["dynamics_held_out_log_likelihood"])
    for name, amounts in rewards[0].items():
        np.testing.assert_array_equal(amounts, rewards[1][name])
    assert errors[0] == errors[1]


def test_a_process_that_dies_costs_nothing_but_time(monkeypatch):
    monkeypatch.setattr(module, "is_worth_a_process", lambda episodes: True)
    monkeypatch.setattr(process, "answer_calls", ends.die)
    stages = []
    choice = choose(
        read_some(), SETTINGS, 1.0, np.random.default_rng(0),
        lambda stage, share: stages.append(stage),
    )  # fmt: skip
    assert choice.fit == "closed-form"
    assert sum(stage.startswith("fitting the rewards") for stage in stages) > 1


def test_small_data_and_single_cores_have_no_second_process(monkeypatch):
    small = read_some()
    large = replace(small, lengths=np.full(1000, 50))
    assert estimate_fit_seconds(1000, 50_000, small.state_size, small.action_size) > 3
    monkeypatch.setattr(module, "count_cores", lambda: 2)
    assert is_worth_a_process(large)
    assert not is_worth_a_process(small)
    monkeypatch.setattr(module, "_MOST_BYTES", 1000)
    assert not is_worth_a_process(large)
    monkeypatch.setattr(module, "_MOST_BYTES", 10**9)
    monkeypatch.setattr(module, "count_cores", lambda: 1)
    assert not is_worth_a_process(large)
