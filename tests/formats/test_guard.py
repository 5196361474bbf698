"""Files of unknown origin: refused in one line, in little time and memory, nothing written."""

import functools
import re

import corpus
import forked
import pytest

LIMIT_SECONDS, LIMIT_MB = 2.0, 300
run = functools.partial(forked.run, light=True)


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


@pytest.mark.long
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
