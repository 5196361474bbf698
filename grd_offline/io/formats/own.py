"""Our own layout: Minari's episode groups in one file, with the header in root attributes.

`episode_N/observations` (T + 1 rows; a group of arrays for nested spaces), `actions`, `rewards`,
`terminations`, `truncations` (T rows), and beside them whatever else belongs to the steps.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial

import h5py
import numpy as np
from numpy.typing import NDArray

from grd_offline.core.errors import DataError
from grd_offline.core.typing import AnyArray
from grd_offline.io.files.storage import replace_file
from grd_offline.io.formats.guard import SafeDataset, SafeGroup, one_line, walk
from grd_offline.io.formats.hdf5 import (
    create_hdf5,
    header_as_texts,
    header_from_texts,
    verify_hdf5,
    write_array,
    write_attributes,
)
from grd_offline.io.formats.leaves import check_header, find_leaf, read_rows
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

_NAME = re.compile(r"episode_(0|[1-9][0-9]{0,9})")
_FIELDS = ("observations", "actions", "rewards", "terminations", "truncations")
_OWN_ATTRIBUTES = ("id", "total_steps")


def episode_lengths(root: SafeGroup) -> NDArray[np.int64]:
    """Steps of each episode, from the shapes alone; episodes must be numbered from 0 on."""
    numbers = sorted(int(m[1]) for name in root.names() if (m := _NAME.fullmatch(name)))
    if not numbers:
        raise DataError("holds no episodes")
    for expected, number in enumerate(numbers):
        if number != expected:
            raise DataError("is missing, though later ones are there", episode=expected)
    lengths = np.empty(len(numbers), np.int64)
    for number in numbers:
        try:
            rewards = root.group(f"episode_{number}").dataset("rewards")
            lengths[number] = vector_length(rewards, "rewards")
        except DataError as error:
            raise error.at(episode=number) from None
    return lengths


def vector_length(dataset: SafeDataset, field: str) -> int:
    """The length of a vector with at least one entry; (T, 1) counts as a vector."""
    if len(dataset.shape) == 0 or any(n != 1 for n in dataset.shape[1:]):
        raise DataError(f"expected one number per step, got shape {dataset.shape}", field=field)
    if dataset.shape[0] == 0:
        raise DataError("no steps", field=field)
    return dataset.shape[0]


def leaves_in(group: SafeGroup, field: str) -> tuple[Leaf, ...]:
    """The leaves that a field of an episode holds, from shapes and types alone."""
    leaves = tuple(
        find_leaf(path.removeprefix(field).removeprefix("/"), dataset, field)
        for path, dataset in walk(group, field)
    )
    if not leaves:
        raise DataError("is empty", field=field)
    return leaves


def read_groups(
    root: SafeGroup, layout: str, header: Header, change: Callable[[Record], Record] | None = None
) -> Recording:
    """A recording of the groups of a file, whose records may be changed when they are loaded."""

    def load(index: int) -> Record:
        record = _load_episode(root, index, header)
        return record if change is None else change(record)

    return Recording(
        layout,
        header,
        episode_lengths(root),
        load,
        lambda index: load_vector(root.group(f"episode_{index}"), "rewards"),
        root.notes,
    )


def _load_episode(root: SafeGroup, index: int, header: Header) -> Record:
    """Load the episode `index` as it is stored."""
    group = root.group(f"episode_{index}")
    extras = {
        path: partial(_read_extra, dataset, path)
        for name in group.names()
        if name not in _FIELDS
        for path, dataset in walk(group, name, root.warn)
    }
    return Record(
        observations=load_leaves(group, "observations", header.observation_leaves),
        actions=load_leaves(group, "actions", header.action_leaves),
        rewards=load_vector(group, "rewards"),
        terminations=load_vector(group, "terminations"),
        truncations=load_vector(group, "truncations"),
        extras=LazyLeaves(extras),
        attributes={
            name: value for name, value in group.attributes().items() if name not in _OWN_ATTRIBUTES
        },
    )


def write_episodes(
    file: h5py.File, records: Iterable[Record], check: Callable[[], None]
) -> NDArray[np.int64]:
    """Write all records as groups; gives the length of each."""
    lengths = []
    for index, record in enumerate(records):
        group = file.create_group(f"episode_{index}")
        write_attributes(group, record.attributes)
        group.attrs["id"] = index
        group.attrs["total_steps"] = len(record.rewards)
        _write_leaves(group, "observations", record.observations)
        _write_leaves(group, "actions", record.actions)
        for field in ("rewards", "terminations", "truncations"):
            write_array(group, field, getattr(record, field))
        for path, array in record.extras.items():
            write_array(group, path, array)
        lengths.append(len(record.rewards))
        check()
    if not lengths:
        raise DataError("no episodes to write")
    return np.array(lengths, np.int64)


def load_leaves(group: SafeGroup, field: str, leaves: Iterable[Leaf]) -> Leaves:
    """The arrays of a field of an episode."""
    arrays: Leaves = {}
    for leaf in leaves:
        holder, name = group, field
        for part in filter(None, leaf.path.split("/")):
            holder, name = holder.group(name), part
        arrays[leaf.path] = read_rows(holder.dataset(name), leaf, field)
    return arrays


def load_vector(group: SafeGroup, field: str) -> AnyArray:
    """A field with one number per step."""
    dataset = group.dataset(field)
    vector_length(dataset, field)
    return dataset.read().reshape(-1)


def mark_last(steps: int, flag: bool) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Terminations and truncations of an episode that `flag` says to end with a termination."""
    is_last = np.arange(steps) == steps - 1
    return is_last & flag, is_last & (not flag)


def _read_extra(dataset: SafeDataset, name: str) -> AnyArray:
    with one_line(name):
        return dataset.read()


def _write_leaves(group: h5py.Group, field: str, leaves: Leaves) -> None:
    for path, array in leaves.items():
        write_array(group, f"{field}/{path}" if path else field, array)


FORMAT_ATTRIBUTE = "grd_offline_format"
FORMAT_VERSION = 1


def is_own(root: SafeGroup) -> bool:
    """Whether the file says it is in this layout."""
    return FORMAT_ATTRIBUTE in root.attributes() and any(
        name.startswith("episode_") for name in root.names()
    )


def read_own(file: OpenFile) -> Recording:
    """A file in this layout."""
    attributes = file.root.attributes()
    version = attributes[FORMAT_ATTRIBUTE]
    if version != FORMAT_VERSION:
        raise DataError(
            f"written by another version of this package: format {version}, this one reads "
            f"format {FORMAT_VERSION}"
        )
    return read_groups(file.root, "own", check_header(header_from_texts(attributes)))


def write_own(new: NewFile) -> list[str]:
    """Write a file in this layout in full or not at all. There is nothing to warn of."""
    with replace_file(new.path, verify=verify_hdf5) as output, create_hdf5(output) as file:
        file.attrs[FORMAT_ATTRIBUTE] = FORMAT_VERSION
        write_attributes(file, header_as_texts(new.header))
        write_episodes(file, new.records, output.check)
    return []
