"""Planted links: nothing outside of an output is ever written to or deleted."""

import shutil
import subprocess
import sys

import corpus
import pytest
import run_folders
import tampering
from offline_commands import run_command
from online_runs import write_stopped

from grd_offline import StorageError
from grd_offline.io.files.storage import make_folder, replace_file, replace_folder

pytestmark = pytest.mark.long


@pytest.fixture
def outside(tmp_path):
    folder = tmp_path / "outside"
    (folder / "photos").mkdir(parents=True)
    (folder / "photos" / "one.jpg").write_bytes(b"one")
    (folder / "thesis.tex").write_text("precious")
    return folder


def test_the_attack_of_the_staging_folder(tmp_path, outside):
    """The name that staging folders once had, planted as a link: convert emptied what it leads to.

    In a process of its own, as the attack was.
    """
    work = tmp_path / "work"
    work.mkdir()
    corpus.own(work / "d.h5")
    (work / ".m.partial").symlink_to(outside)
    before = tampering.snapshot(outside)
    done = subprocess.run(
        [sys.executable, "-m", "grd_offline.cli", "convert", "d.h5", "m", "--to", "minari"],
        cwd=work,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert tampering.snapshot(outside) == before
    assert (work / "m" / "data" / "main_data.hdf5").is_file()


def test_staging_names_cannot_be_guessed(tmp_path):
    names = set()
    for _ in range(3):
        with replace_file(tmp_path / "file") as output:
            output.write(b"x")
            names |= {path.name for path in tmp_path.iterdir() if "partial" in path.name}
        with replace_folder(tmp_path / "folder", is_replaceable=lambda _: True) as folder:
            names.add(folder.name)
    assert len(names) == 6


def test_a_destination_that_leads_out_is_refused(tmp_path, outside):
    work = tmp_path / "work"
    work.mkdir()
    (work / "file").symlink_to(outside / "thesis.tex")
    (work / "folder").symlink_to(outside / "photos")
    (work / "new").symlink_to(outside / "new")
    for name in ("file", "new"):
        with (
            pytest.raises(StorageError, match="is a link that leads out of its folder"),
            replace_file(work / name),
        ):
            pass
    with (
        pytest.raises(StorageError, match="is a link that leads out of its folder"),
        replace_folder(work / "folder", is_replaceable=lambda _: True),
    ):
        pass
    assert sorted(path.name for path in outside.iterdir()) == ["photos", "thesis.tex"]
    assert (outside / "thesis.tex").read_text() == "precious"


def test_links_that_lead_to_themselves(tmp_path):
    for name in ("file", "folder"):
        (tmp_path / name).symlink_to(name)
    with pytest.raises(StorageError, match="leads to itself"), replace_file(tmp_path / "file"):
        pass
    with (
        pytest.raises(StorageError, match="leads to itself"),
        replace_folder(tmp_path / "folder", is_replaceable=lambda _: True),
    ):
        pass
    with pytest.raises(StorageError, match="leads to itself"):
        make_folder(tmp_path, "folder")
    run_folders.write_online_run(tmp_path / "run")
    (tmp_path / "run" / "report.html").symlink_to("report.html")
    done = run_command(tmp_path, "report", "run")
    assert done.returncode == 2
    assert "report.html: cannot be written: is a link that leads to itself" in done.stderr


def test_a_folder_may_lie_behind_a_link(tmp_path):
    """A user's own link above the destination is followed: results on another disk."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "runs").symlink_to("disk")
    with replace_file(tmp_path / "runs" / "file") as output:
        output.write(b"x")
    assert (tmp_path / "disk" / "file").read_bytes() == b"x"
    assert make_folder(tmp_path / "runs", "a", "b").is_dir()


def test_a_leftover_that_is_a_link_is_left_alone(tmp_path, outside):
    planted = tmp_path / ".out.0123456789abcdef.partial"
    planted.symlink_to(outside)
    with replace_folder(tmp_path / "out", is_replaceable=lambda _: False) as folder:
        (folder / "whole").write_text("...")
    assert planted.is_symlink()
    assert (outside / "thesis.tex").read_text() == "precious"


def list_entries(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def plant(target, name, outside):
    """Put a link to something of the same kind outside in an entry's place."""
    path = target / name
    is_folder = path.is_dir()
    if is_folder:
        shutil.rmtree(path)
    else:
        path.unlink()
    path.symlink_to(outside / ("photos" if is_folder else "thesis.tex"))


@pytest.mark.parametrize("kind", run_folders.FOLDERS)
def test_every_entry_of_a_folder_as_a_link(kind, tmp_path, outside):
    """Reports and figures of a stranger's folder, each of its entries a link in turn."""
    template = run_folders.FOLDERS[kind](tmp_path / "template")
    (template / "plots").mkdir()
    for name in ("report.html", "plots/return.png", "plots/masks.png", "plots/returns.png"):
        (template / name).write_text("earlier")
    before = tampering.snapshot(outside)
    for name in list_entries(template):
        target = tmp_path / "case"
        tampering.copy(template, target)
        plant(target, name, outside)
        command = "plot" if "plots" in name and kind != "judge" else "report"
        done = run_command(tmp_path, command, "case")
        assert done.returncode in (0, 2), (name, done.stderr)
        assert tampering.snapshot(outside) == before, name


@pytest.fixture(scope="module")
def stopped_run(tmp_path_factory):
    """A run of train-online that was stopped after a few evaluations."""
    folder = tmp_path_factory.mktemp("online") / "run"
    return write_stopped(folder, 300, steps=400, warmup=100, round_updates=2)


def test_every_entry_of_a_resumed_run_as_a_link(stopped_run, tmp_path, outside):
    before = tampering.snapshot(outside)
    for name in list_entries(stopped_run):
        if "tfevents" in name or "step-" in name:
            continue
        target = tmp_path / "case"
        tampering.copy(stopped_run, target)
        plant(target, name, outside)
        done = run_command(tmp_path, "train-online", "--resume", "case", "--device", "cpu")
        assert done.returncode in (0, 2), (name, done.stderr)
        assert tampering.snapshot(outside) == before, name
