"""Which versions a result was made with."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

_PACKAGES = ("grd-offline", "torch", "numpy", "gymnasium", "mujoco")


def find_versions() -> dict[str, str]:
    """Of Python and the packages that decide the numbers."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
