"""Episodes stay in memory once they were loaded, as long as there is room for them.

A fit goes over its episodes many times, and reading and checking them takes far longer than
anything that it does with them. Beyond the room, episodes are read anew each time.
"""

from __future__ import annotations

from collections.abc import Callable

from grd_offline.episodes import Episode

ROOM = 2**30
"""Bytes of the episodes of one dataset that are kept."""


class KeptEpisodes:
    """Loads episodes, and keeps those that were loaded first."""

    def __init__(self, load: Callable[[int], Episode], room: int = ROOM) -> None:
        self._load, self._left = load, room
        self._kept: dict[int, Episode] = {}

    def __call__(self, index: int) -> Episode:
        kept = self._kept.get(index)
        if kept is not None:
            return kept
        episode = self._load(index)
        size = _count_bytes(episode)
        if size <= self._left:
            self._kept[index] = episode
            self._left -= size
        return episode


def _count_bytes(episode: Episode) -> int:
    steps = episode.rewards.nbytes + episode.terminations.nbytes + episode.truncations.nbytes
    return steps + episode.delivered.nbytes + episode.observations.nbytes + episode.actions.nbytes
