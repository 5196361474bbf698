"""D4RL's dictionary of flat arrays, which CORL and many other libraries train on.

It is made of all steps of a dataset in one table, each with its next observation.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grd_offline.core.episodes import check_finite
from grd_offline.core.typing import BoolArray, SingleArray
from grd_offline.io.datasets import as_episode, as_episodes, locate, open_recording
from grd_offline.methods.relabelling import find_truth

NEXT = "next_observations"
"""A field of records only where these are not the observations of the next step."""


@dataclass(frozen=True, eq=False)
class Steps:
    """N steps of all episodes, in their order; float32."""

    observations: SingleArray
    """(N, state): the observation before each step."""
    actions: SingleArray
    """(N, action); one-hot where actions are discrete."""
    next_observations: SingleArray
    """(N, state): the observation after each step. If the observation after an episode is not
    known, it is the last one again. If those of the file do not lead to the next step, as in
    shuffled data, they are taken as they are."""
    rewards: SingleArray
    """(N,): the reward of each step."""
    terminals: BoolArray
    """(N,): whether the task ended at this step."""
    timeouts: BoolArray
    """(N,): whether the episode ended at this step although the task did not."""
    episodes: NDArray[np.int64]
    """(N,): the number of the episode."""
    is_known: BoolArray
    """(N,): False where learning would need a next observation that the data do not hold."""
    discrete_actions: bool
    """Whether an action is a single discrete choice."""

    def __len__(self) -> int:
        return len(self.rewards)

    def drop_unknown(self) -> Steps:
        """Leave out steps without a known next observation. The step before one is then the last of
        its episode.

        These are the last steps of episodes that were cut off in a file that does not hold the
        observation after them. D4RL's own loader leaves them out as well.
        """
        if self.is_known.all():
            return self
        timeouts = self.timeouts.copy()
        before = np.flatnonzero(~self.is_known[1:])
        timeouts[before] |= self.episodes[before] == self.episodes[before + 1]
        columns = vars(replace(self, timeouts=timeouts)).items()
        kept = {n: v[self.is_known] for n, v in columns if n != "discrete_actions"}
        return replace(self, **kept)


def read_steps(path: str | os.PathLike[str], rewards: str) -> Steps:
    """Read all steps of a dataset, or of the relabelled data in the folder of a decomposition.

    `rewards` names the field that rewards come from: "rewards" is what the file calls so, which
    after a decomposition are the learned ones; "observed_rewards" are those that it had before,
    "true_rewards" the true ones where they were kept. An end that is both a termination and a
    truncation counts as a termination; an episode that just stops counts as truncated.
    """
    with open_recording(path) as recording:
        episodes = as_episodes(recording, path)
        leaves = recording.header.action_leaves
        single = len(leaves) == 1 and leaves[0].categories is not None
        count, states = episodes.total_steps, episodes.state_size
        steps = Steps(
            observations=np.empty((count, states), np.float32),
            actions=np.empty((count, episodes.action_size), np.float32),
            next_observations=np.empty((count, states), np.float32),
            rewards=np.empty(count, np.float32),
            terminals=np.zeros(count, np.bool_),
            timeouts=np.zeros(count, np.bool_),
            episodes=np.empty(count, np.int64),
            is_known=np.ones(count, np.bool_),
            discrete_actions=single and len(leaves[0].categories or ()) == 1,
        )
        start = 0
        for index in range(len(recording)):
            record = recording.load(index)
            with locate(path, index):
                values = find_truth(record, rewards, path)
                # Whatever the field, every step has its reward: none is still to come.
                complete = replace(record, rewards=values, extras={})
                episode = as_episode(complete, recording.header, "step")
                own = record.extras.get(NEXT)
                if own is not None:
                    check_finite(own.astype(np.float32), NEXT, own)
            rows, last = slice(start, start + len(episode)), start + len(episode) - 1
            is_terminated = bool(episode.terminations[-1])
            steps.observations[rows] = episode.observations[: len(episode)]
            steps.next_observations[start:last] = episode.observations[1 : len(episode)]
            steps.next_observations[last] = episode.observations[-1]
            if own is not None and own.shape == (len(episode), states):
                steps.next_observations[rows] = own
            steps.actions[rows], steps.rewards[rows] = episode.actions, episode.rewards
            steps.terminals[last], steps.timeouts[last] = is_terminated, not is_terminated
            steps.episodes[rows] = index
            steps.is_known[last] = episode.has_final_observation or is_terminated
            start += len(episode)
    return steps


def to_d4rl(path: str | os.PathLike[str], *, rewards: str = "rewards") -> dict[str, NDArray[Any]]:
    """Return a dataset, or the relabelled data of a decomposition, in the form of
    `d4rl.qlearning_dataset`.

    Parameters
    ----------
    path
        A dataset, or the folder of a decomposition.
    rewards
        The field that rewards come from: "rewards" (the learned ones after a decomposition),
        "observed_rewards" (as the data had them), "true_rewards" or any other with a number per
        step.

    Returns
    -------
    dict
        `observations` (N, state), `actions` (N, action), `next_observations` (N, state) and
        `rewards` (N,) are float32; `terminals` and `timeouts` (N,) are bool, never both. Row i
        holds one step: `next_observations[i]` is what followed in its own episode, also at the end
        of an episode. The last step of an episode that was cut off is left out where its next
        observation is not in the data.

    Examples
    --------
    >>> dataset = to_d4rl("datasets/sample.h5")
    >>> dataset["observations"].shape
    (1418, 11)
    """
    steps = read_steps(path, rewards).drop_unknown()
    names = ("observations", "actions", "next_observations", "rewards", "terminals", "timeouts")
    return {name: getattr(steps, name) for name in names}
