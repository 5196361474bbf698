"""Settings of `collect`."""

import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any

from grd_offline.core.errors import DataError
from grd_offline.core.settings import (
    LARGEST_COUNT,
    LARGEST_STEP_LIMIT,
    RATE,
    SHARE,
    Settings,
    describe_settings,
    setting,
)
from grd_offline.core.threads import count_cores
from grd_offline.learning.agents import EXPLORATIONS
from grd_offline.learning.runs.member import env_args_setting

POLICY_NOISES = ("deterministic", "sampled")
OF_TRAINED_POLICIES = ("checkpoints", "policy_noise", "random_share", "switch_every")
"""Settings that only trained policies have a use for."""

REAL_DATA = ("bike-days", "bike-windows", "flights", "a320")
"""Real data that `grd_offline.learning.collecting.real_data` can make."""


@dataclass(frozen=True)
class CollectSettings(Settings):
    """Settings of `collect`. All of them except `workers` determine the data."""

    environment: str = setting(
        MISSING,
        "Gymnasium id of the environment. A name without a version means the latest version.",
        option="--env",
    )
    env_args: Mapping[str, Any] = env_args_setting()
    episodes: int = setting(100, "Number of episodes.", at_least=1)
    first_episode: int = setting(
        0,
        "Number of the first episode. Episodes with the same seed and number are the same, so that "
        "a collection can be continued or divided.",
        at_least=0,
        at_most=LARGEST_COUNT,
    )
    policy: str = setting(
        "explore",
        "Policy that acts. random draws every action independently. explore moves in another way "
        "in each episode: with noise, with drifting noise or with a gait. RUN is the folder of a "
        "training run, of one of its members, or of one policy.",
    )
    checkpoints: str = setting(
        "best",
        "Policies of RUN to use. FIRST and LAST are numbers of training steps. Each episode draws "
        "one of these policies at random.",
    )
    policy_noise: str = setting(
        "sampled",
        "Whether the policies of RUN act with the noise that they explored with.",
        names=POLICY_NOISES,
    )
    random_share: float = setting(
        0.0, "Fraction of the episodes that act at random instead of with a policy of RUN.", **SHARE
    )
    switch_every: int | None = setting(
        None,
        "Draw another policy of RUN after this number of steps. By default, one policy acts in the "
        "whole episode.",
        at_least=1,
    )
    seed: int = setting(0, "Random seed. The same seed gives the same data.", at_least=0)
    workers: int = setting(
        None,
        "Number of processes that step environments. The default is one for each core.",
        at_least=1,
        factory=count_cores,
    )
    delay: int | str = setting(
        "end",
        "When the reward is delivered: at the end of the episode, or every K steps and at the end.",
    )
    discount: float = setting(
        1.0,
        "Discount factor of the rewards within a delivered sum. The steps are counted from the "
        "start of the episode.",
        **RATE,
    )
    keep_true_rewards: bool = setting(
        False,
        "Also store the true reward of each step, so that a decomposition can be compared with it.",
    )
    max_episode_steps: int | None = setting(
        None,
        "Truncate episodes after this number of steps. The default is the limit of the "
        "environment, or 1000 if it has none.",
        at_least=1,
        at_most=LARGEST_STEP_LIMIT,
    )

    def __post_init__(self) -> None:
        from grd_offline.learning.agents.saved import check_checkpoints

        super().__post_init__()
        _check_delay(self.delay)
        if self.policy not in EXPLORATIONS and not Path(self.policy).is_dir():
            raise DataError(
                f"expected {', '.join(EXPLORATIONS)} or the folder of a policy or a training run, "
                f"got {self.policy!r}",
                field="policy",
            )
        check_checkpoints(self.checkpoints)
        described = describe_settings(CollectSettings)
        for name in OF_TRAINED_POLICIES:
            if self.policy in EXPLORATIONS and getattr(self, name) != described[name].default:
                raise DataError(
                    f"expected a trained policy to go with it, got {self.policy}", field=name
                )
        try:
            json.dumps(dict(self.env_args), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise DataError(f"expected plain JSON values: {error}", field="env_args") from None


def _check_delay(delay: object) -> None:
    is_whole = isinstance(delay, int) and not isinstance(delay, bool)
    if delay != "end" and not (is_whole and isinstance(delay, int) and 1 <= delay <= LARGEST_COUNT):
        raise DataError(
            f'expected "end" or a whole number of at least 1 and at most {LARGEST_COUNT:,}, got '
            f"{delay!r:.40}",
            field="delay",
        )
