"""A register of files to be refused or warned of, and what is needed to make them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import samples

from grd_offline.io.datasets import write_dataset

REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {}
ODD: dict[str, tuple[Callable[[Path], object], str]] = {}


def refused(message):
    def register(make):
        REFUSED[make.__name__] = (make, message)
        return make

    return register


def odd(message):
    def register(make):
        ODD[make.__name__] = (make, message)
        return make

    return register


def own(path):
    write_dataset(path, samples.make_header(), samples.make_records())
    return path


def edit(path):
    own(path)
    return h5py.File(path, "r+")


def replace(file, name, value, **options):
    del file[name]
    file.create_dataset(name, data=value, **options)


def flat(path, **changes):
    arrays = samples.flat_arrays()
    arrays.update(changes)
    samples.write_flat(path, {name: value for name, value in arrays.items() if value is not None})


def edit_flat(path, **changes):
    flat(path, **changes)
    return h5py.File(path, "r+")


def edit_d3rlpy(path):
    samples.write_d3rlpy_by_hand(path)
    return h5py.File(path, "r+")


def edit_robomimic(path):
    samples.write_robomimic_by_hand(path)
    return h5py.File(path, "r+")


def edit_minari(path, **options):
    folder = samples.write_minari_by_hand(path, **options)
    return h5py.File(folder / "data" / "main_data.hdf5", "r+")
