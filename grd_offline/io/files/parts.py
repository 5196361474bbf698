"""A dataset in several files, and what it was made with.

part-00000.h5, part-00001.h5, ...   the data, each file a dataset of its own
parts.json                          how many parts there are to be, and the settings
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grd_offline.core.errors import DataError
from grd_offline.io.files.plain import convert, read_record, write_json

FORMAT, VERSION = "grd-offline parts", 1
MANIFEST_FILE = "parts.json"
MOST_PARTS = 100_000
_NAME = re.compile(r"part-\d{5}\.h5")


def name_part(number: int) -> str:
    """The name of the file of a part."""
    return f"part-{number:05d}.h5"


def find_parts(folder: Path) -> list[Path]:
    """The parts in a folder, in order. Empty if there are none."""
    try:
        return sorted(path for path in folder.iterdir() if _NAME.fullmatch(path.name))
    except (OSError, ValueError):  # a file, nothing at all, or no name for a folder
        return []


@dataclass(frozen=True)
class Manifest:
    """What a folder of parts was made with."""

    command: str
    """The command that makes it: `collect` or `relabel`."""
    parts: tuple[str, ...]
    """The names of the files, once all are there."""
    settings: Mapping[str, Any]
    """Everything that decides what the data are: plain JSON."""
    versions: Mapping[str, str | None] = field(default_factory=dict)
    """Versions of packages that decide the last bits."""
    sources: Mapping[str, list[int]] = field(default_factory=dict)
    """Size and time of change of the file that each part is made from, where there is one."""


def read_manifest(folder: Path) -> Manifest | None:
    """Read the manifest of a folder; None if it has none."""
    path = folder / MANIFEST_FILE
    try:
        return convert(read_record(path, (FORMAT,), VERSION), Manifest, path)
    except FileNotFoundError:
        return None


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest of a folder in full or not at all."""
    contents = {"format": FORMAT, "version": VERSION, **vars(manifest)}
    write_json(folder / MANIFEST_FILE, contents)


def check_manifest(folder: Path, manifest: Manifest) -> None:
    """Refuse a folder that holds something else, or was made with other settings."""
    if folder.exists() and not folder.is_dir():
        raise DataError("is a file, expected the name of a folder", file=folder)
    before = read_manifest(folder)
    if before is None:
        if folder.exists() and any(folder.iterdir()):
            raise DataError("exists and holds something else: choose another name", file=folder)
        return
    now, then = ({"command": m.command, **m.settings} for m in (manifest, before))
    for name in {**then, **now}:
        if now.get(name) != then.get(name):
            raise DataError(
                f"was begun with {then.get(name)!r:.60}, not with {now.get(name)!r:.60}: choose "
                "another folder with --out, or remove this one",
                file=folder,
                field=name,
            )
