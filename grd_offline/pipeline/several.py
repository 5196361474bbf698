"""Decompose several outcomes of the same episodes: a reward for each, and their effects side by
side."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from grd_offline.additive.search import correlate_columns
from grd_offline.core.episodes import Episode, EpisodeSet
from grd_offline.core.errors import DataError
from grd_offline.core.observer import NOBODY, Progress
from grd_offline.io.datasets import Data, open_recording, read
from grd_offline.io.files import REPORT_FILE
from grd_offline.io.files.results import (
    check_outcomes,
    holds_outcomes_only,
    write_outcomes,
)
from grd_offline.io.files.storage import create_file, replace_folder
from grd_offline.io.tables.columns import Given, is_table, parse_given
from grd_offline.methods.relabelling import find_truth
from grd_offline.methods.result import Decomposition
from grd_offline.methods.settings import DecomposeSettings
from grd_offline.pipeline.decompose import decompose
from grd_offline.report import make_outcomes_page

Outcomes = Sequence[str] | Mapping[str, ArrayLike]


def decompose_each(
    source: Data,
    out: str | os.PathLike[str],
    outcomes: Outcomes,
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
    source: Data, outcomes: Outcomes, name: str, columns: Given | None, reading: Mapping[str, Any]
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
        others = tuple(other for other in outcomes if other != name)
        return source, {
            **given,
            "returns": (name,),
            "ignored": (*given.get("ignored", ()), *others),
        }
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
