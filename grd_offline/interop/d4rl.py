"""D4RL's dictionary of flat arrays, which CORL and many other libraries train on."""

from __future__ import annotations

import os
from typing import Any

from numpy.typing import NDArray

from grd_offline.interop.steps import read_steps


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
