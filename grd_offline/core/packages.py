"""Which packages there are, what each of them is for, and names that are imported when needed.

A complete install has all of `CORE` and `COMPLETE`. A light one has `CORE` alone
(`requirements-core.txt`), and says in one line what another command needs.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from typing import Any

from lazy_loader import attach_stub

CORE = {
    "numpy": "everything",
    "scipy": "decompose",
    "h5py": "HDF5 files",
    "scikit-learn": "decompose",
    "threadpoolctl": "decompose",
    "click": "the commands",
    "rich": "the commands",
    "safetensors": "reward models",
    "filelock": "writing files",
    "jinja2": "pages",
    "lazy_loader": "importing names when they are used",
    "msgspec": "results and models",
}
"""What every install has, also a light one."""
COMPLETE = {
    "torch": "training policies and networks",
    "gymnasium": "environments",
    "mujoco": "the MuJoCo tasks",
    "minari": "datasets of Minari's library (minari:ID)",
    "matplotlib": "figures",
    "polars": "tables: CSV, Parquet, JSON lines and data frames",
}
"""What a complete install brings besides."""
OPTIONAL = {
    "onnx": "export --to onnx",
    "onnxscript": "export --to onnx",
    "onnxruntime": "running exported ONNX files",
    "tensorboard": "logs for TensorBoard",
    "huggingface_hub": "downloading datasets of Minari",
    "fastexcel": "spreadsheets (.xlsx)",
    "ray": "--runner ray",
}
"""What no install needs, and what it is for."""
_FREE = ("convert", "decompose", "doctor", "evaluate", "inspect", "relabel", "report", "sweep")
NEEDS: dict[str, tuple[str, ...]] = {
    "collect": ("gymnasium",),
    **dict.fromkeys(("compare", "plot"), ("matplotlib",)),
    **dict.fromkeys(_FREE, ()),
    "export": ("torch",),
    **dict.fromkeys(("judge", "train-offline", "train-online"), ("torch", "gymnasium")),
}
NEEDS = dict(sorted(NEEDS.items()))
"""What each command needs besides `CORE`, whatever its options are."""
PARTS = {
    "decompose": (("--fit masked-net, pair-net, paper; --method rrd, rrd-unbiased", "torch"),),
    "report": (("--video", "gymnasium"), ("pages that compare methods over seeds", "matplotlib")),
}
"""Options of commands that need one more package."""
_IMPORTED_AS = {"scikit-learn": "sklearn"}


def install_line(packages: Iterable[str]) -> str:
    """The command that installs packages, whichever way this one was installed."""
    return f"pip install {' '.join(packages)}"


def is_installed(package: str) -> bool:
    """Whether a package can be found. It is not imported."""
    try:
        return find_spec(_IMPORTED_AS.get(package, package)) is not None
    except (ImportError, ValueError):
        return False


def find_missing(command: str) -> list[str]:
    """The packages that a command needs and that are not installed."""
    return [name for name in (*CORE, *NEEDS.get(command, ())) if not is_installed(name)]


def describe_missing(what: str, error: ImportError) -> str | None:
    """One line about a package that was not found. None if it is none of these.

    `what` needs the package. If it is a command, all that it needs and lacks is named.
    """
    module = (error.name or "").partition(".")[0]
    names = {_IMPORTED_AS.get(name, name): name for name in (*CORE, *COMPLETE)}
    if module not in names or is_installed(names[module]):
        return None
    missing = find_missing(what)
    if names[module] in missing:
        return tell_missing(what, missing)
    return tell_missing(f"{what} with these options" if what in NEEDS else what, [names[module]])


def tell_missing(what: str, missing: list[str]) -> str:
    """Say that packages are missing, and how to install them."""
    listed = " and ".join(filter(None, (", ".join(missing[:-1]), missing[-1])))
    return f"{what} needs {listed}, not installed here: {install_line(missing)}"


_PACKAGES = ("grd-offline", "torch", "numpy", "gymnasium", "mujoco")


def find_versions() -> dict[str, str]:
    """Find the versions of Python and of the packages that the results depend on."""
    found = {name: known for name in _PACKAGES if (known := find_version(name))}
    return {"python": platform.python_version(), **found}


def find_version(package: str) -> str | None:
    """The version of a package; None where it is not installed."""
    from importlib.metadata import PackageNotFoundError, version  # slow for a help text

    try:
        return version(package)
    except PackageNotFoundError:
        return None


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
