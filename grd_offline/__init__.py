"""Per-step rewards, causal masks and a compact state from nothing but episodic returns.

The public names are imported when they are first used, so that `import grd_offline` is quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from grd_offline.core.lazy import import_when_used
from grd_offline.worlds.registration import register_environments

if TYPE_CHECKING:
    from grd_offline.additive.dynamics.model import DynamicsModel as DynamicsModel
    from grd_offline.core.episodes import Episode as Episode
    from grd_offline.core.episodes import EpisodeSet as EpisodeSet
    from grd_offline.core.errors import DataError as DataError
    from grd_offline.core.errors import StorageError as StorageError
    from grd_offline.core.pieces import attach_preferences as attach_preferences
    from grd_offline.core.preferences import Preferences as Preferences
    from grd_offline.interop.d4rl import to_d4rl as to_d4rl
    from grd_offline.interop.gymnasium import CompactObservation as CompactObservation
    from grd_offline.interop.gymnasium import LearnedReward as LearnedReward
    from grd_offline.interop.gymnasium import VectorLearnedReward as VectorLearnedReward
    from grd_offline.io.datasets import open_recording as open_recording
    from grd_offline.io.datasets import read as read
    from grd_offline.io.datasets import read_truth as read_truth
    from grd_offline.io.datasets import write_dataset as write_dataset
    from grd_offline.io.formats.from_python import from_arrays as from_arrays
    from grd_offline.io.formats.from_python import from_dataframe as from_dataframe
    from grd_offline.lab.judge import judge as judge
    from grd_offline.learning.agents.actors import load_actor as load_actor
    from grd_offline.learning.collecting.dataset import collect as collect
    from grd_offline.learning.offline.training import train_offline as train_offline
    from grd_offline.learning.online.training import resume_online as resume_online
    from grd_offline.learning.online.training import train_online as train_online
    from grd_offline.methods.baselines import Ircr as Ircr
    from grd_offline.methods.baselines import Uniform as Uniform
    from grd_offline.methods.closed_form.estimator import ClosedForm as ClosedForm
    from grd_offline.methods.contract import Decomposer as Decomposer
    from grd_offline.methods.masked_net import MaskedNet as MaskedNet
    from grd_offline.methods.pair_net import PairNet as PairNet
    from grd_offline.methods.paper import Paper as Paper
    from grd_offline.methods.registry import Method as Method
    from grd_offline.methods.relabelling import relabel as relabel
    from grd_offline.methods.rrd import Rrd as Rrd
    from grd_offline.methods.settings import DecomposeSettings as DecomposeSettings
    from grd_offline.pipeline.decompose import decompose as decompose
    from grd_offline.pipeline.decompose import decompose_file as decompose_file
    from grd_offline.pipeline.new_rows import compute_rewards as compute_rewards
    from grd_offline.pipeline.several import decompose_each as decompose_each
    from grd_offline.rewards.model import RewardModel as RewardModel

__version__ = "0.2.0"
__getattr__, __dir__, __all__ = import_when_used(
    __name__,
    {
        "learning.agents.actors": ("load_actor",),
        "learning.collecting.dataset": ("collect",),
        "additive.dynamics.model": ("DynamicsModel",),
        "core.episodes": ("Episode", "EpisodeSet"),
        "core.errors": ("DataError", "StorageError"),
        "io.datasets": ("open_recording", "read", "read_truth", "write_dataset"),
        "io.formats.from_python": ("from_arrays", "from_dataframe"),
        "interop.d4rl": ("to_d4rl",),
        "interop.gymnasium": ("CompactObservation", "LearnedReward", "VectorLearnedReward"),
        "methods.baselines": ("Ircr", "Uniform"),
        "methods.closed_form.estimator": ("ClosedForm",),
        "methods.contract": ("Decomposer",),
        "methods.masked_net": ("MaskedNet",),
        "methods.pair_net": ("PairNet",),
        "methods.paper": ("Paper",),
        "pipeline.decompose": ("decompose", "decompose_file"),
        "methods.registry": ("Method",),
        "pipeline.new_rows": ("compute_rewards",),
        "methods.relabelling": ("relabel",),
        "methods.rrd": ("Rrd",),
        "methods.settings": ("DecomposeSettings",),
        "pipeline.several": ("decompose_each",),
        "lab.judge": ("judge",),
        "learning.offline.training": ("train_offline",),
        "learning.online.training": ("resume_online", "train_online"),
        "core.pieces": ("attach_preferences",),
        "core.preferences": ("Preferences",),
        "rewards.model": ("RewardModel",),
    },
)

register_environments()
