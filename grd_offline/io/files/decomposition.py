"""The folder of a decomposition: what belongs to it, how it is written and how it is read.

metrics.json        how good the decomposition is, what the data cannot tell, settings, versions
masks.json          the four masks of the causal graph, their scores, and the compact state
effects.json        the effects that add up to the reward, each with its curve and band
relabelled.h5       the data with a reward at every step; a folder if the data were Minari's
relabelled.csv      the rewards as a table, if the data were one (or .parquet, .jsonl)
reward_model/       the reward as a function
dynamics_model/     the next state as a function
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grd_offline.core.errors import DataError
from grd_offline.io.files import PLOTS_FOLDER, REPORT_FILE
from grd_offline.io.files.models import DYNAMICS_FOLDER, REWARD_FOLDER
from grd_offline.io.files.plain import folder_errors, read_json
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


@dataclass(frozen=True)
class DecompositionRecord:
    """The files of a decomposition, apart from the data and the models."""

    path: Path
    metrics: Mapping[str, Any]
    masks: Mapping[str, Any]
    effects: Sequence[Mapping[str, Any]]
    """The effect with the largest share of the reward's variation comes first."""
    constant: float
    """The reward where all effects are 0."""
    inputs: Sequence[str]
    """Names of the inputs that drive the reward, the strongest first."""


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
            output.write(json.dumps(contents, indent=1, default=float).encode())


def read_decomposition(folder: Path, *, inside: Path | None = None) -> DecompositionRecord:
    """Read the three JSON files. No link may lead out of the folder, or out of `inside`."""
    inside = inside or folder
    metrics, masks, effects = (
        _read(folder, name, inside) for name in (METRICS_FILE, MASKS_FILE, EFFECTS_FILE)
    )
    with folder_errors(folder, MISFIT):
        ranked = _rank_effects(effects["effects"])
        return DecompositionRecord(
            path=folder,
            metrics=metrics,
            masks=masks,
            effects=ranked,
            constant=float(effects.get("constant", 0.0)),
            inputs=_rank_inputs(ranked, masks),
        )


def read_masks(folder: Path) -> dict[str, Any]:
    return _read(folder, MASKS_FILE, folder)


def _read(folder: Path, name: str, inside: Path) -> dict[str, Any]:
    try:
        contents = read_json(folder / name, inside=inside)
    except FileNotFoundError:
        raise DataError(f"not a decomposition: no {name}", file=folder) from None
    if not isinstance(contents, dict):
        raise DataError("expected an object", file=folder / name)
    return contents


def _rank_effects(effects: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Rank effects by their share. Earlier versions wrote negative shares, which become 0."""
    shares = [max(0.0, float(effect["share"])) for effect in effects]
    if any(float(effect["share"]) < 0 for effect in effects):
        total = sum(shares) or 1.0
        shares = [share / total for share in shares]
    settled = [{**effect, "share": share} for effect, share in zip(effects, shares, strict=True)]
    return sorted(settled, key=lambda effect: -effect["share"])


def _rank_inputs(effects: Sequence[Mapping[str, Any]], masks: Mapping[str, Any]) -> list[str]:
    """Rank inputs by the shares of their effects; without effects, by the scores of masks."""
    weights: dict[str, float] = {}
    for effect in effects:
        for name in effect["inputs"]:
            weights[name] = weights.get(name, 0.0) + float(effect["share"])
    if not effects:
        for kind in ("state", "action"):
            names, on = masks[f"{kind}_names"], masks[f"{kind}_to_reward"]
            scores = masks["score"][f"{kind}_to_reward"]
            weights |= {n: s for n, m, s in zip(names, on, scores, strict=True) if m}
    return sorted(weights, key=lambda name: -weights[name])
