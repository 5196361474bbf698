"""An even sample of all episodes that a member has finished, from its first to its newest."""

from __future__ import annotations

from typing import Any

import numpy as np

from grd_offline.online.replay import FinishedEpisode

MOST_EPISODES = 1000
MOST_STEPS = 500_000
MOST_NUMBERS = 2**25
"""Largest number of observed values and actions of all episodes of a sample together."""
MOST_PRODUCTS = 200_000
"""Largest number of episodes times numbers of a step: what a search of many inputs takes long
over."""


class Past:
    """Every k-th episode. Where there are too many, every second one leaves and k doubles.

    So the sample never forgets what a bad policy did, however long the run.
    """

    def __init__(self) -> None:
        self.count = 0
        """Number of episodes so far."""
        self.stride = 1
        self.episodes: list[FinishedEpisode] = []
        self._steps = 0

    def add(self, episode: FinishedEpisode) -> None:
        """Hear of a finished episode."""
        if self.count % self.stride == 0:
            self.episodes.append(episode)
            self._steps += len(episode.actions)
        self.count += 1
        width = episode.observations.shape[1] + episode.actions.shape[1]
        most = min(MOST_STEPS, MOST_NUMBERS // width)
        most_episodes = min(MOST_EPISODES, max(MOST_PRODUCTS // width, 100))
        while len(self.episodes) > 1 and (len(self.episodes) > most_episodes or self._steps > most):
            self.episodes = self.episodes[::2]
            self.stride *= 2
            self._steps = sum(len(kept.actions) for kept in self.episodes)

    def state(self) -> dict[str, Any]:
        return {"count": self.count, "stride": self.stride, "episodes": pack(self.episodes)}

    def load_state(self, state: dict[str, Any]) -> None:
        self.count, self.stride = int(state["count"]), int(state["stride"])
        self.episodes = unpack(state["episodes"])
        self._steps = sum(len(kept.actions) for kept in self.episodes)


def pack(episodes: list[FinishedEpisode]) -> dict[str, Any]:
    """Episodes as a few arrays, for a checkpoint."""
    if not episodes:
        return {}
    return {
        "observations": np.concatenate([episode.observations for episode in episodes]),
        "actions": np.concatenate([episode.actions for episode in episodes]),
        "lengths": np.array([len(episode.actions) for episode in episodes]),
        "returns": np.array([episode.episode_return for episode in episodes]),
        "terminated": np.array([float(episode.terminated) for episode in episodes]),
    }


def unpack(packed: dict[str, Any]) -> list[FinishedEpisode]:
    """The inverse of `pack`."""
    if not packed:
        return []
    stops = np.cumsum(packed["lengths"])
    observations = np.split(packed["observations"], (stops + np.arange(1, len(stops) + 1))[:-1])
    actions = np.split(packed["actions"], stops[:-1])
    ends = zip(packed["returns"], packed["terminated"], strict=True)
    return [
        FinishedEpisode(np.array(seen), np.array(acted), float(total), bool(terminated))
        for seen, acted, (total, terminated) in zip(observations, actions, ends, strict=True)
    ]
