"""A model of the next observation that other code can import: predict, sample, score, save, load.

Each state dimension is predicted from its parents alone, as the causal masks have them:

    s_{i,t+1} = sum_c f_ic(x_c) + sum_{a,b} f_iab(x_a, x_b) + residual,    x = (s_t, a_t)

over the parents c and over the pairs (a, b) of parents for which the data speak. Each f is a
weighted sum of one-dimensional features or of products of two of them. The features of an input
are its value and smooth curves over the range of the data, kept as a table of values at nodes;
outside that range the curves are held at their ends and only the value itself goes on. The
residual is Gaussian, or a mixture of three Gaussians where that predicts held-out data better.

`fit_dynamics_model` fits within any masks; with masks of ones it is the model that knows no graph,
and `compare_masks` gives the likelihood of held-out transitions under both. A saved model is
numbers and text: loading one runs no code from the file and checks everything that it reads.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grd_offline.episodes import EpisodeSet
from grd_offline.errors import DataError
from grd_offline.storage import create_file, replace_folder

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
Progress = Callable[[str, float], None]

FORMAT = "grd-offline dynamics model"
VERSION = 1
COMPONENTS = 3
FOLDER = "dynamics_model"

_NODES = 64
_MAX_EPISODES = 5_000
_MAX_DIMENSIONS = 100_000
_MAX_TERMS = 20_000_000
_MAX_CONFIG_BYTES = 16 << 20
_MAX_WEIGHTS_BYTES = 2 << 30
_MAX_STANDARD = 1e6
_CHUNK_ENTRIES = 5_000_000
_REGRESSION_WORK = 4e10
_PAIR_ROWS = 8_000
_RESIDUAL_ROWS = 4_000
_MAX_ENTRIES = 20_000_000


def ignore_progress(stage: str, fraction: float) -> None:
    """The progress callback that does nothing."""


@dataclass(frozen=True)
class DynamicsModelSettings:
    """How a dynamics model is fitted within its masks."""

    features: int = 10
    """Features per parent, the value itself included; fewer where parents are many."""
    pair_features: int = 5
    """Features per input in a product of two parents."""
    max_pairs: int = 12
    """Pairs of parents per state dimension, those that matter most."""
    max_columns: int = 400
    """Largest number of regressors per state dimension; pairs that would exceed it are left out."""
    max_transitions: int = 50_000
    """Transitions used, drawn at random from all episodes where there are more."""
    held_out: float = 0.1
    """Share of the episodes kept out of the fit, to judge it and its residuals by."""

    def __post_init__(self) -> None:
        for name, low in (("features", 1), ("pair_features", 1), ("max_pairs", 0)):
            check_whole(self, name, low)
        check_whole(self, "max_columns", 1)
        check_whole(self, "max_transitions", 1)
        if not 0 < self.held_out < 1:
            raise ValueError(f"held_out: expected a share between 0 and 1, got {self.held_out!r}")


def check_whole(settings: object, name: str, low: int) -> None:
    """Refuse a setting that is not a whole number of at least `low`."""
    value = getattr(settings, name)
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < low:
        raise ValueError(f"{name}: expected a whole number of at least {low}, got {value!r}")


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
        """Some of them."""
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
        """(feature, row): the first `count` features of an input, held at the ends of the range.

        Linear interpolation between nodes.
        """
        nodes, values = self.nodes[column], self.values[column, :, :count]
        standard = (inputs[:, column] - self.center[column]) / self.scale[column]
        place = np.clip(standard, nodes[0], nodes[-1])
        left = np.clip(np.searchsorted(nodes, place, side="right") - 1, 0, len(nodes) - 2)
        share = (place - nodes[left]) / (nodes[left + 1] - nodes[left])
        slopes = np.diff(values, axis=0).T
        return np.asarray(values.T[:, left] + slopes[:, left] * share)


def build_feature_table(inputs: Array, count: int) -> FeatureTable:
    """At most `count` features per input, orthonormal under the data, smoothest first.

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
        np.tile(np.linspace(-1.0, 1.0, _NODES), (size, 1)),
        np.zeros((size, _NODES, count)),
        np.zeros(size, np.int64),
    )
    for column in np.flatnonzero(varies):
        standard = (inputs[:, column] - center[column]) / scale[column]
        nodes, values = _build_curves(standard, count)
        table.nodes[column], table.values[column, :, : values.shape[1]] = nodes, values
        table.counts[column] = values.shape[1]
    return table


def is_varying(values: Array) -> NDArray[np.bool_]:
    """Which columns move by more than the rounding of float32."""
    return np.asarray(values.std(axis=0) > 1e-6 * np.abs(values).max(axis=0) + 1e-30)


def _build_curves(standard: Array, count: int) -> tuple[Array, Array]:
    """Nodes and curves of one standardised input."""
    points = np.unique(standard)
    if len(points) > _NODES:
        # Half where the data are, half over all their range: rare values need their curve too.
        quantiles = np.quantile(standard, np.linspace(0, 1, _NODES // 2))
        evenly = np.linspace(points[0], points[-1], _NODES // 2)
        points = np.unique(np.concatenate([quantiles, evenly]))
    nearest = np.searchsorted(0.5 * (points[1:] + points[:-1]), standard)
    weights = (np.bincount(nearest, minlength=len(points)) + 0.5) / len(standard)
    curves = _smooth_curves(points, weights, min(count, len(points) - 1))
    # A table has a fixed number of nodes: those that are lacking follow the last.
    lacking = _NODES - len(points)
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
    """How strongly the product of two inputs speaks in a residual."""

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


@dataclass(frozen=True, eq=False)
class DynamicsModel:
    """Predicts the next observation from an observation and an action.

    Inputs are states, then actions. A term is the product of two regressors: 0 is the constant 1,
    1 + c the standardised input c, and 1 + d + c K + k the feature k of input c held within the
    range of the data, of d inputs and K features.
    """

    state_to_state: IntArray
    """(state, state): the mask it was fitted within; row = cause, column = effect."""
    action_to_state: IntArray
    """(action, state)"""
    table: FeatureTable
    target_center: Array
    """(state,): mean of each next state."""
    target_scale: Array
    """(state,): its standard deviation; 1 where constant."""
    persistent: NDArray[np.bool_]
    """(state,): never moved in the data, so it is predicted to stay where it is."""
    terms: NDArray[np.int32]
    """(term, 3): state that it is about, first and second regressor; ordered by state."""
    weights: Array
    """(term,)"""
    mixture_weights: Array
    """(state, 3): of the residual's Gaussians; (1, 0, 0) where one is enough."""
    mixture_means: Array
    """(state, 3), in standardised units of the next state."""
    mixture_stds: Array
    """(state, 3), likewise."""
    state_names: tuple[str, ...]
    action_names: tuple[str, ...]
    metrics: Mapping[str, Any]
    """How good it is: transitions used and held out, R2 per state, log-likelihood."""
    settings: DynamicsModelSettings

    @property
    def state_size(self) -> int:
        """Number of state dimensions."""
        return len(self.state_names)

    @property
    def action_size(self) -> int:
        """Number of action dimensions."""
        return len(self.action_names)

    def predict(self, observations: ArrayLike, actions: ArrayLike) -> Array:
        """(N, state): the mean of the next observation."""
        inputs = self._check(observations, actions)
        standard = self._predict_standard(inputs)
        standard += (self.mixture_weights * self.mixture_means).sum(axis=1)
        return self._restore(inputs, standard)

    def sample(
        self, observations: ArrayLike, actions: ArrayLike, rng: np.random.Generator
    ) -> Array:
        """(N, state): a next observation drawn at random."""
        inputs = self._check(observations, actions)
        standard = self._predict_standard(inputs)
        steps = np.cumsum(self.mixture_weights, axis=1)[:, :-1]
        chosen = (rng.random(standard.shape)[..., None] > steps).sum(axis=-1)
        states = np.arange(self.state_size)
        noise = rng.standard_normal(standard.shape) * self.mixture_stds[states, chosen]
        noise += self.mixture_means[states, chosen]
        return self._restore(inputs, standard + np.where(self.persistent, 0.0, noise))

    def log_likelihood(
        self, observations: ArrayLike, actions: ArrayLike, next_observations: ArrayLike
    ) -> Array:
        """(N,): log-density of the next observation, all dimensions together, in its own units."""
        inputs = self._check(observations, actions)
        targets = _check_rows("next_observations", next_observations, self.state_size, len(inputs))
        standard = self._predict_standard(inputs)
        center = np.where(self.persistent, inputs[:, : self.state_size], self.target_center)
        residuals = (targets - center) / self.target_scale - standard
        densities = mixture_log_density(
            residuals, self.mixture_weights, self.mixture_means, self.mixture_stds
        )
        return np.asarray((densities - np.log(self.target_scale)).sum(axis=1))

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write `config.json`, `model.safetensors` and `README.md`, all or nothing."""
        from safetensors.numpy import save

        contents = {
            "config.json": json.dumps(self._config(), indent=1, allow_nan=False).encode(),
            "model.safetensors": save(self._tensors()),
            "README.md": _write_card(self).encode(),
        }
        with replace_folder(folder, is_replaceable=_is_model) as partial:
            for name, data in contents.items():
                with create_file(partial / name) as output:
                    output.write(data)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> DynamicsModel:
        """Read a saved model: its folder, or the decomposition that contains `dynamics_model/`."""
        path = Path(folder)
        if not (path / "config.json").is_file() and (path / FOLDER / "config.json").is_file():
            path = path / FOLDER
        config = _read_config(path / "config.json")
        return _read_model(path / "model.safetensors", config)

    def _check(self, observations: ArrayLike, actions: ArrayLike) -> Array:
        first = _check_rows("observations", observations, self.state_size, None)
        second = _check_rows("actions", actions, self.action_size, len(first))
        return np.concatenate([first, second], axis=1)

    def _predict_standard(self, inputs: Array) -> Array:
        """(N, state): the regression, in standardised units of the change from the centre."""
        result = np.zeros((len(inputs), self.state_size))
        regressors = 1 + self.table.values.shape[0] * (1 + self.table.values.shape[2])
        chunk = max(16, _CHUNK_ENTRIES // regressors)
        for start in range(0, len(inputs), chunk):
            rows = slice(start, start + chunk)
            result[rows] = self._predict_chunk(inputs[rows])
        return result

    def _predict_chunk(self, inputs: Array) -> Array:
        regressors = _evaluate_regressors(self.table, inputs, self._used_columns)
        result = np.zeros((len(inputs), self.state_size))
        bounds = np.searchsorted(self.terms[:, 0], np.arange(self.state_size + 1))
        for state, (start, stop) in enumerate(pairwise(bounds)):
            _, first, second = self.terms[start:stop].T
            mains = second == 0
            weights = self.weights[start:stop]
            result[:, state] = weights[mains] @ regressors[first[mains]]
            products = regressors[first[~mains]] * regressors[second[~mains]]
            result[:, state] += weights[~mains] @ products
        return result

    @cached_property
    def _used_columns(self) -> IntArray:
        """Inputs that some term refers to."""
        inputs, count = len(self.table.counts), self.table.values.shape[2]
        regressors = np.unique(self.terms[:, 1:])
        curves = (regressors[regressors > inputs] - 1 - inputs) // count
        values = regressors[(regressors > 0) & (regressors <= inputs)] - 1
        return np.unique(np.concatenate([curves, values])).astype(np.int64)

    def _restore(self, inputs: Array, standard: Array) -> Array:
        """Standardised predictions in the units of the observations."""
        center = np.where(self.persistent, inputs[:, : self.state_size], self.target_center)
        return np.asarray(center + standard * self.target_scale)

    def _config(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "version": VERSION,
            "state_names": list(self.state_names),
            "action_names": list(self.action_names),
            "features": int(self.table.values.shape[2]),
            "terms": len(self.terms),
            "settings": asdict(self.settings),
            "metrics": dict(self.metrics),
        }

    def _tensors(self) -> dict[str, NDArray[Any]]:
        tensors = {
            "state_to_state": self.state_to_state.astype(np.uint8),
            "action_to_state": self.action_to_state.astype(np.uint8),
            "persistent": self.persistent.astype(np.uint8),
            "input_center": self.table.center,
            "input_scale": self.table.scale,
            "feature_nodes": self.table.nodes,
            "feature_values": self.table.values,
            "feature_counts": self.table.counts.astype(np.int32),
            "target_center": self.target_center,
            "target_scale": self.target_scale,
            "terms": self.terms,
            "weights": self.weights,
            "mixture_weights": self.mixture_weights,
            "mixture_means": self.mixture_means,
            "mixture_stds": self.mixture_stds,
        }
        return {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}


def _check_rows(name: str, values: ArrayLike, size: int, rows: int | None) -> Array:
    array = np.asarray(values, np.float64)
    if array.ndim != 2 or array.shape[1] != size or (rows is not None and len(array) != rows):
        wanted = "N" if rows is None else str(rows)
        raise ValueError(f"{name}: expected shape ({wanted}, {size}), got {array.shape}")
    if not np.isfinite(array).all():
        row, column = np.argwhere(~np.isfinite(array))[0]
        raise ValueError(f"{name}: {array[row, column]} in row {row}, dimension {column}")
    return array


def _evaluate_regressors(table: FeatureTable, inputs: Array, columns: IntArray) -> Array:
    """(1 + d + d K, row): the constant, the standardised inputs, the features; see `terms`.

    Those of inputs that are not among `columns` are left as zeros.
    """
    size, count = inputs.shape[1], table.values.shape[2]
    result = np.zeros((1 + size + size * count, len(inputs)))
    result[0] = 1.0
    result[1 : 1 + size] = table.standardise(inputs).T
    for column in columns:
        start = 1 + size + column * count
        result[start : start + count] = table.evaluate(inputs, int(column), count)
    return result


def mixture_log_density(residuals: Array, weights: Array, means: Array, stds: Array) -> Array:
    """(row, state): log-density of each residual under its state's mixture."""
    total = np.full(residuals.shape, -np.inf)
    for k in range(weights.shape[1]):
        standard = (residuals - means[:, k]) / stds[:, k]
        with np.errstate(divide="ignore"):
            level = np.log(weights[:, k] / stds[:, k]) - 0.5 * np.log(2 * np.pi)
        total = np.logaddexp(total, level - 0.5 * standard**2)
    return total


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
    settings: DynamicsModelSettings | None = None,
    rng: np.random.Generator | None = None,
) -> dict[str, float]:
    """Held-out log-likelihood per transition within the masks, and without any.

    Both are fitted to and judged by the same transitions. Masks that leave nothing out that
    matters lose nothing, or gain, since less is left to overfit.
    """
    settings = settings or DynamicsModelSettings()
    seed = int((rng if rng is not None else np.random.default_rng(0)).integers(2**63))
    candidates = {
        "masked": (state_to_state, action_to_state),
        "unmasked": (np.ones_like(state_to_state), np.ones_like(action_to_state)),
    }
    result = {}
    for name, (states, actions) in candidates.items():
        model = fit_dynamics_model(episodes, states, actions, settings, np.random.default_rng(seed))
        result[name] = float(model.metrics["held_out_log_likelihood"])
    return result


def check_dynamics_masks(
    episodes: EpisodeSet, state_to_state: ArrayLike, action_to_state: ArrayLike
) -> NDArray[np.bool_]:
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
    masks: NDArray[np.bool_],
    names: EpisodeSet,
    settings: DynamicsModelSettings,
    rng: np.random.Generator,
    progress: Progress = ignore_progress,
) -> DynamicsModel:
    """Fit to transitions that are drawn already; `names` gives the dimensions their names."""
    training, held_out = _split(transitions, settings.held_out, rng)
    regression = _Regression(training, settings)
    terms, weights = [], []
    for state in range(names.state_size):
        found = regression.fit(state, np.flatnonzero(masks[:, state]))
        terms.append(np.insert(found[0], 0, state, axis=1))
        weights.append(found[1])
        progress("dynamics model", (state + 1) / names.state_size)
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
    """The same, but the mean where the regression does worse than the mean on held-out data.

    States that hardly ever move, such as contact forces, are fitted to a handful of transitions.
    """
    states = model.state_size
    center = np.where(model.persistent, held_out.inputs[:, :states], model.target_center)
    plain = (((held_out.targets - center) / model.target_scale) ** 2).mean(axis=0)
    failed = (_residuals(model, held_out) ** 2).mean(axis=0) > plain
    return replace(model, weights=np.where(failed[model.terms[:, 0]], 0.0, model.weights))


def _split(
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

    def fit(self, state: int, parents: IntArray) -> tuple[IntArray, Array]:
        """Terms (term, 2) and their weights for one next state."""
        parents = parents[self.table.counts[parents] > 0]
        if not self.varies[state]:
            return np.zeros((0, 2), np.int64), np.zeros(0)
        target = (self.transitions.targets[:, state] - self.target_center[state]) / (
            self.target_scale[state]
        )
        terms = self._main_terms(parents)
        design = self._design(terms)
        target = target[: design.shape[1]]
        weights = solve_ridge(design, target)
        rows = slice(0, _PAIR_ROWS)
        residual = target[rows] - weights @ design[:, rows]
        pairs = self._pair_terms(parents, residual, self.settings.max_columns - len(terms))
        if len(pairs):
            terms = np.concatenate([terms, pairs])
            design = self._design(terms)
            weights = solve_ridge(design, target[: design.shape[1]])
        return terms, weights

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

    def _pair_terms(self, parents: IntArray, residual: Array, room: int) -> IntArray:
        """Products of two parents' features, the pairs of which the residual asks for."""
        none = np.zeros((0, 2), np.int64)
        if len(parents) < 2 or self.pair_count < 1 or not self.settings.max_pairs:
            return none
        rows = slice(0, _PAIR_ROWS)
        features = np.stack(
            [self._evaluate(int(c))[: self.pair_count, rows] for c in parents]
        ).astype(np.float32)
        scores = score_pairs(features, sum_squares(features), residual)
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


def solve_ridge(design: Array, target: Array) -> Array:
    """Weights of a regression on rows of `design`, the first of which, a constant, goes free.

    One prior variance for all weights and the noise are found by maximising the evidence
    (MacKay's fixed point), in the eigenbasis of the Gram matrix.
    """
    mean = design[1:].mean(axis=1)
    level = float(target.mean())
    gram = design[1:] @ design[1:].T - len(target) * np.outer(mean, mean)
    values, vectors = np.linalg.eigh(gram)
    values = np.maximum(values, 0.0)
    projected = vectors.T @ (design[1:] @ (target - level))
    total = float(((target - level) ** 2).sum())
    ridge = 1e-6 * len(target)
    for _ in range(20):
        shrunk = projected / (values + ridge)
        degrees = float((values / (values + ridge)).sum())
        error = max(total - float((shrunk * (2 * projected - values * shrunk)).sum()), 0.0)
        noise = error / max(len(target) - degrees, 1.0) + 1e-12
        size = float((shrunk**2).sum())
        ridge = float(np.clip(noise * degrees / (size + 1e-12), 1e-9 * len(target), 1e3))
    weights = vectors @ (projected / (values + ridge))
    return np.concatenate([[level - weights @ mean], weights])


def _with_residuals(
    bare: DynamicsModel, training: Transitions, held_out: Transitions
) -> DynamicsModel:
    """The model with a residual distribution and with figures from held-out transitions."""
    chosen = training.take(slice(0, _RESIDUAL_ROWS))
    residuals = _residuals(bare, chosen)
    out = _residuals(bare, held_out)
    floor = _std_floor(bare)
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


def _residuals(model: DynamicsModel, transitions: Transitions) -> Array:
    states = model.state_size
    center = np.where(model.persistent, transitions.inputs[:, :states], model.target_center)
    standard = (transitions.targets - center) / model.target_scale
    return np.asarray(standard - model._predict_standard(transitions.inputs))


def _is_odd(residuals: Array) -> NDArray[np.bool_]:
    """Which columns are clearly not Gaussian, by skewness and kurtosis."""
    centred = residuals - residuals.mean(axis=0)
    centred = centred / np.maximum(centred.std(axis=0), 1e-30)
    skewness, kurtosis = (centred**3).mean(axis=0), (centred**4).mean(axis=0) - 3
    spread = np.sqrt(6 / len(residuals))
    return np.asarray((np.abs(skewness) > 4 * spread) | (np.abs(kurtosis) > 8 * spread))


def _std_floor(model: DynamicsModel) -> Array:
    """A residual's least standard deviation: what float32 can tell apart, with room."""
    return 1e-5 + 1e-6 * np.abs(model.target_center) / model.target_scale


def _fit_mixture(residuals: Array, floor: Array, rounds: int = 40) -> tuple[Array, Array, Array]:
    """Three Gaussians per column by expectation maximisation; total mean 0."""
    spread = np.maximum(residuals.std(axis=0), floor)
    states = residuals.shape[1]
    weights = np.tile([0.5, 0.25, 0.25], (states, 1))
    means = np.stack([0 * spread, -0.7 * spread, 0.7 * spread], axis=1)
    stds = np.stack([0.6 * spread, spread, spread], axis=1)
    for _ in range(rounds):
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
    """What the card says: from transitions that the fit has not seen, where there are any."""
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


def _write_card(model: DynamicsModel) -> str:
    metrics = model.metrics
    edges = int(model.state_to_state.sum()), int(model.action_to_state.sum())
    rows = "\n".join(
        f"| {_plain(name)} | {int(model.state_to_state[:, i].sum())} | "
        f"{int(model.action_to_state[:, i].sum())} | {metrics['held_out_r2'][i]:.4f} | "
        f"{metrics['held_out_r2_of_change'][i]:.4f} |"
        for i, name in enumerate(model.state_names[:200])
    )
    return f"""# Dynamics model

Predicts the next observation ({model.state_size} dimensions) from an observation and an action
({model.action_size} dimensions), each dimension from its causal parents alone: {edges[0]} edges
between states, {edges[1]} from actions. Made by grd-offline.

```python
from grd_offline.dynamics_model import DynamicsModel

model = DynamicsModel.load("this folder")
mean = model.predict(observations, actions)             # (N, {model.state_size})
draw = model.sample(observations, actions, rng)         # (N, {model.state_size})
score = model.log_likelihood(observations, actions, next_observations)  # (N,)
```

Fitted to {metrics["training_transitions"]} transitions, judged by
{metrics["held_out_transitions"]} transitions of other episodes: log-likelihood
{metrics["held_out_log_likelihood"]:.3f} per transition. R2 of the next value, and of its change:

| state | state parents | action parents | R2 | R2 of change |
|---|---|---|---|---|
{rows}

One step ahead, near the data: outside their range the curves are held at their ends and only
linear parts go on. The residual is the same everywhere; dimensions are independent given the past.
"""


def _plain(name: str) -> str:
    """A name that cannot break out of its table cell."""
    return "".join(c if c.isprintable() and c not in "|`<>[]" else " " for c in name)[:80]


def _is_model(folder: Path) -> bool:
    try:
        _read_config(folder / "config.json")
    except ValueError:
        return False
    return {entry.name for entry in folder.iterdir()} <= {
        "config.json",
        "model.safetensors",
        "README.md",
    }


def _read_config(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _MAX_CONFIG_BYTES:
            raise DataError(f"larger than {_MAX_CONFIG_BYTES} bytes", file=path)
        config = json.loads(path.read_bytes())
    except DataError:
        raise
    except OSError as failure:
        raise DataError(f"cannot be read: {failure.strerror or failure}", file=path) from failure
    except (ValueError, RecursionError) as failure:
        raise DataError(f"not JSON: {failure}", file=path) from failure
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise DataError(f"not a {FORMAT}", file=path)
    if config.get("version") != VERSION:
        raise DataError(
            f"expected {VERSION}, got {config.get('version')!r:.40}", file=path, field="version"
        )
    _check_config(config, path)
    return config


def _check_config(config: dict[str, Any], path: Path) -> None:
    for field in ("state_names", "action_names"):
        names = config.get(field)
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise DataError("expected a list of strings", file=path, field=field)
        if len(names) > _MAX_DIMENSIONS:
            raise DataError(f"more than {_MAX_DIMENSIONS} dimensions", file=path, field=field)
    if not config["state_names"]:
        raise DataError("expected at least one state", file=path, field="state_names")
    for field, low, high in (("features", 1, 1000), ("terms", 0, _MAX_TERMS)):
        value = config.get(field)
        if type(value) is not int or not low <= value <= high:
            raise DataError(
                f"expected a whole number from {low} to {high}, got {value!r:.40}",
                file=path,
                field=field,
            )
    if not isinstance(config.get("metrics"), dict):
        raise DataError("expected an object", file=path, field="metrics")
    try:
        DynamicsModelSettings(**config["settings"])
    except (KeyError, TypeError, ValueError) as failure:
        raise DataError(f"{failure}", file=path, field="settings") from failure


def _expected_tensors(config: dict[str, Any]) -> dict[str, tuple[str, tuple[int, ...]]]:
    states, actions = len(config["state_names"]), len(config["action_names"])
    inputs, features, terms = states + actions, config["features"], config["terms"]
    return {
        "state_to_state": ("uint8", (states, states)),
        "action_to_state": ("uint8", (actions, states)),
        "persistent": ("uint8", (states,)),
        "input_center": ("float64", (inputs,)),
        "input_scale": ("float64", (inputs,)),
        "feature_nodes": ("float64", (inputs, _NODES)),
        "feature_values": ("float64", (inputs, _NODES, features)),
        "feature_counts": ("int32", (inputs,)),
        "target_center": ("float64", (states,)),
        "target_scale": ("float64", (states,)),
        "terms": ("int32", (terms, 3)),
        "weights": ("float64", (terms,)),
        "mixture_weights": ("float64", (states, COMPONENTS)),
        "mixture_means": ("float64", (states, COMPONENTS)),
        "mixture_stds": ("float64", (states, COMPONENTS)),
    }


_SAFETENSORS_TYPES = {"uint8": "U8", "int32": "I32", "float64": "F64"}


def _read_model(path: Path, config: dict[str, Any]) -> DynamicsModel:
    tensors = _read_tensors(path, _expected_tensors(config))
    _check_tensors(tensors, config, path)
    return DynamicsModel(
        state_to_state=tensors["state_to_state"].astype(np.int64),
        action_to_state=tensors["action_to_state"].astype(np.int64),
        table=FeatureTable(
            tensors["input_center"],
            tensors["input_scale"],
            tensors["feature_nodes"],
            tensors["feature_values"],
            tensors["feature_counts"].astype(np.int64),
        ),
        target_center=tensors["target_center"],
        target_scale=tensors["target_scale"],
        persistent=tensors["persistent"].astype(np.bool_),
        terms=tensors["terms"],
        weights=tensors["weights"],
        mixture_weights=tensors["mixture_weights"],
        mixture_means=tensors["mixture_means"],
        mixture_stds=tensors["mixture_stds"],
        state_names=tuple(config["state_names"]),
        action_names=tuple(config["action_names"]),
        metrics=config["metrics"],
        settings=DynamicsModelSettings(**config["settings"]),
    )


def _read_tensors(
    path: Path, expected: dict[str, tuple[str, tuple[int, ...]]]
) -> dict[str, NDArray[Any]]:
    """The tensors, once the file's header has been compared with what the sizes ask for."""
    from safetensors import SafetensorError, safe_open

    try:
        if path.stat().st_size > _MAX_WEIGHTS_BYTES:
            raise DataError(f"larger than {_MAX_WEIGHTS_BYTES} bytes", file=path)
        with safe_open(path, framework="numpy") as file:
            names = set(file.keys())
            for name in sorted(names ^ set(expected)):
                reason = "missing" if name in expected else "not expected"
                raise DataError(f"tensor {reason}", file=path, field=name)
            for name, (kind, shape) in expected.items():
                entry = file.get_slice(name)
                found = entry.get_dtype(), tuple(entry.get_shape())
                if found != (_SAFETENSORS_TYPES[kind], shape):
                    raise DataError(
                        f"expected {_SAFETENSORS_TYPES[kind]} of shape {shape}, got {found[0]} of "
                        f"shape {found[1]}",
                        file=path,
                        field=name,
                    )
            return {name: file.get_tensor(name) for name in expected}
    except OSError as failure:
        raise DataError(f"cannot be read: {failure.strerror or failure}", file=path) from failure
    except SafetensorError as failure:
        raise DataError(f"not a safetensors file: {failure}", file=path) from failure


def _check_tensors(tensors: dict[str, NDArray[Any]], config: dict[str, Any], path: Path) -> None:
    """Refuse numbers that no model has: the first that is found is named."""
    for name, tensor in tensors.items():
        if tensor.dtype == np.float64 and not np.isfinite(tensor).all():
            raise DataError("nan or infinite", file=path, field=name)
        if tensor.dtype == np.uint8 and tensor.max(initial=0) > 1:
            raise DataError("expected 0 and 1 only", file=path, field=name)
    for name in ("input_scale", "target_scale", "mixture_stds"):
        if not (tensors[name] > 0).all():
            raise DataError("expected numbers above 0", file=path, field=name)
    if not (np.diff(tensors["feature_nodes"], axis=1) > 0).all():
        raise DataError("expected increasing nodes", file=path, field="feature_nodes")
    shares = tensors["mixture_weights"]
    if (shares < 0).any() or (np.abs(shares.sum(axis=1) - 1) > 1e-6).any():
        raise DataError("expected shares that sum to 1", file=path, field="mixture_weights")
    states = len(config["state_names"])
    inputs = states + len(config["action_names"])
    limits = np.array([states, *[1 + inputs * (1 + config["features"])] * 2])
    terms = tensors["terms"]
    if (terms < 0).any() or (terms >= limits).any():
        raise DataError("a term refers to what is not there", file=path, field="terms")
    if (np.diff(terms[:, 0]) < 0).any():
        raise DataError("expected terms ordered by state", file=path, field="terms")
    counts = tensors["feature_counts"]
    if (counts < 0).any() or (counts > config["features"]).any():
        raise DataError("expected at most the model's features", file=path, field="feature_counts")
