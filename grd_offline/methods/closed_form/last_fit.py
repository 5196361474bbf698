"""The last fit of the closed form: the reward model, and how well the data pin it down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from grd_offline.core.outcomes import NUMBER
from grd_offline.methods.closed_form.average import ModelAverage, average_models
from grd_offline.methods.closed_form.choosing import Chosen, EffectChooser, explain_left_out
from grd_offline.methods.closed_form.evidence import measure_losses
from grd_offline.methods.closed_form.hidden import (
    compute_features,
    find_even,
    measure_hidden,
    measure_moments,
)
from grd_offline.methods.closed_form.history import measure_history
from grd_offline.methods.closed_form.inputs import Effect
from grd_offline.methods.closed_form.interactions import measure_interactions
from grd_offline.methods.closed_form.search import (
    EffectBank,
    Selection,
    search_backward,
    search_forward,
)
from grd_offline.methods.closed_form.switches import add_switches, is_switch
from grd_offline.methods.closed_form.uncertainty import (
    correlate_columns,
    factor_posterior,
    measure_inflation,
    measure_pinned,
)
from grd_offline.rewards.effect_terms import measure_shares
from grd_offline.rewards.effects import EffectModel

Array = NDArray[np.float64]

_CLIMB = 10  # steps by which variances move again without the rows that are left out
_CANDIDATES = 120
_SHARP = 0.998  # share of left-out amounts that is explained without switches


@dataclass(frozen=True, eq=False)
class ClosedFormFit:
    """The result of a fit, and how well the data determine it."""

    model: EffectModel
    state_to_reward: NDArray[np.int64]
    """(state,) 1 where a state dimension (or its next value) is an input of the reward."""
    action_to_reward: NDArray[np.int64]
    state_score: Array
    """(state,) evidence lost when that dimension is removed; 0 where it is not in the model."""
    action_score: Array
    evidence: float
    """Log evidence of the last fit, of amounts scaled to unit variance."""
    null_evidence: float
    """Log evidence of a constant reward."""
    noise: float
    """Noise variance per step, in the units of the data."""
    return_r2: float
    """Explained share of the amounts' variance, on the data of the fit."""
    left_out_r2: float
    """Explained fraction of the variance when each amount is left out in turn, with the variances
    held."""
    effective_parameters: float
    """Weights that the data determine, in all."""
    pinned: Array
    """(effect,) 1 - posterior / prior variance per step: 1 is known from data, 0 from the prior."""
    sum_correlation: Array
    """(input, input) correlation of the sums over segments of the inputs in the model."""
    correlated_names: tuple[str, ...]
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
    outcome: str = NUMBER
    """Whether amounts were numbers, labels of success, or preferences."""
    length_share: float = 0.0
    """Share of the variance of labels of success that lengths of episodes explain by themselves."""


class LastFit:
    """From chosen effects to a reward model in the units of the data."""

    def __init__(self, chooser: EffectChooser, chosen: Chosen, rng: np.random.Generator) -> None:
        self.chooser, self.chosen, self.rng = chooser, chosen, rng
        self.data, self.settings, self.progress = chooser.data, chooser.settings, chooser.progress
        self.rules = replace(chooser.rules, noise_floor=self.settings.noise_floor)

    @cached_property
    def found(self) -> tuple[Selection, EffectBank, dict[int, float], int]:
        """The effects of the reward, their columns, the score of each input, steps to climb."""
        self.progress("last fit", 0.0)
        return self._average() if self.chosen.is_undecided else self._refine()

    @property
    def switches(self) -> list[Effect]:
        """The thresholds of the reward."""
        return [effect for effect in self.found[0].effects if is_switch(self.data, effect)]

    def run(self, evidence: Mapping[str, float]) -> ClosedFormFit:
        """The last fit, given the evidence of the moments that were compared."""
        model, hidden = self.make_model(evidence)
        return self._describe(model, evidence, hidden)

    def make_model(self, evidence: Mapping[str, float]) -> tuple[EffectModel, dict[str, float]]:
        """The reward model, and what returns cannot exclude by its name.

        This is all that training needs. The rest of `run` is for findings.
        """
        last, bank, _, climb = self.found
        self.progress("uncertainty", 0.0)
        hidden, share = self._find_hidden(last, bank, evidence)
        model = self._add_uncertainty(self._build_model(last, bank), last, bank, climb)
        usual, ended = self._divide_hidden(hidden, model)
        model = replace(
            _change_unit(model, self.data.unit),
            hidden_variance=usual,
            ended_variance=ended,
            lasting_share=share,
        )
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
        ended = self.data.find_ended()
        if not model.needs_termination or not ended.any() or ended.all():
            return max(float(total.mean()), 0.0), 0.0
        usual = max(float(total[~ended].mean()), 0.0)
        return usual, max(float(total[ended].mean()) - usual, 0.0)

    def _refine(self) -> tuple[Selection, EffectBank, dict[int, float], int]:
        """The chosen effects with a larger basis, corners and jumps."""
        selection = self.chosen.selection
        bank = self.chooser.build_final(selection.effects)
        rough = self._join_rough(bank, selection.effects)
        guesses, noise = selection.start()
        last = bank.fit([e for e in bank.columns if e not in rough], guesses, noise, self.rules)
        if rough:
            last = search_forward(bank, list(bank.columns), last, self.rules)
        last = self._drop_ending(bank, self._add_switches(last, bank))
        losses = search_backward(bank, last, self.rules, -np.inf, self.data.column)[1]
        return last, bank, losses, _CLIMB

    def _add_switches(self, last: Selection, bank: EffectBank) -> Selection:
        """Offer thresholds where amounts are not explained to the last."""
        if not self.settings.switches or explain_left_out(last.fit) >= _SHARP:
            return last
        self.progress("thresholds", 0.0)
        return add_switches(self.data, last, bank, self.rules)

    def _drop_ending(self, bank: EffectBank, last: Selection) -> Selection:
        """Leave terminating out again where it carries no evidence."""
        ended = (self.data.terminated,)
        if ended not in last.effects:
            return last
        place = last.effects.index(ended)
        if measure_losses(last.fit)[place] >= self.rules.drop_loss:
            return last
        guesses, noise = last.start()
        kept = [effect for effect in last.effects if effect != ended]
        return bank.fit(kept, guesses, noise, self.rules)

    def _join_rough(self, bank: EffectBank, effects: Sequence[Effect]) -> list[Effect]:
        """Add the mates with corners and jumps of effects of one or two inputs."""
        if self.settings.rough_basis <= 1:
            return []
        small = [effect for effect in effects if len(effect) < 3]
        rough = [tuple(i + self.data.inputs for i in effect) for effect in small]
        mates = self.data.build_bank(rough, self.settings.rough_basis)
        bank.join(mates)
        return list(mates.columns)

    def _average(self) -> tuple[Selection, EffectBank, dict[int, float], int]:
        """The last fit at variances averaged over models."""
        bank, chosen = self.chosen.bank, self.chosen.selection
        left = [effect for effect in bank.columns if effect not in set(chosen.effects)]
        order = np.argsort(-bank.scan(chosen, left)[0], kind="stable")
        candidates = [*chosen.effects, *(left[k] for k in order)][:_CANDIDATES]
        average = self._average_models(bank, candidates)
        bank = self.chooser.build_final(list(average.variances))
        rough = self._join_rough(bank, list(average.variances))
        average = self._average_models(bank, [*average.variances, *rough])
        # Effects of other inputs are left out: the reward may not depend on what the mask denies.
        likely = set(average.likely())
        effects = [e for e in average.variances if {self.data.column(i) for i in e} <= likely]
        last = bank.fit(effects, average.variances, average.noise, self.rules, iterations=0)
        last = self._add_switches(last, bank)
        return last, bank, {column: average.score(column) for column in likely}, 0

    def _average_models(self, bank: EffectBank, candidates: Sequence[Effect]) -> ModelAverage:
        return average_models(
            {effect: bank.columns[effect] for effect in candidates},
            self.data.target,
            self.data.column,
            len({self.data.column(i) for i in range(self.data.inputs)}),
            sweeps=self.settings.sweeps,
            rng=self.rng,
            progress=partial(self.progress, "average over models"),
        )

    def _build_model(self, last: Selection, bank: EffectBank) -> EffectModel:
        """The model without its uncertainty."""
        data = self.data
        parts = [(part, bank.sizes[e]) for e in last.effects for part in data.expand_effect(e)]
        effects, sizes = [part for part, _ in parts], [size for _, size in parts]
        used = sorted({i for effect in effects for i in effect})
        position = {i: k for k, i in enumerate(used)}
        scales = _repeat_scales(last, bank)
        averages = [np.zeros(0), *(bank.averages[effect] for effect in last.effects)]
        centres = np.concatenate(averages) / scales
        return EffectModel(
            observation_names=data.episodes.observation_names,
            action_names=data.episodes.action_names,
            columns=data.model_columns[used],
            low=data.basis.low[used],
            high=data.basis.high[used],
            tables=data.basis.tables[used][:, :, : max(sizes, default=1)],
            effects=tuple(tuple(position[i] for i in effect) for effect in effects),
            sizes=tuple(sizes),
            constant=data.mean,
            weights=last.fit.weights * scales,
            centres=centres,
            factor=np.zeros((len(centres), 0)),
            residual_variance=0.0,
            constant_variance=0.0,
            noise_variance=last.fit.noise,
            shared_variance=last.fit.noise * data.noise.shared,
            whole_variance=last.fit.noise * data.noise.whole,
            inflation=1.0,
            shares=np.zeros(len(effects)),
        )

    def _add_uncertainty(
        self, model: EffectModel, last: Selection, bank: EffectBank, climb: int
    ) -> EffectModel:
        """Posterior spread, shares and the widening of intervals."""
        half = len(self.data.probe) // 2 or 1
        scales = _repeat_scales(last, bank)
        features = compute_features(self.data, bank, last.effects, self.data.probe)
        factor, left = factor_posterior(
            last.fit, features[:half], features[half:], self.settings.rank
        )
        parts = np.empty((len(features), len(model.effects)))
        for k, (_, place) in enumerate(model.effect_slices()):
            parts[:, k] = features[:, place] @ last.fit.weights[place]
        length = float(self.data.equations.constant @ self.data.equations.constant)
        return replace(
            model,
            factor=factor * scales[:, None],
            residual_variance=left,
            constant_variance=model.noise_variance / length if length else 0.0,
            inflation=measure_inflation(last.fit, self.settings.noise_floor, self.rng, climb),
            shares=measure_shares(model, parts),
        )

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

    def _describe(
        self, model: EffectModel, evidence: Mapping[str, float], hidden: Mapping[str, float]
    ) -> ClosedFormFit:
        data, (last, bank, *_) = self.data, self.found
        fit = last.fit
        state_score, action_score = self.score_inputs()
        used = {data.column(i) for i in data.expand_inputs(last.effects)}
        in_model = [i for i in range(data.inputs) if data.column(i) in used]
        power = max(float((data.target**2).sum()), 1e-300)
        return ClosedFormFit(
            model=model,
            state_to_reward=(state_score > 0).astype(np.int64),
            action_to_reward=(action_score > 0).astype(np.int64),
            state_score=state_score,
            action_score=action_score,
            evidence=fit.evidence,
            null_evidence=self.chosen.null_evidence,
            noise=model.noise_variance,
            return_r2=1 - float(((fit.noise * fit.residual) ** 2).sum()) / power,
            left_out_r2=explain_left_out(fit),
            effective_parameters=float(fit.effective_parameters().sum()),
            pinned=self._measure_pinned(last, bank),
            sum_correlation=correlate_columns(data.sums[:, in_model]),
            correlated_names=tuple(data.names[i] for i in in_model),
            state_at=data.state_at,
            moments=dict(evidence),
            moment_variance=measure_moments(data, last, bank, evidence) * data.unit**2,
            hidden=hidden,
            weights=data.weights,
            is_rounding=not data.varies,
            jumps=data.jumps,
            history=self._find_history(last, bank),
            even_inputs=find_even(data),
        )

    def _measure_pinned(self, last: Selection, bank: EffectBank) -> Array:
        """`measure_pinned` of each effect of the reward, on sampled steps.

        Effects that are one block of columns share the number.
        """
        probe = self.data.probe[:512]
        steps = [compute_features(self.data, bank, [e], probe) for e in last.effects]
        counts = [len(self.data.expand_effect(effect)) for effect in last.effects]
        pinned = measure_pinned(last.fit, range(len(steps)), steps)
        return np.repeat(pinned, np.array(counts, np.int64))


def _repeat_scales(last: Selection, bank: EffectBank) -> Array:
    """(weight,) the scale of each effect's features."""
    scales = np.array([bank.scales[effect] for effect in last.effects], np.float64)
    return np.repeat(scales, np.array(last.fit.sizes, np.int64))


def _change_unit(model: EffectModel, unit: float) -> EffectModel:
    """A model of amounts in some unit as one of plain amounts."""
    return replace(
        model,
        constant=model.constant * unit,
        weights=model.weights * unit,
        factor=model.factor * unit,
        residual_variance=model.residual_variance * unit**2,
        constant_variance=model.constant_variance * unit**2,
        noise_variance=model.noise_variance * unit**2,
        shared_variance=model.shared_variance * unit**2,
        whole_variance=model.whole_variance * unit**2,
    )
