"""A fixed amount in every return, which no sum over steps explains.

Scores that do not start at 0, fees, and averages over steps have one. Where episodes differ in
length it shows: what the rewards leave unexplained is then a constant, and not noise about 0.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from grd_offline.core.episodes import EpisodeSet, have_same_length
from grd_offline.core.outcomes import NUMBER
from grd_offline.methods.contract import CAREFUL, UNRELIABLE, Decomposer, Finding

Array = NDArray[np.float64]
_SURE = 6.0
"""Standard errors by which the amount has to differ from 0."""
_MUCH, _MOST = 0.2, 0.5
"""Share of the squared errors that it accounts for: worth a finding, and too much."""
_LEAST = 0.02
"""Share of the spread of the returns that the amount has to reach."""
_FEWEST, _MOST_READ = 20, 2000


def find_base(decomposer: Decomposer, episodes: EpisodeSet) -> list[Finding]:
    """Find a fixed amount in the returns that the rewards of a fit leave unexplained."""
    function = decomposer.function_
    if function.outcome != NUMBER or function.needs_termination or episodes.preferences is not None:
        return []
    chosen = [episodes[index] for index in _list_whole(episodes)]
    lengths = np.array([len(episode) for episode in chosen], np.float64)
    if len(chosen) < _FEWEST or have_same_length(lengths):
        return []
    discount = float(getattr(decomposer, "discount", 1.0))
    predicted = [decomposer.predict_amounts(episode, discount)[0][0] for episode in chosen]
    returns = np.array([episode.rewards[-1] for episode in chosen], np.float64)
    base, deviations, share = _measure_base(returns - predicted, lengths)
    if deviations < _SURE or share < _MUCH or abs(base) < _LEAST * float(returns.std()):
        return []
    text = (
        f"Returns contain a fixed amount of about {base:,.3g}, however many steps an "
        "episode has. Rewards of steps cannot explain it. If outcomes are scores that do not start "
        "at 0, subtract their base value. If they are averages over steps, multiply them by the "
        "number of steps. If the amount is paid at the end of an episode, mark its last step as "
        "terminated."
    )
    level = UNRELIABLE if share > _MOST else CAREFUL
    return [Finding(level, text, "returns contain a fixed amount per episode")]


def _measure_base(errors: Array, lengths: Array) -> tuple[float, float, float]:
    """The constant in the errors, its size in standard errors, and the share that it explains."""
    design = np.stack([np.ones_like(lengths), lengths], 1)
    inverse = np.linalg.inv(design.T @ design)
    weights = inverse @ (design.T @ errors)
    rest = errors - design @ weights
    variance = float(rest @ rest) / max(len(errors) - 2, 1) * float(inverse[0, 0])
    share = 1 - float(rest @ rest) / max(float(errors @ errors), 1e-300)
    return float(weights[0]), float(abs(weights[0]) / np.sqrt(max(variance, 1e-300))), share


def _list_whole(episodes: EpisodeSet) -> list[int]:
    """Some episodes with one amount each, at the end; none where others have more."""
    count = min(len(episodes), _MOST_READ)
    chosen = np.unique(np.linspace(0, len(episodes) - 1, count).round().astype(np.int64)).tolist()
    whole = [i for i in chosen if episodes[i].delivered.sum() == 1 and episodes[i].delivered[-1]]
    return whole if len(whole) == len(chosen) else []
