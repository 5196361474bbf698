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

from grd_offline.core.packages import import_when_used

__getattr__, __dir__, __all__ = import_when_used(__name__, __file__)
