"""Files that must be refused in one line, and files that are odd but usable.

Each entry makes one file (or folder) and says what the error, or the warning, must contain.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import samples
from h5py import h5d, h5p, h5s, h5t, h5z

from grd_offline.formats import write_dataset

REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {}
ODD: dict[str, tuple[Callable[[Path], object], str]] = {}


def refused(message):
    def register(make):
        REFUSED[make.__name__] = (make, message)
        return make

    return register


def odd(message):
    def register(make):
        ODD[make.__name__] = (make, message)
        return make

    return register


def own(path):
    write_dataset(path, samples.make_header(), samples.make_records())
    return path


def edit(path):
    own(path)
    return h5py.File(path, "r+")


def replace(file, name, value, **options):
    del file[name]
    file.create_dataset(name, data=value, **options)


def flat(path, **changes):
    arrays = samples.flat_arrays()
    arrays.update(changes)
    samples.write_flat(path, {name: value for name, value in arrays.items() if value is not None})


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


@refused("format 99, this one reads format 1")
def from_the_future(path):
    with edit(path) as file:
        file.attrs["grd_offline_format"] = 99


@refused("attributes: .*missing or damaged")
def header_missing(path):
    with edit(path) as file:
        del file.attrs["observation_leaves"]


@refused("attributes: missing or damaged")
def header_not_json(path):
    with edit(path) as file:
        file.attrs["observation_leaves"] = np.bytes_(b"[{")


@refused("attributes: missing or damaged")
def header_of_the_wrong_kind(path):
    with edit(path) as file:
        file.attrs["observation_leaves"] = 3


@refused("attributes: missing or damaged")
def header_nested_without_end(path):
    with edit(path) as file:
        file.attrs["settings"] = np.bytes_(b"[" * 60_000)


@refused("attributes: missing or damaged")
def header_with_a_huge_one_hot(path):
    with edit(path) as file:
        leaf = {"path": "", "shape": [], "dtype": "int64", "categories": [10**12], "starts": [0]}
        file.attrs["action_leaves"] = np.bytes_(json.dumps([leaf]).encode())


@refused("attributes: missing or damaged")
def header_discount_of_seven(path):
    with edit(path) as file:
        file.attrs["discount"] = np.bytes_(b"7.0")


@refused("3 names for 4 columns")
def too_few_names(path):
    with edit(path) as file:
        file.attrs["observation_names"] = np.bytes_(b'["a", "b", "c"]')


# Links and storage that lead elsewhere.


@refused("episode 1: observations: is a soft link")
def soft_link(path):
    with edit(path) as file:
        del file["episode_1/observations"]
        file["episode_1/observations"] = h5py.SoftLink("/episode_0/observations")


@refused("episode 0: observations: is a link to another file")
def external_link(path):
    secret = path.with_name("other.h5")
    with h5py.File(secret, "w") as file:
        file["x"] = np.zeros((5, 4))
    with edit(path) as file:
        del file["episode_0/observations"]
        file["episode_0/observations"] = h5py.ExternalLink(secret, "/x")


@refused("episode_2: is a link to another file|episode 2")
def external_link_to_a_whole_episode(path):
    with edit(path) as file:
        del file["episode_2"]
        file["episode_2"] = h5py.ExternalLink("/etc/passwd", "/")


@refused("episode 0: observations: keeps its data in another file")
def external_storage(path):
    with edit(path) as file:
        steps = len(file["episode_0/rewards"])
        del file["episode_0/observations"]
        file["episode_0"].create_dataset(
            "observations", (steps + 1, 4), "f4", external=[("/etc/passwd", 0, 16 * (steps + 1))]
        )


@refused("episode 0: infos/position: keeps its data in another file")
def external_storage_among_the_extras(path):
    with edit(path) as file:
        del file["episode_0/infos/position"]
        file["episode_0/infos"].create_dataset(
            "position", (10,), "u1", external=[("/etc/passwd", 0, 10)]
        )


@refused("observations: is a virtual dataset")
def virtual_dataset(path):
    other = path.with_name("other.h5")
    with h5py.File(other, "w") as file:
        file["x"] = np.zeros((60, 3), "f4")
    flat(path, observations=None)
    with h5py.File(path, "r+") as file:
        layout = h5py.VirtualLayout((60, 3), "f4")
        layout[:] = h5py.VirtualSource(other, "x", (60, 3))
        file.create_virtual_dataset("observations", layout)


@refused("infos/again: is the same object as 'infos': an object with two names is not read")
def group_that_contains_itself(path):
    with edit(path) as file:
        file["episode_0/infos/again"] = file["episode_0/infos"]


@refused("actions: is a soft link")
def dangling_soft_link(path):
    flat(path, actions=None)
    with h5py.File(path, "r+") as file:
        file["actions"] = h5py.SoftLink("/nowhere")


@refused("rewards: is a soft link")
def soft_link_to_itself(path):
    flat(path, rewards=None)
    with h5py.File(path, "r+") as file:
        file["rewards"] = h5py.SoftLink("/rewards")


# Sizes that are not what they seem.


@refused("declares 3.6 TB but stores 0 bytes")
def declares_terabytes(path):
    with edit(path) as file:
        del file["episode_0/observations"]
        file["episode_0"].create_dataset("observations", (250_000_000_000, 4), "f4")


@refused("declares 3.6 TB but stores 0 bytes")
def declares_terabytes_in_chunks(path):
    flat(path, observations=None)
    with h5py.File(path, "r+") as file:
        file.create_dataset("observations", (250_000_000_000, 4), "f4", chunks=(1000, 4))


@refused("declares 4.0 GB but stores .*; raise --max-size")
def gzip_bomb(path):
    steps = 2**20
    flat(path, observations=None)
    block = np.zeros((2**12, 256), "f4")
    with h5py.File(path, "r+") as file:
        bomb = file.create_dataset(
            "observations", (steps * 4, 256), "f4", chunks=block.shape, compression="gzip"
        )
        # One compressed chunk, written everywhere: quick to make, 4 GB to read.
        import zlib

        chunk = zlib.compress(block.tobytes())
        for start in range(0, steps, len(block)):
            bomb.id.write_direct_chunk((start, 0), chunk)


@refused("is stored in chunks of 3.0 GB")
def one_huge_chunk(path):
    flat(path, observations=None)
    with h5py.File(path, "r+") as file:
        shape = (60, 3 * 2**28 // 60 + 1)
        file.create_dataset("observations", shape, "f4", chunks=shape, compression="gzip")


@refused("is compressed more than once")
def stacked_deflate(path):
    flat(path, observations=None)
    with h5py.File(path, "r+") as file:
        plan = h5p.create(h5p.DATASET_CREATE)
        plan.set_chunk((60, 3))
        for _ in range(3):
            plan.set_deflate(9)
        h5d.create(file.id, b"observations", h5t.IEEE_F32LE, h5s.create_simple((60, 3)), plan)


@refused("uses filter 32015, which is not supported")
def unknown_filter(path):
    flat(path, observations=None)
    with h5py.File(path, "r+") as file:
        plan = h5p.create(h5p.DATASET_CREATE)
        plan.set_chunk((60, 3))
        plan.set_filter(32015, h5py.h5z.FLAG_OPTIONAL, ())
        h5d.create(file.id, b"observations", h5t.IEEE_F32LE, h5s.create_simple((60, 3)), plan)


@refused("num_episodes: 1000000000000 episodes in")
def claims_a_trillion_episodes(path):
    samples.write_d3rlpy_by_hand(path)
    with h5py.File(path, "r+") as file:
        replace(file, "num_episodes", 10**12)


@refused("num_episodes: -1 episodes in")
def claims_minus_one_episodes(path):
    samples.write_d3rlpy_by_hand(path)
    with h5py.File(path, "r+") as file:
        replace(file, "num_episodes", -1)


# Types that are not numbers.


@refused("episode 0: observations: holds text")
def observations_of_fixed_text(path):
    with edit(path) as file:
        replace(file, "episode_0/observations", np.array([[b"a"] * 4] * 3))


@refused("rewards: holds text")
def rewards_of_variable_text(path):
    flat(path, rewards=None)
    with h5py.File(path, "r+") as file:
        file["rewards"] = ["1.0"] * 60


@refused("observations: holds variable-length values")
def variable_length_rows(path):
    flat(path, observations=None)
    with h5py.File(path, "r+") as file:
        rows = file.create_dataset("observations", (60,), h5py.vlen_dtype(np.float32))
        rows[0] = np.zeros(3)


@refused("actions: holds compound values")
def compound_actions(path):
    flat(path, actions=np.zeros(60, [("x", "f4"), ("y", "f4")]))


@refused("actions: holds compound values")
def complex_actions(path):
    flat(path, actions=np.zeros((60, 2), np.complex64))


@refused("actions: holds references")
def reference_actions(path):
    flat(path, actions=None)
    with h5py.File(path, "r+") as file:
        file.create_dataset("actions", (60,), h5py.ref_dtype)


@refused("observations: holds opaque values")
def opaque_observations(path):
    flat(path, observations=None)
    with h5py.File(path, "r+") as file:
        file["observations"] = np.zeros((60, 2), "V8")


@refused("observations: holds array values")
def array_typed_observations(path):
    flat(path, observations=None)
    with h5py.File(path, "r+") as file:
        file.create_dataset("observations", (60,), np.dtype("(3,)f4"))


@refused("observations: images of shape")
def images(path):
    flat(path, observations=np.zeros((60, 8, 8, 3), np.uint8))


@refused("observations: images of shape")
def grey_images(path):
    flat(path, observations=np.zeros((60, 8, 8), np.uint8))


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
    samples.write_minari_by_hand(path, nested=True)
    with h5py.File(path / "data" / "main_data.hdf5", "r+") as file:
        file["episode_2/actions"][1] = 9


@refused("actions: 0.5 at step 0, expected a choice")
def half_a_choice(path):
    samples.write_minari_by_hand(path, nested=True)
    with h5py.File(path / "data" / "main_data.hdf5", "r+") as file:
        for episode in file.values():
            actions = episode["actions"][()] * 1.0
            actions[0] = 0.5
            del episode["actions"]
            episode["actions"] = actions


# Fields and shapes that do not fit.


@refused("timeouts: is missing, so episodes cannot be cut")
def no_timeouts(path):
    flat(path, timeouts=None)


@refused("rewards: is missing")
def no_rewards(path):
    flat(path, rewards=None)


@refused("actions: expected 60 rows as in rewards, got 59")
def one_action_short(path):
    flat(path, actions=np.zeros((59, 2)))


@refused("rewards: no steps")
def no_rows(path):
    arrays = {name: array[:0] for name, array in samples.flat_arrays().items()}
    samples.write_flat(path, arrays)


@refused("rewards: expected one number per step")
def rewards_in_two_columns(path):
    flat(path, rewards=np.zeros((60, 2)))


@refused("rewards: expected one number per step, got shape \\(\\)")
def rewards_as_one_number(path):
    flat(path, rewards=3.0)


@refused("observations: expected 60 rows as in rewards, got a single number")
def observations_as_one_number(path):
    flat(path, observations=3.0)


@refused("observations: is empty: shape \\(0,\\) per step")
def observations_without_columns(path):
    flat(path, observations=np.zeros((60, 0)))


@refused("observations: is a group, expected a dataset")
def observations_as_a_group(path):
    flat(path, observations=None)
    with h5py.File(path, "r+") as file:
        file.create_group("observations")


@refused("rewards: is neither a group nor a dataset")
def rewards_as_a_named_type(path):
    flat(path, rewards=None)
    with h5py.File(path, "r+") as file:
        file["rewards"] = np.dtype("f8")


@refused("episode 2: is missing, though later ones are there")
def episode_left_out(path):
    with edit(path) as file:
        del file["episode_2"]


@refused("episode 1: rewards: is missing")
def episode_without_rewards(path):
    with edit(path) as file:
        del file["episode_1/rewards"]


@refused("episode 3: actions: is missing")
def episode_without_actions(path):
    with edit(path) as file:
        del file["episode_3/actions"]


@refused("episode 3: truncations: is missing")
def episode_without_truncations(path):
    with edit(path) as file:
        del file["episode_3/truncations"]


@refused("episode 0: observations: expected .* rows")
def observations_too_long(path):
    with edit(path) as file:
        replace(file, "episode_0/observations", np.zeros((99, 4), np.float32))


@refused("episode 4: observations: expected shape \\(4,\\) per step, got \\(5,\\)")
def one_more_dimension_in_the_last_episode(path):
    with edit(path) as file:
        rows = len(file["episode_4/observations"])
        replace(file, "episode_4/observations", np.zeros((rows, 5), np.float32))


@refused("episode 1: rewards: no steps")
def empty_episode(path):
    with edit(path) as file:
        replace(file, "episode_1/rewards", np.zeros(0))


@refused("episode 1: terminations: expected .* rows")
def one_flag_short(path):
    with edit(path) as file:
        replace(file, "episode_1/terminations", file["episode_1/terminations"][1:])


@refused("episode_1: is a dataset, expected a group|episode 1")
def episode_that_is_a_dataset(path):
    with edit(path) as file:
        replace(file, "episode_1", np.zeros(3))


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


@refused("terminated_3: expected one flag")
def d3rlpy_flag_of_five(path):
    samples.write_d3rlpy_by_hand(path)
    with h5py.File(path, "r+") as file:
        replace(file, "terminated_3", 5)


@refused("observations_0: is missing")
def d3rlpy_without_observations(path):
    samples.write_d3rlpy_by_hand(path)
    with h5py.File(path, "r+") as file:
        for index in range(12):
            del file[f"observations_{index}"]


@refused("rewards_11: is missing")
def d3rlpy_one_episode_short(path):
    samples.write_d3rlpy_by_hand(path)
    with h5py.File(path, "r+") as file:
        del file["rewards_11"]


@refused("obs: is missing: a raw file")
def robomimic_raw(path):
    samples.write_robomimic_by_hand(path)
    with h5py.File(path, "r+") as file:
        for demo in file["data"].values():
            del demo["obs"], demo["next_obs"]


@refused("episode 5: obs/cube|episode 5: cube: is missing")
def robomimic_one_key_short(path):
    samples.write_robomimic_by_hand(path)
    with h5py.File(path, "r+") as file:
        del file["data/demo_5/obs/cube"]


@refused("episode 2: dones: expected 6 rows, got 2")
def robomimic_dones_too_short(path):
    samples.write_robomimic_by_hand(path)
    with h5py.File(path, "r+") as file:
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
    samples.write_minari_by_hand(path)
    with h5py.File(path / "data" / "main_data.hdf5", "r+") as file:
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


# Small files that ask for much: the budget of a whole file.


@refused("is the same object as 'a0': an object with two names is not read")
def hard_links_that_multiply(path):
    """Ten names for each of ten groups below one another: ten thousand million paths."""
    with edit(path) as file:
        parent = file.create_group("episode_0/infos/tree")
        for _ in range(6):
            child = parent.create_group("a0")
            for number in range(1, 10):
                parent[f"a{number}"] = child
            parent = child


@refused("is the same object as 'episode_0'")
def episodes_that_are_one(path):
    with edit(path) as file:
        for number in range(5, 2000):
            file[f"episode_{number}"] = file["episode_0"]


@refused("extra_0: declares 238.4 MB but stores 0 bytes")
def extras_that_share_one_dataset(path):
    with edit(path) as file:
        steps = len(file["episode_0/rewards"])
        shared = file["episode_0"].create_dataset("extra_0", (steps, 250_000_000 // steps), "u1")
        for number in range(1, 20):
            file[f"episode_0/extra_{number}"] = shared


@refused("declares 15.0 MB but stores 0 bytes, and the file declares 30.0 MB so far")
def many_datasets_that_claim_a_little(path):
    flat(path)
    with h5py.File(path, "r+") as file:
        steps = len(file["rewards"])
        for number in range(50):
            file.create_dataset(f"infos/x{number:02}", (steps, 15 * 2**20 // steps), "u1")


@refused("is stored in 1,999,980 chunks, more than a file of .* needs")
def chunks_of_one_byte(path):
    flat(path)
    with h5py.File(path, "r+") as file:
        steps = len(file["rewards"])
        file.create_dataset("infos/x", (steps, 2_000_000 // steps), "u1", chunks=(1, 1))


@refused("rewards: declares 238.4 MB but stores 0 bytes")
def rewards_that_claim_much(path):
    flat(path, rewards=None)
    with h5py.File(path, "r+") as file:
        file.create_dataset("rewards", (62_500_000,), "f4")


def _write_raw_chunks(path, name, shape, chunk, filters, chunks):
    """A dataset of `u1` with hand-made chunks: [(bytes, mask of the filters left out)]."""
    with h5py.File(path, "r+") as file:
        plan = h5p.create(h5p.DATASET_CREATE)
        plan.set_chunk(chunk)
        for add in filters:
            add(plan)
        made = h5d.create(file.id, name, h5t.NATIVE_UINT8, h5s.create_simple(shape), dcpl=plan)
        for index, (data, mask) in enumerate(chunks):
            made.write_direct_chunk((index * chunk[0],), data, mask)


@refused("holds a chunk that unpacks to more than the 60 bytes it declares|stores .* bytes for a")
def a_chunk_that_unpacks_to_more_than_it_says(path):
    """HDF5 unpacks what a chunk holds, however little its dataset says that it holds."""
    flat(path)
    data = zlib.compress(bytes(2**30), 9)
    filters = [lambda plan: plan.set_deflate(9)]
    _write_raw_chunks(path, b"bomb", (60,), (60,), filters, [(data, 0)])


@refused("bomb: holds a chunk that unpacks to more than the 1048576 bytes it declares")
def chunks_that_unpack_to_hundreds_of_times_what_they_say(path):
    """Each of them little, all of them together minutes of work."""
    own(path)
    data = zlib.compress(bytes(2**29), 9)
    filters = [lambda plan: plan.set_shuffle(), lambda plan: plan.set_deflate(9)]
    chunks = [(data, 0)] * 4
    _write_raw_chunks(path, b"episode_0/bomb", (4 * 2**20,), (2**20,), filters, chunks)


@refused("holds a chunk of 3 bytes, expected 60")
def a_chunk_shorter_than_its_checksum(path):
    """Reading it ends in SIGSEGV inside HDF5 2.0."""
    flat(path)
    filters = [lambda plan: plan.set_fletcher32()]
    _write_raw_chunks(path, b"short", (60,), (60,), filters, [(b"abc", 0)])


@refused("holds a chunk of 1 bytes, expected 30")
def one_chunk_of_many_shorter_than_its_checksum(path):
    flat(path)
    filters = [lambda plan: plan.set_fletcher32()]
    chunks = [(bytes(34), 1), (b"x", 0)]
    _write_raw_chunks(path, b"short", (60,), (30,), filters, chunks)


@refused("short: holds a chunk of 8 bytes, expected 12582912")
def a_chunk_of_which_hdf5_reads_on(path):
    """It copies what lies behind the chunk in memory, or crashes."""
    flat(path)
    size = 12 * 2**20
    filters = [lambda plan: plan.set_shuffle()]
    _write_raw_chunks(path, b"short", (size,), (size,), filters, [(b"12345678", 0)])
    with h5py.File(path, "r+") as file:
        file.create_group("final")
        file.move("short", "final/short")


@refused("short: holds a chunk of 8 bytes, expected 4000")
def a_chunk_whose_compression_was_left_out(path):
    flat(path)
    filters = [lambda plan: plan.set_filter(h5z.FILTER_LZF, 0, (4, 261, 4000))]
    _write_raw_chunks(path, b"short", (4000,), (4000,), filters, [(b"12345678", 1)])


@refused("short: is compressed for chunks of another size")
def compression_that_lies_about_its_chunks(path):
    """The filter takes its buffer's size from the file."""
    flat(path)
    filters = [lambda plan: plan.set_filter(h5z.FILTER_LZF, 0, (4, 261, 4000))]
    _write_raw_chunks(path, b"short", (4000,), (4000,), filters, [(b"12345678", 0)])
    content = path.read_bytes()
    honest, lie = struct.pack("<2I", 261, 4000), struct.pack("<2I", 261, 8)
    assert content.count(honest) == 1
    path.write_bytes(content.replace(honest, lie))


@refused("short: uses filter 6, which is not supported")
def scale_and_offset(path):
    flat(path)
    with h5py.File(path, "r+") as file:
        file.create_dataset("short", data=np.arange(60), scaleoffset=0)


@refused("takes 76.4 MB as numbers with one-hot codes, more than is plausible")
def one_hot_of_a_thousand_choices(path):
    actions = np.zeros(20_000, np.int64)
    actions[0] = 999
    lengths = {
        "observations": np.zeros((20_000, 1), "f4"),
        "actions": actions,
        "rewards": np.zeros(20_000, "f4"),
        "terminals": np.arange(20_000) % 100 == 99,
        "timeouts": np.zeros(20_000, bool),
    }
    with h5py.File(path, "w") as file:
        for name, array in lengths.items():
            file.create_dataset(name, data=array, compression="gzip", compression_opts=9)


@refused("attributes: 5,003, expected at most 1,000")
def five_thousand_attributes(path):
    own(path)
    with h5py.File(path, "r+", libver="latest") as file:
        for number in range(5_000):
            file["episode_0"].attrs[f"a{number}"] = number


@refused("entries in a group, more than a file of .* needs|is a soft link")
def a_million_links(path):
    flat(path)
    with h5py.File(path, "r+", libver="latest") as file:
        group = file.create_group("infos")
        for number in range(300_000):
            group.id.links.create_soft(b"%d" % number, b"/x")


@refused("100,005 columns, more than 100,000")
def a_choice_of_a_hundred_thousand(path):
    with edit(path) as file:
        leaf = {"path": "", "shape": [1], "dtype": "int64", "categories": [100_001], "starts": [0]}
        for name, value in (("action_leaves", json.dumps([leaf])), ("action_names", None)):
            if name in file.attrs:
                del file.attrs[name]
            if value is not None:
                file.attrs[name] = np.bytes_(value)


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
    folder = samples.write_minari_by_hand(path, nested=False)
    with h5py.File(folder / "data" / "main_data.hdf5", "r+") as file:
        for episode in file.values():
            rows = episode["observations"][:]
            del episode["observations"]
            episode["observations/a"], episode["observations/b"] = rows, rows[:1]
    (folder / "data" / "metadata.json").unlink()


@refused("observations: expected .* rows, got 0")
def no_rows_of_observations(path):
    folder = samples.write_minari_by_hand(path, nested=False)
    with h5py.File(folder / "data" / "main_data.hdf5", "r+") as file:
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
    folder = samples.write_minari_by_hand(path, nested=False)
    with h5py.File(folder / "data" / "main_data.hdf5", "r+") as file:
        for episode in file.values():
            steps = len(episode["rewards"])
            del episode["actions"]
            episode["actions"] = np.arange(steps, dtype=np.uint64) % 3
    metadata = folder / "data" / "metadata.json"
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


@refused("next_observations: expected shape \\(60, 3\\), got \\(60, 5\\)")
def next_observations_of_another_width(path):
    flat(path, next_observations=np.zeros((60, 5), "f4"))


def _episode_attributes(path, value):
    flat(path)
    with h5py.File(path, "r+") as file:
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
