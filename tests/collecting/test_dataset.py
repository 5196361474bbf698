"""`grd_offline.collect` from Python: what it writes, what it gives back, and what it refuses."""

import gymnasium as gym
import numpy as np
import pytest

import grd_offline
from grd_offline import DataError, StorageError
from grd_offline.core.observer import Observer

WORLD = {"length": 9}


class Counter(Observer):
    """Counts episodes, and stops after some of them."""

    def __init__(self, most=10**9):
        self.seen, self.most = 0, most

    def on_result(self, work, result):
        self.seen += 1

    def should_stop(self):
        return self.seen >= self.most


def test_collect_writes_a_file_and_says_what_is_in_it(tmp_path):
    counter = Counter()
    collected = grd_offline.collect(
        "Factored", tmp_path / "a.h5", env_args=WORLD, episodes=4, workers=1, observer=counter
    )
    episodes = grd_offline.read(tmp_path / "a.h5")
    assert (collected.path, collected.is_complete) == (tmp_path / "a.h5", True)
    np.testing.assert_array_equal(collected.lengths, episodes.lengths)
    np.testing.assert_allclose(collected.returns, [episode.rewards.sum() for episode in episodes])
    assert counter.seen == 4


def test_the_number_of_workers_does_not_change_the_file(tmp_path):
    for workers in (1, 2):
        grd_offline.collect(
            "Factored", tmp_path / f"{workers}.h5", env_args=WORLD, episodes=6, workers=workers
        )
    assert (tmp_path / "1.h5").read_bytes() == (tmp_path / "2.h5").read_bytes()


def test_a_run_that_is_stopped_leaves_a_partial_file(tmp_path):
    collected = grd_offline.collect("Factored", tmp_path / "a.h5", workers=1, observer=Counter(2))
    assert collected.path == tmp_path / "a.partial.h5"
    assert not collected.is_complete
    assert len(grd_offline.read(collected.path)) == len(collected.returns) >= 2
    assert [path.name for path in tmp_path.iterdir()] == ["a.partial.h5"]


def test_a_partial_file_is_not_replaced(tmp_path):
    kept = []
    for _ in range(3):
        stop = {"workers": 1, "observer": Counter(1)}
        kept.append(grd_offline.collect("Factored", tmp_path / "a.h5", **stop).path.name)
    assert kept == ["a.partial.h5", "a.partial-2.h5", "a.partial-3.h5"]
    assert {path.name for path in tmp_path.iterdir()} == set(kept)


class Fragile(gym.Env):
    """It breaks in its third episode."""

    observation_space = action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self):
        self.episodes = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episodes += 1
        return np.zeros(1, np.float32), {}

    def step(self, action):
        if self.episodes == 3:
            raise RuntimeError("the simulator lost its connection")
        return np.zeros(1, np.float32), 1.0, True, False, {}


def test_episodes_before_a_failure_are_kept(tmp_path):
    gym.register("Fragile-v0", Fragile)
    try:
        with pytest.raises(
            DataError, match=r"lost its connection; a\.partial\.h5 holds the 2 episodes"
        ):
            grd_offline.collect("Fragile-v0", tmp_path / "a.h5", workers=1, episodes=9)
        assert len(grd_offline.read(tmp_path / "a.partial.h5")) == 2
        assert [path.name for path in tmp_path.iterdir()] == ["a.partial.h5"]
        with pytest.raises(DataError, match=r"lost its connection$"):
            grd_offline.collect(
                "Fragile-v0", tmp_path / "b.h5", workers=1, episodes=9, keep_partial=False
            )
        assert not (tmp_path / "b.partial.h5").exists()
    finally:
        del gym.registry["Fragile-v0"]


def test_a_planted_link_is_not_followed(tmp_path):
    notes, folder = tmp_path / "notes.txt", tmp_path / "out"
    notes.write_text("precious")
    folder.mkdir()
    (folder / ".a.h5.collecting").symlink_to(notes)
    (folder / "a.partial.h5").symlink_to(notes)
    collected = grd_offline.collect("Factored", folder / "a.h5", workers=1, episodes=2)
    assert collected.path == folder / "a.h5"
    assert not collected.path.is_symlink()
    (folder / "b.h5").symlink_to(notes)
    with pytest.raises(StorageError, match="leads out of its folder"):
        grd_offline.collect("Factored", folder / "b.h5", workers=1, episodes=2)
    assert notes.read_text() == "precious"


def test_a_run_that_is_stopped_at_once_writes_nothing(tmp_path):
    collected = grd_offline.collect("Factored", tmp_path / "a.h5", workers=1, observer=Counter(0))
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
    collected = grd_offline.collect(
        "Factored", tmp_path / "a.h5", workers=1, keep_partial=False, observer=Counter(2)
    )
    assert (collected.path, collected.is_complete) == (None, False)
    assert not list(tmp_path.iterdir())


@pytest.mark.long
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
