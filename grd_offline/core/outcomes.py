"""Kinds of outcomes: what is known of an episode, and what sums of its rewards stand for."""

from __future__ import annotations

import re

NUMBER, SUCCESS, PREFERENCE = "number", "success", "preference"
"""The return is the sum of the rewards; a base and the sum are the log-odds of success; of two
pieces the one with the larger sum is preferred, with log-odds that are the difference of the
sums."""
KINDS = (NUMBER, SUCCESS, PREFERENCE)
CHOICES = ("auto", NUMBER, SUCCESS)
"""Kinds of outcomes that a user may ask for. Preferences are used whenever there are some."""
UNITS = {
    SUCCESS: "Rewards are in units of log-odds: a step of reward 1 multiplies the odds of success "
    "by 2.72.",
    PREFERENCE: "Rewards are in units of log-odds: if the sum of rewards of one piece is larger by "
    "1, the odds that it is preferred are 2.72 to 1. Only differences of sums count.",
}
"""Meaning of a reward of 1, if it is not a number of the data."""
_CALLED = {SUCCESS: "label", PREFERENCE: "preference"}


def speak_of(text: str, outcome: str) -> str:
    """A sentence about returns as one about labels or preferences.

    >>> speak_of("500 returns are enough.", SUCCESS)
    '500 labels are enough.'
    """
    called = _CALLED.get(outcome)
    if called is None:
        return text
    text = re.sub(r"\breturn(s?)\b", rf"{called}\1", text)
    return re.sub(r"\bReturn(s?)\b", rf"{called.capitalize()}\1", text)
