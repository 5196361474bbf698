"""D4RL's flat layout: all steps below one another, cut into episodes by two flags.

Also read: d3rlpy's first layout, which has `episode_terminals` in the place of `timeouts`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from grd_offline.core.episodes import as_flags
from grd_offline.core.errors import DataError, clean_text
from grd_offline.core.typing import AnyArray
from grd_offline.io.files.storage import replace_file
from grd_offline.io.formats.guard import (
    ATTRIBUTE_BYTES,
    SafeDataset,
    SafeGroup,
    one_line,
    walk,
)
from grd_offline.io.formats.hdf5 import (
    create_dataset,
    create_hdf5,
    header_as_texts,
    header_from_texts,
    verify_hdf5,
    write_attributes,
)
from grd_offline.io.formats.leaves import as_choice, check_header, find_leaf
from grd_offline.io.formats.own import vector_length
from grd_offline.io.formats.record import (
    Header,
    LazyLeaves,
    Leaf,
    Leaves,
    NewFile,
    OpenFile,
    Record,
    Recording,
)

_FLAGS = ("terminals", "timeouts", "episode_terminals")
_ATTRIBUTES = "episode_attributes"
_FINAL = "final"
_RESERVED = (
    "observations",
    "actions",
    "rewards",
    "next_observations",
    _FINAL,
    *_FLAGS,
    _ATTRIBUTES,
)
_BLOCK = 2**20
_WAITING_BYTES = 2**20
_ATTRIBUTE_BYTES = 200
"""Bytes that the attributes of one episode may take on average if there are many episodes."""


def is_d4rl(root: SafeGroup) -> bool:
    """Whether the file has the flat arrays."""
    return {"observations", "actions", "terminals"} <= set(root.names())


def read_d4rl(file: OpenFile) -> Recording:
    """A flat file; `max_episode_steps` cuts episodes where the file has no timeouts."""
    root, names = file.root, set(file.root.names())
    steps = vector_length(root.dataset("rewards"), "rewards")
    columns: dict[str, SafeDataset] = {
        name: _column(root, name, steps)
        for name in ("observations", "actions", "next_observations")
        if name in names
    }
    header = _read_header(root, columns)
    terminations, truncations = _ends(root, names, steps, file.max_episode_steps)
    stops = np.flatnonzero(terminations | truncations) + 1
    unfinished = len(stops) == 0 or stops[-1] < steps
    if unfinished:
        stops = np.append(stops, steps)
    starts = np.concatenate([[0], stops[:-1]])
    reader = _EpisodeReader(
        rewards=root.dataset("rewards"),
        header=header,
        columns=columns,
        extras=_find_extras(root, names),
        attributes=_read_attributes(root, names, len(stops)),
        finals={
            path.removeprefix(f"{_FINAL}/"): dataset
            for name in names & {_FINAL}
            for path, dataset in walk(root, name, _skip)
        },
        flags=(terminations, truncations),
        starts=starts,
        stops=stops,
    )
    recording = Recording(
        layout="d4rl",
        warnings=root.notes,
        header=header,
        lengths=stops - starts,
        load=lambda index: reader.load(index, root.warn),
        load_rewards=reader.load_rewards,
    )
    if unfinished:
        recording.warn(
            f"the last {stops[-1] - starts[-1]} steps end with neither a terminal nor a timeout: "
            "kept as an unfinished episode"
        )
    return recording


def _read_header(root: SafeGroup, columns: Mapping[str, SafeDataset]) -> Header:
    """Read the description of the columns, or derive it from them."""
    texts = root.attributes()
    if "observation_leaves" in texts:
        header = check_header(header_from_texts(texts))
    else:
        observations, actions = columns["observations"], columns["actions"]
        starts = range(0, actions.shape[0], _BLOCK)
        blocks = (actions.read(start, start + _BLOCK) for start in starts)
        header = Header(
            observation_leaves=(find_leaf("", observations, "observations"),),
            action_leaves=(as_choice(find_leaf("", actions, "actions"), blocks),),
        )
    for field, leaves in header.leaves.items():
        expected = sum(math.prod(leaf.shape) for leaf in leaves)
        found = math.prod(columns[field].shape[1:])
        if expected != found:
            raise DataError(f"expected {expected} columns, got {found}", field=field)
    if "next_observations" in columns:
        shape, given = columns["observations"].shape, columns["next_observations"].shape
        if shape != given:
            raise DataError(f"expected shape {shape}, got {given}", field="next_observations")
    return header


@dataclass(frozen=True, eq=False)
class _EpisodeReader:
    """Cuts single episodes out of the flat arrays."""

    rewards: SafeDataset
    header: Header
    columns: Mapping[str, SafeDataset]
    extras: Mapping[str, SafeDataset]
    attributes: Sequence[dict[str, Any]]
    finals: Mapping[str, SafeDataset]
    """Rows of extras that follow the last step of each episode."""
    flags: tuple[NDArray[np.bool_], NDArray[np.bool_]]
    """The terminations and the truncations of all steps."""
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]

    def load(self, index: int, warn: Callable[[str], None]) -> Record:
        """Load one episode."""
        start, stop = int(self.starts[index]), int(self.stops[index])
        rows = self.columns["observations"].read(start, stop)
        extra: dict[str, Callable[[], AnyArray]] = {
            path: partial(self._read_extra, path, index) for path in self.extras
        }
        if "next_observations" in self.columns:
            next_rows = self.columns["next_observations"].read(start, stop)
            if not np.array_equal(rows[1:], next_rows[:-1]):
                warn(
                    "next_observations do not follow on from observations inside an episode: "
                    "kept as they are, and only the last is used"
                )
                extra["next_observations"] = lambda: next_rows
            rows = np.concatenate([rows, next_rows[-1:].astype(rows.dtype)])
        actions = self.columns["actions"].read(start, stop)
        terminations, truncations = self.flags
        return Record(
            observations=_split(rows, self.header.observation_leaves),
            actions=_split(actions, self.header.action_leaves),
            rewards=self.load_rewards(index),
            terminations=terminations[start:stop],
            truncations=truncations[start:stop],
            extras=LazyLeaves(extra),
            attributes=self.attributes[index] if self.attributes else {},
        )

    def load_rewards(self, index: int) -> AnyArray:
        """The rewards of one episode."""
        rows = self.rewards.read(int(self.starts[index]), int(self.stops[index]))
        return rows.reshape(-1)

    def _read_extra(self, path: str, index: int) -> AnyArray:
        with one_line(path):
            rows = self.extras[path].read(int(self.starts[index]), int(self.stops[index]))
            if path in self.finals:
                rows = np.concatenate([rows, self.finals[path].read(index, index + 1)])
            return rows


def write_d4rl(new: NewFile) -> list[str]:
    """Write a flat file with timeouts and next_observations, all or nothing; gives warnings."""
    with replace_file(new.path, verify=verify_hdf5) as output, create_hdf5(output) as file:
        write_attributes(file, header_as_texts(new.header))
        table = _Table(file, new.lengths)
        attributes = []
        for index, record in enumerate(new.records):
            try:
                _write_record(table, record)
            except DataError as error:
                raise error.at(episode=index) from None
            attributes.append(dict(record.attributes))
            table.next_episode()
            output.check()
        table.flush()
        if len(attributes) != len(new.lengths):
            raise DataError(f"{len(new.lengths)} episodes announced, {len(attributes)} came")
        if any(attributes):
            text = np.frombuffer(json.dumps(attributes).encode(), np.uint8)
            file.create_dataset(_ATTRIBUTES, data=text)
        has_next = "next_observations" in file
    warning = "the source has no last observation per episode: next_observations is left out"
    return [] if has_next else [warning]


class _Table:
    """Flat datasets that are filled episode by episode.

    Rows wait until they make a block: writing each of many short episodes takes far longer.
    """

    def __init__(self, file: h5py.File, lengths: NDArray[np.int64]) -> None:
        self._file = file
        self._lengths = lengths
        self._episode = 0
        self._paths: dict[str, int] = {}
        self._datasets: dict[str, h5py.Dataset] = {}
        self._waiting: dict[str, list[AnyArray]] = {}
        self._filled: dict[str, int] = {}

    def put(self, path: str, rows: AnyArray, *, is_final: bool = False) -> None:
        """The rows of this episode, or the one row that follows its last step."""
        if is_final:
            self._fill(path, rows, len(self._lengths), 1)
        else:
            self._fill(path, rows, int(self._lengths.sum()), int(self._lengths[self._episode]))

    def next_episode(self) -> None:
        """Go on to the next episode; every column must have been filled for this one."""
        for path, filled in self._paths.items():
            if filled != self._episode + 1:
                raise DataError(
                    "is not in every episode, which a flat file cannot hold",
                    episode=self._episode,
                    field=path,
                )
        self._episode += 1

    def flush(self) -> None:
        """Write all rows that wait."""
        for path, rows in self._waiting.items():
            if rows:
                self._write(path)

    def _write(self, path: str) -> None:
        rows, start = np.concatenate(self._waiting[path]), self._filled[path]
        self._datasets[path][start : start + len(rows)] = rows
        self._waiting[path], self._filled[path] = [], start + len(rows)

    def _fill(self, path: str, rows: AnyArray, total: int, expected: int) -> None:
        if len(rows) != expected:
            raise DataError(f"expected {expected} rows, got {len(rows)}", field=path)
        if path not in self._paths:
            if self._episode:
                raise DataError(
                    "is not in every episode, which a flat file cannot hold", field=path
                )
            new = create_dataset(self._file, path, (total, *rows.shape[1:]), rows.dtype)
            self._datasets[path] = h5py.Dataset(new)
            self._paths[path] = self._filled[path] = 0
            self._waiting[path] = []
        dataset = self._datasets[path]
        if dataset.shape[1:] != rows.shape[1:] or dataset.dtype != rows.dtype:
            raise DataError(
                f"{rows.dtype} of shape {rows.shape[1:]} per step, earlier episodes have "
                f"{dataset.dtype} of shape {dataset.shape[1:]}",
                field=path,
            )
        self._waiting[path].append(rows)
        self._paths[path] += 1
        if len(self._waiting[path]) * rows.nbytes >= _WAITING_BYTES:
            self._write(path)


def _write_record(table: _Table, record: Record) -> None:
    steps = len(record.rewards)
    observations = _join(record.observations)
    table.put("observations", observations[:steps])
    if len(observations) == steps + 1:
        table.put("next_observations", record.extras.get("next_observations", observations[1:]))
    table.put("actions", _join(record.actions))
    table.put("rewards", record.rewards)
    table.put("terminals", as_flags(record.terminations, "terminations"))
    table.put("timeouts", as_flags(record.truncations, "truncations"))
    for path, array in record.extras.items():
        if path in _RESERVED and path != "next_observations":
            raise DataError("is a name of the layout itself", field=path)
        if array.ndim == 0 or len(array) not in (steps, steps + 1):
            raise DataError(f"has shape {array.shape}, expected a row per step", field=path)
        if path == "next_observations":
            continue
        table.put(path, array[:steps])
        if len(array) == steps + 1:
            table.put(f"{_FINAL}/{path}", array[steps:], is_final=True)


def _join(leaves: Leaves) -> AnyArray:
    if list(leaves) == [""]:
        return leaves[""]
    return np.concatenate([array.reshape(len(array), -1) for array in leaves.values()], axis=1)


def _split(rows: AnyArray, leaves: tuple[Leaf, ...]) -> Leaves:
    if len(leaves) == 1 and leaves[0].path == "":
        return {"": rows.reshape(len(rows), *leaves[0].shape)}
    arrays: Leaves = {}
    column = 0
    for leaf in leaves:
        width = math.prod(leaf.shape)
        part = rows[:, column : column + width]
        arrays[leaf.path] = part.reshape(len(rows), *leaf.shape).astype(leaf.dtype)
        column += width
    return arrays


def _column(root: SafeGroup, name: str, steps: int) -> SafeDataset:
    dataset = root.dataset(name)
    if not dataset.shape or dataset.shape[0] != steps:
        got = dataset.shape[0] if dataset.shape else "a single number"
        raise DataError(f"expected {steps} rows as in rewards, got {got}", field=name)
    return dataset


def _ends(
    root: SafeGroup, names: set[str], steps: int, max_episode_steps: int | None
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    terminations = _flags(root, "terminals", steps)
    if "timeouts" in names:
        return terminations, _flags(root, "timeouts", steps)
    if "episode_terminals" in names:
        return terminations, _flags(root, "episode_terminals", steps) & ~terminations
    if max_episode_steps is None:
        raise DataError(
            "is missing, so episodes cannot be cut: pass --max-episode-steps", field="timeouts"
        )
    truncations = np.zeros(steps, np.bool_)
    begin = 0
    for end in [*np.flatnonzero(terminations), steps - 1]:
        truncations[begin + max_episode_steps - 1 : end + 1 : max_episode_steps] = True
        begin = int(end) + 1
    return terminations, truncations & ~terminations


def _flags(root: SafeGroup, name: str, steps: int) -> NDArray[np.bool_]:
    return as_flags(_column(root, name, steps).read().reshape(-1)[:steps], name)


def _skip(reason: str) -> None:
    """Datasets of other types than numbers are left out."""


def _find_extras(root: SafeGroup, names: set[str]) -> dict[str, SafeDataset]:
    steps = root.dataset("rewards").shape[0]
    return {
        path: dataset
        for name in sorted(names - set(_RESERVED) - {"metadata"})
        for path, dataset in walk(root, name, _skip)
        if dataset.shape and dataset.shape[0] == steps
    }


def _are_plain(attributes: Any) -> bool:
    """Whether these are names with numbers and texts that HDF5 can hold as attributes."""
    return isinstance(attributes, dict) and all(
        0 < len(name) <= 200
        and clean_text(name) == name
        and (
            (isinstance(value, str) and clean_text(value) == value)
            or (isinstance(value, int) and abs(value) < 2**63)
            or (isinstance(value, float) and math.isfinite(value))
        )
        for name, value in attributes.items()
    )


def _read_attributes(root: SafeGroup, names: set[str], episodes: int) -> list[dict[str, Any]]:
    if _ATTRIBUTES not in names:
        return []
    try:
        dataset = root.dataset(_ATTRIBUTES)
        if dataset.nbytes > max(ATTRIBUTE_BYTES, _ATTRIBUTE_BYTES * episodes):
            raise ValueError("size")
        attributes = json.loads(dataset.read().astype(np.uint8).tobytes())
        if len(attributes) != episodes or not all(map(_are_plain, attributes)):
            raise ValueError("count")
    except (ValueError, TypeError, RecursionError) as error:
        raise DataError("is damaged", field=_ATTRIBUTES) from error
    return list(attributes)
