"""How long a closed form takes, and whether a second process is worth its start."""

from __future__ import annotations

from grd_offline.core.episodes import EpisodeSet
from grd_offline.core.threads import count_cores

_WORTH = 3.0  # seconds; starting a process takes about one
_MOST_BYTES = 400_000_000  # of observations and actions, which the second process holds again


def estimate_fit_seconds(episodes: int, steps: int, states: int, actions: int) -> float:
    """Rough seconds of the closed form on one core, from the size of the data.

    They were read off runs on the sample, Hopper, HalfCheetah, Ant and a world with a known graph.
    """
    inputs = states + actions
    pairs = inputs * (inputs - 1) // 2
    seen = min(steps, 100_000)
    return 1 + 2.5e-6 * inputs * seen + (0.01 + 6e-5 * min(pairs, 6000)) * episodes


def is_worth_a_process(episodes: EpisodeSet) -> bool:
    """Whether a fit to these episodes is long enough for a second process, and has a core."""
    sizes = episodes.state_size, episodes.action_size
    seconds = estimate_fit_seconds(len(episodes), episodes.total_steps, *sizes)
    held = 8 * episodes.total_steps * sum(sizes)
    return count_cores() > 1 and seconds > _WORTH and held < _MOST_BYTES
