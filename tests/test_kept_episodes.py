"""Episodes that were loaded stay in memory while there is room."""

from __future__ import annotations

import numpy as np

from grd_offline.core.episodes import Episode, KeptEpisodes


def _make_episode(index: int) -> Episode:
    return Episode(
        observations=np.full((4, 2), index, np.float32),
        actions=np.zeros((3, 1), np.float32),
        rewards=np.zeros(3),
        terminations=np.zeros(3, np.bool_),
        truncations=np.zeros(3, np.bool_),
        delivered=np.zeros(3, np.bool_),
    )


def test_an_episode_is_loaded_once_while_there_is_room():
    loaded = []

    def load(index):
        loaded.append(index)
        return _make_episode(index)

    one = 4 * 2 * 4 + 3 * 4 + 3 * 8 + 3 * 3
    kept = KeptEpisodes(load, room=2 * one + one // 2)
    for _ in range(2):
        for index in range(4):
            assert kept(index).observations[0, 0] == index
    assert loaded == [0, 1, 2, 3, 2, 3]
