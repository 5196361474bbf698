"""What to collect."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grd_offline.agents.exploration import POLICIES
from grd_offline.agents.saved import check_checkpoints
from grd_offline.errors import DataError
from grd_offline.fleet.environment import LARGEST_STEP_LIMIT
from grd_offline.fleet.worker import count_cores

POLICY_NOISES = ("deterministic", "sampled")


@dataclass(frozen=True)
class CollectSettings:
    """What to collect. Everything but `workers` decides what the data are."""

    environment: str
    """Gymnasium id, or the name alone: HalfCheetah is the latest HalfCheetah."""
    episodes: int = 100
    """Number of episodes."""
    policy: str = "explore"
    """"random": each action anew; "explore": another way of moving in each episode; else the folder
    of a training run, of one of its members, or of a policy."""
    checkpoints: str = "best"
    """Which policies of a run: best, last, all, or FIRST:LAST in steps. Each episode draws one."""
    policy_noise: str = "sampled"
    """Whether a trained policy acts with the noise that it explored with."""
    random_share: float = 0.0
    """With trained policies: the share of episodes whose actions are random instead."""
    switch_every: int | None = None
    """With trained policies: who acts is drawn anew after so many steps. None: once an episode."""
    seed: int = 0
    """Same seed, same data."""
    workers: int = field(default_factory=count_cores)
    """Processes that step environments; 1 uses this process."""
    delay: int | str = "end"
    """When rewards are handed out: "end", or every so many steps and at the end."""
    discount: float = 1.0
    """What is handed out is sum_t discount^t r_t, with t counted from the episode's start."""
    keep_true_rewards: bool = False
    """Store the rewards of the single steps too, and what else is known of the truth."""
    max_episode_steps: int | None = None
    """Truncate episodes here. None: the environment's own limit, or 1000 where it has none."""
    env_args: Mapping[str, Any] = field(default_factory=dict)
    """Arguments for the environment: plain JSON values."""

    def __post_init__(self) -> None:
        _check_integer("episodes", self.episodes, 1)
        _check_integer("seed", self.seed, 0)
        _check_integer("workers", self.workers, 1)
        if self.delay != "end":
            _check_integer("delay", self.delay, 1, 2**40, hint='"end" or ')
        if self.max_episode_steps is not None:
            _check_integer("max_episode_steps", self.max_episode_steps, 1, LARGEST_STEP_LIMIT)
        if self.policy not in POLICIES and not Path(self.policy).is_dir():
            raise DataError(
                f"expected {', '.join(POLICIES)} or the folder of a policy or a training run, got "
                f"{self.policy!r}",
                field="policy",
            )
        check_checkpoints(self.checkpoints)
        if self.policy_noise not in POLICY_NOISES:
            raise DataError(
                f"expected {' or '.join(POLICY_NOISES)}, got {self.policy_noise!r}",
                field="policy_noise",
            )
        if not 0.0 <= self.random_share <= 1.0:
            raise DataError(
                f"expected a share from 0 to 1, got {self.random_share}", field="random_share"
            )
        if self.switch_every is not None:
            _check_integer("switch_every", self.switch_every, 1)
        for name, default in (
            ("checkpoints", "best"),
            ("policy_noise", "sampled"),
            ("random_share", 0.0),
            ("switch_every", None),
        ):
            if self.policy in POLICIES and getattr(self, name) != default:
                raise DataError(
                    f"expected a trained policy to go with it, got {self.policy}", field=name
                )
        if not 0.0 < self.discount <= 1.0:
            raise DataError(
                f"expected more than 0 and at most 1, got {self.discount}", field="discount"
            )
        try:
            json.dumps(dict(self.env_args), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise DataError(f"expected plain JSON values: {error}", field="env_args") from None


def _check_integer(
    name: str, value: object, lowest: int, highest: int | None = None, hint: str = ""
) -> None:
    expected = f"{hint}a whole number of at least {lowest}"
    if highest is not None:
        expected += f" and at most {highest}"
    fits = isinstance(value, int) and not isinstance(value, bool) and value >= lowest
    if not fits or (highest is not None and isinstance(value, int) and value > highest):
        raise DataError(f"expected {expected}, got {value!r}", field=name)
