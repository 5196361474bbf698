"""Per-step rewards, causal masks and a compact state from nothing but episodic returns.

The public names are imported when they are first used, so that `import grd_offline` is quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from grd_offline.registration import register_environments

if TYPE_CHECKING:
    from grd_offline.agents.actors import load_actor
    from grd_offline.collecting.dataset import collect
    from grd_offline.dynamics import DynamicsModel
    from grd_offline.episodes import Episode, EpisodeSet
    from grd_offline.errors import DataError, StorageError
    from grd_offline.formats import open_recording, read, read_truth, write_dataset
    from grd_offline.interop import (
        CompactObservation,
        LearnedReward,
        VectorLearnedReward,
        to_d4rl,
    )
    from grd_offline.methods.baselines import Ircr, Uniform
    from grd_offline.methods.closed_form.estimator import ClosedForm
    from grd_offline.methods.contract import Decomposer
    from grd_offline.methods.masked_net import MaskedNet
    from grd_offline.methods.pair_net import PairNet
    from grd_offline.methods.paper import Paper
    from grd_offline.methods.pipeline import decompose, decompose_file
    from grd_offline.methods.registry import Method
    from grd_offline.methods.relabelling import relabel
    from grd_offline.methods.rrd import Rrd
    from grd_offline.methods.settings import DecomposeSettings
    from grd_offline.offline.judge import judge
    from grd_offline.offline.training import train_offline
    from grd_offline.online.training import resume_online, train_online
    from grd_offline.rewards.model import RewardModel

__all__ = [
    "ClosedForm",
    "CompactObservation",
    "DataError",
    "DecomposeSettings",
    "Decomposer",
    "DynamicsModel",
    "Episode",
    "EpisodeSet",
    "Ircr",
    "LearnedReward",
    "MaskedNet",
    "Method",
    "PairNet",
    "Paper",
    "RewardModel",
    "Rrd",
    "StorageError",
    "Uniform",
    "VectorLearnedReward",
    "collect",
    "decompose",
    "decompose_file",
    "judge",
    "load_actor",
    "open_recording",
    "read",
    "read_truth",
    "relabel",
    "resume_online",
    "to_d4rl",
    "train_offline",
    "train_online",
    "write_dataset",
]
__version__ = "0.1.0"

_HOMES = {
    "ClosedForm": "methods.closed_form.estimator",
    "CompactObservation": "interop",
    "DataError": "errors",
    "DecomposeSettings": "methods.settings",
    "Decomposer": "methods.contract",
    "DynamicsModel": "dynamics",
    "Episode": "episodes",
    "EpisodeSet": "episodes",
    "Ircr": "methods.baselines",
    "LearnedReward": "interop",
    "MaskedNet": "methods.masked_net",
    "Method": "methods.registry",
    "PairNet": "methods.pair_net",
    "Paper": "methods.paper",
    "RewardModel": "rewards.model",
    "Rrd": "methods.rrd",
    "StorageError": "errors",
    "Uniform": "methods.baselines",
    "VectorLearnedReward": "interop",
    "collect": "collecting.dataset",
    "decompose": "methods.pipeline",
    "decompose_file": "methods.pipeline",
    "judge": "offline.judge",
    "load_actor": "agents.actors",
    "open_recording": "formats",
    "read": "formats",
    "read_truth": "formats",
    "relabel": "methods.relabelling",
    "resume_online": "online.training",
    "to_d4rl": "interop",
    "train_offline": "offline.training",
    "train_online": "online.training",
    "write_dataset": "formats",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])


register_environments()
