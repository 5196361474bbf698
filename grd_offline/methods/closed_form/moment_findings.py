"""Findings on the moment of a step at which the reward looks at the state."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from grd_offline.methods.closed_form.last_fit import ClosedFormFit
from grd_offline.methods.closed_form.moments import BEFORE, BOTH, END, MIDPOINT, START, weigh
from grd_offline.methods.closed_form.share_words import (
    MUCH_HIDDEN,
    TOO_MUCH_HIDDEN,
    bound_correlation,
    show_share,
)
from grd_offline.methods.contract import CAREFUL, FINE, UNRELIABLE, Finding

_POSSIBLE = 0.05
"""A moment with at least this posterior probability is not excluded."""
PLACES = {
    START: "at the start of each step",
    MIDPOINT: "halfway through each step, (s + s')/2",
    END: "at the end of each step",
    BEFORE: "one step earlier",
}
_OPTION = "The option --state-at start, midpoint or end fixes it."


def find_moment(fit: ClosedFormFit, spread: float) -> list[Finding]:
    """Describe the chosen moment and the reason. If returns do not decide, say what depends on
    it."""
    if not fit.moments or fit.state_at == BOTH:
        return []
    chances = weigh(fit.moments, jumps=fit.jumps)
    if chances.get(BEFORE, 0.0) > 0.5:
        text = (
            "The reward seems to come a step late: the state of the step before explains returns "
            "better than any moment of the step itself. A function of one step cannot express "
            "that. Move the rewards by one step, or add the previous state to the observations."
        )
        return [Finding(UNRELIABLE, text, "the reward seems to come a step late")]
    taken = f"The reward looks at the state {PLACES[fit.state_at]}."
    others = list_open_moments(fit)
    if others:
        return [_tell_undecided(fit, spread, taken, others)]
    why = "This explains returns clearly better than the other moments."
    if END not in fit.moments:
        why = (
            "No other moment was tried: steps are independent of each other, and the data do not "
            "have the state after the last one."
        )
    return [Finding(FINE, f"{taken} {why}")]


def list_open_moments(fit: ClosedFormFit) -> list[str]:
    """Moments other than the one taken that returns do not exclude."""
    if not fit.moments or fit.state_at == BOTH:
        return []
    chances = weigh(fit.moments, jumps=fit.jumps)
    return [
        moment
        for moment in (START, MIDPOINT, END, BEFORE)
        if moment != fit.state_at and chances.get(moment, 0.0) > _POSSIBLE
    ]


def _tell_undecided(
    fit: ClosedFormFit, spread: float, taken: str, others: Sequence[str]
) -> Finding:
    share = float(np.sqrt(fit.moment_variance)) / max(spread, 1e-300)
    places = " or ".join(PLACES[moment] for moment in others)
    why = (
        "The midpoint was taken because it errs least where nothing decides."
        if fit.state_at == MIDPOINT
        else "This moment has the most evidence."
    )
    undecided = f"{taken} {why} Returns do not exclude that it looks {places}."
    depends = f"{show_share(share)} of the spread of the rewards"
    if share < MUCH_HIDDEN:
        return Finding(FINE, f"{undecided} Only {depends} depends on this choice.")
    text = (
        f"{undecided} The choice decides {depends}: with another moment the correlation with the "
        f"true rewards may be as low as about {bound_correlation(share):.2f}. {_OPTION}"
    )
    level = UNRELIABLE if share > TOO_MUCH_HIDDEN else CAREFUL
    return Finding(level, text, "returns do not decide at which moment the reward looks at a state")
