"""The posterior variance of a sum of effects, for many steps at once.

    variance = |F^T (phi - centre)|^2,    phi: the products of features of `effects`

This is most of the work of relabelling, so it is done in float32, which keeps six digits: values
and slopes of all features of an input lie side by side and are fetched together, main effects
share one matrix product, and each effect of several inputs adds one of its own.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Single = NDArray[np.float32]
_BLOCK = 512  # steps at once: memory this small is taken anew without asking the system for it


class SpreadTable:
    """The part of a model that the variance needs. It is made once and used for every block of
    steps."""

    def __init__(
        self,
        tables: Array,
        effects: Iterable[tuple[tuple[int, ...], slice, int]],
        factor: Array,
        centres: Array,
    ) -> None:
        """`tables` (input, grid, feature); of each effect its inputs, place and size."""
        inputs, grid, features = tables.shape
        if factor.shape[1] > factor.shape[0]:
            _, triangle = np.linalg.qr(factor.T)
            factor = triangle.T  # the same F F^T, with fewer columns
        self._offset = (centres @ factor).astype(np.float32)
        self._first = np.arange(inputs)[:, None] * (grid - 1)
        # (input * cell, 2, feature): where a cell begins, and how far it rises.
        pairs = np.stack([tables[:, :-1], np.diff(tables, axis=1)], 2)
        self._cells = pairs.reshape(-1, 2, features).astype(np.float32)
        mains = np.zeros((inputs, features, factor.shape[1]), np.float32)
        self._joint: list[tuple[tuple[int, ...], int, Single]] = []
        for effect, place, size in effects:
            part = factor[place].astype(np.float32)
            if len(effect) == 1:
                mains[effect[0], :size] += part
            else:
                self._joint.append((effect, size, part))
        self._mains = mains.reshape(inputs * features, factor.shape[1])

    def compute_variances(self, cells: NDArray[np.int64], parts: Array) -> Single:
        """(step,) from the grid cell of each input (input, step) and the position within it."""
        variances = np.empty(cells.shape[1], np.float32)
        for start in range(0, len(variances), _BLOCK):
            block = slice(start, start + _BLOCK)
            spread = self._compute_spread(cells[:, block], parts[:, block])
            variances[block] = np.einsum("nr,nr->n", spread, spread)
        return variances

    def _compute_spread(self, cells: NDArray[np.int64], parts: Array) -> Single:
        """(step, rank) F^T (phi - centre)"""
        inputs, steps = cells.shape
        found = self._cells.take((cells + self._first).T, axis=0)  # (step, input, 2, feature)
        features = found[:, :, 1] * parts.T.astype(np.float32)[:, :, None]
        features += found[:, :, 0]
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
