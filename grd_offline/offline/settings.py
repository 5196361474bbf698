"""What an offline run trains: one flat set of settings, and the members that follow from it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from grd_offline.errors import DataError

ALGORITHMS = ("iql", "td3bc")
MOST_SEEDS = 1000
MOST_BATCH = 65_536
SEEDS_END = 2**60
"""Above every seed: networks are seeded with four times as much."""


@dataclass(frozen=True)
class OfflineMember:
    """One of the policies that are trained side by side."""

    source: str
    """Whose rewards it learns from."""
    seed: int

    @property
    def group(self) -> str:
        """All but the seed: members of a group differ by chance alone."""
        return self.source

    @property
    def name(self) -> str:
        """Also the name of its folder."""
        return f"{self.source}-seed{self.seed}"


@dataclass(frozen=True)
class OfflineSettings:
    """Everything that decides what a run does, apart from data, machine and environment's id."""

    rewards: tuple[str, ...] = ("relabelled",)
    """Reward sources; each with every seed."""
    environment: str | None = None
    """What policies are evaluated in. None: they are not."""
    algorithm: str = "iql"
    """iql (Kostrikov et al., 2021) or td3bc (Fujimoto and Gu, 2021)."""
    seeds: int = 5
    """Members of each reward source, seeded from `seed` on."""
    seed: int = 0
    """Of the first. The same seed of another source has the same start and the same batches."""
    updates: int = 100_000
    """Of each member (both papers: 1,000,000)."""
    batch: int = 256
    """Steps per update (both papers)."""
    discount: float = 0.99
    """Of the policy's future (both papers)."""
    hidden: tuple[int, ...] = (256, 256)
    """Hidden layers of every network (both papers)."""
    learning_rate: float = 3e-4
    """Adam's, of every network (both papers)."""
    target_rate: float = 0.005
    """How fast target networks follow (both papers)."""
    alpha: float = 2.5
    """td3bc: weight of the value against imitation (paper)."""
    expectile: float = 0.7
    """iql: which expectile of the action values is the state's value (paper, MuJoCo)."""
    temperature: float = 3.0
    """iql: how sharply better actions are preferred (paper, MuJoCo)."""
    averaging: float = 0.02
    """Share of the actor's steps so far that the policy which acts is the mean of. 0: the last."""
    eval_every: int = 10_000
    """Updates between evaluations."""
    eval_episodes: int = 10
    """Episodes per evaluation, with the true return."""
    max_episode_steps: int | None = None
    """Truncate evaluation episodes here. None: the environment's limit, or 1000 without one."""
    env_args: Mapping[str, Any] = field(default_factory=dict)
    """Arguments for the environment: plain JSON values."""

    def __post_init__(self) -> None:
        if not self.rewards:
            raise DataError("expected at least one reward source", field="rewards")
        for name in self.rewards:
            # Names of folders come of them.
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._=-]{0,63}", name):
                raise DataError(
                    f"expected letters, digits, '.', '_', '=' and '-', got {name!r:.70}",
                    field="rewards",
                )
        if len(set(self.rewards)) < len(self.rewards):
            raise DataError("the same source twice", field="rewards")
        if self.algorithm not in ALGORITHMS:
            known = " or ".join(ALGORITHMS)
            raise DataError(f"expected {known}, got {self.algorithm!r}", field="algorithm")
        for name in ("seeds", "updates", "batch", "eval_every", "eval_episodes"):
            _check_whole(name, getattr(self, name), 1)
        _check_whole("seed", self.seed, 0)
        if self.seeds > MOST_SEEDS:
            raise DataError(f"expected at most {MOST_SEEDS:,}, got {self.seeds:,}", field="seeds")
        if self.seed + self.seeds > SEEDS_END:
            raise DataError("expected seeds below 2^60", field="seed")
        if self.batch > MOST_BATCH:
            raise DataError(f"expected at most {MOST_BATCH:,}, got {self.batch:,}", field="batch")
        for name in ("discount", "learning_rate", "target_rate", "expectile"):
            _check_range(name, getattr(self, name), 1.0)
        for name in ("alpha", "temperature"):
            _check_range(name, getattr(self, name), 1e6)
        if not 0 <= self.averaging <= 1:
            raise DataError(f"expected 0 to 1, got {self.averaging!r}", field="averaging")

    def make_members(self) -> list[OfflineMember]:
        """Every source with every seed."""
        seeds = range(self.seed, self.seed + self.seeds)
        return [OfflineMember(source, seed) for source in self.rewards for seed in seeds]

    def to_json(self) -> dict[str, Any]:
        """Plain values for `settings.json`."""
        plain = asdict(self)
        return {name: list(v) if isinstance(v, tuple) else v for name, v in plain.items()}


def _check_whole(name: str, value: object, lowest: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < lowest:
        raise DataError(f"expected a whole number of at least {lowest}, got {value!r}", field=name)


def _check_range(name: str, value: float, highest: float) -> None:
    if not 0 < value <= highest:
        raise DataError(f"expected more than 0 and at most {highest:g}, got {value!r}", field=name)
