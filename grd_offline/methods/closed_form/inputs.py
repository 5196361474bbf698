"""From episodes to equations: one-dimensional features per input, summed over each segment.

An input is a column of [states, actions, terminated(, next states)]. Its features are the leading
eigenfunctions of the centred kernel x x' + Matern-5/2(|x - x'| / 2) on quantiles of its
standardised values and on even points of their range, each times the root of its eigenvalue, so
that their inner product is the kernel. They are tabulated on an even grid, as `EffectModel`
evaluates them.

Episodes are read one at a time: once for a sample of steps, once per table of sums. If they are
small, `ColumnSource` keeps what was read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from grd_offline.core.episodes import Episode, EpisodeSet
from grd_offline.core.interpolation import locate_on_grid
from grd_offline.methods.closed_form.moments import BEFORE, BOTH, END, MIDPOINT

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
Effect = tuple[int, ...]
Kernel = Callable[[Array, Array], Array]

GRID = 513
_NODES, _EVEN_NODES = 64, 32
_EVEN_SHARE = 0.25
"""Weight of the even nodes: a few far values, such as the actions of an early policy, may be where
rewards differ most, and quantiles alone hardly see them."""
_FEW = 16
_DUPLICATE = 1e-9
_FAR = 10.0
"""Largest distance of the grid's ends from the middle 98 % of an input, in units of their range.
These 98 % then still have 24 cells of the grid."""
_FEW_STEPS = 4  # a grid with more points than so many times the steps is not filled


Still = NDArray[np.bool_] | None
"""(state,) those that stand still in most steps, see `moments`; None: no state does."""


def take_states(now: Array, later: Array, state_at: str, still: Still = None) -> Array:
    """(step, state) the state of each transition at some moment of it, see `moments`."""
    if state_at == BEFORE:
        return np.concatenate([now[:1], now[:-1]])
    if state_at == MIDPOINT:
        halfway = (now + later) / 2
        return halfway if still is None else np.where(still, later, halfway)
    return later if state_at == END else now


def join_inputs(episode: Episode, state_at: str, still: Still = None) -> Array:
    """(step, column) states, actions, whether it terminated and, for "both", next states."""
    now = episode.observations[: len(episode)].astype(np.float64)
    later = episode.next_observations.astype(np.float64)
    states = take_states(now, later, state_at, still)
    parts: list[NDArray[Any]] = [states, episode.actions, episode.terminations[:, None]]
    if state_at == BOTH:
        parts.append(later)
    return np.concatenate(parts, 1, dtype=np.float64)


class Segment(NamedTuple):
    """The steps that one delivered amount is for."""

    inputs: Array
    """(step, column): the inputs of each step."""
    weights: Array
    """(step,) discount^t, t from the episode's start."""
    amount: float
    before: Array
    """(state,) the state it begins in."""
    after: Array
    """(state,) the state it ends in; the last one known where the final one is not."""


def iterate_segments(
    episodes: EpisodeSet, state_at: str, discount: float, still: Still = None
) -> Iterator[Segment]:
    """All deliveries of all episodes."""
    for episode in episodes:
        inputs = join_inputs(episode, state_at, still)
        states = episode.observations
        weights = discount ** np.arange(len(episode), dtype=np.float64)
        for start, stop, amount in zip(*episode.segments(), strict=True):
            after = states[min(stop, len(states) - 1)].astype(np.float64)
            before = states[start].astype(np.float64)
            yield Segment(inputs[start:stop], weights[start:stop], float(amount), before, after)


def sample_steps(
    episodes: EpisodeSet,
    state_at: str,
    limit: int,
    rng: np.random.Generator,
    still: Still = None,
) -> Array:
    """(step, column) at most `limit` steps, drawn evenly at random from the episodes."""
    total = episodes.total_steps
    kept = []
    for episode in episodes:
        inputs = join_inputs(episode, state_at, still)
        if total > limit:
            inputs = inputs[rng.random(len(inputs)) < limit / total]
        kept.append(inputs)
    sample = np.concatenate(kept)
    if not len(sample):
        sample = join_inputs(episodes[0], state_at, still)
    return sample


@dataclass(frozen=True, eq=False)
class InputBasis:
    """Features of every input that varies, tabulated."""

    columns: IntArray
    """(input,) the column of each input."""
    low: Array
    """(input,) first grid point, in the units of the data."""
    high: Array
    tables: Array
    """(input, grid, feature), zero on average, mean squared norm not yet 1."""

    def evaluate(self, inputs: Array, chosen: Sequence[int], size: int) -> Array:
        """(step, chosen input, feature) the first `size` features."""
        return Features(self, chosen, size).evaluate(inputs)

    def join(self, other: InputBasis) -> InputBasis:
        """These inputs followed by another basis's, of as many grid points."""
        size = max(self.tables.shape[2], other.tables.shape[2])
        tables = [
            np.pad(one.tables, ((0, 0), (0, 0), (0, size - one.tables.shape[2])))
            for one in (self, other)
        ]
        return InputBasis(
            np.concatenate([self.columns, other.columns]),
            np.concatenate([self.low, other.low]),
            np.concatenate([self.high, other.high]),
            np.concatenate(tables),
        )


class Features:
    """The first features of some inputs, laid out so that many steps are looked up quickly."""

    def __init__(self, basis: InputBasis, chosen: Sequence[int], size: int) -> None:
        where = np.array(chosen, np.int64)
        tables = basis.tables[where, :, :size]
        self.columns = basis.columns[where]
        self.low, self.high = basis.low[where], basis.high[where]
        self.tables, self.points = tables, tables.shape[1]
        self.first = np.arange(len(where)) * self.points
        self.values = tables.reshape(-1, size)
        self.slopes = np.diff(tables, axis=1, append=tables[:, -1:]).reshape(-1, size)

    def evaluate(self, inputs: Array) -> Array:
        """(step, chosen input, feature)"""
        cell, part = self._locate(inputs)
        features = np.take(self.slopes, cell, axis=0)
        features *= part[:, :, None]
        features += np.take(self.values, cell, axis=0)
        return features

    def sum(self, inputs: Array, weights: Array) -> Array:
        """(chosen input, feature) sums over steps.

        Of many steps the shares per grid point are summed first, and then the features.
        """
        if len(inputs) * _FEW_STEPS < self.points:
            return np.asarray(np.tensordot(weights, self.evaluate(inputs), 1))
        cell, part = self._locate(inputs)
        entries = len(self.values)
        upper = (part * weights[:, None]).ravel()
        lower = np.broadcast_to(weights[:, None], part.shape).ravel() - upper
        shares = np.bincount(cell.ravel(), lower, entries)
        shares += np.bincount(cell.ravel() + 1, upper, entries)
        return np.asarray((shares.reshape(-1, 1, self.points) @ self.tables)[:, 0])

    def _locate(self, inputs: Array) -> tuple[IntArray, Array]:
        values = inputs[:, self.columns]
        cell, part = locate_on_grid(values, self.low, self.high, self.points)
        return cell + self.first, part


def build_bases(
    sample: Array,
    kinds: Sequence[tuple[int, Kernel]],
    reach: float = 0.0,
    only: Collection[int] | None = None,
) -> list[InputBasis]:
    """Features of every column of `sample` that varies and repeats no earlier one.

    There is a basis for each of `kinds`: the number of features and the kernel. The grid of each
    column goes beyond its range by `reach` times the range, at each end. With `only`, no other
    columns are looked at.
    """
    columns: list[int] = []
    ranges: list[tuple[float, float]] = []
    tables: list[list[Array]] = [[] for _ in kinds]
    seen = np.zeros((sample.shape[1], len(_thin(sample[:, 0]))))
    for column in range(sample.shape[1]) if only is None else sorted(only):
        values = sample[:, column]
        low, high = _find_range(values)
        standard = _standardise(values, low, high)
        if standard is None:
            continue
        thinned = _thin(standard)
        if _repeats(thinned, seen[: len(columns)]):
            continue
        seen[len(columns)] = thinned
        columns.append(column)
        beyond = reach * (high - low)
        ranges.append((low - beyond, high + beyond))
        nodes, shares = _choose_nodes(standard)
        grid = _make_grid(standard, reach)
        for (size, kernel), own in zip(kinds, tables, strict=True):
            own.append(_tabulate(nodes, shares, grid, size, kernel))
    ends = np.array(ranges, np.float64).reshape(-1, 2)
    where = np.array(columns, np.int64)
    return [
        InputBasis(
            where, ends[:, 0], ends[:, 1], np.stack(own) if own else np.zeros((0, GRID, size))
        )
        for (size, _), own in zip(kinds, tables, strict=True)
    ]


def _find_range(values: Array) -> tuple[float, float]:
    """The values' range, without far outliers, which would leave no grid for the rest."""
    low, inner_low, inner_high, high = np.quantile(values, [0, 0.01, 0.99, 1])
    spread = inner_high - inner_low
    if spread > 0:
        reach = _FAR * spread
        low, high = max(low, inner_low - reach), min(high, inner_high + reach)
    return float(low), float(high)


def _standardise(values: Array, low: float, high: float) -> Array | None:
    """Zero mean and unit variance within the range; None for a constant."""
    if not high - low > 1e-7 * max(abs(low), abs(high)):
        return None
    clamped = (np.clip(values, low, high) - low) / (high - low)
    spread = clamped.std()
    if spread < 1e-6:
        return None
    return np.asarray((clamped - clamped.mean()) / spread)


def _thin(standard: Array) -> Array:
    """Some of a column's values, of unit length together."""
    some = standard[:: max(1, len(standard) // 2000)]
    return np.asarray(some / max(float(np.linalg.norm(some)), 1e-300))


def _repeats(thinned: Array, seen: Array) -> bool:
    """Whether a column equals one of (column, value) earlier ones up to scale, sign and offset."""
    return bool((np.abs(seen @ thinned) > 1 - _DUPLICATE / 2).any())


def smooth_kernel(left: Array, right: Array) -> Array:
    """x x' + (1 + d + d^2 / 3) exp(-d), d = sqrt(5) |x - x'| / 2."""
    distance = np.sqrt(5.0) / 2 * np.abs(left[:, None] - right)
    matern = (1 + distance + distance**2 / 3) * np.exp(-distance)
    return np.asarray(np.outer(left, right) + matern)


def rough_kernel(left: Array, right: Array) -> Array:
    """exp(-|x - x'| / 2): functions with corners and jumps."""
    return np.exp(-np.abs(left[:, None] - right) / 2)


def _make_grid(standard: Array, reach: float) -> Array:
    """(grid,) even points over the range of the values, and beyond it."""
    first, last = standard.min(), standard.max()
    beyond = reach * (last - first)
    return np.linspace(first - beyond, last + beyond, GRID)


def _tabulate(nodes: Array, shares: Array, grid: Array, size: int, kernel: Kernel) -> Array:
    """(grid, size) leading eigenfunctions of the centred kernel, over an even grid."""
    inner, outer = kernel(nodes, nodes), kernel(grid, nodes)
    outer = outer - (outer @ shares)[:, None] - inner @ shares + shares @ inner @ shares
    inner = inner - (inner @ shares)[:, None] - inner @ shares + shares @ inner @ shares
    root = np.sqrt(shares)
    values, vectors = np.linalg.eigh(root[:, None] * inner * root)
    order = np.argsort(values)[::-1][:size]
    order = order[values[order] > 1e-9 * values.max()]
    table = np.zeros((GRID, size))
    table[:, : len(order)] = (outer * root) @ vectors[:, order] / np.sqrt(values[order])
    signs = np.sign(table[-1])
    return np.asarray(table * np.where(signs == 0, 1.0, signs))


def _choose_nodes(standard: Array) -> tuple[Array, Array]:
    """Nodes of the kernel's eigenproblem and their shares."""
    few, counts = np.unique(standard[:20000], return_counts=True)
    if len(few) <= _FEW:
        few, counts = np.unique(standard, return_counts=True)
    if len(few) <= _FEW:
        return few, counts / counts.sum()
    levels = np.quantile(standard, (np.arange(_NODES) + 0.5) / _NODES)
    even = np.linspace(standard.min(), standard.max(), _EVEN_NODES)
    shares = np.repeat([(1 - _EVEN_SHARE) / _NODES, _EVEN_SHARE / _EVEN_NODES], [_NODES, len(even)])
    nodes, places = np.unique(np.concatenate([levels, even]), return_inverse=True)
    return nodes, np.asarray(np.bincount(places, shares), np.float64)


@dataclass(frozen=True, eq=False)
class Equations:
    """The equations that every fit shares: targets and the column of the constant, with rows scaled
    to equal noise."""

    target: Array
    """(row,) amount / sqrt(sum of squared weights)."""
    constant: Array
    """(row,) sum of weights, scaled likewise."""
    scale: Array
    """(row,) 1 / sqrt(sum of squared weights)."""

    def remove_constant(
        self, columns: NDArray[np.floating]
    ) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
        """Rows free of the constant, and the average per step of each column.

        A reflection H turns the constant's column h into |h| e_1. The first row then fixes c given
        the rest, and is left out: what remains is the likelihood with c integrated out. The average
        is (H Z)_1 / |h|. Where no row has a constant, as with preferences between pieces of equal
        length, the first row is left out all the same.
        """
        length = float(np.linalg.norm(self.constant))
        if not length:
            return columns[1:], np.zeros(columns.shape[1], columns.dtype)
        sign = -np.copysign(1.0, self.constant[0])
        mirror = self.find_mirror().astype(columns.dtype)
        along = mirror @ columns
        first = columns[0] - 2 * mirror[0] * along
        return columns[1:] - np.outer(2 * mirror[1:], along), sign * first / length

    def find_mirror(self) -> Array:
        """(row,) the unit vector m of the reflection H = I - 2 m m^T."""
        mirror = self.constant / (np.linalg.norm(self.constant) or 1.0)
        mirror = mirror + np.where(np.arange(len(mirror)) == 0, np.copysign(1.0, mirror[0]), 0.0)
        return np.asarray(mirror / np.linalg.norm(mirror))

    def restore_rows(self, vector: Array, diagonal: Array, along: Array) -> tuple[Array, Array]:
        """For K = H^T [0 0; 0 C^-1] H, compute K y and the diagonal, for all rows.

        Given C^-1 (H y) without the first row, the diagonal of C^-1, and C^-1 m without the first.
        """
        mirror = self.find_mirror()
        full, inner = np.append(0.0, vector), np.append(0.0, diagonal)
        seen, power = np.append(0.0, along), float(mirror[1:] @ along)
        full = full - 2 * mirror * float(mirror @ full)
        return full, inner - 4 * mirror * seen + 4 * mirror**2 * power


def read_equations(segments: Iterator[Segment], columns: IntArray) -> tuple[Equations, Array]:
    """Targets and the constant's column of all deliveries, and the sums of these columns."""
    rows, sums = [], []
    for segment in segments:
        weights = segment.weights
        rows.append((segment.amount, weights.sum(), (weights**2).sum()))
        sums.append(weights @ segment.inputs[:, columns])
    amounts, totals, squares = np.array(rows, np.float64).reshape(-1, 3).T
    scale = 1 / np.sqrt(np.maximum(squares, 1e-300))
    raw = np.array(sums, np.float64).reshape(len(rows), len(columns))
    return Equations(amounts * scale, totals * scale, scale), raw * scale[:, None]


def sum_features(
    segments: Iterator[Segment],
    rows: int,
    basis: InputBasis,
    effects: Sequence[Effect],
    size: int,
    kind: type[np.floating],
) -> dict[Effect, NDArray[np.floating]]:
    """For each effect, sum products of features over each segment: (row, size^order)."""
    chosen = sorted({i for effect in effects for i in effect})
    position = {i: k for k, i in enumerate(chosen)}
    groups = {
        order: [effect for effect in effects if len(effect) == order]
        for order in sorted({len(effect) for effect in effects})
    }
    places = {k: np.array([[position[i] for i in e] for e in g]) for k, g in groups.items()}
    sums = {k: np.zeros((rows, len(g), size**k), kind) for k, g in groups.items()}
    lookup = Features(basis, chosen, size)
    for row, segment in enumerate(segments):
        if 1 in groups:
            sums[1][row] = lookup.sum(segment.inputs, segment.weights)[places[1][:, 0]]
        if set(groups) == {1}:
            continue
        features = lookup.evaluate(segment.inputs)
        weighted = features * segment.weights[:, None, None]
        for order in groups.keys() - {1}:
            sums[order][row] = _SUMMERS[order](weighted, features, places[order])
    return {e: sums[order][:, k] for order, g in groups.items() for k, e in enumerate(g)}


def difference_features(
    segments: Iterator[Segment], rows: int, basis: InputBasis, states: Sequence[int], size: int
) -> Array:
    """(row, state, size): features at the segment's end less those at its start, discounted.

    What a potential h adds to a return, sum_t gamma^t (gamma h(s') - h(s)), is all of this form.
    """
    differences = np.zeros((rows, len(states), size))
    lookup = Features(basis, states, size)
    for row, segment in enumerate(segments):
        ends = np.stack([segment.before, segment.after])
        features = lookup.evaluate(ends)
        ratio = segment.weights[1] / segment.weights[0] if len(segment.weights) > 1 else 1.0
        differences[row] = (
            features[1] * (segment.weights[-1] * ratio) - features[0] * segment.weights[0]
        )
    return differences


def _sum_pairs(weighted: Array, features: Array, where: IntArray) -> Array:
    """All pairs from one matrix product over the steps."""
    steps, count, size = features.shape
    every = weighted.reshape(steps, -1).T @ features.reshape(steps, -1)
    blocks = every.reshape(count, size, count, size)[where[:, 0], :, where[:, 1], :]
    return np.asarray(blocks.reshape(len(where), size * size))


def _sum_joint(weighted: Array, features: Array, where: IntArray) -> Array:
    """Effects of three or four inputs that share their first two from one matrix product."""
    steps, _, size = features.shape
    sums = np.empty((len(where), size ** where.shape[1]))
    pairs, group = np.unique(where[:, :2], axis=0, return_inverse=True)
    for k, (a, b) in enumerate(pairs):
        members = np.flatnonzero(group.ravel() == k)
        joint = (weighted[:, a, :, None] * features[:, b, None, :]).reshape(steps, -1)
        others = features[:, where[members, 2]]
        for place in range(3, where.shape[1]):
            last = features[:, where[members, place]]
            others = (others[..., None] * last[:, :, None, :]).reshape(steps, len(members), -1)
        block = (joint.T @ others.reshape(steps, -1)).reshape(size * size, len(members), -1)
        sums[members] = block.transpose(1, 0, 2).reshape(len(members), -1)
    return sums


_SUMMERS = {2: _sum_pairs, 3: _sum_joint, 4: _sum_joint}
