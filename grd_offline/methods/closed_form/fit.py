"""Return decomposition in closed form: the reward as a sum of effects, found by their evidence.

The route of the paper's identifiability proof with functions for its fixed basis. A delivered
amount is linear in the weights of g, since it is a sum of g over its steps:

    R_j = sum_{t in segment j} gamma^t g(x_t, a_t, d_t) + noise,   g = c + sum_p phi_p w_p

Here x_t is the state at some moment of the transition (`moments` chooses it), and d_t says whether
the episode terminated at step t. Each effect (an input, a pair, a triple) is a Gaussian process
with a variance of its own. `equations` sums features over segments, `search` finds the variances,
and `choosing` decides which effects and inputs stay. Where amounts are too few or too noisy for
that, `search` averages over the models that they leave possible. `LastFit` then makes the reward
model, and `hidden` measures what returns cannot tell about it.

Labels are success of episodes, or preferences between pieces of them. The moments of the
transitions compete as they do for returns. The last fit is that of the parabola that `labels` puts
in the place of the likelihood, so that bands, and what may hide from the labels, are measured as
for returns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import combinations
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from grd_offline.additive import choosing, search
from grd_offline.additive.bars import BARS
from grd_offline.additive.basis import Effect
from grd_offline.additive.choosing import Chosen, EffectChooser
from grd_offline.additive.equations import ColumnSource, NoiseKind, find_motion
from grd_offline.additive.hidden import (
    compute_features,
    find_even,
    measure_hidden,
    measure_history,
    measure_interactions,
    spread_moments,
)
from grd_offline.additive.labels import LabelBank, LabelSelection, search_labels, shake_inputs
from grd_offline.additive.moments import AUTO, BEFORE, BOTH, END, MIDPOINT, NEAR, START, prefer
from grd_offline.additive.search import NOWHERE, EffectBank, ModelAverage, Selection
from grd_offline.additive.settings import ClosedFormSettings
from grd_offline.core.episodes import SAME_LENGTH, EpisodeSet, cut_pieces
from grd_offline.core.errors import DataError
from grd_offline.core.inputs import InputRef, StepColumns, list_inputs
from grd_offline.core.observer import NOBODY, Progress
from grd_offline.core.outcomes import PREFERENCE, SUCCESS, Outcome
from grd_offline.core.statistics import give_chance
from grd_offline.core.typing import Array, IntArray
from grd_offline.rewards.effects import EffectModel


def fit_closed_form(
    episodes: EpisodeSet,
    settings: ClosedFormSettings,
    rng: np.random.Generator,
    progress: Progress = NOBODY.on_progress,
) -> ClosedFormFit:
    """Find effects, variances and weights of the reward behind the outcomes.

    Where outcomes are 0 or 1 they are labels of success. But where a reward explains them exactly
    as numbers, as one that is paid at a goal, they are taken as numbers.
    """
    asked = settings.outcome
    has_labels = asked == SUCCESS or (asked == AUTO and are_labels(episodes))
    if episodes.preferences is None and not has_labels:
        return _MomentSearch(episodes, settings, rng, progress).run()
    found = fit_labels(episodes, settings, rng, progress)
    is_clear = found.outcome == SUCCESS and found.left_out_r2 >= BARS.clear_labels
    if asked == SUCCESS or not is_clear:
        return found
    plain = _MomentSearch(episodes, settings, rng, progress).run()
    return plain if plain.left_out_r2 >= BARS.exact_numbers else found


@dataclass(eq=False)
class _MomentSearch:
    """A fit to numbers at the midpoint, compared with the ends of the transitions.

    Where no row tells the state at its end, see `Motion.start_only`, it is a fit at the start.
    Nothing is compared where a moment is asked for.
    """

    episodes: EpisodeSet
    settings: ClosedFormSettings
    rng: np.random.Generator
    progress: Progress
    choosers: dict[str, EffectChooser] = field(default_factory=dict, init=False)
    chosen: dict[str, Chosen] = field(default_factory=dict, init=False)
    evidence: dict[str, float] = field(default_factory=dict, init=False)

    def run(self) -> ClosedFormFit:
        asked = BOTH if self.settings.next_state else self.settings.state_at
        if asked != AUTO:
            chooser = self._chooser(asked)
            return LastFit(chooser, chooser.settle_noise(chooser.choose()), self.rng).run({})
        motion = find_motion(self.episodes)
        self.jumps, self.first = motion.jumps, START if motion.start_only else MIDPOINT
        first, best = self._choose(self.first), self.first
        has_states = self._has_states(first)
        self._measure(best, best)
        if has_states and best == MIDPOINT:
            for moment in (START, END):
                self._measure(moment, MIDPOINT)
            best = prefer(self.evidence, jumps=self.jumps)
            if best != MIDPOINT or not first.selection.effects:
                best = self._search_ends(best)
        if best == START:
            self._measure(BEFORE, START)
        # The last fit is made with the kind of noise that its errors show.
        self.chosen[best] = self.choosers[best].settle_noise(self.chosen[best])
        last = LastFit(self.choosers[best], self.chosen[best], self.rng)
        if not has_states or not last.found[0].effects:
            return last.run({})
        if last.switches:
            last = self._compare_switches(best, last)
        return last.run(self.evidence)

    def _search_ends(self, best: str) -> str:
        """Search at the ends of the transitions, where states jump and the midpoint is wrong.

        A return that is explained at any of the moments counts in full at all of them: else one
        that the midpoint cannot explain would be no argument for the ends.
        """
        near = [m for m in (START, END) if self.evidence[m] > self.evidence[best] - NEAR]
        for moment in near:
            self._choose(moment)
        searched = {MIDPOINT, *near}
        weights = np.max([self.choosers[moment].data.weights for moment in searched], 0)
        for moment in near:
            if (self.choosers[moment].data.weights != weights).any():
                self.chosen[moment] = self.choosers[moment].choose_again(weights)
            self._measure(moment, moment)
        if (self.choosers[MIDPOINT].data.weights != weights).any():
            self.chosen[MIDPOINT] = self.choosers[MIDPOINT].choose_again(weights)
            for moment in {MIDPOINT, START, END} - set(near):
                self._measure(moment, MIDPOINT)
        candidates = near if best != MIDPOINT else [MIDPOINT, *near]
        known = {moment: self.evidence[moment] for moment in candidates}
        return prefer(known, jumps=self.jumps)

    def _compare_switches(self, best: str, last: LastFit) -> LastFit:
        """Compare the moments again where the reward has thresholds.

        Smooth effects say little about the moment of a jump. Each moment is given the thresholds
        that were found at the best one, and may find others of its own.
        """
        switches, source = list(last.switches), last.data
        noise, weights = source.noise, source.weights
        effects = [e for e in last.found[0].effects if e not in switches and max(e) < source.inputs]
        for moment in self.evidence:
            chooser = self._chooser(moment)
            if chooser.data.noise != noise:
                chooser.data.take_noise(noise)
            chooser.data.reweight(weights)
            self.evidence[moment] = chooser.measure(
                chooser.data.translate(effects, source),
                last.found[0],
                [choosing.translate_switch(chooser.data, effect, source) for effect in switches],
            )
        better = prefer(self.evidence, jumps=self.jumps)
        if better == best:
            return last
        if better not in self.chosen:
            self._choose(better)
        if noise != NoiseKind():
            self.chosen[better] = self.choosers[better].choose_again(weights)
        return LastFit(self.choosers[better], self.chosen[better], self.rng)

    def _chooser(self, moment: str) -> EffectChooser:
        if moment not in self.choosers:
            self.choosers[moment] = EffectChooser(
                self.episodes, moment, self.settings, self.rng, self.progress
            )
        return self.choosers[moment]

    def _choose(self, moment: str) -> Chosen:
        chooser, weights = self._chooser(moment), self._chooser(self.first).data.weights
        if moment != self.first:
            is_event = (weights < BARS.far_weight).sum() >= BARS.fewest_events
            chooser.data.reweight(np.ones_like(weights) if is_event else weights)
        self.chosen[moment] = chooser.choose()
        return self.chosen[moment]

    def _measure(self, moment: str, of: str) -> None:
        """Log evidence of the effects that were chosen at one moment, taken at another."""
        self.progress("moments of a step", 0.0)
        selection, source = self.chosen[of].selection, self.choosers[of].data
        chooser = self._chooser(moment)
        chooser.data.reweight(source.weights)
        known = chooser.data.translate(selection.effects, source)
        self.evidence[moment] = chooser.measure(known, selection)

    def _has_states(self, chosen: Chosen) -> bool:
        """Whether any state is in the model: without one, all moments are alike.

        Where nothing was found, another moment may still find something.
        """
        data = self.choosers[self.first].data
        if not chosen.selection.effects:
            return data.varies and len(data.target) >= BARS.fewest_for_tails
        return any(data.column(i) < self.episodes.state_size for i in chosen.selection.inputs)


@dataclass(frozen=True, eq=False)
class ClosedFormFit:
    """The result of a fit, and how well the data determine it."""

    model: EffectModel
    state_to_reward: IntArray
    """(state,) 1 where a state dimension (or its next value) is an input of the reward."""
    action_to_reward: IntArray
    state_score: Array
    """(state,) evidence lost when that dimension is removed; 0 where it is not in the model."""
    action_score: Array
    evidence: float
    """Log evidence of the last fit, of amounts scaled to unit variance."""
    noise: float
    """Noise variance per step, in the units of the data."""
    return_r2: float
    """Explained share of the amounts' variance, on the data of the fit."""
    left_out_r2: float
    """Explained fraction of the variance when each amount is left out in turn, with the variances
    held."""
    effective_parameters: float
    """Weights that the data determine, in all."""
    sum_correlation: Array
    """(input, input) correlation of the sums over segments of the inputs in the model."""
    correlated: tuple[InputRef, ...]
    """(input,) the names of these inputs."""
    state_at: str
    """The moment of the transition at which the reward looks at the state; see `moments`."""
    moments: Mapping[str, float]
    """Log evidence of each moment that was compared; empty where one was asked for."""
    moment_variance: float
    """Variance per step of the reward over the moments that returns do not exclude."""
    hidden: Mapping[str, float]
    """Variance per step of what returns cannot exclude, by its name; see `hidden`."""
    weights: Array
    """(row,) how much each amount counts: less than 1 where it is far from any reward."""
    is_rounding: bool
    """Whether amounts differ by no more than rounding does."""
    jumps: bool = False
    """Whether rows are independent of each other, see `moments`."""
    history: Mapping[str, float] = field(default_factory=dict)
    """Variance per step of effects that act late or change with the time; see `history`."""
    even_inputs: tuple[str, ...] = ()
    """Inputs that take nearly the same values in every episode; see `hidden.find_even`."""
    outcome: Outcome = Outcome.NUMBER
    """Whether amounts were numbers, labels of success, or preferences."""
    length_share: float = 0.0
    """Share of the variance of labels of success that lengths of episodes explain by themselves."""


Found: TypeAlias = tuple[Selection, EffectBank, dict[int, float], int]


class LastFit:
    """From chosen effects to a reward model in the units of the data."""

    def __init__(self, chooser: EffectChooser, chosen: Chosen, rng: np.random.Generator) -> None:
        self.chooser, self.chosen, self.rng = chooser, chosen, rng
        self.data, self.settings, self.progress = chooser.data, chooser.settings, chooser.progress
        self.rules = replace(chooser.rules, noise_floor=self.settings.noise_floor)

    @cached_property
    def found(self) -> Found:
        """The effects of the reward, their columns, the score of each input, steps to climb."""
        self.progress("last fit", 0.0)
        return self._average() if self.chosen.is_undecided else self._refine()

    @property
    def switches(self) -> list[Effect]:
        """The thresholds of the reward."""
        return [effect for effect in self.found[0].effects if choosing.is_switch(self.data, effect)]

    def run(self, evidence: Mapping[str, float]) -> ClosedFormFit:
        """The last fit, given the evidence of the moments that were compared."""
        model, hidden = self.make_model(evidence)
        data, (last, bank, *_) = self.data, self.found
        fit = last.fit
        state_score, action_score = self.score_inputs()
        used = {data.column(i) for i in data.expand_inputs(last.effects)}
        in_model = [i for i in range(data.inputs) if data.column(i) in used]
        power = max(float((data.target**2).sum()), 1e-300)
        moment = spread_moments(data, last, bank, evidence, firmly=False)
        return ClosedFormFit(
            model=model,
            state_to_reward=(state_score > 0).astype(np.int64),
            action_to_reward=(action_score > 0).astype(np.int64),
            state_score=state_score,
            action_score=action_score,
            evidence=fit.evidence,
            noise=model.noise_variance,
            return_r2=1 - float(((fit.noise * fit.residual) ** 2).sum()) / power,
            left_out_r2=choosing.explain_left_out(fit),
            effective_parameters=float(fit.effective_parameters().sum()),
            sum_correlation=search.correlate_columns(data.sums[:, in_model]),
            correlated=_refer(data, in_model),
            state_at=data.state_at,
            moments=dict(evidence),
            moment_variance=float(moment.mean()) * data.unit**2,
            hidden=hidden,
            weights=data.weights,
            is_rounding=not data.varies,
            jumps=data.jumps,
            history=self._find_history(last, bank),
            even_inputs=tuple(one.name for one in _refer(data, find_even(data))),
        )

    def make_model(self, evidence: Mapping[str, float]) -> tuple[EffectModel, dict[str, float]]:
        """The reward model, and what returns cannot exclude by its name.

        This is all that training needs. The rest of `run` is for findings.
        """
        last, bank, _, climb = self.found
        self.progress("uncertainty", 0.0)
        hidden, share = self._find_hidden(last, bank, evidence)
        model = self._build_model(last, bank, climb)
        usual, ended = self._divide_hidden(hidden, model)
        model = replace(model, hidden_variance=usual, ended_variance=ended, lasting_share=share)
        return model, {name: max(float(part.mean()), 0.0) for name, part in hidden.items()}

    def _find_hidden(
        self, last: Selection, bank: EffectBank, evidence: Mapping[str, float]
    ) -> tuple[dict[str, Array], float]:
        """Find what returns cannot exclude at sampled steps, and the fraction of their noise that
        is a lasting error."""
        hidden = measure_hidden(self.data, last, bank, evidence)
        error, share = measure_interactions(self.data, last, bank)
        hidden["interactions left out"] = error * self.data.unit**2
        return hidden, share

    def _find_history(self, last: Selection, bank: EffectBank) -> dict[str, float]:
        found = measure_history(self.data, last, bank)
        return {kind: part * self.data.unit**2 for kind, part in found.items()}

    def _divide_hidden(
        self, hidden: Mapping[str, Array], model: EffectModel
    ) -> tuple[float, float]:
        """What returns cannot exclude at most steps, and more of it where episodes terminate."""
        total = sum(hidden.values(), np.zeros(len(self.data.transitions)))
        ended = self.data.transitions[:, self.data.ended] > 0
        if not model.needs_termination or not ended.any() or ended.all():
            return max(float(total.mean()), 0.0), 0.0
        usual = max(float(total[~ended].mean()), 0.0)
        return usual, max(float(total[ended].mean()) - usual, 0.0)

    def _refine(self) -> Found:
        """The chosen effects with a larger basis, corners and jumps."""
        selection = self.chosen.selection
        bank = self.chooser.build_final(selection.effects)
        rough = self._join_rough(bank, selection.effects)
        smooth = [effect for effect in bank if effect not in rough]
        last = bank.fit(smooth, selection.start, self.rules)
        if rough:
            last = search.search_forward(bank, list(bank), last, self.rules)
        last, ended = self._add_switches(last, bank), (self.data.terminated,)
        if ended in last.effects:  # left out again where it carries no evidence
            loss = search.measure_losses(last.fit)[last.effects.index(ended)]
            if loss < self.settings.drop_loss:
                kept = [effect for effect in last.effects if effect != ended]
                last = bank.fit(kept, last.start, self.rules)
        losses = search.search_backward(bank, last, self.rules, -np.inf, self.data.column)[1]
        return last, bank, losses, BARS.held_out_climb

    def _add_switches(self, last: Selection, bank: EffectBank) -> Selection:
        """Offer thresholds where amounts are not explained to the last."""
        if not self.settings.switches or choosing.explain_left_out(last.fit) >= BARS.sharp:
            return last
        self.progress("thresholds", 0.0)
        return choosing.add_switches(self.data, last, bank, self.rules)

    def _join_rough(self, bank: EffectBank, effects: Sequence[Effect]) -> list[Effect]:
        """Add the mates with corners and jumps of effects of one or two inputs."""
        if self.settings.rough_basis <= 1:
            return []
        small = [effect for effect in effects if len(effect) < 3]
        rough = [tuple(i + self.data.inputs for i in effect) for effect in small]
        mates = self.data.build_bank(rough, self.settings.rough_basis)
        bank.update(mates)
        return list(mates)

    def _average(self) -> Found:
        """The last fit at variances averaged over models."""
        bank, chosen = self.chosen.bank, self.chosen.selection
        left = [effect for effect in bank if effect not in set(chosen.effects)]
        order = np.argsort(-bank.scan(chosen, left)[0], kind="stable")
        candidates = [*chosen.effects, *(left[k] for k in order)][: BARS.average_candidates]
        average = self._average_models(bank, candidates)
        bank = self.chooser.build_final(list(average.variances))
        rough = self._join_rough(bank, list(average.variances))
        average = self._average_models(bank, [*average.variances, *rough])
        # Effects of other inputs are left out: the reward may not depend on what the mask denies.
        likely = set(average.likely())
        effects = [e for e in average.variances if {self.data.column(i) for i in e} <= likely]
        start = average.variances, average.noise
        last = bank.fit(effects, start, self.rules, iterations=0)
        last = self._add_switches(last, bank)
        return last, bank, {column: average.score(column) for column in likely}, 0

    def _average_models(self, bank: EffectBank, candidates: Sequence[Effect]) -> ModelAverage:
        return search.average_models(
            {effect: bank[effect].columns for effect in candidates},
            self.data.target,
            self.data.column,
            len({self.data.column(i) for i in range(self.data.inputs)}),
            sweeps=self.settings.sweeps,
            rng=self.rng,
            progress=partial(self.progress, "average over models"),
        )

    def _build_model(self, last: Selection, bank: EffectBank, climb: int) -> EffectModel:
        """The model in the units of the data, without what may hide from returns."""
        data, unit, fit = self.data, self.data.unit, last.fit
        parts = [(part, bank[e].size) for e in last.effects for part in data.expand_effect(e)]
        effects, sizes = [part for part, _ in parts], [size for _, size in parts]
        used = sorted({i for effect in effects for i in effect})
        position = {i: k for k, i in enumerate(used)}
        scales = np.repeat([bank[e].scale for e in last.effects], np.array(fit.sizes, np.int64))
        averages = [np.zeros(0), *(bank[effect].average for effect in last.effects)]
        half = len(data.probe) // 2 or 1
        features = compute_features(data, bank, last.effects, data.probe)
        factor, left = search.factor_posterior(
            fit, features[:half], features[half:], self.settings.rank
        )
        length = float(data.equations.constant @ data.equations.constant)
        model = EffectModel(
            observation_names=data.episodes.observation_names,
            action_names=data.episodes.action_names,
            columns=list_model_columns(data)[used],
            low=data.basis.low[used],
            high=data.basis.high[used],
            tables=data.basis.tables[used][:, :, : max(sizes, default=1)],
            effects=tuple(tuple(position[i] for i in effect) for effect in effects),
            sizes=tuple(sizes),
            constant=data.mean * unit,
            weights=fit.weights * scales * unit,
            centres=np.concatenate(averages) / scales,
            factor=factor * scales[:, None] * unit,
            residual_variance=left * unit**2,
            constant_variance=(fit.noise / length if length else 0.0) * unit**2,
            noise_variance=fit.noise * unit**2,
            shared_variance=fit.noise * data.noise.shared * unit**2,
            whole_variance=fit.noise * data.noise.whole * unit**2,
            inflation=search.measure_inflation(fit, self.settings.noise_floor, self.rng, climb),
            shares=np.zeros(len(effects)),
        )
        slices = [place for _, place, _ in model.effect_slices()]
        added = [features[:, place] @ fit.weights[place] for place in slices]
        shares = model.measure_shares(np.array(added).reshape(len(slices), len(features)).T)
        return replace(model, shares=shares)

    def score_inputs(self) -> tuple[Array, Array]:
        """(state,) and (action,) the evidence for each input of the reward; 0 for the others."""
        data, (last, _, scores, _) = self.data, self.found
        states, actions = data.episodes.state_size, data.episodes.action_size
        score = np.zeros(states + actions + 1)
        for column, loss in scores.items():
            score[column] = max(loss, 1e-12)
        for one, *mates in map(data.expand_effect, last.effects):
            for mate in mates:
                column = data.column(mate[0])
                score[column] = max(score[column], score[data.column(one[0])])
        return score[:states], score[states:-1]


def list_model_columns(data: ColumnSource) -> IntArray:
    """(input,) the column of each input as a reward model counts them, smooth and rough."""
    step = StepColumns(data.episodes.state_size, data.episodes.action_size)
    shifts = np.zeros(step.width, np.int64)
    first = {MIDPOINT: step.first_midpoint, END: step.first_next}.get(data.state_at, 0)
    shifts[: step.states] = first
    if data.state_at == MIDPOINT:
        shifts[: step.states][data.still] = step.first_next
    return np.asarray(data.basis.columns + shifts[data.basis.columns])


def _refer(data: ColumnSource, inputs: Sequence[int]) -> tuple[InputRef, ...]:
    """What some inputs are, whatever the moment at which states are taken."""
    columns = data.basis.columns[: data.inputs]
    known = list_inputs(columns, data.episodes.observation_names, data.episodes.action_names)
    return tuple(known[i] for i in inputs)


@dataclass(frozen=True, eq=False)
class Labelled:
    """Episodes or pieces of them, and what is known of them."""

    episodes: EpisodeSet
    labels: Array
    combine: Callable[[NDArray[np.floating]], NDArray[np.floating]]
    """Makes one row per label of one row per piece."""
    counts: Array
    """(label,) the steps of its episode, or of both its pieces."""
    outcome: Outcome


def are_labels(episodes: EpisodeSet) -> bool:
    """Whether every episode has one outcome, 0 or 1, and both occur."""
    seen = set()
    for episode in episodes:
        amounts = episode.segments()[2]
        if len(amounts) != 1 or not episode.delivered[-1] or amounts[0] not in (0.0, 1.0):
            return False
        seen.add(float(amounts[0]))
    return len(seen) == 2


def read_labels(episodes: EpisodeSet) -> Labelled:
    """The labels of success, or the preferences, where the episodes have some."""
    if (given := episodes.preferences) is not None:
        pieces, first, second = cut_pieces(episodes)
        counts = (pieces.lengths[first] + pieces.lengths[second]).astype(np.float64)
        return Labelled(
            pieces, given.preferred, lambda sums: sums[first] - sums[second], counts, PREFERENCE
        )
    if not are_labels(episodes):
        raise DataError("expected one outcome per episode, 0 or 1, and both of them")
    amounts = np.array([episode.rewards[-1] for episode in episodes], np.float64)
    counts = episodes.lengths.astype(np.float64)
    return Labelled(episodes, amounts, lambda sums: sums, counts, SUCCESS)


def fit_labels(
    episodes: EpisodeSet, settings: ClosedFormSettings, rng: np.random.Generator, progress: Progress
) -> ClosedFormFit:
    """Find effects, variances and weights of the reward behind labels."""
    given = read_labels(episodes)
    asked = BOTH if settings.next_state else settings.state_at
    motion = find_motion(given.episodes)
    tried = (START,) if motion.start_only else (MIDPOINT, START, END)
    searches: dict[str, _MomentOfLabels] = {}
    for moment in tried if asked == AUTO else (asked,):
        searches[moment] = _MomentOfLabels(given, moment, settings, rng, progress)
        searches[moment].begin(next(iter(searches.values())))
    evidence = {moment: one.found.fit.evidence for moment, one in searches.items()}
    is_open = asked == AUTO
    best = searches[prefer(evidence, firmly=False, jumps=motion.jumps) if is_open else asked]
    best.refine()
    if asked == AUTO:
        evidence[best.data.state_at] = best.found.fit.evidence
        if best.data.state_at == START:
            before = _MomentOfLabels(given, BEFORE, settings, rng, progress)
            evidence[BEFORE] = before.measure_found(best)
    return _LabelFit(best, rng).finish(evidence if asked == AUTO else {})


class _MomentOfLabels(EffectChooser):
    """The search for effects behind labels, with states at one moment of the transitions."""

    def __init__(self, given: Labelled, moment: str, *how: Any) -> None:
        """`how` are the settings, the random numbers and the progress of an `EffectChooser`."""
        super().__init__(given.episodes, moment, *how, combine=given.combine)
        self.given = given
        # No effect is kept without evidence.
        self.rules = replace(self.rules, add_most=BARS.label_added, kept=frozenset())
        self.found: Selection
        self.scores: dict[int, float] = {}
        self.pair_size = min(BARS.label_pair_features, self.find_search_size(self.data.inputs))

    @cached_property
    def length_share(self) -> float | None:
        """Share of the variance of labels that the lengths of episodes explain by themselves.

        None if a base could not be told from a constant reward, because lengths hardly differ.
        """
        labels, totals = self.given.labels, self.data.totals
        if self.given.outcome != SUCCESS or not totals.any():
            return None
        apart = 1 - totals * (totals.sum() / (totals @ totals))
        if float(np.sqrt((apart**2).mean())) <= SAME_LENGTH:
            return None
        alone = LabelBank({}, labels, totals, has_base=True).fit([], NOWHERE, self.rules)
        errors = labels - give_chance(alone.logits)
        return 1 - float(errors @ errors) / float(((labels - labels.mean()) ** 2).sum())

    @property
    def has_base(self) -> bool:
        """Whether a part of eta belongs to no step.

        Where the length tells the label by itself, it is rather a consequence: episodes end because
        they failed, or because they succeeded. Then a base would leave nothing to explain.
        """
        return self.length_share is not None and self.length_share < BARS.by_length

    @cached_property
    def bank(self) -> LabelBank:
        """The columns of the candidate effects."""
        inputs = list(range(self.data.inputs))
        bank = self.build([(i,) for i in inputs])
        if self.settings.order >= 2:
            if len(inputs) > BARS.label_paired:
                chosen = search_labels(bank, list(bank), self.rules)
                inputs = self.data.expand_inputs(chosen.effects)
            bank.update(self.build(list(combinations(self.data.find_joint(inputs), 2))))
        return bank

    def build(self, effects: Sequence[Effect]) -> LabelBank:
        """Columns of these effects, for labels: few that stand for all."""
        bank = LabelBank({}, self.given.labels, self.data.totals, has_base=self.has_base)
        bank.update(self.build_scaled(effects, plain=True))
        for effect, block in bank.items():
            bank[effect] = block._replace(columns=_compress(block.columns, bank.fixed))
        return bank

    def build_scaled(self, effects: Sequence[Effect], *, plain: bool = False) -> EffectBank:
        """Columns of these effects, by default for the amounts that the source now holds."""
        mains, pairs = ([effect for effect in effects if len(effect) == n] for n in (1, 2))
        bank = self.data.build_bank(mains, self.settings.basis, plain=plain)
        bank.update(self.data.build_bank(pairs, self.pair_size, plain=plain))
        return bank

    def begin(self, first: _MomentOfLabels) -> None:
        """Find the effects, and leave out the inputs that carry little.

        The search begins with the effects that the first one found, if that is another.
        """
        self.progress("effects", 0.0)
        start = [] if first is self else self.data.translate(first.found.effects, first.data)
        self._settle(search_labels(self.bank, list(self.bank), self.rules, start=start))

    def refine(self) -> None:
        """Search again among more effects."""
        self.progress("other effects", 0.0)
        self._settle(shake_inputs(self.bank, self.found, list(self.bank), self.rules))

    def _settle(self, found: Selection) -> None:
        threshold = self.settings.find_input_loss(found.fit.evidence - self.bank.null_evidence)
        self.found, self.scores = search.search_backward(
            self.bank, found, self.rules, threshold, self.data.column
        )

    def measure_found(self, other: _MomentOfLabels) -> float:
        """Log evidence here of the effects that were found at another moment."""
        effects = self.data.translate(other.found.effects, other.data)
        return self.build(effects).fit(effects, other.found.start, self.rules).fit.evidence


def _compress(block: NDArray[np.floating], fixed: Array) -> NDArray[np.floating]:
    """The directions of a block's weights that move labels, as columns."""
    directions = np.linalg.qr(fixed)[0]
    free = block - directions @ (directions.T @ block)
    squares, rotation = np.linalg.eigh((free.T @ free).astype(np.float64))
    shares = np.cumsum(np.maximum(squares[::-1], 0.0))
    count = int(np.searchsorted(shares, BARS.kept_of_label_block * shares[-1])) + 1
    return np.asarray(block @ rotation[:, ::-1][:, :count].astype(block.dtype))


class _LabelFit(LastFit):
    """The last fit, to the parabola in the place of the likelihood of the labels."""

    def __init__(self, moment: _MomentOfLabels, rng: np.random.Generator) -> None:
        super().__init__(moment, Chosen(moment.found, moment.bank, False), rng)
        self.moment = moment
        assert isinstance(moment.found, LabelSelection)
        self.logits, self.base = moment.found.logits, moment.found.base

    @cached_property
    def found(self) -> Found:
        """The effects found, as a fit to amounts with known noise."""
        amounts, root = self.moment.bank.find_parabola(self.logits)
        self.data.take_amounts(amounts - self.base, root**2)
        selection = self.moment.found
        bank = self.moment.build_scaled(selection.effects)
        if not self.moment.bank.has_constant:
            # Rewards have mean 0 over the data, where labels say nothing about their level.
            for effect in bank:
                features = compute_features(self.data, bank, [effect], self.data.probe)
                shifted = bank[effect].average + features.mean(0)
                bank[effect] = bank[effect]._replace(average=shifted)
        power = self.data.unit**2
        scaled = {effect: variance / power for effect, variance in selection.start[0].items()}
        start = scaled, 1 / power
        last = bank.fit(list(selection.effects), start, self.rules, iterations=0)
        return last, bank, self.moment.scores, 0

    def finish(self, evidence: dict[str, float]) -> ClosedFormFit:
        """The reward model, and how well labels pin it down."""
        result, given = self.run(evidence), self.moment.given
        labels, outcome = given.labels, given.outcome
        # The logit of each label if it is left out of the last fit.
        amounts, root = self.moment.bank.find_parabola(self.logits)
        errors = self.data.equations.find_errors(self.found[0].fit)
        logits = self.logits, np.asarray(amounts - errors * self.data.unit / root)
        power = max(float(((labels - labels.mean()) ** 2).sum()), 1e-300)
        r2 = [1 - float(((labels - give_chance(eta)) ** 2).sum()) / power for eta in logits]
        even = _refer(self.data, find_even(self.data, given.counts))
        return replace(
            result,
            model=replace(
                result.model, outcome=outcome, base=self.base, noise_variance=0.0, lasting_share=0.0
            ),
            evidence=self.moment.found.fit.evidence,
            noise=0.0,
            return_r2=r2[0],
            left_out_r2=r2[1],
            even_inputs=tuple(one.name for one in even),
            outcome=outcome,
            length_share=self.moment.length_share or 0.0,
        )

    def _find_history(self, last: Selection, bank: EffectBank) -> dict[str, float]:
        """Labels say too little about the past and the time."""
        return {}

    def _find_hidden(
        self, last: Selection, bank: EffectBank, evidence: Mapping[str, float]
    ) -> tuple[dict[str, Array], float]:
        """Find what labels cannot exclude. Their noise is chance, not an error of the reward."""
        hidden = measure_hidden(self.data, last, bank, evidence)
        moment = spread_moments(self.data, last, bank, evidence, firmly=False)
        return {**hidden, "moment": moment * self.data.unit**2}, 0.0
