"""Make episodes from data in memory: data frames and arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grd_offline.core.episodes import Episode, EpisodeSet, Origin, Provenance, attach_preferences
from grd_offline.core.errors import DataError, located
from grd_offline.io.datasets import as_episodes
from grd_offline.io.tables.columns import Embedder, find_library, parse_given

Names = str | Sequence[str] | None


def from_dataframe(
    frame: Any,
    *,
    episode: str | None = None,
    observations: Names = None,
    actions: Names = None,
    rewards: str | None = None,
    returns: Any = None,
    preferences: Any = None,
    step: str | None = None,
    terminated: str | None = None,
    truncated: str | None = None,
    categories: Names = None,
    ignored: Names = None,
    embed: Names | Mapping[str, Embedder] = None,
    environment: str | None = None,
) -> EpisodeSet:
    """Make episodes from a table with one row per step.

    Columns that are not named are found by their names. Texts become one-hot columns.

    Parameters
    ----------
    frame
        A data frame of pandas or polars, an Arrow table, or a mapping from names to arrays.
    episode
        The column that says to which episode a row belongs.
    observations
        Columns of the state. None: what is left.
    actions
        Columns of what was chosen.
    rewards
        A column with a number per step.
    returns
        A column with one number per episode, a mapping or Series from episodes to numbers, or
        another data frame with the column of episodes and one column of numbers.
    preferences
        Are learned from instead: a table with the columns first, second and preferred, which
        compares episodes by their names.
    step
        The column that gives the order of the rows of an episode, by numbers or timestamps.
    terminated, truncated
        Columns that say whether the task ended at a row, or the episode was cut off.
    categories
        Columns of numbers that become one-hot columns.
    ignored
        Columns that are left out.
    embed
        Columns with a list of numbers in each row, or by which function of yours the cells of a
        column become such lists: `embed={"photo": encode}`.
    environment
        The id of the environment that the episodes are of.

    Returns
    -------
    EpisodeSet
        The episodes.

    Examples
    --------
    >>> table = {"trip": [1, 1, 2, 2], "speed": [3.0, 4.0, 5.0, 6.0], "fuel": [7, 7, 11, 11]}
    >>> from_dataframe(table, episode="trip", returns="fuel")
    EpisodeSet(2 episodes, 4 steps, 1 states, 0 actions)
    """
    from grd_offline.io.tables.build import open_source, read_preferences
    from grd_offline.io.tables.sources import open_frame

    returns = _as_column(returns, frame)
    is_name = returns is None or isinstance(returns, str)
    outcomes = None if is_name else _as_mapping(returns, episode)
    embedders = embed if isinstance(embed, Mapping) else {}
    if callable(embed) or not all(map(callable, embedders.values())):
        raise DataError("embed: expected names of columns, or a mapping from names to functions")
    roles: dict[str, Names] = {
        "episode": episode,
        "observations": observations,
        "actions": actions,
        "rewards": rewards,
        "returns": returns if is_name else None,
        "step": step,
        "terminated": terminated,
        "truncated": truncated,
        "categories": categories,
        "ignored": ignored,
        "embed": list(embed) if isinstance(embed, Mapping) else embed,
    }
    given = parse_given({role: names for role, names in roles.items() if names is not None})
    source, needed = open_frame(frame, raw=embedders), preferences is None
    opened = open_source(source, given, outcomes, embedders=embedders, needs_outcome=needed)
    episodes = as_episodes(opened, "the table")
    _refuse_rows(returns, frame, episodes)
    provenance = replace(episodes.provenance or Provenance(), library=find_library(frame) or "")
    episodes = replace(episodes, environment=environment, provenance=provenance)
    if preferences is None:
        return episodes
    return attach_preferences(episodes, read_preferences(preferences, episodes))


def _as_column(returns: Any, frame: Any) -> Any:
    """The name of the column of the table that `returns` is: `frame["fuel"]` means "fuel"."""
    name = getattr(returns, "name", None)
    if find_library(returns) is None or hasattr(returns, "columns"):
        return returns
    is_one = name in getattr(frame, "columns", ()) and returns.equals(frame[name])
    return name if is_one else returns


def _refuse_rows(returns: Any, frame: Any, episodes: EpisodeSet) -> None:
    """Refuse outcomes with the row labels of a table whose episodes have several rows."""
    labels, rows = getattr(returns, "index", None), getattr(frame, "index", None)
    is_alike = find_library(returns) == "pandas" and rows is not None and rows.equals(labels)
    if is_alike and len(episodes) < episodes.total_steps:
        raise DataError(
            "returns: has a number per row of the table, expected one per episode: make it a "
            "column, and give the name of this column"
        )


def _as_mapping(returns: Any, episode: str | None) -> Mapping[Any, float]:
    """Outcomes by episode from a mapping, a data frame, a Series with an index, or pairs."""
    if isinstance(returns, Mapping):
        return returns
    if find_library(returns) is not None and hasattr(returns, "columns"):
        return _read_frame(returns, episode)
    if hasattr(returns, "items"):
        return dict(returns.items())
    try:
        return dict(returns)
    except (TypeError, ValueError):
        raise DataError(
            "returns: expected the name of a column, a mapping or Series from episodes to numbers, "
            "or a data frame with a column of episodes and one of numbers, got "
            f"{type(returns).__name__}"
        ) from None


def _read_frame(frame: Any, episode: str | None) -> Mapping[Any, float]:
    """Outcomes from a data frame. Its episodes may be the index, as after `groupby`."""
    from grd_offline.io.tables.build import gather_outcomes
    from grd_offline.io.tables.sources import open_frame

    if getattr(getattr(frame, "index", None), "name", None) is not None:
        frame = frame.reset_index()
    with located(file="returns"):
        return gather_outcomes(open_frame(frame), episode)


def from_arrays(
    observations: ArrayLike | Sequence[ArrayLike],
    actions: ArrayLike | Sequence[ArrayLike] | None = None,
    *,
    rewards: ArrayLike | Sequence[ArrayLike] | None = None,
    returns: ArrayLike | None = None,
    episode: ArrayLike | None = None,
    terminated: ArrayLike | None = None,
    observation_names: Sequence[str] | None = None,
    action_names: Sequence[str] | None = None,
    environment: str | None = None,
) -> EpisodeSet:
    """Make episodes from arrays.

    Each argument is a sequence with one array per episode, or, with `episode`, a flat array over
    all rows.

    Parameters
    ----------
    observations
        (T, state) or (T + 1, state) of each episode.
    actions
        (T, action), or (T,) whole numbers for choices.
    rewards
        (T,) one outcome per step.
    returns
        One outcome per episode.
    episode
        The name of each row's episode.
    terminated
        Whether the task ended at the last step of each episode.
    observation_names, action_names
        Names of the dimensions.
    environment
        The id of the environment that the episodes are of.

    Returns
    -------
    EpisodeSet
        The episodes.

    Examples
    --------
    >>> states = [[[0.0], [1.0]], [[2.0], [3.0], [4.0]]]
    >>> from_arrays(states, returns=[1.0, 9.0])
    EpisodeSet(2 episodes, 5 steps, 1 states, 0 actions)
    """
    if (rewards is None) == (returns is None):
        raise DataError("expected either rewards (one per step) or returns (one per episode)")
    fields = {"observations": observations, "actions": actions, "rewards": rewards}
    flat: dict[str, Any] = {field: one for field, one in fields.items() if one is not None}
    if episode is None:
        names, parts = None, {field: list(map(np.asarray, one)) for field, one in flat.items()}
    else:
        names, rows = _find_rows(np.asarray(episode))
        parts = {field: _cut(one, rows, field) for field, one in flat.items()}
    if returns is not None:
        parts["returns"] = list(np.asarray(returns, np.float64).reshape(-1))
    if terminated is not None:
        parts["terminated"] = list(np.asarray(terminated).reshape(-1))
    count = len(parts["observations"])
    for field, given in parts.items():
        if len(given) != count:
            raise DataError(f"{len(given)} for {count} episodes", field=field)
    choices = _count_choices(parts.get("actions"))
    episodes = []
    for index in range(count):
        part = {field: values[index] for field, values in parts.items()}
        with located(episode=index):
            episodes.append(_make_episode(part, choices, names and names[index]))
    found = EpisodeSet.from_episodes(
        episodes,
        observation_names=observation_names,
        action_names=action_names,
        discrete_actions=choices is not None,
        environment=environment,
    )
    return replace(found, provenance=Provenance())


def _make_episode(part: dict[str, Any], choices: int | None, label: Any) -> Episode:
    action, reward = part.get("actions"), part.get("rewards")
    steps = len(next(one for one in (action, reward, part["observations"]) if one is not None))
    last = np.arange(steps) == steps - 1
    if reward is not None:
        delivered = np.ones(steps, np.bool_)
    else:
        outcome, delivered = float(part["returns"]), last
        if not np.isfinite(outcome):
            raise DataError(f"{outcome}, expected a number", field="returns")
        reward = np.where(last, outcome, 0.0)
    terminated = bool(part.get("terminated", False))
    return Episode(
        observations=part["observations"],
        actions=_as_actions(action, steps, choices),
        rewards=reward,
        terminations=last & terminated,
        truncations=last & (not terminated),
        delivered=delivered,
        origin=Origin(label),
    )


def _find_rows(labels: NDArray[Any]) -> tuple[list[Any], list[NDArray[np.int64]]]:
    """The episodes in the order of their first rows, and the rows of each."""
    distinct, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    rows = np.split(np.argsort(inverse, kind="stable"), np.cumsum(np.bincount(inverse))[:-1])
    return [distinct[k].item() for k in order], [rows[k] for k in order]


def _cut(values: Any, rows: Sequence[NDArray[np.int64]], field: str) -> list[NDArray[Any]]:
    array = np.asarray(values)
    expected = sum(len(part) for part in rows)
    if array.ndim == 0 or len(array) != expected:
        raise DataError(f"expected {expected} rows, got shape {array.shape}", field=field)
    return [array[part] for part in rows]


def _count_choices(actions: Sequence[NDArray[Any]] | None) -> int | None:
    """Count the choices if actions are whole numbers (T,)."""
    if actions is None or not all(one.ndim == 1 and one.dtype.kind in "iub" for one in actions):
        return None
    return 1 + max(int(one.max(initial=0)) for one in actions)


def _as_actions(action: NDArray[Any] | None, steps: int, choices: int | None) -> NDArray[Any]:
    if action is None:
        return np.zeros((steps, 0), np.float32)
    if choices is not None:
        if action.size and int(action.min()) < 0:
            raise DataError("choices are whole numbers from 0", field="actions")
        return np.eye(choices, dtype=np.float32)[action.astype(np.int64)]
    return action[:, None] if action.ndim == 1 else action
