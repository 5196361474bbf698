"""Settings of a random world."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from grd_offline.core.errors import DataError
from grd_offline.core.settings import COUNT, SHARE, Settings, setting

FAMILIES = ("smooth", "hard")


@dataclass(frozen=True)
class WorldSettings(Settings):
    """Settings of a random world."""

    states: int = setting(10, **COUNT)
    """Number of state dimensions."""
    actions: int = setting(3, **COUNT)
    """Number of action dimensions."""
    reward_states: int = 3
    """States that are direct parents of the reward."""
    reward_actions: int = 2
    """Actions that are direct parents of the reward."""
    indirect: int = 2
    """States that reach the reward only through other states; the rest are distractors."""
    density: float = setting(0.1, **SHARE)
    """Probability of each further state-to-state edge off the diagonal (at most 4 into a state)."""
    action_density: float = setting(0.25, **SHARE)
    """Probability of each action-to-state edge (at most 3 into a state)."""
    family: str = setting("smooth", names=FAMILIES)
    """`smooth`, or `hard`: switches, oscillations, pure interactions among ordinary effects."""
    order: int = setting(2, at_least=1, at_most=3)
    """Largest number of inputs in one term of the reward: 1, 2, or 3."""
    process_noise: float = setting(0.2, at_least=0, at_most=0.6)
    """Noise of the dynamics per step, relative to a state's standard deviation."""
    reward_noise: float = setting(0.1, at_least=0, below=inf)
    """Noise of the reward per step, relative to the noise-free reward's standard deviation."""
    length: int = setting(100, **COUNT)
    """Steps per episode; the largest number of them if `min_length` is given."""
    min_length: int | None = setting(None, **COUNT)
    """If given, each episode's length is drawn uniformly from `min_length` to `length`."""
    scales: bool = True
    """Observe states at scales from 1e-3 to 1e3 and off zero, instead of near unit variance."""
    graph_seed: int = 0
    """Seed of the graph and of all functions."""

    def __post_init__(self) -> None:
        super().__post_init__()
        limits = {
            "reward_states": self.states,
            "reward_actions": self.actions,
            "indirect": self.states - self.reward_states,
            "min_length": self.length,
        }
        for name, most in limits.items():
            if (getattr(self, name) or 0) > most:
                raise DataError(f"expected at most {most}, got {getattr(self, name)}", field=name)
        parents = self.reward_states + self.reward_actions
        least = 3 if self.order == 3 else 1
        if parents < least:
            raise DataError(
                f"expected at least {least} for a term of order {self.order}, got {parents}",
                field="reward_states + reward_actions",
            )
        if self.indirect and not self.reward_states:
            raise DataError(
                "expected 0 when reward_states is 0 (nothing to reach the reward through), got "
                f"{self.indirect}",
                field="indirect",
            )
