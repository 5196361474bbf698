"""A resume that is killed at any of its writes goes on as if nothing had happened; other damage is
told."""

import json
import os
import pickle
import random
import sys
import zipfile

import numpy as np
import point_mass
import pytest
import tampering
import torch
from offline_commands import run_command
from online_runs import read_table, write_stopped

from grd_offline import DataError
from grd_offline.io.files import storage
from grd_offline.learning.online.run import OnlineFolder, OnlineRun, load_checkpoint, read_settings

pytestmark = pytest.mark.long

CALLS = ("write", "pwrite", "fsync", "replace", "rename", "unlink", "rmdir", "ftruncate", "mkdir")


class Killed(BaseException):
    """What a kill is to everything that would clean up."""


class Kill:
    """The process dies at the N-th call that changes the disk: so does every call after it."""

    def __init__(self, patch, at):
        self.calls, self.at = [], at
        for name in CALLS:
            patch.setattr(storage.os, name, self._wrap(getattr(os, name), name))

    def _wrap(self, function, name):
        def call(*arguments, **options):
            if sys._getframe(1).f_globals["__name__"] == "multiprocessing.heap":
                return function(*arguments, **options)  # shared memory is no file of the run
            self.calls.append(name)
            if len(self.calls) >= self.at:
                raise Killed
            return function(*arguments, **options)

        return call


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run that was stopped in the middle."""
    folder = tmp_path_factory.mktemp("online") / "run"
    return write_stopped(folder, 220, board=False, steps=240, warmup=60, overlap=False)


def go_on(folder):
    settings, _ = read_settings(folder)
    files = OnlineFolder(folder)
    files._open_board = lambda step: None  # TensorBoard's files are its own
    try:
        with OnlineRun(settings, workers=0, observer=files) as run:
            warnings = files.resume(run)
            run.train()
            files.save(run)
    finally:
        files.close()
    return warnings


def read_result(folder):
    """What must be the same however often a run was killed."""
    tables = {}
    for name in ("evaluations.csv", "log.csv"):
        rows = read_table(folder / name)
        tables[name] = [{k: v for k, v in row.items() if k != "seconds"} for row in rows]
    policies = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("model.safetensors"))
    }
    return tables, policies


def test_a_kill_at_every_write_of_a_resume(stopped, tmp_path):
    """Of the many writes of the parts of a checkpoint, every sixteenth; of all others, each."""
    tampering.copy(stopped, tmp_path / "whole")
    with pytest.MonkeyPatch.context() as patch:
        whole = Kill(patch, 10**9)
        go_on(tmp_path / "whole")
    expected = read_result(tmp_path / "whole")
    assert len(expected[0]["evaluations.csv"]) == 3
    assert {"pwrite", "write", "fsync", "replace", "rename"} <= set(whole.calls)
    case = tmp_path / "case"
    for at, name in enumerate(whole.calls, start=1):
        if name == "pwrite" and at % 16:
            continue
        tampering.copy(stopped, case)
        with pytest.MonkeyPatch.context() as patch:
            kill = Kill(patch, at)
            with pytest.raises(Killed):
                go_on(case)
        assert kill.calls[:at] == whole.calls[:at]
        assert go_on(case) == [], at
        assert read_result(case) == expected, at


def test_rows_that_are_missing_are_noticed(stopped, tmp_path):
    tampering.copy(stopped, tmp_path / "run")
    table = tmp_path / "run" / "evaluations.csv"
    lines = table.read_text().splitlines(keepends=True)
    table.write_text("".join(lines[:-1]))
    (warning,) = go_on(tmp_path / "run")
    assert "evaluations.csv: 1 rows are missing" in warning


def change_settings(folder, **changes):
    path = folder / "settings.json"
    about = json.loads(path.read_text())
    about["settings"] |= changes
    path.write_text(json.dumps(about))


def test_a_module_that_a_file_names_is_not_imported(stopped, tmp_path):
    tampering.copy(stopped, tmp_path / "run")
    (tmp_path / "evil.py").write_text("open('pwned', 'w')")
    change_settings(tmp_path / "run", environment="evil:Thing-v0")
    done = run_command(tmp_path, "train-online", "--resume", "run")
    assert done.returncode == 2
    assert "imports a Python module: if you trust it, add --env evil:Thing-v0" in done.stderr
    assert not (tmp_path / "pwned").exists()
    done = run_command(tmp_path, "train-online", "--resume", "run", "--env", "Other-v0")
    assert done.returncode == 2
    assert "is evil:Thing-v0, not Other-v0" in done.stderr


def test_a_confirmed_environment_goes_on(stopped, tmp_path):
    tampering.copy(stopped, tmp_path / "run")
    change_settings(tmp_path / "run", environment=f"point_mass:{point_mass.ID}")
    arguments = ("--resume", "run", "--env", f"point_mass:{point_mass.ID}", "--device", "cpu")
    done = run_command(tmp_path, "train-online", *arguments)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden": [10**9]}, "hidden: expected at most 16,384"),
        ({"hidden": "many"}, "hidden"),
        ({"seeds": 10**9}, "seeds: expected at most 1,000"),
        ({"batch": "x"}, "batch: expected a whole number"),
        ({"env_args": 3}, "env_args"),
        ({"environment": 3}, "environment"),
        ({"sets": 3}, "settings do not fit"),
        ({"sets": {"learning_rate": "x"}}, "learning_rate"),
        ({"learning_rate": None}, "learning_rate: expected a number"),
        ({"max_episode_steps": -1}, "max_episode_steps"),
        ({"unknown": 3}, "settings do not fit"),
    ],
)
def test_settings_of_a_stranger(changes, message, stopped, tmp_path):
    tampering.copy(stopped, tmp_path / "run")
    change_settings(tmp_path / "run", **changes)
    done = run_command(tmp_path, "train-online", "--resume", "run", "--device", "cpu")
    assert done.returncode == 2, done.stderr
    assert "run/settings.json" in done.stderr
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("name", ["settings", "device", "workers"])
def test_settings_without_a_key(name, stopped, tmp_path):
    tampering.copy(stopped, tmp_path / "run")
    path = tmp_path / "run" / "settings.json"
    about = json.loads(path.read_text())
    del about[name]
    path.write_text(json.dumps(about))
    done = run_command(tmp_path, "train-online", "--resume", "run")
    assert done.returncode == 2, done.stderr


def refuse_checkpoint(folder):
    settings, _ = read_settings(folder)
    with OnlineRun(settings, workers=0) as run, pytest.raises(DataError) as refused:
        load_checkpoint(run, folder)
    text = str(refused.value)
    assert "weights_only" not in text
    assert text.isprintable()
    return text


def load_plain(folder):
    return torch.load(folder / "checkpoint.pt", weights_only=True)


def test_checkpoints_that_lack_something(stopped, tmp_path):
    """Each key of a checkpoint, at every level, left out in turn or made another type."""
    folder = tmp_path / "run"
    tampering.copy(stopped, folder)
    whole = load_plain(folder)
    chance = random.Random(0)

    def places(value, path=()):
        if isinstance(value, dict) and "array" not in value:
            for key in value:
                yield (*path, key)
                yield from places(value[key], (*path, key))

    found = list(places(whole))
    assert len(found) > 60
    for path in chance.sample(found, 12):
        for change in ("gone", None, [1], "text"):
            contents = load_plain(folder)
            holder = contents
            for key in path[:-1]:
                holder = holder[key]
            if change == "gone":
                del holder[path[-1]]
            else:
                holder[path[-1]] = change
            broken = tmp_path / "broken"
            tampering.copy(folder, broken)
            torch.save(contents, broken / "checkpoint.pt")
            done = run_command(tmp_path, "train-online", "--resume", "broken", "--device", "cpu")
            assert done.returncode in (0, 2), (path, change, done.stderr)


def test_a_checkpoint_that_unpacks_to_gigabytes(stopped, tmp_path):
    tampering.copy(stopped, tmp_path / "run")
    path = tmp_path / "run" / "checkpoint.pt"
    with zipfile.ZipFile(path) as source:
        entries = {entry.filename: source.read(entry) for entry in source.infolist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as target:
        for name, data in entries.items():
            target.writestr(name, data if not name.endswith("/data/0") else bytes(2**28))
    assert "more than the file has" in refuse_checkpoint(tmp_path / "run")


def test_a_tensor_that_is_larger_than_its_numbers(stopped, tmp_path):
    tampering.copy(stopped, tmp_path / "run")
    contents = load_plain(tmp_path / "run")
    contents["run"]["rounds"] = torch.zeros(1).expand(10**12)
    torch.save(contents, tmp_path / "run" / "checkpoint.pt")
    assert "not a checkpoint" in refuse_checkpoint(tmp_path / "run")


def test_a_checkpoint_that_repeats_itself_without_end(stopped, tmp_path):
    tampering.copy(stopped, tmp_path / "run")
    contents = load_plain(tmp_path / "run")
    laughs = ["ha"]
    for _ in range(60):
        laughs = [laughs, laughs]
    contents["run"]["rounds"] = laughs
    torch.save(contents, tmp_path / "run" / "checkpoint.pt")
    assert "not a checkpoint" in refuse_checkpoint(tmp_path / "run")


class Evil:
    def __reduce__(self):
        return os.mkdir, ("pwned",)


@pytest.mark.parametrize("kind", ["pickle", "torch", "text", "numpy", "cut"])
def test_checkpoints_of_another_kind(kind, stopped, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tampering.copy(stopped, tmp_path / "run")
    path = tmp_path / "run" / "checkpoint.pt"
    if kind == "pickle":
        path.write_bytes(pickle.dumps(Evil()))
    elif kind == "torch":
        torch.save({"format": Evil()}, path)
    elif kind == "text":
        path.write_text("nothing")
    elif kind == "numpy":
        with path.open("wb") as file:
            np.savez(file, a=np.zeros(3))
    else:
        path.write_bytes(path.read_bytes()[:-100])
    assert "not a checkpoint" in refuse_checkpoint(tmp_path / "run")
    assert not (tmp_path / "pwned").exists()
