"""Relabelling a dataset in parts: a part for each part."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from grd_offline.core.errors import DataError
from grd_offline.io.datasets import open_recording
from grd_offline.io.files.models import CONFIG, REWARD_FOLDER, WEIGHTS, find_model
from grd_offline.io.files.parts import Manifest, find_parts, read_manifest
from grd_offline.lab.sweep.parts import PartsPlan, make_part_job
from grd_offline.methods.matching import check_inputs
from grd_offline.methods.relabelling import check_exact
from grd_offline.rewards.model import RewardModel


def plan_relabelling(
    source: str | os.PathLike[str],
    model: str | os.PathLike[str],
    *,
    exact_returns: bool = False,
    max_episode_steps: int | None = None,
    max_bytes: int | None = None,
) -> PartsPlan:
    """The parts of a dataset in parts with the rewards of a model: one for each.

    The model and the first part are read first, so that a mistake is told once.
    """
    folder = Path(os.path.abspath(source))
    paths = find_parts(folder)
    if not paths:
        raise DataError("holds no parts (part-00000.h5)", file=source)
    place = Path(os.path.abspath(model))
    loaded = RewardModel.load(place)
    check_exact(loaded, exact_returns)
    with open_recording(
        paths[0], max_episode_steps=max_episode_steps, max_bytes=max_bytes
    ) as first:
        check_inputs(loaded, first, paths[0])
    options = ["--model", str(place), *(["--exact-returns"] if exact_returns else [])]
    for name, value in (("max-episode-steps", max_episode_steps), ("max-size", max_bytes)):
        options += [] if value is None else [f"--{name}", str(value)]
    before = read_manifest(folder)
    settings = {
        "data": str(folder),
        "data_settings": None if before is None else dict(before.settings),
        "model": _identify_model(place),
        "exact_returns": exact_returns,
        "max_episode_steps": max_episode_steps,
    }
    return PartsPlan(
        tuple(make_part_job(path.name, ["relabel", str(path), *options]) for path in paths),
        Manifest(
            "relabel",
            tuple(path.name for path in paths) if before is None else before.parts,
            settings,
            sources={path.name: _identify_file(path) for path in paths},
        ),
    )


def _identify_model(folder: Path) -> str:
    """A short digest of a saved reward model."""
    place = find_model(folder, REWARD_FOLDER)
    digest = hashlib.sha256()
    for name in (CONFIG, WEIGHTS):
        digest.update((place / name).read_bytes())
    return digest.hexdigest()[:16]


def _identify_file(path: Path) -> list[int]:
    status = path.stat()
    return [status.st_size, status.st_mtime_ns]
