"""The result of a decomposition: made in memory, or read from the folder that it was saved in."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from grd_offline.additive.dynamics import DynamicsModel
from grd_offline.core.errors import DataError
from grd_offline.core.inputs import InputRef, name_effect
from grd_offline.core.typing import Array
from grd_offline.core.words import format_share
from grd_offline.io.datasets import Recording, open_recording
from grd_offline.io.files import results as files
from grd_offline.io.files.plain import folder_errors, read_json
from grd_offline.io.formats.record import STD
from grd_offline.io.tables.results import read_rewards
from grd_offline.methods.contract import Finding, Verdict
from grd_offline.rewards.model import RewardModel, show_result


@dataclass(frozen=True, eq=False)
class Fitted:
    """What a decomposition holds in memory, while the data are open."""

    recording: Recording
    """The data with the rewards that were found."""
    rewards: Sequence[Array]
    """Rewards of each episode, (T,) each."""
    spreads: Sequence[Array]
    """Standard deviations of the rewards, nan where they are not known."""
    model: RewardModel
    dynamics: DynamicsModel
    layout: str
    """The layout that the data came in."""


@dataclass(frozen=True, eq=False)
class Decomposition:
    """Rewards, causal graph, models and verdict that were found from the returns of episodes.

    `decompose_episodes` makes one in memory, `decompose` saves it in a folder, too, and
    `read_decomposition` reads it from there.

    Examples
    --------
    >>> from grd_offline import DecomposeSettings, decompose_episodes, read
    >>> found = decompose_episodes(read("datasets/sample.h5"), DecomposeSettings("uniform"))
    >>> found.verdict.level, found.rewards[0].shape
    ('unreliable', (13,))
    """

    metrics: dict[str, Any]
    """How good the decomposition is, what the data cannot tell, settings and versions."""
    masks: dict[str, Any]
    """The four masks of the causal graph, their scores, the compact state, and the names of its
    dimensions, with references to them."""
    effects: Sequence[Mapping[str, Any]]
    """Effects that add up to the reward, each with its curve and band, and with references to its
    inputs. The one with the largest
    share of the reward's variation comes first."""
    constant: float = 0.0
    """The reward where all effects are 0."""
    warnings: list[str] = field(default_factory=list)
    fitted: Fitted | None = None
    """What is in memory; None if the decomposition was read from its folder."""
    folder: Path | None = None
    """The folder of its files; None if it was not saved."""
    columns: str | None = None
    """For tables: the role of each column, in the form of `--columns`."""

    @cached_property
    def model(self) -> RewardModel:
        """The reward as a function."""
        return self.fitted.model if self.fitted else RewardModel.load(self._saved)

    @cached_property
    def dynamics(self) -> DynamicsModel:
        """The next state as a function."""
        return self.fitted.dynamics if self.fitted else DynamicsModel.load(self._saved)

    @cached_property
    def rewards(self) -> Sequence[Array]:
        """Rewards of each episode, (T,) each."""
        if self.fitted is not None:
            return self.fitted.rewards
        with self.open() as recording:
            found = map(recording.load_rewards, range(len(recording)))
            return [rewards.astype(np.float64) for rewards in found]

    @cached_property
    def spreads(self) -> Sequence[Array]:
        """Standard deviations of the rewards of each episode, nan where they are not known."""
        if self.fitted is not None:
            return self.fitted.spreads
        with self.open() as recording:
            return [record.extras[STD].astype(np.float64) for record in recording]

    @property
    def relabelled(self) -> Path | None:
        """The file or folder of the data with the rewards that were found."""
        return self._find(files.RELABELLED)

    @property
    def table(self) -> Path | None:
        """The file of the rewards as a table, where the data came as one."""
        return self._find(files.TABLES)

    def _find(self, names: Sequence[str]) -> Path | None:
        places = [] if self.folder is None else [self.folder / name for name in names]
        return next((place for place in places if place.exists()), None)

    @property
    def findings(self) -> list[Finding]:
        """What the data can and cannot tell, the worst first."""
        return [Finding(**one) for one in self.metrics["identifiability"]["findings"]]

    @property
    def verdict(self) -> Verdict:
        """How far the rewards can be trusted."""
        return Verdict(**self.metrics["verdict"])

    @property
    def shares(self) -> list[tuple[str, float]]:
        """Effects by their share of the reward's variation, largest first."""
        return [(name_effect(one["references"]), float(one["share"])) for one in self.effects]

    @property
    def inputs(self) -> list[InputRef]:
        """The inputs that drive the reward, the strongest first.

        They are ranked by the shares of their effects, or without effects by the scores of masks.
        """
        weights: dict[InputRef, float] = {}
        for effect in self.effects:
            for one in effect["references"]:
                weights[one] = weights.get(one, 0.0) + float(effect["share"])
        for one in () if self.effects else self.masks["references"]:
            mask = f"{one.part}_to_reward"
            if self.masks[mask][one.index]:
                weights[one] = self.masks["score"][mask][one.index]
        return sorted(weights, key=lambda one: -weights[one])

    @property
    def rewards_(self) -> Any:
        """All rewards with their episode, step and spread (standard deviation).

        A table of the library that the data frame came from, otherwise a mapping from names to
        arrays, which every such library takes.
        """
        with self.open() as recording:
            return read_rewards(recording.header, recording)

    def open(self) -> Recording:
        """Open the data with the rewards that were found."""
        if self.folder is None and self.fitted is not None:
            return self.fitted.recording
        return open_recording(self._saved)

    @property
    def _saved(self) -> Path:
        if self.folder is None:
            raise DataError("the decomposition is not in memory and was not saved")
        return self.folder

    def __repr__(self) -> str:
        shares = [f"{name} {format_share(share)}" for name, share in self.shares[:3]]
        top = ", ".join(shares) or "no effects"
        return f"Decomposition({self.folder or 'in memory'}: {self.metrics['fit']}, {top})"

    def _repr_html_(self) -> str:
        note = "" if self.folder is None else f"Look at {self.folder}/report.html."
        return show_result(self.verdict.text, self.shares, note)


def rank_effects(effects: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Sort effects by their share of the reward's variation, largest first."""
    return sorted(effects, key=lambda effect: -float(effect["share"]))


def read_decomposition(
    folder: str | os.PathLike[str], *, inside: Path | None = None
) -> Decomposition:
    """Read a decomposition from its folder: its texts at once, data and models when they are used.

    Parameters
    ----------
    folder : path
        A folder that `decompose` or `save_decomposition` wrote.
    inside : path, optional
        No link may lead out of this folder. The default is `folder`.

    Returns
    -------
    Decomposition
        As `decompose` returned it.

    Examples
    --------
    >>> from grd_offline import read_decomposition
    >>> read_decomposition("sample-uniform").verdict.level
    'unreliable'
    """
    folder, names = Path(folder), (files.METRICS_FILE, files.MASKS_FILE, files.EFFECTS_FILE)
    metrics, masks, effects = (_read(folder, name, inside or folder) for name in names)
    with folder_errors(folder, files.MISFIT):
        found = Decomposition(
            metrics=metrics,
            masks=_read_references(masks),
            effects=rank_effects([_read_references(effect) for effect in effects["effects"]]),
            constant=float(effects.get("constant", 0.0)),
            warnings=list(metrics.get("warnings", [])),
            folder=folder,
        )
        _ = found.inputs  # refuses masks that do not fit to the effects
    return found


def _read_references(stored: Mapping[str, Any]) -> dict[str, Any]:
    if stored and "references" not in stored:
        raise DataError("was made by an earlier version: decompose the data again")
    return {**stored, "references": tuple(map(InputRef.from_json, stored["references"]))}


def read_outcomes(folder: Path) -> tuple[dict[str, Decomposition], Array]:
    """The decomposition of each outcome, and the correlation of their rewards."""
    names, correlation = files.read_names(folder)
    return {name: read_decomposition(folder / name, inside=folder) for name in names}, correlation


def _read(folder: Path, name: str, inside: Path) -> dict[str, Any]:
    try:
        contents = read_json(folder / name, inside=inside)
    except FileNotFoundError:
        raise DataError(f"not a decomposition: no {name}", file=folder) from None
    if not isinstance(contents, dict):
        raise DataError("expected an object", file=folder / name)
    return contents
