"""The contract of every reward function: a reward per step that can be written to disk.

A kind of reward function is a class that inherits from `RewardFunction` and is named in `_KINDS`.
It is imported when it is first asked for, so that a model of effects needs no torch. `ConfigReader`
and `check_tensors` check what was saved.
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from grd_offline.core.inputs import InputRef
from grd_offline.core.outcomes import Outcome
from grd_offline.core.steps import StepBatch
from grd_offline.core.typing import Array

if TYPE_CHECKING:
    import torch


Steps = StepBatch[NDArray[Any]]
Shapes = Mapping[str, tuple[int, ...]]
"""The shapes of some tensors."""
Headers = dict[str, tuple[str, tuple[int, ...]]]
"""The type and the shape of each tensor, as the header of a file has them."""


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

    def config(self) -> dict[str, Any]:
        """Return the kind, and everything that `from_parts` needs besides the tensors, as plain
        JSON."""
        return {"kind": self.kind, "states": self.states, "actions": self.actions}

    @abstractmethod
    def tensors(self) -> dict[str, NDArray[Any]]:
        """Return the numbers that were learned."""

    @classmethod
    @abstractmethod
    def expected_tensors(cls, config: Mapping[str, Any], shapes: Shapes) -> Headers:
        """Return the type and shape of every tensor by its name. Free sizes are those of `shapes`.

        A file is compared with them before any of its tensors is read.
        """

    @classmethod
    @abstractmethod
    def from_parts(cls, config: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]) -> Self:
        """Make the function with this config and these tensors.

        ValueError names the first part that does not fit.
        """

    def take_names(self, observation_names: Sequence[str], action_names: Sequence[str]) -> Self:
        """The function of inputs of these names; ValueError where it does not belong to them."""
        if (self.states, self.actions) != (len(observation_names), len(action_names)):
            names = f"{len(observation_names)} and {len(action_names)} names"
            sizes = f"{self.states} state and {self.actions} action dimensions"
            raise ValueError(f"function: {sizes}, but {names}")
        return self


class ConfigReader:
    """Reads a function's config field by field; ValueError names the first that does not fit."""

    def __init__(self, config: Mapping[str, Any], kind: str) -> None:
        self._left = dict(config)
        self.choice("kind", (kind,))

    def take(self, name: str) -> Any:
        """A field of any type."""
        if name not in self._left:
            raise ValueError(f"config: {name}: missing")
        return self._left.pop(name)

    def choice(self, name: str, known: tuple[str | int, ...]) -> str:
        """One of the values that are known."""
        value = self.take(name)
        if value not in known:
            raise _describe(name, " or ".join(map(str, known)), value)
        return str(value)

    def whole(self, name: str, most: int = 2**20, least: int = 1) -> int:
        """A whole number from `least` to `most`."""
        return self._check_whole(name, self.take(name), most, least)

    def wholes(self, name: str) -> tuple[int, ...]:
        """Read at most 16 whole numbers."""
        values = self.take(name)
        if not isinstance(values, list | tuple) or len(values) > 16:
            raise _describe(name, "at most 16 whole numbers", values)
        return tuple(self._check_whole(name, value) for value in values)

    def indices(self, name: str, below: int) -> tuple[int, ...]:
        """Ascending whole numbers from 0, at least one of them."""
        values = self.take(name)
        right = isinstance(values, list | tuple) and all(type(value) is int for value in values)
        if not right or list(values) != sorted({v for v in values if 0 <= v < below}) or not values:
            expected = f"expected ascending whole numbers from 0 to {below - 1}"
            raise ValueError(f"config: {name}: {expected}")
        return tuple(values)

    def flag(self, name: str) -> bool:
        """Read True or False."""
        value = self.take(name)
        if not isinstance(value, bool):
            raise _describe(name, "true or false", value)
        return value

    def names(self, name: str) -> tuple[str, ...]:
        """Read a list of strings."""
        return check_names(f"config: {name}", self.take(name))

    def number(self, name: str) -> float:
        """Read a finite number."""
        value = self.take(name)
        if type(value) not in (int, float) or not abs(value) <= sys.float_info.max:
            raise _describe(name, "a finite number", value)
        return float(value)

    def done(self) -> None:
        """Refuse fields that nobody has read."""
        for name in self._left:
            raise ValueError(f"config: {name:.40}: not known")

    def read_sizes(self, most: int = 2**20) -> tuple[int, int]:
        """The number of state and action dimensions, in a config that holds nothing else."""
        sizes = self.whole("states", most), self.whole("actions", most, least=0)
        self.done()
        return sizes

    @staticmethod
    def _check_whole(name: str, value: Any, most: int = 2**20, least: int = 1) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise _describe(name, f"a whole number from {least}", value)
        return value


def _describe(name: str, expected: str, value: Any) -> ValueError:
    return ValueError(f"config: {name}: expected {expected}, got {value!r:.40}")


def check_names(field: str, names: Any) -> tuple[str, ...]:
    """The names as a tuple; ValueError where they are not a list of strings."""
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{field}: expected a list of strings")
    return tuple(names)


def check_tensors(expected: Headers, tensors: Mapping[str, NDArray[Any]]) -> None:
    """ValueError names the first tensor that is missing, unknown, misshapen or not finite."""
    for name, (dtype, shape) in expected.items():
        if name not in tensors:
            raise ValueError(f"tensors: {name}: missing")
        value = tensors[name]
        if value.shape != shape:
            raise ValueError(f"tensors: {name}: expected shape {shape}, got {value.shape}")
        if value.dtype != np.dtype(dtype):
            raise ValueError(f"tensors: {name}: expected {dtype}, got {value.dtype}")
        if not np.isfinite(value).all():
            raise ValueError(f"tensors: {name}: not finite")
    for name in tensors:
        if name not in expected:
            raise ValueError(f"tensors: {name}: not known")


Kind = TypeVar("Kind", bound=type[RewardFunction])

_KINDS: dict[str, str | type[RewardFunction]] = {
    "effects": "grd_offline.rewards.effects:EffectModel",
    "network": "grd_offline.rewards.network:NetworkFunction",
    "quadratic": "grd_offline.rewards.quadratic:QuadraticFunction",
    "constant": "grd_offline.rewards.constant:ConstantFunction",
}


def register_kind(kind: Kind) -> Kind:
    """Add a kind of another package, so that its models can be loaded; usable as a decorator."""
    if _KINDS.setdefault(kind.kind, kind) is not kind:
        raise ValueError(f"kind: there is another reward function called {kind.kind!r}")
    return kind


def find_kind(name: object) -> type[RewardFunction]:
    """The class of the kind with this name."""
    if not isinstance(name, str) or name not in _KINDS:
        raise ValueError(f"kind: expected {', '.join(_KINDS)}, got {name!r:.40}")
    found = _KINDS[name]
    kind: type[RewardFunction] = resolve_name(found) if isinstance(found, str) else found
    return kind
