"""A reward as a constant plus effects of one, two or three inputs: evaluate, explain, store.

    g(s, a) = c + sum_i f_i(x_i) + sum_ij f_ij(x_i, x_j) + sum_ijk f_ijk(x_i, x_j, x_k)

Each input has a few one-dimensional features, kept as a table over an even grid and interpolated
linearly between its points; beyond the grid they stay at its ends. An effect is linear in the
products of its inputs' features, so a pair is a bilinear form phi_i^T W phi_j. Weights have a
Gaussian posterior, kept as a mean and a factor of the covariance.

Needs numpy, and torch only in `EffectModel.torch`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, reduce
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grd_offline.rewards.effect_spread import SpreadTable

if TYPE_CHECKING:
    import torch

Array = NDArray[np.float64]

FORMAT_VERSION = 1
MAX_ORDER = 3
_BLOCK = 4096  # steps evaluated at once: what a block needs stays in the processor's cache
_CURVE_POINTS = {1: 65, 2: 33, 3: 9}


class EffectCurve(NamedTuple):
    """One effect over a grid: a curve, a surface, or a small cube."""

    inputs: tuple[str, ...]
    """Names of its inputs."""
    grids: tuple[Array, ...]
    """Of each input, the grid in the units of the data."""
    mean: Array
    """(grid of the first input, of the second, ...) the effect, zero on average over the data."""
    std: Array
    """The same shape: posterior standard deviation, inflated as the model's intervals are."""
    share: float
    """Of the reward's variance over the data: covariance with the whole reward; sums to 1."""


@dataclass(frozen=True, eq=False)
class EffectModel:
    """A reward function as a sum of effects; arrays in float64, checked when made."""

    kind: ClassVar[str] = "effects"

    observation_names: tuple[str, ...]
    action_names: tuple[str, ...]
    columns: NDArray[np.int64]
    """(input,) which column of [observations, actions, next observations] each input is."""
    low: Array
    """(input,) where its grid begins, in the units of the data."""
    high: Array
    """(input,) where its grid ends."""
    tables: Array
    """(input, grid, feature) its features at the grid's points; zeros where it has fewer."""
    effects: tuple[tuple[int, ...], ...]
    """Of each effect, its inputs: positions in `columns`, increasing."""
    sizes: tuple[int, ...]
    """Of each effect, how many features of each of its inputs it is made of: the first so many."""
    constant: float
    """c: the reward where every feature is at its centre."""
    weights: Array
    """(weight,) of the effects one after another; an effect of k inputs has size^k."""
    centres: Array
    """(weight,) average of each product of features over the data."""
    factor: Array
    """(weight, rank) F with F F^T near the posterior covariance of the weights."""
    residual_variance: float
    """What F F^T leaves out of the reward's variance per step, on average."""
    constant_variance: float
    """Posterior variance of c."""
    noise_variance: float
    """Variance of the reward about its mean, per step."""
    inflation: float
    """By how much intervals are widened so that they hold on returns that were left out."""
    shares: Array
    """(effect,) share of each in the reward's variance; see `EffectCurve`."""

    def __post_init__(self) -> None:
        self._check_effects()
        free = {name: np.shape(getattr(self, name)) for name in _FREE}
        for name, shape in _shapes(self.effects, self.sizes, free).items():
            value = np.ascontiguousarray(getattr(self, name), _DTYPES.get(name, np.float64))
            if value.shape != shape:
                raise ValueError(f"{name}: expected shape {shape}, got {value.shape}")
            if not np.isfinite(value).all():
                raise ValueError(f"{name}: not finite")
            value.flags.writeable = False
            object.__setattr__(self, name, value)
        self._check_inputs()
        for name in _SCALARS:
            number = getattr(self, name)
            if not math.isfinite(number) or (name != "constant" and number < 0):
                raise ValueError(f"{name}: expected a finite, non-negative number, got {number!r}")

    def _check_inputs(self) -> None:
        width = 2 * len(self.observation_names) + len(self.action_names)
        if self.columns.size and not 0 <= self.columns.min() <= self.columns.max() < width:
            raise ValueError(f"columns: expected 0 to {width - 1}, got {self.columns.tolist()}")
        if (self.high <= self.low).any():
            raise ValueError("high: expected more than low")
        with np.errstate(over="ignore"):
            cells = self.tables.shape[1] / (self.high - self.low)
        if not (np.isfinite(cells) & (cells > 0)).all():
            raise ValueError("low, high: expected a range that can be cut into cells")

    def _check_effects(self) -> None:
        for effect in self.effects:
            known = effect and effect[0] >= 0 and effect[-1] < len(self.columns)
            rising = all(a < b for a, b in pairwise(effect))
            if not known or not rising or len(effect) > MAX_ORDER:
                raise ValueError(
                    f"effects: {effect!s:.80} is not 1 to {MAX_ORDER} increasing inputs"
                )
        if len(set(self.effects)) < len(self.effects):
            raise ValueError("effects: expected each of them once")

    @property
    def needs_next(self) -> bool:
        """Whether an input is part of the next observation."""
        return bool((self.columns >= len(self.observation_names) + len(self.action_names)).any())

    @property
    def input_names(self) -> tuple[str, ...]:
        """Of each input; those of the next observation end in a prime."""
        following = tuple(f"{name}'" for name in self.observation_names)
        every = self.observation_names + self.action_names + following
        return tuple(every[column] for column in self.columns)

    def predict(
        self,
        observations: ArrayLike,
        actions: ArrayLike,
        next_observations: ArrayLike | None = None,
    ) -> Array:
        """(step,) the expected reward of each step."""
        inputs = self.select_inputs(observations, actions, next_observations).T
        rewards = np.empty(inputs.shape[1])
        for block in _blocks(len(rewards)):
            rewards[block] = self._predict_block(*self._place(inputs[:, block]))
        return rewards

    def predict_std(
        self,
        observations: ArrayLike,
        actions: ArrayLike,
        next_observations: ArrayLike | None = None,
        *,
        noise: bool = True,
    ) -> Array:
        """(step,) standard deviation of the reward; with `noise` False, of its mean only.

        inflation * sqrt(|F^T (phi - centre)|^2 + residual + constant's (+ noise) variance)
        """
        inputs = self.select_inputs(observations, actions, next_observations).T
        variances = np.empty(inputs.shape[1])
        for block in _blocks(len(variances)):
            variances[block] = self._spread.compute_variances(*self._place(inputs[:, block]))
        return self._std(variances, noise)

    def predict_both(
        self,
        observations: ArrayLike,
        actions: ArrayLike,
        next_observations: ArrayLike | None = None,
    ) -> tuple[Array, Array]:
        """`predict` and `predict_std` of the same steps, which are looked up only once."""
        inputs = self.select_inputs(observations, actions, next_observations).T
        rewards, variances = np.empty((2, inputs.shape[1]))
        for block in _blocks(len(rewards)):
            place = self._place(inputs[:, block])
            rewards[block] = self._predict_block(*place)
            variances[block] = self._spread.compute_variances(*place)
        return rewards, self._std(variances, True)

    def _std(self, variances: Array, noise: bool) -> Array:
        more = self.residual_variance + self.constant_variance
        return np.asarray(
            self.inflation * np.sqrt(variances + more + (self.noise_variance if noise else 0.0))
        )

    def expand(self, inputs: ArrayLike) -> Array:
        """(step, weight) products of features: reward = constant + (expand - centres) @ weights."""
        values = np.atleast_2d(np.asarray(inputs, np.float64))
        features = self._features(values.T)
        parts = [
            multiply_features([features[i][:, :size] for i in effect])
            for effect, size in zip(self.effects, self.sizes, strict=True)
        ]
        return np.concatenate(parts, 1) if parts else np.zeros((len(values), 0))

    def effect_curves(self) -> tuple[EffectCurve, ...]:
        """Every effect over a grid, with its band and its share of the variance.

        Effects of the same columns (a smooth and a rough part, say) are one curve.
        """
        groups: dict[tuple[int, ...], list[int]] = {}
        for k, effect in enumerate(self.effects):
            groups.setdefault(tuple(int(self.columns[i]) for i in effect), []).append(k)
        return tuple(self._curve(members) for members in groups.values())

    def torch(self, dtype: torch.dtype | None = None) -> torch.nn.Module:
        """The same function as a module: (..., state), (..., action) -> (...), with gradients."""
        from grd_offline.rewards.effect_module import EffectModule

        names = ("low", "high", "tables", "weights")
        return EffectModule(
            [int(column) for column in self.columns],
            list(zip(self.effects, self.sizes, strict=True)),
            {name: np.array(getattr(self, name)) for name in names},
            self._offset,
            dtype,
        )

    def tensors(self) -> dict[str, NDArray[Any]]:
        """All arrays, by name; with `config`, everything there is."""
        return {name: np.array(getattr(self, name)) for name in _ARRAYS}

    def config(self) -> dict[str, Any]:
        """All that is no array, for JSON."""
        return {
            "format_version": FORMAT_VERSION,
            "observation_names": list(self.observation_names),
            "action_names": list(self.action_names),
            "effects": [list(effect) for effect in self.effects],
            "sizes": list(self.sizes),
            **{name: float(getattr(self, name)) for name in _SCALARS},
        }

    @classmethod
    def from_parts(
        cls, config: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]
    ) -> EffectModel:
        """The model whose `config` and `tensors` these are; ValueError at the first mismatch."""
        _check_config(config)
        for name in (*_ARRAYS, *tensors):
            if (name in _ARRAYS) != (name in tensors):
                raise ValueError(f"{name}: {'missing' if name in _ARRAYS else 'unknown'} tensor")
            dtype = np.dtype(_DTYPES.get(name, np.float64))
            if tensors[name].dtype != dtype:
                raise ValueError(f"{name}: expected {dtype}, got {tensors[name].dtype}")
        parts: dict[str, Any] = {name: float(config[name]) for name in _SCALARS} | dict(tensors)
        return cls(
            observation_names=tuple(config["observation_names"]),
            action_names=tuple(config["action_names"]),
            effects=tuple(tuple(effect) for effect in config["effects"]),
            sizes=tuple(config["sizes"]),
            **parts,
        )

    @classmethod
    def expected_tensors(
        cls, config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]
    ) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Type and shape of every tensor: grid, features and rank are those of `shapes`."""
        _check_config(config)
        for name in _FREE:
            if name not in shapes:
                raise ValueError(f"{name}: missing tensor")
        expected = _shapes(config["effects"], config["sizes"], shapes)
        return {
            name: (np.dtype(_DTYPES.get(name, np.float64)).name, shape)
            for name, shape in expected.items()
        }

    def effect_slices(self) -> Iterator[tuple[tuple[int, ...], slice]]:
        """Each effect with its place among the weights."""
        start = 0
        for effect, size in zip(self.effects, self.sizes, strict=True):
            stop = start + size ** len(effect)
            yield effect, slice(start, stop)
            start = stop

    def select_inputs(
        self,
        observations: ArrayLike,
        actions: ArrayLike,
        following: ArrayLike | None = None,
    ) -> Array:
        """(step, input) the columns that are used, checked; each lies in memory in one piece."""
        states, choices = np.asarray(observations), np.asarray(actions)
        parts = [states, choices] if following is None else [states, choices, np.asarray(following)]
        sizes = (len(self.observation_names), len(self.action_names), len(self.observation_names))
        names = ("observations", "actions", "next_observations")
        for part, size, name in zip(parts, sizes, names, strict=False):
            if part.shape != (len(states), size):
                raise ValueError(f"{name}: expected ({len(states)}, {size}), got {part.shape}")
        if self.needs_next and following is None:
            raise ValueError("next_observations: this model needs them, got None")
        first, second = sizes[0], sizes[0] + sizes[1]
        chosen = np.empty((len(self.columns), len(states)))
        for i, column in enumerate(self.columns):
            which = int(column >= first) + int(column >= second)
            chosen[i] = parts[which][:, column - (0, first, second)[which]]
        return chosen.T

    def _place(self, inputs: Array) -> tuple[NDArray[np.int64], Array]:
        """Grid cell of each value (input, step) and position within it, 0 to 1; clamped."""
        cells = self.tables.shape[1] - 1
        low, high = self.low[:, None], self.high[:, None]
        place = (np.clip(inputs, low, high) - low) * (cells / (high - low))
        cell = np.minimum(place.astype(np.int64), cells - 1)
        return cell, place - cell

    def _features(self, inputs: Array) -> list[Array]:
        """(step, feature) of each input."""
        places = zip(self.tables, self._slopes, *self._place(inputs), strict=True)
        return [table[cell] + part[:, None] * slope[cell] for table, slope, cell, part in places]

    @cached_property
    def _slopes(self) -> Array:
        return np.diff(self.tables, axis=1)

    @cached_property
    def _curves(self) -> dict[int, tuple[Array, Array]]:
        """Main effects as curves over their grid, with slopes."""
        curves = {}
        for (effect, part), size in zip(self.effect_slices(), self.sizes, strict=True):
            if len(effect) == 1:
                curve = self.tables[effect[0], :, :size] @ self.weights[part]
                curves[effect[0]] = (curve, np.diff(curve))
        return curves

    @cached_property
    def _offset(self) -> float:
        return float(self.constant - self.centres @ self.weights)

    @cached_property
    def _spread(self) -> SpreadTable:
        places = zip(self.effect_slices(), self.sizes, strict=True)
        effects = [(effect, place, size) for (effect, place), size in places]
        return SpreadTable(self.tables, effects, self.factor, self.centres)

    def _predict_block(self, cells: NDArray[np.int64], parts: Array) -> Array:
        rewards = np.full(cells.shape[1], self._offset)
        joint = {i for effect in self.effects if len(effect) > 1 for i in effect}
        features = {}
        for i, (cell, part) in enumerate(zip(cells, parts, strict=True)):
            if i in self._curves:
                curve, slope = self._curves[i]
                rewards += curve[cell] + part * slope[cell]
            if i in joint:
                features[i] = self.tables[i][cell] + part[:, None] * self._slopes[i][cell]
        for (effect, part_of), size in zip(self.effect_slices(), self.sizes, strict=True):
            if len(effect) > 1:
                value = features[effect[0]][:, :size] @ self.weights[part_of].reshape(size, -1)
                for i in effect[1:-1]:
                    cube = value.reshape(len(value), size, -1)
                    value = np.einsum("njk,nj->nk", cube, features[i][:, :size])
                rewards += np.einsum("nk,nk->n", value, features[effect[-1]][:, :size])
        return rewards

    def _curve(self, members: list[int]) -> EffectCurve:
        """The sum of some effects of the same columns."""
        places = list(self.effect_slices())
        first = self.effects[members[0]]
        points = _CURVE_POINTS[len(first)]
        grids = tuple(np.linspace(self.low[i], self.high[i], points) for i in first)
        axes = [axis.ravel() for axis in np.meshgrid(*grids, indexing="ij")]
        mean, spread = np.zeros(len(axes[0])), np.zeros((len(axes[0]), self.factor.shape[1]))
        for k in members:
            effect, part = places[k]
            values = np.repeat(self.low[:, None], len(axes[0]), 1)
            values[list(effect)] = axes
            features = self._features(values)
            products = multiply_features([features[i][:, : self.sizes[k]] for i in effect])
            centred = products - self.centres[part]
            mean += centred @ self.weights[part]
            spread += centred @ self.factor[part]
        shape = (points,) * len(first)
        std = self.inflation * np.sqrt((spread**2).sum(1))
        names = tuple(self.input_names[i] for i in first)
        share = float(self.shares[members].sum())
        return EffectCurve(names, grids, mean.reshape(shape), std.reshape(shape), share)


_FREE = ("columns", "tables", "factor")
"""Arrays whose shapes say how many inputs, grid points, features and columns of F there are."""
_DTYPES = {"columns": np.int64}
_MAX_FEATURES = 4096
_MAX_SPREAD = 2**28
"""Of one input, and of all inputs times the rank of F: far beyond what a fit makes. A prediction
takes memory for so much, which a small file must not be able to ask for."""
_ARRAYS = ("columns", "low", "high", "tables", "weights", "centres", "factor", "shares")
_SCALARS = (
    "constant",
    "residual_variance",
    "constant_variance",
    "noise_variance",
    "inflation",
)
assert {*_ARRAYS, *_SCALARS} <= {field.name for field in fields(EffectModel)}


def _blocks(steps: int) -> Iterator[slice]:
    return (slice(start, start + _BLOCK) for start in range(0, steps, _BLOCK))


def multiply_features(features: Iterable[Array]) -> Array:
    """(step, product) every product of one feature of each input."""
    return reduce(
        lambda left, right: (left[:, :, None] * right[:, None, :]).reshape(len(left), -1), features
    )


def _shapes(
    effects: Sequence[Sequence[int]], sizes: Sequence[int], free: Mapping[str, tuple[int, ...]]
) -> dict[str, tuple[int, ...]]:
    """What each array's shape has to be, given the effects and the shapes that are free."""
    if [len(free[name]) for name in _FREE] != [1, 3, 2]:
        raise ValueError("columns, tables, factor: expected 1, 3 and 2 dimensions")
    (count,), (_, grid, features), (_, rank) = (free[name] for name in _FREE)
    if grid < 2:
        raise ValueError(f"tables: expected at least 2 grid points, got {grid}")
    if features > _MAX_FEATURES:
        raise ValueError(f"tables: expected at most {_MAX_FEATURES} features, got {features}")
    if len(sizes) != len(effects):
        raise ValueError(f"sizes: expected {len(effects)}, got {len(sizes)}")
    for size in sizes:
        if not 1 <= size <= features:
            raise ValueError(f"sizes: expected 1 to {features} each, got {size!r:.40}")
    weights = sum(size ** len(effect) for size, effect in zip(sizes, effects, strict=True))
    if count * features * min(rank, weights) > _MAX_SPREAD:
        raise ValueError(
            f"factor: {count} inputs of {features} features with rank {rank} are too many"
        )
    return {
        "columns": (count,),
        "low": (count,),
        "high": (count,),
        "tables": (count, grid, features),
        "weights": (weights,),
        "centres": (weights,),
        "factor": (weights, rank),
        "shares": (len(effects),),
    }


def _check_config(config: Mapping[str, Any]) -> None:
    """Refuse what `config()` could not have written."""
    wanted = {"format_version", "observation_names", "action_names", "effects", "sizes", *_SCALARS}
    for name in sorted(wanted ^ (set(config) - {"kind"})):
        reason = "missing" if name in wanted else "unknown"
        raise ValueError(f"{name:.40}: {reason} in config")
    if config["format_version"] != FORMAT_VERSION:
        raise ValueError(
            f"format_version: expected {FORMAT_VERSION}, got {config['format_version']!r:.40}"
        )
    for name in ("observation_names", "action_names"):
        value = config[name]
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise ValueError(f"{name}: expected a list of strings")
    if not isinstance(config["effects"], list) or not all(
        isinstance(effect, list)
        and 1 <= len(effect) <= MAX_ORDER
        and all(type(i) is int for i in effect)
        for effect in config["effects"]
    ):
        raise ValueError(f"effects: expected lists of 1 to {MAX_ORDER} whole numbers")
    if not isinstance(config["sizes"], list) or not all(type(i) is int for i in config["sizes"]):
        raise ValueError("sizes: expected a list of whole numbers")
    for name in _SCALARS:
        number = config[name]
        right = type(number) in (int, float) and abs(number) <= sys.float_info.max
        if not right:
            raise ValueError(f"{name}: expected a finite number, got {number!r:.40}")
