"""Find the observations that show that an episode is about to terminate.

Where episodes terminate, a policy has to see more than the causes of the reward: if every step pays
the same, the return is the number of steps, and all that matters is what ends an episode. A
dimension counts as a sign of the end if its mean or its spread in the last observation of
terminated episodes differs from that in all observations. Such signs may be more than the causes of
the end, and never hide one that acts by itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from grd_offline.core.episodes import EpisodeSet

LEAST = 20
"""With fewer terminations than this, no choice is possible, and every dimension counts."""
SURE = 5.0
"""Standard errors by which a mean or a spread has to differ."""
_POWERS = (1, 2, 3, 4)


def find_signs(episodes: EpisodeSet) -> NDArray[np.int64]:
    """(state,) 1 where a dimension tells that the episode is about to terminate."""
    endings = Endings(episodes.state_size)
    for episode in episodes:
        endings.add(episode.observations, bool(episode.terminations[-1]))
    return endings.find_signs().astype(np.int64)


class Endings:
    """Sums over all observations and over the last ones of terminated episodes."""

    def __init__(self, states: int) -> None:
        self.steps = self.terminations = 0
        self._origin = np.zeros(states)
        """The first observation: sums are taken of differences from it, which loses no digits."""
        self._sums = np.zeros((len(_POWERS), states))
        self._last_sums = np.zeros((2, states))

    def add(self, observations: NDArray[np.floating[Any]], terminated: bool) -> None:
        """Hear of an episode: (T + 1, state), or (T, state) where the last one is not known."""
        if not self.steps:
            self._origin = observations[0].astype(np.float64)
        shifted = observations.astype(np.float64) - self._origin
        self.steps += len(shifted)
        power = np.ones_like(shifted)
        for row in self._sums:
            power *= shifted
            row += power.sum(0)
        if terminated:
            self.terminations += 1
            self._last_sums += [shifted[-1], shifted[-1] ** 2]

    def find_signs(self) -> NDArray[np.bool_]:
        """(state,) which dimensions tell that the episode is about to terminate."""
        states = len(self._origin)
        if self.terminations < LEAST:
            return np.full(states, self.terminations > 0)
        m1, m2, m3, m4 = self._sums / self.steps
        variance = np.maximum(m2 - m1**2, 0.0)
        fourth = m4 - 4 * m1 * m3 + 6 * m1**2 * m2 - 3 * m1**4
        last_mean, last_square = self._last_sums / self.terminations
        last_variance = last_square - 2 * m1 * last_mean + m1**2  # about the mean of all
        sure = SURE / np.sqrt(self.terminations)
        rounding = 1e-9 * (np.abs(m1) + np.sqrt(variance))
        differs = np.abs(last_mean - m1) > sure * np.sqrt(variance) + rounding
        error = np.sqrt(np.maximum(fourth - variance**2, 0.0))
        spread_differs = np.abs(last_variance - variance) > sure * error + rounding**2
        return np.asarray(differs | spread_differs)

    def state(self) -> dict[str, Any]:
        """Plain values and arrays, for a checkpoint."""
        sums = {"origin": self._origin, "sums": self._sums, "last_sums": self._last_sums}
        return {"steps": self.steps, "terminations": self.terminations, **sums}

    def load_state(self, state: dict[str, Any]) -> None:
        """Take over what `state` gave."""
        self.steps, self.terminations = int(state["steps"]), int(state["terminations"])
        names = ("origin", "sums", "last_sums")
        arrays = (np.array(state[name], np.float64) for name in names)
        self._origin, self._sums, self._last_sums = arrays
