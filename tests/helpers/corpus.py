"""Files that must be refused in one line, and files that are odd but usable.

Each entry makes one file (or folder) and says what the error, or the warning, must contain.
"""

from __future__ import annotations

import json
import os
import struct
from functools import partial

import corpus_storage
import corpus_values
import h5py
import numpy as np
import samples
from broken_files import (
    ODD,
    REFUSED,
    edit,
    edit_d3rlpy,
    edit_flat,
    edit_minari,
    edit_robomimic,
    flat,
    odd,
    own,
    refused,
    replace,
)

from grd_offline.io.datasets import write_dataset

__all__ = ["ODD", "REFUSED", "corpus_storage", "corpus_values", "flat", "own"]

# What is no HDF5 file at all.


@refused("no such file")
def missing(path):
    pass


@refused("is empty")
def empty(path):
    path.touch()


@refused("is not an HDF5 file")
def text(path):
    path.write_text("observations,actions,rewards\n" * 100)


@refused("is not an HDF5 file")
def random_bytes(path):
    path.write_bytes(np.random.default_rng(0).bytes(20_000))


@refused("is not an HDF5 file")
def only_the_signature(path):
    path.write_bytes(b"\x89HDF\r\n\x1a\n")


@refused("is not an HDF5 file")
def signature_and_zeros(path):
    path.write_bytes(b"\x89HDF\r\n\x1a\n" + b"\0" * 5000)


@refused("is not an HDF5 file")
def cut_in_half(path):
    content = own(path).read_bytes()
    path.write_bytes(content[: len(content) // 2])


@refused("is not an HDF5 file")
def cut_by_one_byte_in_the_header(path):
    content = own(path).read_bytes()
    path.write_bytes(content[:47])


@refused("without a Minari dataset")
def folder_with_nothing(path):
    path.mkdir()


@refused("not a regular file")
def named_pipe(path):
    os.mkfifo(path)


@refused("is not an HDF5 file")
def numpy_archive(path):
    with path.open("wb") as file:
        np.savez(file, observations=np.zeros((3, 2)))


@refused("is not an HDF5 file")
def pickle_of_a_command(path):
    path.write_bytes(b"cos\nsystem\n(S'touch pwned'\ntR.")


# HDF5, but not one of the layouts.


@refused("layout not recognised")
def no_members(path):
    h5py.File(path, "w").close()


@refused("layout not recognised.*the file holds images, labels")
def other_content(path):
    with h5py.File(path, "w") as file:
        file["images"], file["labels"] = np.zeros(3), np.zeros(3)


@refused("layout not recognised")
def names_with_control_characters(path):
    with h5py.File(path, "w") as file:
        file["\x1b[31mred\x07\n"] = np.zeros(3)


@refused("attributes: .*missing or damaged")
def header_missing(path):
    with edit(path) as file:
        del file.attrs["observation_leaves"]


@refused("attributes: missing or damaged")
def header_with_a_huge_one_hot(path):
    with edit(path) as file:
        leaf = {"path": "", "shape": [], "dtype": "int64", "categories": [10**12], "starts": [0]}
        file.attrs["action_leaves"] = np.bytes_(json.dumps([leaf]).encode())


# Fields and shapes that do not fit.


@refused("rewards: no steps")
def no_rows(path):
    arrays = {name: array[:0] for name, array in samples.flat_arrays().items()}
    samples.write_flat(path, arrays)


@refused("observations: is a group, expected a dataset")
def observations_as_a_group(path):
    with edit_flat(path, observations=None) as file:
        file.create_group("observations")


@refused("rewards: is neither a group nor a dataset")
def rewards_as_a_named_type(path):
    with edit_flat(path, rewards=None) as file:
        file["rewards"] = np.dtype("f8")


@refused("episode 4: observations: expected shape \\(4,\\) per step, got \\(5,\\)")
def one_more_dimension_in_the_last_episode(path):
    with edit(path) as file:
        rows = len(file["episode_4/observations"])
        replace(file, "episode_4/observations", np.zeros((rows, 5), np.float32))


@refused("episode 1: terminations: expected .* rows")
def one_flag_short(path):
    with edit(path) as file:
        replace(file, "episode_1/terminations", file["episode_1/terminations"][1:])


@refused("metadata.json: is not JSON")
def minari_metadata_broken(path):
    samples.write_minari_by_hand(path)
    (path / "data" / "metadata.json").write_text("{")


@refused("metadata.json: is not a JSON object")
def minari_metadata_of_the_wrong_kind(path):
    samples.write_minari_by_hand(path)
    (path / "data" / "metadata.json").write_text("[1, 2]")


@refused("metadata.json: is not JSON")
def minari_metadata_nested_without_end(path):
    samples.write_minari_by_hand(path)
    (path / "data" / "metadata.json").write_text("[" * 100_000)


@refused("observations_0: is missing")
def d3rlpy_without_observations(path):
    with edit_d3rlpy(path) as file:
        for index in range(12):
            del file[f"observations_{index}"]


@refused("rewards_11: is missing")
def d3rlpy_one_episode_short(path):
    with edit_d3rlpy(path) as file:
        del file["rewards_11"]


@refused("obs: is missing: a raw file")
def robomimic_raw(path):
    with edit_robomimic(path) as file:
        for demo in file["data"].values():
            del demo["obs"], demo["next_obs"]


@refused("episode 5: obs/cube|episode 5: cube: is missing")
def robomimic_one_key_short(path):
    with edit_robomimic(path) as file:
        del file["data/demo_5/obs/cube"]


@refused("episode 2: dones: expected 6 rows, got 2")
def robomimic_dones_too_short(path):
    with edit_robomimic(path) as file:
        replace(file, "data/demo_2/dones", np.zeros(2))


@refused("cannot be read")
def damaged_chunk(path):
    own(path)
    with h5py.File(path) as file:
        place = file["episode_0/observations"].id.get_chunk_info(0).byte_offset
    content = bytearray(path.read_bytes())
    content[place : place + 8] = struct.pack("<d", 1.5)
    path.write_bytes(content)


# Odd, but usable: accepted with a warning.


@odd("1 dimension is constant, and can explain nothing: s1")
def constant_dimension(path):
    observations = samples.flat_arrays()["observations"]
    observations[:, 1] = 0.1
    flat(path, observations=observations)


@odd("1 episodes repeat an earlier one, all kept: 0 and 2")
def repeated_episode(path):
    records = samples.make_records(3)
    write_dataset(path, samples.make_header(), [records[0], records[1], records[0]])


@odd("observations and actions in float64: used in float32")
def double_precision(path):
    arrays = samples.flat_arrays()
    flat(path, observations=arrays["observations"] * 1.0, actions=arrays["actions"].astype("f8"))
    with h5py.File(path, "r+") as file:
        replace(file, "observations", arrays["observations"].astype("f8"))


@odd("numbers in the other byte order")
def big_endian(path):
    arrays = samples.flat_arrays()
    flat(
        path,
        observations=arrays["observations"].astype(">f4"),
        rewards=arrays["rewards"].astype(">f8"),
    )


@odd("end with neither a terminal nor a timeout")
def unfinished_tail(path):
    arrays = samples.flat_arrays()
    arrays["timeouts"][-1] = False
    samples.write_flat(path, arrays)


@odd("every episode has the same return")
def constant_returns(path):
    flat(path, rewards=np.zeros(60, np.float32))


@odd("infos/name: holds text, expected numbers: left out")
def text_among_the_infos(path):
    with edit_minari(path) as file:
        for episode in file.values():
            episode["infos/name"] = ["x"] * len(episode["rewards"])


@odd("next_observations do not follow on")
def next_observations_with_gaps(path):
    flat(path, next_observations=np.zeros((60, 3), np.float32))


@odd("no metadata.json beside the file")
def minari_file_alone(path):
    samples.write_minari_by_hand(path, metadata=False)


@odd("3 episodes end with neither termination nor truncation")
def episodes_that_just_stop(path):
    with edit(path) as file:
        for index in range(3):
            for flag in ("terminations", "truncations"):
                file[f"episode_{index}/{flag}"][...] = False


@odd("1 dimension is constant")
def whole_numbers_and_half_precision(path):
    observations = np.ones((60, 3), np.float16)
    observations[:, :2] = samples.flat_arrays()["observations"][:, :2]
    flat(path, observations=observations, rewards=np.arange(60))


FLAT = {
    "compound_actions": (
        "actions: holds compound values",
        {"actions": np.zeros(60, [("x", "f4"), ("y", "f4")])},
    ),
    "complex_actions": (
        "actions: holds compound values",
        {"actions": np.zeros((60, 2), np.complex64)},
    ),
    "images": (
        "observations: images of shape",
        {"observations": np.zeros((60, 8, 8, 3), np.uint8)},
    ),
    "grey_images": (
        "observations: images of shape",
        {"observations": np.zeros((60, 8, 8), np.uint8)},
    ),
    "no_timeouts": ("timeouts: is missing, so episodes cannot be cut", {"timeouts": None}),
    "no_rewards": ("rewards: is missing", {"rewards": None}),
    "one_action_short": (
        "actions: expected 60 rows as in rewards, got 59",
        {"actions": np.zeros((59, 2))},
    ),
    "rewards_in_two_columns": (
        "rewards: expected one number per step",
        {"rewards": np.zeros((60, 2))},
    ),
    "rewards_as_one_number": (
        "rewards: expected one number per step, got shape \\(\\)",
        {"rewards": 3.0},
    ),
    "observations_as_one_number": (
        "observations: expected 60 rows as in rewards, got a single number",
        {"observations": 3.0},
    ),
    "observations_without_columns": (
        "observations: is empty: shape \\(0,\\) per step",
        {"observations": np.zeros((60, 0))},
    ),
    "next_observations_of_another_width": (
        "next_observations: expected shape \\(60, 3\\), got \\(60, 5\\)",
        {"next_observations": np.zeros((60, 5), "f4")},
    ),
}
"""A flat file with these arrays instead of its own; None leaves one out."""

ATTRIBUTES = {
    "from_the_future": ("format 99, this one reads format 1", "grd_offline_format", 99),
    "header_not_json": ("attributes: missing or damaged", "observation_leaves", np.bytes_(b"[{")),
    "header_of_the_wrong_kind": ("attributes: missing or damaged", "observation_leaves", 3),
    "header_nested_without_end": (
        "attributes: missing or damaged",
        "settings",
        np.bytes_(b"[" * 60_000),
    ),
    "header_discount_of_seven": ("attributes: missing or damaged", "discount", np.bytes_(b"7.0")),
    "too_few_names": ("3 names for 4 columns", "observation_names", np.bytes_(b'["a", "b", "c"]')),
}
"""A file of ours with an attribute of another value."""

LEFT_OUT = {
    "episode_left_out": ("episode 2: is missing, though later ones are there", "episode_2"),
    "episode_without_rewards": ("episode 1: rewards: is missing", "episode_1/rewards"),
    "episode_without_actions": ("episode 3: actions: is missing", "episode_3/actions"),
    "episode_without_truncations": ("episode 3: truncations: is missing", "episode_3/truncations"),
}
"""A file of ours without one of its members."""

REPLACED = {
    "observations_of_fixed_text": (
        "episode 0: observations: holds text",
        "episode_0/observations",
        np.array([[b"a"] * 4] * 3),
    ),
    "observations_too_long": (
        "episode 0: observations: expected .* rows",
        "episode_0/observations",
        np.zeros((99, 4), np.float32),
    ),
    "empty_episode": ("episode 1: rewards: no steps", "episode_1/rewards", np.zeros(0)),
    "episode_that_is_a_dataset": (
        "episode_1: is a dataset, expected a group|episode 1",
        "episode_1",
        np.zeros(3),
    ),
}
"""A file of ours with another array in the place of one."""

D3RLPY = {
    "claims_a_trillion_episodes": (
        "num_episodes: 1000000000000 episodes in",
        "num_episodes",
        10**12,
    ),
    "claims_minus_one_episodes": ("num_episodes: -1 episodes in", "num_episodes", -1),
    "d3rlpy_flag_of_five": ("terminated_3: expected one flag", "terminated_3", 5),
}
"""The same for a file of d3rlpy."""


def _set_attribute(path, name, value):
    with edit(path) as file:
        file.attrs[name] = value


def _leave_out(path, name):
    with edit(path) as file:
        del file[name]


def _replace_in(path, name, value, edit=edit):
    with edit(path) as file:
        replace(file, name, value)


for _name, (_message, _changes) in FLAT.items():
    REFUSED[_name] = (partial(flat, **_changes), _message)
for _name, (_message, _member) in LEFT_OUT.items():
    REFUSED[_name] = (partial(_leave_out, name=_member), _message)
for _name, (_message, _member, _value) in ATTRIBUTES.items():
    REFUSED[_name] = (partial(_set_attribute, name=_member, value=_value), _message)
for _name, (_message, _member, _value) in REPLACED.items():
    REFUSED[_name] = (partial(_replace_in, name=_member, value=_value), _message)
for _name, (_message, _member, _value) in D3RLPY.items():
    _make = partial(_replace_in, name=_member, value=_value, edit=edit_d3rlpy)
    REFUSED[_name] = (_make, _message)
