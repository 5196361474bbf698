"""The sample of a member's finished episodes in which a search looks for effects."""

from __future__ import annotations

from typing import Any

import numpy as np

from grd_offline.learning.online.replay import FinishedEpisode

MOST_EPISODES = 1000
MOST_STEPS = 500_000
MOST_NUMBERS = 2**25
"""Largest number of observed values and actions of all episodes of a sample together."""
MOST_PRODUCTS = 200_000
"""Largest number of episodes times numbers of a step: what a search of many inputs takes long
over."""
EARLY_SHARE = 0.5
"""Share of the sample that the first episodes keep for good."""


class Past:
    """The first episodes of a run, and an even sample of those that came after them.

    The first ones stay, however long the run. A policy that has learned little tries every action
    in every state, so its returns tell what each input does. Returns of a good policy are much
    alike and hardly tell: with an even sample of all episodes, what was known after 2,000
    episodes of Reacher was lost again after 10,000.

    Of the later episodes every k-th is kept. Where there are too many, every second one leaves and
    k doubles.
    """

    def __init__(self) -> None:
        self.count = 0
        """Number of episodes so far."""
        self.stride = 1
        self._early: list[FinishedEpisode] = []
        self._later: list[FinishedEpisode] = []
        self._early_steps = self._later_steps = 0

    @property
    def episodes(self) -> list[FinishedEpisode]:
        """The sample, from the oldest to the newest."""
        return self._early + self._later

    def add(self, episode: FinishedEpisode) -> None:
        """Hear of a finished episode."""
        most_episodes, most_steps = find_limits(episode)
        length = len(episode.actions)
        is_early = (
            self.count == len(self._early)
            and self.count + 1 <= EARLY_SHARE * most_episodes
            and self._early_steps + length <= EARLY_SHARE * most_steps
        )
        if is_early:
            self._early.append(episode)
            self._early_steps += length
        elif (self.count - len(self._early)) % self.stride == 0:
            self._later.append(episode)
            self._later_steps += length
        self.count += 1
        while len(self._later) > 1 and (
            len(self._early) + len(self._later) > most_episodes
            or self._early_steps + self._later_steps > most_steps
        ):
            self._later = self._later[::2]
            self._later_steps = count_steps(self._later)
            self.stride *= 2

    def state(self) -> dict[str, Any]:
        return {
            "count": self.count,
            "stride": self.stride,
            "early": len(self._early),
            "episodes": pack(self.episodes),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        self.count, self.stride = int(state["count"]), int(state["stride"])
        early = int(state["early"])
        episodes = unpack(state["episodes"])
        self._early, self._later = episodes[:early], episodes[early:]
        self._early_steps, self._later_steps = count_steps(self._early), count_steps(self._later)


def find_limits(episode: FinishedEpisode) -> tuple[int, int]:
    """The largest numbers of episodes and of steps in a sample of such episodes."""
    width = episode.observations.shape[1] + episode.actions.shape[1]
    most_episodes = min(MOST_EPISODES, max(MOST_PRODUCTS // width, 100))
    return most_episodes, min(MOST_STEPS, MOST_NUMBERS // width)


def count_steps(episodes: list[FinishedEpisode]) -> int:
    """Number of steps of all episodes together."""
    return sum(len(episode.actions) for episode in episodes)


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
