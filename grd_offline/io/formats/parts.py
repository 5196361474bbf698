"""A dataset in several files, and what it was made with.

part-00000.h5, part-00001.h5, ...   the data, each file a dataset of its own
parts.json                          how many parts there are to be, and the settings

The parts are read as one dataset, in the order of their names. Only a few of them are open at a
time, so that there may be thousands.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from grd_offline.core.errors import DataError
from grd_offline.core.typing import AnyArray
from grd_offline.io.files.plain import convert, read_record, write_json
from grd_offline.io.formats.record import Header, LazyLeaves, Record, Recording

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


MOST_OPEN = 64
"""Parts that are open at the same time."""
_SHARED = (
    *("observation_leaves", "action_leaves", "observation_names", "action_names"),
    *("delay", "discount", "provenance"),
)
"""What all parts must have in common."""
_COUNTED = ("episodes", "first_episode")
"""Settings of a collection that say which episodes a part has."""


def join_parts(
    folder: Path, paths: Sequence[Path], open_part: Callable[[Path], Recording]
) -> Recording:
    """One recording of all parts. `open_part` opens one of them."""
    lengths, headers, layouts, warnings = [], [], [], list[str]()
    for path in paths:
        with open_part(path) as recording:
            lengths.append(recording.lengths)
            headers.append(recording.header)
            layouts.append(recording.layout)
            warnings += [text for text in recording.warnings if text not in warnings]
        _check_part(path, paths[0], headers, layouts)
    ends = np.cumsum(list(map(len, lengths)))
    opened: OrderedDict[int, Recording] = OrderedDict()  # those that were used last
    is_closed = False

    def find(index: int) -> tuple[Recording, int]:
        """The part that an episode is in, and its number there."""
        part = int(np.searchsorted(ends, index, side="right"))
        if is_closed:
            raise DataError("the dataset was closed", file=paths[part])
        if part not in opened:
            while len(opened) >= MOST_OPEN:
                opened.popitem(last=False)[1].close()
            opened[part] = open_part(paths[part])
        opened.move_to_end(part)
        return opened[part], index - (int(ends[part - 1]) if part else 0)

    def load(index: int) -> Record:
        recording, inner = find(index)
        record = recording.load(inner)
        warnings.extend([text for text in recording.warnings if text not in warnings])

        def read_extra(name: str) -> AnyArray:
            now, _ = find(index)  # the part may have been closed in the meantime
            return (record if now is recording else now.load(inner)).extras[name]

        extras = LazyLeaves({name: partial(read_extra, name) for name in record.extras})
        return replace(record, extras=extras)

    def load_rewards(index: int) -> AnyArray:
        recording, inner = find(index)
        return recording.load_rewards(inner)

    def close() -> None:
        nonlocal is_closed
        is_closed = True
        while opened:
            opened.popitem()[1].close()

    header, all_lengths = _join_headers(headers), np.concatenate(lengths)
    joined = Recording(layouts[0], header, all_lengths, load, load_rewards, warnings, close)
    for text in _find_gaps(folder, paths, headers):
        joined.warn(text)
    return joined


def _check_part(path: Path, first: Path, headers: list[Header], layouts: list[str]) -> None:
    """Refuse a part that cannot be read together with the first one."""
    if layouts[-1] != layouts[0]:
        reason = f"is in the layout {layouts[-1]}, {first.name} in {layouts[0]}"
        raise DataError(f"{reason}: parts must have the same layout", file=path)
    for name in _SHARED:
        if getattr(headers[-1], name) != getattr(headers[0], name):
            raise DataError(f"differs from that of {first.name}", file=path, field=name)


def _join_headers(headers: Sequence[Header]) -> Header:
    """The header of all parts: what they have in common."""
    first = headers[0]
    settings = _keep_common([header.settings for header in headers])
    counts = [header.settings.get("episodes") for header in headers]
    if all(isinstance(count, int) for count in counts):
        settings["episodes"] = sum(counts)
    # In the order of a single file.
    settings = {name: settings[name] for name in first.settings if name in settings}
    environments = {header.environment for header in headers}
    return replace(
        first,
        environment=first.environment if len(environments) == 1 else None,
        settings=settings,
        truth=_keep_common([header.truth for header in headers]),
        source=_keep_common([header.source for header in headers]),
    )


def _keep_common(tables: Sequence[Any]) -> dict[str, Any]:
    first = tables[0]
    return {
        name: value
        for name, value in first.items()
        if name not in _COUNTED and all(name in t and t[name] == value for t in tables)
    }


def _find_gaps(folder: Path, paths: Sequence[Path], headers: Sequence[Header]) -> list[str]:
    """What is missing, and what differs between parts."""
    found = []
    manifest = read_manifest(folder)
    missing = set(manifest.parts) - {path.name for path in paths} if manifest else set()
    if manifest and missing:
        found.append(
            f"{len(missing)} of {len(manifest.parts)} parts are not there yet, the first is "
            f"{min(missing)}: grd-offline {manifest.command} goes on with them"
        )
    common = _keep_common([header.settings for header in headers])
    names = {name for header in headers for name in header.settings}
    differing = sorted(names - set(common) - set(_COUNTED))
    if differing:
        found.append(f"the parts were made with different settings: {', '.join(differing)[:200]}")
    return found
