"""A model as a folder of `config.json`, `model.safetensors` and a card `README.md`.

Numbers and text: reading one runs no code from the folder, and what cannot be right is refused.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grd_offline.errors import DataError, printable
from grd_offline.storage import create_file, replace_folder

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
CARD = "README.md"
_MAX_CONFIG_BYTES = 64 * 2**20
_MAX_WEIGHTS_BYTES = 2**31


def save_model(
    folder: str | os.PathLike[str],
    config: Mapping[str, Any],
    tensors: Mapping[str, NDArray[Any]],
    card: str,
    is_replaceable: Callable[[Path], bool],
) -> None:
    """Write the folder, all or nothing."""
    from safetensors.numpy import save

    contents = {
        CONFIG: json.dumps(config, indent=1, allow_nan=False).encode(),
        WEIGHTS: save({name: np.ascontiguousarray(value) for name, value in tensors.items()}),
        CARD: card.encode(),
    }
    with replace_folder(folder, is_replaceable=is_replaceable) as partial:
        for name, data in contents.items():
            with create_file(partial / name) as output:
                output.write(data)


def find_model(folder: str | os.PathLike[str], name: str) -> Path:
    """The model's folder: this one, or the one of that name in a decomposition."""
    path = Path(folder)
    inner = path / name
    return inner if not (path / CONFIG).is_file() and (inner / CONFIG).is_file() else path


def holds_only_model(folder: Path) -> bool:
    """Whether a folder holds nothing but the files of a model."""
    return {entry.name for entry in folder.iterdir()} <= {CONFIG, WEIGHTS, CARD}


def read_config(path: Path, kind: str, version: int) -> dict[str, Any]:
    """A model's config, once its size, format and version are right."""
    try:
        check_size(path, _MAX_CONFIG_BYTES)
        config = json.loads(path.read_bytes())
    except DataError:
        raise
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", file=path) from error
    except (ValueError, RecursionError) as error:
        raise DataError("is not JSON", file=path) from error
    if not isinstance(config, dict) or config.get("format") != kind:
        raise DataError(f"is not a {kind}", file=path)
    if config.get("version") != version:
        raise DataError(
            f"expected {version}, got {config.get('version')!r:.40}", file=path, field="version"
        )
    return config


def check_size(path: Path, limit: int = _MAX_WEIGHTS_BYTES) -> None:
    """Refuse a file that is larger than any model's."""
    if path.stat().st_size > limit:
        raise DataError(f"larger than {limit} bytes", file=path)


def as_plain(text: str) -> str:
    """Text that cannot break out of its place in a card."""
    return "".join(c if c not in "|`<>[]" else " " for c in printable(text))[:120]
