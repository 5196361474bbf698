"""Assumptions behind the bands of steps in one fit, in words that are shown beside them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from grd_offline.core.episodes import EpisodeSet, have_same_length
from grd_offline.core.evaluate import EVEN_BANDS, STEP_BANDS
from grd_offline.core.outcomes import NUMBER, SUCCESS
from grd_offline.methods.closed_form.last_fit import ClosedFormFit
from grd_offline.methods.closed_form.moment_findings import PLACES, list_open_moments
from grd_offline.methods.closed_form.noise_findings import (
    is_noise_open,
    measure_step_noise,
)
from grd_offline.methods.closed_form.share_words import MUCH_HIDDEN, list_names

_NOTICED = 0.03
"""Standard deviation, as a share of that of the rewards, that makes a 90 % band reach 5 % of it to
either side."""


def list_conditions(fit: ClosedFormFit, episodes: EpisodeSet, spread: float) -> list[str]:
    """Clauses that can follow "The bands hold if"; none where returns decide all that matters."""
    conditions = []
    depends = float(np.sqrt(fit.moment_variance)) / max(spread, 1e-300)
    if list_open_moments(fit) and depends >= MUCH_HIDDEN:
        conditions.append(
            f"the reward looks at the state {PLACES[fit.state_at]}, which returns do not decide"
        )
    if fit.model.effects and is_noise_open(fit, episodes, spread):
        conditions.append(
            "what returns leave unexplained is noise of single steps, which episodes of one length "
            "cannot show"
        )
    if fit.model.effects and fit.outcome == NUMBER and _hides_times(fit, episodes):
        conditions.append(
            "no step is worth more because of its number alone, which episodes of one length "
            "cannot show"
        )
    if _is_mostly_hidden(fit, spread):
        conditions.append(
            "the reward has parts that returns do not show (if it has none, the bands are too wide)"
        )
    if fit.outcome == SUCCESS:
        conditions.append("no effect was missed, which returns often leave open")
    if fit.even_inputs:
        names = list_names(list(fit.even_inputs))
        conditions.append(f"{names} is worth what was found, which returns hardly show")
    return conditions


def _hides_times(fit: ClosedFormFit, episodes: EpisodeSet) -> bool:
    """Whether every return has the same steps, and one sum, so that their times cannot show.

    An input that tells the time is among the even ones, which are told by themselves.
    """
    lengths = np.array([len(episode) for episode in episodes], np.float64)
    is_single = all(int(episode.delivered.sum()) == 1 for episode in episodes)
    return lengths.max() > 1 and is_single and have_same_length(lengths) and not fit.even_inputs


def _is_mostly_hidden(fit: ClosedFormFit, spread: float) -> bool:
    """Whether what may hide from returns widens the bands more than noise, and noticeably."""
    hidden = fit.model.hidden_variance * fit.model.inflation**2
    noise = measure_step_noise(fit) + fit.model.shared_variance * fit.model.inflation**2
    return hidden >= noise and float(np.sqrt(hidden)) >= _NOTICED * spread


def tell_bands(knows_std: bool, conditions: Sequence[str]) -> str:
    """Describe the bands of steps."""
    if not knows_std:
        return EVEN_BANDS
    if len(conditions) < 2:
        return STEP_BANDS + "".join(f" Here they hold if {one}." for one in conditions)
    listed = "; ".join(f"({number}) {one}" for number, one in enumerate(conditions, 1))
    return f"{STEP_BANDS} Here they hold only if all of this is true: {listed}."
