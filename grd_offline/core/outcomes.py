"""Kinds of outcomes: what is known of an episode, and what sums of its rewards stand for."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from grd_offline.core.typing import Array

_LOG_ODDS = "Rewards are in units of log-odds: "


class Outcome(StrEnum):
    """What is known of an episode. Its value is its name in files; it has its words and its link.

    >>> f"500 {Outcome.SUCCESS.plural} are enough."
    '500 labels are enough.'
    """

    singular: str
    plural: str
    unit: str
    """Meaning of a reward of 1, as a sentence. It is empty if a reward is a number of the data."""
    paid: str
    """What the data pay at the last step of an episode that is paid once."""

    def __new__(
        cls, name: str, singular: str = "", plural: str = "", unit: str = "", paid: str = ""
    ) -> Outcome:
        """Make a member from its name in files, its words, its unit and what it pays."""
        member = str.__new__(cls, name)
        member._value_ = name
        member.singular, member.plural, member.unit, member.paid = singular, plural, unit, paid
        return member

    NUMBER = "number", "return", "returns", "", "Return, paid at the last step"
    """The return is the sum of the rewards."""
    SUCCESS = (
        *("success", "label", "labels"),
        f"{_LOG_ODDS}a step of reward 1 multiplies the odds of success by 2.72.",
        "Outcome, known at the last step",
    )
    """A base and the sum of the rewards are the log-odds of success."""
    PREFERENCE = (
        *("preference", "preference", "preferences"),
        f"{_LOG_ODDS}if the sum of rewards of one piece is larger by 1, the odds that it is "
        "preferred are 2.72 to 1. Only differences of sums count.",
        "Observed rewards",
    )
    """The piece with the larger sum is preferred, with log-odds that are the difference of the
    sums."""

    @property
    def reward_unit(self) -> str:
        """What an axis of rewards shows."""
        return "log-odds" if self.unit else "reward"

    def predict(self, sums: Array, base: float = 0.0) -> Array:
        """Predict outcomes of episodes from sums of rewards; for success these are chances."""
        from grd_offline.core.statistics import give_chance

        return give_chance(sums + base) if self is Outcome.SUCCESS else sums


NUMBER, SUCCESS, PREFERENCE = Outcome
KINDS = tuple(outcome.value for outcome in Outcome)
CHOICES = ("auto", NUMBER.value, SUCCESS.value)
"""Kinds of outcomes that a user may ask for. Preferences are used whenever there are some."""


def describe_bands(outcome: Outcome, knows_std: bool) -> str:
    """Describe the conditions of the bands per step, which stand beside their numbers.

    A fit without bands of its own has bands that are equal for all steps.
    """
    if not knows_std:
        return (
            "The bands of steps are equally wide everywhere, as follows from the errors of "
            f"{outcome.plural} if the errors of steps are independent. They leave out everything "
            "that cancels over an episode."
        )
    return (
        f"The bands of steps include what {outcome.plural} cannot exclude, up to the size of the "
        "effects that were found. They assume that the noise of one step is independent of the "
        "noise of the others, and that the reward does not depend on earlier steps."
    )
