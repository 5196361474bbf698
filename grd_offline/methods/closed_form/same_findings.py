"""What is said if the reward comes from inputs that stay the same during an episode.

Such an input may be a cause: the size of a car, or a goal. It may also be something that somebody
wrote down after the outcome, such as a total in every row, or a row number of a sorted table.
Returns cannot tell which, and then say nothing about single steps.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from grd_offline.core.episodes import Episode, EpisodeSet
from grd_offline.methods.closed_form.last_fit import ClosedFormFit
from grd_offline.methods.contract import CAREFUL, Finding

Array = NDArray[np.float64]
_SAME = 0.05
"""Share of the variance of the rewards that lies within episodes, below which steps of an episode
hardly differ."""
_STAYS = 0.1
"""The same of an input, below which it stays nearly the same during an episode."""
_NAMED = 3


def find_same(
    fit: ClosedFormFit, episodes: EpisodeSet, rewards: Sequence[tuple[Episode, Array]]
) -> list[Finding]:
    """`rewards` are some of the episodes with the rewards that were found."""
    if _measure_within([found[:, None] for _, found in rewards])[0] >= _SAME:
        return []
    names = (*episodes.observation_names, *episodes.action_names)
    inputs = [np.hstack([e.observations[: len(e)], e.actions]) for e, _ in rewards]
    share = dict(zip(names, _measure_within(inputs), strict=True))
    used = [name for name in fit.correlated_names if name in share]
    still = [name for name in used if share[name] < _STAYS] or used
    if not still:
        return []
    named = ", ".join(still[:_NAMED])
    text = (
        f"The reward comes from {named}, and all steps of an episode get nearly the same. So "
        "returns do not show how the steps of an episode differ. If such an input became known "
        "with the outcome, or follows from it, it hides the causes: leave it out, for a table with "
        f"--columns ignored={still[0].partition('=')[0]}."
    )
    return [Finding(CAREFUL, text, f"all steps of an episode get nearly the same, from {named}")]


def _measure_within(values: Sequence[Array]) -> Array:
    """(column,) the share of the variance that lies within episodes; 1 where nothing can differ."""
    every = np.concatenate(values).astype(np.float64)
    total = every.var(0)
    if len(values) > len(every) / 2:  # mostly one step per episode
        return np.ones(every.shape[1])
    within = sum(len(part) * part.astype(np.float64).var(0) for part in values) / len(every)
    return np.where(total > 0, within / np.maximum(total, 1e-300), 1.0)
