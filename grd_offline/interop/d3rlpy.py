"""d3rlpy: a dataset, or the relabelled data of a decomposition, as its replay buffer."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from grd_offline.interop.d4rl import read_steps

if TYPE_CHECKING:
    from d3rlpy.dataset import MDPDataset


def to_d3rlpy(path: str | os.PathLike[str], *, rewards: str = "rewards") -> MDPDataset:
    """Make a `d3rlpy.dataset.MDPDataset` of the same episodes.

        dataset = to_d3rlpy("hc-grd")

    As d3rlpy has it, an episode of T steps has T observations; row t holds the action taken in
    observation t and the reward of that step. The last observation of an episode has no place in
    it: a terminal step needs none, and of an episode that was cut off d3rlpy uses the last step as
    the next of the one before. `rewards` names the field they come from, see `to_d4rl`. A single
    discrete choice becomes its number, counted from 0.
    """
    import d3rlpy

    steps = read_steps(path, rewards)
    actions = steps.actions
    space = d3rlpy.constants.ActionSpace.CONTINUOUS
    if steps.discrete_actions:
        space = d3rlpy.constants.ActionSpace.DISCRETE
        actions = actions.argmax(1).reshape(-1, 1)
    return d3rlpy.dataset.MDPDataset(
        observations=steps.observations,
        actions=actions,
        rewards=steps.rewards,
        terminals=steps.terminals.astype(np.float32),
        timeouts=steps.timeouts.astype(np.float32),
        action_space=space,
        action_size=steps.actions.shape[1],
    )
