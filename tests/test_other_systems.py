"""Windows and macOS, as far as they can be tested on Linux: what they lack is taken away.

Each test is a process of its own that lacks the modules and the names of `other_systems`. The tests
also run on Windows and macOS, as they are.
"""

import os
import subprocess
import sys

import other_systems
import pytest
from places import ROOT

pytestmark = pytest.mark.long

IMPORT_ALL = """
import importlib, pkgutil, sys
import grd_offline
assert sys.platform != "linux" or sys.modules["fcntl"] is None
modules = [found.name for found in pkgutil.walk_packages(grd_offline.__path__, "grd_offline.")]
for name in modules:
    if not name.endswith(("__main__", "interop.torchrl", "interop.d3rlpy", "interop.sb3")):
        importlib.import_module(name)
assert all(getattr(grd_offline, name) is not None for name in grd_offline.__all__)
print(len(modules))
"""
STORE = """
import filelock, pytest, sys
from pathlib import Path
from grd_offline import StorageError
from grd_offline.io.files import storage
from grd_offline.io.files.storage import take_lock

assert sys.platform != "linux" or filelock.FileLock is filelock.SoftFileLock
folder = Path(sys.argv[1])
file = folder / "file"
for text in (b"old", b"new\\r\\n\\x1a"):
    with storage.replace_file(file) as output:
        output.write(text)
    assert file.read_bytes() == text
with storage.replace_file(file) as output:
    output.write(b"mine")
    with pytest.raises(StorageError, match="another process is writing it"):
        with storage.replace_file(file):
            pass
storage.append_file(file, b", and more")
assert file.read_bytes() == b"mine, and more"
for text in ("one", "two"):
    with storage.replace_folder(folder / "inner", is_replaceable=lambda _: True) as inner:
        (inner / text).write_text(text)
    assert [path.name for path in (folder / "inner").iterdir()] == [text]
with pytest.raises(RuntimeError, match="stop"), storage.replace_file(file) as output:
    raise RuntimeError("stop")
lock = storage.lock_folder(folder / "inner")
with pytest.raises(BlockingIOError):
    storage.lock_folder(folder / "inner")
lock.release()
try:
    (folder / "link").symlink_to(file)
except OSError:  # Windows allows it to some users only
    pass
else:
    for write in (storage.append_file, lambda path, data: take_lock(path)):
        with pytest.raises(StorageError, match="link"):
            write(folder / "link", b"x")
    (folder / "link").unlink()
# What a killed writer left behind is cleared.
(folder / ".file.0123456789abcdef.partial").write_text("half")
with storage.replace_file(file) as output:
    output.write(b"last")
assert sorted(path.name for path in folder.rglob("*")) == ["file", "inner", "two"]
"""
USE = """
import os, sys
from grd_offline.cli import main

os.chdir(sys.argv[1])


def run(*arguments):
    try:
        main(arguments)
    except SystemExit as ended:
        assert not ended.code, arguments


sample = sys.argv[2]
run("doctor")
run("convert", sample, "minari", "--to", "minari")
run("decompose", "minari", "--method", "uniform", "--out", "grd")
run("report", "grd")
"""


def run(code, *arguments, before="other_systems.become()"):
    environment = {**os.environ, "PYTHONPATH": os.path.dirname(other_systems.__file__)}
    code = f"import other_systems; {before}\n{code}"
    done = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", "-c", code, *arguments],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_module_is_imported_and_commands_work(tmp_path):
    """One process for both: most of the time is spent on imports."""
    printed = run(IMPORT_ALL + USE, tmp_path, ROOT / "datasets" / "sample.h5")
    assert int(printed.splitlines()[0]) > 120
    assert (tmp_path / "grd" / "report.html").is_file()


def test_storage_works_with_the_portable_lock(tmp_path):
    run(STORE, tmp_path, before="other_systems.become(['shutil', 'pytest'])")
