"""Our own layout: Minari's episode groups in one file, with the header in root attributes."""

from __future__ import annotations

import os
from collections.abc import Iterable

from grd_offline.core.errors import DataError
from grd_offline.io.files.storage import replace_file
from grd_offline.io.formats.groups import episode_lengths, load_episode, load_vector, write_episodes
from grd_offline.io.formats.guard import SafeGroup
from grd_offline.io.formats.hdf5 import (
    create_hdf5,
    header_as_texts,
    header_from_texts,
    verify_hdf5,
    write_attributes,
)
from grd_offline.io.formats.leaves import check_header
from grd_offline.io.formats.record import Header, Record, Recording

NAME = "own"
FORMAT_ATTRIBUTE = "grd_offline_format"
FORMAT_VERSION = 1


def is_own(root: SafeGroup) -> bool:
    """Whether the file says it is in this layout."""
    return FORMAT_ATTRIBUTE in root.attributes() and any(
        name.startswith("episode_") for name in root.names()
    )


def read_own(root: SafeGroup) -> Recording:
    """A file in this layout."""
    attributes = root.attributes()
    version = attributes[FORMAT_ATTRIBUTE]
    if version != FORMAT_VERSION:
        raise DataError(
            f"written by another version of this package: format {version}, this one reads "
            f"format {FORMAT_VERSION}"
        )
    header = check_header(header_from_texts(attributes))
    recording = Recording(
        layout=NAME,
        warnings=root.notes,
        header=header,
        lengths=episode_lengths(root),
        load=lambda index: load_episode(root, index, header, recording.warn),
        load_rewards=lambda index: load_vector(root.group(f"episode_{index}"), "rewards"),
    )
    return recording


def write_own(path: str | os.PathLike[str], header: Header, records: Iterable[Record]) -> list[str]:
    """Write a file in this layout in full or not at all. There is nothing to warn of."""
    with replace_file(path, verify=verify_hdf5) as output, create_hdf5(output) as file:
        file.attrs[FORMAT_ATTRIBUTE] = FORMAT_VERSION
        write_attributes(file, header_as_texts(header))
        write_episodes(file, records, output.check)
    return []
