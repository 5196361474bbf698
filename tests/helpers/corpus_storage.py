"""Part of the corpus: links, storage, and sizes that are not what they seem."""

from __future__ import annotations

import json
import struct
import zlib

import h5py
import numpy as np
from broken_files import (
    edit,
    edit_flat,
    flat,
    own,
    refused,
)
from h5py import h5d, h5p, h5s, h5t, h5z

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
    with edit_flat(path, observations=None) as file:
        layout = h5py.VirtualLayout((60, 3), "f4")
        layout[:] = h5py.VirtualSource(other, "x", (60, 3))
        file.create_virtual_dataset("observations", layout)


@refused("infos/again: is the same object as 'infos': an object with two names is not read")
def group_that_contains_itself(path):
    with edit(path) as file:
        file["episode_0/infos/again"] = file["episode_0/infos"]


@refused("actions: is a soft link")
def dangling_soft_link(path):
    with edit_flat(path, actions=None) as file:
        file["actions"] = h5py.SoftLink("/nowhere")


@refused("rewards: is a soft link")
def soft_link_to_itself(path):
    with edit_flat(path, rewards=None) as file:
        file["rewards"] = h5py.SoftLink("/rewards")


# Sizes that are not what they seem.


@refused("declares 3.6 TB but stores 0 bytes")
def declares_terabytes(path):
    with edit(path) as file:
        del file["episode_0/observations"]
        file["episode_0"].create_dataset("observations", (250_000_000_000, 4), "f4")


@refused("declares 3.6 TB but stores 0 bytes")
def declares_terabytes_in_chunks(path):
    with edit_flat(path, observations=None) as file:
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
        chunk = zlib.compress(block.tobytes())
        for start in range(0, steps, len(block)):
            bomb.id.write_direct_chunk((start, 0), chunk)


@refused("is stored in chunks of 3.0 GB")
def one_huge_chunk(path):
    with edit_flat(path, observations=None) as file:
        shape = (60, 3 * 2**28 // 60 + 1)
        file.create_dataset("observations", shape, "f4", chunks=shape, compression="gzip")


@refused("is compressed more than once")
def stacked_deflate(path):
    with edit_flat(path, observations=None) as file:
        plan = h5p.create(h5p.DATASET_CREATE)
        plan.set_chunk((60, 3))
        for _ in range(3):
            plan.set_deflate(9)
        h5d.create(file.id, b"observations", h5t.IEEE_F32LE, h5s.create_simple((60, 3)), plan)


@refused("uses filter 32015, which is not supported")
def unknown_filter(path):
    with edit_flat(path, observations=None) as file:
        plan = h5p.create(h5p.DATASET_CREATE)
        plan.set_chunk((60, 3))
        plan.set_filter(32015, h5py.h5z.FLAG_OPTIONAL, ())
        h5d.create(file.id, b"observations", h5t.IEEE_F32LE, h5s.create_simple((60, 3)), plan)


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
    with edit_flat(path) as file:
        steps = len(file["rewards"])
        for number in range(50):
            file.create_dataset(f"infos/x{number:02}", (steps, 15 * 2**20 // steps), "u1")


@refused("is stored in 1,999,980 chunks, more than a file of .* needs")
def chunks_of_one_byte(path):
    with edit_flat(path) as file:
        steps = len(file["rewards"])
        file.create_dataset("infos/x", (steps, 2_000_000 // steps), "u1", chunks=(1, 1))


@refused("rewards: declares 238.4 MB but stores 0 bytes")
def rewards_that_claim_much(path):
    with edit_flat(path, rewards=None) as file:
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


def _compress_zeros(megabytes):
    """Many zeros in little time: one piece is compressed and repeated."""
    stream = zlib.compressobj(9)
    first, piece = (
        stream.compress(bytes(2**20)) + stream.flush(zlib.Z_FULL_FLUSH) for _ in range(2)
    )
    return first + piece * (megabytes - 1)


@refused("holds a chunk that unpacks to more than the 60 bytes it declares|stores .* bytes for a")
def a_chunk_that_unpacks_to_more_than_it_says(path):
    """HDF5 unpacks what a chunk holds, however little its dataset says that it holds."""
    flat(path)
    data = _compress_zeros(1024)
    filters = [lambda plan: plan.set_deflate(9)]
    _write_raw_chunks(path, b"bomb", (60,), (60,), filters, [(data, 0)])


@refused("bomb: holds a chunk that unpacks to more than the 1048576 bytes it declares")
def chunks_that_unpack_to_hundreds_of_times_what_they_say(path):
    """Each of them little, all of them together minutes of work."""
    own(path)
    data = _compress_zeros(512)
    filters = [lambda plan: plan.set_shuffle(), lambda plan: plan.set_deflate(9)]
    chunks = [(data, 0)] * 4
    _write_raw_chunks(path, b"episode_0/bomb", (4 * 2**20,), (2**20,), filters, chunks)


@refused("cannot be read: damaged .*incorrect data check")
def a_chunk_whose_last_bytes_are_wrong(path):
    """It is one byte longer than the 60 and the 4 of a checksum, and that byte is looked for."""
    flat(path)
    data = zlib.compress(bytes(65))
    filters = [lambda plan: plan.set_deflate(9)]
    wrong = data[:-1] + bytes([data[-1] ^ 1])
    _write_raw_chunks(path, b"bomb", (60,), (60,), filters, [(wrong, 0)])


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
    with edit_flat(path) as file:
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
