"""A whole decomposition: from a dataset to a folder of results, all or nothing.

The folder holds `relabelled.h5`, `reward_model/`, `dynamics_model/`, `effects.json`, `masks.json`,
`metrics.json` and `report.html`. Of several outcomes, each has such a folder. `compute_rewards`
gives the rewards of a saved model for new rows of a data frame.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from grd_offline.additive.search import correlate_columns
from grd_offline.core.episodes import Episode, EpisodeSet, Provenance
from grd_offline.core.errors import DataError
from grd_offline.core.observer import NOBODY, Progress
from grd_offline.core.threads import one_numpy_thread
from grd_offline.io.datasets import Data, as_recording, open_recording, read
from grd_offline.io.files import REPORT_FILE
from grd_offline.io.files.models import DYNAMICS_FOLDER, REWARD_FOLDER
from grd_offline.io.files.results import (
    RELABELLED,
    check_outcomes,
    holds_outcomes_only,
    is_replaceable,
    write_decomposition,
    write_outcomes,
)
from grd_offline.io.files.storage import check_folder, create_file, replace_folder
from grd_offline.io.formats.record import Recording
from grd_offline.io.tables.columns import (
    Given,
    Outcomes,
    find_library,
    is_table,
    name_truth,
    parse_given,
)
from grd_offline.io.tables.results import ENDINGS, read_rewards, restore
from grd_offline.methods.decompose import Observe, decompose_recording
from grd_offline.methods.relabelling import (
    apply_model,
    check_inputs,
    expect_columns,
    find_truth,
    write_relabelled,
)
from grd_offline.methods.result import Decomposition
from grd_offline.methods.settings import DecomposeSettings
from grd_offline.report import make_decomposition_page, make_outcomes_page
from grd_offline.report.decomposed import TrackReader
from grd_offline.rewards.model import RewardModel


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
        source, max_episode_steps=max_episode_steps, max_bytes=max_bytes,
        columns=columns, returns=returns, needs_outcome=preferences is None,
    )  # fmt: skip
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
    table = folder / f"relabelled{ending}" if ending else None
    # The page takes what it shows while the data are written, so that they are read once.
    reader = TrackReader(found, fitted.recording)
    passing = replace(fitted.recording, load=reader.load)
    write_relabelled(passing, folder / name, table, fresh=True)
    fitted.model.save(folder / REWARD_FOLDER)
    fitted.dynamics.save(folder / DYNAMICS_FOLDER)
    effects = {"effects": found.effects, "constant": found.constant}
    write_decomposition(folder, metrics=found.metrics, masks=found.masks, effects=effects)
    progress("making the report", 0.0)
    page = make_decomposition_page(
        found, tracks=reader.finish(), name=out.name, video=video, warn=found.warnings.append
    )
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


SeveralOutcomes = Sequence[str] | Mapping[str, ArrayLike]


def decompose_each(
    source: Data,
    out: str | os.PathLike[str],
    outcomes: SeveralOutcomes,
    settings: DecomposeSettings | None = None,
    *,
    columns: Given | None = None,
    progress: Progress = NOBODY.on_progress,
    **reading: Any,
) -> dict[str, Decomposition]:
    """Decompose several outcomes of the same episodes, each as if it were the only one.

    Parameters
    ----------
    source
        Whatever `decompose` takes.
    out
        The folder. It then holds a decomposition of each outcome, and a page that shows their
        effects side by side.
    outcomes
        Names: of the columns of a table with a number per episode, or of the fields of a file with
        a number per step, which are summed. For episodes that are in memory, a mapping from names
        to one number per episode.
    settings
        How to decompose.
    columns
        The columns of a table.
    progress
        Hears of each stage and the fraction of it that is done.
    **reading
        Further arguments of `decompose`.

    Returns
    -------
    dict of Decomposition
        The decomposition of each outcome, by its name.

    Examples
    --------
    >>> found = decompose_each("trips.csv", "trips-grd", ["fuel", "delay"])  # doctest: +SKIP
    >>> found["fuel"].masks["state_to_reward"]  # doctest: +SKIP
    """
    settings = settings if settings is not None else DecomposeSettings()
    names = list(outcomes)
    check_outcomes(names)
    results = {}
    with replace_folder(out, is_replaceable=holds_outcomes_only) as folder:
        for name in names:
            data, given = _prepare(source, outcomes, name, columns, reading)

            def tell(stage: str, share: float, name: str = name) -> None:
                progress(f"{name}: {stage}", share)

            results[name] = decompose(
                data, folder / name, settings, columns=given, progress=tell, **reading
            )
        rewards = np.stack([np.concatenate(results[name].rewards) for name in names], 1)
        correlation = correlate_columns(rewards)
        write_outcomes(folder, names, correlation.tolist())
        with create_file(folder / REPORT_FILE) as output:
            output.write(make_outcomes_page(results, correlation).encode())
    return {name: replace(found, folder=Path(out) / name) for name, found in results.items()}


def _prepare(
    source: Data, outcomes: SeveralOutcomes, name: str, columns: Given | None, reading: Any
) -> tuple[Data, Given | None]:
    """Prepare the data with one outcome, and the roles of their columns."""
    if isinstance(source, EpisodeSet):
        if not isinstance(outcomes, Mapping):
            raise DataError("expected a mapping from names to numbers", field="outcomes")
        return set_returns(source, outcomes[name]), None
    if isinstance(outcomes, Mapping):
        raise DataError("expected names, because the data are in a file", field="outcomes")
    if is_table(Path(source)):
        given = parse_given(columns)
        ignored = (*given.get("ignored", ()), *(other for other in outcomes if other != name))
        return source, {**given, "returns": (name,), "ignored": ignored}
    limits = {k: reading[k] for k in ("max_episode_steps", "max_bytes") if k in reading}
    with open_recording(source, **limits) as recording:
        records = (recording.load(index) for index in range(len(recording)))
        sums = [float(find_truth(record, name, source).sum()) for record in records]
    return set_returns(read(source, **limits), sums), None


def set_returns(episodes: EpisodeSet, returns: ArrayLike) -> EpisodeSet:
    """Return the same episodes with other returns, one number each."""
    values = np.asarray(returns, np.float64)
    if values.shape != (len(episodes),):
        raise DataError(
            f"expected one number for each of {len(episodes):,} episodes, got shape {values.shape}",
            field="outcomes",
        )
    load = episodes.load

    def change(index: int) -> Episode:
        episode = load(index)
        last = np.arange(len(episode)) == len(episode) - 1
        return replace(episode, rewards=last * values[index], delivered=last)

    return replace(episodes, load=change)


SOURCE = "the table"
"""The name of the data in errors."""


@one_numpy_thread()
def compute_rewards(
    table: Any,
    model: RewardModel | str | os.PathLike[str],
    *,
    columns: Given | None = None,
) -> Any:
    """The rewards of a model for the rows of a data frame, which need no outcomes.

    Parameters
    ----------
    table
        A data frame of pandas or polars, an Arrow table, a mapping from names to arrays, or an
        `EpisodeSet`.
    model
        A model or the folder of one.
    columns
        The roles of columns, such as `"episode=trip,step=minute"`, where they are not those of the
        table of `decompose`.

    Returns
    -------
    table
        A table of the same library, in the order of the rows: the episode, the step, the reward,
        and its standard deviation under the name `spread`.

    Examples
    --------
    >>> rewards = compute_rewards(new_rows, "trips-grd")  # doctest: +SKIP
    >>> new_rows["reward"] = rewards["reward"].to_numpy()  # doctest: +SKIP
    """
    if not isinstance(model, RewardModel | str | os.PathLike):
        raise DataError(
            f"model: expected a RewardModel or the folder of one, got {type(model).__name__}"
        )
    chosen = model if isinstance(model, RewardModel) else RewardModel.load(model)
    recording = _open(table, chosen, columns)
    check_inputs(chosen, recording, SOURCE)
    rewards = read_rewards(recording.header, apply_model(recording, SOURCE, chosen))
    if isinstance(table, EpisodeSet):
        return rewards
    # As they were written: times have zones there, and names may be no texts.
    return restore(rewards, table, recording.header)


def _open(table: Any, model: RewardModel, columns: Given | None) -> Recording:
    if isinstance(table, EpisodeSet):
        return as_recording(table)
    given = parse_given(columns)
    from grd_offline.io.tables.build import open_source  # needs polars
    from grd_offline.io.tables.sources import open_frame

    opened = open_source(open_frame(table), given, expected=expect_columns(model))
    library = find_library(table) or ""
    provenance = replace(opened.header.provenance or Provenance(), library=library)
    return replace(opened, header=replace(opened.header, provenance=provenance))
