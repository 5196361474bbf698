"""Transitions, smooth one-dimensional features of their inputs, and a test for products of two of
them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from grd_offline.core.episodes import EpisodeSet
from grd_offline.core.errors import DataError
from grd_offline.core.interpolation import interpolate, locate_between_nodes
from grd_offline.core.typing import Array, BoolArray, IntArray

_MAX_EPISODES = 5_000


@dataclass(frozen=True)
class Transitions:
    """Steps from one observation to the next, in random order, in float64."""

    inputs: Array
    """(transition, state + action): observation and action."""
    targets: Array
    """(transition, state): the observation that followed."""
    episodes: IntArray
    """(transition,): which episode each is from."""

    def __len__(self) -> int:
        return len(self.targets)

    def take(self, rows: IntArray | slice) -> Transitions:
        """Take some of the transitions."""
        return Transitions(self.inputs[rows], self.targets[rows], self.episodes[rows])


def draw_transitions(episodes: EpisodeSet, limit: int, rng: np.random.Generator) -> Transitions:
    """About `limit` transitions, spread evenly over all episodes; all if there are fewer.

    Never from one episode to the next: an episode of T steps has T transitions where its final
    observation is known, T - 1 where not. Of a set of more than 5,000 episodes, that many are read.
    """
    if len(episodes) > _MAX_EPISODES:
        episodes = episodes[np.sort(rng.choice(len(episodes), _MAX_EPISODES, replace=False))]
    share = min(1.0, limit / max(1, episodes.total_steps))
    inputs, targets, origins = [], [], []
    for index, episode in enumerate(episodes):
        available = len(episode.observations) - 1
        count = min(available, int(available * share + rng.random())) if share < 1 else available
        rows = np.sort(rng.choice(available, count, replace=False))
        inputs.append(np.hstack([episode.observations[rows], episode.actions[rows]]))
        targets.append(episode.observations[rows + 1])
        origins.append(np.full(count, index, np.int64))
    order = rng.permutation(sum(map(len, targets)))
    if not len(order):
        raise DataError("no transitions: every episode holds a single observation")
    return Transitions(
        np.concatenate(inputs)[order].astype(np.float64),
        np.concatenate(targets)[order].astype(np.float64),
        np.concatenate(origins)[order],
    )


def split_transitions(
    transitions: Transitions, share: float, rng: np.random.Generator
) -> tuple[Transitions, Transitions]:
    """Keep some episodes out; transitions where there is but one, and none of a single one."""
    present = np.unique(transitions.episodes)
    if len(present) > 1:
        chosen = rng.permutation(present)[: max(1, round(share * len(present)))]
        out = np.isin(transitions.episodes, chosen)
    else:
        out = np.arange(len(transitions)) < round(share * len(transitions))
    if not out.any() or out.all():
        return transitions, transitions
    return transitions.take(np.flatnonzero(~out)), transitions.take(np.flatnonzero(out))


NODES = 64
_MAX_STANDARD = 1e6


@dataclass(frozen=True, eq=False)
class FeatureTable:
    """Smooth one-dimensional features of each input, as values at nodes."""

    center: Array
    """(input,): mean of each input."""
    scale: Array
    """(input,): standard deviation of each; 1 where it is constant."""
    nodes: Array
    """(input, node): increasing, in standardised units."""
    values: Array
    """(input, node, feature): feature 0 is the value itself; zeros past `counts`."""
    counts: IntArray
    """(input,): features that the input has: none if constant, one if it takes two values."""

    def standardise(self, inputs: Array) -> Array:
        """Inputs at zero mean and unit variance, far outliers bounded."""
        standard = (inputs - self.center) / self.scale
        return np.clip(standard, -_MAX_STANDARD, _MAX_STANDARD)

    def evaluate(self, inputs: Array, column: int, count: int) -> Array:
        """(feature, row): the first `count` features of an input, held at the ends of the range."""
        nodes, values = self.nodes[column], self.values[column, :, :count]
        standard = (inputs[:, column] - self.center[column]) / self.scale[column]
        return interpolate(values, *locate_between_nodes(standard, nodes)).T


def build_feature_table(inputs: Array, count: int) -> FeatureTable:
    """Build at most `count` features per input. They are orthonormal on the data, and the smoothest
    come first.

    The first is the value itself; the others are the leading eigenfunctions of a Matern-5/2 kernel
    on quantiles of the data, once constant and value are projected out.
    """
    size = inputs.shape[1]
    center, spread = inputs.mean(axis=0), inputs.std(axis=0)
    varies = is_varying(inputs)
    scale = np.where(varies, spread, 1.0)
    table = FeatureTable(
        np.where(varies, center, inputs[0]),
        scale,
        np.tile(np.linspace(-1.0, 1.0, NODES), (size, 1)),
        np.zeros((size, NODES, count)),
        np.zeros(size, np.int64),
    )
    for column in np.flatnonzero(varies):
        standard = (inputs[:, column] - center[column]) / scale[column]
        nodes, values = _build_curves(standard, count)
        table.nodes[column], table.values[column, :, : values.shape[1]] = nodes, values
        table.counts[column] = values.shape[1]
    return table


def is_varying(values: Array) -> BoolArray:
    """Find the columns that vary by more than the rounding of float32."""
    return np.asarray(values.std(axis=0) > 1e-6 * np.abs(values).max(axis=0) + 1e-30)


def _build_curves(standard: Array, count: int) -> tuple[Array, Array]:
    """Nodes and curves of one standardised input."""
    points = np.unique(standard)
    if len(points) > NODES:
        # Half where the data are, half over all their range: rare values need their curve too.
        quantiles = np.quantile(standard, np.linspace(0, 1, NODES // 2))
        evenly = np.linspace(points[0], points[-1], NODES // 2)
        points = np.unique(np.concatenate([quantiles, evenly]))
    nearest = np.searchsorted(0.5 * (points[1:] + points[:-1]), standard)
    weights = (np.bincount(nearest, minlength=len(points)) + 0.5) / len(standard)
    curves = _smooth_curves(points, weights, min(count, len(points) - 1))
    # A table has a fixed number of nodes: those that are lacking follow the last.
    lacking = NODES - len(points)
    nodes = np.concatenate([points, points[-1] + np.arange(1, lacking + 1)])
    return nodes, np.concatenate([curves, np.repeat(curves[-1:], lacking, axis=0)])


def _smooth_curves(points: Array, weights: Array, count: int) -> Array:
    """(point, count): the value itself, then what varies most smoothly beside it.

    Smoothness is weighed by the root of the density, between the data and an even spread: under
    the density alone, the first few curves are flat where data are rare.
    """
    widths = np.gradient(points)
    root = (weights * widths / (weights * widths).sum()) ** 0.25
    root /= np.linalg.norm(root)
    known, _ = np.linalg.qr(np.stack([root, root * points], axis=1))
    distance = np.sqrt(5.0) * np.abs(points[:, None] - points[None, :])
    kernel = (1 + distance + distance**2 / 3) * np.exp(-distance)
    kernel = root[:, None] * kernel * root[None, :]
    outside = np.eye(len(points)) - known @ known.T
    _, vectors = np.linalg.eigh(outside @ kernel @ outside)
    curves = vectors[:, ::-1][:, : count - 1] / root[:, None]
    weights = weights / weights.sum()
    curves = curves - weights @ curves
    curves = curves / np.maximum(np.sqrt(weights @ curves**2), 1e-6)
    return np.concatenate([points[:, None], curves], axis=1)


class PairScores(NamedTuple):
    """Scores of products of two inputs: how much each explains of a residual."""

    score: Array
    """(input, input): above 0 if the data ask for the pair; upper triangle, -inf elsewhere."""
    sizes: IntArray
    """(input, input): how many features per input served best."""


def score_pairs(
    features: NDArray[np.float32], squares: NDArray[np.float32], residual: Array
) -> PairScores:
    """A score test for every pair of inputs at once, main effects or not.

    `features` (input, feature, row), `squares` their Gram matrix of squares, see `sum_squares`.
    The statistic is chi-squared with size^2 degrees of freedom, less log n for each.
    """
    inputs, count, rows = features.shape
    flat = features.reshape(-1, rows)
    scaled = (residual / max(float(residual.std()), 1e-30)).astype(np.float32)
    moments = (flat * scaled) @ flat.T
    tests = (moments**2 / squares).reshape(inputs, count, inputs, count)
    sizes = sorted({1, min(2, count), min(3, count), min(5, count), count})
    totals = np.stack(
        [tests[:, :s, :, :s].sum(axis=(1, 3)) - s * s * np.log(rows) for s in sizes]
    ).astype(np.float64)
    best = totals.argmax(axis=0)
    score = np.where(np.triu(np.ones((inputs, inputs), np.bool_), 1), totals.max(axis=0), -np.inf)
    return PairScores(score, np.array(sizes)[best])


def sum_squares(features: NDArray[np.float32]) -> NDArray[np.float32]:
    """The variance of each product of two features, times the number of rows."""
    flat = features.reshape(-1, features.shape[2]) ** 2
    return np.asarray(np.maximum(flat @ flat.T, 1e-3 * features.shape[2]), np.float32)
