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

from typing import TYPE_CHECKING

from grd_offline.core.lazy import import_when_used

if TYPE_CHECKING:
    from grd_offline.interop.d3rlpy import to_d3rlpy as to_d3rlpy
    from grd_offline.interop.d4rl import to_d4rl as to_d4rl
    from grd_offline.interop.gymnasium import CompactObservation as CompactObservation
    from grd_offline.interop.gymnasium import LearnedReward as LearnedReward
    from grd_offline.interop.gymnasium import VectorLearnedReward as VectorLearnedReward
    from grd_offline.interop.sb3 import LearnedRewardVecEnv as LearnedRewardVecEnv
    from grd_offline.interop.torchrl import LearnedRewardTransform as LearnedRewardTransform
    from grd_offline.interop.torchrl import to_tensordict as to_tensordict

__getattr__, __dir__, __all__ = import_when_used(
    __name__,
    {
        "d3rlpy": ("to_d3rlpy",),
        "d4rl": ("to_d4rl",),
        "gymnasium": ("CompactObservation", "LearnedReward", "VectorLearnedReward"),
        "sb3": ("LearnedRewardVecEnv",),
        "torchrl": ("LearnedRewardTransform", "to_tensordict"),
    },
)
