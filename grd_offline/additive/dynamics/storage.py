"""A dynamics model on disk: the card, and everything that is checked when one is read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from grd_offline.additive.dynamics.features import NODES
from grd_offline.additive.dynamics.settings import COMPONENTS, DynamicsModelSettings
from grd_offline.core.errors import DataError
from grd_offline.io.files import models

if TYPE_CHECKING:
    from grd_offline.additive.dynamics.model import DynamicsModel

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
