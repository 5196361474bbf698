"""LeRobot datasets, version 3: Parquet files of frames, and `meta/info.json`.

Only numbers are read: videos and images are left out, and refused where they are asked for.
`meta/info.json` names the entries of vectors. The outcome of an episode is what the frames hold
(`next.reward`, `next.success`), or what `--returns FILE` or `--columns` says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from grd_offline.core.errors import DataError
from grd_offline.io.files.plain import read_json
from grd_offline.io.tables.columns import IMAGE, LEROBOT, TEXT, TIME
from grd_offline.io.tables.frames import open_parquet
from grd_offline.io.tables.source import TableSource

_BOOKKEEPING = ("index", "task_index", "timestamp", "next.done")
"""Columns that number frames and tasks, and that mark the last frame of every episode."""


@contextmanager
def open_lerobot(folder: Path, max_bytes: int | None = None) -> Iterator[TableSource]:
    """The frames of a dataset."""
    info = read_json(folder / LEROBOT)
    if not isinstance(info, dict) or not str(info.get("codebase_version", "")).startswith("v3"):
        found = info.get("codebase_version") if isinstance(info, dict) else None
        raise DataError(
            f"expected a LeRobot dataset of version 3, got {found!r}: convert it with LeRobot",
            file=folder / LEROBOT,
        )
    files = sorted((folder / "data").glob("chunk-*/file-*.parquet"))
    if not files:
        raise DataError("holds no data/chunk-*/file-*.parquet", file=folder)
    with open_parquet(files, "lerobot", max_bytes) as source:
        kinds = {
            name: kind
            for name, kind in source.kinds.items()
            if name not in _BOOKKEEPING and kind not in (TEXT, TIME)
        }
        kinds |= dict.fromkeys(_find_images(info), IMAGE)
        yield replace(source, kinds=kinds, entries=_find_entries(info))


def _find_images(info: Mapping[str, Any]) -> list[str]:
    """Names of the features that are images or videos."""
    features = info.get("features")
    return [
        name
        for name, feature in (features if isinstance(features, dict) else {}).items()
        if isinstance(feature, dict) and feature.get("dtype") in ("image", "video")
    ]


def _find_entries(info: Mapping[str, Any]) -> dict[str, list[str]]:
    """Names of the entries of each vector, where they are given as a list."""
    entries: dict[str, list[str]] = {}
    features = info.get("features")
    for name, feature in (features if isinstance(features, dict) else {}).items():
        names = feature.get("names") if isinstance(feature, dict) else None
        if isinstance(names, dict):  # {"motors": [...]}
            names = next(iter(names.values()), None)
        if isinstance(names, list) and all(isinstance(entry, str) for entry in names):
            entries[name] = names
    return entries
