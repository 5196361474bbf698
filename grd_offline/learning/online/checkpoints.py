"""Saving a run between two rounds and going on from there, bit for bit on the same machine.

A checkpoint holds tensors and plain Python values only and is loaded as such: no code from the
file runs. It is written all or nothing, so a run killed at any moment finds the last one whole.
"""

import os
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from grd_offline.core.errors import DataError
from grd_offline.core.observer import Warn
from grd_offline.core.words import format_bytes
from grd_offline.io.files.plain import folder_errors
from grd_offline.io.files.storage import replace_file
from grd_offline.learning.online.run import OnlineRun

NAME = "checkpoint.pt"
FORMAT = "grd-offline checkpoint"
VERSION = 2
MOST_PARTS = 10**6
"""Largest number of tensors, numbers and lists in a checkpoint. Real ones have thousands."""


def take_checkpoint(run: OnlineRun, extra: dict[str, Any]) -> dict[str, Any]:
    """A copy of the run's state in memory; `extra` is handed back by `load_checkpoint`."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "members": [member.name for member in run.members],
        "settings": run.settings.to_json(),
        "threads": torch.get_num_threads(),
        "torch": str(torch.__version__),
        "run": _to_plain(run.state()),
        "extra": _to_plain(extra),
    }


def write_checkpoint(contents: dict[str, Any], folder: Path) -> None:
    """Write what `take_checkpoint` gave. The run may go on meanwhile."""
    with replace_file(folder / NAME) as output:
        torch.save(contents, output)


def load_checkpoint(run: OnlineRun, folder: Path) -> tuple[dict[str, Any], list[str]]:
    """Restore the saved state. Returns `extra`, and why the run may not go on exactly."""
    path = folder / NAME
    with folder_errors(path, "does not fit this run"):
        contents = _read(path)
        names = [member.name for member in run.members]
        if (found := contents["members"]) != names:
            raise DataError(f"expected members {names}, got {found!r:.200}", file=path)
        try:
            gaps = run.load_state(contents["run"])
        except (RuntimeError, AssertionError) as error:
            raise ValueError(str(error).splitlines()[0] if str(error) else "state") from error
        lost = [f"{gap}; the episode is lost: going on, but not bit for bit" for gap in gaps]
        return contents["extra"], _find_differences(contents) + lost


def _read(path: Path) -> dict[str, Any]:
    """Read a checkpoint and check its format, version and sizes."""
    if not path.is_file():
        text = "no checkpoint here, the run cannot continue: begin anew in another folder (--out)"
        raise DataError(text, file=path)
    _check_archive(path)
    try:
        contents = torch.load(path, map_location="cpu", weights_only=True)
        plain = _from_plain(contents, [MOST_PARTS])
    except Exception as error:  # torch raises whatever its reader meets, with advice of its own
        if isinstance(error, MemoryError):
            raise
        reason = "damaged, or holds more than tensors and plain values"
        raise DataError(f"not a checkpoint: {reason}", file=path) from error
    if not isinstance(plain, dict) or plain.get("format") != FORMAT:
        raise DataError("not a checkpoint of grd-offline", file=path)
    if (version := plain.get("version")) != VERSION:
        raise DataError(f"expected version {VERSION}, got {version!r:.40}", file=path)
    return plain


def _check_archive(path: Path) -> None:
    """Refuse an archive that unpacks to more than its size: torch does not compress."""
    try:
        with zipfile.ZipFile(path) as archive:
            declared = sum(entry.file_size for entry in archive.infolist())
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise DataError("not a checkpoint: damaged, or of another kind", file=path) from error
    if declared > path.stat().st_size:
        raise DataError(
            f"not a checkpoint: declares {declared:,} bytes, more than the file has", file=path
        )


def _find_differences(contents: dict[str, Any]) -> list[str]:
    now = {"threads": torch.get_num_threads(), "torch": str(torch.__version__)}
    return [
        f"{name} was {contents[name]} and is {value}: going on, but not bit for bit"
        for name, value in now.items()
        if contents[name] != value
    ]


_ARRAY = "array"


def _to_plain(value: Any) -> Any:
    """Copy arrays as marked tensors and tuples as lists, which a safe loader takes."""
    if isinstance(value, np.ndarray):
        numbers = value.view(np.int64) if value.dtype == np.uint64 else value
        return {_ARRAY: torch.from_numpy(np.array(numbers)), "dtype": str(value.dtype)}
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        return {str(name): _to_plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_to_plain(part) for part in value]
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, str):  # a member of an enumeration is more than plain text
        return str(value)
    return value


def _from_plain(value: Any, parts_left: list[int]) -> Any:
    """The inverse. Endless repetitions, and tensors larger than their numbers, are refused."""
    parts_left[0] -= 1
    if parts_left[0] < 0:
        raise ValueError(f"more than {MOST_PARTS} parts")
    if isinstance(value, Tensor):
        if value.numel() * value.element_size() > value.untyped_storage().nbytes():
            raise ValueError("a tensor that is larger than its numbers")
        return value
    if isinstance(value, dict):
        if _ARRAY in value:
            numbers = _from_plain(value[_ARRAY], parts_left).numpy()
            return numbers.view(np.uint64) if value["dtype"] == "uint64" else numbers
        return {name: _from_plain(part, parts_left) for name, part in value.items()}
    if isinstance(value, list):
        return [_from_plain(part, parts_left) for part in value]
    return value


def check_space(run: OnlineRun, folder: Path, warn: Warn) -> None:
    """Tell in time if the disk will be full. The last checkpoint stays until the next is whole."""
    rows = len(run.members) * min(run.total, run.settings.replay)
    size = 4 * rows * (run.fleet.observation_size + run.spec.action_size)
    free = shutil.disk_usage(folder).free
    if 2 * size > free:
        warn(
            f"{folder}: {format_bytes(free)} are free, but checkpoints will grow to "
            f"{format_bytes(size)}, and each needs room beside the one before it"
        )


def has_checkpoint(folder: str | os.PathLike[str]) -> bool:
    return (Path(folder) / NAME).is_file()
