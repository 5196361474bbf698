"""The folder of a sweep of unknown origin: links, pipes, damaged marks, codes for terminals."""

import json
import os
import subprocess
import sys

import pytest

from grd_offline.core.errors import DataError
from grd_offline.lab.sweep.folder import (
    FINISHED,
    Job,
    Mark,
    compare_sweep,
    describe_result,
    measure_progress,
    read_mark,
    read_sweep,
    write_mark,
)

pytestmark = pytest.mark.long

JOB = Job("a", ("train-online",), total=1000)


def make_sweep(folder, **changes):
    """A sweep of one finished job, without a result."""
    job = {"name": "a", "command": ["train-online"], "total": None, **changes}
    (folder / "jobs" / "a").mkdir(parents=True)
    (folder / "sweep.json").write_text(
        json.dumps(
            {"format": "grd-offline sweep", "version": 1, "title": "t", "about": "", "paper": [],
             "jobs": [job]}
        )
    )  # fmt: skip
    write_mark(folder / "jobs" / "a", Mark(FINISHED, JOB.command, 1, 3.0, 0))
    return folder


@pytest.mark.parametrize("name", ["jobs", "jobs/a", "jobs/a/result"])
def test_links_are_named_and_not_followed(tmp_path, name):
    theirs, ours = make_sweep(tmp_path / "theirs"), make_sweep(tmp_path / "ours")
    secret = ours / "jobs" / "a" / "result"
    secret.mkdir()
    (secret / "settings.json").write_text("{}")
    link = theirs / name
    if name != "jobs/a/result":
        (theirs / "jobs" / "a" / "job.json").unlink()
        (theirs / "jobs" / "a").rmdir()
    if name == "jobs":
        link.rmdir()
    link.symlink_to(ours / name)
    record = read_sweep(theirs)
    told = f"{link} is a link, which is not followed"
    assert describe_result(record, record.jobs[0]) == told
    assert compare_sweep(record) == "no job has evaluations"
    assert (record.marks["a"] is None) == (name != "jobs/a/result")


def test_a_comparison_notes_the_job_that_is_a_link(tmp_path, monkeypatch):
    noted = []
    monkeypatch.setattr("grd_offline.comparison.compare.collect_scores", lambda runs: ["score"])
    monkeypatch.setattr(
        "grd_offline.comparison.compare.compare_scores",
        lambda scores, printed, notes: noted.extend(notes),
    )
    link = make_sweep(tmp_path) / "jobs" / "a" / "result"
    link.symlink_to(tmp_path)
    compare_sweep(read_sweep(tmp_path))
    assert noted == [f"The job a is left out: {link} is a link, which is not followed."]


PIPE = """
import sys
from pathlib import Path
from grd_offline.lab.sweep.folder import Job, measure_progress
print(measure_progress(Path(sys.argv[1]), Job("a", ("train-online",), total=1000)))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits on memory differ elsewhere")
@pytest.mark.parametrize("kind", ["pipe", "zero", "link", "result"])
def test_the_log_of_a_job_is_a_file_of_its_own(tmp_path, kind):
    place = tmp_path / "jobs" / "a" / "result" / "log.csv"
    other = tmp_path / "other"
    other.mkdir()
    (other / "log.csv").write_text("step\n500\n")
    place.parent.parent.mkdir(parents=True)
    if kind == "result":
        place.parent.symlink_to(other)
    else:
        place.parent.mkdir()
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "zero":
        place.symlink_to("/dev/zero")
    elif kind == "link":
        place.symlink_to(other / "log.csv")
    # A process of its own, with a limit on memory: it would wait forever, or read without end.
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_AS, (2**32, 2**32))\n{PIPE}"
    found = subprocess.run(
        [sys.executable, "-c", limited, str(tmp_path)], timeout=60, capture_output=True, text=True
    )
    assert found.stdout.strip() == "0.0", found.stderr


def test_odd_numbers_in_a_log_and_in_settings_are_no_progress(tmp_path):
    folder = tmp_path / "jobs" / "a" / "result"
    folder.mkdir(parents=True)
    (folder / "log.csv").write_text("step\n" + "9" * 4000)
    assert measure_progress(tmp_path, JOB) == 0
    (folder / "log.csv").write_text("step\n-5\n")
    assert measure_progress(tmp_path, JOB) == 0
    (folder / "settings.json").write_text('{"settings": []}')
    assert measure_progress(tmp_path, Job("a", ("train-online",))) == 0


def change_mark(folder, **changes):
    write_mark(folder, Mark(FINISHED, ("judge",), 1, 3.0, 0))
    path = folder / "job.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize(
    "changes",
    [
        *({"seconds": value} for value in ("abc", None, -1, True)),
        *({"tries": value} for value in ("x", -5, 1.5, True, None)),
        *({"code": "2"}, {"resumed": 1}, {"state": 3}, {"reason": None}, {"command": 5}),
    ],
)
def test_damaged_marks_are_refused(tmp_path, changes):
    change_mark(tmp_path, **changes)
    with pytest.raises(DataError, match=rf"job\.json: .*{min(changes)}"):
        read_mark(tmp_path)


def test_what_steers_a_terminal_is_left_out(tmp_path):
    change_mark(tmp_path, reason="\x1b]0;owned\x07", state="fail\x1b[2J")
    mark = read_mark(tmp_path)
    assert (mark.reason, mark.state) == ("\ufffd]0;owned\ufffd", "fail\ufffd[2J")


@pytest.mark.parametrize(
    "changes", [{"command": []}, {"command": "judge"}, {"name": "a\x1b[2J"}, {"total": "x"}]
)
def test_damaged_sweeps_are_refused(tmp_path, changes):
    make_sweep(tmp_path, **changes)
    with pytest.raises(DataError, match=r"sweep\.json: .*expected"):
        read_sweep(tmp_path)
