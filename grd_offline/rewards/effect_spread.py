"""The posterior variance of a sum of effects, for many steps at once.

    variance = |F^T (phi - centre)|^2,    phi: the products of features of `effects`

This is most of the work of relabelling, so it is done in float32, which keeps six digits: main
effects share one matrix product, and each effect of several inputs adds one of its own.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from grd_offline.core.interpolation import GridTables, interpolate
from grd_offline.core.typing import AnyArray, Array, IntArray, SingleArray

_BLOCK = 512  # steps at once: memory this small is taken anew without asking the system for it


class SpreadTable:
    """The part of a model that the variance needs. It is made once and used for every block of
    steps."""

    def __init__(
        self,
        grid: GridTables,
        effects: Iterable[tuple[tuple[int, ...], slice, int]],
        factor: Array,
        centres: Array,
    ) -> None:
        """Of each effect its inputs, place and size."""
        inputs, features = len(grid.first), grid.values.shape[1]
        if factor.shape[1] > factor.shape[0]:
            _, triangle = np.linalg.qr(factor.T)
            factor = triangle.T  # the same F F^T, with fewer columns
        self._offset = (centres @ factor).astype(np.float32)
        self._values: AnyArray = grid.values.astype(np.float32)
        self._rises: AnyArray = grid.rises.astype(np.float32)
        mains = np.zeros((inputs, features, factor.shape[1]), np.float32)
        self._joint: list[tuple[tuple[int, ...], int, SingleArray]] = []
        for effect, place, size in effects:
            part = factor[place].astype(np.float32)
            if len(effect) == 1:
                mains[effect[0], :size] += part
            else:
                self._joint.append((effect, size, part))
        self._mains = mains.reshape(inputs * features, factor.shape[1])

    def compute_variances(self, rows: IntArray, parts: Array) -> SingleArray:
        """(step,) from the rows of the grid's values and the parts, both (step, input)."""
        variances = np.empty(len(rows), np.float32)
        for start in range(0, len(variances), _BLOCK):
            block = slice(start, start + _BLOCK)
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
