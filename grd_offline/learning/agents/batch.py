"""The steps that an update learns from."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Float, Int


class ReplaySteps(NamedTuple):
    """Steps of finished episodes, as a source of rewards sees them.

    The true rewards of the steps are not among them.
    """

    observations: Float[Tensor, "member batch state"]
    actions: Float[Tensor, "member batch action"]
    """Actions in the units of the environment."""
    next_observations: Float[Tensor, "member batch state"]
    terminated: Float[Tensor, "member batch"]
    """1 where the episode ends at this step by itself."""
    delivered: Float[Tensor, "member batch"]
    """The reward that the environment delivers: the return at the last step, otherwise 0."""
    returns: Float[Tensor, "member batch"]
    """The return of the episode that the step belongs to."""
    rows: Int[Tensor, "member batch"]
    """Rows of the replay that hold the steps."""


class Ahead(NamedTuple):
    """What comes of steps within the next few steps of their episodes."""

    rewards: Float[Tensor, "member batch"]
    """Sum of the rewards of these few steps, later ones discounted."""
    each: Float[Tensor, "member batch step"]
    """The rewards of these steps. Beyond the end of an episode, that of the first one."""
    counts: Float[Tensor, "member batch"]
    """Number of these steps: fewer than asked for where the episode ends before."""
    next_observations: Float[Tensor, "member batch state"]
    """Observations after the last of them."""
    terminated: Float[Tensor, "member batch"]
    """1 where the episode ends by itself at the last of them."""


class PolicyBatch(NamedTuple):
    """Steps as an agent sees them, with the rewards that it learns from.

    Observations are masked or normalised, and actions lie between -1 and 1. `uniform` are the
    random numbers between 0 and 1 that the update uses.
    """

    observations: Float[Tensor, "member batch state"]
    actions: Float[Tensor, "member batch action"]
    next_observations: Float[Tensor, "member batch state"]
    terminated: Float[Tensor, "member batch"]
    rewards: Float[Tensor, "member batch"]
    uniform: Float[Tensor, "member batch number"]
    ahead: Ahead | None = None
    """What targets look at, where they look further ahead than one step."""

    def look_ahead(self) -> PolicyBatch:
        """The steps with the states that targets ask the value of as next ones."""
        if self.ahead is None:
            return self
        return self._replace(next_observations=self.ahead.next_observations)
