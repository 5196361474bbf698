"""The reward model that other code imports: save, load and predict.

    model = RewardModel.load("data-grd")
    rewards = model.predict(observations, actions)

A folder of `config.json`, `model.safetensors` and a card. Loading runs no code from the folder:
names, shapes, types, finiteness and sizes are checked, and the first mismatch is named.

Steps may be given as arrays, or as data frames with the columns of the data. The card tells what
data, what fit, how good, how to use it. A notebook shows a headline, and bars for what drives the
reward, without a script.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import compress
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grd_offline.core.episodes import LabelName, Matrix, as_flags, list_label_columns, read_names
from grd_offline.core.errors import DataError
from grd_offline.core.inputs import name_effect
from grd_offline.core.outcomes import describe_bands
from grd_offline.core.steps import StepBatch
from grd_offline.core.typing import Array
from grd_offline.core.words import DO_NOT_RELY, format_share
from grd_offline.io.files.models import (
    CONFIG,
    REWARD_FOLDER,
    as_plain,
    find_model,
    read_config,
    read_settled,
    read_shapes,
    read_tensors,
    write_model,
)
from grd_offline.rewards.contract import RewardFunction, Steps, check_names, find_kind

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
        with np.errstate(over="ignore", invalid="ignore"):
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
            return check_predicted(std, "spreads")
        return np.full(count, np.nan if self.step_std is None else self.step_std)

    def _check_steps(self, *given: Any) -> Steps:
        """The steps as arrays; without what the reward does not depend on.

        They are given as `predict` takes them, all four.
        """
        observations, actions, later, ended = given
        states, choices = self.observation_names, self.action_names
        batch = StepBatch[Any](
            read_columns("observations", observations, states),
            read_columns("actions", actions, choices),
            None if later is None else read_columns("next_observations", later, states),
            None if ended is None else np.asarray(ended),
        ).as_numbers(len(states), len(choices), None)
        needs_next, needs_termination = self.needs_next_observations, self.needs_termination
        batch.check_given(next_observations=needs_next, terminations=needs_termination)
        later = batch.next_observations if needs_next else None
        ended = batch.terminations if needs_termination else None
        flags = None if ended is None else as_flags(ended, "terminations")
        return StepBatch(batch.observations, batch.actions, later, flags)

    def torch(self) -> torch.nn.Module:
        """Return the model as a module with gradients. It has the arguments of `predict`.

        (..., state), (..., action), (..., state) or None, (...,) or None -> (...)

        A copy: it may be moved to any device and compiled, and the model stays as it is.
        """
        from grd_offline.rewards.modules import RewardModule

        return RewardModule(self.function)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the folder in full or not at all."""
        write_model(folder, self._config(), self.function.tensors(), _write_card(self))

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> RewardModel:
        """Load a saved model from its folder, or from the decomposition that contains
        `reward_model/`."""
        return read_settled(find_model(folder, REWARD_FOLDER), cls._read)

    @classmethod
    def _read(cls, path: Path) -> RewardModel:
        config = read_config(path / CONFIG, FORMAT, VERSION)
        for field in ("function", "about"):
            if not isinstance(config.get(field), dict):
                raise DataError("expected an object", file=path / CONFIG, field=field)
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
        if not isinstance(columns := config.get("label_columns", {}), dict):
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


def check_predicted(values: Array, what: str = "rewards") -> Array:
    """Refuse rewards, or their standard deviations, that only a damaged model gives."""
    if not np.isfinite(values).all():
        raise DataError(f"the model gives {what} that are nan or infinite: it is damaged")
    return values


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


_DATA = {
    "data": "file",
    "environment": "environment",
    "episodes": "episodes",
    "steps": "steps",
    "member": "member of an online training run",
    "step": "environment steps of training until then",
}
_FIT = {
    "method": "method",
    "fit": "fit",
    "discount": "discount inside a return",
    "grd_offline": "version of grd-offline",
}
_QUALITY = {
    "held_out_return_r2": "R² on the returns of episodes held out",
    "held_out_return_coverage_90": "share of those returns inside their 90 % interval",
    "held_out_returns": "returns held out",
    "verdict": "verdict",
    "mean_return": "true return of the policy trained with it, mean of an evaluation",
    "correlation_last_episode": "correlation with the true reward over the last training episode",
}


def _write_card(model: RewardModel) -> str:
    """The card as Markdown; entries of `about` that are not known here appear under their name."""
    about, function = model.about or {}, model.function
    states, actions = model.observation_names, model.action_names
    parents = [*compress(states, model.state_mask), *compress(actions, model.action_mask)]
    if function.needs_termination:
        parents.append("terminated")
    knows_std = function.knows_std or model.step_std is not None
    wide = len(states), len(actions)
    unit = f"\n\n{fill(function.outcome.unit, 88)}" if function.outcome.unit else ""
    other = {name: name for name in about if name not in {*_DATA, *_FIT, *_QUALITY}}
    return f"""# Reward model

The reward of a step, learned from returns of whole episodes by grd-offline:
{function.description}.{unit}

## Use

```python
from grd_offline import RewardModel

{_write_usage(function, knows_std)}
```

Observations are (N, {wide[0]}), actions (N, {wide[1]}), both in the units of the data; discrete
actions are one-hot.{_TERMINATIONS if function.needs_termination else ""}
`model.compact_mask` says which dimensions a policy needs.

| | |
|---|---|
| observations | {_listed(states)} |
| actions | {_listed(actions)} |
| the reward is a function of | {_describe_inputs(function)} |
| the reward depends on | {_listed(parents) or "nothing: it is the same everywhere"} |
| the compact state | {_listed(compress(states, model.compact_mask)) or "nothing"} |

## What it was learned from

{_table(about, _DATA)}

## How it was fitted

{_ONLINE if "member" in about else ""}{_table(about, _FIT | other)}

## How good it is

{_table(about, _QUALITY)}
{_write_bands(function, knows_std)}
A high R² on returns proves nothing per step: rewards are known only up to what cancels over an
episode. Adding h(next state) - h(state) changes every step and no return. Far from the data,
{function.far_from_data}.
"""


def _describe_inputs(function: RewardFunction) -> str:
    """Describe the inputs of the reward in words."""
    ended = ", and whether the episode terminated at this step" * function.needs_termination
    if function.at_midpoint:
        return f"R(s, a, s'), at the midpoint (s + s')/2 of each transition{ended}"
    if function.needs_next:
        return f"R(s, a, s'): state, action and next state{ended}"
    return f"R(s, a): state and action{ended}"


def _write_bands(function: RewardFunction, knows_std: bool) -> str:
    """Write the conditions of the standard deviation of a step."""
    if not knows_std:
        return ""
    bands = describe_bands(function.outcome, function.knows_std)
    kind = function.outcome.singular
    said = f"The interval of a {kind} says nothing about single steps. {bands}"
    return f"\n{fill(said, 98)}\n"


def _write_usage(function: RewardFunction, knows_std: bool) -> str:
    """Lines of Python that use the model."""
    steps = "observations, actions"
    if function.needs_next:
        steps += ", next_observations"
    if function.needs_termination:
        steps += ", terminations" if function.needs_next else ", terminations=terminations"
    spread = f"spread = model.uncertainty({steps})"
    usage = [
        ('model = RewardModel.load("this folder")', ""),
        (f"rewards = model.predict({steps})", "(N,)"),
        (spread, "(N,) standard deviation" if knows_std else "(N,) nan: not known of this model"),
        ("module = model.torch()", "a torch module with gradients"),
    ]
    return "\n".join(f"{line:{len(spread)}}  # {what}" if what else line for line, what in usage)


_TERMINATIONS = """ Terminations are (N,), True where the episode terminated at
that step, False everywhere else, also where it was truncated."""
_ONLINE = """By `grd-offline train-online`, from the returns of a policy's own episodes while it
was trained. Every setting is in `settings.json` of the run, three folders up.

"""


def _listed(names: Iterable[str]) -> str:
    return ", ".join(as_plain(name) for name in names)


def _table(about: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    told = {label: about[name] for name, label in labels.items() if about.get(name) is not None}
    rows = [f"| {as_plain(label)} | {_told(value)} |" for label, value in told.items()]
    return "\n".join(["| | |", "|---|---|", *rows]) if rows else "Nothing more is known."


def _told(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return as_plain(value)


_SHOWN = 20


def read_columns(field: str, values: ArrayLike, names: Sequence[str]) -> NDArray[Any]:
    """(step, input) numbers from an array or a data frame; DataError says what was expected.

    Where there is one input, (step,) numbers will do. A data frame may have its columns in any
    order. A column of labels, such as weather, gives all of its inputs, such as weather=rain.
    """
    if (columns := getattr(values, "columns", None)) is not None:
        return _select(field, values, [str(name) for name in columns], names)
    array = np.asarray(values)
    if array.dtype.kind not in "fiub":
        raise DataError(f"expected numbers, got {array.dtype}; {_list(names)}", field=field)
    if array.ndim == 1 and len(names) == 1:
        return array[:, None]
    if array.ndim != 2 or array.shape[1] != len(names):
        expected = f"expected shape (N, {len(names)}), got {array.shape}; {_list(names)}"
        raise DataError(expected, field=field)
    return array


def _select(field: str, frame: Any, given: Sequence[str], names: Sequence[str]) -> NDArray[Any]:
    """Columns of a data frame in the order of the names."""
    found = []
    for name in names:
        if name in given:
            try:
                found.append(np.asarray(frame[name], np.float64))
            except (TypeError, ValueError):
                raise DataError(f"column {name}: expected numbers", field=field) from None
        elif isinstance(name, LabelName) and name.column in given:
            found.append(_mark_label(field, frame[name.column], name, names))
        else:
            reason = f"there is no column {name!r}; {_list(names)}; got: {_join(given)}"
            raise DataError(reason, field=field)
    return np.stack(found, 1) if found else np.zeros((len(frame), 0))


def _mark_label(field: str, column: Any, name: LabelName, names: Sequence[str]) -> Array:
    """1 where a column has this label, and 0 where it has another label that the model knows."""
    texts = np.asarray([_name(value) for value in np.asarray(column)], object)
    labels = [other for other in names if isinstance(other, LabelName)]
    known = [other.label for other in labels if other.column == name.column]
    if strange := [text for text in texts if text not in known]:
        said = f"{strange[0]!r} is not among the known categories: {_join(known)}"
        raise DataError(f"column {name.column}: {said}", field=field)
    return np.asarray(texts == name.label, np.float64)


def _name(value: Any) -> str:
    """A label as text: 3 for 3.0."""
    is_whole = isinstance(value, float | np.floating) and float(value).is_integer()
    return str(int(value)) if is_whole else str(value)


def _list(names: Sequence[str]) -> str:
    return f"the model expects the columns: {_join(names)}" if names else "the model expects none"


def _join(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


MOST_BARS = 8


def show_result(headline: str, shares: Sequence[tuple[str, float]], note: str) -> str:
    """A result as HTML: one sentence, the bars, and one more sentence.

    Bars that should not be relied on are folded up.
    """
    bars = "<p>Nothing was found to drive the reward.</p>"
    if shares:
        rows = "".join(_draw_bar(name, share) for name, share in shares[:MOST_BARS])
        bars = f"<table><caption>Share of the reward's variation</caption>{rows}</table>"
    if len(shares) > MOST_BARS:
        bars += f"<p>and {len(shares) - MOST_BARS} more</p>"
    if headline.startswith(DO_NOT_RELY):
        bars = f"<details><summary>Show what drives these rewards</summary>{bars}</details>"
    return f"<div><p><b>{escape(headline)}</b></p>{bars}<p>{escape(note)}</p></div>"


def _draw_bar(name: str, share: float) -> str:
    width = 200 * min(max(share, 0.0), 1.0)
    bar = f"<rect width='{width:.1f}' height='12' fill='#0b6e99'/>"
    return (
        f"<tr><td style='text-align:left'>{escape(name)}</td>"
        f"<td><svg width='200' height='12' role='img'>{bar}</svg></td>"
        f"<td>{format_share(share)}</td></tr>"
    )
