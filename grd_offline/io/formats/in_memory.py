"""Episodes that are in memory, as a recording: what every reader of a file gives."""

from __future__ import annotations

import numpy as np

from grd_offline.core.episodes import EpisodeSet
from grd_offline.core.provenance import EPISODE, ROW, STEP
from grd_offline.io.formats.record import Header, Leaf, Record, Recording

LAYOUT = "memory"
DELIVERED = "delivered"


def as_recording(episodes: EpisodeSet) -> Recording:
    """The recording of a set of episodes. Discrete actions are stored as numbers again."""
    states, actions = episodes.state_size, episodes.action_size
    choice = episodes.discrete_actions and actions > 0 and _has_one_choice(episodes)
    header = Header(
        observation_leaves=(Leaf("", (states,), "float32"),),
        action_leaves=(
            Leaf("", (), "int64", (actions,)) if choice else Leaf("", (actions,), "float32"),
        ),
        observation_names=tuple(episodes.observation_names),
        action_names=tuple(episodes.action_names),
        environment=episodes.environment,
        delay=_find_delay(episodes),
        provenance=episodes.provenance,
    )

    def load(index: int) -> Record:
        episode = episodes[index]
        extras = {DELIVERED: episode.delivered, STEP: episode.steps, ROW: episode.origin.rows}
        return Record(
            observations={"": episode.observations},
            actions={"": episode.actions.argmax(axis=1) if choice else episode.actions},
            rewards=episode.rewards,
            terminations=episode.terminations,
            truncations=episode.truncations,
            extras={name: array for name, array in extras.items() if array is not None},
            attributes={} if episode.label is None else {EPISODE: episode.label},
        )

    return Recording(
        LAYOUT, header, episodes.lengths, load, lambda index: np.asarray(episodes[index].rewards)
    )


def _has_one_choice(episodes: EpisodeSet) -> bool:
    """Whether actions are the one-hot code of one choice, not of several side by side."""
    actions = episodes[0].actions
    return bool((actions.sum(axis=1) == 1).all() and ((actions == 0) | (actions == 1)).all())


def _find_delay(episodes: EpisodeSet) -> int | str:
    """When rewards are delivered; `delivered` of each record says it exactly."""
    return "step" if all(episode.delivered.all() for episode in episodes) else "end"
