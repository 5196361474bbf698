"""The settings of `grd_offline.decompose` and of the command."""

from __future__ import annotations

from dataclasses import dataclass

from grd_offline.additive.moments import CHOICES
from grd_offline.core.errors import DataError
from grd_offline.core.outcomes import CHOICES as OUTCOMES
from grd_offline.core.outcomes import SUCCESS
from grd_offline.core.settings import Settings, setting
from grd_offline.methods.registry import AUTO, find_method, list_fits, list_names

COMPACT = ("closure", "one_hop")


@dataclass(frozen=True)
class DecomposeSettings(Settings):
    """Settings of a decomposition. The defaults are right for most data.

    Examples
    --------
    >>> DecomposeSettings("uniform", seed=1).method
    'uniform'
    """

    method: str = setting(
        "grd",
        "Method that finds the rewards. grd also finds the inputs that they depend on. The other "
        "methods are baselines.",
        names=list_names,
    )
    fit: str = setting(
        AUTO,
        "Model of the reward that grd fits. auto uses the closed form, unless another model "
        "predicts the returns of held-out episodes clearly better.",
        names=list_fits(),
    )
    gamma: float | None = setting(
        None,
        "Discount factor inside the returns. The default is that of the file, or 1.",
        above=0,
        at_most=1,
    )
    state_at: str = setting(
        "auto",
        "Moment of a step at which the reward looks at the state: its start (a reward of state and "
        "action), its end (a reward of the next state), or halfway. auto lets the returns decide, "
        "and uses the midpoint if they cannot.",
        names=CHOICES,
    )
    next_state: bool = setting(
        False, "Let the reward depend on the state and, separately, on the next state."
    )
    outcome: str = setting(
        "auto",
        "Kind of the outcomes: any number, or success (1) and failure (0). auto takes outcomes "
        "for success and failure if all are 0 or 1, unless step rewards that sum to them explain "
        "them exactly.",
        names=OUTCOMES,
    )
    step_rewards: bool = setting(
        False,
        "Use the rewards of single steps, if the data have them. By default, only their sum is "
        "used.",
    )
    exact_returns: bool = setting(
        False,
        "Make the rewards of every episode sum to its return exactly. The difference is spread "
        "over all steps.",
    )
    compact: str = setting(
        "closure",
        "Definition of the compact state. closure: every cause of the reward. one_hop: the "
        "parents of the reward and their parents.",
        names=COMPACT,
    )
    truth: str | None = setting(
        None,
        "Field, or column of a table, with the true step rewards, for comparison only. No fit "
        "uses it.",
    )
    seed: int = setting(0, "Seed of the random numbers.", at_least=0, at_most=2**63 - 1)
    device: str = setting("cpu", "Device that trains the networks.", names=("cpu", "cuda"))

    def __post_init__(self) -> None:
        super().__post_init__()
        method = find_method(self.method, self.fit)
        name = method.fit or method.name
        if self.next_state and not method.takes_next_state:
            raise DataError(f"{name} does not take the next state as an input", field="next_state")
        if self.state_at != AUTO and not method.takes_next_state:
            raise DataError(f"expected auto: {name} cannot choose the moment", field="state_at")
        if self.outcome == SUCCESS and name != "closed-form":
            raise DataError(f"{name} can only use outcomes that are numbers", field="outcome")
        if self.outcome == SUCCESS and self.exact_returns:
            raise DataError(
                "rewards that are log-odds do not sum to returns: leave this option out",
                field="exact_returns",
            )
        if self.state_at != AUTO and self.next_state:
            raise DataError("expected auto together with next_state", field="state_at")
