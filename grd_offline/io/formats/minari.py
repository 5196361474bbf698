"""Minari's layout: episode groups in `main_data.hdf5`, with `metadata.json` beside it.

Read from the files alone. Minari's own loader builds the environment that the metadata name when
a space is missing, which lets a dataset run any code: here the metadata are only ever text.

Minari's own library is imported only when it is needed. It lists and downloads datasets
(`minari:ID`), but never opens one.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from grd_offline.core.errors import DataError, clean_text
from grd_offline.core.versions import find_version
from grd_offline.io.files.plain import read_json
from grd_offline.io.files.storage import create_file, replace_folder
from grd_offline.io.formats.guard import SafeGroup
from grd_offline.io.formats.hdf5 import create_hdf5, header_as_texts, header_from_texts, verify_hdf5
from grd_offline.io.formats.leaves import check_leaf, leaves_from_space, space_from_leaves
from grd_offline.io.formats.own import (
    leaves_in,
    read_groups,
    write_episodes,
)
from grd_offline.io.formats.record import Header, Leaf, NewFile, OpenFile, Record, Recording

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
            observation_leaves=_leaves(first, "observations", metadata.get("observation_space")),
            action_leaves=_leaves(first, "actions", metadata.get("action_space")),
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


def _leaves(first: SafeGroup, field: str, space: Any) -> tuple[Leaf, ...]:
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


PREFIX = "minari:"
_MOST_LISTED = 5


def find_minari_file(identifier: str) -> Path:
    """The HDF5 file of the dataset with this id, which is downloaded if it is not there yet."""
    root = os.environ.get("MINARI_DATASETS_PATH")
    datasets = Path(root) if root else Path.home() / ".minari" / "datasets"
    folder = datasets / identifier
    found = find_data_file(folder) if identifier else None
    if found is None:
        if re.fullmatch(r"[-_\w./]*[-_\w.]-v[0-9]+", identifier) is None:
            raise DataError(f"expected an id such as D4RL/door/human-v2{_suggest(identifier)}")
        _download(identifier)
        found = find_data_file(folder)
    if found is None:
        raise DataError(
            f"there is no HDF5 file in {folder}; if a download was interrupted, delete the folder"
        )
    return found


def list_minari_datasets(*, remote: bool = False, prefix: str | None = None) -> list[str]:
    """The ids of Minari's datasets on this computer, or of those on its server.

    With `prefix`, only ids in that namespace are listed, such as `D4RL/door`.
    """
    import minari

    with _quiet():
        if remote:
            return sorted(minari.list_remote_datasets(prefix=prefix))
        return sorted(minari.list_local_datasets(prefix=prefix))


def _download(identifier: str) -> None:
    import minari

    try:
        with _quiet():
            minari.download_dataset(identifier)
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        # The other errors of Minari are those of the network and of missing packages.
        if type(error) is ValueError or type(error).__name__ == "RepositoryNotFoundError":
            raise DataError(f"no Minari dataset has this id{_suggest(identifier)}") from error
        raise DataError(
            f"is not on this computer and cannot be downloaded: {reason:.300}{_suggest(identifier)}"
        ) from error


def _suggest(identifier: str) -> str:
    """The ids that are nearest to one that was not found, as the end of a message."""
    here = _list_or_nothing(remote=False, prefix=None)
    namespace = identifier.rpartition("/")[0]
    there = _list_or_nothing(remote=True, prefix=namespace) if namespace else []
    near = difflib.get_close_matches(identifier, [*here, *there], n=3)
    if near:
        return f"; did you mean {' or '.join(dict.fromkeys(near))}?"
    if here:
        more = ", ..." if len(here) > _MOST_LISTED else ""
        return f"; on this computer are {', '.join(here[:_MOST_LISTED])}{more}"
    return ""


def _list_or_nothing(*, remote: bool, prefix: str | None) -> list[str]:
    try:
        return list_minari_datasets(remote=remote, prefix=prefix)
    except Exception:
        return []


@contextmanager
def _quiet() -> Iterator[None]:
    """Minari prints what it does. That goes to stderr, because stdout is for results."""
    with redirect_stdout(sys.stderr), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
