"""The dynamics model itself: predict, sample, score, save, load."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grd_offline.additive.dynamics.features import NODES, FeatureTable
from grd_offline.core.episodes import Matrix
from grd_offline.core.errors import DataError
from grd_offline.core.steps import StepBatch
from grd_offline.core.typing import Array, BoolArray, IntArray
from grd_offline.io.files import models
from grd_offline.io.files.models import DYNAMICS_FOLDER, find_model, read_settled, write_model

COMPONENTS = 3


@dataclass(frozen=True)
class DynamicsModelSettings:
    """Settings of the fit of a dynamics model within its masks."""

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
        check_whole(self, "features", "pair_features", "max_columns", "max_transitions")
        check_whole(self, "max_pairs", low=0)
        if not 0 < self.held_out < 1:
            raise ValueError(f"held_out: expected a share between 0 and 1, got {self.held_out!r}")


def check_whole(settings: object, *names: str, low: int = 1) -> None:
    """Refuse settings that are not whole numbers of at least `low`."""
    for name in names:
        value = getattr(settings, name)
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < low:
            raise ValueError(f"{name}: expected a whole number of at least {low}, got {value!r}")


FORMAT = "grd-offline dynamics model"
VERSION = 1
_MAX_DIMENSIONS = 100_000
_MAX_TERMS = 20_000_000


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
    path = folder / models.WEIGHTS
    tensors = models.read_tensors(folder, expected_tensors(config))
    for name, tensor in tensors.items():
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
        raise DataError("a term refers to an input that does not exist", file=path, field="terms")
    if (np.diff(terms[:, 0]) < 0).any():
        raise DataError("expected terms ordered by state", file=path, field="terms")
    counts = tensors["feature_counts"]
    if (counts < 0).any() or (counts > config["features"]).any():
        raise DataError("expected at most the model's features", file=path, field="feature_counts")
    return tensors


_CHUNK_ENTRIES = 5_000_000
_TABLE = {
    "center": "input_center",
    "scale": "input_scale",
    "nodes": "feature_nodes",
    "values": "feature_values",
    "counts": "feature_counts",
}
"""The tensors of the file that are fields of the table of features."""


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
        given = StepBatch.from_arrays(observations, actions, next_observations)
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
        return np.asarray(self.find_center(inputs) + standard * self.target_scale)

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
        named = vars(self) | {name: getattr(self.table, field) for field, name in _TABLE.items()}
        expected = expected_tensors(self._config())
        return {name: named[name].astype(kind) for name, (kind, _) in expected.items()}


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


def _read_model(folder: Path) -> DynamicsModel:
    config = read_config(folder)
    tensors = read_numbers(folder, config)
    for name in ("state_to_state", "action_to_state", "feature_counts"):
        tensors[name] = tensors[name].astype(np.int64)
    tensors["persistent"] = tensors["persistent"].astype(np.bool_)
    table = FeatureTable(**{field: tensors.pop(name) for field, name in _TABLE.items()})
    return DynamicsModel(
        **tensors,
        table=table,
        state_names=tuple(config["state_names"]),
        action_names=tuple(config["action_names"]),
        metrics=config["metrics"],
        settings=DynamicsModelSettings(**config["settings"]),
    )
