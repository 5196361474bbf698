"""Packages whose names are imported when they are first used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lazy_loader import attach_stub

from grd_offline.core.packages import describe_missing


def import_when_used(
    package: str, file: str
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a package, from the stub beside its file.

    If a package that a name needs is not installed, one line says so.
    """
    find, list_names, names = attach_stub(package, file)

    def find_installed(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            return find(name)
        except ModuleNotFoundError as error:
            line = describe_missing(f"{package}.{name}", error)
            if line is None:
                raise
            raise ImportError(line, name=error.name) from None

    return find_installed, list_names, names
