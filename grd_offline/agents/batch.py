"""The steps that an update learns from."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Steps(NamedTuple):
    """Single steps, drawn at random; all (member, batch, ...)."""

    observations: Tensor
    actions: Tensor
    next_observations: Tensor
    terminated: Tensor
    """1.0 where nothing follows."""
    delayed: Tensor
    """What the environment hands out at this step: the return at the last, else 0."""
    true: Tensor
    """The reward that nobody is told: for `oracle` alone."""
    returns: Tensor
    """Of the step's episode."""
