"""How states move from step to step: along a path, by rare events, or anew at every step."""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from grd_offline.core.episodes import EpisodeSet

_JUMP = 0.7  # of the mean squared step of independent rows


class Motion(NamedTuple):
    """How states move from step to step."""

    still: NDArray[np.bool_]
    """(state,) those that are exactly the same before and after most of the steps."""
    jumps: bool
    """Whether every state is new at every step: rows are independent of each other."""
    start_only: bool
    """Whether rows are independent, and the state after the last one is not known.

    The last state is then repeated, which along a path is nearly right. Here it is wrong, and would
    decide between the moments of a step, because sums differ in the first and last state alone.
    """


_MOTIONS: WeakKeyDictionary[EpisodeSet, Motion] = WeakKeyDictionary()


def find_motion(episodes: EpisodeSet) -> Motion:
    """How states move. It is measured once for each set of episodes.

    For independent rows the mean squared step is twice the variance within episodes.
    """
    if episodes not in _MOTIONS:
        count, steps, spread = np.zeros((3, episodes.state_size))
        ends_known = True
        for episode in episodes:
            now, later = episode.observations[: len(episode)], episode.next_observations
            ends_known = ends_known and episode.has_final_observation
            count += (now == later).sum(0)
            path = np.concatenate([now[:1], later]).astype(np.float64)
            steps += (np.diff(path, axis=0) ** 2).sum(0) * (len(path) / (len(path) - 1))
            spread += 2 * ((path - path.mean(0)) ** 2).sum(0)
        moving = spread > 0
        jumps = bool(moving.any() and (steps[moving] > _JUMP * spread[moving]).all())
        still = count > episodes.total_steps / 2
        _MOTIONS[episodes] = Motion(still, jumps, jumps and not ends_known)
    return _MOTIONS[episodes]
