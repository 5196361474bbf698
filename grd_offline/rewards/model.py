"""The reward model that other code imports: save, load and predict.

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

from grd_offline.core.episodes import Matrix, as_flags
from grd_offline.core.errors import DataError
from grd_offline.core.inputs import name_effect
from grd_offline.core.names import list_label_columns, read_names
from grd_offline.core.steps import StepBatch
from grd_offline.core.typing import Array
from grd_offline.io.files.models import (
    CONFIG,
    REWARD_FOLDER,
    find_model,
    read_config,
    read_settled,
    read_shapes,
    read_tensors,
    write_model,
)
from grd_offline.rewards.card import write_card
from grd_offline.rewards.config import check_names
from grd_offline.rewards.contract import RewardFunction, Steps
from grd_offline.rewards.given_steps import read_columns
from grd_offline.rewards.notebook import show_result
from grd_offline.rewards.registry import find_kind

if TYPE_CHECKING:
    import torch

FORMAT = "grd-offline reward model"
VERSION = 1
_NAMES = ("observation_names", "action_names")
_MASKS = ("state_mask", "action_mask", "compact_mask")


@dataclass(frozen=True, eq=False)
class RewardModel:
    """A reward per step as a function of the step, with its masks and its uncertainty.

    Can be called as `reward(state, action, next_state, done)`, the signature of reward functions
    in the imitation library.

    Examples
    --------
    >>> from grd_offline import RewardModel, decompose
    >>> _ = decompose("datasets/sample.h5", "sample-grd")
    >>> model = RewardModel.load("sample-grd")
    >>> rewards = model.predict(
    ...     observations, actions, next_observations, terminations
    ... )  # doctest: +SKIP
    """

    function: RewardFunction
    observation_names: tuple[str, ...]
    action_names: tuple[str, ...]
    state_mask: NDArray[np.int64]
    """(state,) 1 where the reward depends on that dimension."""
    action_mask: NDArray[np.int64]
    """(action,): 1 where the reward depends on the action."""
    compact_mask: NDArray[np.int64]
    """(state,) 1 where a policy needs that dimension."""
    step_std: float | None = None
    """Standard deviation of a step's reward about its prediction, where the function does not
    know it itself; None where it is not known at all."""
    about: Mapping[str, Any] | None = None
    """The data, the fit and its quality, for the card; plain JSON."""

    def __repr__(self) -> str:
        inputs = int(self.state_mask.sum() + self.action_mask.sum())
        of = len(self.observation_names) + len(self.action_names)
        return f"RewardModel({self.function.kind}, {inputs} of {of} inputs)"

    def _repr_html_(self) -> str:
        about = self.about or {}
        effects = self.function.explain().effects
        shares = sorted(((name_effect(e.references), float(e.share)) for e in effects),
                        key=lambda item: -item[1])  # fmt: skip
        note = f"Learned from {about['data']}." if "data" in about else ""
        return show_result(str(about.get("verdict", repr(self))), shares, note)

    @property
    def needs_next_observations(self) -> bool:
        """Whether `predict` has to be given the next observations."""
        return self.function.needs_next

    @property
    def needs_termination(self) -> bool:
        """Whether `predict` has to be given the terminations."""
        return self.function.needs_termination

    def predict(
        self,
        observations: ArrayLike,
        actions: ArrayLike,
        next_observations: ArrayLike | None = None,
        terminations: ArrayLike | None = None,
    ) -> Array:
        """Predict the reward of each step.

        Parameters
        ----------
        observations
            (N, state), or a data frame with the columns of the data, whose texts become one-hot
            columns.
        actions
            (N, action), one-hot where they are discrete choices, or a data frame.
        next_observations
            (N, state). They may always be given, and are used where the reward depends on them.
        terminations
            (N,), likewise. A truncated step is not terminated.

        Returns
        -------
        array
            (N,) the rewards.
        """
        batch = self._check_steps(observations, actions, next_observations, terminations)
        with np.errstate(over="ignore", invalid="ignore"):
            return check_predicted(self.function.predict(batch))

    def __call__(
        self, state: ArrayLike, action: ArrayLike, next_state: ArrayLike, done: ArrayLike
    ) -> Array:
        """Predict, with the signature that the imitation library expects of a reward function.

        `done` is taken for terminated.
        """
        return self.predict(state, action, next_state, done)

    def uncertainty(
        self,
        observations: Matrix,
        actions: Matrix,
        next_observations: Matrix | None = None,
        terminations: ArrayLike | None = None,
    ) -> Array:
        """Predict the standard deviation of the true reward around the prediction: (N,). nan if it
        is not known."""
        batch = self._check_steps(observations, actions, next_observations, terminations)
        return self._fill_std(self.function.predict_std(batch), len(batch))

    def predict_both(
        self,
        observations: Matrix,
        actions: Matrix,
        next_observations: Matrix | None = None,
        terminations: ArrayLike | None = None,
    ) -> tuple[Array, Array]:
        """Return `predict` and `uncertainty` of the same steps. This is faster than two calls."""
        batch = self._check_steps(observations, actions, next_observations, terminations)
        with np.errstate(over="ignore", invalid="ignore"):
            rewards, std = self.function.predict_both(batch)
        return check_predicted(rewards), self._fill_std(std, len(rewards))

    def _fill_std(self, std: Array | None, count: int) -> Array:
        if std is not None:
            return std
        return np.full(count, np.nan if self.step_std is None else self.step_std)

    def _check_steps(
        self,
        observations: ArrayLike,
        actions: ArrayLike,
        next_observations: ArrayLike | None,
        terminations: ArrayLike | None,
    ) -> Steps:
        """The steps as arrays; without what the reward does not depend on."""
        names = self.observation_names, self.action_names
        batch = StepBatch(
            read_columns("observations", observations, names[0]),
            read_columns("actions", actions, names[1]),
            None
            if next_observations is None
            else read_columns("next_observations", next_observations, names[0]),
            None if terminations is None else np.asarray(terminations),
        ).as_numbers(len(names[0]), len(names[1]), None)
        needs_next, needs_termination = self.needs_next_observations, self.needs_termination
        batch.check_given(next_observations=needs_next, terminations=needs_termination)
        ended = batch.terminations
        return StepBatch(
            batch.observations,
            batch.actions,
            batch.next_observations if needs_next else None,
            as_flags(ended, "terminations") if ended is not None and needs_termination else None,
        )

    def torch(self) -> torch.nn.Module:
        """Return the model as a module with gradients. It has the arguments of `predict`.

        (..., state), (..., action), (..., state) or None, (...,) or None -> (...)

        A copy: it may be moved to any device and compiled, and the model stays as it is.
        """
        from grd_offline.rewards.modules import RewardModule

        return RewardModule(
            self.function.torch(),
            states=len(self.observation_names),
            actions=len(self.action_names),
            needs_next=self.needs_next_observations,
            needs_termination=self.needs_termination,
        )

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the folder in full or not at all."""
        write_model(folder, self._config(), self.function.tensors(), self._card())

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> RewardModel:
        """Load a saved model from its folder, or from the decomposition that contains
        `reward_model/`."""
        return read_settled(find_model(folder, REWARD_FOLDER), cls._read)

    @classmethod
    def _read(cls, path: Path) -> RewardModel:
        config = _read_config(path)
        try:
            kind = find_kind(config["function"]["kind"])
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
        columns = config.get("label_columns", {})
        if not isinstance(columns, dict):
            raise ValueError("label_columns: expected an object")
        observation_names, action_names = (
            read_names(check_names(field, config[field]), columns.get(field)) for field in _NAMES
        )
        return cls(
            function=function.take_names(observation_names, action_names),
            observation_names=observation_names,
            action_names=action_names,
            state_mask=_read_mask(config, "state_mask", len(observation_names)),
            action_mask=_read_mask(config, "action_mask", len(action_names)),
            compact_mask=_read_mask(config, "compact_mask", len(observation_names)),
            step_std=_read_std(config["step_std"]),
            about=config["about"],
        )

    def _config(self) -> dict[str, Any]:
        columns = {field: list_label_columns(getattr(self, field)) for field in _NAMES}
        return {
            "format": FORMAT,
            "version": VERSION,
            **{field: [str(name) for name in getattr(self, field)] for field in _NAMES},
            **({"label_columns": columns} if any(columns.values()) else {}),
            **{field: getattr(self, field).tolist() for field in _MASKS},
            "step_std": self.step_std,
            "about": dict(self.about or {}),
            "function": self.function.config(),
        }

    def _card(self) -> str:
        return write_card(
            self.about or {},
            function=self.function,
            observation_names=self.observation_names,
            action_names=self.action_names,
            masks={field: getattr(self, field).tolist() for field in _MASKS},
            knows_std=self.function.knows_std or self.step_std is not None,
        )


def check_predicted(rewards: Array) -> Array:
    """Refuse rewards that only a damaged model gives."""
    if not np.isfinite(rewards).all():
        raise DataError("the model gives rewards that are nan or infinite: it is damaged")
    return rewards


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


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG
    config = read_config(path, FORMAT, VERSION)
    for field in ("function", "about"):
        if not isinstance(config.get(field), dict):
            raise DataError("expected an object", file=path, field=field)
    return config
