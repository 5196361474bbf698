"""A disk that is full, during every command: the old result or the whole new one, and one line."""

import errno
import os

import point_mass
import pytest
import reward_models
import run_folders
import tampering
from offline_commands import FEW, SMALL, collect_factored, run_command

from grd_offline.io.files import storage

pytestmark = pytest.mark.long

ONLINE = (
    *("--method", "oracle", "--steps", 300, "--warmup", 100, "--eval-every", 100),
    *("--eval-episodes", 1, "--device", "cpu", "--workers", 0),
)


class Disk:
    """Takes so many bytes, and is full then."""

    def __init__(self, patch, left):
        self.left = left
        for name, data in (("pwrite", 1), ("write", 1)):
            patch.setattr(storage.os, name, self._wrap(getattr(os, name), data))

    def _wrap(self, function, place):
        def write(*arguments):
            self.left -= len(arguments[place])
            if self.left < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return function(*arguments)

        return write


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """Data, a decomposition, a run and a model."""
    folder = tmp_path_factory.mktemp("disk")
    collect_factored(folder)
    point_mass.register()
    run_folders.write_decomposition(folder / "grd")
    run_folders.write_online_run(folder / "run")
    reward_models.make_model("quadratic").save(folder / "model")
    done = run_command(folder, "train-online", *SMALL, *ONLINE, "--out", "trained")
    assert done.returncode == 0, done.stderr
    for name in ("data2.h5", "exported.pt2"):
        (folder / name).write_text("earlier")
    done = run_command(folder, "decompose", "data.h5", "--method", "uniform", "--out", "data-grd")
    assert done.returncode == 0, done.stderr
    return folder


COMMANDS = {
    "collect": (("collect", *SMALL, "--episodes", 30, "--workers", 1, "--out", "data2.h5"), 1),
    "decompose": (("decompose", "data.h5", "--method", "uniform", "--out", "data-grd"), 1),
    "report of a decomposition": (("report", "grd"), 1),
    "report of a run": (("report", "run"), 1),
    "plot": (("plot", "run", "-o", "curves.svg"), 1),
    "export": (("export", "model", "--to", "torch-export", "--out", "exported.pt2"), 1),
    "relabel": (("relabel", "data.h5", "--model", "data-grd", "--out", "other.h5"), 1),
    "convert": (("convert", "data.h5", "minari", "--to", "minari"), 1),
    "judge": (("judge", "data.h5", *SMALL, *FEW, "--methods", "uniform", "--out", "judged"), 0),
    "train-offline": (
        ("train-offline", "data.h5", "--rewards", "true", *SMALL, *FEW, "--out", "off"),
        0,
    ),
    "train-online": (("train-online", *SMALL, *ONLINE, "--out", "on"), 0),
    "resume": (("train-online", "--resume", "trained", "--device", "cpu", "--workers", 0), 0),
}
"""Each with whether it is all or nothing: runs are written as they go."""


@pytest.mark.parametrize("name", COMMANDS)
def test_a_full_disk(name, work, tmp_path):
    command, is_whole = COMMANDS[name]
    refused = 0
    # What becomes of a training that runs out of space later on, the resumed one shows.
    for bytes_left in (0, 10**9) if name == "train-online" else (0, 20_000, 400_000, 10**9):
        case = tmp_path / "case"
        tampering.copy(work, case)
        before = tampering.snapshot(case)
        with pytest.MonkeyPatch.context() as patch:
            Disk(patch, bytes_left)
            done = run_command(case, *command)
        assert done.returncode in (0, 2), done.stderr
        if done.returncode == 0:
            break
        refused += 1
        lines = [line for line in done.stderr.splitlines() if "error:" in line]
        assert len(lines) == 1, done.stderr
        assert "cannot be written: No space left on device" in lines[0]
        assert ".partial" not in lines[0]
        assert "a bug" not in done.stderr
        assert not list(case.rglob("*.partial"))
        if is_whole:
            assert tampering.snapshot(case) == before
    assert done.returncode == 0, done.stderr
    assert refused >= 1
