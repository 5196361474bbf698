"""The page of a decomposition, and of several outcomes: effects, importance, graph and episodes.

The effect of an input that has few values, such as 0 and 1, or the labels of a category, is known
at its values only. So it is drawn as one bar for each value, and not as a curve. Several labels of
one column are one input: the label that a step has.

Importance is how much of the reward's variation comes from an input: the one scale of pages and
figures. An effect has the share of its variance in the sum of the variances of all effects. A
dimension of the state or the action has the sum of the shares of all effects that it is part of:
those of its own, and those that it has together with others. The labels of a category have one
share together. No share is negative, and none is above 1. Where inputs are independent of each
other, these are Sobol's indices: of the effect, and in total.

A reward that is no sum of effects is measured by shuffling. If the values of one input are
exchanged between steps, the mean squared change of the reward, halved and divided by the variance
of the reward, is the total index of this input.
"""

from __future__ import annotations

import json
import shlex
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from grd_offline.core.episodes import Episode
from grd_offline.core.errors import DataError
from grd_offline.core.inputs import (
    InputRef,
    explain_marks,
    find_label_column,
    name_effect,
    select_inputs,
)
from grd_offline.core.outcomes import NUMBER, PREFERENCE, Outcome, describe_bands
from grd_offline.core.steps import StepBatch
from grd_offline.core.typing import AnyArray, Array
from grd_offline.core.words import format_percentage
from grd_offline.io.datasets import Record, Recording, as_episode, locate
from grd_offline.io.files import REPORT_FILE
from grd_offline.io.files.models import CONFIG, REWARD_FOLDER
from grd_offline.io.files.plain import folder_errors
from grd_offline.io.files.results import MASKS, MISFIT
from grd_offline.io.formats.record import OBSERVED, STD
from grd_offline.methods.result import Decomposition
from grd_offline.report.film import Film, make_film
from grd_offline.report.page import (
    PAGE_BYTES,
    count_bytes,
    count_steps,
    encode,
    join_names,
    pack,
    pack_series,
    render_page,
    show_number,
    show_share,
)
from grd_offline.rewards.effects import EffectModel

Effect = Mapping[str, Any]
MOST_EFFECTS = 24
"""This many effects are drawn; the table has all of them."""
MOST_DRAWN = 3
"""Effects of more inputs than this are in the table, but not drawn."""
BINS = 48
"""The density of the data below a curve has this many bars."""
MOST_DOTS = 300
"""This many steps of the data are dots on a surface."""
MOST_VALUES = 5
"""An input with more values than this is drawn as a curve."""


class Shape(NamedTuple):
    """The numbers of an effect, as they are drawn."""

    inputs: list[str]
    """The names of the axes."""
    grids: list[Array]
    """The places along each axis."""
    ticks: list[list[str] | None]
    """The names of the places along an axis, if the input has few values."""
    mean: Array
    std: Array
    values: list[Array]
    """The steps of the data, as places along each axis."""


def shape_effect(effect: Mapping[str, Any], values: Sequence[Array]) -> Shape:
    """Keep an effect at the values that its inputs have; `values` (step,) are those of the data.

    An input with many values keeps its grid, and so does every input of three or more.
    """
    inputs: Sequence[InputRef] = effect["references"]
    grids = [np.asarray(grid, np.float64) for grid in effect["grids"]]
    mean, std = (np.asarray(effect[name], np.float64) for name in ("mean", "std"))
    values = [np.clip(one, grid[0], grid[-1]) for one, grid in zip(values, grids, strict=True)]
    found = [_find_few(one) for one in values]
    ticks: list[list[str] | None] = [None] * len(inputs)
    names, column = [one.name for one in inputs], find_label_column(inputs)
    if column is not None and all(few is not None for few in found):
        shape = Shape(names, grids, ticks, mean, std, values)
        return _join_labels(column, shape, [str(one.category) for one in inputs])
    for axis, few in enumerate(found if len(inputs) < 3 else ()):
        if few is not None:
            mean, std = (_cut(part, axis, grids[axis], few) for part in (mean, std))
            grids[axis], ticks[axis] = few, [_name_value(inputs[axis], float(v)) for v in few]
    return Shape(names, grids, ticks, mean, std, values)


def _find_few(values: Array) -> Array | None:
    """The different values, if they are so few that curves say nothing about the input."""
    distinct = np.unique(values)
    return distinct if 0 < len(distinct) <= MOST_VALUES else None


def _cut(numbers: Array, axis: int, grid: Array, places: Array) -> Array:
    """Interpolate along one axis."""
    return np.apply_along_axis(lambda one: np.interp(places, grid, one), axis, numbers)


def _name_value(one: InputRef, value: float) -> str:
    if one.category is not None and value in (0.0, 1.0):
        return one.category if value else f"not {one.category}"
    return show_number(value)


def _join_labels(column: str, shape: Shape, labels: Sequence[str]) -> Shape:
    """Several labels of one column as one axis: one place for each mixture of labels there is."""
    _, grids, _, mean, std, values = shape
    rows, places = np.unique(np.stack(values, 1), axis=0, return_inverse=True)
    # The first label comes first, and steps with another label come last.
    order = np.lexsort(-rows.T[::-1])
    rows, places = rows[order], np.argsort(order)[places.reshape(-1)]
    ticks = [_name_mixture(labels, row) for row in rows.tolist()]
    for axis, grid in enumerate(grids):
        mean, std = (_cut(part, axis, grid, rows[:, axis]) for part in (mean, std))
    own = (np.arange(len(rows)),) * len(labels)
    position = np.arange(len(rows), dtype=np.float64)
    return Shape([column], [position], [ticks], mean[own], std[own], [places.astype(np.float64)])


def _name_mixture(labels: Sequence[str], row: Sequence[float]) -> str:
    parts = [
        label if value == 1 else f"{show_number(value)} {label}"
        for label, value in zip(labels, row, strict=True)
        if value
    ]
    return " + ".join(parts) or "another"


def name_together(inputs: Sequence[InputRef]) -> str:
    """Name an effect; several inputs act together."""
    if len(inputs) == 1 or find_label_column(inputs) is not None:
        return name_effect(inputs)
    return f"{join_names([one.name for one in inputs])} together"


def shape_effects(effects: Sequence[Effect], sample: Mapping[InputRef, Array]) -> list[Shape]:
    """Shape the largest effects for their drawings.

    `sample` has values of every input, which show where the data lie.
    """
    return [
        shape_effect(effect, [sample[one] for one in effect["references"]])
        for effect in effects[:MOST_EFFECTS]
    ]


def describe_cards(effects: Sequence[Effect], shapes: Sequence[Shape]) -> list[dict[str, Any]]:
    """Describe the drawing of each of the largest effects that can be drawn."""
    return [
        {
            "index": index,
            "name": name_effect(effect["references"]),
            "kind": ("bars", "curves", "a cube")[len(shape.inputs) - 1]
            if len(shape.ticks) - shape.ticks.count(None) == 1
            else ("a curve", "a surface", "a cube")[len(shape.inputs) - 1],
            "share": float(effect["share"]),
            "low": shape.mean.min(),
            "high": shape.mean.max(),
            "third": shape.inputs[-1],
            "slices": shape.mean.shape[2] if len(shape.inputs) == 3 else 0,
        }
        for index, (effect, shape) in enumerate(zip(effects, shapes, strict=False))
        if len(shape.inputs) <= MOST_DRAWN
    ]


def pack_effects(shapes: Sequence[Shape]) -> list[dict[str, Any]]:
    """Collect the numbers for the drawings of the largest effects."""
    return [
        {
            "inputs": shape.inputs,
            "grids": [pack(grid) for grid in shape.grids],
            "ticks": shape.ticks,
            "mean": pack(shape.mean),
            "std": pack(shape.std),
            **_pack_density(shape),
        }
        for shape in shapes
    ]


def _pack_density(shape: Shape) -> dict[str, Any]:
    """Pack a histogram for a curve or for bars, and dots for a surface or a cube."""
    if len(shape.inputs) > 1:
        return {"points": pack(np.stack(shape.values, 1)[:MOST_DOTS])}
    (grid,), (values,) = shape.grids, shape.values
    if shape.ticks[0] is None:
        counts = np.histogram(values, BINS, (float(grid[0]), float(grid[-1])))[0]
    else:
        counts = np.array([np.count_nonzero(values == place) for place in grid])
    # A bar that is not empty can be seen.
    heights = np.ceil(255 * counts / max(int(counts.max()), 1)).astype(np.uint8)
    return {"density": encode(heights)}


MOST_BARS = 16
"""This many inputs have a bar; a note counts the others."""
TERMINATED = "terminated"
SHUFFLED_STEPS = 1000


@dataclass(frozen=True)
class Importance:
    """Shares of the reward's variation that come from one input."""

    name: str
    alone: float
    """From effects of this input alone."""
    joint: float
    """From effects that it has together with other inputs."""

    @property
    def total(self) -> float:
        return self.alone + self.joint


def measure_importance(
    record: Decomposition, tracks: Tracks, *, by_column: bool = True
) -> list[Importance]:
    """Measure every input that drives the reward; the most important one comes first.

    All labels of a category are one input, the column of the table that has them. They are measured
    one by one if not `by_column`.
    """
    found = (
        _sum_effects(record.effects, record.masks["references"], by_column)
        if tracks.steps is None
        else _shuffle(record, tracks.steps, by_column)
    )
    return sorted(found, key=lambda one: -one.total)


def find_columns(dimensions: Sequence[InputRef]) -> dict[InputRef, str]:
    """Find the column of every dimension: weather for each of weather=rain and weather=sun.

    Every other dimension is a column of its own.
    """
    counts = Counter((one.part, one.column) for one in dimensions if one.category is not None)
    return {
        one: one.column if counts[one.part, one.column] > 1 else one.dimension for one in dimensions
    }


def _sum_effects(
    effects: Sequence[Mapping[str, Any]], dimensions: Sequence[InputRef], by_column: bool
) -> list[Importance]:
    column_of = find_columns(dimensions)
    alone: dict[str, float] = defaultdict(float)
    joint: dict[str, float] = defaultdict(float)
    for effect in effects:
        inputs = dict.fromkeys(one.at_start for one in effect["references"])
        columns = dict.fromkeys(column_of.get(one, one.dimension) for one in inputs)
        # An effect of two labels of one column is no effect of two inputs.
        shares = alone if len(columns) == 1 else joint
        for name in columns if by_column else [one.dimension for one in inputs]:
            shares[name] += float(effect["share"])
    names = dict.fromkeys([*alone, *joint])
    # Sums of rounded shares may exceed 1 in the last digit.
    return [Importance(n, min(alone[n], 1.0), min(joint[n], 1.0)) for n in names]


def _shuffle(
    record: Decomposition, steps: StepBatch[AnyArray], by_column: bool
) -> list[Importance]:
    """Measure a reward that is no sum of effects, with shuffled values of each input in turn."""
    try:
        model = record.model
    except (DataError, ImportError):  # a network needs torch, which may not be there
        return []
    rng = np.random.default_rng(0)
    chosen = steps[rng.permutation(len(steps))[:SHUFFLED_STEPS]]
    rewards = model.predict(*chosen.arrays)
    variance = float(rewards.var())
    if variance <= 1e-12 * float((rewards**2).mean()):
        return []
    dimensions = record.masks["references"]
    column_of = find_columns(dimensions)
    found = []
    kinds = {"state": ("observations", "next_observations"), "action": ("actions",)}
    for kind, parts in kinds.items():
        groups: dict[str, list[int]] = {}
        for one in dimensions:
            if one.part == kind and record.masks[f"{kind}_to_reward"][one.index]:
                name = column_of[one] if by_column else one.dimension
                groups.setdefault(name, []).append(one.index)
        for name, indices in groups.items():
            order = rng.permutation(len(chosen))
            changed = {part: getattr(chosen, part).copy() for part in parts}
            for values in changed.values():
                values[:, indices] = values[order][:, indices]
            shuffled = model.predict(*replace(chosen, **changed).arrays)
            change = float(((shuffled - rewards) ** 2).mean())
            found.append(Importance(name, min(change / (2 * variance), 1.0), 0.0))
    return found


MOST_NODES = 24
"""This many states and this many actions are in the drawing; the heat maps have all."""
PROBABILITIES = ("paper", "pair-net")
"""Fits whose scores of edges between states are probabilities."""


def describe_graph(masks: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the graph for who cannot see it: what drives the reward, and shares of edges."""
    driving = [
        name
        for kind in ("state", "action")
        for name, on in zip(masks[f"{kind}_names"], masks[f"{kind}_to_reward"], strict=True)
        if on
    ]
    return {
        "driving": [*driving[:6], *(["others"] if len(driving) > 6 else [])],
        "compact": sum(map(bool, masks["compact"]["closure"])),
        "shares": [
            f"{name.replace('_', ' ')} {np.mean(masks[name]):.0%}"
            for name, _ in MASKS
            if np.size(masks[name])  # data without actions have two masks without edges
        ],
    }


def measure_edges(record: Decomposition, importance: Sequence[Importance]) -> dict[str, Array]:
    """Measure the strength of every edge from 0 to 1, by the name of its mask.

    Into the reward it is the importance of the input. Into a next state it is the part of the
    variance left by all other parents that this parent explains. The fits in `PROBABILITIES` give
    the probability of the edge instead. Where there is no edge, the strength is 0.
    """
    masks, score = record.masks, record.masks["score"]
    total = {one.name: one.total for one in importance}
    edges = {}
    for kind in ("state", "action"):
        names = masks[f"{kind}_names"]
        on = np.asarray(masks[f"{kind}_to_reward"], bool)
        known = np.array([total.get(name, 0.0) for name in names])
        # Where nothing is known of importance, an edge is an edge.
        edges[f"{kind}_to_reward"] = np.where(on, known if total else 1.0, 0.0)
        strength = np.maximum(np.asarray(score[f"{kind}_to_state"], np.float64), 0.0)
        if record.metrics["fit"] not in PROBABILITIES:
            strength = 1.0 - np.exp(-2.0 * strength)  # scores are information in nats
        on = np.asarray(masks[f"{kind}_to_state"], bool)
        edges[f"{kind}_to_state"] = np.where(on, np.minimum(strength, 1.0), 0.0)
    return edges


def pack_graph(
    masks: Mapping[str, Any], edges: Mapping[str, Array], importance: Sequence[Importance]
) -> dict[str, Any]:
    """Pack the strengths of the four masks, and choose the nodes of the drawing."""
    levels = {name: _grade(masks[name], edges[name]) for name, _ in MASKS}
    closure = np.asarray(masks["compact"]["closure"])
    of_actions = levels["action_to_state"].reshape(-1, len(closure))  # [] where there are none
    leaving = levels["state_to_state"].astype(np.float64) @ closure + np.asarray(closure)
    rank_states = 1e6 * levels["state_to_reward"] + 1e5 * closure + leaving
    rank_actions = 1e6 * levels["action_to_reward"] + of_actions @ closure
    ended = [one.total for one in importance if one.name == TERMINATED]
    return {
        "states": list(masks["state_names"]),
        "actions": list(masks["action_names"]),
        "compact": closure.tolist(),
        "masks": {name: encode(levels[name]) for name in ("state_to_state", "action_to_state")},
        "reward": {
            "state": _list_strengths(masks["state_to_reward"], edges["state_to_reward"]),
            "action": _list_strengths(masks["action_to_reward"], edges["action_to_reward"]),
            "terminated": round(ended[0], 5) if ended else None,
        },
        "shown_states": _top(rank_states),
        "shown_actions": _top(rank_actions),
    }


def _grade(mask: Any, strength: Any) -> NDArray[np.uint8]:
    """Grade edges from 1 to 255 by the root of their strength; 0 means no edge."""
    on, root = np.asarray(mask, bool), np.sqrt(np.asarray(strength, np.float64))
    return np.where(on, 1 + np.rint(254 * root), 0).astype(np.uint8)


def _list_strengths(mask: Any, strength: Array) -> list[float | None]:
    """List the strengths of edges; None means no edge."""
    return [round(float(s), 5) if on else None for on, s in zip(mask, strength, strict=True)]


def _top(rank: Any) -> list[int]:
    return sorted(np.argsort(-np.asarray(rank, np.float64), kind="stable")[:MOST_NODES].tolist())


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
    with record.open() as recording:
        reader = TrackReader(record, recording)
        for index in range(len(recording)):
            reader.load(index)
        return reader.finish()


class TrackReader:
    """Makes the tracks of one decomposition from its records, while somebody goes over them."""

    def __init__(self, record: Decomposition, recording: Recording) -> None:
        self.record, self.recording = record, recording
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
        self.kept: dict[int, Track] = {}
        self.returns = np.zeros((len(recording), 2))

    def load(self, index: int) -> Record:
        """Load an episode as its recording does, and keep what is shown of it."""
        record = self.recording.load(index)
        with folder_errors(self.record.folder or Path(), MISFIT):
            episode, track = self.read(index, record)
            count = len(self.returns)
            self.draw_steps(episode, -(-SAMPLE // count))
            self.returns[index] = track.delivered, track.found
            if count <= MOST_EPISODES:
                self.kept[index] = self.explain(episode, track)
        return record

    def finish(self) -> Tracks:
        """Make the tracks, when every episode was loaded."""
        count = len(self.returns)
        if count > MOST_EPISODES:
            order = np.argsort(self.returns[:, 0], kind="stable")
            places = np.linspace(0, count - 1, MOST_EPISODES).round().astype(int)
            for index in np.sort(order[places]).tolist():
                self.kept[index] = self.explain(*self.read(index, self.recording.load(index)))
        terms = self.name_terms()
        drawn = np.concatenate(self.drawn, 1)
        mixed = drawn[:, self.rng.permutation(drawn.shape[1])]
        return Tracks(
            chosen=self.kept,
            returns=self.returns,
            inputs=self.shown,
            terms=[name for name, _ in terms],
            term_inputs=[inputs for _, inputs in terms],
            constant=self.record.constant,
            sample=dict(zip(self.inputs, mixed, strict=True)),
            steps=StepBatch.from_batches(self.steps) if self.steps else None,
        )

    def read(self, index: int, record: Record) -> tuple[Episode, Track]:
        """Read an episode and all of its track but the terms."""
        with locate(self.record.folder, index):
            for name in (STD, OBSERVED):
                if name not in record.extras:
                    raise DataError("missing: is this relabelled data?", field=name)
            # Flags of when rewards were delivered speak of the observed ones.
            episode = as_episode(replace(record, extras={}), self.recording.header, "step")
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
            "few": [i.name for i in tracks.inputs if _find_few(tracks.sample[i]) is not None],
            "labels": [one.name for one in tracks.inputs if one.category is not None],
        },
        "constant": tracks.constant,
        "width": width,
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


UNRELIABLE = "unreliable"
LEVELS = ("fine", "note", "careful", UNRELIABLE)
"""Levels of findings and verdicts, from good to bad."""
MOST_POINTS = 2000
"""This many returns are drawn as points."""
TOO_NARROW = 0.8
"""Bands that are meant to hold 90 % and hold less than this are said to be too narrow."""
HIDDEN = {
    "potentials": "terms that cancel between steps, h(next state) - h(state)",
    "effects left out": "effects of inputs that were left out",
    "interactions left out": "interactions of inputs that were left out",
}
"""What may be in the reward and does not show in returns. How much depends on the moment of a step
is said by a finding."""
CLEARLY = 0.95
"""Where this share of every effect is known, one sentence says so instead of a drawing."""
MAJOR = 0.6
"""An input with this share of the reward's variation is a headline of its own."""


def make_decomposition_page(
    record: Decomposition,
    *,
    tracks: Tracks | None = None,
    name: str | None = None,
    video: str | None = None,
    warn: Callable[[str], None] = lambda text: None,
) -> str:
    """Make the page; `video` names the environment that renders a few episodes.

    `tracks` and `name`, that of the folder, are given if the decomposition is still to be saved.
    `warn` is called with the reason why there is no video. The page gives the same reason.
    """
    place = record.folder or Path(name or "")
    with folder_errors(place, MISFIT):
        tracks = tracks or read_tracks(record)
    film = None
    if video is not None:
        shown = sorted(set(find_landmarks(tracks).values()))
        with record.open() as recording:
            film = make_film(recording, shown, video)
        if not film.clips:
            warn(film.note)
    with folder_errors(place, MISFIT):
        return compose_page(record, tracks, film, name or place.resolve().name)


def compose_page(
    record: Decomposition, tracks: Tracks, film: Film | None = None, name: str = "decomposition"
) -> str:
    """Collect what the template speaks of and the numbers of the drawings."""
    metrics, masks, effects = record.metrics, record.masks, record.effects
    outcome = read_outcome(metrics)
    importance = measure_importance(record, tracks)
    edges = measure_edges(record, measure_importance(record, tracks, by_column=False))
    shapes = shape_effects(effects, tracks.sample)
    # (episode, 2) the observed outcome, and what the rewards say of it: a chance for labels.
    observed, found = tracks.returns.T
    returns = np.stack([observed, outcome.predict(found, metrics.get("base", 0.0))], 1)
    pinned = metrics["identifiability"].get("pinned_down") or {}
    level, verdict = _read_verdict(metrics)
    payload: dict[str, Any] = {
        "reward": outcome.reward_unit,
        "outcome": {"singular": outcome.singular, "plural": outcome.plural, "paid": outcome.paid},
        "importance": [
            {"name": one.name, "alone": round(one.alone, 5), "joint": round(one.joint, 5)}
            for one in importance[:MOST_BARS]
        ],
        "effects": pack_effects(shapes),
        "graph": pack_graph(masks, edges, importance),
        "returns": _pack_returns(returns, metrics.get("held_out")),
        "calibration": metrics.get("calibration"),
        "pinned": pinned,
        "film": None if film is None else film.clips,
    }
    command = metrics.get("command") or shlex.join(["grd-offline", "decompose", metrics["data"]])
    kind = f"{outcome.singular.capitalize()} decomposition"
    context = {
        "tab": f"{metrics['data']}: {kind[0].lower()}{kind[1:]}",
        "kind": kind,
        "level": level,
        "verdict": verdict,
        "facts": _list_facts(record, outcome, level),
        "source": [metrics["data"], metrics.get("environment"), *count_steps(metrics)],
        "nav": {
            "importance": "Importance" if importance else "",
            "episodes": "Episodes",
            "effects": "Effects",
            "graph": "Causal graph",
            "returns": "" if outcome == PREFERENCE else outcome.plural.capitalize(),
            "limits": "What the data can tell",
            "again": "Use it, make it again",
        },
        "metrics": metrics,
        "masks": masks,
        "outcome": outcome,
        "tracks": tracks,
        "film": film,
        "effects": effects,
        "importance": importance,
        **_find_drivers(record, importance),
        "bands": describe_bands(outcome, True),
        "too_narrow": TOO_NARROW,
        "explain_marks": explain_marks,
        "most_bars": MOST_BARS,
        "cards": describe_cards(effects, shapes),
        "has_few_values": any(ticks is not None for shape in shapes for ticks in shape.ticks),
        "shares": [(name_effect(one["references"]), show_share(one["share"])) for one in effects],
        "graph": describe_graph(masks),
        "returns": _describe_returns(returns, metrics.get("calibration") or {}),
        "levels": LEVELS,
        "clearly": CLEARLY,
        "hidden": _list_hidden(metrics["identifiability"]),
        "quoted_name": json.dumps(name),
        "command": command if " --out " in command else f"{command} --out {shlex.quote(name)}",
        "alternatives": [
            (
                entry["fit"],
                f"{entry['held_out_return_r2']:.4f}",
                show_share(entry["held_out_return_coverage_90"]),
                entry["held_out_returns"],
            )
            for entry in metrics["alternatives"]
        ],
    }
    used = len(render_page("decomposition.html", payload, **context).encode())
    payload["viewer"] = pack_tracks(tracks, max(PAGE_BYTES - used, 200_000))
    return render_page("decomposition.html", payload, **context)


def read_outcome(metrics: Mapping[str, Any]) -> Outcome:
    """Read what is known of the episodes. Earlier versions knew returns only."""
    return Outcome(metrics.get("outcome", NUMBER))


def _read_verdict(metrics: Mapping[str, Any]) -> tuple[str, str]:
    """Read the level and the sentence; a fit that predicts nothing is unreliable."""
    verdict = metrics.get("verdict") or {
        "level": "careful",
        "text": "Use these rewards with care: an earlier version made them, unchecked.",
    }
    explained = metrics.get("held_out_return_r2")
    is_empty = explained is not None and explained <= 0
    is_known = verdict["level"] in LEVELS and not is_empty
    return verdict["level"] if is_known else UNRELIABLE, str(verdict["text"])


def _list_facts(record: Decomposition, outcome: Outcome, level: str) -> list[tuple[str, str]]:
    metrics, masks = record.metrics, record.masks
    facts = []
    if (explained := metrics.get("held_out_return_r2")) is not None:
        inside = metrics["held_out_return_coverage_90"]
        held = f"{metrics['held_out_returns']:,} held-out {outcome.plural}"
        facts.append(
            (show_share(explained), f"of the variance of {held} explained (R²)")
            if explained > 0
            else (f"{explained:.2f}", f"R² of {held}")
        )
        facts.append((show_share(inside), f"of them inside their {show_share(0.9)} interval"))
    if level != UNRELIABLE:
        driving = sum(masks["state_to_reward"]) + sum(masks["action_to_reward"])
        inputs = len(masks["state_names"]) + len(masks["action_names"])
        facts.append((f"{driving} of {inputs}", "dimensions drive the reward"))
        compact = masks["compact"]["closure"]
        facts.append((f"{sum(compact)} of {len(compact)}", "state dimensions in the compact state"))
    if "truth" in metrics:
        facts.append((f"{metrics['truth']['pearson']:.2f}", "correlation with the true reward"))
    return facts


def _find_drivers(record: Decomposition, importance: Sequence[Importance]) -> dict[str, list[str]]:
    """Names for the headline: all inputs, those that come first if they are clear, and the rest."""
    names = [one.name for one in importance or record.inputs]
    top = importance[0].total if importance else 0.0
    # The inputs of one effect have the same share.
    first = [one.name for one in importance if one.total > top - 0.005][:4]
    others = [one for one in importance[1:] if one.total > 0.001] if top >= MAJOR else []
    return {
        "drivers": names,
        "leaders": first if top >= MAJOR or len(names) == 1 else [],
        "others": [f"{one.name} ({show_share(one.total)})" for one in others],
        "bars": [f"{one.name} {show_share(one.total)}" for one in importance[:MOST_BARS]],
    }


def _pack_returns(returns: Array, held: Mapping[str, Any] | None) -> dict[str, Any]:
    keep = np.linspace(0, len(returns) - 1, min(len(returns), MOST_POINTS)).round().astype(int)
    return {
        "observed": pack(returns[keep, 0]),
        "found": pack(returns[keep, 1]),
        "episodes": keep.tolist(),
        "held_out": held and {name: pack(values) for name, values in held.items()},
    }


def _describe_returns(returns: Array, calibration: Mapping[str, Any]) -> dict[str, Any]:
    observed, found = returns.T
    levels, held = calibration.get("levels", ()), calibration.get("held_out_returns") or ()
    return {
        "low": observed.min(),
        "high": observed.max(),
        "gap": float(np.sqrt(np.mean((observed - found) ** 2))),
        "calibrated": calibration.keys() & {"held_out_returns", "true_rewards"},
        "inside": dict(zip(levels, held, strict=False)).get(0.9),
    }


def _list_hidden(found: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """List the parts of the reward that outcomes cannot exclude, with their sizes."""
    hidden = found.get("hidden") or {}
    sizes = {HIDDEN.get(n, n): size for n, size in hidden.items() if n != "moment" and size > 0}
    ranked = sorted(sizes.items(), key=lambda item: -item[1])
    if len(ranked) > 1:
        ranked.append(("all of them together", sum(size**2 for size in sizes.values()) ** 0.5))
    spread = max(float(found["reward_spread"]), 1e-300) if ranked else 1.0
    # As findings on what may hide write shares, no finer than they deserve.
    shares = [size / spread for _, size in ranked]
    shown = ["less than 1 %" if share < 0.01 else format_percentage(share) for share in shares]
    return [
        (name, show_number(size), share) for (name, size), share in zip(ranked, shown, strict=True)
    ]


_WIDTH, _HEIGHT, _EDGE = 180, 70, 4
_MOST_SHOWN = 30


def make_outcomes_page(records: Mapping[str, Decomposition], correlation: Array) -> str:
    """Make the page; `correlation` is that of the step rewards of the outcomes."""
    metrics = [record.metrics for record in records.values()]
    worst = max((one["verdict"] for one in metrics), key=lambda one: LEVELS.index(one["level"]))
    rows = _compare_effects(records)
    return render_page(
        "outcomes.html",
        {},
        tab=f"{metrics[0]['data']}: several outcomes",
        kind="Several outcomes",
        level=worst["level"],
        verdict=worst["text"],
        about="",
        source=[metrics[0]["data"], *count_steps(metrics[0])],
        nav={
            "outcomes": "Outcomes",
            "effects": "Effects side by side",
            "together": "Do the outcomes agree?",
        },
        records=records,
        report_file=REPORT_FILE,
        rows=rows[:_MOST_SHOWN],
        total=len(rows),
        width=_WIDTH,
        height=_HEIGHT,
        correlation=[
            [name, *(f"{value:.2f}" for value in row)]
            for name, row in zip(records, correlation, strict=True)
        ],
    )


def _compare_effects(
    records: Mapping[str, Decomposition],
) -> list[tuple[str, list[dict[str, Any] | None]]]:
    """A row for each effect, the largest first, with a cell for each outcome."""
    by_name = [
        {name_together(effect["references"]): effect for effect in record.effects}
        for record in records.values()
    ]
    size: dict[str, float] = {}
    for effects in by_name:
        for inputs, effect in effects.items():
            size[inputs] = max(size.get(inputs, 0.0), float(effect["share"]))
    return [
        (inputs, [_describe(effects.get(inputs)) for effects in by_name])
        for inputs in sorted(size, key=lambda inputs: -size[inputs])
    ]


def _describe(effect: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The share of an effect and, for one input, its curve and band as points of a drawing."""
    if effect is None:
        return None
    if len(effect["references"]) > 1:
        return {"share": float(effect["share"]), "outline": ""}
    grid, mean, std = (
        np.asarray(part, np.float64) for part in (effect["grids"][0], effect["mean"], effect["std"])
    )
    below, above = mean - 1.645 * std, mean + 1.645 * std
    low, high = float(below.min()), float(above.max())
    across = _EDGE + (grid - grid[0]) / (float(np.ptp(grid)) or 1.0) * (_WIDTH - 2 * _EDGE)

    def list_points(x: Array, values: Array) -> str:
        y = _HEIGHT - _EDGE - (values - low) / ((high - low) or 1.0) * (_HEIGHT - 2 * _EDGE)
        return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))

    return {
        "share": float(effect["share"]),
        "low": low,
        "high": high,
        "line": list_points(across, mean),
        "outline": list_points(np.r_[across, across[::-1]], np.r_[above, below[::-1]]),
    }
