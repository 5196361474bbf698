"""Findings on effects that act late, or change during an episode."""

from __future__ import annotations

import numpy as np

from grd_offline.methods.closed_form.history import EARLIER, LATER, TIME
from grd_offline.methods.closed_form.last_fit import ClosedFormFit
from grd_offline.methods.closed_form.share_words import MUCH_HIDDEN, TOO_MUCH_HIDDEN, show_share
from grd_offline.methods.contract import CAREFUL, UNRELIABLE, Finding

_REMEDIES = {
    EARLIER: "Add what the reward remembers to the observations, for example what was seen or done "
    "one step earlier.",
    LATER: "If a row holds what was done or seen before it, move these columns up by one row.",
    TIME: "Add the step within the episode to the observations.",
}
_MOST = {EARLIER: 1 - 0.8, LATER: 1 - 0.8, TIME: TOO_MUCH_HIDDEN**2}
"""Share of the variance of the rewards at which their correlation with the true ones is .8.

What acts late is missing where it acts, and is there where it does not: with a share h, the
correlation is 1 - h.
"""


def find_history(fit: ClosedFormFit, spread: float) -> list[Finding]:
    """Describe what returns show to depend on more than the step itself."""
    findings = []
    for kind, variance in fit.history.items():
        share = float(np.sqrt(variance)) / max(spread, 1e-300)
        if share < MUCH_HIDDEN:
            continue
        text = (
            f"The reward seems to depend on {kind}: returns are clearly better explained if an "
            f"effect that was found does. This comes to {show_share(min(share, 1.0))} of the "
            f"spread of the rewards. A reward of one step cannot express it. {_REMEDIES[kind]}"
        )
        level = UNRELIABLE if share**2 > _MOST[kind] else CAREFUL
        findings.append(Finding(level, text, f"the reward seems to depend on {kind}"))
    return findings
