"""The registry of layouts.

A layout is one module that recognises its files, reads them and, if it can, writes them. One entry
in `LAYOUTS` makes it known to `read`, `write_dataset`, `inspect` and `convert`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from grd_offline.core.errors import DataError
from grd_offline.io.formats.d3rlpy import is_d3rlpy, read_d3rlpy
from grd_offline.io.formats.d4rl import is_d4rl, read_d4rl, write_d4rl
from grd_offline.io.formats.guard import SafeGroup
from grd_offline.io.formats.minari import is_minari, read_minari, write_minari
from grd_offline.io.formats.own import is_own, read_own, write_own
from grd_offline.io.formats.record import NewFile, OpenFile, Recording
from grd_offline.io.formats.robomimic import is_robomimic, read_robomimic


@dataclass(frozen=True)
class Layout:
    """One layout of HDF5 files."""

    name: str
    matches: Callable[[SafeGroup], bool]
    """Whether a file is in this layout."""
    read: Callable[[OpenFile], Recording]
    write: Callable[[NewFile], list[str]] | None = None
    """Writes a file in full or not at all, and gives warnings. None: it is only read."""
    needs_lengths: bool = False
    """Whether writing needs the lengths of all episodes beforehand."""


LAYOUTS = [
    Layout("own", is_own, read_own, write_own),
    Layout("minari", is_minari, read_minari, write_minari),
    Layout("d3rlpy", is_d3rlpy, read_d3rlpy),
    Layout("d4rl", is_d4rl, read_d4rl, write_d4rl, needs_lengths=True),
    Layout("robomimic", is_robomimic, read_robomimic),
]
"""The first layout that matches a file reads it."""


def register_layout(layout: Layout) -> None:
    """Add a layout of another package. It comes after the layouts that are known already."""
    if any(layout.name == known.name for known in LAYOUTS):
        raise ValueError(f"there is another layout called {layout.name!r}")
    LAYOUTS.append(layout)


def list_writable_layouts() -> list[str]:
    """The names of the layouts that can be written."""
    return [layout.name for layout in LAYOUTS if layout.write is not None]


def read_file(file: OpenFile) -> Recording:
    """Read a file in the first layout that matches it."""
    for layout in LAYOUTS:
        if layout.matches(file.root):
            return layout.read(file)
    known = ", ".join(layout.name for layout in LAYOUTS)
    names = ", ".join(sorted(file.root.names())[:8]) or "nothing"
    raise DataError(f"layout not recognised ({known}); the file holds {names}")


def find_writer(name: str, *, has_lengths: bool) -> Callable[[NewFile], list[str]]:
    """The function that writes the layout of that name."""
    for layout in LAYOUTS:
        if layout.name == name and layout.write is not None:
            if layout.needs_lengths and not has_lengths:
                raise ValueError(f"the {name} layout needs the lengths of the episodes")
            return layout.write
    known = ", ".join(list_writable_layouts())
    raise ValueError(f"layout: expected one of {known}, got {name!r}")
