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
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from h5py import h5d, h5g, h5o, h5p, h5s, h5t
from numpy.typing import NDArray

from grd_offline.core.episodes import Provenance, as_flags, list_label_columns, read_names
from grd_offline.core.errors import DataError, clean_text
from grd_offline.core.packages import find_version
from grd_offline.core.typing import AnyArray
from grd_offline.io.files.plain import read_json
from grd_offline.io.files.storage import OutputFile, create_file, replace_file, replace_folder
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
    as_choice,
    check_header,
    check_leaf,
    check_path,
    check_start,
    find_leaf,
    leaves_from_space,
    plain_dtype,
    read_rows,
    space_from_leaves,
)

CHUNK_BYTES = 2**20
_TABLE = "table"
"""What the settings in a file have the provenance under."""
_BLOCK_BYTES = 8 * 2**20


@contextmanager
def create_hdf5(output: OutputFile) -> Iterator[h5py.File]:
    """An HDF5 file that writes through `output`."""
    file = h5py.File(output, "w", libver=("v110", "latest"), rdcc_nbytes=4 * CHUNK_BYTES)
    try:
        yield file
        output.check()
    finally:
        file.close()


def create_dataset(
    group: h5py.Group, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> h5d.DatasetID:
    """An empty dataset with a checksum on every chunk."""
    # h5py's low level: with thousands of short episodes its objects cost more than the writing.
    return h5d.create(
        group.id,
        name.encode(),
        h5t.py_create(dtype, logical=True),
        h5s.create_simple(shape),
        dcpl=_storage_plan(shape, dtype),
        lcpl=_link_plan(),
    )


@lru_cache(maxsize=1024)
def _storage_plan(shape: tuple[int, ...], dtype: np.dtype[Any]) -> h5p.PropDCID:
    plan = h5p.create(h5p.DATASET_CREATE)
    plan.set_obj_track_times(False)  # the same data give the same file
    if shape and 0 not in shape:
        row = dtype.itemsize * int(np.prod(shape[1:], dtype=np.int64))
        plan.set_chunk((min(shape[0], max(1, CHUNK_BYTES // row)), *shape[1:]))
        plan.set_fletcher32()
    return plan


@lru_cache(maxsize=1)
def _link_plan() -> h5p.PropLCID:
    plan = h5p.create(h5p.LINK_CREATE)
    plan.set_create_intermediate_group(True)
    plan.set_char_encoding(h5t.CSET_UTF8)
    return plan


def write_array(group: h5py.Group, name: str, array: AnyArray) -> None:
    """Store an array with a checksum."""
    dataset = create_dataset(group, name, array.shape, array.dtype)
    if array.size:
        dataset.write(h5s.ALL, h5s.ALL, np.ascontiguousarray(array))


def verify_hdf5(path: Path) -> None:
    """Read every dataset back, which checks every checksum."""
    try:
        with h5py.File(path, "r", locking=False) as file:
            _read_back(file.id, np.empty(0, np.uint8))
    except (OSError, RuntimeError, KeyError, ValueError) as error:
        # Not the name of the file: it is still a staging file, which means nothing to a user.
        raise OSError(errno.EIO, "what was written cannot be read back") from error


def _read_back(group: h5g.GroupID, buffer: AnyArray) -> AnyArray:
    """Read all below a group into a buffer, which grows where it must and is handed back."""
    for name in group:
        found = h5o.open(group, name)
        if isinstance(found, h5g.GroupID):
            buffer = _read_back(found, buffer)
            continue
        shape, stored = found.shape, found.get_type()
        if 0 in shape:
            continue
        row = stored.get_size() * int(np.prod(shape[1:], dtype=np.int64))
        rows = max(1, _BLOCK_BYTES // row) if shape else 1
        size = row * min(rows, shape[0]) if shape else row
        if len(buffer) < size:
            buffer = np.empty(size, np.uint8)
        if not shape or rows >= shape[0]:
            found.read(h5s.ALL, h5s.ALL, buffer, mtype=stored)
            continue
        for start in range(0, shape[0], rows):
            block = (min(rows, shape[0] - start), *shape[1:])
            space = found.get_space()
            space.select_hyperslab((start,) + (0,) * (len(shape) - 1), block)
            found.read(h5s.create_simple(block), space, buffer, mtype=stored)
    return buffer


def header_as_texts(header: Header) -> dict[str, str]:
    """A header as a few texts: plain where it is one, JSON otherwise."""
    names = {"observation_names": header.observation_names, "action_names": header.action_names}
    columns = {field: list_label_columns(known or ()) for field, known in names.items()}
    values = {
        "environment": header.environment,
        **names,
        "label_columns": columns if any(columns.values()) else None,
        "observation_leaves": [asdict(leaf) for leaf in header.observation_leaves],
        "action_leaves": [asdict(leaf) for leaf in header.action_leaves],
        "delay": header.delay,
        "discount": header.discount,
        "settings": {
            **header.settings,
            **({_TABLE: header.provenance.to_json()} if header.provenance else {}),
        },
        "truth": dict(header.truth),
        "source": dict(header.source),
    }
    return {
        name: value if isinstance(value, str) else json.dumps(value, sort_keys=True)
        for name, value in values.items()
        if value not in (None, {})
    }


def header_from_texts(texts: Mapping[str, Any]) -> Header:
    """The header that `header_as_texts` took apart."""
    try:
        environment = texts.get("environment")
        settings = _mapping(texts.get("settings"))
        return Header(
            observation_leaves=_parse_leaves(texts["observation_leaves"]),
            action_leaves=_parse_leaves(texts["action_leaves"]),
            observation_names=_names(texts, "observation_names"),
            action_names=_names(texts, "action_names"),
            environment=None if environment is None else clean_text(str(environment)),
            delay=_checked_delay(texts.get("delay")),
            discount=_checked_discount(json.loads(texts.get("discount", "1.0"))),
            provenance=Provenance.from_json(settings.pop(_TABLE, None)),
            settings=settings,
            truth=_mapping(texts.get("truth")),
            source=_mapping(texts.get("source")),
        )
    except (
        KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError,
    ) as error:  # fmt: skip
        name = f"{error.args[0]!r} " if isinstance(error, KeyError) else ""
        raise DataError(f"{name}missing or damaged", field="attributes") from error


def write_attributes(group: h5py.Group, texts: Mapping[str, int | float | str]) -> None:
    """Attributes as numbers and fixed-length UTF-8: variable-length text is unsafe to read back."""
    for name, value in texts.items():
        if isinstance(value, str):
            encoded = value.encode("utf-8", "replace") or b"\0"
            dtype = h5py.string_dtype("utf-8", len(encoded))
            group.attrs.create(name, np.array(encoded, dtype=dtype))
        else:
            group.attrs[name] = value


def _parse_leaves(text: str) -> tuple[Leaf, ...]:
    leaves = []
    for entry in json.loads(text):
        categories = entry["categories"]
        leaves.append(
            Leaf(
                path=check_path(clean_text(str(entry["path"]))),
                shape=tuple(_count(n, least=0) for n in entry["shape"]),
                dtype=plain_dtype(entry["dtype"]),
                categories=None if categories is None else tuple(_count(n) for n in categories),
                starts=tuple(check_start(n) for n in entry["starts"]),
            )
        )
    if not leaves or len({leaf.path for leaf in leaves}) < len(leaves):
        raise ValueError("leaves")
    return tuple(leaves)


def _count(number: Any, least: int = 1) -> int:
    if not isinstance(number, int) or not least <= number < 2**20:
        raise ValueError(f"{number} entries")
    return number


def _names(texts: Mapping[str, Any], field: str) -> tuple[str, ...] | None:
    if texts.get(field) is None:
        return None
    columns = _mapping(texts.get("label_columns")).get(field)
    return read_names([clean_text(str(name)) for name in json.loads(texts[field])], columns)


def _checked_delay(text: str | None) -> int | str | None:
    if text is None or text in ("end", "step"):
        return text
    return _count(json.loads(text))


def _checked_discount(value: Any) -> float:
    if not 0 < float(value) <= 1:
        raise ValueError("discount")
    return float(value)


def _mapping(text: str | None) -> dict[str, Any]:
    return {} if text is None else dict(json.loads(text))


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


LAYOUT_VERSION = "0.5.4"
"""The version of Minari whose layout is written where Minari is not installed."""
DATA_FILE = "main_data.hdf5"
_METADATA_FILE = "metadata.json"
_METADATA_BYTES = 4 * 2**20
_OWN_KEY = "grd_offline"
_REPEATED = "repeated_final_observations"
_WRITTEN = (
    "total_episodes",
    "total_steps",
    "data_format",
    "dataset_size",
    "minari_version",
    _OWN_KEY,
)


def find_data_file(path: Path) -> Path | None:
    """The HDF5 file of a Minari dataset folder (or of its `data` folder)."""
    for candidate in (path / DATA_FILE, path / "data" / DATA_FILE):
        if candidate.is_file():
            return candidate
    return None


def is_minari(root: SafeGroup) -> bool:
    """Whether the file holds Minari's episode groups."""
    if "episode_0" not in root.names():
        return False
    first = root.get("episode_0")
    return isinstance(first, SafeGroup) and "terminations" in first.names()


def read_minari(file: OpenFile) -> Recording:
    """A Minari dataset, given its HDF5 file."""
    root, metadata = file.root, _load_metadata(file.path.with_name(_METADATA_FILE))
    own = metadata.get(_OWN_KEY, {})
    if own:
        header = header_from_texts(own)
    else:
        first = root.group("episode_0")
        header = Header(
            observation_leaves=_find_leaves(
                first, "observations", metadata.get("observation_space")
            ),
            action_leaves=_find_leaves(first, "actions", metadata.get("action_space")),
            environment=_environment(metadata),
            source={name: value for name, value in metadata.items() if name not in _WRITTEN},
        )
    repeated = bool(own.get(_REPEATED)) if isinstance(own, dict) else False

    def leave_out_last(record: Record) -> Record:
        shorter = {path: array[:-1] for path, array in record.observations.items()}
        return replace(record, observations=shorter)

    recording = read_groups(root, "minari", header, leave_out_last if repeated else None)
    for text in _find_lies(metadata, header, recording):
        recording.warn(text)
    if not metadata:
        recording.warn(f"no {_METADATA_FILE} beside the file: spaces are read from the arrays")
    return recording


def write_minari(new: NewFile) -> list[str]:
    """Write a dataset folder that Minari itself loads, all or nothing; gives warnings."""
    flags: dict[str, Any] = {}

    def completed() -> Iterator[Record]:
        for record in new.records:
            final = len(next(iter(record.observations.values()))) == len(record.rewards) + 1
            if flags.setdefault(_REPEATED, not final) is final:
                raise DataError("some episodes have a last observation and some have none")
            yield record if final else _with_final(record)

    def verify(folder: Path) -> None:
        verify_hdf5(folder / "data" / DATA_FILE)

    with replace_folder(new.path, is_replaceable=_is_dataset, verify=verify) as folder:
        data = folder / "data"
        data.mkdir()
        with create_file(data / DATA_FILE) as output, create_hdf5(output) as file:
            lengths = write_episodes(file, completed(), output.check)
        metadata = _metadata(new.header, _dataset_id(Path(new.path)))
        metadata["total_episodes"] = len(lengths)
        metadata["total_steps"] = int(lengths.sum())
        metadata["dataset_size"] = round((data / DATA_FILE).stat().st_size / 2**20, 1)
        metadata[_OWN_KEY] = {**header_as_texts(new.header), **flags}
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
    names = {entry.name for entry in inner.iterdir()}
    is_alone = inner == folder or {entry.name for entry in folder.iterdir()} == {"data"}
    return is_alone and DATA_FILE in names and names <= {DATA_FILE, _METADATA_FILE}


def _load_metadata(path: Path) -> dict[str, Any]:
    try:
        metadata = read_json(path, _METADATA_BYTES, finite=False)
    except FileNotFoundError:
        return {}
    except DataError as error:
        raise DataError(error.reason, field=_METADATA_FILE) from error
    if not isinstance(metadata, dict):
        raise DataError("is not a JSON object", field=_METADATA_FILE)
    own = metadata.get(_OWN_KEY, {})
    if not isinstance(own, dict):
        raise DataError(f"{_OWN_KEY} is not a JSON object", field=_METADATA_FILE)
    return metadata


def _find_leaves(first: SafeGroup, field: str, space: Any) -> tuple[Leaf, ...]:
    """The leaves of a field: types from the space, where there is one, checked in the arrays."""
    declared = leaves_from_space(space) if space is not None else None
    for leaf in declared or ():
        check_leaf(leaf, field)
    found = leaves_in(first, field)
    if declared is None:
        return found
    by_path = {leaf.path: leaf for leaf in declared}
    return tuple(
        replace(leaf, categories=by_path[leaf.path].categories, starts=by_path[leaf.path].starts)
        if leaf.path in by_path and by_path[leaf.path].shape == leaf.shape
        else leaf
        for leaf in found
    )


def _find_lies(metadata: dict[str, Any], header: Header, recording: Recording) -> Iterator[str]:
    """List the statements of the metadata that the file contradicts."""
    for name, found in (
        ("total_episodes", len(recording)),
        ("total_steps", int(recording.lengths.sum())),
    ):
        said = metadata.get(name, found)
        if said != found:
            yield f"{_METADATA_FILE}: {name} is {said!r:.40}, but the file holds {found}"
    for name, leaves in _spaces(header):
        if metadata.get(name) is None:
            continue
        declared = leaves_from_space(metadata[name])
        expected = {leaf.path: leaf.shape for leaf in leaves}
        if declared is None:
            yield f"{_METADATA_FILE}: {name} is not understood: read from the arrays"
        elif {leaf.path: leaf.shape for leaf in declared} != expected:
            yield f"{_METADATA_FILE}: {name} does not fit the arrays, which are used"


def _spaces(header: Header) -> Iterator[tuple[str, tuple[Leaf, ...]]]:
    yield from (
        ("observation_space", header.observation_leaves),
        ("action_space", header.action_leaves),
    )


def _environment(metadata: dict[str, Any]) -> str | None:
    try:
        identifier = json.loads(metadata["env_spec"])["id"]
    except (KeyError, TypeError, ValueError, RecursionError):
        return None
    return clean_text(identifier) if isinstance(identifier, str) else None


def _metadata(header: Header, identifier: str) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "data_format": "hdf5",
        "dataset_id": identifier,
        "minari_version": find_version("minari") or LAYOUT_VERSION,
        "algorithm_name": header.settings.get("policy"),
        "description": "Written by grd-offline",
    }
    metadata = {name: value for name, value in metadata.items() if value is not None}
    metadata.update(header.source)
    for name, leaves in _spaces(header):
        # Always a space, never only the name of an environment: loading must not build one.
        if leaves_from_space(header.source.get(name, "")) is None:
            metadata[name] = json.dumps(space_from_leaves(leaves))
    return metadata


def _dataset_id(path: Path) -> str:
    """A name in Minari's form, from the folder's name."""
    name = re.sub(r"[^-_\w]", "-", path.name).strip("-") or "dataset"
    return name if re.search(r"-v\d+$", name) else f"{name}-v0"


def _with_final(record: Record) -> Record:
    repeated = {
        path: np.concatenate([array, array[-1:]]) for path, array in record.observations.items()
    }
    return replace(record, observations=repeated)


_DEMO = re.compile(r"demo_(0|[1-9][0-9]{0,9})")
_DEMO_FIELDS = ("obs", "next_obs", "actions", "rewards")


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
        return _load_demo(data.group(demos[index]), int(lengths[index]), header)

    return Recording(
        layout="robomimic",
        warnings=data.notes,
        header=header,
        lengths=lengths,
        load=load,
        load_rewards=lambda index: load_vector(data.group(demos[index]), "rewards"),
    )


def _load_demo(demo: SafeGroup, steps: int, header: Header) -> Record:
    names = demo.names()
    demo.group("obs")  # a single array is not of this layout
    observations = load_leaves(demo, "obs", header.observation_leaves)
    extras: Leaves = {}
    if "next_obs" in names:
        next_observations = load_leaves(demo, "next_obs", header.observation_leaves)
        observations = _with_last(demo, observations, next_observations)
    for name in names:
        if name in _DEMO_FIELDS:
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
    observation_leaves = _list_leaves(root, names, "observations")
    action_leaves = _list_leaves(root, names, "actions")
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
            observations=_load_parts(root, "observations", index, observation_leaves),
            actions=_load_parts(root, "actions", index, action_leaves),
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


def _list_leaves(root: SafeGroup, names: set[str], field: str) -> tuple[Leaf, ...]:
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


def _load_parts(root: SafeGroup, field: str, index: int, leaves: tuple[Leaf, ...]) -> Leaves:
    arrays: Leaves = {}
    for part, leaf in enumerate(leaves):
        name = f"{field}_{index}_{part}" if leaf.path else f"{field}_{index}"
        arrays[leaf.path] = read_rows(root.dataset(name), leaf, field, name)
    return arrays


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
    Layout("own", is_own, read_own, write_own),
    Layout("minari", is_minari, read_minari, write_minari),
    Layout("d3rlpy", is_d3rlpy, read_d3rlpy),
    Layout("d4rl", is_d4rl, read_d4rl, write_d4rl, needs_lengths=True),
    Layout("robomimic", is_robomimic, read_robomimic),
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
