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
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grd_offline.additive.basis import multiply_features
from grd_offline.core.episodes import read_names
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
from grd_offline.core.typing import AnyArray, Array, IntArray, SingleArray
from grd_offline.rewards.contract import (
    ConfigReader,
    EffectCurve,
    Explanation,
    Headers,
    RewardFunction,
    Shapes,
    Steps,
    check_tensors,
)

if TYPE_CHECKING:
    import torch

_TERM_BLOCK = 1024  # Steps at once, so that all products of features of a block fit into memory.
_BLOCK = 4096  # Steps evaluated at once: what a block needs stays in the processor's cache.
_SPREAD_BLOCK = 512  # Memory this small is taken anew without asking the system for it.
_BESIDE_THRESHOLD = 100
"""Widths of a threshold's table that are drawn to either side of it."""
_CURVE_POINTS = {1: 65, 2: 33, 3: 9, 4: 5}
_FORMAT_VERSION = 6
_MAX_ORDER = 4
_FREE = ("columns", "tables", "factor")
"""Arrays whose shapes say how many inputs, grid points, features and columns of F there are."""
_SIGNED = ("constant", "base")
"""Numbers that may be negative."""
_SINCE = {
    **dict.fromkeys(("lasting_share", "shared_variance", "whole_variance"), 3),
    **{"hidden_variance": 2, "outcome": 4, "ended_variance": 5, "base": 6},
}
"""The version in which a field came into the files; others were there from the first on."""
_MAX_FEATURES = 4096
_MAX_SPREAD = 2**28
"""Largest number of features of one input, and of all inputs times the rank of F. It is far beyond
what a fit makes. A prediction takes memory for so much, and a small file must not be able to ask
for it."""


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
        for name, shape in self._list_shapes().items():
            value = np.ascontiguousarray(getattr(self, name), _find_dtype(name))
            if value.shape != shape:
                raise ValueError(f"{name}: expected shape {shape}, got {value.shape}")
            if not np.isfinite(value).all():
                raise ValueError(f"{name}: not finite")
            value.flags.writeable = False
            object.__setattr__(self, name, value)
        self._check_inputs()
        if self.outcome not in KINDS:
            raise ValueError(f"outcome: expected one of {KINDS}, got {self.outcome!r}")
        for name in _SCALARS:
            number = getattr(self, name)
            if not math.isfinite(number) or (name not in _SIGNED and number < 0):
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

    def _list_shapes(self) -> dict[str, tuple[int, ...]]:
        free = {name: np.shape(getattr(self, name)) for name in _FREE}
        return _find_shapes(self.effects, self.sizes, free)

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
            rising = all(a < b for a, b in pairwise((-1, *effect, len(self.columns))))
            if not rising or not 1 <= len(effect) <= _MAX_ORDER:
                wanted = f"1 to {_MAX_ORDER} increasing inputs"
                raise ValueError(f"effects: {effect!s:.80} is not {wanted}")
        if len(set(self.effects)) < len(self.effects):
            raise ValueError("effects: expected each of them once")

    @cached_property
    def inputs(self) -> tuple[InputRef, ...]:
        """What each input is."""
        return list_inputs(self.columns, self.observation_names, self.action_names)

    def predict(self, batch: Steps) -> Array:
        """(step,) the expected reward of each step."""
        return self._map_blocks(self.select_inputs(batch), self._predict_block)[0]

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
        functions = self._predict_block, self._spread.compute_variances
        rewards, variances = self._map_blocks(inputs, *functions)
        return rewards, self._std(inputs, variances)

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

    def _std(self, inputs: Array, variances: Array, noise: bool = True) -> Array:
        more = self.residual_variance + self.constant_variance + self.hidden_variance
        if noise:
            more += self.noise_variance * (1 - self.lasting_share) + self.shared_variance
        ended = (inputs[:, self.columns == self._layout.terminated] > 0).any(1)
        return np.asarray(self.inflation * np.sqrt(variances + more + self.ended_variance * ended))

    def expand(self, inputs: ArrayLike) -> Array:
        """(step, weight) products of features: reward = constant + (expand - centres) @ weights."""
        values = np.atleast_2d(np.asarray(inputs, np.float64))
        features = self._grid.evaluate(values)
        factors = ([features[:, i, :size] for i in one] for one, _, size in self.effect_slices())
        parts = [multiply_features(several) for several in factors]
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

    def predict_terms(self, batch: Steps) -> Array:
        """(curve, step) what each curve of `explain` adds to the constant at each step.

        The constant and all terms of a step sum to its reward.
        """
        inputs, groups = self.select_inputs(batch), self.group_effects()
        places = [place for _, place, _ in self.effect_slices()]
        terms = np.zeros((len(groups), len(inputs)))
        for start in range(0, len(inputs), _TERM_BLOCK):
            block = slice(start, start + _TERM_BLOCK)
            features = self.expand(inputs[block]) - self.centres
            for term, members in zip(terms, groups, strict=True):
                for place in (places[k] for k in members):
                    term[block] += features[:, place] @ self.weights[place]
        return terms

    def measure_shares(self, parts: Array) -> Array:
        """(effect,) share of each effect in the variation of the reward; see `EffectCurve`.

        `parts` (step, effect) is what each effect adds at some steps of the data. Effects of the
        same columns are one curve: the first of them has the share of all, the others have 0.
        """
        shares = np.zeros(len(self.effects))
        for members in self.group_effects():
            shares[members[0]] = parts[:, members].sum(1).var()
        return shares / (shares.sum() or 1.0)

    def draw_inputs(self, rng: np.random.Generator, count: int) -> Array:
        """Steps within the range of the tables."""
        rows = super().draw_inputs(rng, count)
        values = rng.uniform(self.low, self.high, (count, len(self.low)))
        put_inputs(rows, values, self.inputs, self._layout)
        return rows

    def torch(self, dtype: torch.dtype | None = None) -> torch.nn.Module:
        """Return the function as a module with gradients."""
        from grd_offline.rewards.modules import EffectModule

        return EffectModule(self, self._offset, dtype)

    def tensors(self) -> dict[str, NDArray[Any]]:
        """Return all arrays by their names."""
        return {name: np.array(getattr(self, name)) for name in self._list_shapes()}

    def config(self) -> dict[str, Any]:
        """All fields that are no arrays, for JSON."""
        return {
            "kind": self.kind,
            "format_version": _FORMAT_VERSION,
            "observation_names": [str(name) for name in self.observation_names],
            "action_names": [str(name) for name in self.action_names],
            "effects": [list(effect) for effect in self.effects],
            "sizes": list(self.sizes),
            "outcome": self.outcome.value,
            **{name: float(getattr(self, name)) for name in _SCALARS},
        }

    @classmethod
    def from_parts(cls, config: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]) -> Self:
        """The model with this config and these tensors; ValueError names the first mismatch."""
        shapes = {name: tensor.shape for name, tensor in tensors.items()}
        check_tensors(cls.expected_tensors(config, shapes), tensors)
        parts: dict[str, Any] = {**_read_fields(config, cls.kind), **tensors}
        if config["format_version"] == 1:
            layout = StepColumns(len(parts["observation_names"]), len(parts["action_names"]))
            parts["columns"] = layout.move_from_version_1(parts["columns"])
        return cls(**parts)

    @classmethod
    def expected_tensors(cls, config: Mapping[str, Any], shapes: Shapes) -> Headers:
        """Type and shape of every tensor: grid, features and rank are those of `shapes`."""
        parts = _read_fields(config, cls.kind)
        for name in _FREE:
            if name not in shapes:
                raise ValueError(f"{name}: missing tensor")
        expected = _find_shapes(parts["effects"], parts["sizes"], shapes)
        return {name: (_find_dtype(name).name, shape) for name, shape in expected.items()}

    def take_names(self, observation_names: Sequence[str], action_names: Sequence[str]) -> Self:
        """The same function; ValueError where these are not the names of its own inputs."""
        super().take_names(observation_names, action_names)
        named: dict[str, Any] = {"observation_names": tuple(observation_names)}
        named["action_names"] = tuple(action_names)
        for field_name, names in named.items():
            if getattr(self, field_name) != names:
                raise ValueError(f"{field_name}: expected those of the function")
        return replace(self, **named)

    def effect_slices(self) -> Iterator[tuple[tuple[int, ...], slice, int]]:
        """Each effect with its place among the weights, and its size."""
        start = 0
        for effect, size in zip(self.effects, self.sizes, strict=True):
            stop = start + size ** len(effect)
            yield effect, slice(start, stop), size
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
        for effect, part, size in self.effect_slices():
            if len(effect) == 1:
                mains.append(effect[0])
                curves[effect[0]] = self.tables[effect[0], :, :size] @ self.weights[part]
        rises = np.diff(curves, axis=1, append=curves[:, -1:])
        return sorted(mains), curves.ravel(), rises.ravel()

    @cached_property
    def _offset(self) -> float:
        return float(self.constant - self.centres @ self.weights)

    @cached_property
    def _spread(self) -> _SpreadTable:
        return _SpreadTable(self, self._grid)

    def _predict_block(self, rows: IntArray, parts: Array) -> Array:
        rewards = np.full(len(rows), self._offset)
        mains, curves, rises = self._curves
        for values in interpolate(curves, rows.T[mains], parts.T[mains], rises):
            rewards += values
        joint = sorted({i for effect in self.effects if len(effect) > 1 for i in effect})
        grid = self._grid
        features = {i: interpolate(grid.values, rows[:, i], parts[:, i], grid.rises) for i in joint}
        for effect, part_of, size in self.effect_slices():
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
            effect, part, size = places[k]
            values = np.repeat(self.low[None], len(axes[0]), 0)
            values[:, list(effect)] = np.transpose(axes)
            features = self._grid.evaluate(values)
            products = multiply_features([features[:, i, :size] for i in effect])
            centred = products - self.centres[part]
            mean += centred @ self.weights[part]
            spread += centred @ self.factor[part]
        shape, inputs = (points,) * len(first), tuple(self.inputs[i] for i in first)
        std = self.inflation * np.sqrt((spread**2).sum(1))
        share = float(self.shares[members].sum())
        return EffectCurve(inputs, grids, mean.reshape(shape), std.reshape(shape), share)


_SCALARS = [one.name for one in fields(EffectModel) if one.type == "float"]
"""The fields that are single numbers."""


def average_effects(first: EffectModel, second: EffectModel, difference: float) -> EffectModel:
    """Half of each reward, with intervals that cover both.

    `difference` is the mean squared difference of the two rewards per step: half of it to either
    side is within the intervals.
    """
    from scipy.linalg import block_diag  # slow to import, and rarely needed

    parts = (first, second)
    grid, features = np.max([part.tables.shape[1:] for part in parts], axis=0)
    shift = len(first.columns)
    joined = ("columns", "low", "high", "centres", "weights", "shares")
    changes: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts]) for name in joined
    }
    for name in ("weights", "shares"):
        changes[name] = changes[name] / 2
    for name in (f"{kind}_variance" for kind in ("noise", "hidden", "shared", "ended", "whole")):
        changes[name] = float(max(getattr(part, name) * part.inflation**2 for part in parts))
    changes["hidden_variance"] += difference / 4
    return replace(
        first,
        **changes,
        tables=np.concatenate([_resize(part.tables, grid, features) for part in parts]),
        effects=(*first.effects, *(tuple(i + shift for i in one) for one in second.effects)),
        sizes=first.sizes + second.sizes,
        constant=(first.constant + second.constant) / 2,
        factor=block_diag(first.factor / 2, second.factor / 2),
        residual_variance=max(part.residual_variance for part in parts),
        constant_variance=max(part.constant_variance for part in parts),
        inflation=1.0,
        lasting_share=min(part.lasting_share for part in parts),
    )


def _resize(tables: Array, grid: int, features: int) -> Array:
    """Tables on a finer even grid, with zeros for the features that they lack."""
    count, points, size = tables.shape
    old, new = np.linspace(0, 1, points), np.linspace(0, 1, grid)
    flat = tables.transpose(0, 2, 1).reshape(count * size, points)
    finer = np.array([np.interp(new, old, row) for row in flat]).reshape(count, size, grid)
    return np.pad(finer.transpose(0, 2, 1), ((0, 0), (0, 0), (0, features - size)))


def _find_dtype(name: str) -> np.dtype[Any]:
    """Type of the array of this name."""
    return np.dtype(np.int64 if name == "columns" else np.float64)


def _find_shapes(
    effects: Sequence[Sequence[int]], sizes: Sequence[int], free: Shapes
) -> dict[str, tuple[int, ...]]:
    """The shape that each array must have, given the effects and the shapes that are free."""
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
        found = f"{count} inputs of {features} features with rank {rank}"
        raise ValueError(f"factor: {found} are too many")
    return {
        **dict.fromkeys(("columns", "low", "high"), (count,)),
        "tables": (count, grid, features),
        **dict.fromkeys(("weights", "centres"), (weights,)),
        "factor": (weights, rank),
        "shares": (len(effects),),
    }


def _read_fields(config: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """The fields of an `EffectModel` that are no arrays; ValueError names the first wrong one."""
    read = ConfigReader(config, kind)
    version = int(read.choice("format_version", tuple(range(1, _FORMAT_VERSION + 1))))
    scalars = [name for name in _SCALARS if version >= _SINCE.get(name, 1)]
    parts: dict[str, Any] = {
        "observation_names": read_names(read.names("observation_names")),
        "action_names": read_names(read.names("action_names")),
        "effects": _as_effects(read.take("effects")),
        "sizes": _as_wholes("sizes", read.take("sizes")),
        **{name: read.number(name) for name in scalars},
    }
    if version >= _SINCE["outcome"]:
        parts["outcome"] = Outcome(read.choice("outcome", KINDS))
    read.done()
    return parts


def _as_effects(effects: Any) -> tuple[tuple[int, ...], ...]:
    if not isinstance(effects, list) or not all(
        isinstance(effect, list) and 1 <= len(effect) <= _MAX_ORDER for effect in effects
    ):
        raise ValueError(f"config: effects: expected lists of 1 to {_MAX_ORDER} whole numbers")
    return tuple(_as_wholes("effects", effect) for effect in effects)


def _as_wholes(name: str, values: Any) -> tuple[int, ...]:
    if not isinstance(values, list) or not all(type(value) is int for value in values):
        raise ValueError(f"config: {name}: expected a list of whole numbers")
    return tuple(values)


class _SpreadTable:
    """The posterior variance of a sum of effects, for many steps at once.

        variance = |F^T (phi - centre)|^2,    phi: the products of features of all effects

    This is most of the work of relabelling, so it is done in float32, which keeps six digits: main
    effects share one matrix product, and each effect of several inputs adds one of its own.
    """

    def __init__(self, model: EffectModel, grid: GridTables) -> None:
        inputs, features, factor = len(grid.first), grid.values.shape[1], model.factor
        if factor.shape[1] > factor.shape[0]:
            _, triangle = np.linalg.qr(factor.T)
            factor = triangle.T  # the same F F^T, with fewer columns
        self._offset = (model.centres @ factor).astype(np.float32)
        self._values: AnyArray = grid.values.astype(np.float32)
        self._rises: AnyArray = grid.rises.astype(np.float32)
        mains = np.zeros((inputs, features, factor.shape[1]), np.float32)
        self._joint: list[tuple[tuple[int, ...], int, SingleArray]] = []
        for effect, place, size in model.effect_slices():
            part = factor[place].astype(np.float32)
            if len(effect) == 1:
                mains[effect[0], :size] += part
            else:
                self._joint.append((effect, size, part))
        self._mains = mains.reshape(inputs * features, factor.shape[1])

    def compute_variances(self, rows: IntArray, parts: Array) -> SingleArray:
        """(step,) from the rows of the grid's values and the parts, both (step, input)."""
        variances = np.empty(len(rows), np.float32)
        for start in range(0, len(variances), _SPREAD_BLOCK):
            block = slice(start, start + _SPREAD_BLOCK)
            spread = self._compute_spread(rows[block], parts[block].astype(np.float32))
            variances[block] = np.einsum("nr,nr->n", spread, spread)
        return variances

    def _compute_spread(self, rows: AnyArray, parts: AnyArray) -> SingleArray:
        """(step, rank) F^T (phi - centre)"""
        steps, inputs = rows.shape
        features = interpolate(self._values, rows, parts, self._rises)
        flat = features.reshape(steps, len(self._mains))
        spread = flat @ self._mains
        spread -= self._offset
        if not self._joint:
            return np.asarray(spread)
        # Products are made with steps last: long rows, where numpy is fast.
        columns = np.ascontiguousarray(flat.T).reshape(inputs, -1, steps)
        for effect, size, part in self._joint:
            product = columns[effect[0], :size]
            for i in effect[1:]:
                product = (product[:, None] * columns[i, None, :size]).reshape(-1, steps)
            spread += product.T @ part
        return np.asarray(spread)
