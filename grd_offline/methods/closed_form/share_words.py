"""The part of the rewards that returns leave open, as a fraction of their spread, and in words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from grd_offline.core.words import format_percentage

MUCH_HIDDEN = 0.15
"""Standard deviation of what is hidden, as a share of that of the rewards, that calls for care.

If the true reward is the found one plus something hidden of share h, their correlation is
1 / sqrt(1 + h^2), here .99. The share is what may hide, not what does: rewards that were found well
(Swimmer, h = .2) pass it too.
"""
TOO_MUCH_HIDDEN = 0.75
"""The share at which this correlation is .8."""


def bound_correlation(share: float) -> float:
    """Correlation with rewards that differ by something hidden of this share."""
    return float(1 / np.sqrt(1 + share**2))


def show_share(share: float) -> str:
    """A share in per cent, no finer than it deserves."""
    return "less than 1 %" if share < 0.01 else format_percentage(share)


def list_names(names: Sequence[str], most: int = 4) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
