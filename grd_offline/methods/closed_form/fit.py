"""Return decomposition in closed form: the reward as a sum of effects, found by their evidence.

The route of the paper's identifiability proof with functions for its fixed basis. A delivered
amount is linear in the weights of g, since it is a sum of g over its steps:

    R_j = sum_{t in segment j} gamma^t g(s_t, a_t) + noise,   g = c + sum_p phi_p w_p

Each effect (an input, a pair, a triple) is a Gaussian process with a variance of its own.
`inputs` sums features over segments, `evidence` finds the variances, and `search` decides which
effects and inputs stay. Where amounts are too few or too noisy for that, `average` averages over
the models that they leave possible.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from grd_offline.episodes import EpisodeSet
from grd_offline.methods.closed_form.average import ModelAverage, average_models
from grd_offline.methods.closed_form.columns import ColumnSource
from grd_offline.methods.closed_form.evidence import Posterior
from grd_offline.methods.closed_form.inputs import Effect
from grd_offline.methods.closed_form.search import (
    EffectBank,
    Selection,
    drop_idle,
    list_candidates,
    search_backward,
    search_forward,
)
from grd_offline.methods.closed_form.settings import ClosedFormSettings
from grd_offline.methods.closed_form.uncertainty import (
    correlate_columns,
    factor_posterior,
    measure_inflation,
    measure_pinned,
)
from grd_offline.rewards.effects import EffectModel, multiply_features

Array = NDArray[np.float64]
Progress = Callable[[str, float], None]

_TRIPLE_INPUTS = 24
_TRIPLES = 6
_CLIMB = 10  # steps by which variances move again without the rows that are left out
_FEWEST, _MOST = 10, 400  # amounts between which models are averaged
_CANDIDATES = 120


@dataclass(frozen=True, eq=False)
class ClosedFormFit:
    """What a fit found, and how well the data pin it down."""

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
    """The same for a constant reward."""
    noise: float
    """Noise variance per step, in the units of the data."""
    return_r2: float
    """Explained share of the amounts' variance, on the data of the fit."""
    left_out_r2: float
    """The same with each amount left out in turn, variances held."""
    effective_parameters: float
    """Weights that the data determine, in all."""
    pinned: Array
    """(effect,) 1 - posterior / prior variance per step: 1 is known from data, 0 from the prior."""
    sum_correlation: Array
    """(input, input) correlation of the sums over segments of the inputs in the model."""
    correlated_columns: NDArray[np.int64]
    """(input,) their columns in [observations, actions, next observations]."""


def fit_closed_form(
    episodes: EpisodeSet,
    settings: ClosedFormSettings,
    rng: np.random.Generator,
    progress: Progress = lambda stage, share: None,
) -> ClosedFormFit:
    """Find effects, variances and weights of the reward behind the delivered amounts."""
    return _Fitter(episodes, settings, rng, progress).run()


def _leave_out(fit: Posterior) -> float:
    """Explained share of the amounts' variance, each left out in turn at the same variances."""
    errors = fit.residual / np.maximum(fit.inverse_diagonal(), 1e-300)
    return 1 - float((errors**2).sum()) / max(float((fit.target**2).sum()), 1e-300)


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
    )


class _Fitter:
    """One fit: the passes over the data in order."""

    def __init__(
        self,
        episodes: EpisodeSet,
        settings: ClosedFormSettings,
        rng: np.random.Generator,
        progress: Progress,
    ) -> None:
        self.episodes, self.settings, self.progress = episodes, settings, progress
        self.rng = rng
        self.rules = settings.rules()
        progress("sample", 0.0)
        self.data = ColumnSource(
            episodes,
            next_state=settings.next_state,
            discount=settings.discount,
            sample=settings.sample,
            sizes=(max(settings.basis, settings.final_basis), settings.rough_basis),
            rng=rng,
        )

    def run(self) -> ClosedFormFit:
        inputs = list(range(self.data.inputs))
        if self.data.scale == 0.0 or len(self.data.target) < 2:
            inputs = []
        size = self._search_size(len(inputs))
        chosen, bank = self._search(inputs, size)
        kept = [i for i in chosen.inputs if i < self.data.inputs]
        if size < self.settings.basis and kept:
            chosen, bank = self._search(kept, self.settings.basis)
        null = bank.fit([], {}, 1.0, self.rules)
        chosen = self._search_triples(chosen, bank)
        gain = chosen.fit.evidence - null.fit.evidence
        share = self.settings.input_share * gain
        threshold = min(20.0, max(self.settings.input_loss, share))
        if self._is_undecided(chosen.fit):
            return self._finish_average(bank, chosen, null.fit.evidence)
        self.progress("backward", 0.0)
        chosen, _ = search_backward(bank, chosen, self.rules, threshold, self.data.column)
        return self._finish(chosen, null.fit.evidence)

    def _search_size(self, count: int) -> int:
        """Features per input that candidate pairs of this many inputs leave memory for."""
        pairs = max(1, count * (count - 1) // 2)
        room = self.settings.memory / (4.0 * len(self.data.equations.target) * pairs)
        return int(np.clip(np.sqrt(room), 2, self.settings.basis))

    def _search(self, inputs: Sequence[int], size: int) -> tuple[Selection, EffectBank]:
        """Forward from the main effects, over all effects of up to two inputs."""
        self.progress("sums", 0.0)
        every = list_candidates(inputs, min(self.settings.order, 2))
        # Main effects are cheap: what a short basis leaves of them would pass for interactions.
        room = len(self.data.target) // (2 * max(len(inputs), 1))
        main_size = max(size, min(self.settings.final_basis, room))
        bank = self.data.build_bank(every[: len(inputs)], main_size)
        bank.join(self.data.build_bank(every[len(inputs) :], size))
        bank.join(self._potentials(inputs, size))
        effects = list(bank.columns)
        self.progress("main effects", 0.0)
        mains = [effect for effect in effects if len(effect) == 1]
        chosen = bank.fit(mains, {}, 1.0, self.rules)
        chosen = drop_idle(bank, chosen, self.rules)
        report = partial(self.progress, "pairs")
        chosen = search_forward(bank, effects, chosen, self.rules, report)
        return chosen, bank

    def _potentials(self, inputs: Sequence[int], size: int) -> EffectBank:
        """Columns of potentials, where they are wanted.

        Where the next state is an input, effects of s and s' express them already.
        """
        if self.settings.next_state or not self.settings.potentials:
            return EffectBank({}, self.data.target)
        return self.data.build_potentials(inputs, size)

    def _search_triples(self, chosen: Selection, bank: EffectBank) -> Selection:
        """Offer effects of three inputs: of all inputs if they are few, else of those chosen.

        Not where the noise is at its floor already: nothing is left for them to explain.
        """
        size = self.settings.triple_basis
        if chosen.fit.noise <= 1.01 * self.rules.noise_floor:
            return chosen
        pool = sorted({i for effect in bank.columns for i in effect if i < self.data.inputs})
        if len(pool) > _TRIPLE_INPUTS:
            pool = [i for i in chosen.inputs if i < self.data.inputs][:_TRIPLE_INPUTS]
        triples = list(combinations(pool, 3))
        if not triples or self.settings.order < 3:
            return chosen
        self.progress("triples", 0.0)
        small = self.data.build_bank(triples, min(size, 3))
        gains, _ = small.scan(chosen, triples)
        order = np.argsort(-gains, kind="stable")[:_TRIPLES]
        best = [triples[k] for k in order if gains[k] > self.settings.triple_gain]
        if not best:
            return chosen
        bank.join(self.data.build_bank(best, size))
        return search_forward(bank, list(bank.columns), chosen, self.rules)

    def _is_undecided(self, fit: Posterior) -> bool:
        """Whether amounts are so few or so noisy that other models are about as likely."""
        rows = len(fit.target)
        if not fit.sizes or not _FEWEST <= rows <= _MOST:
            return False
        return rows < self.settings.few or _leave_out(fit) < self.settings.decided

    def _finish_average(
        self, bank: EffectBank, chosen: Selection, null_evidence: float
    ) -> ClosedFormFit:
        """The last fit at variances averaged over models, and what is said about it."""
        left = [effect for effect in bank.columns if effect not in set(chosen.effects)]
        order = np.argsort(-bank.scan(chosen, left)[0], kind="stable")
        candidates = [*chosen.effects, *(left[k] for k in order)][:_CANDIDATES]
        average = self._average(bank, candidates)
        bank, rough = self._build_final(list(average.variances))
        average = self._average(bank, [*average.variances, *rough])
        # Effects of other inputs are left out: the reward may not depend on what the mask denies.
        likely = set(average.likely())
        effects = [e for e in average.variances if {self.data.column(i) for i in e} <= likely]
        rules = replace(self.rules, noise_floor=self.settings.noise_floor)
        last = bank.fit(effects, average.variances, average.noise, rules, iterations=0)
        scores = {column: average.score(column) for column in likely}
        self.progress("uncertainty", 0.0)
        model = self._model(last, bank, climb=0)
        return self._report(last, bank, model, scores, null_evidence)

    def _average(self, bank: EffectBank, candidates: Sequence[Effect]) -> ModelAverage:
        """`average_models` of these effects."""
        return average_models(
            {effect: bank.columns[effect] for effect in candidates},
            self.data.target,
            self.data.column,
            len({self.data.column(i) for i in range(self.data.inputs)}),
            unit=self.data.scale**2,
            sweeps=self.settings.sweeps,
            rng=self.rng,
            progress=partial(self.progress, "average"),
        )

    def _build_final(self, effects: Sequence[Effect]) -> tuple[EffectBank, list[Effect]]:
        """Columns of these effects with the larger basis, and their rough mates'."""
        small = [e for e in effects if len(e) < 3 and e[0] < self.data.inputs]
        bank = self.data.build_bank(small, self.settings.final_basis)
        potentials = [e[0] - 2 * self.data.inputs for e in effects if e[0] >= 2 * self.data.inputs]
        bank.join(self._potentials(potentials, self.settings.final_basis))
        triples = [effect for effect in effects if len(effect) == 3]
        bank.join(self.data.build_bank(triples, self.settings.triple_basis))
        rough = [tuple(i + self.data.inputs for i in effect) for effect in small]
        if self.settings.rough_basis <= 1:
            return bank, []
        bank.join(self.data.build_bank(rough, self.settings.rough_basis))
        return bank, rough

    def _finish(self, chosen: Selection, null_evidence: float) -> ClosedFormFit:
        """The last fit, with a larger basis, and what is said about it."""
        self.progress("final", 0.0)
        bank, rough = self._build_final(chosen.effects)
        guesses, noise = chosen.start()
        rules = replace(self.rules, noise_floor=self.settings.noise_floor)
        last = bank.fit(chosen.effects, guesses, noise, rules)
        if rough:
            last = search_forward(bank, list(bank.columns), last, rules)
        losses = search_backward(bank, last, rules, -np.inf, self.data.column)[1]
        self.progress("uncertainty", 0.0)
        model = self._model(last, bank, climb=_CLIMB)
        return self._report(last, bank, model, losses, null_evidence)

    def _model(self, last: Selection, bank: EffectBank, *, climb: int) -> EffectModel:
        """The fit in the units of the data."""
        blocks = [effect for effect in last.effects if self.data.column(effect[0]) >= 0]
        parts = [(part, bank.sizes[e]) for e in blocks for part in self.data.expand_effect(e)]
        effects, sizes = [part for part, _ in parts], [size for _, size in parts]
        used = sorted({i for effect in effects for i in effect})
        position = {i: k for k, i in enumerate(used)}
        widths = [len(bank.averages[effect]) for effect in blocks]
        in_reward = [self.data.column(effect[0]) >= 0 for effect in last.effects]
        mine = np.repeat(np.array(in_reward, np.bool_), np.array(last.fit.sizes, np.int64))
        units = np.array([bank.scales[effect] for effect in blocks], np.float64)
        scales = np.repeat(units, np.array(widths, np.int64))
        averages = [bank.averages[effect] for effect in blocks]
        centres = np.concatenate(averages) * self.data.scale / scales if averages else np.zeros(0)
        model = EffectModel(
            observation_names=self.episodes.observation_names,
            action_names=self.episodes.action_names,
            columns=self.data.basis.columns[used],
            low=self.data.basis.low[used],
            high=self.data.basis.high[used],
            tables=self.data.basis.tables[used][:, :, : max(sizes, default=1)],
            effects=tuple(tuple(position[i] for i in effect) for effect in effects),
            sizes=tuple(sizes),
            constant=self.data.mean,
            weights=last.fit.weights[mine] * scales,
            centres=centres,
            factor=np.zeros((len(centres), 0)),
            residual_variance=0.0,
            constant_variance=0.0,
            noise_variance=last.fit.noise * self.data.scale**2,
            inflation=1.0,
            shares=np.zeros(len(effects)),
        )
        return self._add_uncertainty(model, last.fit, mine, scales, climb)

    def _add_uncertainty(
        self,
        model: EffectModel,
        fit: Posterior,
        mine: NDArray[np.bool_],
        scales: Array,
        climb: int,
    ) -> EffectModel:
        """Posterior spread, shares and the widening of intervals."""
        half = len(self.data.probe) // 2 or 1
        inputs = self.data.probe[:, model.columns]
        features = model.expand(inputs) - model.centres
        padded = np.zeros((len(features), len(mine)))
        padded[:, mine] = features * scales
        factor, left = factor_posterior(fit, padded[:half], padded[half:], self.settings.rank)
        rewards = features @ model.weights
        variance = float(rewards.var())
        shares = [
            float(np.cov(features[:, part] @ model.weights[part], rewards, ddof=0)[0, 1])
            for _, part in model.effect_slices()
        ]
        length = float(self.data.equations.constant @ self.data.equations.constant)
        return replace(
            model,
            factor=factor[mine] * scales[:, None],
            residual_variance=left,
            constant_variance=model.noise_variance / length,
            inflation=measure_inflation(fit, self.settings.noise_floor, self.rng, climb),
            shares=np.array(shares) / (variance or 1.0),
        )

    def _report(
        self,
        last: Selection,
        bank: EffectBank,
        model: EffectModel,
        losses: dict[int, float],
        null_evidence: float,
    ) -> ClosedFormFit:
        states, actions = self.episodes.state_size, self.episodes.action_size
        model = _change_unit(model, self.data.unit)
        score = np.zeros(states + actions)
        for column, loss in losses.items():
            score[column] = max(loss, 1e-12)
        state_score, action_score = score[:states], score[states:]
        fit = last.fit
        used = {int(self.data.column(i)) for i in last.inputs} - {-1}
        in_model = [i for i in range(self.data.inputs) if self.data.column(i) in used]
        power = max(float((self.data.target**2).sum()), 1e-300)
        return ClosedFormFit(
            model=model,
            state_to_reward=(state_score > 0).astype(np.int64),
            action_to_reward=(action_score > 0).astype(np.int64),
            state_score=state_score,
            action_score=action_score,
            evidence=fit.evidence,
            null_evidence=null_evidence,
            noise=model.noise_variance,
            return_r2=1 - float(((fit.noise * fit.residual) ** 2).sum()) / power,
            left_out_r2=_leave_out(fit),
            effective_parameters=float(fit.effective_parameters().sum()),
            pinned=self._pinned(last, bank),
            sum_correlation=correlate_columns(self.data.sums[:, in_model]),
            correlated_columns=self.data.basis.columns[in_model],
        )

    def _pinned(self, last: Selection, bank: EffectBank) -> Array:
        """`measure_pinned` of each effect of the reward, on sampled steps.

        A state's and its next value's main effect are one block of columns, and share the number.
        """
        probe = self.data.probe[:512]
        steps, counts = [], []
        for effect in last.effects:
            if self.data.column(effect[0]) < 0:
                continue
            size = bank.sizes[effect]
            parts = [
                multiply_features(np.moveaxis(self.data.basis.evaluate(probe, part, size), 1, 0))
                for part in self.data.expand_effect(effect)
            ]
            steps.append(np.hstack(parts) * bank.scales[effect])
            counts.append(len(parts))
        keep = [k for k, effect in enumerate(last.effects) if self.data.column(effect[0]) >= 0]
        return np.repeat(measure_pinned(last.fit, keep, steps), np.array(counts, np.int64))
