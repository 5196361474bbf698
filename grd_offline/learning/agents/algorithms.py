"""The registry of algorithms that learn a policy: `--backbone` and `--algo` offer what it holds.

This module does not import torch, so that the command line can read the names quickly.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from grd_offline.core.errors import DataError

if TYPE_CHECKING:
    from grd_offline.learning.agents.agent import Agent


@dataclass(frozen=True)
class Algorithm:
    """An algorithm that learns a policy."""

    name: str
    """The name on the command line."""
    title: str
    """The name of the algorithm in reports."""
    online: bool
    """True for `train-online`, False for `train-offline` and `judge`."""
    load: Callable[[], type[Agent]] | None
    """The class for continuous actions, where there is one."""
    settings: tuple[str, ...] = ()
    """Settings of the run that the class takes as keywords, beside those that all classes take."""
    load_discrete: Callable[[], type[Agent]] | None = None
    """The class for discrete actions, where there is one."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Defaults of the run's settings, where they are not those of other algorithms."""

    def find_class(self, *, is_discrete: bool) -> type[Agent]:
        """The class for these actions. If there is none, the error names algorithms that have."""
        load = self.load_discrete if is_discrete else self.load
        if load is None:
            others = [
                name
                for name, other in _ALGORITHMS.items()
                if other.online == self.online
                and (other.load_discrete if is_discrete else other.load)
            ]
            kind, own = ("discrete", "continuous") if is_discrete else ("continuous", "discrete")
            raise DataError(
                f"{self.name} is for {own} actions, these are {kind}: use {' or '.join(others)}",
                field="backbone" if self.online else "algorithm",
            )
        return load()

    def pick_settings(self, settings: object) -> dict[str, Any]:
        return {name: getattr(settings, name) for name in self.settings}


_ALGORITHMS: dict[str, Algorithm] = {}


def register_algorithm(algorithm: Algorithm) -> None:
    if algorithm.name in _ALGORITHMS:
        raise ValueError(f"there is already an algorithm called {algorithm.name!r}")
    _ALGORITHMS[algorithm.name] = algorithm


def find_algorithm(name: str) -> Algorithm:
    return _ALGORITHMS[name]


def find_title(name: str) -> str:
    """The title of an algorithm in reports. It is the name if no title is known."""
    return _ALGORITHMS[name].title if name in _ALGORITHMS else name


def list_online() -> tuple[str, ...]:
    """Names of the algorithms of `train-online`."""
    return tuple(name for name, found in _ALGORITHMS.items() if found.online)


def list_offline() -> tuple[str, ...]:
    """Names of the algorithms of `train-offline` and `judge`."""
    return tuple(name for name, found in _ALGORITHMS.items() if not found.online)


def _load(module: str, name: str) -> Callable[[], type[Agent]]:
    def load() -> type[Agent]:
        found: type[Agent] = getattr(importlib.import_module(f"{__package__}.{module}"), name)
        return found

    return load


for _algorithm in (
    Algorithm("sac", "SAC", True, _load("continuous", "Sac")),
    Algorithm(
        "crossq", "CrossQ", True, _load("continuous", "CrossQ"), ("critic_width",),
        defaults={"learning_rate": 1e-3},
    ),
    Algorithm("td3", "TD3", True, _load("continuous", "Td3")),
    Algorithm("ddpg", "DDPG", True, _load("continuous", "Ddpg")),
    Algorithm("dqn", "DQN", True, None, (), _load("discrete", "Dqn")),
    Algorithm(
        "iql", "IQL", False, _load("continuous", "Iql"),
        ("averaging", "expectile", "temperature"), _load("discrete", "DiscreteIql"),
    ),
    Algorithm("td3bc", "TD3+BC", False, _load("continuous", "Td3Bc"), ("averaging", "alpha")),
):  # fmt: skip
    register_algorithm(_algorithm)
