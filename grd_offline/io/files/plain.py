"""Reading JSON and CSV files of unknown origin.

Every such file of a run, a decomposition or a model goes through here: it must be a regular file
of a plausible size, and hold finite numbers, text that can be written again, and no nesting beyond
reason. What is in it is checked by who reads it; `folder_errors` turns what does not fit into one
line.
"""

import csv
import io
import json
import math
import os
import re
import stat
import warnings
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec

from grd_offline.core.errors import DataError, StorageError
from grd_offline.io.files.storage import replace_file

Kind = TypeVar("Kind")
READ_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
"""Flags for opening what may be a named pipe, where the system has them."""
JSON_BYTES = 64 * 2**20
TABLE_BYTES = 8 * 2**20
DEPTH = 32
LARGEST_INTEGER = 2**63
_TYPES = {
    "object": "an object", "array": "a list", "str": "text", "int": "a whole number",
    "float": "a number", "bool": "true or false",
}  # fmt: skip
MISFITS = (
    LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError, SyntaxError,
)  # fmt: skip
"""Errors that code raises if it gets contents of the wrong kind."""


def refuse_outside(path: Path, folder: Path) -> None:
    """Refuse a path in a folder if a link below the folder makes it lead out of it.

    The folder may be a link, or lie behind one: the user has named it.
    """
    if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder)):
        raise DataError(f"leads out of {folder} through a link, which is not followed", file=path)


def open_regular(path: str | os.PathLike[str], *, missing: str | None = None) -> BinaryIO:
    """Open a regular file for reading. Where there is none, FileNotFoundError, or a `DataError`
    that says what is `missing`.

    A named pipe does not block: what a path is shows when it is open, and stays so.
    """
    try:
        file = os.fdopen(os.open(path, READ_FLAGS), "rb")
    except FileNotFoundError:
        if missing is None:
            raise
        raise DataError(missing, file=path) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise DataError(f"cannot be read: {reason}", file=path) from error
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise DataError("is not a regular file", file=path)
    return file


def read_bytes(path: Path, limit: int, *, inside: Path | None = None) -> bytes:
    """Read a regular file of at most `limit` bytes. No link may lead out of the folder `inside`.

    Raise FileNotFoundError if there is none, so that the caller can say what that means.
    """
    with open_regular(path) as file:
        if inside is not None:
            refuse_outside(path, inside)
        if os.fstat(file.fileno()).st_size > limit:
            raise DataError(
                f"is larger than {limit // 2**20} MB, more than such a file needs", file=path
            )
        try:
            return file.read(limit + 1)
        except OSError as error:
            raise DataError(f"cannot be read: {error.strerror}", file=path) from error


def read_json(
    path: Path, limit: int = JSON_BYTES, *, finite: bool = True, inside: Path | None = None
) -> Any:
    """Read a JSON file; raise FileNotFoundError if there is none.

    With `finite`, no number may be infinite, or whole and of more than 64 bits. No link may lead
    out of the folder `inside`.
    """
    data = read_bytes(path, limit, inside=inside)
    try:
        contents = msgspec.json.decode(data) if finite else json.loads(data)
        if not finite:  # a lone surrogate can be read but never be written
            json.dumps(contents, ensure_ascii=False).encode()
        _check(contents, LARGEST_INTEGER if finite else math.inf, DEPTH)
    except (ValueError, RecursionError) as error:
        reason = "nested too deep" if isinstance(error, RecursionError) else error
        raise DataError(f"is not JSON and cannot be read: {reason}", file=path) from error
    return contents


def _check(value: Any, largest: float, depth: int) -> None:
    kind = type(value)
    if kind is int and abs(value) >= largest:
        raise ValueError("a whole number of more than 64 bits")
    if kind in (list, dict):
        if depth == 0:
            raise ValueError(f"nested more than {DEPTH} deep")
        for entry in value if kind is list else value.values():
            _check(entry, largest, depth - 1)


def read_record(
    path: Path,
    formats: Sequence[str],
    version: int | None,
    limit: int = JSON_BYTES,
    *,
    finite: bool = True,
    inside: Path | None = None,
) -> dict[str, Any]:
    """Read a JSON file that names its format, one of these, and its version; None: any version."""
    contents = read_json(path, limit, finite=finite, inside=inside)
    if not isinstance(contents, dict) or contents.get("format") not in formats:
        raise DataError(f"is not a {formats[0]}", file=path)
    found = contents.get("version")
    if version is not None and (type(found) is not int or found != version):
        raise DataError(f"expected {version}, got {found!r:.40}", file=path, field="version")
    return contents


def convert(contents: Any, kind: type[Kind], path: Path) -> Kind:
    """What a JSON file holds, as a dataclass or another type with annotations.

    A value of another type is refused; what the type does not name is left out.
    """
    try:
        return msgspec.convert(contents, kind)
    except msgspec.ValidationError as error:
        reason, _, place = str(error).partition(" - at `$")
        field = place.strip("`.") or None
        told = re.sub(r"`([^`]+)`", lambda found: _describe_types(found[1]), reason)
        raise DataError(f"{told[0].lower()}{told[1:]}", file=path, field=field) from None


def _describe_types(text: str) -> str:
    """Types as msgspec names them, in words: `str | null` is text or null."""
    return " or ".join(_TYPES.get(name, name) for name in text.split(" | "))


def write_json(path: Path, contents: Mapping[str, Any]) -> None:
    """Write a JSON file in full or not at all."""
    with replace_file(path) as output:
        output.write(json.dumps(contents, indent=1, allow_nan=False).encode() + b"\n")


def read_table(
    path: Path, limit: int = TABLE_BYTES, *, inside: Path | None = None
) -> list[dict[str, str]]:
    """Read the rows of a CSV file with a header; a row that was cut off is left out.

    If there is no such file, but one with `.gz` at the end of its name, that one is unpacked. No
    link may lead out of the folder `inside`.
    """
    packed = path.with_name(f"{path.name}.gz")
    is_packed = packed.is_file() and not path.exists()
    try:
        data = (
            _unpack(packed, limit, inside) if is_packed else read_bytes(path, limit, inside=inside)
        )
        text = data.decode("utf-8")
        rows = list(csv.DictReader(io.StringIO(text, newline=""), restkey=""))
    except FileNotFoundError:
        raise DataError("cannot be read: no such file", file=path) from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"is not a table that can be read: {error}", file=path) from error
    return [row for row in rows if None not in row.values()]


def _unpack(path: Path, limit: int, inside: Path | None) -> bytes:
    """Unpack a gzip file that holds at most `limit` bytes."""
    unpacker = zlib.decompressobj(wbits=31)
    try:
        data = unpacker.decompress(read_bytes(path, limit, inside=inside), limit + 1)
    except zlib.error as error:
        raise DataError(f"is not a gzip file that can be read: {error}", file=path) from error
    if len(data) > limit:
        raise DataError(
            f"unpacks to more than {limit // 2**20} MB, more than such a file needs", file=path
        )
    if not unpacker.eof:
        raise DataError("is cut off", file=path)
    return data


@contextmanager
def folder_errors(folder: Path, what: str) -> Iterator[None]:
    """Turn errors from contents of the wrong kind into one line that names the folder."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of numpy: numbers out of range
            yield
    except DataError:
        raise
    except OSError as error:
        if error.filename is None or isinstance(error, StorageError):
            raise
        raise DataError(f"cannot be read: {error.strerror}", file=error.filename) from error
    except MISFITS as error:
        reason = f"{type(error).__name__}: {error}"
        raise DataError(f"{what}: {reason}", file=folder) from error
