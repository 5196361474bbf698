"""The rewards of a saved model for new rows of a data frame, as a table."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from grd_offline.core.episodes import EpisodeSet, Provenance
from grd_offline.core.errors import DataError
from grd_offline.core.threads import one_numpy_thread
from grd_offline.io.datasets import as_recording
from grd_offline.io.formats.record import Recording
from grd_offline.io.tables.build import open_source
from grd_offline.io.tables.columns import Given, parse_given
from grd_offline.io.tables.results import find_library, read_rewards, restore
from grd_offline.io.tables.sources import open_frame
from grd_offline.methods.relabelling import apply_model, check_inputs, expect_columns
from grd_offline.rewards.model import RewardModel

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
    opened = open_source(open_frame(table), given, expected=expect_columns(model))
    library = find_library(table) or ""
    provenance = replace(opened.header.provenance or Provenance(), library=library)
    return replace(opened, header=replace(opened.header, provenance=provenance))
