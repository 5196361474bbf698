"""One-dimensional features of each input, tabulated.

An input is a column of [states, actions, terminated(, next states)]. Its features are the leading
eigenfunctions of the centred kernel x x' + Matern-5/2(|x - x'| / 2) on quantiles of its
standardised values and on even points of their range, each times the root of its eigenvalue, so
that their inner product is the kernel. They are tabulated on an even grid, as `EffectModel`
evaluates them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from grd_offline.additive.bars import BARS
from grd_offline.core.interpolation import GridTables
from grd_offline.core.typing import Array, IntArray

Effect = tuple[int, ...]
Kernel = Callable[[Array, Array], Array]

GRID = 513  # points of the table of each smooth feature
_FEW_STEPS = 4  # a grid with more points than so many times the steps is not filled


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
        parts = (self.tables, other.tables)
        tables = [np.pad(one, ((0, 0), (0, 0), (0, size - one.shape[2]))) for one in parts]
        columns = np.concatenate([self.columns, other.columns])
        low, high = np.concatenate([(self.low, self.high), (other.low, other.high)], 1)
        return InputBasis(columns, low, high, np.concatenate(tables))


class Features(GridTables):
    """The first features of some inputs."""

    def __init__(self, basis: InputBasis, chosen: Sequence[int], size: int) -> None:
        where = np.array(chosen, np.int64)
        self.columns, self.tables = basis.columns[where], basis.tables[where, :, :size]
        super().__init__(self.tables, basis.low[where], basis.high[where])

    def locate(self, inputs: Array) -> tuple[IntArray, Array]:
        """The rows and parts of the chosen inputs, of all inputs (step, column)."""
        return super().locate(inputs[:, self.columns])

    def sum(self, inputs: Array, weights: Array) -> Array:
        """(chosen input, feature) sums over steps.

        Of many steps the shares per grid point are summed first, and then the features.
        """
        if len(inputs) * _FEW_STEPS < self.points:
            return np.asarray(np.tensordot(weights, self.evaluate(inputs), 1))
        row, part = self.locate(inputs)
        entries = len(self.values)
        upper = (part * weights[:, None]).ravel()
        lower = np.broadcast_to(weights[:, None], part.shape).ravel() - upper
        shares = np.bincount(row.ravel(), lower, entries)
        shares += np.bincount(row.ravel() + 1, upper, entries)
        return np.asarray((shares.reshape(-1, 1, self.points) @ self.tables)[:, 0])


def multiply_features(features: Iterable[Array]) -> Array:
    """(step, product) every product of one feature of each input."""
    return reduce(
        lambda left, right: (left[:, :, None] * right[:, None, :]).reshape(len(left), -1), features
    )


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
        # One of the earlier columns up to scale, sign and offset.
        if (np.abs(seen[: len(columns)] @ thinned) > 1 - BARS.duplicate / 2).any():
            continue
        seen[len(columns)] = thinned
        columns.append(column)
        beyond = reach * (high - low)
        ranges.append((low - beyond, high + beyond))
        nodes, shares = _choose_nodes(standard)
        first, last = standard.min(), standard.max()
        beyond = reach * (last - first)
        grid = np.linspace(first - beyond, last + beyond, GRID)
        for (size, kernel), own in zip(kinds, tables, strict=True):
            own.append(_tabulate(nodes, shares, grid, size, kernel))
    low_ends, high_ends = np.array(ranges, np.float64).reshape(-1, 2).T
    where = np.array(columns, np.int64)
    return [
        InputBasis(where, low_ends, high_ends, np.reshape(own, (-1, GRID, size)))
        for (size, _), own in zip(kinds, tables, strict=True)
    ]


def _find_range(values: Array) -> tuple[float, float]:
    """The values' range, without far outliers, which would leave no grid for the rest."""
    low, inner_low, inner_high, high = np.quantile(values, [0, 0.01, 0.99, 1])
    spread = inner_high - inner_low
    if spread > 0:
        reach = BARS.far_range * spread
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


def smooth_kernel(left: Array, right: Array) -> Array:
    """x x' + (1 + d + d^2 / 3) exp(-d), d = sqrt(5) |x - x'| / 2."""
    distance = np.sqrt(5.0) / 2 * np.abs(left[:, None] - right)
    matern = (1 + distance + distance**2 / 3) * np.exp(-distance)
    return np.asarray(np.outer(left, right) + matern)


def rough_kernel(left: Array, right: Array) -> Array:
    """exp(-|x - x'| / 2): functions with corners and jumps."""
    return np.exp(-np.abs(left[:, None] - right) / 2)


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
    if len(few) <= BARS.few_values:
        few, counts = np.unique(standard, return_counts=True)
    if len(few) <= BARS.few_values:
        return few, counts / counts.sum()
    counts = np.array([BARS.quantile_nodes, BARS.even_nodes])
    levels = np.quantile(standard, (np.arange(counts[0]) + 0.5) / counts[0])
    even = np.linspace(standard.min(), standard.max(), counts[1])
    shares = np.repeat(np.array([1 - BARS.even_share, BARS.even_share]) / counts, counts)
    nodes, places = np.unique(np.concatenate([levels, even]), return_inverse=True)
    return nodes, np.asarray(np.bincount(places, shares), np.float64)
