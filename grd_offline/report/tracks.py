"""The episodes of a decomposition: rewards, what they consist of and inputs, and their numbers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
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
from grd_offline.report.effects import has_few_values
from grd_offline.report.page import count_bytes, pack_series
from grd_offline.rewards.effects import EffectModel

MOST_EPISODES = 500
"""Of more episodes, this many are shown, chosen evenly by their return."""
MOST_INPUTS = 8
"""This many inputs are drawn along an episode."""
MOST_TERMS = 8
"""This many effects have a bar of their own among the parts of a reward."""
MOST_DELIVERIES = 64
"""An episode with more deliveries than this is drawn with a curve of them."""
CLOSE_UP_BYTES = 160_000
"""Bytes for each of the worst, the median and the best episode."""
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
    terms = reader.name_terms()
    return Tracks(
        chosen=kept,
        returns=returns,
        inputs=reader.shown,
        terms=[name for name, _ in terms],
        term_inputs=[inputs for _, inputs in terms],
        constant=record.constant,
        sample=reader.collect_sample(),
        steps=StepBatch.concatenate(reader.steps) if reader.steps else None,
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

    def name_terms(self) -> list[tuple[str, list[InputRef]]]:
        """Name the terms of every track, and list their inputs."""
        found = [list(effect["references"]) for effect in self.record.effects[: len(self.rows)]]
        shown, others = [(name_effect(one), one) for one in found[:MOST_TERMS]], found[MOST_TERMS:]
        rest = [f"{len(others)} smaller effects"] if others else []
        if self.is_exact:
            rest.append("correction to the exact return")
        return [*shown, (" and ".join(rest), [])] if self.rows and self.has_rest else shown

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


def pack_tracks(tracks: Tracks, budget: int) -> dict[str, Any]:
    """Pack the episodes for the page into about `budget` bytes of text."""
    chosen = tracks.chosen
    dense = any(np.count_nonzero(track.observed) > MOST_DELIVERIES for track in chosen.values())
    spiky, smooth = _list_series(next(iter(chosen.values())), 1, dense)
    counts = len(spiky), len(smooth)
    close_up = find_landmarks(tracks)
    lengths = {index: len(track.rewards) for index, track in chosen.items()}
    whole = [count_bytes(lengths[index], 1, *counts) for index in close_up.values()]
    raw = budget * 3 // 4 - sum(min(count, CLOSE_UP_BYTES) for count in whole)
    width = _find_width(lengths.values(), *counts, raw)
    widths = dict.fromkeys(chosen, width)
    for index in close_up.values():
        widths[index] = min(_find_width([lengths[index]], *counts, CLOSE_UP_BYTES), width)
    return {
        "series": {
            "spiky": list(spiky),
            "smooth": list(smooth),
            "inputs": [one.name for one in tracks.inputs],
            "drawn": min(len(tracks.inputs), MOST_INPUTS),
            "terms": list(tracks.terms),
            "termInputs": [[one.name for one in inputs] for inputs in tracks.term_inputs],
            "few": [one.name for one in tracks.inputs if has_few_values(tracks.sample[one])],
            "labels": [one.name for one in tracks.inputs if one.category is not None],
        },
        "constant": tracks.constant,
        "width": width,
        "total": len(tracks.returns),
        "landmarks": close_up,
        "episodes": [_pack_track(i, track, widths[i], dense) for i, track in chosen.items()],
    }


def find_landmarks(tracks: Tracks) -> dict[str, int]:
    """Find the episodes with the highest, the median and the lowest return."""
    order = sorted(tracks.chosen, key=lambda index: float(tracks.returns[index, 0]))
    return {"best": order[-1], "median": order[(len(order) - 1) // 2], "worst": order[0]}


def _find_width(lengths: Collection[int], spiky: int, smooth: int, most: int) -> int:
    """Find the least width of stretches that packs episodes of these lengths into `most` bytes."""
    width = 1
    while width < max(lengths) and (
        sum(count_bytes(length, width, spiky, smooth) for length in lengths) > most
    ):
        width += 1
    return width


def _list_series(
    track: Track, width: int, dense: bool
) -> tuple[dict[str, Array], dict[str, Array]]:
    """The series of an episode by name: those whose extremes count, and those that are smooth."""
    starts = np.arange(0, len(track.std), width)
    widest = np.repeat(np.maximum.reduceat(track.std, starts), width)[: len(track.std)]
    spiky = {"reward": track.rewards}
    smooth = {"std": widest, "sum": np.cumsum(track.rewards * track.weights)}
    if track.true is not None:
        spiky |= {"true": track.true, "gap": track.rewards - track.true}
        smooth["trueSum"] = np.cumsum(track.true * track.weights)
    if dense:
        spiky["observed"] = track.observed
    spiky |= {f"input{place}": values for place, values in enumerate(track.inputs)}
    smooth |= {f"term{place}": values for place, values in enumerate(track.terms)}
    return spiky, smooth


def _pack_track(index: int, track: Track, width: int, dense: bool) -> dict[str, Any]:
    spiky, smooth = _list_series(track, width, dense)
    steps = np.flatnonzero(track.observed)
    if not dense and not len(steps):
        steps = np.array([len(track.rewards) - 1])  # a return of zero was delivered too
    return {
        "index": index,
        "label": track.label,
        "length": len(track.rewards),
        "return": track.delivered,
        "sum": track.found,
        "true": None if track.true is None else float(track.true @ track.weights),
        "deliveries": [] if dense else [[int(t), float(track.observed[t])] for t in steps],
        **pack_series(list(spiky.values()), list(smooth.values()), width),
    }
