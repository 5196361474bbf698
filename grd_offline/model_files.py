"""Folders of a model: `config.json`, `model.safetensors` and a card, read without trust.

Nothing in such a folder is run. The config names its format and version; the tensors' names, types
and shapes are compared with what the config asks for before any is loaded.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grd_offline.errors import DataError, printable
from grd_offline.storage import create_file, replace_folder

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
CARD = "README.md"
_MAX_CONFIG_BYTES = 2**20
_SAFETENSORS_TYPES = {"float32": "F32", "float64": "F64", "int32": "I32", "uint8": "U8"}


def write_model(
    folder: str | os.PathLike[str],
    config: Mapping[str, Any],
    tensors: Mapping[str, NDArray[Any]],
    card: str,
) -> None:
    """Write the folder, all or nothing; one of the same format that is there is replaced."""
    from safetensors.numpy import save

    contents = {
        CONFIG: json.dumps(config, indent=1, allow_nan=False).encode(),
        WEIGHTS: save({name: np.ascontiguousarray(value) for name, value in tensors.items()}),
        CARD: card.encode(),
    }

    def is_replaceable(present: Path) -> bool:
        try:
            read_config(present, config["format"], None)
        except DataError:
            return False
        return {entry.name for entry in present.iterdir()} <= set(contents)

    with replace_folder(folder, is_replaceable=is_replaceable) as partial:
        for name, data in contents.items():
            with create_file(partial / name) as output:
                output.write(data)


def read_config(folder: Path, expected_format: str, version: int | None) -> dict[str, Any]:
    """The config of a folder of that format; `version` None accepts any."""
    path = folder / CONFIG
    try:
        if path.stat().st_size > _MAX_CONFIG_BYTES:
            raise DataError(f"larger than {_MAX_CONFIG_BYTES} bytes", file=path)
        config = json.loads(path.read_bytes())
    except DataError:
        raise
    except OSError as failure:
        raise DataError(f"cannot be read: {failure.strerror or failure}", file=path) from failure
    except (ValueError, RecursionError) as failure:
        raise DataError("is not JSON", file=path) from failure
    if not isinstance(config, dict) or config.get("format") != expected_format:
        raise DataError(f"is not a {expected_format}", file=path)
    found = config.get("version")
    if version is not None and (type(found) is not int or found != version):
        raise DataError(f"expected {version}, got {found!r:.40}", file=path, field="version")
    return config


def read_tensors(
    folder: Path, expected: Mapping[str, tuple[str, tuple[int, ...]]]
) -> dict[str, NDArray[Any]]:
    """The tensors, when the file holds exactly those that are expected, and finite numbers."""
    from safetensors import SafetensorError, safe_open

    path = folder / WEIGHTS
    try:
        with safe_open(path, framework="numpy") as file:
            _compare(file, expected, path)
            tensors = {name: file.get_tensor(name) for name in expected}
    except OSError as failure:
        raise DataError(f"cannot be read: {failure.strerror or failure}", file=path) from failure
    except SafetensorError as failure:
        raise DataError(f"is not a safetensors file: {failure}", file=path) from failure
    for name, tensor in tensors.items():
        if not np.isfinite(tensor).all():
            raise DataError("nan or infinite", file=path, field=name)
    return tensors


def _compare(file: Any, expected: Mapping[str, tuple[str, tuple[int, ...]]], path: Path) -> None:
    for name in sorted(set(file.keys()) ^ set(expected)):
        reason = "missing" if name in expected else "not expected"
        raise DataError(f"tensor {reason}", file=path, field=f"{name:.80}")
    for name, (kind, shape) in expected.items():
        entry = file.get_slice(name)
        found = entry.get_dtype(), tuple(entry.get_shape())
        if found != (_SAFETENSORS_TYPES[kind], shape):
            raise DataError(
                f"expected {_SAFETENSORS_TYPES[kind]} of shape {shape}, got {found[0]} of shape "
                f"{found[1]}",
                file=path,
                field=name,
            )


def plain(text: object) -> str:
    """Text that cannot break out of its place in a card."""
    return "".join(c if c not in "|`<>[]" else " " for c in printable(str(text)))[:120]
