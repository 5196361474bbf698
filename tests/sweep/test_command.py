"""`grd-offline sweep` from file to report."""

import json
import sys

import pytest
from places import HELPERS, ROOT

from grd_offline.cli import main
from grd_offline.io.files.storage import lock_folder
from grd_offline.lab.sweep import folder as jobs_module

pytestmark = pytest.mark.long

SAMPLE = ROOT / "datasets" / "sample.h5"
PROGRAM = (sys.executable, str(HELPERS / "small_jobs.py"))


def call(capsys, *arguments):
    """The exit code of a command, and what it printed."""
    with pytest.raises(SystemExit) as end:
        main(list(map(str, arguments)))
    return end.value.code, capsys.readouterr()


def write(folder, text):
    path = folder / "small.toml"
    path.write_text(text)
    return path


def test_a_sweep_of_real_commands(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = write(
        tmp_path,
        f"""
        title = "Two ways to share"
        [[jobs]]
        command = "decompose"
        options = {{ file = "{SAMPLE}" }}
        grid = {{ method = ["uniform", "ircr"] }}
        """,
    )
    code, printed = call(capsys, "sweep", file, "--dry-run")
    assert code == 0
    assert f"decompose-uniform (new): grd-offline decompose {SAMPLE}" in printed.out
    assert not (tmp_path / "sweeps").exists()
    code, printed = call(capsys, "sweep", file, "--cpus", 1)
    assert code == 0, printed.err
    assert "finished decompose-uniform in" in printed.err
    folder = tmp_path / "sweeps" / "small"
    assert "Two ways to share" in (folder / "report.html").read_text()
    marks = [json.loads(path.read_text()) for path in sorted(folder.glob("jobs/*/job.json"))]
    assert [mark["state"] for mark in marks] == ["finished", "finished"]
    assert (folder / "jobs" / "decompose-ircr" / "result" / "relabelled.h5").is_file()
    before = (folder / "jobs" / "decompose-ircr" / "job.json").stat().st_mtime_ns
    code, printed = call(capsys, "sweep", file, "--cpus", 1)
    assert (code, "2 of 2 jobs had finished before" in printed.err) == (0, True)
    assert (folder / "jobs" / "decompose-ircr" / "job.json").stat().st_mtime_ns == before
    (folder / "report.html").unlink()
    assert call(capsys, "report", folder)[0] == 0
    assert "decompose-ircr" in (folder / "report.html").read_text()


def test_what_failed_is_told_and_the_rest_is_kept(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(jobs_module, "PROGRAM", PROGRAM)
    file = write(
        tmp_path, "[[jobs]]\ncommand = 'train-online'\ngrid = { env = ['a/never', 'a/odd'] }\n"
    )
    code, printed = call(capsys, "sweep", file, "--out", tmp_path / "out", "--tries", 1)
    assert code == 2
    assert "failed: train-online-a-never: exit code 2: it is broken" in printed.err
    last = printed.err.splitlines()[-1]
    assert "1 of 2 jobs failed, the first is train-online-a-never: look at" in last
    assert "is not a grd-offline run" in printed.out  # what the other one wrote


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("options = { env = 'Hopper', stps = 3 }", "--stps"),
        ("options = { env = 'Hopper', method = 'rdr' }", "got 'rdr'"),
        (
            "options = { env = 'Hopper', eval_episodes = 0 }",
            "expected a whole number of at least 1",
        ),
        ("options = { steps = 3 }", "Missing option '--env'"),
        ("options = { env = 'Hopper', set = { nonsense = 1 } }", "expected one of lambda_state"),
        ("options = { env = 'Hoper' }", "got 'Hoper'; did you mean Hopper-v5"),
        ("options = { env = 'Hopper', method = 5 }", "got '5'"),
        (
            "options = { env = 'Hopper', method = 'grd,oracle' }\n[[jobs]]\nname = 'other'\n"
            "command = 'train-online'\noptions = { env = 'Hopper', method = 'none,oracle' }",
            "oracle-seed0 is also in train-online: leave it out of one of them",
        ),
        (
            "grid = { env = ['Hopper', 'Hopper-v5'] }",
            "grd-closed-form-seed0 is also in train-online-Hopper: leave it out",
        ),
    ],
)
def test_wrong_options_are_found_before_anything_runs(tmp_path, capsys, text, reason):
    file = write(tmp_path, f"[[jobs]]\ncommand = 'train-online'\n{text}\n")
    code, printed = call(capsys, "sweep", file, "--out", tmp_path / "out")
    assert (code, printed.err.count("\n")) == (2, 1)
    assert reason in printed.err
    assert "small.toml: " in printed.err
    assert not (tmp_path / "out").exists()


def test_other_mistakes_end_in_one_line(tmp_path, capsys):
    file = write(tmp_path, "[[jobs]]\ncommand = 'train-online'\noptions = { env = 'Hopper' }\n")
    mistakes = {
        ("--address", "auto"): "--address is for --runner ray",
        ("--scale", "2"): "2.0 is not in the range",
        ("--out", str(tmp_path)): "exists and is not a sweep",
        ("--gpus", "1", "--cpus", "1", "--out", str(tmp_path / "new")): "no accelerator here",
    }
    for arguments, reason in mistakes.items():
        code, printed = call(capsys, "sweep", file, *arguments)
        assert (code, printed.err.count("\n"), reason in printed.err) == (2, 1, True), printed.err


TRAINED = """
[[jobs]]
command = "train-online"
grid = {{ seed = {seeds} }}
[jobs.options]
env = "Factored"
method = "oracle"
steps = 60
warmup = 50
eval_every = 60
eval_episodes = 1
workers = 0
"""


def test_seeds_that_are_added_are_compared_once(tmp_path, capsys, monkeypatch, quick_program):
    monkeypatch.setattr(jobs_module, "PROGRAM", quick_program)
    out = tmp_path / "out"
    for seeds in ("[0]", "[0, 1]"):
        file = write(tmp_path, TRAINED.format(seeds=seeds))
        code, printed = call(capsys, "sweep", file, "--out", out, "--cpus", 1)
        assert code == 0, printed.err
    told = "has 1 job that the file does not name, such as train-online-seed0: what they have"
    assert told in printed.err
    for results in ([tmp_path], [out, out]):
        code, printed = call(capsys, "compare", *results)
        assert code == 0, printed.err
    compared = json.loads((out / "comparison" / "comparison.json").read_text())
    assert [row["seeds"] for row in compared["tasks"]] == [["0", "1"]]
    assert len(compared["runs"]) == 1


def test_a_sweep_that_is_refused_changes_nothing(tmp_path, capsys):
    out = tmp_path / "out"
    out.mkdir()
    (out / ".lock").touch()
    file = write(tmp_path, TRAINED.format(seeds="[0]"))
    lock = lock_folder(out)
    code, printed = call(capsys, "sweep", file, "--out", out)
    lock.release()
    assert (code, "another command is at work in it" in printed.err) == (2, True)
    assert [entry.name for entry in out.iterdir()] in ([], [".lock"])


def test_a_result_that_cannot_be_read_is_left_out_of_the_comparison(
    tmp_path, capsys, monkeypatch, quick_program
):
    monkeypatch.setattr(jobs_module, "PROGRAM", quick_program)
    out = tmp_path / "out"
    file = write(tmp_path, "members = 1\n" + TRAINED.format(seeds="[0, 1]"))
    assert call(capsys, "sweep", file, "--out", out, "--cpus", 1)[0] == 0
    (out / "jobs" / "train-online-seed0" / "result" / "evaluations.csv").write_text("no table")
    code, printed = call(capsys, "sweep", file, "--out", out)
    assert code == 0
    assert "note: The job train-online-seed0 is left out: " in printed.err
    compared = json.loads((out / "comparison" / "comparison.json").read_text())
    assert [row["seeds"] for row in compared["tasks"]] == [["1"]]


def test_jobs_that_differ_in_one_value_of_a_setting_are_different(tmp_path, capsys):
    rates = "[{learning_rate = 1e-3}, {learning_rate = 3e-4}]"
    jobs = f"[[jobs]]\ncommand = 'train-online'\ngrid = {{ env = ['Hopper'], set = {rates} }}\n"
    file = write(tmp_path, jobs)
    code, printed = call(capsys, "sweep", file, "--dry-run")
    assert code == 0, printed.err
    assert printed.out.count("(new): grd-offline train-online") == 2
