"""Locks between processes: by the kernel, and where the system has none by process numbers."""

import os
import signal
import subprocess
import sys

import pytest

from grd_offline import StorageError
from grd_offline.io.files.storage import lock_folder, take_lock

WITHOUT_KERNEL = "import sys; sys.modules['fcntl'] = None\n"
HOLD = """
import sys, time
from pathlib import Path
from grd_offline.io.files.storage import take_lock
lock = take_lock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.readline()
lock.release()
"""
TRY = """
import sys
from pathlib import Path
from grd_offline.io.files.storage import take_lock
try:
    take_lock(Path(sys.argv[1])).release()
    print("free")
except BlockingIOError:
    print("busy")
"""


def start_holder(path, before):
    holder = subprocess.Popen(
        [sys.executable, "-c", before + HOLD, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout.readline() == "held\n"
    return holder


def ask(path, before):
    done = subprocess.run(
        [sys.executable, "-c", before + TRY, path], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return done.stdout.strip()


@pytest.mark.parametrize("before", ["", WITHOUT_KERNEL], ids=["kernel", "no fcntl"])
def test_a_living_process_is_honoured_and_a_dead_one_is_not(before, tmp_path):
    path = tmp_path / "one.lock"
    holder = start_holder(path, before)
    assert ask(path, before) == "busy"
    holder.communicate("\n")
    assert holder.returncode == 0
    assert list(tmp_path.iterdir()) == []
    assert ask(path, before) == "free"
    holder = start_holder(path, before)
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    assert ask(path, before) == "free"
    assert list(tmp_path.iterdir()) == []


def test_a_child_that_inherits_the_descriptor_holds_the_lock_too(tmp_path):
    """As the process of a job does after its sweep was killed."""
    lock = lock_folder(tmp_path)
    child = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=(lock.descriptor,)
    )
    with pytest.raises(BlockingIOError):
        lock_folder(tmp_path)
    os.close(lock.descriptor)  # as the end of this process would
    assert ask(tmp_path / ".lock", "") == "busy"
    child.communicate(b"\n")
    assert ask(tmp_path / ".lock", "") == "free"
    lock.release()


def test_planted_locks_are_refused_and_left_alone(tmp_path):
    precious = tmp_path / "thesis.tex"
    precious.write_text("precious")
    (tmp_path / "link").symlink_to(precious)
    (tmp_path / "dangling").symlink_to(tmp_path / "new")
    os.link(precious, tmp_path / "second-name")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "dangling", "second-name", "pipe"):
        with pytest.raises(StorageError, match=f"{name}: is a link or no regular file"):
            take_lock(tmp_path / name)
    assert precious.read_text() == "precious"
    assert not (tmp_path / "new").exists()


def test_a_lock_is_let_go_once(tmp_path):
    lock = take_lock(tmp_path / "one")
    lock.release()
    other = take_lock(tmp_path / "one")
    lock.release()
    assert (tmp_path / "one").exists()
    with pytest.raises(BlockingIOError):
        take_lock(tmp_path / "one")
    other.release()
