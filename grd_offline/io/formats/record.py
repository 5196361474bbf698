"""One dataset as it is stored, in any layout. Nothing is converted, so nothing is lost.

A `Recording` is what a layout's reader gives and a layout's writer takes. Its episodes are
`Record`s with the dtypes of the file, and observations and actions may be nested. `flatten` gives
them as one float32 array with a name per column, `as_episodes` the view that fits use, and
`as_recording` makes a recording of episodes that are in memory.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from grd_offline.core.episodes import (
    EPISODE,
    LARGEST,
    ROW,
    STEP,
    EpisodeSet,
    LabelName,
    Provenance,
    check_finite,
    list_label_columns,
    read_names,
)
from grd_offline.core.errors import DataError, clean_text
from grd_offline.core.typing import AnyArray, SingleArray
from grd_offline.io.formats.guard import DEPTH, SafeDataset, SafeGroup

_TABLE = "table"
"""What the settings in a file have the provenance under."""
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

    @classmethod
    def find(cls, path: str, dataset: SafeDataset, field: str, name: str | None = None) -> Leaf:
        """The leaf that a dataset holds, from its shape and type alone; errors are about `name`."""
        _refuse_number(dataset, name or field)
        return cls(path, dataset.shape[1:], dataset.dtype.newbyteorder("=").name).check(field)

    def check(self, field: str) -> Leaf:
        """Refuse what is no vector: images above all. Only actions may have no columns."""
        if len(self.shape) >= 3 or (len(self.shape) == 2 and self.dtype == "uint8"):
            raise DataError(
                f"images of shape {self.shape} are not supported, only vectors of numbers: put "
                "embeddings of them in their place",
                field=self.name_in(field),
            )
        if self.size == 0 and field != "actions":
            reason = f"is empty: shape {self.shape} per step"
            raise DataError(reason, field=self.name_in(field))
        return self

    def read(self, dataset: SafeDataset, field: str, name: str | None = None) -> AnyArray:
        """The rows of an episode; their shape must be what the dataset's first episode said."""
        _refuse_number(dataset, name or field)
        rows = dataset.read()
        if rows.shape[1:] != self.shape:
            reason = f"expected shape {self.shape} per step, got {rows.shape[1:]}"
            raise DataError(reason, field=self.name_in(field))
        return rows

    def as_choice(self, blocks: Iterable[AnyArray]) -> Leaf:
        """An action of one small whole number is a discrete choice: how many, the data say.

        For layouts that do not store the action space.
        """
        if math.prod(self.shape) != 1 or np.dtype(self.dtype).kind not in "iu":
            return self
        largest = -1
        for block in blocks:
            if block.size and (block.min() < 0 or block.max() >= MAX_CHOICES):
                return self
            largest = max(largest, int(block.max(initial=-1)))
        return replace(self, categories=(largest + 1,), starts=(0,)) if largest >= 0 else self

    def name_in(self, field: str) -> str:
        """Its name in errors."""
        return f"{field}/{self.path}" if self.path else field


def _refuse_number(dataset: SafeDataset, field: str) -> None:
    if not dataset.shape:
        raise DataError("expected one row per step, got a single number", field=field)


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

    def check(self) -> Header:
        """Refuse leaves that are no vectors."""
        for name, leaves in self.leaves.items():
            for leaf in leaves:
                leaf.check(name)
        return self

    def to_texts(self) -> dict[str, str]:
        """The header as a few texts: plain where it is one, JSON otherwise."""
        names = {"observation_names": self.observation_names, "action_names": self.action_names}
        columns = {field: list_label_columns(known or ()) for field, known in names.items()}
        table = {_TABLE: self.provenance.to_json()} if self.provenance else {}
        values = {
            "environment": self.environment,
            **names,
            "label_columns": columns if any(columns.values()) else None,
            "observation_leaves": [asdict(leaf) for leaf in self.observation_leaves],
            "action_leaves": [asdict(leaf) for leaf in self.action_leaves],
            "delay": self.delay,
            "discount": self.discount,
            "settings": {**self.settings, **table},
            "truth": dict(self.truth),
            "source": dict(self.source),
        }
        return {
            name: value if isinstance(value, str) else json.dumps(value, sort_keys=True)
            for name, value in values.items()
            if value not in (None, {})
        }

    @classmethod
    def from_texts(cls, texts: Mapping[str, Any]) -> Header:
        """The header that `to_texts` took apart."""

        def parse(field: str) -> dict[str, Any]:
            return dict(json.loads(texts.get(field) or "{}"))

        def parse_names(field: str) -> tuple[str, ...] | None:
            if texts.get(field) is None:
                return None
            names = [clean_text(str(name)) for name in json.loads(texts[field])]
            return read_names(names, parse("label_columns").get(field))

        try:
            environment, delay = texts.get("environment"), texts.get("delay")
            settings, discount = parse("settings"), float(json.loads(texts.get("discount", "1.0")))
            if not 0 < discount <= 1:
                raise ValueError("discount")
            return cls(
                observation_leaves=_parse_leaves(texts["observation_leaves"]),
                action_leaves=_parse_leaves(texts["action_leaves"]),
                observation_names=parse_names("observation_names"),
                action_names=parse_names("action_names"),
                environment=None if environment is None else clean_text(str(environment)),
                delay=delay if delay in (None, "end", "step") else _check_count(json.loads(delay)),
                discount=discount,
                provenance=Provenance.from_json(settings.pop(_TABLE, None)),
                settings=settings,
                truth=parse("truth"),
                source=parse("source"),
            )
        except (
            KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError,
        ) as error:  # fmt: skip
            name = f"{error.args[0]!r} " if isinstance(error, KeyError) else ""
            raise DataError(f"{name}missing or damaged", field="attributes") from error


def _parse_leaves(text: str) -> tuple[Leaf, ...]:
    leaves = tuple(
        Leaf(
            _check_path(clean_text(str(entry["path"]))),
            tuple(_check_count(n, least=0) for n in entry["shape"]),
            _plain_dtype(entry["dtype"]),
            None if (counts := entry["categories"]) is None else tuple(map(_check_count, counts)),
            tuple(_check_start(n) for n in entry["starts"]),
        )
        for entry in json.loads(text)
    )
    if not leaves or len({leaf.path for leaf in leaves}) < len(leaves):
        raise ValueError("leaves")
    return leaves


def _check_count(number: Any, least: int = 1) -> int:
    if not isinstance(number, int) or not least <= number < 2**20:
        raise ValueError(f"{number} entries")
    return number


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
    choice = episodes.discrete_actions and actions > 0 and _has_one_choice(episodes[0].actions)
    header = Header(
        observation_leaves=(Leaf("", (states,), "float32"),),
        action_leaves=(
            Leaf("", (), "int64", (actions,)) if choice else Leaf("", (actions,), "float32"),
        ),
        observation_names=tuple(episodes.observation_names),
        action_names=tuple(episodes.action_names),
        environment=episodes.environment,
        delay="step" if all(episode.delivered.all() for episode in episodes) else "end",
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

    def load_rewards(index: int) -> AnyArray:
        return np.asarray(episodes[index].rewards)

    return Recording(MEMORY, header, episodes.lengths, load, load_rewards)


def _has_one_choice(actions: SingleArray) -> bool:
    """Whether actions are the one-hot code of one choice, not of several side by side."""
    return bool((actions.sum(axis=1) == 1).all() and np.isin(actions, (0, 1)).all())


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


MOST_START = 2**53
MAX_CHOICES = 1000
"""Whole numbers up to here are taken for discrete choices, where the file does not say."""


def flatten(leaves: Sequence[Leaf], arrays: Leaves, field: str) -> SingleArray:
    """All leaves side by side, (time, column); discrete choices become one-hot."""
    columns = []
    for leaf in leaves:
        array, name = arrays[leaf.path], leaf.name_in(field)
        flat = array.reshape(len(array), math.prod(array.shape[1:]))
        if leaf.categories is not None:
            columns.append(_one_hot(leaf, flat, name))
            continue
        with np.errstate(over="ignore"):
            columns.append(flat.astype(np.float32, copy=False))
        check_finite(columns[-1], name, flat, LARGEST)
    for leaf, column in zip(leaves, columns, strict=True):
        if len(column) != len(columns[0]):
            reason = f"expected {len(columns[0])} rows, as in the first part, got {len(column)}"
            raise DataError(reason, field=leaf.name_in(field))
    return columns[0] if len(columns) == 1 else np.concatenate(columns, axis=1)


def _one_hot(leaf: Leaf, flat: AnyArray, field: str) -> SingleArray:
    assert leaf.categories is not None
    codes = []
    for column, (count, start) in enumerate(zip(leaf.categories, leaf.starts, strict=True)):
        choice = flat[:, column].astype(np.float64) - start  # whatever type they are stored in
        wrong = np.flatnonzero((choice < 0) | (choice >= count) | (choice != np.floor(choice)))
        if wrong.size:
            raise DataError(
                f"{flat[wrong[0], column]} at step {wrong[0]}, expected a choice from {start} "
                f"to {start + count - 1}",
                field=field,
            )
        code = np.zeros((len(choice), count), np.float32)
        code[np.arange(len(choice)), choice.astype(np.int64)] = 1.0
        codes.append(code)
    return codes[0] if len(codes) == 1 else np.concatenate(codes, axis=1)


def _plain_dtype(name: Any) -> str:
    """The name of a type of numbers; nothing else that numpy makes of a text is taken."""
    if not isinstance(name, str) or not re.fullmatch(r"[<>=|]?[a-z]{1,8}[0-9]{0,2}", name):
        raise ValueError(f"expected the name of a type of numbers, got {name!r:.40}")
    dtype = np.dtype(name)
    if dtype.kind not in "fiub" or dtype.itemsize > 8:
        raise ValueError(f"expected a type of numbers, got {name}")
    return str(dtype.name)


def column_names(leaves: Sequence[Leaf], prefix: str) -> tuple[str, ...]:
    """A name per flat column where the source gives none: s0, position[2], a=1."""
    names: list[str] = []
    for leaf in leaves:
        entries = [", ".join(map(str, place)) for place in np.ndindex(leaf.shape)]
        for index, entry in enumerate(one.replace(" ", "") for one in entries):
            name = f"{prefix}{entry}"
            if leaf.path:
                name = f"{leaf.path}[{entry}]" if len(entries) > 1 else leaf.path
            if leaf.categories is None:
                names.append(name)
            else:
                start = leaf.starts[index]
                names += [LabelName(name, start + c) for c in range(leaf.categories[index])]
    return tuple(names)


def leaves_from_space(space: str | Mapping[str, Any]) -> tuple[Leaf, ...] | None:
    """The leaves of a space that Minari serialised as JSON; None where it cannot be understood.

    Nothing but the JSON is looked at: no space and no environment is built from a file.
    """
    try:
        parsed = json.loads(space) if isinstance(space, str) else space
        return _leaves_from_space(parsed, "")
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError):
        return None


def _leaves_from_space(space: Mapping[str, Any], path: str) -> tuple[Leaf, ...]:
    kind = space["type"]
    if kind in ("Dict", "Tuple"):
        subspaces = space["subspaces"]
        items = (
            sorted(subspaces.items())
            if kind == "Dict"
            else [(f"_index_{i}", subspace) for i, subspace in enumerate(subspaces)]
        )
        prefix = f"{path}/" if path else ""
        return tuple(
            leaf for name, subspace in items for leaf in _leaves_from_space(subspace, prefix + name)
        )
    if kind == "Box":
        dtype = _plain_dtype(space["dtype"])
        return (Leaf(path, tuple(int(n) for n in space["shape"]), dtype),)
    if kind == "Discrete":
        count, start = _check_count(int(space["n"])), _check_start(space["start"])
        return (Leaf(path, (), "int64", (count,), (start,)),)
    if kind == "MultiDiscrete":
        counts = tuple(_check_count(int(n)) for n in space["nvec"])
        starts = tuple(_check_start(n) for n in space["start"])
        return (Leaf(path, (len(counts),), "int64", counts, starts),)
    if kind == "MultiBinary":
        shape = space["n"] if isinstance(space["n"], list) else [space["n"]]
        return (Leaf(path, tuple(int(n) for n in shape), "int8"),)
    raise ValueError(kind)


def _check_start(number: Any) -> int:
    """The smallest choice, where it is a number that float64 holds exactly."""
    if abs(int(number)) > MOST_START:
        raise ValueError(f"choices from {number}")
    return int(number)


def _check_path(path: str) -> str:
    """The path of a leaf: names that are not empty, and few of them."""
    parts = path.split("/") if path else []
    if len(parts) > DEPTH or not all(parts) or {".", ".."} & set(parts) or "\0" in path:
        raise ValueError(f"path {path!r:.40}")
    return path


def space_from_leaves(leaves: Sequence[Leaf]) -> dict[str, Any]:
    """A space in Minari's JSON that holds these leaves."""
    if len(leaves) == 1 and not leaves[0].path:
        return _space_of(leaves[0])
    names: dict[str, list[Leaf]] = {}
    for leaf in leaves:
        head, _, rest = leaf.path.partition("/")
        names.setdefault(head, []).append(replace(leaf, path=rest))
    subspaces = {name: space_from_leaves(members) for name, members in names.items()}
    if list(subspaces) == [f"_index_{i}" for i in range(len(subspaces))]:
        return {"type": "Tuple", "subspaces": list(subspaces.values())}
    return {"type": "Dict", "subspaces": dict(sorted(subspaces.items()))}


def _space_of(leaf: Leaf) -> dict[str, Any]:
    if leaf.categories is None:
        dtype = np.dtype(leaf.dtype)
        low, high = (-np.inf, np.inf) if dtype.kind == "f" else (0, 1)
        if dtype.kind in "iu":
            low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
        bounds = {
            name: np.full(leaf.shape, b).tolist() for name, b in (("low", low), ("high", high))
        }
        return {"type": "Box", "dtype": leaf.dtype, "shape": list(leaf.shape), **bounds}
    if not leaf.shape:
        start, count = leaf.starts[0], leaf.categories[0]
        return {"type": "Discrete", "dtype": "int64", "start": start, "n": count}
    counts, starts = list(leaf.categories), list(leaf.starts)
    return {"type": "MultiDiscrete", "dtype": "int64", "nvec": counts, "start": starts}
