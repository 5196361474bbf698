"""Factored worlds that the benchmarks fit, and their episodes with nothing but returns."""

from __future__ import annotations

from typing import Any

import numpy as np

from grd_offline.core.episodes import Episode, EpisodeSet
from grd_offline.worlds.synthetic import Rollout

WORLDS: dict[str, dict[str, Any]] = {
    "smooth": {},
    "hard": {"family": "hard"},
    "noisy": {"reward_noise": 1.0},
    "three-way": {"order": 3},
    "hard three-way": {"family": "hard", "order": 3},
    "wide": {"states": 100, "actions": 10, "reward_states": 5, "reward_actions": 2, "indirect": 5},
}
HELD_OUT = 50
"""Further episodes, which no fit sees."""


def make_episodes(rollout: Rollout) -> EpisodeSet:
    """The episodes of a rollout, each with its return at its last step alone."""
    episodes = []
    for observations, actions, rewards, length in zip(
        rollout.observations, rollout.actions, rollout.rewards, rollout.lengths, strict=True
    ):
        last = np.arange(length) == length - 1
        episodes.append(
            Episode(
                observations=observations[: length + 1],
                actions=actions[:length],
                rewards=last * rewards[:length].sum(),
                terminations=np.zeros(length, np.bool_),
                truncations=last,
                delivered=last,
            )
        )
    return EpisodeSet.from_episodes(episodes)
