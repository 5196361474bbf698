"""Compressed datasets: unpacked here to the same numbers as by HDF5, and in a child where not."""

import faulthandler
import os
import signal
import time

import ends
import h5py
import numpy as np
import pytest
import samples

from grd_offline import DataError
from grd_offline.io.datasets import open_recording
from grd_offline.io.formats import guard
from grd_offline.io.formats.guard import Budget, SafeGroup, Source


def open_dataset(path, name="x"):
    file = h5py.File(path, "r")
    source = Source(Budget(os.path.getsize(path)))
    return SafeGroup(file.id, source).dataset(name), source


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8", "i1", "<i8", "?", "<u2"])
@pytest.mark.parametrize(
    ("shape", "chunk"),
    [
        ((50,), (7,)),
        ((50, 3), (8, 2)),
        ((50, 3), (50, 3)),
        ((20, 3, 4), (6, 2, 3)),
        ((5, 2), (9, 5)),
    ],
)
@pytest.mark.parametrize("filters", [{}, {"shuffle": True}, {"shuffle": True, "fletcher32": True}])
def test_the_same_numbers(dtype, shape, chunk, filters, tmp_path):
    rng = np.random.default_rng(0)
    values = np.abs(rng.normal(size=shape) * 50).astype(dtype)
    maximum = tuple(None for _ in shape)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        options = {"chunks": chunk, "compression": "gzip", "maxshape": maximum, **filters}
        file.create_dataset("x", data=values, **options)
    dataset, source = open_dataset(tmp_path / "x.h5")
    assert source.deflated
    for start, stop in ((0, None), (3, 4), (0, 0), (5, 17), (40, 60)):
        got = dataset.read(start, stop)
        np.testing.assert_array_equal(got, values[start:stop])
        assert got.dtype == values.dtype.newbyteorder("=")


def test_chunks_that_were_never_written_hold_the_fill_value(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        made = file.create_dataset("x", (40, 2), "f4", chunks=(10, 2), compression=4, fillvalue=7)
        made[10:20] = 1
    dataset, _ = open_dataset(tmp_path / "x.h5")
    assert dataset.read()[:, 0].tolist() == [7] * 10 + [1] * 10 + [7] * 20


@pytest.mark.parametrize("compression", ["lzf", "gzip", None])
def test_flat_files_are_the_same_however_they_are_stored(compression, tmp_path):
    options = {"compression": compression} if compression else {}
    samples.write_flat(tmp_path / "flat.h5", samples.flat_arrays(), **options)
    samples.write_flat(tmp_path / "plain.h5", samples.flat_arrays())
    with open_recording(tmp_path / "flat.h5") as one, open_recording(tmp_path / "plain.h5") as two:
        for got, expected in zip(one, two, strict=True):
            samples.assert_same_record(got, expected)


@pytest.fixture
def packed(tmp_path):
    samples.write_flat(tmp_path / "lzf.h5", samples.flat_arrays(), compression="lzf")
    return tmp_path / "lzf.h5"


def test_a_crash_of_the_library_is_one_line(packed, monkeypatch):
    def crash(*_):
        faulthandler.disable()  # its report would look like a crash of the test run
        os.kill(os.getpid(), signal.SIGSEGV)

    monkeypatch.setattr(guard, "_read_all", crash)
    with pytest.raises(DataError, match=r"lzf.h5.*crashes the HDF5 library .*SIGSEGV"):
        open_recording(packed)


def test_a_reading_that_takes_too_long_is_one_line(packed, monkeypatch):
    def spin(*_):
        while True:
            time.process_time()

    monkeypatch.setattr(guard, "_read_all", spin)
    monkeypatch.setattr(guard, "SECONDS", 0.0)
    with pytest.raises(DataError, match=r"lzf.h5.*takes too long to read"):
        open_recording(packed)


def test_a_reading_that_takes_too_much_memory_is_refused(packed, monkeypatch):
    def grow(*_):
        np.ones(2**31, np.uint8)

    monkeypatch.setattr(guard, "_read_all", grow)
    with pytest.raises(DataError, match=r"lzf.h5.*cannot be read"):
        open_recording(packed)


def test_where_nothing_forks_a_new_process_reads_first(packed, monkeypatch):
    monkeypatch.setattr(guard, "FORKS", False)
    with open_recording(packed) as recording:
        assert len(recording) > 0
    monkeypatch.setattr(guard, "read_limited", ends.crash)
    with pytest.raises(DataError, match=r"lzf.h5.*crashes the HDF5 library .*SIGSEGV"):
        open_recording(packed)
    monkeypatch.setattr(guard, "read_limited", ends.hang)
    monkeypatch.setattr(guard, "START_SECONDS", -3.9)
    with pytest.raises(DataError, match=r"lzf.h5.*takes too long to read"):
        open_recording(packed)
    monkeypatch.setattr(guard, "START_SECONDS", 20.0)
    monkeypatch.setattr(guard, "read_limited", ends.complain)
    with pytest.raises(DataError, match=r"lzf.h5.*observations: no good"):
        open_recording(packed)
