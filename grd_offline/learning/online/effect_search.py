"""The effects of a member's reward, found among an even sample of its episodes.

This is the search of `decompose`, made to cost little: effects of one or two inputs, small bases,
no thresholds, no averages over models. It runs at moments that grow geometrically. Between two of
them the effects and their tables stay, and the sums of a `Structure` give their weights.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
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
from grd_offline.learning.online.dynamics_masks import find_edges
from grd_offline.learning.online.past import unpack
from grd_offline.learning.online.replay import FinishedEpisode
from grd_offline.methods.closed_form.fit import LastFit
from grd_offline.rewards.effects import EffectModel

SETTINGS = ClosedFormSettings(
    order=2, final_basis=10, rough_basis=12, sample=10_000, rank=48, most_paired=40,
    switches=False, hasty=True, reach=0.5,
)  # fmt: skip
"""Settings of every search. Grids go beyond the data, because the policy will."""
LEFT_OUT = 1e-5
"""Share of an effect's squared norm that columns may have which are left out of the sums."""
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


_FIELDS = (
    "kept", "effect", "first_variances", "variances", "noise", "floor", "sums", "rows", "state_at",
    "weights", "constant",
)  # fmt: skip


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
    packed: Mapping[str, Any],
    names: tuple[Sequence[str], Sequence[str]] | None,
    seed: Sequence[int],
    first: str,
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
    return EffectChooser(episodes, moment, SETTINGS, rng, lambda stage, share: None, only)


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
    widths = np.array(selection.fit.sizes, np.int64)
    scales = np.array([bank[effect].scale for effect in selection.effects])
    effect = np.repeat(np.arange(len(widths)), widths)
    sums, power = _sum_rows(last), np.zeros(len(effect))
    if len(effect):
        columns = [np.asarray(bank[e].columns, np.float64) for e in selection.effects]
        power = (np.concatenate(columns, 1) ** 2).sum(0)
    kept = _choose_columns(power, effect)
    places = np.concatenate([np.arange(FIRST), FIRST + kept])
    states = data.episodes.state_size
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
            edges[:states],
            edges[states:],
        ),
    )


def _sum_rows(last: LastFit) -> Array:
    """The sums of all episodes, from columns that are free of the constant.

    A reflection of the rows leaves their sums of products as they are. It turned the constant into
    a row of its own, in which a column is its average times the constant's length.
    """
    data, (selection, bank, *_) = last.data, last.found
    widths = np.array(selection.fit.sizes, np.int64)
    scales = np.repeat([bank[effect].scale for effect in selection.effects], widths)
    blocks = [np.asarray(bank[e].columns, np.float64) for e in selection.effects]
    averages = [np.asarray(bank[e].average, np.float64) for e in selection.effects]
    target = data.target * data.unit
    rows = np.concatenate([np.zeros((len(target), 1)), target[:, None], *blocks], 1)
    first = np.concatenate([[1.0, data.mean * data.unit], *averages])
    rows[:, FIRST:] /= scales
    first[FIRST:] /= scales
    length = float(data.equations.constant @ data.equations.constant)
    return np.asarray(rows.T @ rows + length * np.outer(first, first))


def _choose_columns(power: Array, effect: IntArray) -> IntArray:
    """The columns that carry an effect, without those that hardly do."""
    kept = []
    for one in np.unique(effect):
        mine = np.flatnonzero(effect == one)
        order = mine[np.argsort(power[mine], kind="stable")]
        gone = np.cumsum(power[order]) < LEFT_OUT * power[mine].sum()
        kept.append(np.sort(order[~gone]))
    return np.concatenate(kept) if kept else np.zeros(0, np.int64)
