"""Whether data have the inputs of a model: found by name, and refused otherwise."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from grd_offline.core.episodes import EpisodeSet
from grd_offline.core.errors import DataError
from grd_offline.io.datasets import Data, Recording, as_episodes
from grd_offline.io.tables.columns import Expected
from grd_offline.rewards.model import RewardModel


def expect_columns(model: RewardModel, *, needs_outcome: bool = False) -> Expected:
    """What a model knows about the columns of tables."""
    columns = (model.about or {}).get("columns")
    needed = {"step": model.function.needs_next, "terminated": model.function.needs_termination}
    return Expected(
        model.observation_names,
        model.action_names,
        columns,
        needs_outcome,
        tuple(role for role, is_needed in needed.items() if is_needed),
    )


def check_inputs(model: RewardModel, recording: Recording, source: Data) -> EpisodeSet:
    """The episodes; refuses data whose inputs are not those of the model."""
    episodes = as_episodes(recording, source)
    names = (*episodes.observation_names, *episodes.action_names)
    wanted = (*model.observation_names, *model.action_names)
    file = None if isinstance(source, EpisodeSet) else source
    sizes = episodes.state_size, episodes.action_size
    expected = len(model.observation_names), len(model.action_names)
    if sizes != expected:
        raise DataError(
            f"{sizes[0]} state and {sizes[1]} action dimensions, the model expects "
            f"{expected[0]} and {expected[1]}{_tell_inputs(names, wanted)}",
            file=file,
        )
    # Elsewhere names may be made up: s0 in one file is speed in another.
    are_columns = episodes.provenance is not None and "columns" in (model.about or {})
    if names != wanted and (are_columns or sorted(names) == sorted(wanted)):
        raise DataError(
            f"its inputs are not those of the model, or in another order"
            f"{_tell_inputs(names, wanted)}",
            file=file,
        )
    return episodes


def _tell_inputs(names: Sequence[str], wanted: Sequence[str]) -> str:
    """Where the names of inputs begin to differ from those of the model."""
    pairs = itertools.zip_longest(names, wanted, fillvalue="nothing")
    place, name, other = next((i, *pair) for i, pair in enumerate(pairs) if pair[0] != pair[1])
    return f": input {place + 1} is {name}, and the model has {other} there"
