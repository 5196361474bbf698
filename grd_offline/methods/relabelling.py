"""Rewards at every step of a dataset: computed by a model, put into its records, and written.

Data whose inputs are not those of the model, which are found by name, are refused.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from grd_offline.core import statistics
from grd_offline.core.episodes import TRUTH, Episode, EpisodeSet, Provenance
from grd_offline.core.errors import DataError
from grd_offline.core.observer import NOBODY, Progress
from grd_offline.core.outcomes import NUMBER, Outcome
from grd_offline.core.steps import StepBatch
from grd_offline.core.threads import one_numpy_thread
from grd_offline.core.typing import Array
from grd_offline.io import datasets
from grd_offline.io.datasets import Data, Record, Recording
from grd_offline.io.files import beside
from grd_offline.io.files.plain import folder_errors
from grd_offline.io.files.results import MASKS_FILE
from grd_offline.io.formats.record import DELIVERED, OBSERVED, STD
from grd_offline.io.tables import results as tables
from grd_offline.io.tables.columns import Expected, Given, Outcomes, name_truth, parse_columns
from grd_offline.methods.result import read_decomposition
from grd_offline.rewards.model import RewardModel


def expect_columns(model: RewardModel, *, needs_outcome: bool = False) -> Expected:
    """What a model knows about the columns of tables."""
    columns = (model.about or {}).get("columns")
    needed = {"step": model.function.needs_next, "terminated": model.function.needs_termination}
    roles = tuple(role for role, is_needed in needed.items() if is_needed)
    return Expected(model.observation_names, model.action_names, columns, needs_outcome, roles)


def check_inputs(model: RewardModel, recording: Recording, source: Data) -> EpisodeSet:
    """The episodes; refuses data whose inputs are not those of the model."""
    episodes = datasets.as_episodes(recording, source)
    names = (*episodes.observation_names, *episodes.action_names)
    wanted = (*model.observation_names, *model.action_names)
    sizes = episodes.state_size, episodes.action_size
    expected = len(model.observation_names), len(model.action_names)
    # Elsewhere names may be made up: s0 in one file is speed in another.
    are_columns = episodes.provenance is not None and "columns" in (model.about or {})
    if sizes != expected:
        reason = (
            f"{sizes[0]} state and {sizes[1]} action dimensions, the model expects "
            f"{expected[0]} and {expected[1]}"
        )
    elif names != wanted and (are_columns or sorted(names) == sorted(wanted)):
        reason = "its inputs are not those of the model, or in another order"
    else:
        return episodes
    pairs = itertools.zip_longest(names, wanted, fillvalue="nothing")
    place, name, other = next((i, *pair) for i, pair in enumerate(pairs, 1) if pair[0] != pair[1])
    reason = f"{reason}: input {place} is {name}, and the model has {other} there"
    raise DataError(reason, file=None if isinstance(source, EpisodeSet) else source)


MANY_EPISODES = 2_000
"""Tables with more episodes than this are relabelled in a flat file."""


def relabel_recording(
    recording: Recording,
    find_rewards: Callable[[int, Record], tuple[Array, Array]],
    settings: Mapping[str, Any],
) -> Recording:
    """A dataset with a reward at every step, and the spread of each, in place of what was observed.

    `find_rewards` gives both for each record, and `settings` say how they were made.
    """

    def load(index: int) -> Record:
        record = recording.load(index)
        rewards, std = find_rewards(index, record)
        # There is a reward at every step now.
        extras = {name: record.extras[name] for name in record.extras if name != DELIVERED}
        extras[STD] = std.astype(np.float32)
        extras.setdefault(OBSERVED, record.rewards)
        return replace(record, rewards=rewards, extras=extras)

    made = {**recording.header.settings, "decompose": dict(settings)}
    return replace(
        recording,
        layout=choose_layout(recording),
        header=replace(recording.header, delay="step", discount=1.0, settings=made),
        load=load,
        load_rewards=lambda index: load(index).rewards,
        close=lambda: None,
    )


def apply_model(
    recording: Recording,
    source: Data,
    model: RewardModel,
    *,
    exact: bool = False,
    progress: Progress = NOBODY.on_progress,
) -> Recording:
    """A dataset with the rewards of a model; each episode gets them when it is loaded.

    `exact`: they sum to the delivered amounts.
    """
    delay, about = datasets.find_delay(recording), model.about or {}

    def find_rewards(index: int, record: Record) -> tuple[Array, Array]:
        with datasets.locate(source, index):
            episode = datasets.as_episode(record, recording.header, delay)
            rewards, std = model.predict_both(*StepBatch.from_episode(episode).arrays)
            if exact:
                rewards = spread_remainder(rewards, episode, float(about.get("discount", 1.0)))
        progress("computing step rewards", (index + 1) / len(recording))
        return rewards, std

    return relabel_recording(recording, find_rewards, {"model": dict(about)})


def write_relabelled(
    relabelled: Recording, path: Path, table: Path | None, *, fresh: bool = False
) -> list[str]:
    """Write relabelled data, and their rewards as a table if one is named. Returns warnings."""
    with ExitStack() as stack:
        records: Iterable[Record] = relabelled
        if table is not None:
            names = relabelled.header.provenance or Provenance()
            add = stack.enter_context(tables.open_rewards(table, names, fresh=fresh))
            records = tables.add_records(relabelled, add)
        return datasets.write_dataset(
            path, relabelled.header, records, layout=relabelled.layout, lengths=relabelled.lengths
        )


@dataclass(frozen=True)
class Relabelled:
    """A dataset that `relabel` wrote."""

    path: Path
    episodes: int
    steps: int
    warnings: tuple[str, ...]
    table: Path | None = None
    """The rewards as a table, where the data came as one."""
    columns: str | None = None
    """For tables: the role of each column, in the form of `--columns`."""

    @property
    def rewards_(self) -> Any:
        """All rewards with their episode, step and spread; see `Decomposition.rewards_`."""
        with datasets.open_recording(self.path) as recording:
            return tables.read_rewards(recording.header, recording)


@one_numpy_thread()
def relabel(
    source: Data,
    model: RewardModel | str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    exact_returns: bool = False,
    max_episode_steps: int | None = None,
    max_bytes: int | None = None,
    columns: Given | None = None,
    returns: Outcomes | None = None,
    progress: Progress = NOBODY.on_progress,
) -> Relabelled:
    """Write a dataset with the rewards of a model that was learned before.

    This is what `grd-offline relabel` does. The observed rewards are kept as `observed_rewards`.

    Parameters
    ----------
    source
        A file or folder that `open_recording` can read. A table needs the columns of the model, not
        outcomes. Its rewards are written as a table, too.
    model
        A model or the folder of one.
    out
        The new dataset. None: it lies beside the old one.
    exact_returns
        Whether the rewards of an episode sum to its outcome.
    max_episode_steps, max_bytes, columns, returns
        As `open_recording` has them.
    progress
        Hears of the fraction that is done.

    Returns
    -------
    Relabelled
        The files, and how much they hold.

    Examples
    --------
    >>> from grd_offline import DecomposeSettings, decompose
    >>> _ = decompose("datasets/sample.h5", "sample-uniform", DecomposeSettings("uniform"))
    >>> relabel("datasets/sample.h5", "sample-uniform", "again.h5").steps
    1418
    """
    chosen = model if isinstance(model, RewardModel) else RewardModel.load(model)
    check_exact(chosen, exact_returns)
    opened = datasets.open_recording(
        source,
        max_episode_steps=max_episode_steps,
        max_bytes=max_bytes,
        columns=columns,
        returns=returns,
        expected=expect_columns(chosen, needs_outcome=exact_returns),
    )
    with opened:
        episodes = check_inputs(chosen, opened, source)
        relabelled = apply_model(opened, source, chosen, exact=exact_returns, progress=progress)
        ending = "-relabelled" if relabelled.layout == "minari" else "-relabelled.h5"
        target = _find_target(source, out, ending)
        table = _name_table(opened.layout, source, target)
        warnings = write_relabelled(relabelled, target, table)
        roles = tables.find_columns(opened)
    return Relabelled(target, len(episodes), episodes.total_steps, tuple(warnings), table, roles)


def check_exact(model: RewardModel, exact_returns: bool) -> None:
    """Refuse exact returns for a model whose sums are not in the units of the data."""
    outcome = model.function.outcome
    if exact_returns and outcome != NUMBER:
        raise DataError(f"--exact-returns is for models of numbers; this one is of {outcome}")


def _find_target(source: Data, out: str | os.PathLike[str] | None, ending: str) -> Path:
    """Choose the target: the given one, or one beside the source, which is never overwritten."""
    if isinstance(source, EpisodeSet):
        if out is None:
            raise DataError("relabel: name the file to write, because episodes have no place")
        return Path(out)
    target = Path(out) if out is not None else beside(os.fspath(source), ending)
    if target.suffix in tables.ENDINGS.values():
        raise DataError("name the .h5 file; the table is written beside it", file=target)
    if datasets.is_same_place(source, target):
        raise DataError("IN and OUT are the same", file=source)
    return target


def _name_table(layout: str, source: Data, relabelled: Path) -> Path | None:
    """The table of rewards beside the relabelled data, where they came as one.

    It replaces only another table of rewards, beside a dataset of the same name.
    """
    if layout not in tables.ENDINGS:
        return None
    table = relabelled.with_suffix(tables.ENDINGS[layout])
    is_source = not isinstance(source, EpisodeSet) and datasets.is_same_place(source, table)
    is_ours = relabelled.exists() and tables.is_rewards_table(table)
    if is_source or (os.path.lexists(table) and not is_ours):
        reason = f"the table of rewards would replace {table.name}: choose another name with --out"
        raise DataError(reason, file=table)
    return table


def choose_layout(recording: Recording) -> str:
    """The layout of relabelled data: that of the source, or our own.

    A group for each of many short episodes takes hours to write and read. So large tables are
    written flat, as D4RL has it, if flags mark the end of each episode.
    """
    if recording.layout in ("minari", "d4rl"):
        return recording.layout
    if recording.layout not in tables.ENDINGS or len(recording) <= MANY_EPISODES:
        return "own"
    given = parse_columns(tables.find_columns(recording) or "")
    return "own" if given.get("truncated") else "d4rl"


def spread_remainder(rewards: Array, episode: Episode, discount: float) -> Array:
    """Change rewards so that their discounted sums equal the delivered amounts. The rest is spread
    evenly."""
    rewards = rewards.astype(np.float64).copy()
    weights = discount ** np.arange(len(rewards))
    for start, stop, amount in zip(*episode.segments(), strict=True):
        part = slice(start, stop)
        missing = float(amount) - float(rewards[part] @ weights[part])
        rewards[part] += missing / weights[part].sum()
    return rewards


def find_truth(record: Record, field: str, source: Data) -> Array:
    found = record.rewards if field == "rewards" else record.extras.get(field)
    if found is None or found.shape != record.rewards.shape:
        file = None if isinstance(source, EpisodeSet) else source
        known = ", ".join(sorted(record.extras)) or "none"
        reason = f"no such field with a number per step; there are: {known}"
        raise DataError(reason, file=file, field=field)
    return found.astype(np.float64)


def compare_truth(
    outcome: Outcome, rewards: Sequence[Array], spreads: Sequence[Array], true: Sequence[Array]
) -> tuple[dict[str, float], list[float]]:
    """Compare the rewards of episodes with the true ones, and calibrate their bands.

    Log-odds of success or of a preference have no unit and no zero in common with the truth: bands
    are compared in those that fit best.
    """
    comparison = statistics.compare_rewards(rewards, true)
    predicted, std, truth = (np.concatenate(list(part)) for part in (rewards, spreads, true))
    if outcome != NUMBER and predicted.std():
        slope, level = np.polyfit(predicted, truth, 1)
        predicted, std = slope * predicted + level, abs(slope) * std
    comparison["coverage_90"] = statistics.compute_coverage(predicted, std, truth)
    return comparison, statistics.compute_calibration(predicted, std, truth)


@one_numpy_thread()
def compare_with_truth(
    folder: str | os.PathLike[str],
    truth: str,
    data: str | os.PathLike[str] | None = None,
    *,
    columns: Given | None = None,
    **reading: Any,
) -> dict[str, Any]:
    """Compare a decomposition with the true rewards, on its own data or on others.

    `truth` is a field of the data, or a column if they are a table. The columns of a table have the
    roles that they had in `decompose`, unless `columns` says something else. `reading` are further
    arguments of `open_recording`.
    """
    place, model = Path(folder), RewardModel.load(folder)
    source = data if data is not None else place
    if data is None and truth == "rewards":
        raise DataError("are those of the decomposition: name the true ones", field=truth)
    expected = expect_columns(model)
    if data is None and parse_columns(expected.columns or "").get("truth") == (truth,):
        truth = TRUTH
    columns, truth = name_truth(source, columns, truth)
    with datasets.open_recording(
        source, columns=columns, expected=expected, **reading
    ) as recording:
        check_inputs(model, recording, source)
        relabelled = recording if data is None else apply_model(recording, source, model)
        rewards, spreads, true = [], [], []
        for index, record in enumerate(relabelled):
            with datasets.locate(source, index):
                true.append(find_truth(recording.load(index), truth, source))
            rewards.append(record.rewards.astype(np.float64))
            spreads.append(record.extras[STD])
        compared = compare_truth(model.function.outcome, rewards, spreads, true)
        result: dict[str, Any] = {"rewards": compared[0]}
        true_masks = recording.header.truth.get("masks")
    if isinstance(true_masks, Mapping):
        masks = read_decomposition(place).masks
        with folder_errors(place / MASKS_FILE, "cannot be compared with the true masks"):
            result["masks"] = statistics.compare_all_masks(masks, true_masks)
    return result
