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

`fit_dynamics` finds the causal graph in closed form: which states and actions drive each next
state.

    s_{i,t+1} = f_i(C_ss[:, i] * s_t, C_as[:, i] * a_t) + noise

Each next state is regressed on smooth one-dimensional features of every input and on products of
the features of two inputs. All of it is linear algebra on sums over a sample of transitions:

1. Forward: inputs by their main effect, best first, while the BIC falls.
2. Pairs: a score test of the residual against all products of two inputs. No main effect is asked
   for, so inputs that act only through a product are found. The best pair is added and the rest
   tested again.
3. Backward: pairs, and inputs with all that they take part in, while removing one costs less than
   the BIC asks for. An input must also raise the residual variance by `min_gain`, and by
   `min_share` of the variance of the state's change, when it is removed: what a smooth basis cannot
   express leaves traces in the inputs that are correlated with the true ones, and with enough data
   or little noise the BIC alone would take those for effects.

One-hot actions are one input: all of them are parents of a state, or none.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cache, cached_property, lru_cache, partial
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grd_offline.core.episodes import EpisodeSet, Matrix
from grd_offline.core.errors import DataError
from grd_offline.core.interpolation import interpolate, locate_between_nodes
from grd_offline.core.observer import NOBODY, Progress
from grd_offline.core.settings import Settings, setting
from grd_offline.core.steps import StepBatch
from grd_offline.core.typing import Array, BoolArray, IntArray
from grd_offline.io.files import models
from grd_offline.io.files.models import DYNAMICS_FOLDER, find_model, read_settled, write_model

_MAX_EPISODES = 5_000  # episodes that transitions are drawn from, at most


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
    parts = []
    for index, episode in enumerate(episodes):
        available = len(episode.observations) - 1
        count = min(available, int(available * share + rng.random())) if share < 1 else available
        rows = np.sort(rng.choice(available, count, replace=False))
        before = np.hstack([episode.observations[rows], episode.actions[rows]])
        parts.append((before, episode.observations[rows + 1], np.full(count, index, np.int64)))
    inputs, targets, origins = map(np.concatenate, zip(*parts, strict=True))
    order = rng.permutation(len(targets))
    if not len(order):
        raise DataError("no transitions: every episode holds a single observation")
    every = Transitions(inputs.astype(np.float64), targets.astype(np.float64), origins)
    return every.take(order)


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


NODES = 64  # points of a curve; half quantiles, half evenly over the range
_MAX_STANDARD = 1e6  # standardised inputs end here, so that squares stay finite


@dataclass(frozen=True, eq=False)
class FeatureTable:
    """Smooth one-dimensional features of each input, as values at nodes, named as in files."""

    input_center: Array
    """(input,): mean of each input."""
    input_scale: Array
    """(input,): standard deviation of each; 1 where it is constant."""
    feature_nodes: Array
    """(input, node): increasing, in standardised units."""
    feature_values: Array
    """(input, node, feature): feature 0 is the value itself; zeros past `feature_counts`."""
    feature_counts: IntArray
    """(input,): features that the input has: none if constant, one if it takes two values."""

    def standardise(self, inputs: Array) -> Array:
        """Inputs at zero mean and unit variance, far outliers bounded."""
        standard = (inputs - self.input_center) / self.input_scale
        return np.clip(standard, -_MAX_STANDARD, _MAX_STANDARD)

    def evaluate(self, inputs: Array, column: int, count: int) -> Array:
        """(feature, row): the first `count` features of an input, held at the ends of the range."""
        nodes, values = self.feature_nodes[column], self.feature_values[column, :, :count]
        standard = (inputs[:, column] - self.input_center[column]) / self.input_scale[column]
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
        table.feature_nodes[column], values = _build_curves(standard, count)
        table.feature_values[column, :, : values.shape[1]] = values
        table.feature_counts[column] = values.shape[1]
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


def score_pairs(
    features: NDArray[np.float32], squares: NDArray[np.float32], residual: Array
) -> tuple[Array, IntArray]:
    """A score test for every pair of inputs at once, main effects or not.

    What comes first is (input, input), above 0 if the data ask for the pair: the upper triangle,
    -inf elsewhere. Then how many features per input served best, of the same shape.
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
    return score, np.array(sizes)[best]


def sum_squares(features: NDArray[np.float32]) -> NDArray[np.float32]:
    """The variance of each product of two features, times the number of rows."""
    flat = features.reshape(-1, features.shape[2]) ** 2
    return np.asarray(np.maximum(flat @ flat.T, 1e-3 * features.shape[2]), np.float32)


COMPONENTS = 3  # normal components of the residuals of a state


@dataclass(frozen=True)
class DynamicsModelSettings(Settings):
    """Settings of the fit of a dynamics model within its masks."""

    features: int = setting(10, at_least=1)
    """Features per parent, the value itself included; fewer where parents are many."""
    pair_features: int = setting(5, at_least=1)
    """Features per input in a product of two parents."""
    max_pairs: int = 12
    """Pairs of parents per state dimension, those that matter most."""
    max_columns: int = setting(400, at_least=1)
    """Largest number of regressors per state dimension; pairs that would exceed it are left out."""
    max_transitions: int = setting(50_000, at_least=1)
    """Transitions used, drawn at random from all episodes where there are more."""
    held_out: float = setting(0.1, above=0, below=1)
    """Share of the episodes kept out of the fit, to judge it and its residuals by."""


FORMAT = "grd-offline dynamics model"
VERSION = 1
_MAX_DIMENSIONS = 100_000  # files that claim more are refused before anything is allocated
_MAX_TERMS = 20_000_000  # files that claim more are refused before anything is allocated


def write_card(model: DynamicsModel) -> str:
    """Write the card, which a person reads first in the folder."""
    metrics = model.metrics
    edges = int(model.state_to_state.sum()), int(model.action_to_state.sum())
    rows = "\n".join(
        f"| {models.as_plain(name)} | {int(model.state_to_state[:, i].sum())} | "
        f"{int(model.action_to_state[:, i].sum())} | {metrics['held_out_r2'][i]:.4f} | "
        f"{metrics['held_out_r2_of_change'][i]:.4f} |"
        for i, name in enumerate(model.state_names[:200])
    )
    return f"""# Dynamics model

Predicts the next observation ({model.state_size} dimensions) from an observation and an action
({model.action_size} dimensions), each dimension from its causal parents alone: {edges[0]} edges
between states, {edges[1]} from actions. Made by grd-offline.

```python
from grd_offline.additive.dynamics import DynamicsModel

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


def read_config(folder: Path) -> dict[str, Any]:
    """The config of a dynamics model, checked."""
    path = folder / models.CONFIG
    config = models.read_config(path, FORMAT, VERSION)
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
            expected = f"expected a whole number from {low} to {high}, got {value!r:.40}"
            raise DataError(expected, file=path, field=field)
    if not isinstance(config.get("metrics"), dict):
        raise DataError("expected an object", file=path, field="metrics")
    try:
        DynamicsModelSettings(**config["settings"])
    except (KeyError, TypeError, ValueError) as failure:
        raise DataError(f"{failure}", file=path, field="settings") from failure
    return config


def expected_tensors(config: dict[str, Any]) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Type and shape of each tensor, from the sizes in the config."""
    states, actions = len(config["state_names"]), len(config["action_names"])
    inputs, features, terms = states + actions, config["features"], config["terms"]
    return {
        "state_to_state": ("uint8", (states, states)),
        "action_to_state": ("uint8", (actions, states)),
        "persistent": ("uint8", (states,)),
        "input_center": ("float64", (inputs,)),
        "input_scale": ("float64", (inputs,)),
        "feature_nodes": ("float64", (inputs, NODES)),
        "feature_values": ("float64", (inputs, NODES, features)),
        "feature_counts": ("int32", (inputs,)),
        "target_center": ("float64", (states,)),
        "target_scale": ("float64", (states,)),
        "terms": ("int32", (terms, 3)),
        "weights": ("float64", (terms,)),
        "mixture_weights": ("float64", (states, COMPONENTS)),
        "mixture_means": ("float64", (states, COMPONENTS)),
        "mixture_stds": ("float64", (states, COMPONENTS)),
    }


def read_numbers(folder: Path, config: dict[str, Any]) -> dict[str, NDArray[Any]]:
    """The tensors of a dynamics model; the first number that no model has is refused."""
    tensors = models.read_tensors(folder, expected_tensors(config))
    states, features = len(config["state_names"]), config["features"]
    regressors = 1 + (states + len(config["action_names"])) * (1 + features)
    terms, shares = tensors["terms"], tensors["mixture_weights"]
    known = (terms >= 0) & (terms < [states, regressors, regressors])
    counts = tensors["feature_counts"]
    flags = [name for name, tensor in tensors.items() if tensor.dtype == np.uint8]
    sizes = ("input_scale", "target_scale", "mixture_stds")
    checks = [
        *((name, tensors[name] <= 1, "expected 0 and 1 only") for name in flags),
        *((name, tensors[name] > 0, "expected numbers above 0") for name in sizes),
        ("feature_nodes", np.diff(tensors["feature_nodes"]) > 0, "expected increasing nodes"),
        ("mixture_weights", shares >= 0, "expected shares that sum to 1"),
        ("mixture_weights", abs(shares.sum(1) - 1) <= 1e-6, "expected shares that sum to 1"),
        ("terms", known, "a term refers to an input that does not exist"),
        ("terms", np.diff(terms[:, 0]) >= 0, "expected terms ordered by state"),
        ("feature_counts", counts >= 0, "expected at most the model's features"),
        ("feature_counts", counts <= features, "expected at most the model's features"),
    ]
    for name, right, expected in checks:
        if not right.all():
            raise DataError(expected, file=folder / models.WEIGHTS, field=name)
    return tensors


_CHUNK_ENTRIES = 5_000_000  # features that are held at once: 40 MB


@dataclass(frozen=True, eq=False)
class DynamicsModel:
    """Predicts the next observation from an observation and an action.

    Examples
    --------
    >>> model = DynamicsModel.load("sample-grd")  # doctest: +SKIP
    >>> model.predict(observations, actions)  # doctest: +SKIP

    Notes
    -----
    Inputs are states, then actions. A term is the product of two regressors: 0 is the constant 1,
    1 + c the standardised input c, and 1 + d + c K + k the feature k of input c held within the
    range of the data, of d inputs and K features.
    """

    state_to_state: IntArray
    """(state, state): the mask it was fitted within; row = cause, column = effect."""
    action_to_state: IntArray
    """(action, state): 1 where the action is a parent of the next state."""
    table: FeatureTable
    target_center: Array
    """(state,): mean of each next state."""
    target_scale: Array
    """(state,): its standard deviation; 1 where constant."""
    persistent: BoolArray
    """(state,): never moved in the data, so it is predicted to stay where it is."""
    terms: NDArray[np.int32]
    """(term, 3): state that it is about, first and second regressor; ordered by state."""
    weights: Array
    """(term,): one weight for each term."""
    mixture_weights: Array
    """(state, 3): of the residual's Gaussians; (1, 0, 0) where one is enough."""
    mixture_means: Array
    """(state, 3), in standardised units of the next state."""
    mixture_stds: Array
    """(state, 3): standard deviations of the three components."""
    state_names: tuple[str, ...]
    action_names: tuple[str, ...]
    metrics: Mapping[str, Any]
    """Quality of the model: transitions used and held out, R2 per state, and log-likelihood."""
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
        inputs, _ = self._check(observations, actions)
        standard = self.predict_standard(inputs)
        standard += (self.mixture_weights * self.mixture_means).sum(axis=1)
        return self._restore(inputs, standard)

    def sample(
        self, observations: ArrayLike, actions: ArrayLike, rng: np.random.Generator
    ) -> Array:
        """(N, state): a next observation drawn at random."""
        inputs, _ = self._check(observations, actions)
        standard = self.predict_standard(inputs)
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
        inputs, targets = self._check(observations, actions, next_observations)
        mixture = self.mixture_weights, self.mixture_means, self.mixture_stds
        densities = mixture_log_density(self.find_residuals(inputs, targets), *mixture)
        return np.asarray((densities - np.log(self.target_scale)).sum(axis=1))

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write `config.json`, `model.safetensors` and `README.md`, all or nothing."""
        write_model(folder, self._config(), self._tensors(), write_card(self))

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> DynamicsModel:
        """Read a saved model: its folder, or the decomposition that contains `dynamics_model/`."""
        return read_settled(find_model(folder, DYNAMICS_FOLDER), _read_model)

    def _check(
        self, observations: Matrix, actions: Matrix, next_observations: Matrix | None = None
    ) -> tuple[Array, Any]:
        """(N, input) states and actions side by side, and the next observations, if given."""
        given = StepBatch[Any](observations, actions, next_observations).map(np.asarray)
        batch = given.as_numbers(self.state_size, self.action_size, np.float64)
        return np.concatenate([batch.observations, batch.actions], axis=1), batch.next_observations

    def find_center(self, inputs: Array) -> Array:
        """(N, state): the next observation without any regression."""
        return np.where(self.persistent, inputs[:, : self.state_size], self.target_center)

    def find_residuals(self, inputs: Array, targets: Array) -> Array:
        """(N, state): what the regression leaves, in standardised units."""
        standard = (targets - self.find_center(inputs)) / self.target_scale
        return np.asarray(standard - self.predict_standard(inputs))

    def predict_standard(self, inputs: Array) -> Array:
        """(N, state): the regression, in standardised units of the change from the centre."""
        size, _, count = self.table.feature_values.shape
        chunk = max(16, _CHUNK_ENTRIES // (1 + size * (1 + count)))
        starts = range(0, max(1, len(inputs)), chunk)
        return np.concatenate([self._predict_chunk(inputs[s : s + chunk]) for s in starts])

    def _predict_chunk(self, inputs: Array) -> Array:
        # The constant, the standardised inputs, the features; zeros for those that no term has.
        size, _, count = self.table.feature_values.shape
        regressors = np.zeros((1 + size + size * count, len(inputs)))
        regressors[0] = 1.0
        regressors[1 : 1 + size] = self.table.standardise(inputs).T
        for column in self._curved_columns:
            start = 1 + size + column * count
            regressors[start : start + count] = self.table.evaluate(inputs, int(column), count)
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
    def _curved_columns(self) -> IntArray:
        """Inputs of which some term has a curve."""
        inputs, _, count = self.table.feature_values.shape
        regressors = self.terms[:, 1:]
        return np.unique((regressors[regressors > inputs] - 1 - inputs) // count)

    def _restore(self, inputs: Array, standard: Array) -> Array:
        """Standardised predictions in the units of the observations."""
        return np.asarray(self.find_center(inputs) + standard * self.target_scale)

    def _config(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "version": VERSION,
            "state_names": list(self.state_names),
            "action_names": list(self.action_names),
            "features": int(self.table.feature_values.shape[2]),
            "terms": len(self.terms),
            "settings": asdict(self.settings),
            "metrics": dict(self.metrics),
        }

    def _tensors(self) -> dict[str, NDArray[Any]]:
        named, expected = vars(self) | vars(self.table), expected_tensors(self._config())
        return {name: named[name].astype(kind) for name, (kind, _) in expected.items()}


def mixture_log_density(residuals: Array, weights: Array, means: Array, stds: Array) -> Array:
    """(row, state): log-density of each residual under its state's mixture."""
    total = np.full(residuals.shape, -np.inf)
    for k in range(weights.shape[1]):
        standard = (residuals - means[:, k]) / stds[:, k]
        with np.errstate(divide="ignore"):
            level = np.log(weights[:, k] / stds[:, k]) - 0.5 * np.log(2 * np.pi)
        total = np.logaddexp(total, level - 0.5 * standard**2)
    return total


def _read_model(folder: Path) -> DynamicsModel:
    config = read_config(folder)
    tensors = read_numbers(folder, config)
    for name in ("state_to_state", "action_to_state", "feature_counts"):
        tensors[name] = tensors[name].astype(np.int64)
    tensors["persistent"] = tensors["persistent"].astype(np.bool_)
    table = FeatureTable(**{one.name: tensors.pop(one.name) for one in fields(FeatureTable)})
    return DynamicsModel(
        **tensors,
        table=table,
        state_names=tuple(config["state_names"]),
        action_names=tuple(config["action_names"]),
        metrics=config["metrics"],
        settings=DynamicsModelSettings(**config["settings"]),
    )


_REGRESSION_WORK = 4e10  # multiplications of a regression, which bound its rows
_PAIR_ROWS = 8_000  # transitions on which pairs are compared
_COMPARED_TRANSITIONS = 20_000  # what each of two sets of masks is fitted to for their comparison
_RESIDUAL_ROWS = 4_000  # transitions whose residuals give the mixture
_MAX_DESIGN = 20_000_000  # entries of all features: 160 MB


def fit_dynamics_model(
    episodes: EpisodeSet,
    state_to_state: ArrayLike,
    action_to_state: ArrayLike,
    settings: DynamicsModelSettings | None = None,
    rng: np.random.Generator | None = None,
    progress: Progress = NOBODY.on_progress,
) -> DynamicsModel:
    """Fit the dynamics within masks, wherever they come from; ones for no masks at all."""
    settings = settings or DynamicsModelSettings()
    rng = rng if rng is not None else np.random.default_rng(0)
    transitions = draw_transitions(episodes, settings.max_transitions, rng)
    states, actions = np.asarray(state_to_state), np.asarray(action_to_state)
    sizes = {"state_to_state": (states, episodes.state_size)}
    sizes["action_to_state"] = actions, episodes.action_size
    for name, (mask, rows) in sizes.items():
        if mask.shape != (rows, episodes.state_size):
            expected = (rows, episodes.state_size)
            raise ValueError(f"{name}: expected shape {expected}, got {mask.shape}")
        if not np.isin(mask, (0, 1)).all():
            raise ValueError(f"{name}: expected 0 and 1 only")
    masks = np.concatenate([states, actions]).astype(np.bool_)
    return fit_to_transitions(transitions, masks, episodes, settings, rng, progress)


def compare_masks(
    episodes: EpisodeSet,
    state_to_state: ArrayLike,
    action_to_state: ArrayLike,
    rng: np.random.Generator | None = None,
    progress: Progress = NOBODY.on_progress,
) -> dict[str, float]:
    """Held-out log-likelihood per transition within the masks, and without any.

    Both are fitted to and judged by the same transitions. Masks that leave nothing out that
    matters lose nothing, or gain, since less is left to overfit. The difference shows with fewer
    transitions than the model itself is fitted to.
    """
    settings = DynamicsModelSettings(max_transitions=_COMPARED_TRANSITIONS)
    seed = int((rng if rng is not None else np.random.default_rng(0)).integers(2**63))

    def measure(states: ArrayLike, actions: ArrayLike, begin: float, end: float) -> float:
        """`begin` and `end` are fractions of the time of both fits."""

        def report(stage: str, share: float) -> None:
            progress("testing the dynamics", begin + (end - begin) * share)

        rng = np.random.default_rng(seed)
        model = fit_dynamics_model(episodes, states, actions, settings, rng, report)
        return float(model.metrics["held_out_log_likelihood"])

    everything = np.ones_like(state_to_state), np.ones_like(action_to_state)
    return {
        "masked": measure(state_to_state, action_to_state, 0.0, 0.3),
        "unmasked": measure(*everything, 0.3, 1.0),
    }


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
    # A regression gives way to the mean if it does worse than the mean on held-out data. States
    # that hardly ever move, such as contact forces, are fitted to a handful of transitions.
    change = held_out.targets - bare.find_center(held_out.inputs)
    plain = ((change / bare.target_scale) ** 2).mean(axis=0)
    residuals = bare.find_residuals(held_out.inputs, held_out.targets)
    failed = (residuals**2).mean(axis=0) > plain
    bare = replace(bare, weights=np.where(failed[bare.terms[:, 0]], 0.0, bare.weights))
    return _with_residuals(bare, training, held_out)


class _Regression:
    """Regresses each next state on features of its parents and on products of two of them."""

    def __init__(self, transitions: Transitions, settings: DynamicsModelSettings) -> None:
        self.settings = settings
        # Few transitions do not carry many features, and many inputs do not fit into memory.
        self.count = int(np.clip(len(transitions) // 50, 1, settings.features))
        rows = max(1_000, _MAX_DESIGN // (self.count * transitions.inputs.shape[1]))
        self.transitions = transitions = transitions.take(slice(0, rows))
        self.pair_count = min(self.count, settings.pair_features)
        self.table = build_feature_table(transitions.inputs, self.count)
        targets = transitions.targets
        self.varies, size = is_varying(targets), np.abs(targets).max(axis=0)
        moved = np.abs(targets - transitions.inputs[:, : targets.shape[1]]).max(axis=0)
        self.persistent = ~self.varies & (moved <= 1e-5 * size)
        self.target_center = np.where(self.persistent, 0.0, targets.mean(axis=0))
        constant = np.where(size > 0, size, 1.0)
        self.target_scale = np.where(self.varies, targets.std(axis=0), constant)
        # (feature, row) of an input, worked out once.
        self._evaluate = cache(partial(self.table.evaluate, transitions.inputs, count=self.count))
        # Next states that follow each other often have the same parents.
        self._prepare = lru_cache(maxsize=1)(self._prepare_mains)

    def fit(self, state: int, parents: IntArray) -> tuple[IntArray, Array]:
        """Terms (term, 2) and their weights for one next state."""
        if not self.varies[state]:
            return np.zeros((0, 2), np.int64), np.zeros(0)
        chosen = tuple(parents[self.table.feature_counts[parents] > 0].tolist())
        terms, ridge, features, squares = self._prepare(chosen)
        target = self.transitions.targets[:, state] - self.target_center[state]
        target = target[: ridge.rows] / self.target_scale[state]
        weights, rows = ridge.solve(target), slice(0, _PAIR_ROWS)
        residual = target[rows] - weights @ ridge.design[:, rows]
        score, sizes = score_pairs(features, squares, residual)
        found, room = [terms], self.settings.max_columns - len(terms)
        for place in np.argsort(score, axis=None)[::-1][: self.settings.max_pairs]:
            a, b = divmod(int(place), len(chosen))
            new = self._pair_block(chosen[a], chosen[b], int(sizes[a, b]))
            if score[a, b] <= 0 or len(new) > room:
                break
            room -= len(new)
            found.append(new)
        if len(found) == 1:
            return terms, weights
        terms = np.concatenate(found)
        ridge = Ridge(self._design(terms))
        return terms, ridge.solve(target[: ridge.rows])

    def _prepare_mains(
        self, parents: tuple[int, ...]
    ) -> tuple[IntArray, Ridge, NDArray[np.float32], NDArray[np.float32]]:
        """What all next states with these parents share: the constant, and for each parent its
        value and its curves; (parent, feature, row) what their products are made of; its squares.
        """
        inputs = len(self.table.feature_counts)
        count = int(np.clip(self.settings.max_columns // (2 * len(parents) + 1), 1, self.count))
        regressors = [0]
        for parent in parents:
            first = 1 + inputs + parent * self.count
            curves = min(count, int(self.table.feature_counts[parent]))
            regressors += [1 + parent, *range(first + 1, first + curves)]
        terms = np.stack([regressors, np.zeros(len(regressors), np.int64)], axis=1)
        rows = min(_PAIR_ROWS, len(self.transitions))
        features = np.zeros((len(parents), self.pair_count, rows), np.float32)
        for place, parent in enumerate(parents):
            features[place] = self._evaluate(parent)[: self.pair_count, :rows]
        return terms, Ridge(self._design(terms)), features, sum_squares(features)

    def _pair_block(self, first: int, second: int, size: int) -> IntArray:
        base = 1 + len(self.table.feature_counts)
        left = np.arange(min(size, int(self.table.feature_counts[first])))
        right = np.arange(min(size, int(self.table.feature_counts[second])))
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
        inputs = len(self.table.feature_counts)
        if index == 0:
            return 1.0
        column, feature = int(index) - 1, 0
        if index > inputs:
            column, feature = divmod(int(index) - 1 - inputs, self.count)
        return np.asarray(self._evaluate(column)[feature, :rows])


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
    std = np.maximum(np.sqrt((residuals**2).mean(axis=0)) * growth, floor)
    stds = np.repeat(std[:, None], COMPONENTS, axis=1)
    plain = np.stack([bare.mixture_weights, bare.mixture_means, stds])
    # Clearly not Gaussian, by skewness and kurtosis.
    centred = residuals - residuals.mean(axis=0)
    centred = centred / np.maximum(centred.std(axis=0), 1e-30)
    skewness, kurtosis = (centred**3).mean(axis=0), (centred**4).mean(axis=0) - 3
    spread = np.sqrt(6 / len(residuals))
    is_odd = (np.abs(skewness) > 4 * spread) | (np.abs(kurtosis) > 8 * spread)
    odd = np.flatnonzero(is_odd & ~bare.persistent)
    mixed = plain.copy()
    mixed[:, odd] = _fit_mixture(residuals[:, odd] * growth[odd], floor[odd])
    gain = mixture_log_density(out, *mixed).mean(axis=0)
    gain -= mixture_log_density(out, *plain).mean(axis=0)
    weights, means, stds = np.where((gain > 0.002)[:, None], mixed, plain)
    model = replace(bare, mixture_weights=weights, mixture_means=means, mixture_stds=stds)
    return replace(model, metrics=_measure(model, training, held_out))


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

    def explain(variance: Array) -> Any:
        shares = np.maximum(1 - error / np.maximum(variance, 1e-30), -1e3)
        return np.where(error <= 1e-30, 1.0, shares).tolist()

    observations, actions = np.split(held_out.inputs, [model.state_size], axis=1)
    error = ((model.predict(observations, actions) - held_out.targets) ** 2).mean(axis=0)
    likelihood = model.log_likelihood(observations, actions, held_out.targets)
    return {
        "training_transitions": len(training),
        "held_out_transitions": len(held_out) if held_out is not training else 0,
        "held_out_r2": explain(held_out.targets.var(axis=0)),
        "held_out_r2_of_change": explain(((held_out.targets - observations) ** 2).mean(axis=0)),
        "held_out_log_likelihood": float(likelihood.mean()),
    }


RIDGE = 1e-7
"""Added to the mean square of every regressor."""
_MAX_MAINS = 200  # curves of all parents together; each solve is cubic in them


class Design:
    """The regressors of one next state, and which groups each of them involves.

    `index` is the number of a feature, or -1 - k for the product k. `owners` (2, regressor) are the
    groups that a regressor involves; -1 stands for none.
    """

    def __init__(self, problem: ParentSearch, state: int) -> None:
        self.problem = problem
        self.target = problem.targets[state]
        self.floor = float(problem.floor[state])
        self.least_rise = float(problem.least_rise[state])
        self.total = float(self.target @ self.target)
        self.products = np.zeros((0, problem.rows))
        self.index, self.owners = np.zeros(0, np.int64), np.zeros((2, 0), np.int64)
        self.gram, self.moments = np.zeros((0, 0)), np.zeros(0)
        # No group makes a pair with itself.
        self.paired = np.eye(problem.groups, dtype=np.bool_)

    def add_mains(self, groups: list[int]) -> None:
        """Add main effects, of fewer features where inputs are many."""
        problem = self.problem
        chosen = len(groups) + int(self.kept().sum())
        count = max(problem.count, min(problem.rich_count, _MAX_MAINS // max(1, chosen)))
        for group in groups:
            new = problem.members(group, count)
            known = problem.gram[np.ix_(self.index[self.index >= 0], new)]
            inner = problem.gram[np.ix_(new, new)]
            self._append(new, group, -1, problem.features[new], known, inner)

    def add_pair(self, first: int, second: int, size: int) -> None:
        """Add the products of two groups' features, and the main effects that they lack."""
        problem = self.problem
        self.paired[first, second] = self.paired[second, first] = True
        self.add_mains([group for group in (first, second) if group not in self._find_mains()])
        left, right = (problem.features[problem.members(g, size)] for g in (first, second))
        new = (left[:, None] * right[None, :]).reshape(-1, problem.rows)
        new -= new.mean(axis=1, keepdims=True)
        known = problem.features[self.index[self.index >= 0]] @ new.T
        inner = new @ new.T + RIDGE * problem.rows * np.eye(len(new))
        index = -1 - len(self.products) - np.arange(len(new))
        self._append(index, first, second, new, known, inner)
        self.products = np.concatenate([self.products, new])

    def _append(
        self, index: IntArray, first: int, second: int, rows: Array, known: Array, inner: Array
    ) -> None:
        """Add regressors (regressor, row), `known` their products with the main effects so far."""
        is_main = self.index >= 0
        cross = np.empty((len(self.index), len(index)))
        cross[is_main] = known
        cross[~is_main] = self.products[-1 - self.index[~is_main]] @ rows.T
        self.index = np.concatenate([self.index, index])
        owners = np.tile([[first], [second]], len(index))
        self.owners = np.concatenate([self.owners, owners], axis=1)
        self.gram = np.block([[self.gram, cross], [cross.T, inner]])
        self.moments = np.concatenate([self.moments, rows @ self.target])

    def residual(self, rows: int) -> Array:
        """(row,): what the regressors leave of the first rows."""
        weights, is_main = np.linalg.solve(self.gram, self.moments), self.index >= 0
        mains = self.problem.features[:, :rows][self.index[is_main]]
        products = self.products[:, :rows][-1 - self.index[~is_main]]
        residual = self.target[:rows] - weights[is_main] @ mains
        return np.asarray(residual - weights[~is_main] @ products)

    def missed_mains(self) -> list[int]:
        """Groups left out whose main effect shows now that pairs have lowered the noise."""
        if not len(self.products):
            return []
        least = self.problem.penalty(self.problem.sizes) / self.problem.rows
        return np.flatnonzero(self._outside_gains() > least).tolist()

    def _find_mains(self) -> IntArray:
        """The groups that have a main effect."""
        return np.unique(self.owners[0, self.owners[1] < 0])

    def _outside_gains(self) -> Array:
        """(group,): nats per transition that a main effect would add, for groups without one."""
        problem = self.problem
        rows = problem.screen.shape[2]
        residual = self.residual(rows)
        if not len(problem.features):
            return np.zeros(problem.groups)
        found = problem.screen.reshape(-1, rows) @ residual.astype(np.float32)
        slopes = found.reshape(problem.screen.shape[:2])
        slopes = slopes[problem.column[problem.blocks], problem.rank[problem.blocks]]
        part = np.where(problem.block_valid, slopes, 0.0).astype(np.float64)
        inner = problem.inner * (rows / problem.rows)
        gains = (part * np.linalg.solve(inner, part[:, :, None])[:, :, 0]).sum(axis=1)
        rss = max(float(residual @ residual), self.floor * rows / problem.rows)
        gains[self._find_mains()] = 0.0
        return np.asarray(-0.5 * np.log1p(-np.clip(gains / rss, 0.0, 0.99)))

    def _rises(self, removals: list[BoolArray]) -> tuple[Array, float]:
        """(removal,) by how much the sum of squares rises when regressors go, and from what."""
        inverse = np.linalg.inv(self.gram)
        weights = inverse @ self.moments
        rss = max(self.total - float(weights @ self.moments), self.floor)
        rises = np.zeros(len(removals))
        for k, removed in enumerate(removals):
            part = weights[removed]
            rises[k] = part @ np.linalg.solve(inverse[np.ix_(removed, removed)], part)
        return np.maximum(rises, 0.0), rss

    def _involving(self, group: int) -> BoolArray:
        return np.asarray((self.owners == group).any(axis=0))

    def eliminate(self) -> None:
        """Remove pairs and inputs while the least missed of them costs less than it must."""
        while len(self.index):
            pairs = np.unique(self.owners[:, self.owners[1] >= 0], axis=1).T
            removals = [(pair == self.owners.T).all(axis=1) for pair in pairs]
            removals += [self._involving(int(group)) for group in np.flatnonzero(self.kept())]
            rises, rss = self._rises(removals)
            problem = self.problem
            needed = 2 * problem.penalty(np.array([one.sum() for one in removals])) / problem.rows
            least = np.log1p(max(problem.settings.min_gain, self.least_rise / rss))
            needed[len(pairs) :] = np.maximum(needed[len(pairs) :], least)
            spare = np.log1p(rises / rss) - needed
            worst = int(spare.argmin())
            if spare[worst] >= 0:
                break
            kept = ~removals[worst]
            self.index, self.owners = self.index[kept], self.owners[:, kept]
            self.gram, self.moments = self.gram[np.ix_(kept, kept)], self.moments[kept]

    def kept(self) -> BoolArray:
        """(group,): whether each group takes part."""
        kept = np.zeros(self.problem.groups, np.bool_)
        kept[self.owners[self.owners >= 0]] = True
        return kept

    def strengths(self) -> Array:
        """(group,): nats per transition lost without the group, or gained by adding it."""
        strengths = self._outside_gains()
        groups = np.flatnonzero(self.kept())
        rises, rss = self._rises([self._involving(int(group)) for group in groups])
        strengths[groups] = 0.5 * np.log1p(rises / rss)
        return strengths


_MAX_ENTRIES = 30_000_000  # entries of the sample: 240 MB
_RESCREENED = 30  # inputs of the loudest pairs, which are screened again
_COMPARED = 60  # candidates with the largest gains that are measured exactly
_MAX_BASIC = 1_200  # curves of all inputs by which they are compared
_PAIR_WORK = 2.5e11  # multiplications of a screening of pairs; more take fewer features


@dataclass(frozen=True)
class DynamicsSettings(Settings):
    """Settings of the search for the masks of the dynamics. The dynamics model has its own
    settings."""

    transitions: int = setting(20_000, at_least=1)
    """Transitions that the masks are chosen on; at most 3e7 / (inputs * rich_features)."""
    features: int = setting(8, at_least=1)
    """Features per input when main effects are compared, the value itself included."""
    rich_features: int = setting(16, at_least=1)
    """Features per input once it is chosen: what is not expressed looks like other inputs."""
    pair_features: int = setting(7, at_least=1)
    """Features per input in a product of two; fewer where inputs are many."""
    max_parents: int = setting(40, at_least=1)
    """Inputs taken up per next state by their main effect, the strongest first."""
    max_pairs: int = 6
    """Products tried per next state."""
    min_gain: float = setting(0.02, at_least=0, below=inf)
    """Share by which the residual variance must rise when an input is removed, else it goes."""
    min_share: float = setting(0.001, at_least=0, below=inf)
    """Smallest rise as a fraction of the variance of the change of the state. It matters where
    noise is small."""
    penalty: float = setting(1.0, at_least=0, below=inf)
    """Strength of the penalty on regressors; 1 is the BIC."""


@dataclass(frozen=True, eq=False)
class DynamicsFit:
    """A model fitted within the graph that was found, and how strong each edge is."""

    model: DynamicsModel
    state_score: Array
    """(state, state): log-likelihood per transition, in nats, that is lost without the edge."""
    action_score: Array
    """(action, state), likewise; for an edge that is not there, what it would add on its own."""


def fit_dynamics(
    episodes: EpisodeSet,
    settings: DynamicsSettings | None = None,
    rng: np.random.Generator | None = None,
    progress: Progress = NOBODY.on_progress,
) -> DynamicsFit:
    """Find the parents of each next state, and fit a model of the dynamics to them alone."""
    settings, model_settings = settings or DynamicsSettings(), DynamicsModelSettings()
    rng = rng if rng is not None else np.random.default_rng(0)
    limit = max(settings.transitions, model_settings.max_transitions)
    transitions = draw_transitions(episodes, limit, rng)
    progress("finding the causal graph", 0.0)
    states, inputs = episodes.state_size, episodes.state_size + episodes.action_size
    # Columns are chosen each on its own, one-hot actions all at once.
    alone = states if episodes.discrete_actions and inputs > states else inputs - 1
    problem = ParentSearch(transitions, np.minimum(np.arange(inputs), alone), settings)
    scores = np.zeros((inputs, states))
    masks = np.zeros(scores.shape, np.bool_)
    for state in range(states):
        if problem.varies[state]:
            kept, strength = problem.select(state)
            masks[:, state], scores[:, state] = kept[problem.group_of], strength[problem.group_of]
        progress("finding the causal graph", (state + 1) / states)
    some = transitions.take(slice(0, model_settings.max_transitions))
    model = fit_to_transitions(some, masks, episodes, model_settings, rng, progress)
    return DynamicsFit(model, scores[:states], scores[states:])


class ParentSearch:
    """Sums over the sample that the selection of every state's parents shares.

    Features are numbered through all inputs; `owner` is the group and `rank` the place within the
    input of each. Inputs are compared by the first few (`basic`), chosen ones use all.
    """

    def __init__(
        self, transitions: Transitions, group_of: IntArray, settings: DynamicsSettings
    ) -> None:
        """`group_of` (input,) is the number of the group that each input belongs to."""
        inputs = transitions.inputs.shape[1]
        rows = min(len(transitions), settings.transitions)
        rows = min(rows, max(1_000, _MAX_ENTRIES // max(1, inputs * settings.rich_features)))
        sample = transitions.take(slice(0, rows))
        self.rows, self.settings = rows, settings
        self.group_of, self.groups = group_of, int(group_of.max()) + 1
        # Few transitions do not carry many features, and time not many inputs with many.
        most = min(settings.features, max(3, _MAX_BASIC // max(1, inputs)))
        self.count = int(np.clip(rows // 100, 1, most))
        rich = min(settings.rich_features, 2 * most)
        self.rich_count = int(np.clip(rows // 300, self.count, max(rich, self.count)))
        self._prepare_features(sample.inputs)
        self._prepare_blocks()
        self._prepare_targets(sample)
        self._prepare_screen()

    def _prepare_features(self, inputs: Array) -> None:
        """Centred features (feature, row) and their Gram matrix."""
        table = build_feature_table(inputs, self.rich_count)
        self.counts = table.feature_counts
        self.features = np.empty((int(self.counts.sum()), self.rows))
        stops = np.cumsum(self.counts)
        for column in np.flatnonzero(self.counts):
            own = slice(stops[column] - self.counts[column], stops[column])
            self.features[own] = table.evaluate(inputs, int(column), int(self.counts[column]))
        self.features -= self.features.mean(axis=1, keepdims=True)
        self.gram = self.features @ self.features.T
        self.gram[np.diag_indices_from(self.gram)] += RIDGE * self.rows

    def _prepare_blocks(self) -> None:
        """Assign features to groups: (group, place) lists the basic features of each group, padded
        to equal length."""
        self.column = np.repeat(np.arange(len(self.counts)), self.counts)
        self.owner = self.group_of[self.column]
        self.rank = np.concatenate([np.zeros(0, np.int64), *map(np.arange, self.counts)])
        basic = np.flatnonzero(self.rank < self.count)
        basic = basic[np.argsort(self.owner[basic], kind="stable")]
        self.sizes = np.bincount(self.owner[basic], minlength=self.groups)
        self.block_valid = np.arange(max(1, self.sizes.max())) < self.sizes[:, None]
        self.blocks = np.zeros(self.block_valid.shape, np.int64)
        self.blocks[self.block_valid] = basic
        self.both = self.block_valid[:, :, None] & self.block_valid[:, None, :]
        padding = self.rows * np.eye(self.block_valid.shape[1])
        self.inner = np.broadcast_to(padding, self.both.shape)
        if len(basic):
            inner = self.gram[self.blocks[:, :, None], self.blocks[:, None, :]]
            self.inner = np.where(self.both, inner, padding)
        self.inner_inverse = np.linalg.inv(self.inner)

    def _prepare_targets(self, sample: Transitions) -> None:
        targets = sample.targets
        self.varies = is_varying(targets)
        scale = np.where(self.varies, targets.std(axis=0), 1.0)
        self.targets = np.ascontiguousarray(((targets - targets.mean(axis=0)) / scale).T)
        self.moments = self.features @ self.targets.T
        # Below this a residual is rounding, of the data or of the sums.
        rounding = 2e-7 * np.abs(targets).max(axis=0) / scale
        self.floor = self.rows * (rounding**2 + 1e-10)
        change = (targets - sample.inputs[:, : targets.shape[1]]).std(axis=0) / scale
        self.least_rise = self.settings.min_share * self.rows * np.minimum(change, 1.0) ** 2

    def _prepare_screen(self) -> None:
        """(input, feature, row): basic features of a few thousand rows in float32, for tests."""
        rows = min(self.rows, 8_000 if len(self.counts) <= 50 else 4_000)
        basic = self.rank < self.count
        self.screen = np.zeros((len(self.counts), self.count, rows), np.float32)
        self.screen[self.column[basic], self.rank[basic]] = self.features[basic, :rows]
        count = min(self.count, self.settings.pair_features)
        work = 2.0 * len(self.targets) * rows * len(self.counts) ** 2
        while count > 2 and work * count**2 > _PAIR_WORK:
            count -= 1
        self.pair_screen = np.ascontiguousarray(self.screen[:, :count])
        self.pair_squares = sum_squares(self.pair_screen)

    def members(self, group: int, count: int) -> IntArray:
        """The first features of each of a group's inputs."""
        return np.flatnonzero((self.owner == group) & (self.rank < count))

    def penalty(self, sizes: IntArray | int) -> Array:
        """The gain in nats that a number of regressors must reach."""
        return np.asarray(0.5 * self.settings.penalty * np.log(self.rows) * np.asarray(sizes))

    def select(self, state: int) -> tuple[BoolArray, Array]:
        """(group,) the parents of one next state, and the strength of every edge."""
        design = Design(self, state)
        design.add_mains(self._forward(state))
        self._add_pairs(design)
        design.add_mains(design.missed_mains())
        design.eliminate()
        return design.kept(), design.strengths()

    def _forward(self, state: int) -> list[int]:
        """Groups by main effect, best first, while the BIC falls."""
        chosen: list[int] = []
        moments = self.moments[:, state]
        rss = max(float(self.targets[state] @ self.targets[state]), self.floor[state])
        while len(chosen) < self.settings.max_parents:
            gains = self._main_gains(chosen, moments)
            gains = np.minimum(gains, rss - self.floor[state])
            value = -0.5 * self.rows * np.log1p(-np.maximum(gains, 0) / rss)
            value -= self.penalty(self.sizes)
            best = int(value.argmax())
            if value[best] <= 0:
                break
            chosen.append(best)
            rss = max(rss - float(gains[best]), self.floor[state])
        return chosen

    def _main_gains(self, chosen: list[int], moments: Array) -> Array:
        """(group,): fall of the residual sum of squares if a group joins the chosen ones.

        Exact for the most promising groups, a lower bound for the others.
        """
        if not len(moments):  # all inputs are constant
            return np.zeros(len(self.blocks))
        own = self.blocks[chosen][self.block_valid[chosen]]
        weights = np.linalg.solve(self.gram[np.ix_(own, own)], moments[own])
        slope = moments - weights @ self.gram[own]
        part = np.where(self.block_valid, slope[self.blocks], 0.0)
        gains: Array = np.einsum("gi,gij,gj->g", part, self.inner_inverse, part)
        gains[chosen] = 0.0
        best = np.argsort(gains)[::-1][:_COMPARED]
        best = best[(gains[best] > 0) & self.block_valid[best, 0]]
        if chosen and len(best):
            cross = self.gram[own][:, self.blocks[best]]  # (own, group, place)
            flat = cross.reshape(len(own), -1)
            solved = np.linalg.solve(self.gram[np.ix_(own, own)], flat).reshape(cross.shape)
            known = cross.transpose(1, 2, 0) @ solved.transpose(1, 0, 2)
            inner = self.inner[best] - np.where(self.both[best], known, 0.0)
            inner = inner + 1e-6 * self.rows * np.eye(inner.shape[1])
            solution = np.linalg.solve(inner, part[best][:, :, None])[:, :, 0]
            gains[best] = (part[best] * solution).sum(axis=1)
        return gains

    def _add_pairs(self, design: Design) -> None:
        """Add the pairs of groups that speak loudest in the residual, one after another.

        The first test is of all inputs; later ones, where there are many, of the best few.
        """
        features, squares = self.pair_screen, self.pair_squares
        inputs, count, rows = features.shape
        columns = np.arange(inputs)
        for turn in range(self.settings.max_pairs):
            score, sizes = score_pairs(features, squares, design.residual(rows))
            groups = self.group_of[columns]
            score = np.where(design.paired[np.ix_(groups, groups)], -np.inf, score)
            a, b = np.unravel_index(int(score.argmax()), score.shape)
            if not score[a, b] > 0:
                break
            design.add_pair(int(groups[a]), int(groups[b]), int(sizes[a, b]))
            if turn == 0 and inputs > _RESCREENED:
                loudest = np.maximum(score.max(axis=0), score.max(axis=1))
                columns = np.sort(np.argsort(loudest)[::-1][:_RESCREENED])
                places = (columns[:, None] * count + np.arange(count)).ravel()
                features, squares = features[columns], squares[np.ix_(places, places)]
