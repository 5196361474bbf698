"""Fitting a dynamics model within masks: a regression for each state, and its residuals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grd_offline.additive.dynamics.features import (
    Transitions,
    build_feature_table,
    draw_transitions,
    is_varying,
    score_pairs,
    split_transitions,
    sum_squares,
)
from grd_offline.additive.dynamics.model import (
    COMPONENTS,
    DynamicsModel,
    DynamicsModelSettings,
    mixture_log_density,
)
from grd_offline.core.episodes import EpisodeSet
from grd_offline.core.typing import Array, BoolArray, IntArray

Progress = Callable[[str, float], None]
_REGRESSION_WORK = 4e10
_PAIR_ROWS = 8_000
_COMPARED_TRANSITIONS = 20_000
_RESIDUAL_ROWS = 4_000
_MAX_ENTRIES = 20_000_000


_TESTED = {"masked": (0.0, 0.3), "unmasked": (0.3, 1.0)}
"""Where the fits with and without masks begin and end, as fractions of the time of both."""


def ignore_progress(stage: str, fraction: float) -> None:
    """The progress callback that does nothing."""


def fit_dynamics_model(
    episodes: EpisodeSet,
    state_to_state: ArrayLike,
    action_to_state: ArrayLike,
    settings: DynamicsModelSettings | None = None,
    rng: np.random.Generator | None = None,
    progress: Progress = ignore_progress,
) -> DynamicsModel:
    """Fit the dynamics within masks, wherever they come from; ones for no masks at all."""
    settings = settings or DynamicsModelSettings()
    rng = rng if rng is not None else np.random.default_rng(0)
    transitions = draw_transitions(episodes, settings.max_transitions, rng)
    masks = check_dynamics_masks(episodes, state_to_state, action_to_state)
    return fit_to_transitions(transitions, masks, episodes, settings, rng, progress)


def compare_masks(
    episodes: EpisodeSet,
    state_to_state: ArrayLike,
    action_to_state: ArrayLike,
    rng: np.random.Generator | None = None,
    progress: Progress = ignore_progress,
) -> dict[str, float]:
    """Held-out log-likelihood per transition within the masks, and without any.

    Both are fitted to and judged by the same transitions. Masks that leave nothing out that
    matters lose nothing, or gain, since less is left to overfit. The difference shows with fewer
    transitions than the model itself is fitted to.
    """
    settings = DynamicsModelSettings(max_transitions=_COMPARED_TRANSITIONS)
    seed = int((rng if rng is not None else np.random.default_rng(0)).integers(2**63))
    candidates = {
        "masked": (state_to_state, action_to_state),
        "unmasked": (np.ones_like(state_to_state), np.ones_like(action_to_state)),
    }
    result: dict[str, float] = {}
    for name, (states, actions) in candidates.items():
        begin, end = _TESTED[name]

        def report(stage: str, share: float, begin: float = begin, end: float = end) -> None:
            progress("testing the dynamics", begin + (end - begin) * share)

        model = fit_dynamics_model(
            episodes, states, actions, settings, np.random.default_rng(seed), report
        )
        result[name] = float(model.metrics["held_out_log_likelihood"])
    return result


def check_dynamics_masks(
    episodes: EpisodeSet, state_to_state: ArrayLike, action_to_state: ArrayLike
) -> BoolArray:
    """(state + action, state): both masks in one, shapes and values checked."""
    size = episodes.state_size
    masks = []
    for name, mask, rows in (
        ("state_to_state", state_to_state, size),
        ("action_to_state", action_to_state, episodes.action_size),
    ):
        array = np.asarray(mask)
        if array.shape != (rows, size):
            raise ValueError(f"{name}: expected shape {(rows, size)}, got {array.shape}")
        if not np.isin(array, (0, 1)).all():
            raise ValueError(f"{name}: expected 0 and 1 only")
        masks.append(array.astype(np.bool_))
    return np.concatenate(masks)


def fit_to_transitions(
    transitions: Transitions,
    masks: BoolArray,
    names: EpisodeSet,
    settings: DynamicsModelSettings,
    rng: np.random.Generator,
    progress: Progress,
) -> DynamicsModel:
    """Fit to transitions that are drawn already; `names` gives the dimensions their names."""
    training, held_out = split_transitions(transitions, settings.held_out, rng)
    progress("fitting the dynamics", 0.0)
    regression = _Regression(training, settings)
    terms, weights = [], []
    for state in range(names.state_size):
        found = regression.fit(state, np.flatnonzero(masks[:, state]))
        terms.append(np.insert(found[0], 0, state, axis=1))
        weights.append(found[1])
        progress("fitting the dynamics", (state + 1) / names.state_size)
    bare = DynamicsModel(
        state_to_state=masks[: names.state_size].astype(np.int64),
        action_to_state=masks[names.state_size :].astype(np.int64),
        table=regression.table,
        target_center=regression.target_center,
        target_scale=regression.target_scale,
        persistent=regression.persistent,
        terms=np.concatenate(terms).astype(np.int32),
        weights=np.concatenate(weights),
        mixture_weights=np.tile([1.0, 0.0, 0.0], (names.state_size, 1)),
        mixture_means=np.zeros((names.state_size, COMPONENTS)),
        mixture_stds=np.ones((names.state_size, COMPONENTS)),
        state_names=names.observation_names,
        action_names=names.action_names,
        metrics={},
        settings=settings,
    )
    return _with_residuals(_without_failures(bare, held_out), training, held_out)


def _without_failures(model: DynamicsModel, held_out: Transitions) -> DynamicsModel:
    """Replace a regression by the mean if it does worse than the mean on held-out data.

    States that hardly ever move, such as contact forces, are fitted to a handful of transitions.
    """
    change = held_out.targets - model.find_center(held_out.inputs)
    plain = ((change / model.target_scale) ** 2).mean(axis=0)
    residuals = model.find_residuals(held_out.inputs, held_out.targets)
    failed = (residuals**2).mean(axis=0) > plain
    return replace(model, weights=np.where(failed[model.terms[:, 0]], 0.0, model.weights))


class _Regression:
    """Regresses each next state on features of its parents and on products of two of them."""

    def __init__(self, transitions: Transitions, settings: DynamicsModelSettings) -> None:
        self.settings = settings
        # Few transitions do not carry many features, and many inputs do not fit into memory.
        self.count = int(np.clip(len(transitions) // 50, 1, settings.features))
        rows = max(1_000, _MAX_ENTRIES // (self.count * transitions.inputs.shape[1]))
        self.transitions = transitions = transitions.take(slice(0, rows))
        self._curves: dict[int, Array] = {}
        self.pair_count = min(self.count, settings.pair_features)
        self.table = build_feature_table(transitions.inputs, self.count)
        targets = transitions.targets
        states = targets.shape[1]
        self.persistent = ~is_varying(targets) & (
            np.abs(targets - transitions.inputs[:, :states]).max(axis=0)
            <= 1e-5 * np.abs(targets).max(axis=0)
        )
        varies = is_varying(targets)
        self.target_center = np.where(self.persistent, 0.0, targets.mean(axis=0))
        size = np.abs(targets).max(axis=0)
        self.target_scale = np.where(varies, targets.std(axis=0), np.where(size > 0, size, 1.0))
        self.varies = varies
        self._mains: _Mains | None = None

    def fit(self, state: int, parents: IntArray) -> tuple[IntArray, Array]:
        """Terms (term, 2) and their weights for one next state."""
        parents = parents[self.table.counts[parents] > 0]
        if not self.varies[state]:
            return np.zeros((0, 2), np.int64), np.zeros(0)
        target = (self.transitions.targets[:, state] - self.target_center[state]) / (
            self.target_scale[state]
        )
        if self._mains is None or not np.array_equal(self._mains.parents, parents):
            self._mains = self._prepare(parents)
        mains = self._mains
        target = target[: mains.ridge.rows]
        weights = mains.ridge.solve(target)
        rows = slice(0, _PAIR_ROWS)
        residual = target[rows] - weights @ mains.ridge.design[:, rows]
        pairs = self._pair_terms(mains, residual, self.settings.max_columns - len(mains.terms))
        if not len(pairs):
            return mains.terms, weights
        terms = np.concatenate([mains.terms, pairs])
        ridge = Ridge(self._design(terms))
        return terms, ridge.solve(target[: ridge.rows])

    def _prepare(self, parents: IntArray) -> _Mains:
        terms = self._main_terms(parents)
        rows = slice(0, _PAIR_ROWS)
        curves = [self._evaluate(int(c))[: self.pair_count, rows] for c in parents]
        empty = np.zeros((0, self.pair_count, 0), np.float32)
        features = np.stack(curves).astype(np.float32) if curves else empty
        return _Mains(parents, terms, Ridge(self._design(terms)), features)

    def _main_terms(self, parents: IntArray) -> IntArray:
        """The constant, and for each parent its value and its curves."""
        inputs = len(self.table.counts)
        count = int(np.clip(self.settings.max_columns // (2 * len(parents) + 1), 1, self.count))
        regressors = [0]
        for parent in parents:
            curves = min(count, int(self.table.counts[parent]))
            regressors.append(1 + int(parent))
            regressors += [1 + inputs + int(parent) * self.count + k for k in range(1, curves)]
        return np.stack([regressors, np.zeros(len(regressors), np.int64)], axis=1)

    def _pair_terms(self, mains: _Mains, residual: Array, room: int) -> IntArray:
        """Products of two parents' features, the pairs of which the residual asks for."""
        none, parents = np.zeros((0, 2), np.int64), mains.parents
        if len(parents) < 2 or self.pair_count < 1 or not self.settings.max_pairs:
            return none
        scores = score_pairs(mains.features, mains.squares, residual)
        score = scores.score
        order = np.argsort(score, axis=None)[::-1][: self.settings.max_pairs]
        found = []
        for place in order:
            a, b = divmod(int(place), len(parents))
            new = self._pair_block(int(parents[a]), int(parents[b]), int(scores.sizes[a, b]))
            if score[a, b] <= 0 or len(new) > room:
                break
            room -= len(new)
            found.append(new)
        return np.concatenate(found) if found else none

    def _pair_block(self, first: int, second: int, size: int) -> IntArray:
        base = 1 + len(self.table.counts)
        left = np.arange(min(size, int(self.table.counts[first])))
        right = np.arange(min(size, int(self.table.counts[second])))
        grid = np.stack(np.meshgrid(left, right, indexing="ij"), axis=-1).reshape(-1, 2)
        return np.asarray(base + np.array([first, second]) * self.count + grid)

    def _design(self, terms: IntArray) -> Array:
        """(term, row), of as many rows as the time allows."""
        work = len(terms) ** 2 * len(self.varies)
        rows = max(int(_REGRESSION_WORK / work), 20 * len(terms), _PAIR_ROWS)
        design = np.empty((len(terms), min(rows, len(self.transitions))))
        for k, (first, second) in enumerate(terms):
            left, right = (self._regressor(i, design.shape[1]) for i in (first, second))
            np.multiply(left, right, out=design[k])
        return design

    def _regressor(self, index: int, rows: int) -> Array | float:
        """(row,): a regressor by its number; within the data a value is its own feature 0."""
        inputs = len(self.table.counts)
        if index == 0:
            return 1.0
        column, feature = int(index) - 1, 0
        if index > inputs:
            column, feature = divmod(int(index) - 1 - inputs, self.count)
        return np.asarray(self._evaluate(column)[feature, :rows])

    def _evaluate(self, column: int) -> Array:
        """(feature, row), worked out once."""
        if column not in self._curves:
            inputs = self.transitions.inputs
            self._curves[column] = self.table.evaluate(inputs, column, self.count)
        return self._curves[column]


class Ridge:
    """A regression on rows of `design`, the first of which, a constant, goes free."""

    def __init__(self, design: Array) -> None:
        self.design, self.rows = design, design.shape[1]
        self.mean = design[1:].mean(axis=1)
        gram = design[1:] @ design[1:].T - self.rows * np.outer(self.mean, self.mean)
        values, self.vectors = np.linalg.eigh(gram)
        self.values = np.maximum(values, 0.0)

    def solve(self, target: Array) -> Array:
        """Solve for the weights of one target.

        One prior variance for all weights and the noise are found by maximising the evidence
        (MacKay's fixed point), in the eigenbasis of the Gram matrix.
        """
        values, level = self.values, float(target.mean())
        projected = self.vectors.T @ (self.design[1:] @ (target - level))
        total = float(((target - level) ** 2).sum())
        ridge = 1e-6 * len(target)
        for _ in range(20):
            shrunk = projected / (values + ridge)
            degrees = float((values / (values + ridge)).sum())
            error = max(total - float((shrunk * (2 * projected - values * shrunk)).sum()), 0.0)
            noise = error / max(len(target) - degrees, 1.0) + 1e-12
            size = float((shrunk**2).sum())
            ridge = float(np.clip(noise * degrees / (size + 1e-12), 1e-9 * len(target), 1e3))
        weights = self.vectors @ (projected / (values + ridge))
        return np.concatenate([[level - weights @ self.mean], weights])


@dataclass(eq=False)
class _Mains:
    """The part that all next states with the same parents share."""

    parents: IntArray
    terms: IntArray
    ridge: Ridge
    features: NDArray[np.float32]
    """(parent, feature, row) what their products are made of."""

    @cached_property
    def squares(self) -> NDArray[np.float32]:
        """The squares of these features, for `score_pairs`."""
        return sum_squares(self.features)


def _with_residuals(
    bare: DynamicsModel, training: Transitions, held_out: Transitions
) -> DynamicsModel:
    """The model with a residual distribution and with figures from held-out transitions."""
    chosen = slice(0, _RESIDUAL_ROWS)
    residuals = bare.find_residuals(training.inputs[chosen], training.targets[chosen])
    out = bare.find_residuals(held_out.inputs, held_out.targets)
    # The least standard deviation: what float32 can tell apart, with room.
    floor = 1e-5 + 1e-6 * np.abs(bare.target_center) / bare.target_scale
    # What the fit has seen it predicts too well.
    growth = np.sqrt((out**2).mean(axis=0) / np.maximum((residuals**2).mean(axis=0), 1e-30))
    growth = np.clip(growth, 1.0, 10.0)
    simple = np.zeros((bare.state_size, COMPONENTS))
    simple[:, 0] = 1.0
    std = np.maximum(np.sqrt((residuals**2).mean(axis=0)) * growth, floor)
    plain = simple, np.zeros_like(simple), np.repeat(std[:, None], COMPONENTS, axis=1)
    mixed = tuple(part.copy() for part in plain)
    odd = np.flatnonzero(_is_odd(residuals) & ~bare.persistent)
    found = _fit_mixture(residuals[:, odd] * growth[odd], floor[odd])
    for part, new in zip(mixed, found, strict=True):
        part[odd] = new
    gain = mixture_log_density(out, *mixed).mean(axis=0)
    gain -= mixture_log_density(out, *plain).mean(axis=0)
    better = (gain > 0.002)[:, None]
    weights, means, stds = (np.where(better, m, p) for m, p in zip(mixed, plain, strict=True))
    model = replace(bare, mixture_weights=weights, mixture_means=means, mixture_stds=stds)
    return replace(model, metrics=_measure(model, training, held_out))


def _is_odd(residuals: Array) -> BoolArray:
    """Find the columns that are clearly not Gaussian, by skewness and kurtosis."""
    centred = residuals - residuals.mean(axis=0)
    centred = centred / np.maximum(centred.std(axis=0), 1e-30)
    skewness, kurtosis = (centred**3).mean(axis=0), (centred**4).mean(axis=0) - 3
    spread = np.sqrt(6 / len(residuals))
    return np.asarray((np.abs(skewness) > 4 * spread) | (np.abs(kurtosis) > 8 * spread))


def _fit_mixture(residuals: Array, floor: Array) -> tuple[Array, Array, Array]:
    """Three Gaussians per column by expectation maximisation; total mean 0."""
    spread = np.maximum(residuals.std(axis=0), floor)
    states = residuals.shape[1]
    weights = np.tile([0.5, 0.25, 0.25], (states, 1))
    means = np.stack([0 * spread, -0.7 * spread, 0.7 * spread], axis=1)
    stds = np.stack([0.6 * spread, spread, spread], axis=1)
    for _ in range(40):
        standard = (residuals[:, :, None] - means) / stds
        parts = weights / stds * np.exp(-0.5 * np.minimum(standard**2, 1400.0))
        shares = parts / np.maximum(parts.sum(axis=2, keepdims=True), 1e-300)
        counts = np.maximum(shares.sum(axis=0), 1e-9)
        weights = counts / counts.sum(axis=1, keepdims=True)
        means = (shares * residuals[:, :, None]).sum(axis=0) / counts
        squares = (shares * (residuals[:, :, None] - means) ** 2).sum(axis=0) / counts
        # No component may close in on a single residual.
        stds = np.sqrt(np.maximum(squares, (np.maximum(floor, 0.02 * spread) ** 2)[:, None]))
    return weights, means - (weights * means).sum(axis=1, keepdims=True), stds


def _measure(model: DynamicsModel, training: Transitions, held_out: Transitions) -> dict[str, Any]:
    """Measure the quality for the card, on transitions that the fit has not seen if there are
    any."""
    states = model.state_size
    observations, actions = held_out.inputs[:, :states], held_out.inputs[:, states:]
    error = ((model.predict(observations, actions) - held_out.targets) ** 2).mean(axis=0)
    moved = ((held_out.targets - observations) ** 2).mean(axis=0)
    spread = np.maximum(held_out.targets.var(axis=0), 1e-30)
    likelihood = model.log_likelihood(observations, actions, held_out.targets)
    exact = error <= 1e-30
    return {
        "training_transitions": len(training),
        "held_out_transitions": len(held_out) if held_out is not training else 0,
        "held_out_r2": np.where(exact, 1.0, np.maximum(1 - error / spread, -1e3)).tolist(),
        "held_out_r2_of_change": np.where(
            exact, 1.0, np.maximum(1 - error / np.maximum(moved, 1e-30), -1e3)
        ).tolist(),
        "held_out_log_likelihood": float(likelihood.mean()),
    }
