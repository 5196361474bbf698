"""The effects of a member's reward, found among an even sample of its episodes.

This is the search of `decompose`, made to cost little: effects of one or two inputs, small bases,
no thresholds, no averages over models. It runs at moments that grow geometrically. Between two of
them the effects and their tables stay, and the sums of a `Structure` give their weights. The masks
of the dynamics come from sums as well.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from grd_offline.additive.basis import InputBasis
from grd_offline.additive.choosing import Chosen, EffectChooser
from grd_offline.additive.equations import Segment, sum_features
from grd_offline.additive.moments import END, MIDPOINT, START, prefer
from grd_offline.additive.search import SearchRules, Selection, solve_sums
from grd_offline.additive.settings import ClosedFormSettings
from grd_offline.core.episodes import Episode, EpisodeSet
from grd_offline.core.steps import StepBatch
from grd_offline.core.threads import one_numpy_thread
from grd_offline.core.typing import Array, IntArray
from grd_offline.learning.online.replay import FinishedEpisode
from grd_offline.methods.closed_form.fit import LastFit
from grd_offline.rewards.effects import EffectModel

MOST_EPISODES = 1000
MOST_STEPS = 500_000
MOST_NUMBERS = 2**25
"""Largest number of observed values and actions of all episodes of a sample together."""
MOST_PRODUCTS = 200_000
"""Largest number of episodes times numbers of a step: what a search of many inputs takes long
over."""
EARLY_SHARE = 0.5
"""Share of the sample that the first episodes keep for good."""


class Past:
    """The first episodes of a run, and an even sample of those that came after them.

    The first ones stay, however long the run. A policy that has learned little tries every action
    in every state, so its returns tell what each input does. Returns of a good policy are much
    alike and hardly tell: with an even sample of all episodes, what was known after 2,000
    episodes of Reacher was lost again after 10,000.

    Of the later episodes every k-th is kept. Where there are too many, every second one leaves and
    k doubles.
    """

    def __init__(self) -> None:
        self.count = 0
        """Number of episodes so far."""
        self.stride = 1
        self._early: list[FinishedEpisode] = []
        self._later: list[FinishedEpisode] = []

    @property
    def episodes(self) -> list[FinishedEpisode]:
        """The sample, from the oldest to the newest."""
        return self._early + self._later

    def add(self, episode: FinishedEpisode) -> None:
        """Hear of a finished episode."""
        width = episode.observations.shape[1] + episode.actions.shape[1]
        most_episodes = min(MOST_EPISODES, max(MOST_PRODUCTS // width, 100))
        most_steps = min(MOST_STEPS, MOST_NUMBERS // width)
        if (
            self.count == len(self._early)
            and self.count + 1 <= EARLY_SHARE * most_episodes
            and count_steps([*self._early, episode]) <= EARLY_SHARE * most_steps
        ):
            self._early.append(episode)
        elif (self.count - len(self._early)) % self.stride == 0:
            self._later.append(episode)
        self.count += 1
        while len(self._later) > 1 and (
            len(self.episodes) > most_episodes or count_steps(self.episodes) > most_steps
        ):
            self._later, self.stride = self._later[::2], self.stride * 2

    def state(self) -> dict[str, Any]:
        counts = {"count": self.count, "stride": self.stride, "early": len(self._early)}
        return {**counts, "episodes": pack(self.episodes)}

    def load_state(self, state: dict[str, Any]) -> None:
        self.count, self.stride = int(state["count"]), int(state["stride"])
        early, episodes = int(state["early"]), unpack(state["episodes"])
        self._early, self._later = episodes[:early], episodes[early:]


def count_steps(episodes: list[FinishedEpisode]) -> int:
    """Number of steps of all episodes together."""
    return sum(len(episode.actions) for episode in episodes)


def pack(episodes: list[FinishedEpisode]) -> dict[str, Any]:
    """Episodes as a few arrays, for a checkpoint."""
    if not episodes:
        return {}
    return {
        "observations": np.concatenate([episode.observations for episode in episodes]),
        "actions": np.concatenate([episode.actions for episode in episodes]),
        "lengths": np.array([len(episode.actions) for episode in episodes]),
        "returns": np.array([episode.episode_return for episode in episodes]),
        "terminated": np.array([float(episode.terminated) for episode in episodes]),
    }


def unpack(packed: dict[str, Any]) -> list[FinishedEpisode]:
    """The inverse of `pack`."""
    if not packed:
        return []
    lengths, steps = packed["lengths"], int(packed["lengths"].sum())
    rows = {"observations": steps + len(lengths), "actions": steps}
    if any(packed[name].ndim != 2 or len(packed[name]) != rows[name] for name in rows):
        raise ValueError(f"expected the arrays of {len(lengths)} episodes of {steps} steps")
    stops = np.cumsum(lengths)
    observations = np.split(packed["observations"], (stops + np.arange(1, len(stops) + 1))[:-1])
    actions = np.split(packed["actions"], stops[:-1])
    ends = zip(packed["returns"], packed["terminated"], strict=True)
    return [
        FinishedEpisode(np.array(seen), np.array(acted), float(total), bool(terminated))
        for seen, acted, (total, terminated) in zip(observations, actions, ends, strict=True)
    ]


SETTINGS = ClosedFormSettings(
    order=2, final_basis=10, rough_basis=12, sample=10_000, rank=48, most_paired=40,
    switches=False, hasty=True, reach=0.5,
)  # fmt: skip
"""Settings of every search. Grids go beyond the data, because the policy will."""
LEFT_OUT = 1e-5
"""Share of an effect's squared norm that columns may have which are left out of the sums."""
Names = tuple[Sequence[str], Sequence[str]]
"""Names of observations and of actions."""
STEPS = 2
"""Steps of the fixed point per solve."""
RANGE = 1e6
"""Factor by which a variance may move from where the search put it, up or down."""
FIRST = 2
"""Number of rows and columns of the sums before those of the weights: the constant and the
return."""


@dataclass(eq=False)
class Structure:
    """Effects, and what is needed to solve for their weights again with each new episode.

        y = c h + Z w + noise,   w_p ~ N(0, v_p I),   c free

    A row is an episode, divided by the root of its length. All that is kept of the rows is one
    matrix of sums, [h y Z]^T [h y Z], which a finished episode adds one product to. Variances and
    noise move by MacKay's fixed point from where they were, as in `additive.evidence`. With a few
    hundred columns that takes milliseconds in numpy, whatever device trains.
    """

    model: EffectModel
    """The model, with weights and bands as they were when the effects were found."""
    kept: IntArray
    """(column,) the weights of the model that the sums have a column for; the others are 0."""
    effect: IntArray
    """(column,) the effect that each belongs to."""
    first_variances: Array
    """(effect,) prior variance of its weights, as the search found it."""
    variances: Array
    """(effect,) the same as it is now."""
    noise: float
    """Variance of the noise per step."""
    floor: float
    """The smallest variance of the noise."""
    sums: Array
    """(2 + column, 2 + column) sums over episodes of the products of the constant, the return and
    the columns, each divided by the root of the episode's length."""
    rows: int
    """Number of episodes in the sums."""
    state_at: str
    weights: Array
    """(column,) the weights of now."""
    constant: float
    """What a step is worth apart from them."""
    masks: tuple[Array, ...]
    """States and actions into the reward, states and actions into states."""

    def add(self, rows: Array) -> None:
        """Add the rows (episode, 2 + column) of finished episodes to the sums."""
        if len(rows):
            self.sums = self.sums + rows.T @ rows
            self.rows += len(rows)

    def solve(self) -> None:
        """The posterior of the weights after some steps of the fixed point.

        Sums that have no solution leave everything as it is.
        """
        length, total, along = self.sums[0, 0], self.sums[0, 1], self.sums[0, FIRST:]
        gram = self.sums[FIRST:, FIRST:] - np.outer(along, along / length)
        moment = self.sums[FIRST:, 1] - along * (total / length)
        power = self.sums[1, 1] - total * total / length
        variances, noise, weights = self.variances, self.noise, self.weights
        least, most = self.first_variances / RANGE, self.first_variances * RANGE
        for _ in range(STEPS):
            spread = variances[self.effect]
            try:
                weights, inner, _ = solve_sums(gram, moment, spread, noise)
            except np.linalg.LinAlgError:
                return
            if not np.isfinite(weights).all():
                return
            known = np.clip(1 - np.diag(inner), 0, 1)
            strength = np.bincount(self.effect, (weights / spread) ** 2, len(variances))
            traces = np.bincount(self.effect, known / spread, len(variances))
            variances = np.clip(variances * strength / np.maximum(traces, 1e-300), least, most)
            gap = power - 2 * float(weights @ moment) + float(weights @ gram @ weights)
            noise = max(gap / max(self.rows - 1 - known.sum(), 0.1 * self.rows), self.floor)
        self.variances, self.noise, self.weights = variances, noise, weights
        self.constant = float((total - along @ weights) / length)

    def state(self) -> dict[str, Any]:
        """Arrays and plain values, for a checkpoint."""
        plain = {name: getattr(self, name) for name in _FIELDS}
        parts = {"config": self.model.config(), "tensors": self.model.tensors()}
        return {**plain, **parts, "masks": list(self.masks)}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Structure:
        """The inverse of `state`."""
        tensors = {name: np.array(value) for name, value in state["tensors"].items()}
        model = EffectModel.from_parts(state["config"], tensors)
        masks = tuple(np.array(mask) for mask in state["masks"])
        return cls(model=model, masks=masks, **{name: state[name] for name in _FIELDS})


_FIELDS = [each.name for each in fields(Structure) if each.name not in ("model", "masks")]


def sum_episodes(structure: Structure, episodes: Sequence[FinishedEpisode]) -> Array:
    """(episode, 2 + column) the row of each episode."""
    model, nothing = structure.model, np.zeros(0)
    segments = []
    for episode in episodes:
        length, observed = len(episode.actions), episode.observations
        ended = np.arange(length) == length - 1
        inputs = model.select_inputs(
            StepBatch(observed[:-1], episode.actions, observed[1:], ended & episode.terminated)
        )
        weights = np.ones(length)
        segments.append(Segment(inputs, weights, episode.episode_return, nothing, nothing))
    places = np.arange(len(model.columns))
    basis = InputBasis(places, model.low, model.high, model.tables)
    products = np.zeros((len(episodes), len(model.weights)))
    slices = {effect: place for effect, place, _ in model.effect_slices()}
    for size in set(model.sizes):
        mine = [e for e, own in zip(model.effects, model.sizes, strict=True) if own == size]
        sums = sum_features(iter(segments), len(episodes), basis, mine, size, np.float64)
        for effect, value in sums.items():
            products[:, slices[effect]] = value
    lengths = np.array([len(episode.actions) for episode in episodes], np.float64)
    returns = np.array([episode.episode_return for episode in episodes])
    rows = np.column_stack([lengths, returns, products[:, structure.kept]])
    return np.asarray(rows / np.sqrt(lengths)[:, None])


@one_numpy_thread()
def find_structure(
    packed: Mapping[str, Any], names: Names | None, seed: Sequence[int], first: str
) -> Structure:
    """Search for the effects behind the returns of some episodes.

    `packed` comes from `past.pack`. `names` are those of observations and actions. States are
    taken at the moment `first` to begin with.
    """
    found, rng = unpack(dict(packed)), np.random.default_rng(list(seed))
    observed, acted = names if names is not None else (None, None)
    episodes = EpisodeSet.from_episodes(
        [_make_episode(one) for one in found], observation_names=observed, action_names=acted
    )
    chooser, chosen, evidence = _choose(episodes, rng, first)
    # Where other models are about as likely, an average over them is no better online, and slow.
    last = LastFit(chooser, replace(chosen, is_undecided=False), rng)
    model, _ = last.make_model(evidence)
    return _make_structure(last, model, find_edges(found, rng))


def _make_episode(episode: FinishedEpisode) -> Episode:
    length = len(episode.actions)
    is_last = np.arange(length) == length - 1
    return Episode(
        observations=episode.observations,
        actions=episode.actions,
        rewards=is_last * episode.episode_return,
        terminations=is_last & episode.terminated,
        truncations=is_last & (not episode.terminated),
        delivered=is_last,
    )


def _choose(
    episodes: EpisodeSet, rng: np.random.Generator, first: str
) -> tuple[EffectChooser, Chosen, dict[str, float]]:
    """Effects at the moment of the transitions that has most evidence."""
    choosers = {first: _make_chooser(episodes, first, rng)}
    data = choosers[first].data
    chosen, is_tied = _search(choosers[first])
    selection, evidence = chosen.selection, {}
    if not selection.effects:
        return (*_search_elsewhere(episodes, rng, choosers[first], chosen), {})
    if not any(data.column(i) < episodes.state_size for i in selection.inputs):
        return choosers[first], chosen, {}
    needed = {data.column(i) for i in data.expand_inputs(selection.effects)}
    needed.add(episodes.state_size + episodes.action_size)  # terminating
    for moment in (MIDPOINT, START, END):
        if moment not in choosers:
            choosers[moment] = _make_chooser(episodes, moment, rng, needed)
            choosers[moment].data.tie_actions(is_tied)
        other = choosers[moment]
        known = other.data.translate(selection.effects, data)
        evidence[moment] = other.measure(known, selection)
    best = prefer(evidence)
    if best != first:
        choosers[best] = _make_chooser(episodes, best, rng)
        choosers[best].data.tie_actions(is_tied)
        chosen = choosers[best].search()
    return choosers[best], chosen, evidence


def _search_elsewhere(
    episodes: EpisodeSet, rng: np.random.Generator, chooser: EffectChooser, chosen: Chosen
) -> tuple[EffectChooser, Chosen]:
    """Effects at another moment where one moment has none: states that jump hide in a midpoint."""
    best = _weigh(chosen.selection, chooser.rules)
    for moment in (START, END):
        other = _make_chooser(episodes, moment, rng)
        found, _ = _search(other)
        weight = _weigh(found.selection, other.rules)
        if found.selection.effects and weight > best:
            chooser, chosen, best = other, found, weight
    return chooser, chosen


def _make_chooser(
    episodes: EpisodeSet, moment: str, rng: np.random.Generator, only: Collection[int] | None = None
) -> EffectChooser:
    return EffectChooser(episodes, moment, SETTINGS, rng, lambda stage, share: None, only=only)


def _search(chooser: EffectChooser) -> tuple[Chosen, bool]:
    """Effects, and whether those of all actions share a variance.

    While episodes are few, what each of many actions costs is not certain, but what all cost is.
    """
    chosen = chooser.search()
    if not chosen.is_undecided:
        return chosen, False
    chooser.data.tie_actions(True)
    tied = chooser.search()
    is_better = _weigh(tied.selection, chooser.rules) > _weigh(chosen.selection, chooser.rules)
    chooser.data.tie_actions(is_better)
    return (tied if is_better else chosen), is_better


def _weigh(selection: Selection, rules: SearchRules) -> float:
    """Log evidence, less what each variance has to carry at least."""
    prices = sum(rules.settings.drop_loss + rules.price(e) for e in selection.effects)
    return selection.fit.evidence - prices


def _make_structure(last: LastFit, model: EffectModel, edges: Array) -> Structure:
    """Make the structure that the last fit found, with the sums of its episodes in the units of the
    data."""
    data, (selection, bank, *_) = last.data, last.found
    features = [bank[effect] for effect in selection.effects]
    widths = np.array(selection.fit.sizes, np.int64)
    scales = np.array([feature.scale for feature in features])
    effect = np.repeat(np.arange(len(widths)), widths)
    blocks = [np.asarray(feature.columns, np.float64) for feature in features]
    # The sums of all episodes, from columns that are free of the constant. A reflection of the rows
    # leaves their sums of products as they are. It turned the constant into a row of its own, in
    # which a column is its average times the constant's length.
    target = data.target * data.unit
    rows = np.concatenate([np.zeros((len(target), 1)), target[:, None], *blocks], 1)
    averages = [np.asarray(feature.average, np.float64) for feature in features]
    first = np.concatenate([[1.0, data.mean * data.unit], *averages])
    power = (rows[:, FIRST:] ** 2).sum(0)
    rows[:, FIRST:] /= scales[effect]
    first[FIRST:] /= scales[effect]
    length = float(data.equations.constant @ data.equations.constant)
    sums = rows.T @ rows + length * np.outer(first, first)
    kept = _choose_columns(power, effect)
    places = np.concatenate([np.arange(FIRST), FIRST + kept])
    variances = selection.fit.variances * (scales * data.unit) ** 2
    return Structure(
        model=model,
        kept=kept,
        effect=effect[kept],
        first_variances=variances,
        variances=variances,
        noise=selection.fit.noise * data.unit**2,
        floor=SETTINGS.noise_floor * data.unit**2,
        sums=sums[np.ix_(places, places)],
        rows=len(data.target) + 1,
        state_at=data.state_at,
        weights=model.weights[kept],
        constant=model.constant - float(model.centres @ model.weights),
        masks=(
            *((score > 0).astype(np.float64) for score in last.score_inputs()),
            *np.split(edges, [data.episodes.state_size]),
        ),
    )


def _choose_columns(power: Array, effect: IntArray) -> IntArray:
    """The columns that carry an effect, without those that hardly do."""
    kept = []
    for one in np.unique(effect):
        mine = np.flatnonzero(effect == one)
        order = mine[np.argsort(power[mine], kind="stable")]
        gone = np.cumsum(power[order]) < LEFT_OUT * power[mine].sum()
        kept.append(np.sort(order[~gone]))
    return np.concatenate(kept) if kept else np.zeros(0, np.int64)


MOST_REGRESSED = 100_000
WORK = 2e10
"""Multiplications that the sums of one sample of steps may take."""
_BLOCK = 8192


class Regression:
    """The masks of the dynamics: s' on (1, x, x^2), kept as sums.

    An input stays a cause of s_j' if leaving it out costs more than BIC allows.
    """

    def __init__(self, states: int, actions: int) -> None:
        self.states, self.inputs = states, states + actions
        size = 1 + 2 * self.inputs
        self.gram, self.cross = np.zeros((size, size)), np.zeros((size, states))
        self.squares = np.zeros(states)

    @property
    def count(self) -> float:
        """Number of steps so far."""
        return float(self.gram[0, 0])

    def add(self, values: Array, next_states: Array) -> None:
        """Take in steps: (step, state and action), (step, state)."""
        change = next_states - values[:, : self.states]
        columns = np.hstack([np.ones((len(values), 1)), values, values**2])
        self.gram += columns.T @ columns
        self.cross += columns.T @ change
        self.squares += (change**2).sum(0)

    def find_edges(self) -> Array:
        """(input, state) 1 where x_i is a cause of s_j': dropping it costs more than BIC allows.

        Every state is a cause of itself: s' is s and a change.
        """
        count = max(self.count, 2.0)
        scale = np.sqrt(np.maximum(np.diag(self.gram) / count, 1e-12))
        gram = self.gram / np.outer(scale, scale) / count
        # The ridge makes inputs that repeat each other harmless: their errors become large.
        inverse = np.linalg.inv(gram + 1e-9 * np.eye(len(gram)))
        cross = self.cross / scale[:, None] / count
        weights = inverse @ cross
        explained = (weights * cross).sum(0)
        residual = np.maximum(self.squares / count - explained, 1e-9 * self.squares / count + 1e-12)
        spread = np.maximum(np.diag(inverse), 1e-12)[:, None] * residual / count
        strength = weights**2 / spread  # (column, state) squared t of each coefficient
        linear, square = strength[1 : 1 + self.inputs], strength[1 + self.inputs :]
        # Many coefficients are looked at: BIC's log n, and as much again for the search.
        edges = np.maximum(linear, square) > 2 * np.log(count)
        edges[: self.states] |= np.eye(self.states, dtype=bool)
        return np.asarray(edges, np.float64)


def find_edges(episodes: Iterable[FinishedEpisode], rng: np.random.Generator) -> Array:
    """(input, state) the edges that a bounded sample of the steps of these episodes shows."""
    episodes = list(episodes)
    states, actions = episodes[0].observations.shape[1], episodes[0].actions.shape[1]
    found = Regression(states, actions)
    most = min(MOST_REGRESSED, WORK / len(found.gram) ** 2)
    share = most / sum(len(episode.actions) for episode in episodes)
    rows: list[Array] = []
    for episode in episodes:
        kept = rng.random(len(episode.actions)) < share
        seen = episode.observations.astype(np.float64)
        rows.append(np.hstack([seen[:-1], episode.actions, seen[1:]])[kept])
    every = np.concatenate(rows)
    for start in range(0, len(every), _BLOCK):
        block = every[start : start + _BLOCK]
        found.add(block[:, :-states], block[:, -states:])
    return found.find_edges()
