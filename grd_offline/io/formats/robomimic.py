"""robomimic's layout: `data/demo_N` with low-dimensional observations by name under `obs`.

`dones` may be set at every successful step, so it is kept as it is under its own name; an episode
counts as terminated where its last step is done, and as truncated where it is not.
"""

from __future__ import annotations

import re

import numpy as np

from grd_offline.core.errors import DataError
from grd_offline.core.typing import AnyArray
from grd_offline.io.formats.guard import SafeDataset, SafeGroup, UnsupportedType
from grd_offline.io.formats.leaves import find_leaf, read_rows
from grd_offline.io.formats.own import (
    leaves_in,
    load_leaves,
    load_vector,
    mark_last,
    vector_length,
)
from grd_offline.io.formats.record import Header, Leaves, OpenFile, Record, Recording

_DEMO = re.compile(r"demo_(0|[1-9][0-9]{0,9})")
_FIELDS = ("obs", "next_obs", "actions", "rewards")


def is_robomimic(root: SafeGroup) -> bool:
    """Whether the file has demonstrations."""
    if "data" not in root.names():
        return False
    data = root.get("data")
    return isinstance(data, SafeGroup) and any(_DEMO.fullmatch(name) for name in data.names())


def read_robomimic(file: OpenFile) -> Recording:
    """A low-dimensional robomimic file; demonstrations in the order of their numbers."""
    data = file.root.group("data")
    demos = sorted(
        (name for name in data.names() if _DEMO.fullmatch(name)), key=lambda name: int(name[5:])
    )
    first = data.group(demos[0])
    if "obs" not in first.names():
        raise DataError(
            "is missing: a raw file; extract observations with robomimic first", field="obs"
        )
    header = Header(
        observation_leaves=leaves_in(first, "obs"),
        action_leaves=(find_leaf("", first.dataset("actions"), "actions"),),
    )
    lengths = np.empty(len(demos), np.int64)
    for index, name in enumerate(demos):
        try:
            lengths[index] = vector_length(data.group(name).dataset("rewards"), "rewards")
        except DataError as error:
            raise error.at(episode=index) from None

    def load(index: int) -> Record:
        return _load(data.group(demos[index]), int(lengths[index]), header)

    return Recording(
        layout="robomimic",
        warnings=data.notes,
        header=header,
        lengths=lengths,
        load=load,
        load_rewards=lambda index: load_vector(data.group(demos[index]), "rewards"),
    )


def _load(demo: SafeGroup, steps: int, header: Header) -> Record:
    names = demo.names()
    demo.group("obs")  # a single array is not of this layout
    observations = load_leaves(demo, "obs", header.observation_leaves)
    extras: Leaves = {}
    if "next_obs" in names:
        next_observations = load_leaves(demo, "next_obs", header.observation_leaves)
        observations = _with_last(demo, observations, next_observations)
    for name in names:
        if name in _FIELDS:
            continue
        try:
            member = demo.get(name)
        except UnsupportedType as error:
            demo.warn(f"{name}: {error.reason}: left out")
            continue
        if isinstance(member, SafeDataset):
            extras[name] = member.read()
        else:
            demo.warn(f"{name}: a group that is not part of the layout: left out")
    dones = extras.get("dones", np.zeros(steps, np.bool_)).reshape(-1)
    if len(dones) != steps:
        raise DataError(f"expected {steps} rows, got {len(dones)}", field="dones")
    terminations, truncations = mark_last(steps, bool(dones[-1]))
    return Record(
        observations=observations,
        actions={"": read_rows(demo.dataset("actions"), header.action_leaves[0], "actions")},
        rewards=load_vector(demo, "rewards"),
        terminations=terminations,
        truncations=truncations,
        extras=extras,
        attributes=demo.attributes(),
    )


def _with_last(demo: SafeGroup, observations: Leaves, next_observations: Leaves) -> Leaves:
    """T + 1 observations where the next ones follow on; the T stored ones where they do not."""
    joined: dict[str, AnyArray] = {}
    for path, array in observations.items():
        if len(next_observations[path]) != len(array) or not np.array_equal(
            array[1:], next_observations[path][:-1]
        ):
            demo.warn("next_obs do not follow on from obs: left out")
            return observations
        joined[path] = np.concatenate([array, next_observations[path][-1:]])
    return joined
