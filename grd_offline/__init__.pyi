"""The public names, which `__init__.py` imports when they are first used."""

from .additive.dynamics import DynamicsModel as DynamicsModel
from .core.episodes import Episode as Episode
from .core.episodes import EpisodeSet as EpisodeSet
from .core.episodes import Preferences as Preferences
from .core.episodes import attach_preferences as attach_preferences
from .core.errors import DataError as DataError
from .core.errors import StorageError as StorageError
from .interop.d4rl import to_d4rl as to_d4rl
from .interop.gymnasium import CompactObservation as CompactObservation
from .interop.gymnasium import LearnedReward as LearnedReward
from .interop.gymnasium import VectorLearnedReward as VectorLearnedReward
from .io.datasets import open_recording as open_recording
from .io.datasets import read as read
from .io.datasets import read_truth as read_truth
from .io.datasets import write_dataset as write_dataset
from .io.formats.from_python import from_arrays as from_arrays
from .io.formats.from_python import from_dataframe as from_dataframe
from .lab.judge import judge as judge
from .learning.agents.actors import load_actor as load_actor
from .learning.collecting.dataset import collect as collect
from .learning.offline.run import train_offline as train_offline
from .learning.online.run import resume_online as resume_online
from .learning.online.run import train_online as train_online
from .methods.baselines import Ircr as Ircr
from .methods.baselines import Uniform as Uniform
from .methods.closed_form.estimator import ClosedForm as ClosedForm
from .methods.contract import Decomposer as Decomposer
from .methods.decompose import decompose_episodes as decompose_episodes
from .methods.pair_net import MaskedNet as MaskedNet
from .methods.pair_net import PairNet as PairNet
from .methods.paper import Paper as Paper
from .methods.registry import Method as Method
from .methods.relabelling import relabel as relabel
from .methods.result import Decomposition as Decomposition
from .methods.result import read_decomposition as read_decomposition
from .methods.rrd import Rrd as Rrd
from .methods.settings import DecomposeSettings as DecomposeSettings
from .pipeline.decompose import compute_rewards as compute_rewards
from .pipeline.decompose import decompose as decompose
from .pipeline.decompose import decompose_each as decompose_each
from .pipeline.decompose import decompose_file as decompose_file
from .pipeline.decompose import save_decomposition as save_decomposition
from .rewards.model import RewardModel as RewardModel

__version__: str
