"""Steps from one observation to the next, drawn from all episodes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grd_offline.core.episodes import EpisodeSet
from grd_offline.core.errors import DataError

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
_MAX_EPISODES = 5_000


@dataclass(frozen=True)
class Transitions:
    """Steps from one observation to the next, in random order, in float64."""

    inputs: Array
    """(transition, state + action): observation and action."""
    targets: Array
    """(transition, state): the observation that followed."""
    episodes: IntArray
    """(transition,): which episode each is from."""

    def __len__(self) -> int:
        return len(self.targets)

    def take(self, rows: IntArray | slice) -> Transitions:
        """Take some of the transitions."""
        return Transitions(self.inputs[rows], self.targets[rows], self.episodes[rows])


def draw_transitions(episodes: EpisodeSet, limit: int, rng: np.random.Generator) -> Transitions:
    """About `limit` transitions, spread evenly over all episodes; all if there are fewer.

    Never from one episode to the next: an episode of T steps has T transitions where its final
    observation is known, T - 1 where not. Of a set of more than 5,000 episodes, that many are read.
    """
    if len(episodes) > _MAX_EPISODES:
        episodes = episodes[np.sort(rng.choice(len(episodes), _MAX_EPISODES, replace=False))]
    share = min(1.0, limit / max(1, episodes.total_steps))
    inputs, targets, origins = [], [], []
    for index, episode in enumerate(episodes):
        available = len(episode.observations) - 1
        count = min(available, int(available * share + rng.random())) if share < 1 else available
        rows = np.sort(rng.choice(available, count, replace=False))
        inputs.append(np.hstack([episode.observations[rows], episode.actions[rows]]))
        targets.append(episode.observations[rows + 1])
        origins.append(np.full(count, index, np.int64))
    order = rng.permutation(sum(map(len, targets)))
    if not len(order):
        raise DataError("no transitions: every episode holds a single observation")
    return Transitions(
        np.concatenate(inputs)[order].astype(np.float64),
        np.concatenate(targets)[order].astype(np.float64),
        np.concatenate(origins)[order],
    )


def split_transitions(
    transitions: Transitions, share: float, rng: np.random.Generator
) -> tuple[Transitions, Transitions]:
    """Keep some episodes out; transitions where there is but one, and none of a single one."""
    present = np.unique(transitions.episodes)
    if len(present) > 1:
        chosen = rng.permutation(present)[: max(1, round(share * len(present)))]
        out = np.isin(transitions.episodes, chosen)
    else:
        out = np.arange(len(transitions)) < round(share * len(transitions))
    if not out.any() or out.all():
        return transitions, transitions
    return transitions.take(np.flatnonzero(~out)), transitions.take(np.flatnonzero(out))
