"""Everything that is written to disk and read back: results, models, and how to do so safely."""

from pathlib import Path

REPORT_FILE, PLOTS_FOLDER = "report.html", "plots"
"""The page and the figures in the folder of any result."""
MINARI_FILES = ("main_data.hdf5", "metadata.json")
"""The files in the folder `data` of a dataset of Minari's."""


def name_path(file: str) -> Path:
    """The path of some data, ending in a name: not in `.`, `..` or a slash."""
    path = Path(file.removeprefix("minari:").rstrip("/") or "/")
    return path if path.name not in ("", "..") else path.resolve()


def beside(file: str, ending: str) -> Path:
    """`data-grd` beside `data.h5`, for `-grd`; in this folder for what Minari keeps."""
    path = name_path(file)
    name = f"{path.stem}{ending}"
    return Path(name) if file.startswith("minari:") else path.parent / name
