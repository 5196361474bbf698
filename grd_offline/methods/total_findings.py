"""Inputs that stand for the outcome: totals that grow during an episode, such as a score so far.

A total may also lack the last step, as a score before each move does, or the first one, as an
amount that is left after it. Then it has the unit of the returns, and what it leaves unexplained is
no more than one of its own steps.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from grd_offline.core.episodes import Episode, EpisodeSet
from grd_offline.core.outcomes import Outcome
from grd_offline.core.words import format_percentage
from grd_offline.methods.contract import CAREFUL, Decomposer, Finding

Array = NDArray[np.float64]
_SAME = 0.999
"""Share of the variance of the returns from which on an input says the same as they do."""
_MUCH, _UNIT, _ONE_STEP = 0.7, 0.2, 1.5
"""For totals that lack a step: the share that they explain, how far their unit may be off, and the
variance of what is left, in steps."""
_FEWEST, _MOST_READ = 20, 2000


def find_totals(decomposer: Decomposer, episodes: EpisodeSet) -> list[Finding]:
    """Inputs of the reward whose end, or growth, explains by itself how returns differ.

    Inputs that stay the same during an episode are another finding's, and clocks are none of these.
    """
    masks = decomposer.masks_
    if masks is None or episodes.preferences is not None or len(episodes) < _FEWEST:
        return []
    used = np.concatenate([masks["state_to_reward"], masks["action_to_reward"]]).astype(bool)
    names = np.array([*episodes.observation_names, *episodes.action_names])
    count = min(len(episodes), _MOST_READ)
    chosen = [episodes[int(i)] for i in np.linspace(0, len(episodes) - 1, count).round()]
    discount = float(getattr(decomposer, "discount", 1.0))
    returns = np.array([episode.compute_return(discount) for episode in chosen])
    lengths = np.array([len(episode) for episode in chosen], np.float64)
    if _explain(lengths[:, None], returns)[0] > _SAME:
        return []
    ends, growths = (np.array(part) for part in zip(*map(_read_ends, chosen), strict=True))
    changing = growths.any(axis=0)
    shares = np.maximum(_explain(ends, returns), _explain(growths, returns))
    steps = np.mean([_measure_steps(episode) for episode in chosen if len(episode) > 1], axis=0)
    nearly = _lacks_a_step(ends, returns, steps) | _lacks_a_step(growths, returns, steps)
    found = np.flatnonzero(used & changing & ((shares > _SAME) | nearly))
    best = sorted(found, key=lambda column: -shares[column])[:1]
    outcome = decomposer.function_.outcome
    return [_tell(str(names[column]), float(shares[column]), outcome) for column in best]


def _read_ends(episode: Episode) -> tuple[Array, Array]:
    """The inputs at the end of an episode, and by how much they have changed."""
    last = len(episode) - 1
    end = np.concatenate([episode.next_observations[last], episode.actions[last]])
    start = np.concatenate([episode.observations[0], episode.actions[0]])
    return end.astype(np.float64), end.astype(np.float64) - start


def _measure_steps(episode: Episode) -> Array:
    """The mean square of how much each input changes from row to row."""
    rows = np.concatenate([episode.observations[: len(episode)], episode.actions], axis=1)
    return np.asarray((np.diff(rows.astype(np.float64), axis=0) ** 2).mean(axis=0))


def _lacks_a_step(columns: Array, returns: Array, steps: Array) -> NDArray[np.bool_]:
    """Whether each column says what the returns say, but for one of its steps."""
    share = _explain(columns, returns)
    centred, others = columns - columns.mean(0), returns - returns.mean()
    slopes = np.abs(centred.T @ others) / np.maximum((centred**2).sum(0), 1e-300)
    left = (1 - share) * returns.var()
    is_unit = np.abs(slopes - 1) < _UNIT
    return np.asarray(is_unit & (share > _MUCH) & (left < _ONE_STEP * steps))


def _explain(columns: Array, returns: Array) -> Array:
    """The share of the variance of the returns that a line in each column explains."""
    columns, returns = columns - columns.mean(0), returns - returns.mean()
    power = (columns**2).sum(0) * (returns**2).sum()
    return np.asarray((columns.T @ returns) ** 2 / np.maximum(power, 1e-300), np.float64)


def _tell(name: str, share: float, outcome: Outcome) -> Finding:
    text = (
        f"{name} at the end of an episode explains {format_percentage(share)} of how "
        f"{outcome.plural} differ, by itself. If it is the outcome so far, such as a running "
        "total, the rewards are hardly more than its changes: leave it out (--columns ignored=NAME "
        "for a table). If the outcome is measured at the end, all of the reward may belong to the "
        "last step."
    )
    return Finding(CAREFUL, text, f"{name} stands for the outcome")
