"""The regressors of one next state: which inputs and products of inputs explain it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from grd_offline.additive.dynamics.transitions import Array, IntArray

if TYPE_CHECKING:
    from grd_offline.additive.dynamics.search import Problem

RIDGE = 1e-7
"""Added to the mean square of every regressor."""
_MAX_MAINS = 200


class Design:
    """The regressors of one next state, and which groups each of them involves.

    `index` is the number of a feature, or -1 - k for the product k. `first` and `second` are the
    groups that a regressor involves; -1 stands for none.
    """

    def __init__(self, problem: Problem, state: int) -> None:
        self.problem = problem
        self.target = problem.targets[state]
        self.floor = float(problem.floor[state])
        self.least_rise = float(problem.least_rise[state])
        self.total = float(self.target @ self.target)
        self.products = np.zeros((0, problem.rows))
        self.index = np.zeros(0, np.int64)
        self.first = np.zeros(0, np.int64)
        self.second = np.zeros(0, np.int64)
        self.gram = np.zeros((0, 0))
        self.moments = np.zeros(0)
        groups = len(problem.groups)
        self.paired = np.zeros((groups, groups), np.bool_)

    def add_mains(self, groups: list[int]) -> None:
        """Add main effects, of fewer features where inputs are many."""
        problem = self.problem
        chosen = len(groups) + int(self.kept().sum())
        count = max(problem.count, min(problem.rich_count, _MAX_MAINS // max(1, chosen)))
        for group in groups:
            new = problem.members(group, count)
            is_main = self.index >= 0
            cross = np.empty((len(self.index), len(new)))
            cross[is_main] = problem.gram[np.ix_(self.index[is_main], new)]
            if not is_main.all():
                products = self.products[-1 - self.index[~is_main]]
                cross[~is_main] = products @ problem.features[new].T
            inner = problem.gram[np.ix_(new, new)]
            self._append(new, group, -1, cross, inner, problem.features[new] @ self.target)

    def add_pair(self, first: int, second: int, size: int) -> None:
        """Add the products of two groups' features, and the main effects that they lack."""
        problem = self.problem
        self.paired[first, second] = self.paired[second, first] = True
        present = set(self.first[self.second < 0].tolist())
        self.add_mains([group for group in (first, second) if group not in present])
        left, right = (problem.features[problem.members(g, size)] for g in (first, second))
        new = (left[:, None] * right[None, :]).reshape(-1, problem.rows)
        new -= new.mean(axis=1, keepdims=True)
        is_main = self.index >= 0
        cross = np.empty((len(self.index), len(new)))
        cross[is_main] = problem.features[self.index[is_main]] @ new.T
        cross[~is_main] = self.products[-1 - self.index[~is_main]] @ new.T
        inner = new @ new.T + RIDGE * problem.rows * np.eye(len(new))
        index = -1 - len(self.products) - np.arange(len(new))
        self._append(index, first, second, cross, inner, new @ self.target)
        self.products = np.concatenate([self.products, new])

    def _append(
        self, index: IntArray, first: int, second: int, cross: Array, inner: Array, moments: Array
    ) -> None:
        self.index = np.concatenate([self.index, index])
        self.first = np.concatenate([self.first, np.full(len(index), first)])
        self.second = np.concatenate([self.second, np.full(len(index), second)])
        self.gram = np.block([[self.gram, cross], [cross.T, inner]])
        self.moments = np.concatenate([self.moments, moments])

    def _keep(self, kept: NDArray[np.bool_]) -> None:
        self.index, self.first, self.second = self.index[kept], self.first[kept], self.second[kept]
        self.gram, self.moments = self.gram[np.ix_(kept, kept)], self.moments[kept]

    def residual(self, rows: int) -> Array:
        """(row,): what the regressors leave of the first rows."""
        residual: Array = self.target[:rows].copy()
        if len(self.index):
            weights = np.linalg.solve(self.gram, self.moments)
            is_main = self.index >= 0
            residual -= weights[is_main] @ self.problem.features[:, :rows][self.index[is_main]]
            products = self.products[:, :rows][-1 - self.index[~is_main]]
            residual -= weights[~is_main] @ products
        return residual

    def missed_mains(self) -> list[int]:
        """Groups left out whose main effect shows now that pairs have lowered the noise."""
        if not len(self.products):
            return []
        problem = self.problem
        wanted = self._outside_gains() > problem.penalty(problem.sizes) / problem.rows
        return [int(group) for group in np.flatnonzero(wanted)]

    def _outside_gains(self) -> Array:
        """(group,): nats per transition that a main effect would add, for groups without one."""
        problem = self.problem
        rows = problem.screen.shape[2]
        residual = self.residual(rows)
        slopes = np.zeros(len(problem.features))
        basic = problem.rank < problem.count
        found = problem.screen.reshape(-1, rows) @ residual.astype(np.float32)
        slopes[basic] = found.reshape(problem.screen.shape[:2])[
            problem.column[basic], problem.rank[basic]
        ]
        if not len(slopes):
            return np.zeros(len(problem.groups))
        part = np.where(problem.block_valid, slopes[problem.blocks], 0.0)
        inner = problem.inner * (rows / problem.rows)
        gains = (part * np.linalg.solve(inner, part[:, :, None])[:, :, 0]).sum(axis=1)
        rss = max(float(residual @ residual), self.floor * rows / problem.rows)
        gains[self.first[self.second < 0]] = 0.0
        return np.asarray(-0.5 * np.log1p(-np.clip(gains / rss, 0.0, 0.99)))

    def _rises(self, removals: list[NDArray[np.bool_]]) -> tuple[Array, float]:
        """(removal,) by how much the sum of squares rises when regressors go, and from what."""
        inverse = np.linalg.inv(self.gram)
        weights = inverse @ self.moments
        rss = max(self.total - float(weights @ self.moments), self.floor)
        rises = np.zeros(len(removals))
        for k, removed in enumerate(removals):
            part = weights[removed]
            rises[k] = part @ np.linalg.solve(inverse[np.ix_(removed, removed)], part)
        return np.maximum(rises, 0.0), rss

    def _involving(self, group: int) -> NDArray[np.bool_]:
        return np.asarray((self.first == group) | (self.second == group))

    def eliminate(self) -> None:
        """Remove pairs and inputs while the least missed of them costs less than it must."""
        while len(self.index):
            owners = np.stack([self.first, self.second])[:, self.second >= 0]
            pairs = np.unique(owners, axis=1).T
            removals = [(self.first == a) & (self.second == b) for a, b in pairs]
            removals += [self._involving(int(group)) for group in np.flatnonzero(self.kept())]
            rises, rss = self._rises(removals)
            spare = np.log1p(rises / rss) - self._needed(removals, len(pairs), rss)
            worst = int(spare.argmin())
            if spare[worst] >= 0:
                break
            self._keep(~removals[worst])

    def _needed(self, removals: list[NDArray[np.bool_]], pairs: int, rss: float) -> Array:
        """(removal,): rise of the log residual variance that keeps it; the pairs come first."""
        problem = self.problem
        sizes = np.array([removed.sum() for removed in removals])
        needed: Array = 2 * problem.penalty(sizes) / problem.rows
        least = np.log1p(max(problem.settings.min_gain, self.least_rise / rss))
        needed[pairs:] = np.maximum(needed[pairs:], least)
        return needed

    def kept(self) -> NDArray[np.bool_]:
        """(group,): whether each group takes part."""
        kept = np.zeros(len(self.problem.groups), np.bool_)
        kept[self.first] = True
        kept[self.second[self.second >= 0]] = True
        return kept

    def strengths(self) -> Array:
        """(group,): nats per transition lost without the group, or gained by adding it."""
        strengths = self._outside_gains()
        groups = np.flatnonzero(self.kept())
        if len(groups):
            rises, rss = self._rises([self._involving(int(group)) for group in groups])
            strengths[groups] = 0.5 * np.log1p(rises / rss)
        return strengths
