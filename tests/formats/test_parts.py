"""A folder of parts is read as one dataset."""

from dataclasses import replace

import numpy as np
import pytest

import grd_offline
from grd_offline import DataError, open_recording, write_dataset
from grd_offline.io import datasets as parts_module
from grd_offline.io.datasets import Manifest, find_parts, write_manifest

WORLD = {"env_args": {"length": 9}, "workers": 1, "seed": 3, "keep_true_rewards": True}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Seven episodes in one file, and the same in three parts."""
    folder = tmp_path_factory.mktemp("parts")
    grd_offline.collect("Factored", folder / "whole.h5", episodes=7, **WORLD)
    (folder / "parts").mkdir()
    for number, (first, count) in enumerate([(0, 3), (3, 2), (5, 2)]):
        out = folder / "parts" / f"part-{number:05d}.h5"
        grd_offline.collect("Factored", out, first_episode=first, episodes=count, **WORLD)
    return folder


def copy_parts(data, folder, change=lambda header: header):
    """The parts again; the header of the last one is changed."""
    paths = find_parts(data / "parts")
    for path in paths:
        with open_recording(path) as recording:
            header = change(recording.header) if path == paths[-1] else recording.header
            write_dataset(folder / path.name, header, recording)
    return folder


def check_same(one, other):
    for field in ("rewards", "terminations", "truncations"):
        np.testing.assert_array_equal(getattr(one, field), getattr(other, field))
    for field in ("observations", "actions", "extras"):
        ours, theirs = getattr(one, field), getattr(other, field)
        assert set(ours) == set(theirs)
        for name in ours:
            np.testing.assert_array_equal(ours[name], theirs[name])
    assert one.attributes == other.attributes


def test_the_parts_together_are_the_whole(data):
    with open_recording(data / "whole.h5") as whole, open_recording(data / "parts") as joined:
        assert joined.header == whole.header
        assert joined.warnings == []
        np.testing.assert_array_equal(joined.lengths, whole.lengths)
        for index in range(7):
            check_same(joined.load(index), whole.load(index))
            np.testing.assert_array_equal(joined.load_rewards(index), whole.load_rewards(index))


def test_few_parts_are_open_at_a_time(data, monkeypatch):
    monkeypatch.setattr(parts_module, "MOST_OPEN", 1)
    with open_recording(data / "parts") as joined:
        records = [joined.load(index) for index in (6, 0, 4, 1)]
        # The parts of the first records are closed by now, and are opened again.
        assert [len(record.extras["true_rewards"]) for record in records] == [9] * 4
    with pytest.raises(DataError, match="the dataset was closed"):
        joined.load(0)


def test_every_reader_takes_a_folder_of_parts(data):
    episodes = grd_offline.read(data / "parts")
    assert len(episodes) == 7
    truth = grd_offline.read_truth(data / "parts")
    assert len(truth) == 7


def test_parts_that_do_not_fit_are_refused(data, tmp_path):
    folder = copy_parts(data, tmp_path, lambda header: replace(header, delay=3))
    with pytest.raises(DataError, match=r"part-00002.h5: delay: differs from that of part-00000"):
        open_recording(folder)


def test_what_is_missing_or_differs_is_told(data, tmp_path):
    def change(header):
        return replace(header, settings={**header.settings, "seed": 9})

    folder = copy_parts(data, tmp_path, change)
    names = tuple(path.name for path in find_parts(folder))
    (folder / names[0]).unlink()
    write_manifest(folder, Manifest("collect", names, {}))
    with open_recording(folder) as joined:
        assert joined.warnings == [
            "1 of 3 parts are not there yet, the first is part-00000.h5: grd-offline collect goes "
            "on with them",
            "the parts were made with different settings: seed",
        ]
        assert "seed" not in joined.header.settings


def test_a_broken_manifest_is_told_in_one_line(data, tmp_path):
    folder = copy_parts(data, tmp_path)
    (folder / "parts.json").write_text('{"format": "other"}')
    with pytest.raises(DataError, match=r"parts.json: is not a grd-offline parts"):
        open_recording(folder)


def test_a_folder_without_parts_is_refused(tmp_path):
    (tmp_path / "part-0.h5").touch()
    with pytest.raises(DataError, match=r"without a Minari dataset .* or parts"):
        open_recording(tmp_path)
