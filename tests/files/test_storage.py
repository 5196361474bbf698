"""A full disk, a kill, a second writer: the old file stays, or the whole new one is there."""

import errno
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time

import h5py
import numpy as np
import pytest
import samples

from grd_offline import StorageError, read
from grd_offline.io.datasets import write_dataset
from grd_offline.io.files import storage
from grd_offline.io.files.storage import replace_file, replace_folder

LAYOUTS = ("own", "minari", "d4rl")


def write(path, layout, *, seed=0):
    records = samples.make_records(3, seed=seed)
    lengths = np.array([len(record.rewards) for record in records])
    write_dataset(path, samples.make_header(), records, layout=layout, lengths=lengths)


def snapshot(path):
    return [episode.observations.tobytes() for episode in read(path)]


class Faults:
    """Makes the N-th call of one system function fail, and counts the calls."""

    def __init__(self, monkeypatch, name, fail_at, error=errno.ENOSPC):
        self.calls = 0
        self._real = getattr(os, name)
        self._fail_at = fail_at
        self._error = error
        monkeypatch.setattr(storage.os, name, self)

    def __call__(self, *arguments):
        self.calls += 1
        if self.calls == self._fail_at:
            raise OSError(self._error, os.strerror(self._error))
        return self._real(*arguments)


@pytest.mark.long
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("function", ["pwrite", "ftruncate", "fsync", "replace", "rename"])
def test_each_system_call_may_fail(function, layout, tmp_path):
    """Fail the first, second, third, … call until a run gets through without reaching it."""
    path = tmp_path / "data"
    write(path, layout)
    old = snapshot(path)
    write(tmp_path / "other", layout, seed=1)
    new = snapshot(tmp_path / "other")
    for fail_at in range(1, 2000):
        with pytest.MonkeyPatch.context() as patch:
            faults = Faults(patch, function, fail_at)
            try:
                write(path, layout, seed=1)
            except StorageError as error:
                assert "cannot be written: No space left on device" in str(error)  # noqa: PT017
                assert faults.calls >= fail_at
                # Only the sync of the folder comes after the new file is in place.
                assert (
                    snapshot(path) in (old, new) if function == "fsync" else snapshot(path) == old
                )
                leftovers = {entry.name for entry in tmp_path.iterdir()} - {"data", "other"}
                assert leftovers == set()
                if snapshot(path) == new:
                    write(path, layout)
                continue
        assert faults.calls < fail_at
        break
    assert snapshot(path) == new


@pytest.mark.long
def test_a_full_disk_ends_in_one_line_and_the_old_file_stays(tmp_path):
    """The real command under a limit on file size, at many sizes: HDF5 must not crash either."""
    write(tmp_path / "in.h5", "own")
    write(tmp_path / "out.h5", "own", seed=1)
    old = (tmp_path / "out.h5").read_bytes()
    size = (tmp_path / "in.h5").stat().st_size
    command = [sys.executable, "-m", "grd_offline.cli", "convert", "in.h5", "out.h5", "--to", "own"]
    for limit in range(0, size * 3 // 4, size // 8):
        done = subprocess.run(
            ["prlimit", f"--fsize={limit}", *command],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 2, done.stderr
        assert done.stderr.strip().splitlines()[-1].startswith("grd-offline: error: out.h5:")
        assert "Traceback" not in done.stderr
        assert (tmp_path / "out.h5").read_bytes() == old


WRITER = """
import sys, numpy as np, samples
from grd_offline.io.datasets import write_dataset
records = samples.make_records(60, seed=int(sys.argv[3]))
lengths = np.array([len(record.rewards) for record in records], np.int64)
print("ready", flush=True)
while True:
    write_dataset(sys.argv[1], samples.make_header(), records, layout=sys.argv[2], lengths=lengths)
    print("written", flush=True)
"""


@pytest.mark.long
def test_a_kill_at_any_moment_leaves_a_whole_file(tmp_path):
    """Fifteen writers are killed at random moments; each finds the old file and rewrites it."""
    chance = random.Random(0)
    environment = {**os.environ, "PYTHONPATH": os.path.dirname(samples.__file__)}
    expected = {}
    for layout in LAYOUTS:
        path = tmp_path / layout
        for seed in (0, 1):
            records = samples.make_records(60, seed=seed)
            expected[seed] = [record.observations[""].tobytes() for record in records]
        for attempt in range(5):
            writer = subprocess.Popen(
                [sys.executable, "-c", WRITER, str(path), layout, str(attempt % 2)],
                stdout=subprocess.PIPE,
                env=environment,
                text=True,
            )
            assert writer.stdout.readline() == "ready\n"
            if attempt == 0:
                assert writer.stdout.readline() == "written\n"
            time.sleep(chance.uniform(0, 0.25))
            writer.kill()
            writer.wait()
            writer.stdout.close()
            assert snapshot(path) in expected.values()
    visible = {entry.name for entry in tmp_path.iterdir() if not entry.name.startswith(".")}
    assert visible == set(LAYOUTS)


def hold(path, ready, go):
    with replace_file(path) as output:
        ready.set()
        go.wait(30)
        output.write(b"theirs")


def test_a_second_writer_is_refused(tmp_path):
    context = multiprocessing.get_context("spawn")
    ready, go = context.Event(), context.Event()
    first = context.Process(target=hold, args=(tmp_path / "file", ready, go))
    first.start()
    assert ready.wait(60)
    with (
        pytest.raises(StorageError, match="another process is writing it"),
        replace_file(tmp_path / "file") as output,
    ):
        output.write(b"ours")
    go.set()
    first.join()
    assert (tmp_path / "file").read_bytes() == b"theirs"


def test_an_interrupt_leaves_the_old_file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012, SIM117
        with replace_file(path) as output:
            output.write(b"new")
            signal.raise_signal(signal.SIGINT)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_what_fails_verification_does_not_take_its_place(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def verify(partial):
        assert partial.read_bytes() == b"new"
        raise StorageError("not what was meant")

    with (
        pytest.raises(StorageError, match="not what was meant"),
        replace_file(path, verify=verify) as output,
    ):
        output.write(b"new")
    assert path.read_bytes() == b"old"


def test_a_damaged_chunk_is_found_when_read(tmp_path):
    path = tmp_path / "data.h5"
    write(path, "own")
    with h5py.File(path) as file:
        observations = file["episode_0/observations"]
        place = observations.id.get_chunk_info(0).byte_offset
    content = bytearray(path.read_bytes())
    content[place + 5] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"data.h5: episode 0: .*cannot be read"):
        read(path)[0]


def test_folders_that_are_something_else_are_not_replaced(tmp_path):
    precious = tmp_path / "home"
    precious.mkdir()
    (precious / "thesis.tex").write_text("...")
    with pytest.raises(StorageError, match="holds something else"):
        write(precious, "minari")
    assert (precious / "thesis.tex").read_text() == "..."
    (tmp_path / "file").write_text("...")
    with pytest.raises(StorageError, match="exists and is not a folder"):
        write(tmp_path / "file", "minari")
    with pytest.raises(StorageError, match="exists and is not a regular file"):
        write(precious, "own")


def test_an_empty_folder_is_filled_and_an_earlier_output_replaced(tmp_path):
    path = tmp_path / "out"
    path.mkdir()
    write(path, "minari")
    old = snapshot(path)
    write(path, "minari", seed=1)
    assert snapshot(path) != old
    assert list(tmp_path.iterdir()) == [path]


def test_missing_and_forbidden_folders_are_said(tmp_path):
    with pytest.raises(StorageError, match=r"out.h5: cannot be written: there is no folder .*such"):
        write(tmp_path / "no" / "such" / "out.h5", "own")


def test_a_link_keeps_pointing_at_the_new_file(tmp_path):
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    with replace_file(tmp_path / "link") as output:
        output.write(b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


def test_the_folder_lock_is_let_go_and_leftovers_are_cleared(tmp_path):
    leftover = tmp_path / ".out.0123456789abcdef.partial"
    leftover.mkdir()
    (leftover / "half").write_text("...")
    with replace_folder(tmp_path / "out", is_replaceable=lambda _: False) as folder:
        assert list(folder.iterdir()) == []
        (folder / "whole").write_text("...")
    assert [entry.name for entry in tmp_path.rglob("*")] == ["out", "whole"]
