"""The masks of the dynamics from sums: s' regressed on all inputs and their squares.

An input stays a cause of s_j' if leaving it out costs more than BIC allows.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from grd_offline.core.typing import Array
from grd_offline.learning.online.replay import FinishedEpisode

MOST_STEPS = 100_000
WORK = 2e10
"""Multiplications that the sums of one sample of steps may take."""
_BLOCK = 8192


class Regression:
    """s' on (1, x, x^2), kept as sums."""

    def __init__(self, states: int, actions: int) -> None:
        self.states, self.inputs = states, states + actions
        size = 1 + 2 * self.inputs
        self.gram, self.cross = np.zeros((size, size)), np.zeros((size, states))
        self.squares = np.zeros(states)

    @property
    def count(self) -> float:
        """Number of steps so far."""
        return float(self.gram[0, 0])

    def add(self, values: Array, next_states: Array) -> None:
        """Take in steps: (step, state and action), (step, state)."""
        change = next_states - values[:, : self.states]
        columns = np.hstack([np.ones((len(values), 1)), values, values**2])
        self.gram += columns.T @ columns
        self.cross += columns.T @ change
        self.squares += (change**2).sum(0)

    def find_edges(self) -> Array:
        """(input, state) 1 where x_i is a cause of s_j': dropping it costs more than BIC allows.

        Every state is a cause of itself: s' is s and a change.
        """
        count = max(self.count, 2.0)
        scale = np.sqrt(np.maximum(np.diag(self.gram) / count, 1e-12))
        gram = self.gram / np.outer(scale, scale) / count
        # The ridge makes inputs that repeat each other harmless: their errors become large.
        inverse = np.linalg.inv(gram + 1e-9 * np.eye(len(gram)))
        cross = self.cross / scale[:, None] / count
        weights = inverse @ cross
        explained = (weights * cross).sum(0)
        residual = np.maximum(self.squares / count - explained, 1e-9 * self.squares / count + 1e-12)
        spread = np.maximum(np.diag(inverse), 1e-12)[:, None] * residual / count
        strength = weights**2 / spread  # (column, state) squared t of each coefficient
        linear, square = strength[1 : 1 + self.inputs], strength[1 + self.inputs :]
        # Many coefficients are looked at: BIC's log n, and as much again for the search.
        edges = np.maximum(linear, square) > 2 * np.log(count)
        edges[: self.states] |= np.eye(self.states, dtype=bool)
        return np.asarray(edges, np.float64)


def find_edges(episodes: Iterable[FinishedEpisode], rng: np.random.Generator) -> Array:
    """(input, state) the edges that a bounded sample of the steps of these episodes shows."""
    episodes = list(episodes)
    states, actions = episodes[0].observations.shape[1], episodes[0].actions.shape[1]
    found = Regression(states, actions)
    most = min(MOST_STEPS, WORK / len(found.gram) ** 2)
    share = most / sum(len(episode.actions) for episode in episodes)
    rows: list[Array] = []
    for episode in episodes:
        kept = rng.random(len(episode.actions)) < share
        seen = episode.observations.astype(np.float64)
        rows.append(np.hstack([seen[:-1], episode.actions, seen[1:]])[kept])
    every = np.concatenate(rows)
    for start in range(0, len(every), _BLOCK):
        block = every[start : start + _BLOCK]
        found.add(block[:, :-states], block[:, -states:])
    return found.find_edges()
