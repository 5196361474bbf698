"""A reward as a constant plus effects of one to four inputs: evaluate, explain, store.

    g(s, a) = c + sum_i f_i(x_i) + sum_ij f_ij(x_i, x_j) + sum_ijk f_ijk(x_i, x_j, x_k)

Each input has a few one-dimensional features, kept as a table over an even grid and interpolated
linearly between its points; beyond the grid they stay at its ends. An effect is linear in the
products of its inputs' features, so a pair is a bilinear form phi_i^T W phi_j. Weights have a
Gaussian posterior, kept as a mean and a factor of the covariance.

Needs numpy, and torch only in `EffectModel.torch`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grd_offline.additive.basis import multiply_features
from grd_offline.core.inputs import (
    END,
    MIDPOINT,
    TERMINATED,
    InputRef,
    StepColumns,
    list_inputs,
    put_inputs,
    select_inputs,
)
from grd_offline.core.interpolation import GridTables, interpolate
from grd_offline.core.outcomes import KINDS, Outcome
from grd_offline.core.typing import IntArray
from grd_offline.rewards.config import check_tensors
from grd_offline.rewards.contract import Array, EffectCurve, Explanation, RewardFunction, Steps
from grd_offline.rewards.effect_parts import (
    FORMAT_VERSION,
    FREE,
    MAX_ORDER,
    SCALARS,
    SIGNED,
    find_dtype,
    find_shapes,
    read_fields,
)
from grd_offline.rewards.effect_spread import SpreadTable

if TYPE_CHECKING:
    import torch

_BLOCK = 4096  # Steps evaluated at once: what a block needs stays in the processor's cache.
_BESIDE_THRESHOLD = 100
"""Widths of a threshold's table that are drawn to either side of it."""
_CURVE_POINTS = {1: 65, 2: 33, 3: 9, 4: 5}


@dataclass(frozen=True, eq=False)
class EffectModel(RewardFunction):
    """A reward function as a sum of effects; arrays in float64, checked when made."""

    kind: ClassVar[str] = "effects"
    description: ClassVar[str] = "a sum of smooth effects of one to four inputs, kept as tables"
    far_from_data: ClassVar[str] = "the reward is that of the nearest data"
    knows_std: ClassVar[bool] = True

    observation_names: tuple[str, ...]
    action_names: tuple[str, ...]
    columns: NDArray[np.int64]
    """(input,) which column of [observations, actions, terminated, next observations, midpoints]
    each input is; see `StepColumns`."""
    low: Array
    """(input,) where its grid begins, in the units of the data."""
    high: Array
    """(input,) where its grid ends."""
    tables: Array
    """(input, grid, feature) its features at the grid's points; zeros where it has fewer."""
    effects: tuple[tuple[int, ...], ...]
    """Inputs of each effect: increasing positions in `columns`."""
    sizes: tuple[int, ...]
    """Number of features of each input of each effect. The effect uses the first ones."""
    constant: float
    """The constant c: the reward if every feature is at its centre."""
    weights: Array
    """(weight,) of the effects one after another; an effect of k inputs has size^k."""
    centres: Array
    """(weight,) average of each product of features over the data."""
    factor: Array
    """(weight, rank) F with F F^T near the posterior covariance of the weights."""
    residual_variance: float
    """The mean variance of the reward per step that F F^T leaves out."""
    constant_variance: float
    """Posterior variance of c."""
    noise_variance: float
    """Variance of the reward about its mean, per step."""
    inflation: float
    """Factor by which intervals are widened so that they hold on returns that were left out."""
    shares: Array
    """(effect,) share of each in the variation of the reward; see `EffectCurve`."""
    hidden_variance: float = 0.0
    """Variance per step of what may be in the reward and not in the effects. It widens intervals of
    steps, not of returns, which do not show it or have it in their noise: see `lasting_share`."""
    lasting_share: float = 0.0
    """Share of the noise of returns that is no noise of single steps, but an error of the reward
    which lasts over several of them. Its size per step is part of `hidden_variance`."""
    shared_variance: float = 0.0
    """Variance of noise that all steps of an episode share."""
    whole_variance: float = 0.0
    """Variance of noise of a whole return, which no step has."""
    ended_variance: float = 0.0
    """Variance that steps at which the episode terminates have beyond `hidden_variance`."""
    outcome: Outcome = Outcome.NUMBER
    """Meaning of sums of rewards: a number, the log-odds of success, or a preference."""
    base: float = 0.0
    """Amount in the log-odds of success of every episode that belongs to none of its steps."""
    states: int = field(init=False)
    actions: int = field(init=False)
    needs_next: bool = field(init=False)
    at_midpoint: bool = field(init=False)
    needs_termination: bool = field(init=False)

    def __post_init__(self) -> None:
        self._check_effects()
        for name, shape in self._find_shapes().items():
            value = np.ascontiguousarray(getattr(self, name), find_dtype(name))
            if value.shape != shape:
                raise ValueError(f"{name}: expected shape {shape}, got {value.shape}")
            if not np.isfinite(value).all():
                raise ValueError(f"{name}: not finite")
            value.flags.writeable = False
            object.__setattr__(self, name, value)
        self._check_inputs()
        if self.outcome not in KINDS:
            raise ValueError(f"outcome: expected one of {KINDS}, got {self.outcome!r}")
        for name in SCALARS:
            number = getattr(self, name)
            if not math.isfinite(number) or (name not in SIGNED and number < 0):
                raise ValueError(f"{name}: expected a finite, non-negative number, got {number!r}")
        moments = {one.moment for one in self.inputs}
        facts = {
            "states": len(self.observation_names),
            "actions": len(self.action_names),
            "needs_next": not moments.isdisjoint((MIDPOINT, END)),
            "at_midpoint": MIDPOINT in moments,
            "needs_termination": any(one.part == TERMINATED for one in self.inputs),
        }
        for name, fact in facts.items():
            object.__setattr__(self, name, fact)

    @property
    def _layout(self) -> StepColumns:
        return StepColumns(len(self.observation_names), len(self.action_names))

    def _find_shapes(self) -> dict[str, tuple[int, ...]]:
        free = {name: np.shape(getattr(self, name)) for name in FREE}
        return find_shapes(self.effects, self.sizes, free)

    def _check_inputs(self) -> None:
        width = self._layout.width
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

    @cached_property
    def inputs(self) -> tuple[InputRef, ...]:
        """What each input is."""
        return list_inputs(self.columns, self.observation_names, self.action_names)

    def predict(self, batch: Steps) -> Array:
        """(step,) the expected reward of each step."""
        inputs = self.select_inputs(batch)
        (rewards,) = self._map_blocks(inputs, self._predict_block)
        return rewards

    def predict_std(self, batch: Steps, noise: bool = True) -> Array:
        """(step,) standard deviation of the reward; with `noise` False, of its mean only.

        inflation * sqrt(|F^T (phi - centre)|^2 + residual + constant's + hidden (+ noise) variance)
        """
        inputs = self.select_inputs(batch)
        (variances,) = self._map_blocks(inputs, self._spread.compute_variances)
        return self._std(inputs, variances, noise)

    def predict_both(self, batch: Steps) -> tuple[Array, Array]:
        """`predict` and `predict_std` of the same steps, which are looked up only once."""
        inputs = self.select_inputs(batch)
        rewards, variances = self._map_blocks(
            inputs, self._predict_block, self._spread.compute_variances
        )
        return rewards, self._std(inputs, variances, True)

    def predict_sums(
        self, batch: Steps, *, weights: Array, starts: NDArray[np.int64]
    ) -> tuple[Array, Array]:
        """(segment,) mean and standard deviation of weighted sums of rewards.

        Weights of effects are uncertain together over the steps, noise is independent.
        """
        inputs = self.select_inputs(batch)
        features = self.expand(inputs) - self.centres
        means, variances = np.empty((2, len(starts)))
        for row, (start, stop) in enumerate(pairwise([*starts, len(weights)])):
            weight = weights[start:stop]
            total = weight @ features[start:stop]
            means[row] = total @ self.weights + self.constant * weight.sum()
            spread = total @ self.factor
            noise = (self.noise_variance + self.residual_variance) * (weight @ weight)
            common = (self.constant_variance + self.shared_variance) * weight.sum() ** 2
            variances[row] = spread @ spread + common + noise + self.whole_variance
        return means, self.inflation * np.sqrt(variances)

    def _map_blocks(self, inputs: Array, *functions: Callable[..., NDArray[Any]]) -> list[Array]:
        """(step,) of each function, which gets the place of the inputs in their tables."""
        results = [np.empty(len(inputs)) for _ in functions]
        for start in range(0, len(inputs), _BLOCK):
            block = slice(start, start + _BLOCK)
            place = self._grid.locate(inputs[block])
            for result, function in zip(results, functions, strict=True):
                result[block] = function(*place)
        return results

    def _std(self, inputs: Array, variances: Array, noise: bool) -> Array:
        more = self.residual_variance + self.constant_variance + self.hidden_variance
        if noise:
            more += self.noise_variance * (1 - self.lasting_share) + self.shared_variance
        ended = (inputs[:, self.columns == self._layout.terminated] > 0).any(1)
        return np.asarray(self.inflation * np.sqrt(variances + more + self.ended_variance * ended))

    def expand(self, inputs: ArrayLike) -> Array:
        """(step, weight) products of features: reward = constant + (expand - centres) @ weights."""
        values = np.atleast_2d(np.asarray(inputs, np.float64))
        features = self._grid.evaluate(values)
        parts = [
            multiply_features([features[:, i, :size] for i in effect])
            for effect, size in zip(self.effects, self.sizes, strict=True)
        ]
        return np.concatenate(parts, 1) if parts else np.zeros((len(values), 0))

    def explain(self) -> Explanation:
        """The constant and every effect over a grid, with its band and its share.

        Effects of the same columns, such as a smooth and a rough part, are one curve.
        """
        curves = tuple(self._compute_curve(members) for members in self.group_effects())
        return Explanation(float(self.constant), curves)

    def group_effects(self) -> list[list[int]]:
        """The effects that are one curve of `explain`: those of the same columns."""
        groups: dict[tuple[int, ...], list[int]] = {}
        for k, effect in enumerate(self.effects):
            groups.setdefault(tuple(int(self.columns[i]) for i in effect), []).append(k)
        return list(groups.values())

    def draw_inputs(self, rng: np.random.Generator, count: int) -> Array:
        """Steps within the range of the tables."""
        rows = super().draw_inputs(rng, count)
        values = rng.uniform(self.low, self.high, (count, len(self.low)))
        put_inputs(rows, values, self.inputs, self._layout)
        return rows

    def torch(self, dtype: torch.dtype | None = None) -> torch.nn.Module:
        """Return the function as a module with gradients."""
        from grd_offline.rewards.modules import EffectModule

        return EffectModule(
            self.inputs,
            self._layout,
            list(zip(self.effects, self.sizes, strict=True)),
            {name: np.array(getattr(self, name)) for name in ("low", "high", "tables", "weights")},
            self._offset,
            dtype,
        )

    def tensors(self) -> dict[str, NDArray[Any]]:
        """Return all arrays by their names."""
        return {name: np.array(getattr(self, name)) for name in self._find_shapes()}

    def config(self) -> dict[str, Any]:
        """All fields that are no arrays, for JSON."""
        return {
            "kind": self.kind,
            "format_version": FORMAT_VERSION,
            "observation_names": [str(name) for name in self.observation_names],
            "action_names": [str(name) for name in self.action_names],
            "effects": [list(effect) for effect in self.effects],
            "sizes": list(self.sizes),
            "outcome": self.outcome.value,
            **{name: float(getattr(self, name)) for name in SCALARS},
        }

    @classmethod
    def from_parts(cls, config: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]) -> Self:
        """The model with this config and these tensors; ValueError names the first mismatch."""
        shapes = {name: tensor.shape for name, tensor in tensors.items()}
        check_tensors(cls.expected_tensors(config, shapes), tensors)
        parts: dict[str, Any] = {**read_fields(config, cls.kind), **tensors}
        if config["format_version"] == 1:
            layout = StepColumns(len(parts["observation_names"]), len(parts["action_names"]))
            parts["columns"] = layout.move_from_version_1(parts["columns"])
        return cls(**parts)

    @classmethod
    def expected_tensors(
        cls, config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]
    ) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Type and shape of every tensor: grid, features and rank are those of `shapes`."""
        fields = read_fields(config, cls.kind)
        for name in FREE:
            if name not in shapes:
                raise ValueError(f"{name}: missing tensor")
        expected = find_shapes(fields["effects"], fields["sizes"], shapes)
        return {name: (find_dtype(name).name, shape) for name, shape in expected.items()}

    def take_names(self, observation_names: Sequence[str], action_names: Sequence[str]) -> Self:
        """The same function; ValueError where these are not the names of its own inputs."""
        super().take_names(observation_names, action_names)
        named = tuple(observation_names), tuple(action_names)
        if self.observation_names != named[0]:
            raise ValueError("observation_names: expected those of the function")
        if self.action_names != named[1]:
            raise ValueError("action_names: expected those of the function")
        return replace(self, observation_names=named[0], action_names=named[1])

    def effect_slices(self) -> Iterator[tuple[tuple[int, ...], slice]]:
        """Each effect with its place among the weights."""
        start = 0
        for effect, size in zip(self.effects, self.sizes, strict=True):
            stop = start + size ** len(effect)
            yield effect, slice(start, stop)
            start = stop

    def select_inputs(self, batch: Steps) -> Array:
        """(step, input) the columns that are used, checked; each lies in memory in one piece."""
        batch.check_given(next_observations=self.needs_next, terminations=self.needs_termination)
        batch.check_shapes(self.states, self.actions)
        return select_inputs(self.inputs, batch)

    @cached_property
    def _grid(self) -> GridTables:
        return GridTables(self.tables, self.low, self.high)

    @cached_property
    def _curves(self) -> tuple[list[int], Array, Array]:
        """Inputs with main effects; these as curves (input * grid,), and the curves' rises."""
        curves = np.zeros(self.tables.shape[:2])
        mains = []
        for (effect, part), size in zip(self.effect_slices(), self.sizes, strict=True):
            if len(effect) == 1:
                mains.append(effect[0])
                curves[effect[0]] = self.tables[effect[0], :, :size] @ self.weights[part]
        rises = np.diff(curves, axis=1, append=curves[:, -1:])
        return sorted(mains), curves.ravel(), rises.ravel()

    @cached_property
    def _offset(self) -> float:
        return float(self.constant - self.centres @ self.weights)

    @cached_property
    def _spread(self) -> SpreadTable:
        places = zip(self.effect_slices(), self.sizes, strict=True)
        effects = [(effect, place, size) for (effect, place), size in places]
        return SpreadTable(self._grid, effects, self.factor, self.centres)

    def _predict_block(self, rows: IntArray, parts: Array) -> Array:
        rewards = np.full(len(rows), self._offset)
        mains, curves, rises = self._curves
        for values in interpolate(curves, rows.T[mains], parts.T[mains], rises):
            rewards += values
        joint = sorted({i for effect in self.effects if len(effect) > 1 for i in effect})
        grid = self._grid
        features = {i: interpolate(grid.values, rows[:, i], parts[:, i], grid.rises) for i in joint}
        for (effect, part_of), size in zip(self.effect_slices(), self.sizes, strict=True):
            if len(effect) > 1:
                value = features[effect[0]][:, :size] @ self.weights[part_of].reshape(size, -1)
                for i in effect[1:-1]:
                    cube = value.reshape(len(value), size, -1)
                    value = np.einsum("njk,nj->nk", cube, features[i][:, :size])
                rewards += np.einsum("nk,nk->n", value, features[effect[-1]][:, :size])
        return rewards

    def _find_span(self, place: int) -> tuple[float, float]:
        """The range over which to draw an input: that of all tables of its column.

        The table of a threshold has two values, and covers little more than the threshold itself.
        """
        same = np.flatnonzero(self.columns == self.columns[place])
        wide = [i for i in same if self.tables.shape[1] == 2 or len(np.unique(self.tables[i])) > 2]
        if wide:
            return float(self.low[wide].min()), float(self.high[wide].max())
        beside = _BESIDE_THRESHOLD * (self.high[same] - self.low[same]).max()
        return float(self.low[same].min() - beside), float(self.high[same].max() + beside)

    def _compute_curve(self, members: list[int]) -> EffectCurve:
        """The sum of some effects of the same columns."""
        places = list(self.effect_slices())
        first = self.effects[members[0]]
        points = _CURVE_POINTS[len(first)]
        grids = tuple(np.linspace(*self._find_span(i), points) for i in first)
        axes = [axis.ravel() for axis in np.meshgrid(*grids, indexing="ij")]
        mean, spread = np.zeros(len(axes[0])), np.zeros((len(axes[0]), self.factor.shape[1]))
        for k in members:
            effect, part = places[k]
            values = np.repeat(self.low[None], len(axes[0]), 0)
            values[:, list(effect)] = np.transpose(axes)
            features = self._grid.evaluate(values)
            products = multiply_features([features[:, i, : self.sizes[k]] for i in effect])
            centred = products - self.centres[part]
            mean += centred @ self.weights[part]
            spread += centred @ self.factor[part]
        shape = (points,) * len(first)
        std = self.inflation * np.sqrt((spread**2).sum(1))
        inputs = tuple(self.inputs[i] for i in first)
        share = float(self.shares[members].sum())
        return EffectCurve(inputs, grids, mean.reshape(shape), std.reshape(shape), share)
