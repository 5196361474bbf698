"""The contract of every reward function: a reward per step that can be written to disk.

A kind of reward function is a class that inherits from `RewardFunction` and is named in
`grd_offline.rewards.registry`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from grd_offline.core.inputs import InputRef
from grd_offline.core.outcomes import Outcome
from grd_offline.core.steps import StepBatch
from grd_offline.core.typing import Array

if TYPE_CHECKING:
    import torch

Steps = StepBatch[NDArray[Any]]


class EffectCurve(NamedTuple):
    """One effect over a grid: a curve, a surface, or a small cube."""

    references: tuple[InputRef, ...]
    """What the inputs of the effect are."""
    grids: tuple[Array, ...]
    """The grid of each input, in the units of the data."""
    mean: Array
    """(grid of the first input, of the second, ...) the effect; its average over the data is 0."""
    std: Array
    """Posterior standard deviation, with the same shape. It is widened like the intervals of the
    model."""
    share: float
    """Share of the reward's variation over the data: the variance of this effect, divided by the
    sum of the variances of all effects. No share is negative, and all shares sum to 1. Where inputs
    are independent of each other, this is the Sobol index of the effect."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs."""
        return tuple(one.name for one in self.references)


class Explanation(NamedTuple):
    """A reward function taken apart into a constant and effects of a few inputs each."""

    constant: float = 0.0
    effects: tuple[EffectCurve, ...] = ()
    """Empty where the function is not a sum of effects."""


class RewardFunction(Protocol):
    """A reward per step as a function of the step, in a form that can be written to disk.

    `predict`, `torch`, `tensors`, `expected_tensors` and `from_parts` have to be written for every
    kind; the other methods have a default. A function that needs the next observations or the
    terminations and is not given them raises ValueError; see `StepBatch.check_given`.
    """

    kind: ClassVar[str]
    """Name of the kind in files and in the registry."""
    description: ClassVar[str]
    """Description of the reward for the model card, for example "a mean of neural networks"."""
    far_from_data: ClassVar[str]
    """Behaviour of the reward far from the data, for the model card, for example "the reward is the
    same"."""
    knows_std: ClassVar[bool] = False
    """Whether the function knows the standard deviation of its rewards."""
    states: int
    """Number of state dimensions."""
    actions: int
    """Number of action dimensions."""
    needs_next: bool = False
    """Whether the reward depends on the next observation."""
    at_midpoint: bool = False
    """Whether it depends on the midpoint (s + s') / 2 of each transition."""
    needs_termination: bool = False
    """Whether the reward depends on whether the episode terminated at this step."""
    outcome: Outcome = Outcome.NUMBER
    """Meaning of sums of rewards: a number, the log-odds of success, or a preference."""
    base: float = 0.0
    """Amount in the log-odds of success of every episode that belongs to none of its steps."""

    @abstractmethod
    def predict(self, batch: Steps) -> Array:
        """Predict the reward of each step: (N,)."""
        ...

    def predict_both(self, batch: Steps) -> tuple[Array, Array | None]:
        """Return `predict` and `predict_std` of the same steps."""
        return self.predict(batch), self.predict_std(batch)

    def predict_std(self, batch: Steps) -> Array | None:
        """Predict the standard deviation of the true reward around the prediction: (N,). None if it
        is not known."""
        return None

    def predict_sums(
        self, batch: Steps, *, weights: Array, starts: NDArray[np.int64]
    ) -> tuple[Array, Array | None]:
        """Predict weighted sums of rewards and their standard deviation: (segment,). None if it is
        not known.

        A segment goes from its start to the next segment's start, the last one to the last step.
        """
        rewards = self.predict(batch)
        return np.add.reduceat(rewards * weights, starts), None

    def explain(self) -> Explanation:
        """Return the effects whose sum is the function. There are none if it is not such a sum."""
        return Explanation()

    def draw_inputs(self, rng: np.random.Generator, count: int) -> Array:
        """Draw steps to try an exported function on: (count, state + action + state + 1).

        Observation, action, next observation and 1 where the episode terminated. They lie within
        the range of the data where the function knows it.
        """
        rows = np.zeros((count, 2 * self.states + self.actions + 1))
        rows[:, :-1] = rng.normal(size=(count, rows.shape[1] - 1))
        if self.needs_termination:
            rows[:, -1] = rng.random(count) < 0.5
        return rows

    @abstractmethod
    def torch(self) -> torch.nn.Module:
        """Return the function as a module: a `StepBatch` of tensors -> (...,).

        The tensors are (..., state), (..., action), (..., state) or None, and (...,) or None.
        """
        ...

    def config(self) -> dict[str, Any]:
        """Return the kind, and everything that `from_parts` needs besides the tensors, as plain
        JSON."""
        return {"kind": self.kind, "states": self.states, "actions": self.actions}

    @abstractmethod
    def tensors(self) -> dict[str, NDArray[Any]]:
        """Return the numbers that were learned."""
        ...

    @classmethod
    @abstractmethod
    def expected_tensors(
        cls, config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]
    ) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Return the type and shape of every tensor by its name. Free sizes are those of `shapes`.

        A file is compared with them before any of its tensors is read.
        """
        ...

    @classmethod
    @abstractmethod
    def from_parts(cls, config: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]) -> Self:
        """Make the function with this config and these tensors.

        ValueError names the first part that does not fit.
        """
        ...

    def take_names(self, observation_names: Sequence[str], action_names: Sequence[str]) -> Self:
        """The function of inputs of these names; ValueError where it does not belong to them."""
        if (self.states, self.actions) != (len(observation_names), len(action_names)):
            raise ValueError(
                f"function: {self.states} state and {self.actions} action dimensions, but "
                f"{len(observation_names)} and {len(action_names)} names"
            )
        return self
