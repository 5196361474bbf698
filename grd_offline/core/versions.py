"""Versions that a result was made with."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

_PACKAGES = ("grd-offline", "torch", "numpy", "gymnasium", "mujoco")


def find_versions() -> dict[str, str]:
    """Find the versions of Python and of the packages that the results depend on."""
    found = {name: known for name in _PACKAGES if (known := find_version(name))}
    return {"python": platform.python_version(), **found}


def find_version(package: str) -> str | None:
    """The version of a package; None where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
