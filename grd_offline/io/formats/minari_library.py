"""Datasets that Minari's own library keeps, lists and downloads: `minari:ID`.

Minari is imported only when it is needed. It downloads a dataset, but never opens one: its loader
can run code that a dataset names. The guarded reader of this room opens the files.
"""

from __future__ import annotations

import difflib
import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

from grd_offline.core.errors import DataError
from grd_offline.io.formats.minari import find_data_file

PREFIX = "minari:"
_MOST_LISTED = 5


def find_minari_file(identifier: str) -> Path:
    """The HDF5 file of the dataset with this id, which is downloaded if it is not there yet."""
    root = os.environ.get("MINARI_DATASETS_PATH")
    datasets = Path(root) if root else Path.home() / ".minari" / "datasets"
    folder = datasets / identifier
    found = find_data_file(folder) if identifier else None
    if found is None:
        if re.fullmatch(r"[-_\w./]*[-_\w.]-v[0-9]+", identifier) is None:
            raise DataError(f"expected an id such as D4RL/door/human-v2{_suggest(identifier)}")
        _download(identifier)
        found = find_data_file(folder)
    if found is None:
        raise DataError(
            f"there is no HDF5 file in {folder}; if a download was interrupted, delete the folder"
        )
    return found


def list_minari_datasets(*, remote: bool = False, prefix: str | None = None) -> list[str]:
    """The ids of Minari's datasets on this computer, or of those on its server.

    With `prefix`, only ids in that namespace are listed, such as `D4RL/door`.
    """
    import minari

    with _quiet():
        if remote:
            return sorted(minari.list_remote_datasets(prefix=prefix))
        return sorted(minari.list_local_datasets(prefix=prefix))


def _download(identifier: str) -> None:
    import minari

    try:
        with _quiet():
            minari.download_dataset(identifier)
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        # The other errors of Minari are those of the network and of missing packages.
        if type(error) is ValueError or type(error).__name__ == "RepositoryNotFoundError":
            raise DataError(f"no Minari dataset has this id{_suggest(identifier)}") from error
        raise DataError(
            f"is not on this computer and cannot be downloaded: {reason:.300}{_suggest(identifier)}"
        ) from error


def _suggest(identifier: str) -> str:
    """The ids that are nearest to one that was not found, as the end of a message."""
    here = _list_or_nothing(remote=False, prefix=None)
    namespace = identifier.rpartition("/")[0]
    there = _list_or_nothing(remote=True, prefix=namespace) if namespace else []
    near = difflib.get_close_matches(identifier, [*here, *there], n=3)
    if near:
        return f"; did you mean {' or '.join(dict.fromkeys(near))}?"
    if here:
        more = ", ..." if len(here) > _MOST_LISTED else ""
        return f"; on this computer are {', '.join(here[:_MOST_LISTED])}{more}"
    return ""


def _list_or_nothing(*, remote: bool, prefix: str | None) -> list[str]:
    try:
        return list_minari_datasets(remote=remote, prefix=prefix)
    except Exception:
        return []


@contextmanager
def _quiet() -> Iterator[None]:
    """Minari prints what it does. That goes to stderr, because stdout is for results."""
    with redirect_stdout(sys.stderr), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
