"""Settings of a random world."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

FAMILIES = ("smooth", "hard")


@dataclass(frozen=True)
class WorldSettings:
    """Settings of a random world."""

    states: int = 10
    """Number of state dimensions."""
    actions: int = 3
    """Number of action dimensions."""
    reward_states: int = 3
    """States that are direct parents of the reward."""
    reward_actions: int = 2
    """Actions that are direct parents of the reward."""
    indirect: int = 2
    """States that reach the reward only through other states; the rest are distractors."""
    density: float = 0.1
    """Probability of each further state-to-state edge off the diagonal (at most 4 into a state)."""
    action_density: float = 0.25
    """Probability of each action-to-state edge (at most 3 into a state)."""
    family: str = "smooth"
    """`smooth`, or `hard`: switches, oscillations, pure interactions among ordinary effects."""
    order: int = 2
    """Largest number of inputs in one term of the reward: 1, 2, or 3."""
    process_noise: float = 0.2
    """Noise of the dynamics per step, relative to a state's standard deviation."""
    reward_noise: float = 0.1
    """Noise of the reward per step, relative to the noise-free reward's standard deviation."""
    length: int = 100
    """Steps per episode; the largest number of them if `min_length` is given."""
    min_length: int | None = None
    """If given, each episode's length is drawn uniformly from `min_length` to `length`."""
    scales: bool = True
    """Observe states at scales from 1e-3 to 1e3 and off zero, instead of near unit variance."""
    graph_seed: int = 0
    """Seed of the graph and of all functions."""

    def __post_init__(self) -> None:
        if not isinstance(self.scales, bool | np.bool_):
            raise ValueError(f"scales: expected True or False, got {self.scales!r}")
        self._check_whole("states", 1)
        self._check_whole("actions", 1)
        self._check_whole("reward_states", 0, self.states)
        self._check_whole("reward_actions", 0, self.actions)
        self._check_whole("indirect", 0, self.states - self.reward_states)
        self._check_whole("order", 1, 3)
        self._check_whole("length", 1)
        self._check_whole("graph_seed", 0)
        if self.min_length is not None:
            self._check_whole("min_length", 1, self.length)
        for name, high in (("density", 1), ("action_density", 1), ("process_noise", 0.6)):
            self._check_real(name, high)
        self._check_real("reward_noise", float("inf"))
        if self.family not in FAMILIES:
            raise ValueError(f"family: expected one of {', '.join(FAMILIES)}, got {self.family!r}")
        parents = self.reward_states + self.reward_actions
        if parents < 1:
            raise ValueError("reward_states + reward_actions: expected at least 1, got 0")
        if self.order == 3 and parents < 3:
            raise ValueError(
                "reward_states + reward_actions: expected at least 3 for a term of order 3, "
                f"got {parents}"
            )
        if self.indirect and not self.reward_states:
            raise ValueError(
                "indirect: expected 0 when reward_states is 0 (nothing to reach the reward "
                f"through), got {self.indirect}"
            )

    def _check_whole(self, name: str, low: int, high: int | None = None) -> None:
        value = getattr(self, name)
        whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
        if not whole or value < low or (high is not None and value > high):
            wanted = f"of at least {low}" if high is None else f"from {low} to {high}"
            raise ValueError(f"{name}: expected a whole number {wanted}, got {value!r}")

    def _check_real(self, name: str, high: float) -> None:
        value = getattr(self, name)
        real = isinstance(value, int | float | np.integer | np.floating)
        if not real or isinstance(value, bool) or not 0 <= value <= high or value == np.inf:
            wanted = "of at least 0" if high == np.inf else f"from 0 to {high:g}"
            raise ValueError(f"{name}: expected a number {wanted}, got {value!r}")
