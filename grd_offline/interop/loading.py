"""A reward model, given as itself or as its folder."""

from __future__ import annotations

import os
from typing import TypeAlias

from grd_offline.rewards.model import RewardModel

ModelOrPath: TypeAlias = "RewardModel | str | os.PathLike[str]"


def load_model(model: ModelOrPath) -> RewardModel:
    """Return the model itself, or load it from a folder."""
    return model if isinstance(model, RewardModel) else RewardModel.load(model)
