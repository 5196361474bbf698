"""d3rlpy's second layout: `observations_0`, `actions_0`, `rewards_0`, `terminated_0`, and so on.

It holds T observations for T actions, and one flag that tells a terminated episode from one that
was cut off.
"""

from __future__ import annotations

import numpy as np

from grd_offline.core.errors import DataError
from grd_offline.core.typing import AnyArray
from grd_offline.io.formats.guard import SafeGroup
from grd_offline.io.formats.leaves import as_choice, find_leaf, read_rows
from grd_offline.io.formats.own import mark_last, vector_length
from grd_offline.io.formats.record import Header, Leaf, Leaves, OpenFile, Record, Recording


def is_d3rlpy(root: SafeGroup) -> bool:
    """Whether the file has the columns of this layout."""
    return {"columns", "num_episodes", "version"} <= set(root.names())


def read_d3rlpy(file: OpenFile) -> Recording:
    """A file that d3rlpy 2 wrote."""
    root, names = file.root, set(file.root.names())
    stored = root.dataset("num_episodes")
    if stored.shape != ():
        raise DataError(f"expected one number, got shape {stored.shape}", field="num_episodes")
    episodes = int(stored.read())
    if not 0 < episodes <= len(names):
        raise DataError(f"{episodes} episodes in {len(names)} datasets", field="num_episodes")
    lengths = np.empty(episodes, np.int64)
    for index in range(episodes):
        lengths[index] = vector_length(root.dataset(f"rewards_{index}"), f"rewards_{index}")
    observation_leaves = _leaves(root, names, "observations")
    action_leaves = _leaves(root, names, "actions")
    if len(action_leaves) == 1 and action_leaves[0].path == "":
        actions = (root.dataset(f"actions_{index}").read() for index in range(episodes))
        action_leaves = (as_choice(action_leaves[0], actions),)
    header = Header(observation_leaves=observation_leaves, action_leaves=action_leaves)

    def load_rewards(index: int) -> AnyArray:
        return root.dataset(f"rewards_{index}").read().reshape(-1)

    def load(index: int) -> Record:
        terminated = root.dataset(f"terminated_{index}").read()
        if terminated.size != 1 or terminated.item() not in (0, 1):
            raise DataError("expected one flag", field=f"terminated_{index}")
        terminations, truncations = mark_last(lengths[index], bool(terminated.item()))
        return Record(
            observations=_load(root, "observations", index, observation_leaves),
            actions=_load(root, "actions", index, action_leaves),
            rewards=load_rewards(index),
            terminations=terminations,
            truncations=truncations,
        )

    return Recording(
        layout="d3rlpy",
        warnings=root.notes,
        header=header,
        lengths=lengths,
        load=load,
        load_rewards=load_rewards,
    )


def _leaves(root: SafeGroup, names: set[str], field: str) -> tuple[Leaf, ...]:
    """One leaf, or for tuples one per part: `observations_0_0`, `observations_0_1`, …"""
    if f"{field}_0" in names:
        parts = {"": f"{field}_0"}
    else:
        parts = {}
        while (name := f"{field}_0_{len(parts)}") in names:
            parts[f"_index_{len(parts)}"] = name
        if not parts:
            raise DataError("is missing", field=f"{field}_0")
    return tuple(find_leaf(path, root.dataset(name), field, name) for path, name in parts.items())


def _load(root: SafeGroup, field: str, index: int, leaves: tuple[Leaf, ...]) -> Leaves:
    arrays: Leaves = {}
    for part, leaf in enumerate(leaves):
        name = f"{field}_{index}_{part}" if leaf.path else f"{field}_{index}"
        arrays[leaf.path] = read_rows(root.dataset(name), leaf, field, name)
    return arrays
