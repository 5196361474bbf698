"""The reward model that other people's code imports: save, load, predict.

    model = RewardModel.load("data-grd")
    rewards = model.predict(observations, actions)

A folder of `config.json`, `model.safetensors` and a card. Loading runs no code from the folder:
names, shapes, types, finiteness and sizes are checked, and the first mismatch is named.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grd_offline.episodes import check_finite
from grd_offline.errors import DataError
from grd_offline.files.models import (
    CONFIG,
    find_model,
    holds_only_model,
    read_config,
    read_settled,
    read_shapes,
    read_tensors,
    save_model,
)
from grd_offline.names import rename_model
from grd_offline.rewards.card import write_card
from grd_offline.rewards.effects import EffectModel

if TYPE_CHECKING:
    import torch

    from grd_offline.rewards.contract import RewardFunction

Array = NDArray[np.float64]
FOLDER = "reward_model"
FORMAT = "grd-offline reward model"
VERSION = 1
_MASKS = ("state_mask", "action_mask", "compact_mask")


@dataclass(frozen=True, eq=False)
class RewardModel:
    """A reward per step as a function of the step, with its masks and its uncertainty.

    Can be called as `reward(state, action, next_state, done)`, the signature of reward functions
    in the imitation library.
    """

    function: RewardFunction
    observation_names: tuple[str, ...]
    action_names: tuple[str, ...]
    state_mask: NDArray[np.int64]
    """(state,) 1 where the reward depends on that dimension."""
    action_mask: NDArray[np.int64]
    """(action,)"""
    compact_mask: NDArray[np.int64]
    """(state,) 1 where a policy needs that dimension."""
    step_std: float | None = None
    """Standard deviation of a step's reward about its prediction, where the function has none of
    its own; None where it is not known."""
    about: Mapping[str, Any] | None = None
    """What data, what fit, how good: plain JSON, for the card."""

    def __repr__(self) -> str:
        inputs = int(self.state_mask.sum() + self.action_mask.sum())
        of = len(self.observation_names) + len(self.action_names)
        return f"RewardModel({self.function.kind}, {inputs} of {of} inputs)"

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
        """(N,) the reward of each step. `done` is taken for compatibility and not used.

        Observations are (N, state), actions (N, action), one-hot where they are discrete choices.
        Next observations may always be given; they are used where the reward depends on them.
        """
        steps = self._check_steps(observations, actions, next_observations, done)
        with np.errstate(over="ignore", invalid="ignore"):
            return _check_rewards(self.function.predict(*steps))

    def __call__(
        self, state: ArrayLike, action: ArrayLike, next_state: ArrayLike, done: ArrayLike
    ) -> Array:
        """`predict`, with the signature that the imitation library asks of a reward function."""
        return self.predict(state, action, next_state, done)

    def uncertainty(
        self,
        observations: ArrayLike,
        actions: ArrayLike,
        next_observations: ArrayLike | None = None,
    ) -> Array:
        """(N,) standard deviation of the true reward about the prediction; nan if not known."""
        steps = self._check_steps(observations, actions, next_observations)
        if isinstance(self.function, EffectModel):
            return self.function.predict_std(*steps)
        return self._step_std(len(steps[0]))

    def predict_both(
        self,
        observations: ArrayLike,
        actions: ArrayLike,
        next_observations: ArrayLike | None = None,
    ) -> tuple[Array, Array]:
        """`predict` and `uncertainty` of the same steps, in less time than one after the other."""
        steps = self._check_steps(observations, actions, next_observations)
        with np.errstate(over="ignore", invalid="ignore"):
            if isinstance(self.function, EffectModel):
                rewards, std = self.function.predict_both(*steps)
            else:
                rewards, std = self.function.predict(*steps), self._step_std(len(steps[0]))
        return _check_rewards(rewards), std

    def _step_std(self, count: int) -> Array:
        return np.full(count, np.nan if self.step_std is None else self.step_std)

    def _check_steps(
        self,
        observations: ArrayLike,
        actions: ArrayLike,
        next_observations: ArrayLike | None,
        done: ArrayLike | None = None,
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any] | None]:
        """The steps as arrays; without the next observations where they are not used."""
        states, choices = len(self.observation_names), len(self.action_names)
        first = _as_matrix("observations", observations, states, None)
        second = _as_matrix("actions", actions, choices, len(first))
        following = None
        if next_observations is not None:
            following = _as_matrix("next_observations", next_observations, states, len(first))
        elif self.needs_next_observations:
            raise ValueError("next_observations: expected them, this reward depends on them")
        if done is not None and np.shape(done) != (len(first),):
            raise ValueError(f"done: expected shape ({len(first)},), got {np.shape(done)}")
        return first, second, following if self.needs_next_observations else None

    def torch(self) -> torch.nn.Module:
        """The same as a module with gradients: (..., state), (..., action) -> (...).

        A copy: it may be moved to any device and compiled, and the model stays as it is.
        """
        from grd_offline.rewards.module import RewardModule

        return RewardModule(
            self.function.torch(),
            states=len(self.observation_names),
            actions=len(self.action_names),
            needs_next=self.needs_next_observations,
        )

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the folder, all or nothing."""
        save_model(folder, self._config(), self.function.tensors(), self._card(), _is_model)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> RewardModel:
        """Read a saved model: its folder, or the decomposition that contains `reward_model/`."""
        return read_settled(find_model(folder, FOLDER), cls._read)

    @classmethod
    def _read(cls, path: Path) -> RewardModel:
        config = _read_config(path)
        try:
            kind = _find_kind(config["function"])
            expected = kind.expected_tensors(config["function"], read_shapes(path))
            function = kind.from_parts(config["function"], read_tensors(path, expected))
            return cls._from_config(config, function)
        except DataError:
            raise
        except (KeyError, TypeError, ValueError) as error:
            reason = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
            raise DataError(reason, file=path) from error

    @classmethod
    def _from_config(cls, config: Mapping[str, Any], function: RewardFunction) -> RewardModel:
        observation_names = _read_names(config, "observation_names")
        action_names = _read_names(config, "action_names")
        _check_sizes(config["function"], len(observation_names), len(action_names))
        for field, names in (
            ("observation_names", observation_names),
            ("action_names", action_names),
        ):
            if tuple(getattr(function, field, names)) != names:
                raise ValueError(f"{field}: expected those of the function")
        return cls(
            function=function,
            observation_names=observation_names,
            action_names=action_names,
            state_mask=_read_mask(config, "state_mask", len(observation_names)),
            action_mask=_read_mask(config, "action_mask", len(action_names)),
            compact_mask=_read_mask(config, "compact_mask", len(observation_names)),
            step_std=_read_std(config["step_std"]),
            about=rename_model(config["about"]),
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
            "function": {"kind": self.function.kind, **self.function.config()},
        }

    def _card(self) -> str:
        return write_card(
            self.about or {},
            kind=self.function.kind,
            observation_names=self.observation_names,
            action_names=self.action_names,
            masks={field: getattr(self, field).tolist() for field in _MASKS},
            needs_next=self.needs_next_observations,
            knows_std=isinstance(self.function, EffectModel) or self.step_std is not None,
        )


def _check_rewards(rewards: Array) -> Array:
    """What a model with absurd weights makes of steps is refused, not passed on."""
    if not np.isfinite(rewards).all():
        raise DataError("the model gives rewards that are nan or infinite: it is damaged")
    return rewards


def _as_matrix(name: str, values: ArrayLike, columns: int, rows: int | None) -> NDArray[Any]:
    array = np.asarray(values)
    if array.ndim != 2 or array.shape[1] != columns or rows not in (None, len(array)):
        wanted = f"({'N' if rows is None else rows}, {columns})"
        raise ValueError(f"{name}: expected shape {wanted}, got {array.shape}")
    check_finite(array, name, array)
    return array


def _read_names(config: Mapping[str, Any], field: str) -> tuple[str, ...]:
    names = config[field]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{field}: expected a list of strings")
    return tuple(names)


def _read_mask(config: Mapping[str, Any], field: str, size: int) -> NDArray[np.int64]:
    mask = config[field]
    right = isinstance(mask, list) and all(type(entry) is int and entry in (0, 1) for entry in mask)
    if not right or len(mask) != size:
        raise ValueError(f"{field}: expected {size} times 0 or 1")
    return np.array(mask, np.int64)


def _read_std(value: Any) -> float | None:
    if value is None:
        return None
    if type(value) not in (int, float) or not 0 <= value <= sys.float_info.max:
        raise ValueError(f"step_std: expected a number of at least 0 or null, got {value!r:.40}")
    return float(value)


def _check_sizes(function: Mapping[str, Any], states: int, actions: int) -> None:
    """The function has to be one of as many dimensions as there are names."""
    found = (
        (len(function["observation_names"]), len(function["action_names"]))
        if function["kind"] == EffectModel.kind
        else (function["states"], function["actions"])
    )
    if found != (states, actions):
        raise ValueError(
            f"function: {found[0]} state and {found[1]} action dimensions, but {states} and "
            f"{actions} names"
        )


def _find_kind(config: Mapping[str, Any]) -> type[RewardFunction]:
    """The class whose `config` this is; torch is imported only where it is needed."""
    kind = config["kind"]
    if kind == EffectModel.kind:
        return EffectModel
    if kind in ("network", "constant", "quadratic"):
        from grd_offline.rewards.constant import ConstantFunction
        from grd_offline.rewards.network import NetworkFunction
        from grd_offline.rewards.quadratic import QuadraticFunction

        functions = (NetworkFunction, ConstantFunction, QuadraticFunction)
        return next(function for function in functions if function.kind == kind)
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
