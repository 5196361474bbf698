"""Files of unknown origin: refused in one line, in little time and memory, nothing written."""

import re
import subprocess
import sys
import tempfile

import corpus
import pytest

LIMIT_SECONDS, LIMIT_MB = 2.0, 300


# A process counts what its parent had when it was started as its own: start it from a small one.
LAUNCH = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[2:])
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
open(sys.argv[1], "w").write(f"{usage.ru_utime + usage.ru_stime} {usage.ru_maxrss / 1024}")
sys.exit(code)
"""


def run(*arguments, cwd):
    """Run the command; gives exit code, output, CPU seconds and peak memory in MB."""
    with tempfile.NamedTemporaryFile("r") as usage:
        launcher = [sys.executable, "-S", "-c", LAUNCH, usage.name]
        command = [sys.executable, "-m", "grd_offline.cli", *arguments]
        done = subprocess.run([*launcher, *command], cwd=cwd, capture_output=True, text=True)
        seconds, memory = map(float, usage.read().split())
    return done.returncode, done.stdout, done.stderr, seconds, memory


def test_the_corpus_is_large_enough():
    assert len(corpus.REFUSED) + len(corpus.ODD) >= 80


@pytest.mark.parametrize("name", corpus.REFUSED)
def test_refused_in_one_line(name, tmp_path):
    make, message = corpus.REFUSED[name]
    make(tmp_path / "data.h5")
    before = sorted(tmp_path.rglob("*"))
    code, out, err, seconds, memory = run(
        "convert", "data.h5", "out.h5", "--to", "own", cwd=tmp_path
    )
    lines = err.splitlines()
    assert code == 2, err
    assert out == ""
    assert len(lines) == 1, err
    assert lines[0].startswith("grd-offline: error: data.h5: ")
    assert re.search(message, lines[0]), lines[0]
    assert lines[0].isprintable()
    assert sorted(tmp_path.rglob("*")) == before
    assert seconds < LIMIT_SECONDS
    assert memory < LIMIT_MB


@pytest.mark.parametrize("name", corpus.ODD)
def test_odd_but_usable(name, tmp_path):
    make, message = corpus.ODD[name]
    make(tmp_path / "data.h5")
    code, out, err, _, _ = run("inspect", "data.h5", cwd=tmp_path)
    assert code == 0, err
    assert re.search(message, " ".join(out.split())), out
    code, _, err, _, _ = run("convert", "data.h5", "out.h5", "--to", "own", cwd=tmp_path)
    assert code == 0, err


def test_a_size_limit_can_be_raised(tmp_path):
    """All-zero states shrink a thousandfold: refused by default, read when the user says so."""
    import h5py
    import numpy as np
    import samples

    arrays = samples.flat_arrays(steps=60)
    samples.write_flat(
        tmp_path / "data.h5", {k: v for k, v in arrays.items() if k != "observations"}
    )
    with h5py.File(tmp_path / "data.h5", "r+") as file:
        file.create_dataset(
            "observations", (60, 2**21), np.float32, chunks=(1, 2**21), compression="gzip"
        )
    code, _, err, _, _ = run("convert", "data.h5", "out.h5", "--to", "own", cwd=tmp_path)
    assert code == 2
    assert "observations: declares 480.0 MB but stores 0 bytes; raise --max-size" in err
    code, _, err, _, _ = run(
        "convert", "data.h5", "out.h5", "--to", "own", "--max-size", "1GB", cwd=tmp_path
    )
    assert code == 0, err


FUZZ = """
import random, signal, sys
from pathlib import Path
from grd_offline import DataError
from grd_offline.formats import open_recording
from grd_offline.summary import summarise

def stop(*_):
    raise SystemExit(f"hang: file {number}")

signal.signal(signal.SIGALRM, stop)
folder, first, last = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
sources = [path.read_bytes() for path in sorted(folder.glob("*.source"))]
target = folder / f"mutated-{first}.h5"
refused = 0
for number in range(first, last):
    chance = random.Random(number)
    content = bytearray(chance.choice(sources))
    for _ in range(chance.choice([1, 1, 2, 8, 64])):
        place = chance.randrange(len(content) if chance.random() < 0.5 else 4096) % len(content)
        kind = chance.random()
        if kind < 0.5:
            content[place] = chance.randrange(256)
        elif kind < 0.7:
            content[place] ^= 1 << chance.randrange(8)
        elif kind < 0.8:
            content[place : place + 8] = chance.choice([b"\\xff" * 8, b"\\0" * 8, b"\\x7f" * 8])
        elif kind < 0.9:
            block = content[place : place + chance.randrange(64)]
            there = chance.randrange(len(content))
            content[there : there + len(block)] = block
        elif len(content) > 200:
            del content[chance.randrange(100, len(content)) :]
    target.write_bytes(content)
    signal.alarm(20)
    try:
        with open_recording(target) as recording:
            summarise(recording, target)
    except DataError as error:
        assert str(error).isprintable() and str(target) in str(error), str(error)
        refused += 1
    signal.alarm(0)
print(refused, last - first)
"""


@pytest.mark.parametrize("part", range(4))
def test_two_thousand_mutated_files_neither_crash_nor_hang(part, tmp_path):
    import samples

    corpus.own(tmp_path / "own.source")
    corpus.flat(tmp_path / "flat.source")
    samples.write_flat(tmp_path / "zip.source", samples.flat_arrays(), compression="gzip")
    samples.write_d3rlpy_by_hand(tmp_path / "d3.source")
    samples.write_robomimic_by_hand(tmp_path / "robo.source")
    folder = samples.write_minari_by_hand(tmp_path / "minari")
    (folder / "data" / "main_data.hdf5").rename(tmp_path / "minari.source")
    done = subprocess.run(
        [
            sys.executable,
            "-X",
            "faulthandler",
            "-c",
            FUZZ,
            tmp_path,
            str(500 * part),
            str(500 * part + 500),
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    refused, total = map(int, done.stdout.split())
    assert total == 500
    assert refused > 100  # the mutations do reach what is checked
