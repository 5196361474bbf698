"""One dataset as it is stored, in any layout. Nothing is converted, so nothing is lost.

A `Recording` is what a layout's reader gives and a layout's writer takes. Its episodes are
`Record`s with the dtypes of the file. `as_episodes` gives the view that fits use, and
`as_recording` makes a recording of episodes that are in memory.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from grd_offline.core.episodes import EpisodeSet
from grd_offline.core.provenance import EPISODE, ROW, STEP, Provenance
from grd_offline.core.typing import AnyArray

if TYPE_CHECKING:
    from grd_offline.io.formats.guard import SafeGroup

Leaves = dict[str, AnyArray]
"""The arrays of a possibly nested space by path: {"": array} for a plain one, {"position": ...,
"arm/angle": ...} for a Dict, {"_index_0": ...} for a Tuple (Minari's names)."""


class LazyLeaves(Mapping[str, AnyArray]):
    """Arrays by path that are read from the file when they are asked for, and then kept."""

    def __init__(self, readers: Mapping[str, Callable[[], AnyArray]]) -> None:
        self._readers = dict(readers)
        self._arrays: Leaves = {}
        self.located: Callable[[], AbstractContextManager[None]] = nullcontext
        """Says, in errors of reading, in which file and episode they arose."""

    def __getitem__(self, path: str) -> AnyArray:
        if path not in self._arrays:
            read = self._readers[path]
            with self.located():
                self._arrays[path] = read()
        return self._arrays[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._readers)

    def __len__(self) -> int:
        return len(self._readers)


@dataclass(frozen=True)
class Leaf:
    """One array of an observation or action, without its leading time axis."""

    path: str
    shape: tuple[int, ...]
    dtype: str
    categories: tuple[int, ...] | None = None
    """Number of choices of each entry where entries are discrete choices: read as one-hot."""
    starts: tuple[int, ...] = ()
    """The smallest choice of each entry; 0 where not given."""

    def __post_init__(self) -> None:
        entries = math.prod(self.shape)
        if self.categories is not None and len(self.categories) != entries:
            raise ValueError(f"{len(self.categories)} numbers of choices for {entries} entries")
        if self.categories is not None and not self.starts:
            object.__setattr__(self, "starts", (0,) * entries)
        if self.categories is not None and len(self.starts) != entries:
            raise ValueError(f"{len(self.starts)} smallest choices for {entries} entries")

    @property
    def size(self) -> int:
        """Number of columns this leaf fills in the flat array."""
        return math.prod(self.shape) if self.categories is None else sum(self.categories)


@dataclass(frozen=True)
class Header:
    """Facts about a whole dataset."""

    observation_leaves: tuple[Leaf, ...]
    action_leaves: tuple[Leaf, ...]
    observation_names: tuple[str, ...] | None = None
    """One name per flat column, None where the source has none."""
    action_names: tuple[str, ...] | None = None
    environment: str | None = None
    delay: int | str | None = None
    """When rewards are delivered: "end", "step", or every K steps; None where it is not said."""
    discount: float = 1.0
    """Delivered sums are sum_t discount^t r_t, t counted from the episode's start."""
    provenance: Provenance | None = None
    """The table that the data came from."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings that the data were made with, as plain JSON values."""
    truth: Mapping[str, Any] = field(default_factory=dict)
    """Facts about the true model, such as its masks, as plain JSON. No fit reads them."""
    source: Mapping[str, Any] = field(default_factory=dict)
    """Metadata of the file this came from, passed on unread: plain JSON."""

    @property
    def leaves(self) -> dict[str, tuple[Leaf, ...]]:
        """The leaves of both fields by the name of the field."""
        return {"observations": self.observation_leaves, "actions": self.action_leaves}


@dataclass(frozen=True, eq=False)
class Record:
    """One episode as it is stored."""

    observations: Leaves
    actions: Leaves
    rewards: AnyArray
    terminations: AnyArray
    truncations: AnyArray
    extras: Mapping[str, AnyArray] = field(default_factory=dict)
    """Further arrays with one row per step (or one more) by path, such as "true_rewards"."""
    attributes: Mapping[str, int | float | str] = field(default_factory=dict)
    """Further scalars, such as the episode's seed."""


@dataclass(frozen=True, eq=False)
class Recording:
    """A dataset that is open for reading."""

    layout: str
    header: Header
    lengths: NDArray[np.int64]
    load: Callable[[int], Record]
    load_rewards: Callable[[int], AnyArray]
    """The rewards of an episode alone, which is much quicker."""
    warnings: list[str] = field(default_factory=list)
    """Warnings about odd things that were used anyway. Loading an episode may add to them."""
    close: Callable[[], None] = lambda: None

    def warn(self, text: str) -> None:
        """Add a warning, if it is not there yet."""
        if text not in self.warnings:
            self.warnings.append(text)

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[Record]:
        return (self.load(index) for index in range(len(self)))

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


MEMORY = "memory"
DELIVERED = "delivered"
OBSERVED, STD = "observed_rewards", "reward_std"
"""Fields that a decomposition adds: the rewards as they were delivered, and the standard deviation
of the new rewards."""


def as_recording(episodes: EpisodeSet) -> Recording:
    """The recording of a set of episodes. Discrete actions are stored as numbers again."""
    states, actions = episodes.state_size, episodes.action_size
    choice = episodes.discrete_actions and actions > 0 and _has_one_choice(episodes)
    header = Header(
        observation_leaves=(Leaf("", (states,), "float32"),),
        action_leaves=(
            Leaf("", (), "int64", (actions,)) if choice else Leaf("", (actions,), "float32"),
        ),
        observation_names=tuple(episodes.observation_names),
        action_names=tuple(episodes.action_names),
        environment=episodes.environment,
        delay=_find_delay(episodes),
        provenance=episodes.provenance,
    )

    def load(index: int) -> Record:
        episode = episodes[index]
        extras = {DELIVERED: episode.delivered, STEP: episode.steps, ROW: episode.origin.rows}
        return Record(
            observations={"": episode.observations},
            actions={"": episode.actions.argmax(axis=1) if choice else episode.actions},
            rewards=episode.rewards,
            terminations=episode.terminations,
            truncations=episode.truncations,
            extras={name: array for name, array in extras.items() if array is not None},
            attributes={} if episode.label is None else {EPISODE: episode.label},
        )

    return Recording(
        MEMORY, header, episodes.lengths, load, lambda index: np.asarray(episodes[index].rewards)
    )


def _has_one_choice(episodes: EpisodeSet) -> bool:
    """Whether actions are the one-hot code of one choice, not of several side by side."""
    actions = episodes[0].actions
    return bool((actions.sum(axis=1) == 1).all() and ((actions == 0) | (actions == 1)).all())


def _find_delay(episodes: EpisodeSet) -> int | str:
    """When rewards are delivered; `delivered` of each record says it exactly."""
    return "step" if all(episode.delivered.all() for episode in episodes) else "end"


class OpenFile(NamedTuple):
    """A file that is open for reading."""

    root: SafeGroup
    """The contents, behind the guard for files of unknown origin."""
    path: Path
    max_episode_steps: int | None
    """Truncate episodes after this number of steps where the file holds no timeouts."""


class NewFile(NamedTuple):
    """The contents of a file that a layout writes."""

    path: str | os.PathLike[str]
    header: Header
    records: Iterable[Record]
    """The episodes, which are written while they come."""
    lengths: NDArray[np.int64]
    """(episode,) the number of steps. It is empty for layouts that do not need it."""
