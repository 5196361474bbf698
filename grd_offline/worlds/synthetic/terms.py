"""Terms: shapes of one to three inputs, which rewards and dynamics are sums of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from grd_offline.core.typing import Array, IntArray

ACTION_SCALE = 3.0**0.5


def _sigmoid(values: Array) -> Array:
    return np.asarray(0.5 * (1 + np.tanh(0.5 * values)))


def _positive(values: Array) -> Array:
    return (values > 0).astype(np.float64)


Shape = Callable[..., Array]

# Each shape takes two parameters, p (a rate) and q (a shift), and then its inputs.
_SHAPES: dict[str, Shape] = {
    "linear": lambda p, q, u: u,
    "soft_linear": lambda p, q, u: 3 * np.tanh(u / 3),
    "tanh": lambda p, q, u: np.tanh(p * (u - q)),
    "square": lambda p, q, u: (u - q) ** 2,
    "cost": lambda p, q, u: -(u**2),
    "bump": lambda p, q, u: np.exp(-0.5 * (p * (u - q)) ** 2),
    "sine": lambda p, q, u: np.sin(p * u + q),
    "fast_sine": lambda p, q, u: np.sin(2 * p * u + q),
    "softplus": lambda p, q, u: np.logaddexp(0.0, 2 * p * (u - q)),
    "hinge": lambda p, q, u: np.abs(u - q),
    "step": lambda p, q, u: _positive(u - q),
    "product": lambda p, q, u, v: u * v,
    "tanh_product": lambda p, q, u, v: np.tanh(p * u) * np.tanh(p * v),
    "gate": lambda p, q, u, v: u * _sigmoid(3 * p * (v - q)),
    "soft_gate": lambda p, q, u, v: np.tanh(u) * _sigmoid(3 * p * (v - q)),
    "near": lambda p, q, u, v: np.exp(-0.5 * (p * (u - v)) ** 2),
    "tracking": lambda p, q, u, v: -((u / ACTION_SCALE - np.tanh(v)) ** 2),
    "switch": lambda p, q, u, v: _positive(v - q) * np.tanh(p * u),
    "sines": lambda p, q, u, v: np.sin(2 * p * u) * np.sin(1.5 * p * v + q),
    "modulated": lambda p, q, u, v: u * np.sin(2 * p * v + q),
    "flipped": lambda p, q, u, v: u * np.sign(v - q),
    "agreement": lambda p, q, u, v: np.sign(u) * np.sign(v),
    "product_3": lambda p, q, u, v, w: u * v * np.tanh(p * w),
    "tanh_3": lambda p, q, u, v, w: np.tanh(p * u) * np.tanh(p * v) * np.tanh(p * w),
    "flipped_3": lambda p, q, u, v, w: np.tanh(p * u) * v * np.sign(w),
    "sines_3": lambda p, q, u, v, w: np.sin(1.5 * p * u) * np.sin(1.5 * p * v) * np.tanh(w),
}

_SMOOTH_MAIN = ("linear", "square", "tanh", "bump", "sine", "softplus")
_SMOOTH_PAIR = ("product", "product", "tanh_product", "gate", "near")
_HARD_MAIN = (*_SMOOTH_MAIN, "fast_sine", "hinge", "step")
_HARD_PAIR = ("switch", "switch", "sines", "modulated", "flipped", "agreement", "product", "gate")
REWARD_SHAPES: dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "smooth": (_SMOOTH_MAIN, _SMOOTH_PAIR, ("product_3", "tanh_3")),
    "hard": (_HARD_MAIN, _HARD_PAIR, ("tanh_3", "flipped_3", "sines_3")),
}
DYNAMICS_SHAPES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "smooth": (("soft_linear", "soft_linear", "tanh", "sine"), ("tanh_product", "soft_gate")),
    "hard": (("soft_linear", "tanh", "sine", "bump", "step"), ("tanh_product", "switch", "sines")),
}
MAIN_PROBABILITY = {"smooth": 0.8, "hard": 0.5}


class Term(NamedTuple):
    """A shape applied to some components of z = (states, actions): one summand, before weights."""

    shape: str
    inputs: tuple[int, ...]
    rate: float
    shift: float


class _Group(NamedTuple):
    """All terms of one shape, evaluated at once."""

    shape: Shape
    columns: IntArray
    inputs: IntArray  # (arity, term)
    rates: Array
    shifts: Array


@dataclass
class TermTable:
    """Terms in the order given, each centred and scaled by what `calibrate` last saw."""

    terms: tuple[Term, ...]
    means: Array = field(init=False)
    stds: Array = field(init=False)

    def __post_init__(self) -> None:
        self.means = np.zeros(len(self.terms))
        self.stds = np.ones(len(self.terms))

    @cached_property
    def _groups(self) -> tuple[_Group, ...]:
        names = sorted({term.shape for term in self.terms})
        return tuple(self._group(name) for name in names)

    def _group(self, name: str) -> _Group:
        columns = [k for k, term in enumerate(self.terms) if term.shape == name]
        return _Group(
            _SHAPES[name],
            np.array(columns),
            np.array([self.terms[k].inputs for k in columns]).T,
            np.array([self.terms[k].rate for k in columns]),
            np.array([self.terms[k].shift for k in columns]),
        )

    def raw(self, inputs: Array) -> Array:
        """(..., state + action) -> (..., term), not standardised."""
        values = np.empty((*inputs.shape[:-1], len(self.terms)))
        for group in self._groups:
            columns = [inputs[..., index] for index in group.inputs]
            values[..., group.columns] = group.shape(group.rates, group.shifts, *columns)
        return values

    def standardised(self, inputs: Array) -> Array:
        return np.asarray((self.raw(inputs) - self.means) / self.stds)

    def calibrate(self, inputs: Array) -> None:
        values = self.raw(inputs)
        samples = tuple(range(values.ndim - 1))
        self.means = values.mean(samples)
        self.stds = np.maximum(values.std(samples), 1e-3)


def draw_term(rng: np.random.Generator, shapes: Sequence[str], inputs: tuple[int, ...]) -> Term:
    shape = shapes[int(rng.integers(len(shapes)))]
    return Term(shape, inputs, float(rng.uniform(0.8, 1.5)), float(rng.uniform(-0.7, 0.7)))
