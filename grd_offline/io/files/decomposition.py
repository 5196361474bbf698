"""The folder of a decomposition: what belongs to it, and how it is written.

metrics.json        how good the decomposition is, what the data cannot tell, settings, versions
masks.json          the four masks of the causal graph, their scores, and the compact state
effects.json        the effects that add up to the reward, each with its curve and band
relabelled.h5       the data with a reward at every step; a folder if the data were Minari's
relabelled.csv      the rewards as a table, if the data were one (or .parquet, .jsonl)
reward_model/       the reward as a function
dynamics_model/     the next state as a function
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grd_offline.core.inputs import InputRef
from grd_offline.io.files import PLOTS_FOLDER, REPORT_FILE
from grd_offline.io.files.models import DYNAMICS_FOLDER, REWARD_FOLDER
from grd_offline.io.files.storage import create_file

METRICS_FILE, MASKS_FILE, EFFECTS_FILE = "metrics.json", "masks.json", "effects.json"
RELABELLED = ("relabelled.h5", "relabelled")
TABLES = ("relabelled.csv", "relabelled.parquet", "relabelled.jsonl")
"""The rewards as a table, where the data came as one."""
MISFIT = "metrics, masks and effects do not fit together"
_ENTRIES = {
    *RELABELLED, *TABLES, REWARD_FOLDER, DYNAMICS_FOLDER, METRICS_FILE, MASKS_FILE, EFFECTS_FILE,
    REPORT_FILE, PLOTS_FOLDER,
}  # fmt: skip


def is_decomposition(folder: Path) -> bool:
    return (folder / METRICS_FILE).is_file() and (folder / REWARD_FOLDER).is_dir()


def is_replaceable(folder: Path) -> bool:
    """Whether a new decomposition may replace the folder: it holds an old one, nothing else."""
    return is_decomposition(folder) and {entry.name for entry in folder.iterdir()} <= _ENTRIES


def find_relabelled(folder: Path) -> Path | None:
    """The relabelled data in the folder of a decomposition, or None."""
    return next((folder / name for name in RELABELLED if (folder / name).exists()), None)


def write_decomposition(
    folder: Path,
    *,
    metrics: Mapping[str, Any],
    masks: Mapping[str, Any],
    effects: Mapping[str, Any],
) -> None:
    """Write the three JSON files into a folder that `replace_folder` handed out."""
    files = {EFFECTS_FILE: effects, MASKS_FILE: masks, METRICS_FILE: metrics}
    for name, contents in files.items():
        with create_file(folder / name) as output:
            output.write(json.dumps(contents, indent=1, default=_encode).encode())


def _encode(value: Any) -> Any:
    return value.to_json() if isinstance(value, InputRef) else float(value)
