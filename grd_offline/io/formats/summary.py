"""Summarise a dataset and find oddities, in one pass over its episodes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from grd_offline.core.episodes import EpisodeSet, check_rewards, shorten
from grd_offline.core.errors import DataError
from grd_offline.core.typing import SingleArray
from grd_offline.io.datasets import Recording, as_episode, as_episodes, find_delay, locate
from grd_offline.io.tables.results import find_columns

CONVENTION = {
    True: "step t takes actions[t] in observations[t] and leads to observations[t + 1]; "
    "T + 1 observations for T actions",
    False: "step t takes actions[t] in observations[t]; T observations for T actions, "
    "the one after the last action is not in the file",
}


class ValueSummary(NamedTuple):
    """Four numbers that summarise some values, or four arrays for those of several columns."""

    min: Any
    mean: Any
    max: Any
    std: Any


def measure(values: NDArray[Any]) -> ValueSummary:
    """Extremes, mean and standard deviation of finite numbers of any size."""
    low, high = float(values.min()), float(values.max())
    size = max(abs(low), abs(high))
    with np.errstate(invalid="ignore", over="ignore"):
        if size == 0 or 1e-150 < size < 1e150:
            return ValueSummary(low, float(values.mean()), high, float(values.std()))
        scaled = values / size  # the squares of others leave the range of float64
        return ValueSummary(low, float(scaled.mean()) * size, high, float(scaled.std()) * size)


@dataclass(frozen=True)
class Summary:
    """The result of `summarise`."""

    layout: str
    episodes: EpisodeSet
    delay: int | str
    returns: NDArray[np.float64]
    deliveries: int
    terminated: int
    truncated: int
    has_final_observations: bool
    values: ValueSummary
    """(state + action,) of each dimension."""
    extras: tuple[str, ...]
    warnings: tuple[str, ...]
    columns: str | None = None
    """For tables: the role of each column, in the form of `--columns`."""

    @property
    def convention(self) -> str:
        """Describe in words how observations, actions and rewards are aligned."""
        return CONVENTION[self.has_final_observations]

    @property
    def delivery(self) -> str:
        """When rewards arrive, in words."""
        if self.delay == "end":
            return "one per episode, at its end"
        return "one per step" if self.delay == "step" else f"one every {self.delay} steps"


def summarise(
    recording: Recording,
    path: str | os.PathLike[str],
    *,
    on_episode: Callable[[int], None] = lambda steps: None,
) -> Summary:
    """Read every episode once, checking it on the way; memory does not grow with the data."""
    episodes = as_episodes(recording, path)
    delay = find_delay(recording)
    moments = _Moments(episodes.state_size + episodes.action_size)
    returns = np.empty(len(episodes))
    deliveries = terminated = truncated = finals = 0
    extras: set[str] = set()
    seen, twins, refused = dict[bytes, int](), list[tuple[int, int]](), list[str]()
    for index in range(len(episodes)):
        record = recording.load(index)
        with locate(path, index):
            episode = as_episode(record, recording.header, delay, any_size=True)
        try:
            check_rewards(record.rewards)
        except DataError as error:  # so would every method
            refused.append(str(error.at(episode=index)))
        rows = np.concatenate([episode.observations[: len(episode)], episode.actions], axis=1)
        moments.add(rows)
        with np.errstate(over="ignore", invalid="ignore"):  # it may leave the range of float64
            returns[index] = episode.compute_return()
        deliveries += int(episode.delivered.sum())
        terminated += bool(episode.terminations[-1])
        truncated += bool(episode.truncations[-1] and not episode.terminations[-1])
        finals += episode.has_final_observation
        extras |= set(record.extras)
        fingerprint = hashlib.blake2b(np.ascontiguousarray(rows).data, digest_size=16).digest()
        first = seen.setdefault(fingerprint, index)
        if first != index:
            twins.append((first, index))
        on_episode(len(episode))
    values = moments.compute()
    warnings = [*recording.warnings, *_find_oddities(episodes, values, returns, twins, finals)]
    if refused:
        more = f", and {len(refused) - 1} more episodes" if len(refused) > 1 else ""
        warnings.append(f"no method can compute with these rewards: {refused[0]}{more}")
    unfinished = len(episodes) - terminated - truncated
    if unfinished and not any("unfinished" in warning for warning in warnings):
        reason = "end with neither termination nor truncation: kept as unfinished"
        warnings.append(f"{unfinished} episodes {reason}")
    return Summary(
        layout=recording.layout,
        episodes=episodes,
        delay=delay,
        returns=returns,
        deliveries=deliveries,
        terminated=terminated,
        truncated=truncated,
        has_final_observations=finals == len(episodes),
        values=values,
        extras=tuple(sorted(extras)),
        warnings=tuple(warnings),
        columns=find_columns(recording),
    )


class _Moments:
    """Extremes, mean and standard deviation of columns, from one block of rows after another.

    Sums are of differences to the first row: exact for constants, steady for large offsets.
    """

    def __init__(self, size: int) -> None:
        self._minimum, self._maximum = np.full(size, np.inf), np.full(size, -np.inf)
        self._origin: NDArray[np.float64] | None = None
        self._sums, self._squares = np.zeros(size), np.zeros(size)
        self._count = 0

    def add(self, rows: SingleArray) -> None:
        """Take in a block of rows."""
        if self._origin is None:
            self._origin = rows[0].astype(np.float64)
        np.minimum(self._minimum, rows.min(axis=0), out=self._minimum)
        np.maximum(self._maximum, rows.max(axis=0), out=self._maximum)
        shifted = rows - self._origin
        self._sums += shifted.sum(axis=0)
        self._squares += np.einsum("ij,ij->j", shifted, shifted)
        self._count += len(rows)

    def compute(self) -> ValueSummary:
        """The summary of each column."""
        assert self._origin is not None
        mean = self._sums / self._count
        deviation = np.sqrt(np.maximum(self._squares / self._count - mean**2, 0))
        return ValueSummary(self._minimum, mean + self._origin, self._maximum, deviation)


def _find_oddities(
    episodes: EpisodeSet,
    values: ValueSummary,
    returns: NDArray[np.float64],
    twins: list[tuple[int, int]],
    finals: int,
) -> list[str]:
    warnings = []
    names = episodes.observation_names + episodes.action_names
    constant = [names[i] for i in np.flatnonzero(values.min == values.max)]
    if constant:
        plural = "dimensions are" if len(constant) > 1 else "dimension is"
        warnings.append(
            f"{len(constant)} {plural} constant, and can explain nothing: {shorten(constant, 5)}"
        )
    if twins:
        pairs = [f"{a} and {b}" for a, b in twins]
        warnings.append(
            f"{len(twins)} episodes repeat an earlier one, all kept: {shorten(pairs, 5)}"
        )
    if len(returns) > 1 and returns.min() == returns.max() and np.isfinite(returns[0]):
        warnings.append(f"every episode has the same return, {returns[0]:g}: nothing to learn from")
    if 0 < finals < len(episodes):
        warnings.append(
            f"{len(episodes) - finals} episodes lack the observation after the last action"
        )
    return warnings
