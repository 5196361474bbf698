"""Small learners of offline runs, on data with a known reward."""

import offline_data
import torch

from grd_offline.learning.offline.run import OfflineLearner, make_transitions
from grd_offline.learning.settings import OfflineSettings

EPISODES, TRUE = offline_data.make_data(20)


def make_settings(**changes):
    given = {"rewards": ("true", "flipped"), "seeds": 2, "batch": 16, "hidden": (8, 8),
             "learning_rate": 3e-3}  # fmt: skip
    return OfflineSettings(**{**given, **changes})


def make_learner(settings, members=None, **changes):
    given = {"true": TRUE, "flipped": -TRUE}
    return OfflineLearner(
        settings,
        members or settings.make_members(),
        make_transitions(EPISODES),
        given,
        **{"low": [-1.0], "high": [1.0], "device": torch.device("cpu"), **changes},
    )
