"""Write datasets with the rewards of a model, and compare these with the truth."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from grd_offline.core.episodes import Episode, EpisodeSet
from grd_offline.core.errors import DataError
from grd_offline.core.evaluate import (
    compare_all_masks,
    compare_rewards,
    compute_calibration,
    compute_coverage,
    r_squared,
)
from grd_offline.core.outcomes import NUMBER, PREFERENCE, Outcome
from grd_offline.core.provenance import TRUTH, Provenance
from grd_offline.core.steps import StepBatch
from grd_offline.core.threads import one_numpy_thread
from grd_offline.io.datasets import (
    Data,
    Header,
    Record,
    Recording,
    as_episode,
    find_delay,
    is_same_place,
    locate,
    open_recording,
    write_dataset,
)
from grd_offline.io.files.decomposition import MASKS_FILE, read_masks
from grd_offline.io.files.naming import beside
from grd_offline.io.files.plain import folder_errors
from grd_offline.io.formats.in_memory import DELIVERED
from grd_offline.io.formats.relabelled import OBSERVED, STD
from grd_offline.io.tables.columns import Given, Outcomes, name_truth, parse_columns
from grd_offline.io.tables.results import (
    ENDINGS,
    add_records,
    find_columns,
    is_rewards_table,
    open_rewards,
    read_rewards,
)
from grd_offline.methods.contract import Decomposer, Progress
from grd_offline.methods.matching import check_inputs, expect_columns
from grd_offline.rewards.contract import Array
from grd_offline.rewards.model import RewardModel

MANY_COLUMNS = 400
MANY_EPISODES = 2_000
"""Tables with more episodes than this are relabelled in a flat file."""


class Tally:
    """Sums that are collected while relabelling, and the truth if it is asked for."""

    def __init__(self, outcome: Outcome = NUMBER, base: float = 0.0) -> None:
        """`base` is the part of the log-odds of success that belongs to no step."""
        self.outcome, self._base = outcome, base
        self.returns: list[tuple[float, float]] = []
        self.true: list[Array] = []
        self.predicted: list[Array] = []
        self.std: list[Array] = []

    def add(
        self, rewards: Array, std: Array, observed: float, discount: float, true: Array | None
    ) -> None:
        weights = discount ** np.arange(len(rewards))
        self.returns.append((float(rewards @ weights), observed))
        if true is not None:
            self.true.append(true)
            self.predicted.append(rewards)
            self.std.append(std)

    def return_r2(self) -> float | None:
        """R² of the returns, or of labels of success; None for preferences, which have neither."""
        if self.outcome == PREFERENCE:
            return None
        predicted, observed = np.array(self.returns).T
        return r_squared(self.outcome.predict(predicted, self._base), observed)

    def calibrate(self) -> list[float]:
        """Fraction of true values that lie within the intervals of each level."""
        predicted, std = self._match_units()
        return compute_calibration(predicted, std, np.concatenate(self.true))

    def compare(self) -> dict[str, float]:
        """Compare the rewards with the truth, and measure how often the truth lies within 90 %
        bands."""
        predicted, std = self._match_units()
        coverage = compute_coverage(predicted, std, np.concatenate(self.true))
        return {**compare_rewards(self.predicted, self.true), "coverage_90": coverage}

    def _match_units(self) -> tuple[Array, Array]:
        """All rewards and their spread, in the units of the truth.

        Log-odds of success or of a preference have no unit and no zero in common with it: those
        that fit best are taken.
        """
        predicted, std = np.concatenate(self.predicted), np.concatenate(self.std)
        if self.outcome == NUMBER or not predicted.std():
            return predicted, std
        slope, level = np.polyfit(predicted, np.concatenate(self.true), 1)
        return slope * predicted + level, abs(slope) * std


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
        with open_recording(self.path) as recording:
            return read_rewards(recording.header, recording)


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
    progress: Progress = lambda stage, share: None,
) -> Relabelled:
    """Write a dataset with the rewards of a model that was learned before.

    This is what `grd-offline relabel` does. `model` is a model or the folder of one. Without `out`
    the new dataset lies beside the old one. The observed rewards are kept as `observed_rewards`.
    A table needs the columns of the model, not outcomes. Its rewards are written as a table, too.

    >>> relabel("datasets/sample.h5", "sample-uniform", "again.h5").steps
    1418
    """
    chosen = model if isinstance(model, RewardModel) else RewardModel.load(model)
    about = chosen.about or {}
    check_exact(chosen, exact_returns)
    opened = open_recording(
        source,
        max_episode_steps=max_episode_steps,
        max_bytes=max_bytes,
        columns=columns,
        returns=returns,
        expected=expect_columns(chosen, needs_outcome=exact_returns),
    )
    with opened:
        episodes = check_inputs(chosen, opened, source)
        layout = choose_layout(opened)
        ending = "-relabelled" if layout == "minari" else "-relabelled.h5"
        target = _find_target(source, out, ending)
        records = relabel_records(
            opened,
            source,
            chosen,
            discount=float(about.get("discount", 1.0)),
            exact=exact_returns,
            progress=lambda share: progress("computing step rewards", share),
        )
        header = relabelled_header(opened.header, {"model": dict(about)})
        table = _name_table(opened.layout, source, target)
        with keep_table(table, header, records) as passing:
            warnings = write_dataset(target, header, passing, layout=layout, lengths=opened.lengths)
        columns = find_columns(opened)
    return Relabelled(
        target,
        len(episodes),
        episodes.total_steps,
        tuple(warnings),
        table,
        columns,
    )


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
    if target.suffix in ENDINGS.values():
        raise DataError("name the .h5 file; the table is written beside it", file=target)
    if is_same_place(source, target):
        raise DataError("IN and OUT are the same", file=source)
    return target


def _name_table(layout: str, source: Data, relabelled: Path) -> Path | None:
    """The table of rewards beside the relabelled data, where they came as one.

    It replaces only another table of rewards, beside a dataset of the same name.
    """
    if layout not in ENDINGS:
        return None
    table = relabelled.with_suffix(ENDINGS[layout])
    is_source = not isinstance(source, EpisodeSet) and is_same_place(source, table)
    is_ours = relabelled.exists() and is_rewards_table(table)
    if is_source or (os.path.lexists(table) and not is_ours):
        raise DataError(
            f"the table of rewards would replace {table.name}: choose another name with --out",
            file=table,
        )
    return table


@contextmanager
def keep_table(
    path: Path | None, header: Header, records: Iterable[Record], *, fresh: bool = False
) -> Iterator[Iterable[Record]]:
    """Pass the records on, and write their rewards into a table. None means no table."""
    if path is None:
        yield records
        return
    with open_rewards(path, header.provenance or Provenance(), fresh=fresh) as add:
        yield add_records(records, add)


def choose_layout(recording: Recording) -> str:
    """The layout of relabelled data: that of the source, or our own.

    A group for each of many short episodes takes hours to write and read. So large tables are
    written flat, as D4RL has it, if flags mark the end of each episode.
    """
    if recording.layout in ("minari", "d4rl"):
        return recording.layout
    if recording.layout not in ENDINGS or len(recording) <= MANY_EPISODES:
        return "own"
    given = parse_columns(find_columns(recording) or "")
    return "own" if given.get("truncated") else "d4rl"


def relabel_records(
    recording: Recording,
    source: Data,
    model: RewardModel,
    *,
    decomposer: Decomposer | None = None,
    delay: int | str | None = None,
    discount: float = 1.0,
    folded: bool = False,
    exact: bool = False,
    truth: str | None = None,
    tally: Tally | None = None,
    progress: Callable[[float], None] = lambda share: None,
) -> Iterator[Record]:
    """Give every record the rewards of the model, one after the other.

    `folded`: only the return of each episode counts as delivered. `exact`: sums must hold.
    """
    when = delay if delay is not None else find_delay(recording)
    for index in range(len(recording)):
        record = recording.load(index)
        with locate(source, index):
            episode = as_episode(record, recording.header, when)
            if folded:
                episode = episode.delivered_at_end(discount)
            rewards, std = _predict(model, decomposer, episode)
            if exact:
                rewards = spread_remainder(rewards, episode, discount)
            if tally is not None:
                true = find_truth(record, truth, source) if truth is not None else None
                tally.add(rewards, std, episode.compute_return(discount), discount, true)
        # There is a reward at every step now.
        extras = {name: record.extras[name] for name in record.extras if name != DELIVERED}
        extras[STD] = std.astype(np.float32)
        extras.setdefault(OBSERVED, record.rewards)
        yield replace(record, rewards=rewards, extras=extras)
        progress((index + 1) / len(recording))


def _predict(
    model: RewardModel, decomposer: Decomposer | None, episode: Episode
) -> tuple[Array, Array]:
    steps = StepBatch.from_episode(episode).arrays
    if decomposer is not None and not decomposer.function_.knows_std:
        rewards = decomposer.relabel_episode(episode)
        return rewards, model.uncertainty(*steps)
    return model.predict_both(*steps)


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


def relabelled_header(header: Header, settings: Mapping[str, Any]) -> Header:
    """The header of a relabelled dataset: a reward at every step, and how it was made."""
    made = {**header.settings, "decompose": dict(settings)}
    return replace(header, delay="step", discount=1.0, settings=made)


def find_truth(record: Record, field: str, source: Data) -> Array:
    found = record.rewards if field == "rewards" else record.extras.get(field)
    if found is None or found.shape != record.rewards.shape:
        known = ", ".join(sorted(record.extras)) or "none"
        file = None if isinstance(source, EpisodeSet) else source
        raise DataError(
            f"no such field with a number per step; there are: {known}", file=file, field=field
        )
    return found.astype(np.float64)


def check_width(episodes: EpisodeSet) -> None:
    """Refuse data with more columns than any fit can separate, before hours are spent on them."""
    columns = episodes.state_size + episodes.action_size
    if columns > MANY_COLUMNS and columns > episodes.total_steps:
        raise DataError(
            f"{columns:,} columns in {episodes.total_steps:,} steps: a fit of so many columns "
            "needs more steps than columns"
        )


@one_numpy_thread()
def compare_with_truth(
    folder: str | os.PathLike[str],
    truth: str,
    data: str | os.PathLike[str] | None = None,
    *,
    max_episode_steps: int | None = None,
    max_bytes: int | None = None,
    columns: Given | None = None,
    returns: Outcomes | None = None,
) -> dict[str, Any]:
    """Compare a decomposition with the true rewards, on its own data or on others.

    `truth` is a field of the data, or a column if they are a table. The columns of a table have the
    roles that they had in `decompose`, unless `columns` says something else.
    """
    place = Path(folder)
    model = RewardModel.load(place)
    source = data if data is not None else place
    if data is None and truth == "rewards":
        raise DataError("are those of the decomposition: name the true ones", field=truth)
    expected = expect_columns(model)
    if data is None and parse_columns(expected.columns or "").get("truth") == (truth,):
        truth = TRUTH
    columns, truth = name_truth(source, columns, truth)
    opened = open_recording(
        source,
        max_episode_steps=max_episode_steps,
        max_bytes=max_bytes,
        columns=columns,
        returns=returns,
        expected=expected,
    )
    tally = Tally(model.function.outcome)
    with opened as recording:
        delay = find_delay(recording)
        check_inputs(model, recording, source)
        for index in range(len(recording)):
            record = recording.load(index)
            with locate(source, index):
                true = find_truth(record, truth, source)
                if data is None:
                    rewards, std = record.rewards.astype(np.float64), record.extras[STD]
                else:
                    episode = as_episode(record, recording.header, delay)
                    rewards, std = _predict(model, None, episode)
            tally.add(rewards, std, 0.0, 1.0, true)
        result: dict[str, Any] = {"rewards": tally.compare()}
        true_masks = recording.header.truth.get("masks")
    if isinstance(true_masks, Mapping):
        with folder_errors(place / MASKS_FILE, "cannot be compared with the true masks"):
            result["masks"] = compare_all_masks(read_masks(place), true_masks)
    return result
