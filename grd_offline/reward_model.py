"""The reward model that other people's code imports: save, load, predict.

    model = RewardModel.load("data-grd")
    rewards = model.predict(observations, actions)

A folder of `config.json`, `model.safetensors` and a card. Loading runs no code from the folder:
names, shapes, types, finiteness and sizes are checked, and the first mismatch is named.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grd_offline.effects import EffectModel
from grd_offline.errors import DataError
from grd_offline.model_files import (
    CONFIG,
    WEIGHTS,
    as_plain,
    check_size,
    find_model,
    holds_only_model,
    read_config,
    save_model,
)

if TYPE_CHECKING:
    import torch

    from grd_offline.decompose.base import RewardFunction

Array = NDArray[np.float64]
FOLDER = "reward_model"
FORMAT = "grd-offline reward model"
VERSION = 1
_MASKS = ("state_mask", "action_mask", "compact_mask")


@dataclass(frozen=True, eq=False)
class RewardModel:
    """A reward per step as a function of the step, with its masks and its uncertainty."""

    function: RewardFunction
    observation_names: tuple[str, ...]
    action_names: tuple[str, ...]
    state_mask: NDArray[np.int64]
    """(state,) 1 where the reward depends on that dimension."""
    action_mask: NDArray[np.int64]
    """(action,)"""
    compact_mask: NDArray[np.int64]
    """(state,) 1 where a policy needs that dimension."""
    step_std: float = 0.0
    """Standard deviation of a step's reward about its prediction, where the function has none."""
    about: Mapping[str, Any] | None = None
    """What data, what fit, how good: plain JSON, for the card."""

    @property
    def needs_next_observations(self) -> bool:
        """Whether `predict` has to be given the next observations."""
        needs = getattr(self.function, "needs_next", getattr(self.function, "uses_next", False))
        return bool(needs)

    def predict(
        self,
        observations: ArrayLike,
        actions: ArrayLike,
        next_observations: ArrayLike | None = None,
        done: ArrayLike | None = None,
    ) -> Array:
        """(N,) the reward of each step. `done` is taken for compatibility and not used."""
        following = next_observations if self.needs_next_observations else None
        if self.needs_next_observations and following is None:
            raise ValueError("next_observations: expected them, this reward depends on them")
        return self.function.predict(observations, actions, following)

    def uncertainty(
        self,
        observations: ArrayLike,
        actions: ArrayLike,
        next_observations: ArrayLike | None = None,
    ) -> Array:
        """(N,) standard deviation of the true reward of each step about the prediction."""
        following = next_observations if self.needs_next_observations else None
        if isinstance(self.function, EffectModel):
            return self.function.predict_std(observations, actions, following)
        return np.full(len(np.asarray(observations)), self.step_std)

    def predict_both(
        self,
        observations: ArrayLike,
        actions: ArrayLike,
        next_observations: ArrayLike | None = None,
    ) -> tuple[Array, Array]:
        """`predict` and `uncertainty` of the same steps, in less time than one after the other."""
        if isinstance(self.function, EffectModel):
            following = next_observations if self.needs_next_observations else None
            return self.function.predict_both(observations, actions, following)
        rewards = self.predict(observations, actions, next_observations)
        return rewards, np.full(len(rewards), self.step_std)

    def torch(self) -> torch.nn.Module:
        """The same as a module with gradients: (..., state), (..., action) -> (...)."""
        return self.function.torch()

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the folder, all or nothing."""
        save_model(folder, self._config(), self.function.tensors(), self._card(), _is_model)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> RewardModel:
        """Read a saved model: its folder, or the decomposition that contains `reward_model/`."""
        path = find_model(folder, FOLDER)
        config = _read_config(path)
        tensors = _read_tensors(path / WEIGHTS)
        try:
            function = _build_function(config["function"], tensors)
            return cls._from_config(config, function)
        except (KeyError, TypeError, ValueError) as error:
            reason = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
            raise DataError(reason, file=path) from error

    @classmethod
    def _from_config(cls, config: Mapping[str, Any], function: RewardFunction) -> RewardModel:
        observation_names = tuple(str(name) for name in config["observation_names"])
        action_names = tuple(str(name) for name in config["action_names"])
        step_std = float(config["step_std"])
        if not 0 <= step_std < np.inf:
            raise ValueError(f"step_std: expected a number of at least 0, got {step_std!r}")
        return cls(
            function=function,
            observation_names=observation_names,
            action_names=action_names,
            state_mask=_read_mask(config, "state_mask", len(observation_names)),
            action_mask=_read_mask(config, "action_mask", len(action_names)),
            compact_mask=_read_mask(config, "compact_mask", len(observation_names)),
            step_std=step_std,
            about=dict(config["about"]),
        )

    def _config(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "version": VERSION,
            "observation_names": list(self.observation_names),
            "action_names": list(self.action_names),
            **{field: getattr(self, field).tolist() for field in _MASKS},
            "step_std": self.step_std,
            "about": dict(self.about or {}),
            "function": {"kind": _kind(self.function), **self.function.config()},
        }

    def _card(self) -> str:
        inputs = [
            *(n for n, on in zip(self.observation_names, self.state_mask, strict=True) if on),
            *(n for n, on in zip(self.action_names, self.action_mask, strict=True) if on),
        ]
        listed = (
            ", ".join(as_plain(name) for name in inputs) or "nothing: it is the same everywhere"
        )
        facts = "\n".join(
            f"| {as_plain(str(k))} | {as_plain(str(v))} |" for k, v in (self.about or {}).items()
        )
        following = ", next_observations" if self.needs_next_observations else ""
        return f"""# Reward model

The reward of a step, learned from returns of whole episodes. Made by grd-offline.

```python
from grd_offline import RewardModel

model = RewardModel.load("this folder")
rewards = model.predict(observations, actions{following})      # (N,)
spread = model.uncertainty(observations, actions{following})   # (N,) standard deviation
module = model.torch()                                 # a module with gradients
```

Observations have {len(self.observation_names)} dimensions, actions {len(self.action_names)}.
The reward depends on: {listed}.

| | |
|---|---|
{facts}

Rewards are known only up to what cancels over an episode: adding h(next state) - h(state) changes
every step and no return. Far from the data, the reward is that of the nearest data.
"""


def _read_mask(config: Mapping[str, Any], field: str, size: int) -> NDArray[np.int64]:
    mask = np.asarray(config[field])
    if mask.shape != (size,) or not np.isin(mask, (0, 1)).all():
        raise ValueError(f"{field}: expected {size} times 0 or 1")
    return mask.astype(np.int64)


def _kind(function: RewardFunction) -> str:
    return "effects" if isinstance(function, EffectModel) else function.kind


def _build_function(
    config: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]
) -> RewardFunction:
    kind = config["kind"]
    if kind == "effects":
        rest = {name: value for name, value in config.items() if name != "kind"}
        return EffectModel.from_parts(rest, tensors)  # type: ignore[return-value]
    from grd_offline.decompose.functions import ConstantFunction, NetworkFunction

    if kind == "network":
        return NetworkFunction.from_parts(config, tensors)
    if kind == "constant":
        return ConstantFunction.from_parts(config, tensors)
    if kind == "quadratic":
        from grd_offline.decompose.quadratic import QuadraticFunction

        return QuadraticFunction.from_parts(config, tensors)
    raise ValueError(f"kind: expected effects, network, quadratic or constant, got {kind!r:.40}")


def _is_model(folder: Path) -> bool:
    try:
        _read_config(folder)
    except ValueError:
        return False
    return holds_only_model(folder)


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG
    config = read_config(path, FORMAT, VERSION)
    for field in ("function", "about"):
        if not isinstance(config.get(field), dict):
            raise DataError("expected an object", file=path, field=field)
    return config


def _read_tensors(path: Path) -> dict[str, NDArray[Any]]:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        check_size(path)
        return dict(load_file(path))
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", file=path) from error
    except (SafetensorError, KeyError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"is not a safetensors file: {error}", file=path) from error
