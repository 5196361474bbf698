"""The layouts of HDF5 files: how each is recognised, read and, if it can be, written.

- `own`: Minari's episode groups in one file, with the header in root attributes.
  `episode_N/observations` (T + 1 rows; a group of arrays for nested spaces), `actions`, `rewards`,
  `terminations`, `truncations` (T rows), and beside them whatever else belongs to the steps.
- `minari`: episode groups in `main_data.hdf5`, with `metadata.json` beside it. They are read from
  the files alone. Minari's own loader builds the environment that the metadata name when a space is
  missing, which lets a dataset run any code: here the metadata are only ever text.
- `robomimic`: `data/demo_N` with low-dimensional observations by name under `obs`. `dones` may be
  set at every successful step, so it is kept as it is under its own name; an episode counts as
  terminated where its last step is done, and as truncated where it is not.
- `d3rlpy`: its second layout, `observations_0`, `actions_0`, `rewards_0`, `terminated_0`, and so
  on. It holds T observations for T actions, and one flag that tells a terminated episode from one
  that was cut off.
- `d4rl`: all steps below one another, cut into episodes by two flags. Also read as such is d3rlpy's
  first layout, which has `episode_terminals` in the place of `timeouts`.

One entry in `LAYOUTS` makes a layout known to `read`, `write_dataset`, `inspect` and `convert`.
"""

from __future__ import annotations

import errno
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial, reduce
from pathlib import Path
from typing import Annotated, Any

import h5py
import msgspec
import numpy as np
from h5py import h5d, h5g, h5o, h5p, h5s, h5t
from msgspec import Meta
from numpy.typing import NDArray

from grd_offline.core.episodes import as_flags
from grd_offline.core.errors import DataError, clean_text, located
from grd_offline.core.packages import find_version
from grd_offline.core.typing import AnyArray, BoolArray
from grd_offline.io.files import MINARI_FILES
from grd_offline.io.files.plain import read_json
from grd_offline.io.files.storage import (
    OutputFile,
    create_file,
    holds_only,
    replace_file,
    replace_folder,
)
from grd_offline.io.formats.guard import (
    ATTRIBUTE_BYTES,
    SafeDataset,
    SafeGroup,
    UnsupportedType,
    one_line,
    walk,
)
from grd_offline.io.formats.record import (
    Header,
    LazyLeaves,
    Leaf,
    Leaves,
    NewFile,
    OpenFile,
    Record,
    Recording,
    leaves_from_space,
    space_from_leaves,
)

CHUNK_BYTES = 2**20
_BLOCK_BYTES = 8 * 2**20
_LINKS = h5p.create(h5p.LINK_CREATE)
_LINKS.set_create_intermediate_group(True)
_LINKS.set_char_encoding(h5t.CSET_UTF8)


@contextmanager
def create_hdf5(output: OutputFile) -> Iterator[h5py.File]:
    """An HDF5 file that writes through `output`."""
    libver, cache = ("v110", "latest"), 4 * CHUNK_BYTES
    with h5py.File(output, "w", libver=libver, rdcc_nbytes=cache) as file:
        yield file
        output.check()


def _create_dataset(
    group: h5py.Group, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> h5d.DatasetID:
    """An empty dataset with a checksum on every chunk."""
    # h5py's low level: with thousands of short episodes its objects cost more than the writing.
    kind, space = h5t.py_create(dtype, logical=True), h5s.create_simple(shape)
    plan = _plan_storage(shape, dtype)
    return h5d.create(group.id, name.encode(), kind, space, dcpl=plan, lcpl=_LINKS)


@lru_cache(maxsize=1024)
def _plan_storage(shape: tuple[int, ...], dtype: np.dtype[Any]) -> h5p.PropDCID:
    plan = h5p.create(h5p.DATASET_CREATE)
    plan.set_obj_track_times(False)  # the same data give the same file
    if shape and 0 not in shape:
        row = dtype.itemsize * math.prod(shape[1:])
        plan.set_chunk((min(shape[0], max(1, CHUNK_BYTES // row)), *shape[1:]))
        plan.set_fletcher32()
    return plan


def _write_array(group: h5py.Group, name: str, array: AnyArray) -> None:
    """Store an array with a checksum."""
    dataset = _create_dataset(group, name, array.shape, array.dtype)
    if array.size:
        dataset.write(h5s.ALL, h5s.ALL, np.ascontiguousarray(array))


def _write_attributes(group: h5py.Group, texts: Mapping[str, int | float | str]) -> None:
    """Attributes as numbers and fixed-length UTF-8: variable-length text is unsafe to read back."""
    for name, value in texts.items():
        if isinstance(value, str):
            encoded = value.encode("utf-8", "replace") or b"\0"
            dtype = h5py.string_dtype("utf-8", len(encoded))
            group.attrs.create(name, np.array(encoded, dtype=dtype))
        else:
            group.attrs[name] = value


def _verify_hdf5(path: Path) -> None:
    """Read every dataset back, which checks every checksum."""
    try:
        with h5py.File(path, "r", locking=False) as file:
            _read_back(file.id)
    except (OSError, RuntimeError, KeyError, ValueError) as error:
        # Not the name of the file: it is still a staging file, which means nothing to a user.
        raise OSError(errno.EIO, "what was written cannot be read back") from error


def _read_back(group: h5g.GroupID) -> None:
    for name in group:
        found = h5o.open(group, name)
        if isinstance(found, h5g.GroupID):
            _read_back(found)
            continue
        length, *inner = found.shape or (1,)
        if 0 in found.shape:
            continue
        stored = found.get_type()
        row = stored.get_size() * math.prod(inner)
        rows = min(length, max(1, _BLOCK_BYTES // row))
        buffer = np.empty(rows * row, np.uint8)
        for start in range(0, length, rows):
            block, space = (min(rows, length - start), *inner), found.get_space()
            if rows < length:
                space.select_hyperslab((start,) + (0,) * len(inner), block)
            found.read(h5s.create_simple(block), space, buffer, mtype=stored)


def _measure_vector(dataset: SafeDataset, field: str) -> int:
    """The length of a vector with at least one entry; (T, 1) counts as a vector."""
    if len(dataset.shape) == 0 or any(n != 1 for n in dataset.shape[1:]):
        raise DataError(f"expected one number per step, got shape {dataset.shape}", field=field)
    if dataset.shape[0] == 0:
        raise DataError("no steps", field=field)
    return dataset.shape[0]


def _load_vector(group: SafeGroup, field: str) -> AnyArray:
    """A field with one number per step."""
    dataset = group.dataset(field)
    _measure_vector(dataset, field)
    return dataset.read().reshape(-1)


def _list_leaves(group: SafeGroup, field: str) -> tuple[Leaf, ...]:
    """The leaves that a field of an episode holds, from shapes and types alone."""
    leaves = tuple(
        Leaf.find(path.removeprefix(field).removeprefix("/"), dataset, field)
        for path, dataset in walk(group, field)
    )
    if not leaves:
        raise DataError("is empty", field=field)
    return leaves


def _load_leaves(group: SafeGroup, field: str, leaves: Iterable[Leaf]) -> Leaves:
    """The arrays of a field of an episode."""
    arrays: Leaves = {}
    for leaf in leaves:
        *parents, name = filter(None, [field, *leaf.path.split("/")])
        holder = reduce(SafeGroup.group, parents, group)
        arrays[leaf.path] = leaf.read(holder.dataset(name), field)
    return arrays


def _mark_last(steps: int, flag: bool) -> tuple[BoolArray, BoolArray]:
    """Terminations and truncations of an episode that `flag` says to end with a termination."""
    is_last = np.arange(steps) == steps - 1
    return is_last & flag, is_last & (not flag)


def _read_groups(
    parent: SafeGroup,
    names: Sequence[str],
    layout: str,
    header: Header,
    load: Callable[[SafeGroup, Header], Record],
) -> Recording:
    """A recording whose episodes are the groups with these names."""
    lengths = np.empty(len(names), np.int64)
    for index, name in enumerate(names):
        with located(episode=index):
            lengths[index] = _measure_vector(parent.group(name).dataset("rewards"), "rewards")
    return Recording(
        layout,
        header,
        lengths,
        lambda index: load(parent.group(names[index]), header),
        lambda index: _load_vector(parent.group(names[index]), "rewards"),
        parent.notes,
    )


_EPISODE = re.compile(r"episode_(0|[1-9][0-9]{0,9})")
_FIELDS = ("observations", "actions", "rewards", "terminations", "truncations")
FORMAT_ATTRIBUTE, FORMAT_VERSION = "grd_offline_format", 1


def _list_episodes(root: SafeGroup) -> list[str]:
    """The groups of the episodes, which must be numbered from 0 on."""
    numbers = sorted(int(m[1]) for name in root.names() if (m := _EPISODE.fullmatch(name)))
    if not numbers:
        raise DataError("holds no episodes")
    for expected, number in enumerate(numbers):
        if number != expected:
            raise DataError("is missing, though later ones are there", episode=expected)
    return [f"episode_{number}" for number in numbers]


def _load_episode(group: SafeGroup, header: Header) -> Record:
    """Load an episode as it is stored."""

    def read(dataset: SafeDataset, path: str) -> AnyArray:
        with one_line(path):
            return dataset.read()

    extras = {
        path: partial(read, dataset, path)
        for name in group.names()
        if name not in _FIELDS
        for path, dataset in walk(group, name, group.warn)
    }
    attributes = group.attributes()
    return Record(
        _load_leaves(group, "observations", header.observation_leaves),
        _load_leaves(group, "actions", header.action_leaves),
        _load_vector(group, "rewards"),
        _load_vector(group, "terminations"),
        _load_vector(group, "truncations"),
        LazyLeaves(extras),
        {name: value for name, value in attributes.items() if name not in ("id", "total_steps")},
    )


def _write_episodes(
    file: h5py.File, records: Iterable[Record], check: Callable[[], None]
) -> list[int]:
    """Write all records as groups; gives the length of each."""
    lengths: list[int] = []
    for index, record in enumerate(records):
        group = file.create_group(f"episode_{index}")
        _write_attributes(group, record.attributes)
        group.attrs["id"], group.attrs["total_steps"] = index, len(record.rewards)
        for name in _FIELDS:
            arrays = getattr(record, name)
            for path, array in arrays.items() if isinstance(arrays, dict) else [("", arrays)]:
                _write_array(group, f"{name}/{path}" if path else name, array)
        for path, array in record.extras.items():
            _write_array(group, path, array)
        lengths.append(len(record.rewards))
        check()
    if not lengths:
        raise DataError("no episodes to write")
    return lengths


def _is_own(root: SafeGroup) -> bool:
    """Whether the file says it is in this layout."""
    is_marked = FORMAT_ATTRIBUTE in root.attributes()
    return is_marked and any(name.startswith("episode_") for name in root.names())


def _read_own(file: OpenFile) -> Recording:
    attributes = file.root.attributes()
    version = attributes[FORMAT_ATTRIBUTE]
    if version != FORMAT_VERSION:
        raise DataError(
            f"written by another version of this package: format {version}, this one reads "
            f"format {FORMAT_VERSION}"
        )
    header = Header.from_texts(attributes).check()
    return _read_groups(file.root, _list_episodes(file.root), "own", header, _load_episode)


def _write_own(new: NewFile) -> list[str]:
    """Write a file in this layout in full or not at all. There is nothing to warn of."""
    with replace_file(new.path, verify=_verify_hdf5) as output, create_hdf5(output) as file:
        file.attrs[FORMAT_ATTRIBUTE] = FORMAT_VERSION
        _write_attributes(file, new.header.to_texts())
        _write_episodes(file, new.records, output.check)
    return []


LAYOUT_VERSION = "0.5.4"
"""The version of Minari whose layout is written where Minari is not installed."""
_DATA_FILE, _METADATA_FILE = MINARI_FILES
_METADATA_BYTES = 4 * 2**20
_OWN_KEY = "grd_offline"
_REPEATED = "repeated_final_observations"
_WRITTEN = (
    *("total_episodes", "total_steps", "data_format", "dataset_size", "minari_version"),
    _OWN_KEY,
)


def find_data_file(path: Path) -> Path | None:
    """The HDF5 file of a Minari dataset folder (or of its `data` folder)."""
    candidates = (path / _DATA_FILE, path / "data" / _DATA_FILE)
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def _is_minari(root: SafeGroup) -> bool:
    """Whether the file holds Minari's episode groups."""
    first = root.get("episode_0") if "episode_0" in root.names() else None
    return isinstance(first, SafeGroup) and "terminations" in first.names()


def _read_minari(file: OpenFile) -> Recording:
    """A Minari dataset, given its HDF5 file."""
    root, metadata = file.root, _load_metadata(file.path.with_name(_METADATA_FILE))
    own = metadata.get(_OWN_KEY, {})
    if own:
        header = Header.from_texts(own)
    else:
        first = root.group("episode_0")
        header = Header(
            observation_leaves=_find_leaves(first, "observations", metadata),
            action_leaves=_find_leaves(first, "actions", metadata),
            environment=_find_environment(metadata),
            source={name: value for name, value in metadata.items() if name not in _WRITTEN},
        )

    def load(group: SafeGroup, header: Header) -> Record:
        record = _load_episode(group, header)
        if not own.get(_REPEATED):
            return record
        shorter = {path: array[:-1] for path, array in record.observations.items()}
        return replace(record, observations=shorter)

    recording = _read_groups(root, _list_episodes(root), "minari", header, load)
    for text in _find_lies(metadata, header, recording):
        recording.warn(text)
    if not metadata:
        recording.warn(f"no {_METADATA_FILE} beside the file: spaces are read from the arrays")
    return recording


def _write_minari(new: NewFile) -> list[str]:
    """Write a dataset folder that Minari itself loads, all or nothing; gives warnings."""
    flags: dict[str, Any] = {}

    def completed() -> Iterator[Record]:
        for record in new.records:
            final = len(next(iter(record.observations.values()))) == len(record.rewards) + 1
            if flags.setdefault(_REPEATED, not final) is final:
                raise DataError("some episodes have a last observation and some have none")
            arrays = record.observations.items()
            repeated = {path: np.concatenate([array, array[-1:]]) for path, array in arrays}
            yield record if final else replace(record, observations=repeated)

    def verify(folder: Path) -> None:
        _verify_hdf5(folder / "data" / _DATA_FILE)

    with replace_folder(new.path, is_replaceable=_is_dataset, verify=verify) as folder:
        data = folder / "data"
        data.mkdir()
        with create_file(data / _DATA_FILE) as output, create_hdf5(output) as file:
            lengths = _write_episodes(file, completed(), output.check)
        metadata = {
            **_describe(new.header, Path(new.path).name),
            "total_episodes": len(lengths),
            "total_steps": sum(lengths),
            "dataset_size": round((data / _DATA_FILE).stat().st_size / 2**20, 1),
            _OWN_KEY: {**new.header.to_texts(), **flags},
        }
        with create_file(data / _METADATA_FILE) as output:
            output.write(json.dumps(metadata, indent=1).encode())
    warning = (
        "the source has no last observation per episode; Minari expects one, so the one before it "
        "is repeated (and marked as repeated)"
    )
    return [warning] if flags[_REPEATED] else []


def _is_dataset(folder: Path) -> bool:
    """Whether a folder is a dataset of Minari's and holds nothing else."""
    inner = folder / "data" if (folder / "data").is_dir() else folder
    names = [(inner.relative_to(folder) / name).as_posix() for name in MINARI_FILES]
    return (inner / _DATA_FILE).exists() and holds_only(folder, names)


def _load_metadata(path: Path) -> dict[str, Any]:
    try:
        metadata = read_json(path, _METADATA_BYTES, finite=False, inside=path.parent)
    except FileNotFoundError:
        return {}
    except DataError as error:
        raise DataError(error.reason, field=_METADATA_FILE) from error
    if not isinstance(metadata, dict):
        raise DataError("is not a JSON object", field=_METADATA_FILE)
    if not isinstance(metadata.get(_OWN_KEY, {}), dict):
        raise DataError(f"{_OWN_KEY} is not a JSON object", field=_METADATA_FILE)
    return metadata


def _find_leaves(first: SafeGroup, field: str, metadata: dict[str, Any]) -> tuple[Leaf, ...]:
    """The leaves of a field: types from the space, where there is one, checked in the arrays."""
    space = metadata.get(f"{field[:-1]}_space")
    declared = (leaves_from_space(space) if space is not None else None) or ()
    known = {(leaf.check(field).path, leaf.shape): leaf for leaf in declared}
    found = (
        (leaf, known.get((leaf.path, leaf.shape), leaf)) for leaf in _list_leaves(first, field)
    )
    return tuple(replace(leaf, categories=s.categories, starts=s.starts) for leaf, s in found)


def _find_lies(metadata: dict[str, Any], header: Header, recording: Recording) -> Iterator[str]:
    """List the statements of the metadata that the file contradicts."""
    counts = {"total_episodes": len(recording), "total_steps": int(recording.lengths.sum())}
    for name, found in counts.items():
        said = metadata.get(name, found)
        if said != found:
            yield f"{_METADATA_FILE}: {name} is {said!r:.40}, but the file holds {found}"
    for name, leaves in _list_spaces(header):
        if metadata.get(name) is None:
            continue
        declared = leaves_from_space(metadata[name])
        if declared is None:
            yield f"{_METADATA_FILE}: {name} is not understood: read from the arrays"
        elif {(one.path, one.shape) for one in declared} != {(o.path, o.shape) for o in leaves}:
            yield f"{_METADATA_FILE}: {name} does not fit the arrays, which are used"


def _list_spaces(header: Header) -> Iterator[tuple[str, tuple[Leaf, ...]]]:
    return zip(("observation_space", "action_space"), header.leaves.values(), strict=True)


def _find_environment(metadata: dict[str, Any]) -> str | None:
    try:
        identifier = json.loads(metadata["env_spec"])["id"]
    except (KeyError, TypeError, ValueError, RecursionError):
        return None
    return clean_text(identifier) if isinstance(identifier, str) else None


def _describe(header: Header, folder: str) -> dict[str, Any]:
    """What Minari wants to know of a dataset; its id has Minari's form."""
    name = re.sub(r"[^-_\w]", "-", folder).strip("-") or "dataset"
    policy = header.settings.get("policy")
    metadata: dict[str, Any] = {
        "data_format": "hdf5",
        "dataset_id": name if re.search(r"-v\d+$", name) else f"{name}-v0",
        "minari_version": find_version("minari") or LAYOUT_VERSION,
        **({} if policy is None else {"algorithm_name": policy}),
        "description": "Written by grd-offline",
        **header.source,
    }
    for space, leaves in _list_spaces(header):
        # Always a space, never only the name of an environment: loading must not build one.
        if leaves_from_space(header.source.get(space, "")) is None:
            metadata[space] = json.dumps(space_from_leaves(leaves))
    return metadata


_DEMO = re.compile(r"demo_(0|[1-9][0-9]{0,9})")


def _is_robomimic(root: SafeGroup) -> bool:
    """Whether the file has demonstrations."""
    data = root.get("data") if "data" in root.names() else None
    return isinstance(data, SafeGroup) and any(_DEMO.fullmatch(name) for name in data.names())


def _read_robomimic(file: OpenFile) -> Recording:
    """A low-dimensional robomimic file; demonstrations in the order of their numbers."""
    data = file.root.group("data")
    demos = sorted(filter(_DEMO.fullmatch, data.names()), key=lambda name: int(name[5:]))
    first = data.group(demos[0])
    if "obs" not in first.names():
        raise DataError(
            "is missing: a raw file; extract observations with robomimic first", field="obs"
        )
    actions = Leaf.find("", first.dataset("actions"), "actions")
    header = Header(_list_leaves(first, "obs"), (actions,))
    return _read_groups(data, demos, "robomimic", header, _load_demo)


def _load_demo(demo: SafeGroup, header: Header) -> Record:
    demo.group("obs")  # a single array is not of this layout
    observations = _load_leaves(demo, "obs", header.observation_leaves)
    rewards, extras = _load_vector(demo, "rewards"), Leaves()
    if "next_obs" in demo.names():
        following = _load_leaves(demo, "next_obs", header.observation_leaves)
        # T + 1 observations where the next ones follow on; the T stored ones where they do not.
        if all(np.array_equal(array[1:], following[p][:-1]) for p, array in observations.items()):
            pairs = observations.items()
            observations = {p: np.concatenate([array, following[p][-1:]]) for p, array in pairs}
        else:
            demo.warn("next_obs do not follow on from obs: left out")
    for name in demo.names():
        if name in ("obs", "next_obs", "actions", "rewards"):
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
    steps = len(rewards)
    dones = extras.get("dones", np.zeros(steps, np.bool_)).reshape(-1)
    if len(dones) != steps:
        raise DataError(f"expected {steps} rows, got {len(dones)}", field="dones")
    actions = {"": header.action_leaves[0].read(demo.dataset("actions"), "actions")}
    ends = _mark_last(steps, bool(dones[-1]))
    return Record(observations, actions, rewards, *ends, extras, demo.attributes())


def _is_d3rlpy(root: SafeGroup) -> bool:
    """Whether the file has the columns of this layout."""
    return {"columns", "num_episodes", "version"} <= set(root.names())


def _read_d3rlpy(file: OpenFile) -> Recording:
    """A file that d3rlpy 2 wrote."""
    root, names = file.root, set(file.root.names())
    stored = root.dataset("num_episodes")
    if stored.shape != ():
        raise DataError(f"expected one number, got shape {stored.shape}", field="num_episodes")
    episodes = int(stored.read())
    if not 0 < episodes <= len(names):
        raise DataError(f"{episodes} episodes in {len(names)} datasets", field="num_episodes")
    fields = (f"rewards_{index}" for index in range(episodes))
    lengths = np.array([_measure_vector(root.dataset(name), name) for name in fields], np.int64)
    leaves = _list_parts(root, names, "observations")
    action_leaves = _list_parts(root, names, "actions")
    if [leaf.path for leaf in action_leaves] == [""]:
        actions = (root.dataset(f"actions_{index}").read() for index in range(episodes))
        action_leaves = (action_leaves[0].as_choice(actions),)
    header = Header(leaves, action_leaves)

    def load_field(field: str, index: int) -> Leaves:
        arrays: Leaves = {}
        for part, leaf in enumerate(header.leaves[field]):
            name = f"{field}_{index}_{part}" if leaf.path else f"{field}_{index}"
            arrays[leaf.path] = leaf.read(root.dataset(name), field, name)
        return arrays

    def load_rewards(index: int) -> AnyArray:
        return root.dataset(f"rewards_{index}").read().reshape(-1)

    def load(index: int) -> Record:
        terminated = root.dataset(f"terminated_{index}").read()
        if terminated.size != 1 or terminated.item() not in (0, 1):
            raise DataError("expected one flag", field=f"terminated_{index}")
        observations, actions = load_field("observations", index), load_field("actions", index)
        ends = _mark_last(lengths[index], bool(terminated.item()))
        return Record(observations, actions, load_rewards(index), *ends)

    return Recording("d3rlpy", header, lengths, load, load_rewards, root.notes)


def _list_parts(root: SafeGroup, names: set[str], field: str) -> tuple[Leaf, ...]:
    """One leaf, or for tuples one per part: `observations_0_0`, `observations_0_1`, …"""
    first, parts = f"{field}_0", dict[str, str]()
    while first not in names and (name := f"{first}_{len(parts)}") in names:
        parts[f"_index_{len(parts)}"] = name
    parts = parts or {"": first}
    return tuple(Leaf.find(path, root.dataset(name), field, name) for path, name in parts.items())


_ATTRIBUTES, _FINAL = "episode_attributes", "final"
_Attributes = dict[
    Annotated[str, Meta(min_length=1, max_length=200)],
    bool | Annotated[int, Meta(gt=-(2**63), le=2**63 - 1)] | float | str,
]
"""Names with the numbers and texts that HDF5 can hold as attributes."""
_RESERVED = (
    *("observations", "actions", "rewards", "next_observations", _FINAL),
    *("terminals", "timeouts", "episode_terminals", _ATTRIBUTES),
)
_BLOCK = 2**20
_WAITING_BYTES = 2**20
_ATTRIBUTE_BYTES = 200
"""Bytes that the attributes of one episode may take on average if there are many episodes."""
_UNEVEN = "is not in every episode, which a flat file cannot hold"


def _is_d4rl(root: SafeGroup) -> bool:
    """Whether the file has the flat arrays."""
    return {"observations", "actions", "terminals"} <= set(root.names())


def _read_d4rl(file: OpenFile) -> Recording:
    """A flat file; `max_episode_steps` cuts episodes where the file has no timeouts."""
    root, names, rewards = file.root, set(file.root.names()), file.root.dataset("rewards")
    steps = _measure_vector(rewards, "rewards")
    columns: dict[str, SafeDataset] = {
        name: _find_column(root, name, steps)
        for name in ("observations", "actions", "next_observations")
        if name in names
    }
    header = _read_header(root, columns)
    terminations, truncations = _find_ends(root, names, steps, file.max_episode_steps)
    stops = np.flatnonzero(terminations | truncations) + 1
    unfinished = len(stops) == 0 or stops[-1] < steps
    if unfinished:
        stops = np.append(stops, steps)
    starts = np.concatenate([[0], stops[:-1]])
    extras = {
        path: dataset
        for name in sorted(names - {*_RESERVED, "metadata"})
        for path, dataset in walk(root, name, _skip)
        if dataset.shape and dataset.shape[0] == steps
    }
    attributes = _read_attributes(root, len(stops)) if _ATTRIBUTES in names else []
    # Rows of extras that follow the last step of each episode.
    finals = dict(walk(root, _FINAL, _skip)) if _FINAL in names else {}

    def read(dataset: SafeDataset, index: int) -> AnyArray:
        return dataset.read(int(starts[index]), int(stops[index]))

    def read_extra(path: str, index: int) -> AnyArray:
        with one_line(path):
            rows, final = read(extras[path], index), finals.get(f"{_FINAL}/{path}")
            return rows if final is None else np.concatenate([rows, final.read(index, index + 1)])

    def load(index: int) -> Record:
        rows = read(columns["observations"], index)
        extra = {path: partial(read_extra, path, index) for path in extras}
        if "next_observations" in columns:
            next_rows = read(columns["next_observations"], index)
            if not np.array_equal(rows[1:], next_rows[:-1]):
                root.warn(
                    "next_observations do not follow on from observations inside an episode: "
                    "kept as they are, and only the last is used"
                )
                extra["next_observations"] = partial(np.asarray, next_rows)
            rows = np.concatenate([rows, next_rows[-1:].astype(rows.dtype)])
        episode = slice(int(starts[index]), int(stops[index]))
        return Record(
            _split(rows, header.observation_leaves),
            _split(read(columns["actions"], index), header.action_leaves),
            load_rewards(index),
            terminations[episode],
            truncations[episode],
            LazyLeaves(extra),
            attributes[index] if attributes else {},
        )

    def load_rewards(index: int) -> AnyArray:
        return read(rewards, index).reshape(-1)

    recording = Recording("d4rl", header, stops - starts, load, load_rewards, root.notes)
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
        header = Header.from_texts(texts).check()
    else:
        observations, actions = columns["observations"], columns["actions"]
        starts = range(0, actions.shape[0], _BLOCK)
        blocks = (actions.read(start, start + _BLOCK) for start in starts)
        leaf = Leaf.find("", observations, "observations")
        header = Header((leaf,), (Leaf.find("", actions, "actions").as_choice(blocks),))
    for name, leaves in header.leaves.items():
        expected = sum(math.prod(leaf.shape) for leaf in leaves)
        found = math.prod(columns[name].shape[1:])
        if expected != found:
            raise DataError(f"expected {expected} columns, got {found}", field=name)
    if "next_observations" in columns:
        shape, given = columns["observations"].shape, columns["next_observations"].shape
        if shape != given:
            raise DataError(f"expected shape {shape}, got {given}", field="next_observations")
    return header


def _find_column(root: SafeGroup, name: str, steps: int) -> SafeDataset:
    dataset = root.dataset(name)
    if not dataset.shape or dataset.shape[0] != steps:
        got = dataset.shape[0] if dataset.shape else "a single number"
        raise DataError(f"expected {steps} rows as in rewards, got {got}", field=name)
    return dataset


def _find_ends(
    root: SafeGroup, names: set[str], steps: int, max_episode_steps: int | None
) -> tuple[BoolArray, BoolArray]:
    def read(name: str) -> BoolArray:
        return as_flags(_find_column(root, name, steps).read().reshape(-1)[:steps], name)

    terminations = read("terminals")
    if "timeouts" in names:
        return terminations, read("timeouts")
    if "episode_terminals" in names:
        return terminations, read("episode_terminals") & ~terminations
    if max_episode_steps is None:
        raise DataError(
            "is missing, so episodes cannot be cut: pass --max-episode-steps", field="timeouts"
        )
    truncations, begin = np.zeros(steps, np.bool_), 0
    for end in [*np.flatnonzero(terminations), steps - 1]:
        truncations[begin + max_episode_steps - 1 : end + 1 : max_episode_steps] = True
        begin = int(end) + 1
    return terminations, truncations & ~terminations


def _skip(reason: str) -> None:
    """Datasets of other types than numbers are left out."""


def _read_attributes(root: SafeGroup, episodes: int) -> list[_Attributes]:
    try:
        dataset = root.dataset(_ATTRIBUTES)
        if dataset.nbytes > max(ATTRIBUTE_BYTES, _ATTRIBUTE_BYTES * episodes):
            raise ValueError("size")
        stored = dataset.read().astype(np.uint8).tobytes()
        attributes = msgspec.json.decode(stored, type=list[_Attributes])
        if len(attributes) != episodes:
            raise ValueError("count")
    except (ValueError, TypeError, RecursionError) as error:
        raise DataError("is damaged", field=_ATTRIBUTES) from error
    return attributes


def _split(rows: AnyArray, leaves: tuple[Leaf, ...]) -> Leaves:
    """The flat columns of a field as its leaves."""
    if [leaf.path for leaf in leaves] == [""]:
        return {"": rows.reshape(len(rows), *leaves[0].shape)}
    ends = np.cumsum([math.prod(leaf.shape) for leaf in leaves])
    return {
        leaf.path: part.reshape(len(rows), *leaf.shape).astype(leaf.dtype)
        for leaf, part in zip(leaves, np.split(rows, ends[:-1], axis=1), strict=True)
    }


def _join(leaves: Leaves) -> AnyArray:
    if list(leaves) == [""]:
        return leaves[""]
    return np.concatenate([array.reshape(len(array), -1) for array in leaves.values()], axis=1)


def _write_d4rl(new: NewFile) -> list[str]:
    """Write a flat file with timeouts and next_observations, all or nothing; gives warnings."""
    with replace_file(new.path, verify=_verify_hdf5) as output, create_hdf5(output) as file:
        _write_attributes(file, new.header.to_texts())
        table, attributes = _Table(file, new.lengths), []
        for index, record in enumerate(new.records):
            with located(episode=index):
                _put_record(table, record)
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


def _put_record(table: _Table, record: Record) -> None:
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


@dataclass
class _Column:
    """A flat dataset, the rows that wait for it, and how much of it is filled."""

    dataset: h5py.Dataset
    episodes: int = 0
    filled: int = 0
    waiting: list[AnyArray] = field(default_factory=list)

    def write(self) -> None:
        rows = np.concatenate(self.waiting)
        self.dataset[self.filled : self.filled + len(rows)] = rows
        self.filled += len(rows)
        self.waiting.clear()


class _Table:
    """Flat datasets that are filled episode by episode.

    Rows wait until they make a block: writing each of many short episodes takes far longer.
    """

    def __init__(self, file: h5py.File, lengths: NDArray[np.int64]) -> None:
        self._file, self._lengths, self._episode = file, lengths, 0
        self._columns: dict[str, _Column] = {}

    def put(self, path: str, rows: AnyArray, *, is_final: bool = False) -> None:
        """The rows of this episode, or the one row that follows its last step."""
        expected = 1 if is_final else int(self._lengths[self._episode])
        if len(rows) != expected:
            raise DataError(f"expected {expected} rows, got {len(rows)}", field=path)
        if path not in self._columns:
            if self._episode:
                raise DataError(_UNEVEN, field=path)
            total = len(self._lengths) if is_final else int(self._lengths.sum())
            new = _create_dataset(self._file, path, (total, *rows.shape[1:]), rows.dtype)
            self._columns[path] = _Column(h5py.Dataset(new))
        column = self._columns[path]
        kind, shape = column.dataset.dtype, column.dataset.shape[1:]
        if shape != rows.shape[1:] or kind != rows.dtype:
            raise DataError(
                f"{rows.dtype} of shape {rows.shape[1:]} per step, earlier episodes have "
                f"{kind} of shape {shape}",
                field=path,
            )
        column.waiting.append(rows)
        column.episodes += 1
        if len(column.waiting) * rows.nbytes >= _WAITING_BYTES:
            column.write()

    def next_episode(self) -> None:
        """Go on to the next episode; every column must have been filled for this one."""
        self._episode += 1
        for path, column in self._columns.items():
            if column.episodes != self._episode:
                raise DataError(_UNEVEN, episode=self._episode - 1, field=path)

    def flush(self) -> None:
        """Write all rows that wait."""
        for column in self._columns.values():
            if column.waiting:
                column.write()


@dataclass(frozen=True)
class Layout:
    """One layout of HDF5 files."""

    name: str
    matches: Callable[[SafeGroup], bool]
    """Whether a file is in this layout."""
    read: Callable[[OpenFile], Recording]
    write: Callable[[NewFile], list[str]] | None = None
    """Writes a file in full or not at all, and gives warnings. None: it is only read."""
    needs_lengths: bool = False
    """Whether writing needs the lengths of all episodes beforehand."""


LAYOUTS = [
    Layout("own", _is_own, _read_own, _write_own),
    Layout("minari", _is_minari, _read_minari, _write_minari),
    Layout("d3rlpy", _is_d3rlpy, _read_d3rlpy),
    Layout("d4rl", _is_d4rl, _read_d4rl, _write_d4rl, needs_lengths=True),
    Layout("robomimic", _is_robomimic, _read_robomimic),
]
"""The first layout that matches a file reads it."""


def register_layout(layout: Layout) -> None:
    """Add a layout of another package. It comes after the layouts that are known already."""
    if any(layout.name == known.name for known in LAYOUTS):
        raise ValueError(f"there is another layout called {layout.name!r}")
    LAYOUTS.append(layout)


def list_writable_layouts() -> list[str]:
    """The names of the layouts that can be written."""
    return [layout.name for layout in LAYOUTS if layout.write is not None]


def read_file(file: OpenFile) -> Recording:
    """Read a file in the first layout that matches it."""
    for layout in LAYOUTS:
        if layout.matches(file.root):
            return layout.read(file)
    known = ", ".join(layout.name for layout in LAYOUTS)
    names = ", ".join(sorted(file.root.names())[:8]) or "nothing"
    raise DataError(f"layout not recognised ({known}); the file holds {names}")


def find_writer(name: str, *, has_lengths: bool) -> Callable[[NewFile], list[str]]:
    """The function that writes the layout of that name."""
    for layout in LAYOUTS:
        if layout.name == name and layout.write is not None:
            if layout.needs_lengths and not has_lengths:
                raise ValueError(f"the {name} layout needs the lengths of the episodes")
            return layout.write
    known = ", ".join(list_writable_layouts())
    raise ValueError(f"layout: expected one of {known}, got {name!r}")
