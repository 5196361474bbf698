"""Names for other libraries, which `__init__.py` imports when they are first used."""

from .d3rlpy import to_d3rlpy as to_d3rlpy
from .d4rl import to_d4rl as to_d4rl
from .gymnasium import CompactObservation as CompactObservation
from .gymnasium import LearnedReward as LearnedReward
from .gymnasium import VectorLearnedReward as VectorLearnedReward
from .sb3 import LearnedRewardVecEnv as LearnedRewardVecEnv
from .torchrl import LearnedRewardTransform as LearnedRewardTransform
from .torchrl import to_tensordict as to_tensordict
