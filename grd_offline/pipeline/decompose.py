"""A whole decomposition: from a dataset to a folder of results, all or nothing.

The folder holds `relabelled.h5`, `reward_model/`, `dynamics_model/`, `effects.json`, `masks.json`,
`metrics.json` and `report.html`.
"""

from __future__ import annotations

import os
import shlex
import time
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from grd_offline.core.errors import DataError
from grd_offline.core.observer import NOBODY, Progress
from grd_offline.core.threads import one_numpy_thread
from grd_offline.io.datasets import Data, open_recording
from grd_offline.io.files import REPORT_FILE
from grd_offline.io.files.models import DYNAMICS_FOLDER, REWARD_FOLDER
from grd_offline.io.files.results import RELABELLED, is_replaceable, write_decomposition
from grd_offline.io.files.storage import check_folder, create_file, replace_folder
from grd_offline.io.tables.columns import Given, Outcomes, name_truth
from grd_offline.io.tables.results import ENDINGS
from grd_offline.methods.decompose import Observe, decompose_recording
from grd_offline.methods.relabelling import write_relabelled
from grd_offline.methods.result import Decomposition
from grd_offline.methods.settings import DecomposeSettings
from grd_offline.report import make_decomposition_page


@one_numpy_thread()
def decompose(
    source: Data,
    out: str | os.PathLike[str],
    settings: DecomposeSettings | None = None,
    *,
    max_episode_steps: int | None = None,
    max_bytes: int | None = None,
    columns: Given | None = None,
    returns: Outcomes | None = None,
    preferences: Any = None,
    video: str | None = None,
    progress: Progress = NOBODY.on_progress,
    on_data: Observe = lambda episodes, fitted: None,
) -> Decomposition:
    """Decompose the returns of a dataset and write the results into the folder `out`.

    This is what `grd-offline decompose` does. Without a folder, `decompose_episodes` does the same
    in memory.

    Parameters
    ----------
    source
        A file or folder that `open_recording` can read, or episodes, for example those of
        `from_dataframe`.
    out
        The folder, which is written in full or not at all. An earlier decomposition there is
        replaced.
    settings
        How to decompose. The defaults are right for most data.
    max_episode_steps, max_bytes, columns, returns
        As `open_recording` has them.
    preferences
        Are learned from instead of returns: a `Preferences`, a table with the columns first, second
        and preferred, or the file of one.
    video
        The environment in which the report films a few episodes.
    progress
        Hears of each stage and the fraction of it that is done.
    on_data
        Gets all episodes, and those that models are fitted to, before the first fit.

    Returns
    -------
    Decomposition
        Rewards, masks, effects, models, findings and the verdict.

    Examples
    --------
    >>> result = decompose("datasets/sample.h5", "sample-uniform", DecomposeSettings("uniform"))
    >>> result.metrics["episodes"], result.relabelled.name
    (80, 'relabelled.h5')
    """
    settings = settings if settings is not None else DecomposeSettings()
    if settings.truth is not None:
        columns, truth = name_truth(source, columns, settings.truth)
        settings = replace(settings, truth=truth)
    start = time.perf_counter()
    check_folder(out, is_replaceable=is_replaceable)
    opened = open_recording(
        source,
        max_episode_steps=max_episode_steps,
        max_bytes=max_bytes,
        columns=columns,
        returns=returns,
        needs_outcome=preferences is None,
    )
    with opened:
        found = decompose_recording(
            opened, source, settings, preferences=preferences, progress=progress, on_data=on_data
        )
        given = {"video": video, "returns": returns, "preferences": preferences}
        found.metrics["command"] = _make_command(found, settings, given)
        found.metrics["seconds"] = round(time.perf_counter() - start, 2)
        return save_decomposition(found, out, video=video, progress=progress)


decompose_file = decompose


def save_decomposition(
    found: Decomposition,
    out: str | os.PathLike[str],
    *,
    video: str | None = None,
    progress: Progress = NOBODY.on_progress,
) -> Decomposition:
    """Write a decomposition that is in memory into the folder `out`, all or nothing.

    Parameters
    ----------
    found
        What `decompose_episodes` gave.
    out
        The folder. An earlier decomposition there is replaced.
    video
        The environment in which the report films a few episodes.
    progress
        Hears of each stage and the fraction of it that is done.

    Returns
    -------
    Decomposition
        The same, with its folder.

    Examples
    --------
    >>> from grd_offline import DecomposeSettings, decompose_episodes, read
    >>> found = decompose_episodes(read("datasets/sample.h5"), DecomposeSettings("uniform"))
    >>> save_decomposition(found, "sample-uniform").relabelled.name
    'relabelled.h5'
    """
    with replace_folder(out, is_replaceable=is_replaceable) as folder:
        return write_files(found, folder, Path(out), video=video, progress=progress)


def write_files(
    found: Decomposition,
    folder: Path,
    out: Path,
    *,
    video: str | None = None,
    progress: Progress = NOBODY.on_progress,
) -> Decomposition:
    """Write all files into an empty folder, which `replace_folder` will move to `out`."""
    fitted = found.fitted
    if fitted is None:
        raise DataError("the decomposition is not in memory: it was read from its folder")
    progress("writing the results", 0.0)
    name = RELABELLED[fitted.recording.layout == "minari"]
    ending = ENDINGS.get(fitted.layout)
    table = None if ending is None else folder / f"relabelled{ending}"
    write_relabelled(fitted.recording, folder / name, table, fresh=True)
    fitted.model.save(folder / REWARD_FOLDER)
    fitted.dynamics.save(folder / DYNAMICS_FOLDER)
    effects = {"effects": found.effects, "constant": found.constant}
    write_decomposition(folder, metrics=found.metrics, masks=found.masks, effects=effects)
    progress("making the report", 0.0)
    page = make_decomposition_page(found, name=out.name, video=video, warn=found.warnings.append)
    with create_file(folder / REPORT_FILE) as output:
        output.write(page.encode())
    return replace(found, folder=out)


def _make_command(found: Decomposition, settings: DecomposeSettings, given: dict[str, Any]) -> str:
    """The command that makes the decomposition again; `given` are options for files."""
    parts = ["grd-offline", "decompose", found.metrics["data"]]
    for field in fields(DecomposeSettings):
        value, option = getattr(settings, field.name), f"--{field.name.replace('_', '-')}"
        if value != field.default:
            parts += [option] if value is True else [option, str(value)]
    if given["video"] is not None:
        parts += ["--video", "--env", given["video"]]
    for name, value in {"columns": found.columns, **given}.items():
        if name != "video" and isinstance(value, str | os.PathLike):
            parts += [f"--{name}", value if name == "columns" else Path(value).name]
    return shlex.join(parts)
