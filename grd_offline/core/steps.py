"""A batch of steps: four named arrays, or four tensors, that say what happened at each step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
from numpy.typing import DTypeLike

from grd_offline.core.episodes import Episode, check_finite
from grd_offline.core.typing import AnyArray, Values

if TYPE_CHECKING:
    from torch import Tensor

Other = TypeVar("Other", AnyArray, "Tensor")


@dataclass(frozen=True, eq=False)
class StepBatch(Generic[Values]):
    """Some steps, in any order and of any episodes. Row t of each array belongs to step t."""

    observations: Values
    """(step, state)"""
    actions: Values
    """(step, action); one-hot where actions are discrete."""
    next_observations: Values | None = None
    """(step, state) the observation after each step. None where it is not known."""
    terminations: Values | None = None
    """(step,) whether the episode terminated at that step. A step at which an episode was truncated
    is not terminated. None where it is not known."""

    @classmethod
    def from_episode(cls, episode: Episode) -> StepBatch[AnyArray]:
        """All steps of an episode."""
        first = episode.observations[: len(episode)]
        return StepBatch(first, episode.actions, episode.next_observations, episode.terminations)

    @classmethod
    def from_batches(cls, batches: Sequence[StepBatch[AnyArray]]) -> StepBatch[AnyArray]:
        """The steps of several batches, one after the other. All have the same arrays."""
        columns = zip(*(batch.arrays for batch in batches), strict=True)
        joined: list[Any] = [None if part[0] is None else np.concatenate(part) for part in columns]
        return StepBatch(*joined)

    @property
    def arrays(self) -> tuple[Values, Values, Values | None, Values | None]:
        """The four arrays, in the order in which functions with positional arguments take them."""
        return self.observations, self.actions, self.next_observations, self.terminations

    def __len__(self) -> int:
        return len(self.observations)

    def __getitem__(self, rows: slice | AnyArray) -> StepBatch[Values]:
        return self.map(lambda part: part[rows])

    def map(self, function: Callable[[Values], Other]) -> StepBatch[Other]:
        """Apply a function to every array that is given."""
        given = self.arrays
        mapped: list[Any] = [None if part is None else function(part) for part in given]
        return StepBatch(*mapped)

    def check_shapes(
        self, states: int, actions: int, leading: tuple[int, ...] | None = None
    ) -> None:
        """Raise ValueError where an array does not have its shape.

        `leading` are the axes before the last one, which are (step,) if they are not given.
        """
        axes: tuple[int, ...] = (len(self),) if leading is None else tuple(leading)
        shapes = {
            "observations": (*axes, states),
            "actions": (*axes, actions),
            "next_observations": (*axes, states),
            "terminations": axes,
        }
        for part, (name, shape) in zip(self.arrays, shapes.items(), strict=True):
            if part is not None and part.shape != shape:
                is_first = leading is None and name == "observations"
                expected = f"(N, {states})" if is_first else str(shape)
                raise ValueError(f"{name}: expected shape {expected}, got {tuple(part.shape)}")

    def check_given(self, *, next_observations: bool, terminations: bool) -> None:
        """Raise ValueError where a reward depends on an array that was not given."""
        needed = {"next_observations": next_observations, "terminations": terminations}
        for name, is_needed in needed.items():
            if is_needed and getattr(self, name) is None:
                raise ValueError(f"{name}: missing, but this reward depends on them")

    def as_numbers(
        self: StepBatch[AnyArray], states: int, actions: int, dtype: DTypeLike | None = np.float32
    ) -> StepBatch[AnyArray]:
        """The steps as arrays of finite numbers; ValueError names the first that is not.

        They keep their type where `dtype` is None. Terminations stay as they are.
        """
        self.check_shapes(states, actions)
        parts: dict[str, AnyArray] = {}
        for name in ("observations", "actions", "next_observations"):
            part = getattr(self, name)
            if part is not None:
                with np.errstate(over="ignore"):
                    parts[name] = np.asarray(part, dtype)
                check_finite(parts[name], name, part)
        return replace(self, **parts)
