"""Part of the corpus: values, attributes and metadata that cannot be used."""

from __future__ import annotations

import json
import struct

import h5py
import numpy as np
import samples
from broken_files import (
    REFUSED,
    edit,
    edit_flat,
    edit_minari,
    flat,
    odd,
    refused,
    replace,
)

# Types that are not numbers.


@refused("rewards: holds text")
def rewards_of_variable_text(path):
    with edit_flat(path, rewards=None) as file:
        file["rewards"] = ["1.0"] * 60


@refused("observations: holds variable-length values")
def variable_length_rows(path):
    with edit_flat(path, observations=None) as file:
        rows = file.create_dataset("observations", (60,), h5py.vlen_dtype(np.float32))
        rows[0] = np.zeros(3)


@refused("actions: holds references")
def reference_actions(path):
    with edit_flat(path, actions=None) as file:
        file.create_dataset("actions", (60,), h5py.ref_dtype)


@refused("observations: holds opaque values")
def opaque_observations(path):
    with edit_flat(path, observations=None) as file:
        file["observations"] = np.zeros((60, 2), "V8")


@refused("observations: holds array values")
def array_typed_observations(path):
    with edit_flat(path, observations=None) as file:
        file.create_dataset("observations", (60,), np.dtype("(3,)f4"))


@refused("observations: images of shape")
def images_announced_by_a_space(path):
    samples.write_minari_by_hand(path)
    file = path / "data" / "metadata.json"
    metadata = json.loads(file.read_text())
    space = {"type": "Box", "dtype": "uint8", "shape": [64, 64, 3], "low": 0, "high": 255}
    metadata["observation_space"] = json.dumps(space)
    file.write_text(json.dumps(metadata))


# Values that cannot be used.


@refused("episode 1: observations: nan at step 7, dimension 2")
def nan_in_observations(path):
    arrays = samples.flat_arrays()
    arrays["observations"][27, 2] = np.nan
    samples.write_flat(path, arrays)


@refused("episode 0: actions: inf at step 3, dimension 1")
def infinite_action(path):
    arrays = samples.flat_arrays()
    arrays["actions"][3, 1] = np.inf
    samples.write_flat(path, arrays)


@refused("episode 2: rewards: -inf at step 4")
def infinite_reward(path):
    arrays = samples.flat_arrays()
    arrays["rewards"][39] = -np.inf
    samples.write_flat(path, arrays)


@refused("observations: 1e\\+300, too large for float32, at step 5, dimension 0")
def beyond_float32(path):
    observations = np.zeros((60, 3))
    observations[5, 0] = 1e300
    flat(path, observations=observations)


@refused("terminals: expected 0 or 1, got 7 at step 12")
def flags_of_seven(path):
    terminals = np.zeros(60, np.int64)
    terminals[12] = 7
    flat(path, terminals=terminals)


@refused("timeouts: expected 0 or 1, got nan")
def flags_of_nan(path):
    timeouts = np.zeros(60)
    timeouts[3] = np.nan
    flat(path, timeouts=timeouts)


@refused("episode 0: terminations: set at step 0, before the last")
def terminated_in_the_middle(path):
    with edit(path) as file:
        flags = file["episode_0/terminations"][()]
        flags[0] = True
        file["episode_0/terminations"][...] = flags


@refused("episode 2: actions: 9 at step 1, expected a choice from 0 to 4")
def choice_out_of_range(path):
    with edit_minari(path, nested=True) as file:
        file["episode_2/actions"][1] = 9


@refused("actions: 0.5 at step 0, expected a choice")
def half_a_choice(path):
    with edit_minari(path, nested=True) as file:
        for episode in file.values():
            actions = episode["actions"][()] * 1.0
            actions[0] = 0.5
            del episode["actions"]
            episode["actions"] = actions


# What the attributes and metadata say.


def _with_leaf(path, **changes):
    with edit(path) as file:
        leaf = {"path": "", "shape": [2], "dtype": "float32", "categories": None, "starts": []}
        del file.attrs["action_leaves"]
        file.attrs["action_leaves"] = np.bytes_(json.dumps([{**leaf, **changes}]))


@refused("attributes: missing or damaged")
def too_few_starts(path):
    _with_leaf(path, categories=[3, 3], starts=[0])


@refused("attributes: missing or damaged")
def a_type_that_is_half_a_tuple(path):
    _with_leaf(path, dtype="(1,2")


@refused("attributes: missing or damaged")
def a_type_of_many_parts(path):
    _with_leaf(path, dtype="f8,f8,(1000000,1000)f8")


@refused("attributes: missing or damaged")
def infinite_starts(path):
    _with_leaf(path, categories=[2, 2], starts=[float("inf"), 0])


@refused("delivered: expected 0 or 1, got nan at step 0")
def delivered_is_nan(path):
    with edit(path) as file:
        file["episode_0/delivered"] = np.full(len(file["episode_0/rewards"]), np.nan)


@refused("observations/b: expected .* rows, as in the first part, got 1")
def parts_of_unequal_length(path):
    with edit_minari(path) as file:
        for episode in file.values():
            rows = episode["observations"][:]
            del episode["observations"]
            episode["observations/a"], episode["observations/b"] = rows, rows[:1]
    (path / "data" / "metadata.json").unlink()


@refused("observations: expected .* rows, got 0")
def no_rows_of_observations(path):
    with edit_minari(path) as file:
        for episode in file.values():
            rows = episode["observations"][:0]
            del episode["observations"]
            episode["observations"] = rows


def _minari_metadata(path, **changes):
    folder = samples.write_minari_by_hand(path, nested=False)
    file = folder / "data" / "metadata.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


@odd("total_episodes is 99, but the file holds 4")
def metadata_with_more_episodes(path):
    _minari_metadata(path, total_episodes=99)


@odd("total_steps is 'many', but the file holds")
def metadata_with_other_steps(path):
    _minari_metadata(path, total_steps="many")


@odd("observation_space does not fit the arrays")
def metadata_with_another_space(path):
    space = {"type": "Box", "dtype": "float32", "shape": [7], "low": [0] * 7, "high": [1] * 7}
    _minari_metadata(path, observation_space=json.dumps(space))


@odd("action_space is not understood: read from the arrays")
def metadata_with_an_odd_space(path):
    _minari_metadata(path, action_space=json.dumps({"type": "Graph"}))


@odd("s0")
def names_with_lone_surrogates(path):
    with edit(path) as file:
        del file.attrs["observation_names"]
        names = '["s0", "\\ud800", "b\\udfff", "c"]'
        file.attrs["observation_names"] = np.bytes_(names)
        del file.attrs["environment"]
        file.attrs["environment"] = np.bytes_("x")


@odd("minari")
def unsigned_choices(path):
    with edit_minari(path) as file:
        for episode in file.values():
            steps = len(episode["rewards"])
            del episode["actions"]
            episode["actions"] = np.arange(steps, dtype=np.uint64) % 3
    metadata = path / "data" / "metadata.json"
    space = {"type": "Discrete", "dtype": "int64", "start": 0, "n": 3}
    contents = json.loads(metadata.read_text())
    metadata.write_text(json.dumps({**contents, "action_space": json.dumps(space)}))


@refused("rewards: 1e\\+30, larger than 1e\\+18")
def huge_rewards(path):
    with edit(path) as file:
        rewards = file["episode_0/rewards"][:]
        rewards[-1] = 1e30
        replace(file, "episode_0/rewards", rewards)


@refused("observations: 1e\\+37, larger than 1e\\+18")
def huge_observations(path):
    with edit(path) as file:
        file["episode_0/observations"][2, 1] = 1e37


# What a second, hostile look found.


@refused("rewards: holds a chunk of 8 bytes, expected 160")
def a_short_chunk_beside_one_that_is_out_of_reach(path):
    """The sizes of all chunks together are enough; that of the one which is read is not."""
    n = 40
    flat(path, observations=None, actions=None, rewards=None, terminals=None, timeouts=None)
    with h5py.File(path, "a") as file:
        for name, kind in (("observations", "f4"), ("actions", "f4"), ("terminals", "?")):
            file[name] = np.zeros((n, 1) if kind == "f4" else n, kind)
        file["timeouts"] = np.arange(n) % 10 == 9
        made = file.create_dataset(
            "rewards", (2 * n - 7,), "f4", chunks=(n,), maxshape=(None,), shuffle=True
        )
        made.id.write_direct_chunk((0,), bytes(8), 1)
        made.id.write_direct_chunk((n,), bytes(4 * n), 1)
    content = path.read_bytes()
    declared = struct.pack("<Q", 2 * n - 7)
    assert content.count(declared) == 1
    path.write_bytes(content.replace(declared, struct.pack("<Q", n)))


def _episode_attributes(path, value):
    with edit_flat(path) as file:
        ends = np.flatnonzero(file["terminals"][:] | file["timeouts"][:]) + 1
        count = len(ends) + (len(ends) == 0 or ends[-1] < len(file["rewards"]))
        text = json.dumps([value] * int(count))
        file["episode_attributes"] = np.frombuffer(text.encode(), np.uint8)


for _number, _value in enumerate(
    [{"a": {"b": 1}}, {"a": None}, {"a": 2**70}, {"a": [1, "x"]}, {"a": "\ud800"}, {"": 1},
     {"a" * 70_000: 1}, {"a": float("nan")}]
):  # fmt: skip

    def _make(path, value=_value):
        _episode_attributes(path, value)

    REFUSED[f"attributes_that_are_none_{_number}"] = (_make, "episode_attributes: is damaged")


@odd("action_space is not understood")
def choices_that_begin_beyond_all_numbers(path):
    space = {"type": "MultiDiscrete", "dtype": "int64", "nvec": [3, 2], "start": [10**400, 0]}
    _minari_metadata(path, action_space=json.dumps(space))


@odd("action_space is not understood")
def fewer_than_no_choices(path):
    space = {"type": "MultiDiscrete", "dtype": "int64", "nvec": [3 * 10**7, 2 - 3 * 10**7]}
    _minari_metadata(path, action_space=json.dumps({**space, "start": [0, 0]}))


@refused("attributes: missing or damaged")
def leaves_whose_paths_are_the_same(path):
    with edit(path) as file:
        leaf = {"shape": [2], "dtype": "float32", "categories": None, "starts": []}
        leaves = [{**leaf, "path": "a/b"}, {**leaf, "path": "a//b"}]
        del file.attrs["action_leaves"]
        file.attrs["action_leaves"] = np.bytes_(json.dumps(leaves))


@refused("300,000 episodes, more than is plausible")
def episodes_that_take_no_room(path):
    steps = 300_000
    with h5py.File(path, "w") as file:
        for name in ("observations", "actions", "rewards", "terminals", "timeouts"):
            file.create_dataset(name, data=np.ones(steps, "i1"), compression="gzip")


@refused("episode_attributes: is damaged")
def attributes_of_nothing_but_lists(path):
    flat(path)
    text = "[" + "[]," * (4 * 2**20) + "[]]"
    with h5py.File(path, "r+") as file:
        data = np.frombuffer(text.encode(), np.uint8)
        file.create_dataset("episode_attributes", data=data, compression="gzip")


@refused("metadata.json: is larger than 4 MB")
def metadata_of_nothing_but_lists(path):
    _minari_metadata(path, author=[[]] * (4 * 2**20))


@odd("d4rl")
def rewards_of_two_bytes(path):
    flat(path, rewards=np.linspace(-1, 1, 60).astype(np.float16))
