"""Learned rewards and relabelled data in other libraries.

| module | names | needs |
|---|---|---|
| `gymnasium` | `LearnedReward`, `VectorLearnedReward`, `CompactObservation` | gymnasium |
| `sb3` | `LearnedRewardVecEnv` | stable-baselines3 |
| `torchrl` | `to_tensordict`, `LearnedRewardTransform` | torchrl |
| `d3rlpy` | `to_d3rlpy` | d3rlpy |
| `d4rl` | `to_d4rl`: the dictionary that CORL and many others take | nothing |

A library is imported when one of its names is first used, so none has to be installed for another.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from grd_offline.interop.d3rlpy import to_d3rlpy
    from grd_offline.interop.d4rl import to_d4rl
    from grd_offline.interop.gymnasium import (
        CompactObservation,
        LearnedReward,
        VectorLearnedReward,
    )
    from grd_offline.interop.sb3 import LearnedRewardVecEnv
    from grd_offline.interop.torchrl import LearnedRewardTransform, to_tensordict

__all__ = [
    "CompactObservation",
    "LearnedReward",
    "LearnedRewardTransform",
    "LearnedRewardVecEnv",
    "VectorLearnedReward",
    "to_d3rlpy",
    "to_d4rl",
    "to_tensordict",
]

_HOMES = {
    "CompactObservation": "gymnasium",
    "LearnedReward": "gymnasium",
    "LearnedRewardTransform": "torchrl",
    "LearnedRewardVecEnv": "sb3",
    "VectorLearnedReward": "gymnasium",
    "to_d3rlpy": "d3rlpy",
    "to_d4rl": "d4rl",
    "to_tensordict": "torchrl",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
