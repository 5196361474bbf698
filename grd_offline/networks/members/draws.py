"""Random numbers as a function of member, update and place, without any state but a counter.

A member's numbers depend on its own seed alone, so it gets the same ones in a group as alone, and
a run that is resumed goes on where it stopped. They are made on the device, for all members at
once, by mixing 64-bit integers (SplitMix64).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Float, Int

_GOLDEN = -7046029254386353131  # 2^64 divided by the golden ratio, as a signed number
_FIRST = -4658895280553007687
_SECOND = -7723592293110705685
_BITS = 23  # so many, and a half added, are exact in a float: never 0, never 1


class Uniform:
    """`count` numbers per member and update, uniform in the open interval from 0 to 1.

    Those of another `stream` or another update have nothing to do with these.
    """

    def __init__(self, seeds: Sequence[int], count: int, *, stream: int, device: Any) -> None:
        # Multiplied here once: inside a compiled kernel places are taken for 32-bit numbers.
        self._places = (torch.arange(count) * _GOLDEN).to(device)
        self._keys = _mix(torch.tensor(list(seeds)) * _GOLDEN + stream).to(device)

    def draw(
        self, counter: Int[Tensor, ""], part: slice = slice(None)
    ) -> Float[Tensor, "member count"]:
        """The numbers of an update, or some of them."""
        keys = _mix(self._keys + counter * _GOLDEN)
        bits = _shift(_mix(keys.unsqueeze(1) + self._places[part]), 64 - _BITS)
        return (bits.to(torch.float32) + 0.5) * 2.0**-_BITS


def to_normal(uniform: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Standard normal numbers: the inverse of the distribution function."""
    return torch.erfinv(2 * uniform - 1) * math.sqrt(2)


def to_gumbel(uniform: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Standard Gumbel numbers: -log(-log u)."""
    return -torch.log(-torch.log(uniform))


def to_index(
    uniform: Float[Tensor, "member count"], sizes: Int[Tensor, "member"]
) -> Int[Tensor, "member count"]:
    """Whole numbers from 0 to each member's size - 1, all equally likely."""
    index = (uniform.to(torch.float64) * sizes.unsqueeze(1)).to(torch.int64)
    return torch.minimum(index, (sizes - 1).clamp_min(0).unsqueeze(1))


def _mix(value: Tensor) -> Tensor:
    value = (value ^ _shift(value, 30)) * _FIRST
    value = (value ^ _shift(value, 27)) * _SECOND
    return value ^ _shift(value, 31)


def _shift(value: Tensor, places: int) -> Tensor:
    """Shift right, filling up with zeros: the sign is a bit like any other."""
    return (value >> places) & ((1 << (64 - places)) - 1)
