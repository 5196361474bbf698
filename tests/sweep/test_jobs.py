"""Jobs on this machine: skipped, repeated, stopped and gone on with."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from places import HELPERS

from grd_offline.core.errors import DataError
from grd_offline.core.observer import Observer
from grd_offline.lab.sweep import folder as jobs_module
from grd_offline.lab.sweep.folder import (
    FINISHED,
    STARTED,
    STOPPED,
    Busy,
    Job,
    JobProcess,
    Mark,
    Resources,
    find_folder,
    measure_progress,
    read_mark,
    write_mark,
)
from grd_offline.lab.sweep.run import LocalRunner, Machine, divide, run_jobs

pytestmark = pytest.mark.long

PROGRAM = (sys.executable, str(HELPERS / "small_jobs.py"))


@pytest.fixture(autouse=True)
def small_program(monkeypatch):
    monkeypatch.setattr(jobs_module, "PROGRAM", PROGRAM)


def make_job(name, kind="fine", steps=3):
    return Job(name, ("train-online", "--steps", str(steps), "--env", kind))


class Notes(Observer):
    """Writes down each job that starts, and how often it was begun before."""

    def __init__(self, folder, should_stop):
        self.folder, self.should_stop, self.heard = folder, should_stop, []

    def on_start(self, work):
        tries = read_mark(find_folder(self.folder, work)).tries
        self.heard.append(f"{work.name} {tries - 1}")


def run(folder, jobs, *, places=2, should_stop=lambda: False, **options):
    notes = Notes(folder, should_stop)
    with LocalRunner(folder, [Resources(1)] * places, folder) as runner:
        marks = run_jobs(folder, jobs, runner, observer=notes, **options)
    return marks, notes.heard


def read_value(folder, name):
    return (folder / "jobs" / name / "result" / "value.txt").read_text()


@pytest.mark.parametrize(("command", "workers"), [("train-online", 2), ("train-offline", 1)])
def test_a_run_that_collects_has_workers_for_its_members(tmp_path, monkeypatch, command, workers):
    monkeypatch.setattr("grd_offline.lab.sweep.folder.count_cores", lambda: 16)
    run(tmp_path, [Job("a", (command, "--steps", "3", "--env", "fine"), members=5)], places=1)
    output = (tmp_path / "jobs" / "a" / "output.txt").read_text()
    assert f"--workers {workers}\n" in output.splitlines(keepends=True)[0]


def test_a_run_that_has_the_whole_machine_chooses_its_workers(tmp_path, monkeypatch):
    monkeypatch.setattr("grd_offline.lab.sweep.folder.count_cores", lambda: 1)
    run(tmp_path, [Job("a", ("train-online", "--steps", "3", "--env", "fine"))], places=1)
    assert "--workers" not in (tmp_path / "jobs" / "a" / "output.txt").read_text()


def test_finished_jobs_are_skipped(tmp_path):
    jobs = [make_job("a", steps=3), make_job("b", steps=4)]
    marks, heard = run(tmp_path, jobs)
    assert {name: (mark.state, mark.tries) for name, mark in marks.items()} == {
        "a": (FINISHED, 1),
        "b": (FINISHED, 1),
    }
    assert heard == ["a 0", "b 0"]
    assert (read_value(tmp_path, "a"), read_value(tmp_path, "b")) == ("9", "16")
    marks, heard = run(tmp_path, [*jobs, make_job("c")])
    assert heard == ["c 0"]
    assert (tmp_path / "jobs" / "a" / "result" / "tries.txt").read_text() == "begun 1\n"


def test_a_broken_job_is_repeated_and_the_others_go_on(tmp_path):
    jobs = [make_job("never", "never"), make_job("once", "once"), make_job("fine")]
    marks, heard = run(tmp_path, jobs, tries=2)
    assert marks["once"].state == marks["fine"].state == FINISHED
    assert marks["once"].tries == 2
    assert (marks["never"].state, marks["never"].tries) == ("failed", 2)
    assert marks["never"].reason == "exit code 2: it is broken"
    assert {"never 1", "once 1"} < set(heard)
    # The same again: what failed is tried again, and nothing else.
    _, heard = run(tmp_path, jobs, tries=1)
    assert heard == ["never 2"]


def test_a_job_that_was_cut_off_is_begun_anew(tmp_path):
    job = make_job("a")
    folder = tmp_path / "jobs" / "a"
    (folder / "result").mkdir(parents=True)
    (folder / "result" / "half").touch()
    write_mark(folder, Mark(STARTED, job.command, 1))
    marks, heard = run(tmp_path, [job])
    assert (marks["a"].state, heard) == (FINISHED, ["a 1"])
    assert not (folder / "result" / "half").exists()


def test_a_job_that_was_killed_goes_on_from_its_checkpoint(tmp_path):
    marks, heard = run(tmp_path, [make_job("a", "killed")])
    assert (marks["a"].state, marks["a"].resumed, heard) == (FINISHED, True, ["a 0", "a 1"])
    tries = (tmp_path / "jobs" / "a" / "result" / "tries.txt").read_text()
    assert tries == "begun 1\nresumed 1\n"


def test_a_checkpoint_that_breaks_a_job_is_given_up(tmp_path):
    marks, _ = run(tmp_path, [make_job("a", "damaged")], tries=3)
    assert (marks["a"].state, marks["a"].tries, marks["a"].resumed) == (FINISHED, 3, False)
    said = (tmp_path / "jobs" / "a" / "output.txt").read_text()
    assert [("--resume" in line) for line in said.splitlines() if line[0] == "$"] == [
        *(False, True, False)
    ]


@pytest.mark.parametrize("name", ["result", "output.txt"])
def test_a_planted_link_fails_one_job_and_no_other(tmp_path, name):
    target = tmp_path / "target"
    target.mkdir()
    (target / "kept").touch()
    (tmp_path / "jobs" / "linked").mkdir(parents=True)
    place = target if name == "result" else tmp_path / "nowhere"
    (tmp_path / "jobs" / "linked" / name).symlink_to(place)
    marks, _ = run(tmp_path, [make_job("linked"), make_job("fine")], tries=1)
    assert marks["fine"].state == FINISHED
    assert marks["linked"].state == "failed"
    assert str(tmp_path / "jobs" / "linked") in marks["linked"].reason
    assert (target / "kept").exists()
    assert not (tmp_path / "nowhere").exists()


def test_another_command_is_refused(tmp_path):
    run(tmp_path, [make_job("a", steps=3)])
    with pytest.raises(DataError, match="was begun with another command: choose another folder"):
        run(tmp_path, [make_job("a", steps=4)])


def wait_for(path):
    end = time.monotonic() + 120
    while not path.exists() and time.monotonic() < end:
        time.sleep(0.02)
    assert path.exists()


def test_a_sweep_that_is_stopped_goes_on_from_checkpoints(tmp_path):
    stop = threading.Event()
    waiting = tmp_path / "jobs" / "slow" / "result" / "waiting"
    jobs = [make_job("slow", "slow"), make_job("later")]

    def should_stop():
        if waiting.exists():
            stop.set()
        return stop.is_set()

    marks, _ = run(tmp_path, jobs, places=1, should_stop=should_stop)
    assert (marks["slow"].state, marks["later"]) == (STOPPED, None)
    marks, heard = run(tmp_path, jobs)
    assert heard == ["slow 1", "later 0"]
    assert marks["slow"].state == FINISHED
    assert (waiting.parent / "tries.txt").read_text() == "begun 1\nresumed 1\n"


def test_a_job_has_one_process_at_a_time(tmp_path):
    job = make_job("slow", "slow")
    first = JobProcess(tmp_path, job, Resources(1), tmp_path)
    try:
        with pytest.raises(Busy):
            JobProcess(tmp_path, job, Resources(1), tmp_path)
        wait_for(tmp_path / "jobs" / "slow" / "result" / "waiting")
    finally:
        first.stop()
        first.wait(20)
    assert first.finish().state == STOPPED
    second = JobProcess(tmp_path, job, Resources(1), tmp_path)
    second.wait(20)
    assert second.finish().state == FINISHED


KILLED = f"""
import sys, time
from pathlib import Path
sys.path.insert(0, {str(HELPERS)!r})
from grd_offline.lab.sweep import folder as job
job.PROGRAM = {PROGRAM!r}
folder = Path(sys.argv[1])
one = job.Job("slow", ("train-online", "--steps", "3", "--env", "slow"))
job.JobProcess(folder, one, job.Resources(1), folder)
time.sleep(60)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells children of their parent")
def test_a_killed_sweep_takes_its_jobs_along(tmp_path):
    sweep = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)])
    result = tmp_path / "jobs" / "slow" / "result"
    wait_for(result / "waiting")
    sweep.send_signal(signal.SIGKILL)
    sweep.wait()
    wait_for(result / "checkpoint.pt")
    assert read_mark(tmp_path / "jobs" / "slow").state == STARTED
    marks, heard = run(tmp_path, [make_job("slow", "slow")])
    assert (marks["slow"].state, heard[-1]) == (FINISHED, "slow 1")


def test_a_full_disk_fails_one_job_and_no_other(tmp_path, monkeypatch):
    def write(folder, mark):
        if folder.name == "full":
            raise jobs_module_error
        real(folder, mark)

    from grd_offline.core.errors import StorageError

    jobs_module_error = StorageError("job.json: cannot be written: No space left on device")
    real = jobs_module.write_mark
    monkeypatch.setattr(jobs_module, "write_mark", write)
    marks, _ = run(tmp_path, [make_job("full"), make_job("fine")], tries=1)
    assert marks["fine"].state == FINISHED
    assert (marks["full"].state, "No space left" in marks["full"].reason) == ("failed", True)
    monkeypatch.undo()
    monkeypatch.setattr(jobs_module, "PROGRAM", PROGRAM)
    assert run(tmp_path, [make_job("full")])[0]["full"].state == FINISHED


def test_progress_is_read_from_the_log(tmp_path):
    job = Job("a", ("train-online",), total=1000)
    assert measure_progress(tmp_path, job) == 0
    folder = tmp_path / "jobs" / "a" / "result"
    folder.mkdir(parents=True)
    (folder / "log.csv").write_text("step,seconds\n")
    assert measure_progress(tmp_path, job) == 0
    (folder / "log.csv").write_text("step,seconds\n250,1\n500,2\n")
    assert measure_progress(tmp_path, job) == 0.5


def test_where_the_file_has_no_steps_the_settings_of_the_run_tell(tmp_path):
    folder = tmp_path / "jobs" / "a" / "result"
    folder.mkdir(parents=True)
    (folder / "log.csv").write_text("step,seconds\n250,1\n")
    job = Job("a", ("train-online",))
    assert measure_progress(tmp_path, job) == 0
    (folder / "settings.json").write_text('{"settings": {"steps": 1000}}')
    assert measure_progress(tmp_path, job) == 0.25


def test_resources_are_divided():
    plain = Machine(8, ())
    assert divide(plain, None, None) == [Resources(8)]
    assert divide(plain, 3, None) == [Resources(3)] * 2
    assert divide(Machine(2, ()), 4, None) == [Resources(4)]
    two = Machine(16, ("0", "1"))
    assert divide(two, None, None) == [Resources(8, "0"), Resources(8, "1")]
    assert divide(two, None, 0.5) == [Resources(4, name) for name in ("0", "1", "0", "1")]
    assert divide(two, 2, 0) == [Resources(2, "")] * 8
    with pytest.raises(DataError, match="gpus: no accelerator here"):
        divide(plain, None, 1.0)
    assert "CUDA_VISIBLE_DEVICES" not in set(Resources(1).make_environment()) - set(os.environ)


def test_marks_of_another_version_are_refused(tmp_path):
    write_mark(tmp_path, Mark(STARTED, ("judge",), 1))
    path = Path(tmp_path) / "job.json"
    path.write_text(path.read_text().replace('"version": 1', '"version": 9'))
    with pytest.raises(DataError, match=r"job\.json: version: expected 1, got 9"):
        read_mark(tmp_path)
