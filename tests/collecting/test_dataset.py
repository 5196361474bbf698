"""`grd_offline.collect` from Python: what it writes, what it gives back, and what it refuses."""

import numpy as np
import pytest

import grd_offline
from grd_offline import DataError, StorageError

WORLD = {"length": 9}


def test_collect_writes_a_file_and_says_what_is_in_it(tmp_path):
    seen = []
    collected = grd_offline.collect(
        "Factored", tmp_path / "a.h5", env_args=WORLD, episodes=4, workers=1, on_episode=seen.append
    )
    episodes = grd_offline.read(tmp_path / "a.h5")
    assert (collected.path, collected.is_complete) == (tmp_path / "a.h5", True)
    np.testing.assert_array_equal(collected.lengths, episodes.lengths)
    np.testing.assert_allclose(collected.returns, [episode.rewards.sum() for episode in episodes])
    assert len(seen) == 4


def test_the_number_of_workers_does_not_change_the_file(tmp_path):
    for workers in (1, 2):
        grd_offline.collect(
            "Factored", tmp_path / f"{workers}.h5", env_args=WORLD, episodes=6, workers=workers
        )
    assert (tmp_path / "1.h5").read_bytes() == (tmp_path / "2.h5").read_bytes()


def test_a_run_that_is_stopped_leaves_a_partial_file(tmp_path):
    seen = []
    collected = grd_offline.collect(
        "Factored",
        tmp_path / "a.h5",
        workers=1,
        should_stop=lambda: len(seen) >= 2,
        on_episode=seen.append,
    )
    assert collected.path == tmp_path / "a.partial.h5"
    assert not collected.is_complete
    assert len(grd_offline.read(collected.path)) == len(collected.returns) >= 2
    assert [path.name for path in tmp_path.iterdir()] == ["a.partial.h5"]


def test_a_run_that_is_stopped_at_once_writes_nothing(tmp_path):
    collected = grd_offline.collect(
        "Factored", tmp_path / "a.h5", workers=1, should_stop=lambda: True
    )
    assert (collected.path, collected.is_complete, len(collected.returns)) == (None, False, 0)
    assert not list(tmp_path.iterdir())


def test_mistakes_are_told_before_anything_is_written(tmp_path):
    with pytest.raises(DataError, match="episodes: expected a whole number of at least 1, got 0"):
        grd_offline.collect("Factored", tmp_path / "a.h5", episodes=0)
    with pytest.raises(TypeError, match="episods"):
        grd_offline.collect("Factored", tmp_path / "a.h5", episods=3)
    with pytest.raises(StorageError, match="does not exist"):
        grd_offline.collect("Factored", tmp_path / "no" / "a.h5")
    assert not list(tmp_path.iterdir())


def test_a_run_that_is_stopped_can_leave_nothing(tmp_path):
    seen = []
    collected = grd_offline.collect(
        "Factored",
        tmp_path / "a.h5",
        workers=1,
        should_stop=lambda: len(seen) >= 2,
        keep_partial=False,
        on_episode=seen.append,
    )
    assert (collected.path, collected.is_complete) == (None, False)
    assert not list(tmp_path.iterdir())


def test_a_collection_can_be_continued(tmp_path):
    whole, rest = tmp_path / "whole.h5", tmp_path / "rest.h5"
    grd_offline.collect("Factored", whole, env_args=WORLD, episodes=6, workers=1)
    for workers in (1, 2):
        grd_offline.collect(
            "Factored", rest, env_args=WORLD, episodes=2, first_episode=4, workers=workers
        )
        with grd_offline.open_recording(whole) as one, grd_offline.open_recording(rest) as two:
            for index in range(2):
                ours, theirs = one.load(4 + index), two.load(index)
                np.testing.assert_array_equal(ours.observations[""], theirs.observations[""])
                assert ours.attributes == theirs.attributes
