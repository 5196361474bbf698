"""A model as a folder of `config.json`, `model.safetensors` and a card `README.md`.

The folder holds numbers and text alone. Reading a model runs no code from the folder, and refuses
whatever cannot be right.
"""

import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from grd_offline.core.errors import DataError, printable
from grd_offline.io.files.plain import read_record
from grd_offline.io.files.storage import create_file, holds_only, replace_folder

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
CARD = "README.md"
MODEL_FILES = (CONFIG, WEIGHTS, CARD)
REWARD_FOLDER, DYNAMICS_FOLDER = "reward_model", "dynamics_model"
"""The folders of the two models in the folder of a result."""
Model = TypeVar("Model")
_ATTEMPTS = 20
_MAX_CONFIG_BYTES = 8 * 2**20
_MAX_WEIGHTS_BYTES = 2**31
_TYPES = {"float32": "F32", "float64": "F64", "int32": "I32", "int64": "I64", "uint8": "U8"}
"""Types as safetensors names them."""


def write_model(
    folder: str | os.PathLike[str],
    config: Mapping[str, Any],
    tensors: Mapping[str, NDArray[Any]],
    card: str,
) -> None:
    """Write the folder, all or nothing; it may replace a model of the same format, nothing else."""
    from safetensors.numpy import save

    def is_replaceable(present: Path) -> bool:
        try:
            read_config(present / CONFIG, config["format"], None)
        except DataError:
            return False
        return holds_only(present, MODEL_FILES)

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
    if path.is_file():
        raise DataError("is a file, expected the folder of a decomposition or model", file=path)
    inner = path / name
    if (path / CONFIG).is_file():
        return path
    if (inner / CONFIG).is_file():
        return inner
    several = sorted(one.parent.parent.name for one in path.glob(f"*/{name}/{CONFIG}"))
    if several:
        reason = f"holds several decompositions: name one of them, such as {path.name}/{several[0]}"
        raise DataError(reason, file=path)
    return path


def read_settled(folder: Path, read: Callable[[Path], Model]) -> Model:
    """The result of `read`, with all of its files from one model.

    A model is replaced as a whole, but it is read file by file. Where it was replaced in between,
    it is read again.
    """
    for _ in range(_ATTEMPTS):
        before = _identify(folder)
        try:
            model = read(folder)
        except DataError:
            if _identify(folder) == before:
                raise
            continue
        if _identify(folder) == before:
            return model
    raise DataError("is replaced again and again while it is read", file=folder)


def _identify(folder: Path) -> tuple[int, ...] | None:
    try:
        found = [(folder / name).stat() for name in (CONFIG, WEIGHTS)]
    except OSError:
        return None
    return tuple(number for status in found for number in (status.st_ino, status.st_mtime_ns))


def read_config(path: Path, kind: str, version: int | None) -> dict[str, Any]:
    """The config of a model, with its size, format and version checked; None: any version."""
    try:
        return read_record(path, (kind,), version, _MAX_CONFIG_BYTES, finite=False)
    except FileNotFoundError as error:
        raise DataError(f"is not there: expected the folder of a {kind}", file=path) from error


def read_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """The shape of each tensor according to the file's header; no tensor is read."""
    with _open_tensors(folder / WEIGHTS) as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118


def read_tensors(
    folder: Path, expected: Mapping[str, tuple[str, tuple[int, ...]]]
) -> dict[str, NDArray[Any]]:
    """The tensors of the file, which must be exactly the expected ones and hold finite numbers."""
    path = folder / WEIGHTS
    with _open_tensors(path) as file:
        _compare(file, expected, path)
        tensors = {name: file.get_tensor(name) for name in expected}
    for name, tensor in tensors.items():
        if not np.isfinite(tensor).all():
            raise DataError("nan or infinite", file=path, field=name)
    return tensors


@contextmanager
def _open_tensors(path: Path) -> Iterator[Any]:
    from safetensors import SafetensorError, safe_open

    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise DataError("is not a regular file", file=path)
        if status.st_size > _MAX_WEIGHTS_BYTES:
            raise DataError(f"larger than {_MAX_WEIGHTS_BYTES} bytes", file=path)
        with safe_open(path, framework="numpy") as file:
            yield file
    except OSError as failure:
        raise DataError(f"cannot be read: {failure.strerror or failure}", file=path) from failure
    except SafetensorError as failure:
        raise DataError(f"is not a safetensors file: {failure}", file=path) from failure


def _compare(file: Any, expected: Mapping[str, tuple[str, tuple[int, ...]]], path: Path) -> None:
    for name in sorted(set(file.keys()) ^ set(expected)):
        reason = "missing" if name in expected else "not expected"
        raise DataError(f"tensor {reason}", file=path, field=f"{name:.80}")
    for name, (kind, shape) in expected.items():
        entry = file.get_slice(name)
        wanted = f"{_TYPES[kind]} of shape {shape}"
        found = f"{entry.get_dtype()} of shape {tuple(entry.get_shape())}"
        if found != wanted:
            raise DataError(f"expected {wanted}, got {found}", file=path, field=name)


def as_plain(text: object) -> str:
    """Text that cannot break out of its place in a card."""
    return "".join(c if c not in "|`<>[]" else " " for c in printable(str(text)))[:120]
