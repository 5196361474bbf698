"""Positions of environments in their episodes, and how they are stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grd_offline.core.errors import DataError
from grd_offline.learning.fleet.environment import Array
from grd_offline.learning.fleet.shared import FleetSettings, Rows

_ARRAYS = ("seeds", "episodes", "steps", "actions", "observations", "lost")


class EpisodePosition(NamedTuple):
    """The position of an environment in its episode. Repeating the actions leads to it again."""

    episode: int
    actions: Array
    """(step, action) the actions of that episode so far."""
    observation: Array
    """(state,) the last observation, which a repetition must reach. It is not used at the start of
    an episode."""

    def advance(self, rows: Rows) -> EpisodePosition:
        """Return the position of the environment after a round."""
        ends = np.flatnonzero(rows.terminations | rows.truncations)
        last = rows.next_observations[-1].copy()
        if len(ends):
            unfinished = rows.actions[ends[-1] + 1 :].copy()
            return EpisodePosition(self.episode + len(ends), unfinished, last)
        return EpisodePosition(self.episode, np.concatenate([self.actions, rows.actions]), last)

    def find_difference(self, observation: Array | None) -> str | None:
        """Describe how a repetition that arrived at this observation differs, or return None."""
        if observation is None or np.array_equal(observation, self.observation):
            return None
        at = int(np.flatnonzero(observation != self.observation)[0])
        return (
            f"after {len(self.actions)} actions, dimension {at} is {observation[at]}, expected "
            f"{self.observation[at]}"
        )


def start_of_episode(settings: FleetSettings, episode: int) -> EpisodePosition:
    """The position before the first step of an episode."""
    return EpisodePosition(
        episode,
        np.zeros((0, settings.spec.action_size), np.float32),
        np.zeros(settings.spec.observation_size, np.float32),
    )


def pack_positions(
    settings: FleetSettings, positions: Sequence[EpisodePosition], lost: NDArray[np.bool_]
) -> dict[str, NDArray[Any]]:
    """The positions of all environments as plain arrays; `lost`: those that lost an episode."""
    return {
        "seeds": np.array(settings.seeds, np.uint64),
        "episodes": np.array([position.episode for position in positions], np.int64),
        "steps": np.array([len(position.actions) for position in positions], np.int64),
        "actions": np.concatenate([position.actions for position in positions]),
        "observations": np.stack([position.observation for position in positions]),
        "lost": lost.copy(),
    }


def unpack_positions(
    settings: FleetSettings, state: Mapping[str, ArrayLike]
) -> tuple[list[EpisodePosition], NDArray[np.bool_]]:
    """Read what `pack_positions` made, and refuse what belongs to another fleet."""
    count = settings.environments
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(_ARRAYS, (count,))
    shapes["seeds"] = (len(settings.seeds),)
    for name in shapes:
        if name not in state:
            raise DataError("is missing", field=name)
    shapes["actions"] = (int(np.sum(state["steps"])), settings.spec.action_size)
    shapes["observations"] = (count, settings.spec.observation_size)
    arrays = {name: np.asarray(state[name]) for name in shapes}
    for name, shape in shapes.items():
        if arrays[name].shape != shape:
            raise DataError(f"expected shape {shape}, got {arrays[name].shape}", field=name)
    seeds = arrays["seeds"].tolist()
    if tuple(seeds) != settings.seeds:
        raise DataError(f"expected {list(settings.seeds)}, got {seeds}", field="seeds")
    stops = np.cumsum(arrays["steps"])[:-1]
    actions = np.split(arrays["actions"].astype(np.float32), stops)
    observations = arrays["observations"].astype(np.float32)
    episodes = arrays["episodes"].tolist()
    positions = [EpisodePosition(*p) for p in zip(episodes, actions, observations, strict=True)]
    return positions, np.array(state["lost"], np.bool_)
