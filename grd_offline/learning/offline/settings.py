"""The settings of `train-offline`, and the members of a run that follow from them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from grd_offline.core.errors import DataError
from grd_offline.core.settings import RATE, SHARE, Settings, setting
from grd_offline.learning.agents.algorithms import list_offline
from grd_offline.learning.runs.member import RunMember, env_args_setting

SOURCES = ("relabelled", "observed", "true")
"""Rewards that a file may hold: those of a decomposition, the delayed ones, the true ones."""
JUDGED = ("grd", "uniform", "ircr", "rrd")
"""Methods that `judge` compares by default."""
_WEIGHT: dict[str, Any] = {"above": 0, "at_most": 10**6}
MOST_SEEDS = 1000
MOST_BATCH = 65_536
SEEDS_END = 2**60
"""Seeds are smaller than this: networks are seeded with four times the seed."""


@dataclass(frozen=True)
class OfflineMember(RunMember):
    """One of the policies that are trained side by side."""

    source: str
    seed: int

    @property
    def group(self) -> str:
        return self.source


@dataclass(frozen=True)
class OfflineSettings(Settings):
    """Everything that decides what a run does, apart from the data and the machine."""

    rewards: tuple[str, ...] = setting(
        ("relabelled",),
        "Rewards that the policies learn from. relabelled: the rewards of a decomposition. "
        "observed: the delayed rewards. true: the rewards that collect --keep-true-rewards "
        "stores. Each source is trained with every seed.",
    )
    environment: str | None = setting(
        None,
        "Gymnasium id of the environment to evaluate in. The name alone means its latest version. "
        "Without this option nothing is evaluated, because an environment that a file names is "
        "never built.",
        option="--env",
    )
    algorithm: str = setting(
        "iql",
        "Algorithm that trains the policies: iql (Kostrikov et al., 2021) or td3bc (Fujimoto and "
        "Gu, 2021).",
        names=list_offline,
        option="--algo",
    )
    seeds: int = setting(
        5, "Number of seeds. They count up from --seed.", at_least=1, at_most=MOST_SEEDS
    )
    seed: int = setting(
        0,
        "First seed. The same seed of another reward source has the same start and the same "
        "batches.",
        at_least=0,
    )
    updates: int = setting(
        100_000, "Number of updates of each policy (both papers: 1,000,000).", at_least=1
    )
    batch: int = setting(
        256, "Number of steps per update (both papers).", at_least=1, at_most=MOST_BATCH
    )
    discount: float = setting(0.99, "Discount factor of the policy (both papers).", **RATE)
    hidden: tuple[int, ...] = setting(
        (256, 256), "Widths of the hidden layers of every network (both papers).", at_least=1
    )
    learning_rate: float = setting(
        3e-4, "Adam's learning rate for every network (both papers).", **RATE
    )
    target_rate: float = setting(
        0.005, "Rate at which target networks follow the trained networks (both papers).", **RATE
    )
    alpha: float = setting(
        2.5,
        "td3bc: weight of the value relative to imitation (paper: 2.5). Diverse data need a larger "
        "weight.",
        **_WEIGHT,
    )
    expectile: float = setting(
        0.7,
        "iql: the value of a state is this expectile of its action values (paper, MuJoCo).",
        **RATE,
    )
    temperature: float = setting(
        3.0,
        "iql: inverse temperature, the preference for better actions (paper, MuJoCo).",
        **_WEIGHT,
    )
    pessimism: float = setting(
        0.0,
        "Subtract this many standard deviations from every reward that a decomposition found, so "
        "that policies avoid steps whose reward is not known well.",
        at_least=0,
        at_most=10**6,
    )
    averaging: float = setting(
        0.02,
        "Average the policy weights over this final fraction of training. 0 uses the last weights.",
        **SHARE,
    )
    eval_every: int = setting(10_000, "Updates between two evaluations.", at_least=1)
    eval_episodes: int = setting(10, "Number of episodes per evaluation.", at_least=1)
    max_episode_steps: int | None = setting(
        None,
        "Truncate evaluation episodes, and the episodes of flat files that hold no timeouts, after "
        "this number of steps. The default is the limit of the environment, or 1000 if it has "
        "none.",
        at_least=1,
    )
    env_args: Mapping[str, Any] = env_args_setting()

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.rewards:
            # Names of folders come of them.
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._=-]{0,63}", name):
                raise DataError(
                    f"expected letters, digits, '.', '_', '=' and '-', got {name!r:.70}",
                    field="rewards",
                )
        if self.seed + self.seeds > SEEDS_END:
            raise DataError("expected seeds below 2^60", field="seed")

    def make_members(self) -> list[OfflineMember]:
        seeds = range(self.seed, self.seed + self.seeds)
        return [OfflineMember(source, seed) for source in self.rewards for seed in seeds]
