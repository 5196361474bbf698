"""The episodes of a decomposition, read from its folder: rewards, what they consist of, inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from grd_offline.core.episodes import Episode
from grd_offline.core.errors import DataError
from grd_offline.core.inputs import InputRef, name_effect, select_inputs
from grd_offline.core.steps import StepBatch
from grd_offline.core.typing import AnyArray, Array
from grd_offline.io.datasets import Header, Record, as_episode, locate
from grd_offline.io.files.models import CONFIG, REWARD_FOLDER
from grd_offline.io.formats.record import OBSERVED, STD
from grd_offline.methods.result import Decomposition
from grd_offline.rewards.effects import EffectModel

MOST_EPISODES = 500
"""Of more episodes, this many are shown, chosen evenly by their return."""
MOST_INPUTS = 8
"""This many inputs are drawn along an episode."""
MOST_TERMS = 8
"""This many effects have a bar of their own among the parts of a reward."""
LONGEST_LABEL = 40
SAMPLE = 4000
"""About this many steps show where the data lie."""


@dataclass(frozen=True, eq=False)
class Track:
    """The parts of one episode that are shown."""

    rewards: Array
    std: Array
    observed: Array
    """The reward delivered at each step, or zero."""
    true: Array | None
    inputs: list[Array]
    terms: list[Array]
    """What each effect adds to the constant, as `Tracks.terms` names them. Empty if the reward is
    not a sum of effects."""
    discount: float
    label: str | None = None
    """The name of the episode in the table that it came from."""

    @property
    def weights(self) -> Array:
        return np.asarray(self.discount ** np.arange(len(self.rewards)))

    @property
    def delivered(self) -> float:
        """The observed return."""
        return float(self.observed.sum())

    @property
    def found(self) -> float:
        """The sum of the rewards found."""
        return float(self.rewards @ self.weights)


@dataclass(frozen=True, eq=False)
class Tracks:
    """The episodes that are shown, and numbers of all episodes."""

    chosen: Mapping[int, Track]
    returns: Array
    """(episode, 2) observed return, and the sum of the rewards found; of all episodes."""
    inputs: Sequence[InputRef]
    """The inputs of every track: those that are drawn, then others of the terms."""
    terms: Sequence[str]
    """Names of the parts of a reward: effects, and one for all that is left."""
    term_inputs: Sequence[Sequence[InputRef]]
    """The inputs of each term; none for all that is left."""
    constant: float
    """The reward is this number and the sum of its terms."""
    sample: Mapping[InputRef, Array]
    """(step,) values of each input of the reward, at steps drawn from all episodes."""
    steps: StepBatch[AnyArray] | None
    """These steps, if there are no effects."""


def read_tracks(record: Decomposition) -> Tracks:
    """Read the relabelled episodes one by one, and keep what is shown."""
    reader = _Reader(record)
    with record.open() as recording:

        def load(index: int) -> tuple[Episode, Track]:
            with locate(record.folder, index):
                return reader.read(recording.load(index), recording.header)

        count = len(recording)
        kept: dict[int, Track] = {}
        returns = np.zeros((count, 2))
        for index in range(count):
            episode, track = load(index)
            reader.draw_steps(episode, -(-SAMPLE // count))
            returns[index] = track.delivered, track.found
            if count <= MOST_EPISODES:
                kept[index] = reader.explain(episode, track)
        if count > MOST_EPISODES:
            order = np.argsort(returns[:, 0], kind="stable")
            places = np.linspace(0, count - 1, MOST_EPISODES).round().astype(int)
            for index in np.sort(order[places]).tolist():
                kept[index] = reader.explain(*load(index))
    return Tracks(
        chosen=kept,
        returns=returns,
        inputs=reader.shown,
        terms=reader.name_terms(),
        term_inputs=reader.list_term_inputs(),
        constant=record.constant,
        sample=reader.collect_sample(),
        steps=reader.collect_steps(),
    )


class _Reader:
    """Makes the tracks of one decomposition from its records."""

    def __init__(self, record: Decomposition) -> None:
        self.record = record
        explained = [one for effect in record.effects[:MOST_TERMS] for one in effect["references"]]
        self.shown = list(dict.fromkeys([*record.inputs[:MOST_INPUTS], *explained]))
        drawn = [one for effect in record.effects for one in effect["references"]]
        self.inputs = list(dict.fromkeys([*self.shown, *drawn]))
        self.model = _find_effects(record) if record.effects else None
        self.rows = [] if self.model is None else _match_curves(self.model, record.effects)
        self.is_exact = bool(record.metrics["settings"].get("exact_returns"))
        self.has_rest = len(self.rows) > MOST_TERMS or self.is_exact
        self.rng = np.random.default_rng(0)
        self.drawn: list[Array] = []
        self.steps: list[StepBatch[AnyArray]] = []

    def read(self, record: Record, header: Header) -> tuple[Episode, Track]:
        """Read an episode and all of its track but the terms."""
        for name in (STD, OBSERVED):
            if name not in record.extras:
                raise DataError("missing: is this relabelled data?", field=name)
        # Flags of when rewards were delivered speak of the observed ones.
        episode = as_episode(replace(record, extras={}), header, "step")
        metrics, shown = self.record.metrics, len(self.shown)
        observed = _find_observed(record, metrics, len(episode))
        track = Track(
            rewards=np.asarray(record.rewards, np.float64),
            std=np.asarray(record.extras[STD], np.float64),
            observed=observed,
            true=_find_true(record, metrics["settings"].get("truth"), observed.shape),
            inputs=list(self._select_inputs(episode)[:shown]),
            terms=[],
            discount=float(metrics["settings"]["gamma"]),
            label=None if episode.label is None else str(episode.label)[:LONGEST_LABEL],
        )
        return episode, track

    def explain(self, episode: Episode, track: Track) -> Track:
        """Add what each effect adds to every step."""
        if self.model is None:
            return track
        every = self.model.predict_terms(StepBatch.from_episode(episode))[self.rows]
        terms = list(every[:MOST_TERMS])
        if self.has_rest:
            terms.append(track.rewards - self.record.constant - every[:MOST_TERMS].sum(0))
        return replace(track, terms=terms)

    def name_terms(self) -> list[str]:
        """Name the terms of every track."""
        names = [name_effect(self.record.effects[k]["references"]) for k in range(len(self.rows))]
        shown, others = names[:MOST_TERMS], len(names) - MOST_TERMS
        rest = [f"{others} smaller effects"] if others > 0 else []
        if self.is_exact:
            rest.append("correction to the exact return")
        return [*shown, " and ".join(rest)] if self.rows and self.has_rest else shown

    def list_term_inputs(self) -> list[list[InputRef]]:
        """List the inputs of the terms of every track."""
        shown = [list(effect["references"]) for effect in self.record.effects[:MOST_TERMS]]
        return [*shown[: len(self.rows)], *([[]] if self.rows and self.has_rest else [])]

    def draw_steps(self, episode: Episode, count: int) -> None:
        """Draw steps of an episode that show where the data lie."""
        steps = self.rng.choice(len(episode), min(count, len(episode)), replace=False)
        self.drawn.append(self._select_inputs(episode)[:, steps])
        if not self.record.effects:
            self.steps.append(StepBatch.from_episode(episode)[steps])

    def collect_sample(self) -> dict[InputRef, Array]:
        """Give the values of every input at the steps that were drawn, in random order."""
        values = np.concatenate(self.drawn, 1)
        mixed = values[:, self.rng.permutation(values.shape[1])]
        return dict(zip(self.inputs, mixed, strict=True))

    def collect_steps(self) -> StepBatch[AnyArray] | None:
        """Give the steps that were drawn, if any."""
        return StepBatch.concatenate(self.steps) if self.steps else None

    def _select_inputs(self, episode: Episode) -> Array:
        """(input, step) the values of all inputs that are drawn."""
        return select_inputs(self.inputs, StepBatch.from_episode(episode)).T


def _find_effects(record: Decomposition) -> EffectModel | None:
    """The reward as a sum of effects; None if there is no such model."""
    folder = record.folder
    if folder is not None and not (folder / REWARD_FOLDER / CONFIG).is_file():
        return None
    function = record.model.function
    return function if isinstance(function, EffectModel) else None


def _match_curves(model: EffectModel, effects: Sequence[Mapping[str, Any]]) -> list[int]:
    """Find the curve of the model that belongs to each effect."""
    curves = [
        tuple(model.inputs[i] for i in model.effects[members[0]])
        for members in model.group_effects()
    ]
    return [curves.index(tuple(effect["references"])) for effect in effects]


def _find_observed(record: Record, metrics: Mapping[str, Any], steps: int) -> Array:
    settings = metrics["settings"]
    observed = np.asarray(record.extras[OBSERVED], np.float64)
    by_step = metrics.get("delay", "step" if np.count_nonzero(observed) > 0.5 * steps else "")
    if by_step == "step":
        observed = observed * float(settings["gamma"]) ** np.arange(steps)
        if not settings["step_rewards"]:  # only their sum was used
            observed = np.concatenate([np.zeros(steps - 1), [observed.sum()]])
    return observed


def _find_true(record: Record, field: str | None, shape: tuple[int, ...]) -> Array | None:
    if field is None:
        return None
    stored = record.extras.get(OBSERVED if field == "rewards" else field)
    if stored is None or stored.shape != shape:
        raise DataError("no such field with a number per step", field=str(field))
    return np.asarray(stored, np.float64)
