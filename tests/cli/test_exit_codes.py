"""Whatever a user, a stranger or the system does: exit code 2 and one line, never "a bug"."""

import json
import os
import subprocess
import sys

import corpus
import forked
import numpy as np
import pytest
import run_folders
from places import HELPERS

from grd_offline.io.datasets import Header, Leaf, Record, write_dataset

pytestmark = pytest.mark.long

HERE = str(HELPERS)


def run(folder, *arguments, **environment):
    return forked.run(*arguments, cwd=folder, environment={"PYTHONPATH": HERE, **environment})


def run_anew(folder, *arguments, environment=None, shell='"$@"'):
    """The command in a process of its own; `shell` is put around it."""
    command = ["sh", "-c", shell, "sh", sys.executable, "-m", "grd_offline.cli", *arguments]
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        errors="replace",
    )


def check(done, message, code=2):
    err = done.stderr
    assert done.returncode == code, err
    assert message in err, err
    assert "a bug" not in err
    assert "Traceback" not in err
    assert len(err.splitlines()) == 1, err


def test_an_output_that_is_full(tmp_path):
    corpus.own(tmp_path / "data.h5")
    done = run_anew(tmp_path, "inspect", "data.h5", shell='"$@" > /dev/full')
    check(done, "the output cannot be written")


def test_a_pipe_that_is_closed(tmp_path):
    """As a shell has it of other programs. What was printed before is there."""
    line = 'set -o pipefail; "$@" | head -c 1; echo " $?"'
    command = ["bash", "-c", line, "bash", sys.executable, "-m", "grd_offline.cli", "--help"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.endswith((" 141\n", " 0\n"))  # 0 where all was written before the end
    assert not done.stderr
    script = "import os, sys; from grd_offline.cli import main; os.close(r[0]); main(['--help'])"
    script = "import os; r = os.pipe(); os.dup2(r[1], 1); " + script
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_an_output_that_is_closed(closed, tmp_path):
    corpus.own(tmp_path / "data.h5")
    done = run_anew(tmp_path, "inspect", "data.h5", shell=f'"$@" {closed}')
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    done = run_anew(tmp_path, "inspect", "missing.h5", shell=f'"$@" {closed}')
    assert done.returncode == 2


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp437"])
def test_an_output_of_another_encoding(encoding, tmp_path):
    run_folders.write_decomposition(tmp_path / "grd")
    corpus.own(tmp_path / "daten-äöü.h5")
    environment = {"PYTHONIOENCODING": encoding}
    done = run_anew(tmp_path, "inspect", "daten-äöü.h5", environment=environment)
    assert done.returncode == 0, done.stderr
    done = run_anew(tmp_path, "--help", environment=environment)
    assert done.returncode == 0, done.stderr


def test_a_working_folder_that_is_gone(tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    corpus.own(tmp_path / "data.h5")
    done = run_anew(gone, "inspect", "data.h5", shell='rmdir "$PWD"; "$@"')
    check(done, "the working folder is gone")


def test_an_environment_that_leaves_python(tmp_path):
    arguments = ("--env", "hanging:Hanging-v0", "--env-arg", "mode=exit", "--env-arg", "after=30")
    done = run(tmp_path, "collect", *arguments, "--workers", "1", "--out", "data.h5")
    check(done, "failed at step 10: SystemExit: 7")
    assert not (tmp_path / "data.h5").exists()


def test_an_environment_whose_package_is_missing(tmp_path):
    (tmp_path / "gone_package.py").write_text("import no_such_package_at_all")
    done = run(tmp_path, "collect", "--env", "gone_package:Thing-v0", "--out", "data.h5")
    check(done, "no_such_package_at_all")


def test_a_missing_package_of_our_own(tmp_path):
    script = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from grd_offline.cli import main\nmain(['plot', 'run'])\n"
    )
    run_folders.write_online_run(tmp_path / "run")
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True
    )
    check(done, "plot needs matplotlib, not installed here: pip install matplotlib")


def test_a_recipe_cannot_name_a_module(tmp_path):
    (tmp_path / "evil.py").write_text("open('pwned', 'w')")
    (tmp_path / "recipe.toml").write_text('env = "evil:Thing-v0"\nout = "data.h5"\n')
    done = run(tmp_path, "collect", "--recipe", "recipe.toml")
    check(done, "imports a Python module: if you trust it, add --env evil:Thing-v0")
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize(
    ("scale", "message"),
    [
        (1e300, "rewards: 1e+300, larger than 1e+18 (use smaller units)"),
        (1e20, "larger than 1e+18"),
        (4e16, "larger than 1e+18"),  # their sum is
        (1e-300, "smaller than 1e-45 (use larger units)"),
    ],
)
def test_collect_never_writes_what_decompose_refuses(scale, message, tmp_path):
    arguments = ("--env", "hanging:Hanging-v0", "--env-arg", f"scale={scale!r}", "--episodes", "2")
    done = run(tmp_path, "collect", *arguments, "--workers", "1", "--out", "data.h5")
    check(done, message)
    assert list(tmp_path.glob("*.h5")) == []


def write_returns(path, *returns):
    """One episode of three steps for each return."""
    rng = np.random.default_rng(0)
    ends = np.array([False, False, True])
    header = Header((Leaf("", (2,), "float64"),), (Leaf("", (1,), "float64"),), delay="end")
    records = [
        Record(
            {"": rng.normal(size=(4, 2))}, {"": rng.normal(size=(3, 1))},
            np.array([0, 0, paid]), np.zeros(3, np.bool_), ends,
        )
        for paid in returns
    ]  # fmt: skip
    write_dataset(path, header, records)


@pytest.mark.parametrize(
    ("returns", "shown", "reason"),
    [
        ([1e38] * 4, "1e+38 to 1e+38", "1e+38, larger than 1e+18 (use smaller units), at step 2"),
        ([1.0, 1e300, 2.0], "1 to 1e+300", "1e+300, larger than 1e+18"),
        ([-1.7e308, 1.7e308], "-1.7e+308 to 1.7e+308", "-1.7e+308, larger than 1e+18"),
        ([5e-324, 1e-310], "4.941e-324 to 1e-310", "smaller than 1e-45 (use larger units)"),
    ],
)
def test_rewards_of_any_size_are_shown_and_not_computed_with(returns, shown, reason, tmp_path):
    write_returns(tmp_path / "data.h5", *returns)
    done = run(tmp_path, "inspect", "data.h5", COLUMNS="300")
    assert done.returncode == 0, done.stderr
    text = done.stdout
    assert shown in text
    assert "warning: no method can compute with these rewards: episode" in text
    assert reason in text
    numbers = json.loads(run(tmp_path, "inspect", "data.h5", "--json").stdout)["returns"]
    assert numbers["max"] == max(returns)
    done = run(tmp_path, "decompose", "data.h5", "--method", "uniform")
    done = done._replace(stderr=done.stderr.splitlines()[-1])  # after the stage that it was in
    check(done, reason)
    check(done, "data.h5: episode")
    assert [path.name for path in tmp_path.iterdir()] == ["data.h5"]


@pytest.mark.parametrize("value", [1e17, 1e12])
def test_returns_that_are_close_for_their_size_are_drawn(value, tmp_path):
    write_returns(tmp_path / "data.h5", value, value, np.nextafter(value, np.inf))
    done = run(tmp_path, "inspect", "data.h5")
    assert done.returncode == 0, done.stderr


def _deep(folder):
    (folder / "settings.json").write_text('{"a":' * 100_000)


def _fifo(folder):
    (folder / "settings.json").unlink()
    os.mkfifo(folder / "settings.json")


def _zero(folder):
    (folder / "evaluations.csv").unlink()
    (folder / "evaluations.csv").symlink_to("/dev/zero")


def _huge_mask(folder):
    path = folder / "members" / "grd-quadratic-seed0" / "masks" / "step-000002000.json"
    row = "[" + "0," * 2999 + "0]"
    path.write_text('{"step": 1, "state_to_state": [' + ",".join([row] * 3000) + "]}")


def _infinite(folder):
    path = folder / "evaluations.csv"
    path.write_text(path.read_text().replace("2000,", "1e999,").replace(",1000,", ",inf,"))


def _digits(folder):
    path = folder / "evaluations.csv"
    path.write_text(path.read_text().replace("\n1000,", "\n²,"))


def _long_names(folder):
    path = folder / "evaluations.csv"
    path.write_text(path.read_text().replace("ircr-seed0", "x" * 5000))


def _leads_out(folder):
    path = folder / "evaluations.csv"
    path.write_text(path.read_text().replace("grd-quadratic-seed0", "../../../../etc"))


def _many_groups(folder):
    path = folder / "evaluations.csv"
    rows = path.read_text().splitlines()
    rows += [rows[1].replace(",ircr,", f",group{number},") for number in range(20_000)]
    path.write_text("\n".join(rows) + "\n")


def _long_group(folder):
    path = folder / "evaluations.csv"
    path.write_text(path.read_text().replace(",ircr,", f",{'x' * 100_000},"))


def _types(folder):
    path = folder / "settings.json"
    path.write_text(path.read_text().replace('"settings": {', '"settings": [1], "x": {'))


@pytest.mark.parametrize("command", ["report", "plot"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_deep, "settings.json: is not JSON"),
        (_fifo, "settings.json: is not a regular file"),
        (_zero, "evaluations.csv: is not a regular file"),
        (_huge_mask, "step-000002000.json: is larger than"),
        (_infinite, "expected a number, got"),
        (_digits, None),
        (_long_names, "expected the name of a member"),
        (_leads_out, "expected the name of a member"),
        (_many_groups, "expected one group and one seed for each member"),
        (_long_group, "expected the name of a member"),
        (_types, "settings: expected an object"),
    ],
)
def test_run_folders_of_a_stranger(change, message, command, tmp_path):
    change(run_folders.write_online_run(tmp_path / "run"))
    done = run(tmp_path, command, "run")
    if message is None:
        assert done.returncode == 0, done.stderr
    else:
        check(done, message)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("inspect", "data.h5", "--max-size", "9" * 400), "is not a size"),
        (("decompose", "data.h5", "--seed", str(2**70)), "seed: expected at most 9,223"),
        (("collect", "--env", "Pendulum", "--delay", "9" * 30, "--out", "c.h5"), "delay"),
        (
            ("train-offline", "data.h5", "--rewards", "observed", "--seeds", "9" * 9, "--out", "t"),
            "seeds: expected at most 1,000",
        ),
        (("export", "grd", "--to", "onnx", "--out", "."), "exists and is not a regular file"),
        (("convert", "data.h5", "home", "--to", "minari"), "holds something else"),
    ],
)
def test_odd_values(arguments, message, tmp_path):
    corpus.own(tmp_path / "data.h5")
    run_folders.write_decomposition(tmp_path / "grd")
    (tmp_path / "home" / "docs").mkdir(parents=True)
    (tmp_path / "home" / "docs" / "thesis.tex").write_text("precious")
    (tmp_path / "home" / "main_data.hdf5").write_text("")
    check(run(tmp_path, *arguments), message)
    assert (tmp_path / "home" / "docs" / "thesis.tex").read_text() == "precious"


def test_extras_with_names_of_the_layout(tmp_path):
    corpus.flat(tmp_path / "data.h5", terminations=np.zeros(60))
    done = run(tmp_path, "convert", "data.h5", "out.h5", "--to", "own")
    check(done, "out.h5: cannot be written in the layout own")
    assert not (tmp_path / "out.h5").exists()


def test_more_columns_than_steps(tmp_path):
    last = np.arange(5) == 4
    records = [
        Record(
            {"": np.random.default_rng(seed).normal(size=(6, 1000)).astype(np.float32)},
            {"": np.zeros((5, 1), np.float32)},
            last * 1.0,
            np.zeros(5, np.bool_),
            last,
        )
        for seed in range(3)
    ]
    header = Header((Leaf("", (1000,), "float32"),), (Leaf("", (1,), "float32"),))
    write_dataset(tmp_path / "wide.h5", header, records)
    done = run(tmp_path, "decompose", "wide.h5")
    err = done.stderr
    assert done.returncode == 2, err
    assert "1,001 columns in 15 steps" in err
