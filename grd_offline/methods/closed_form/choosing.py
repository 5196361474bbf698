"""The choice of effects: all passes over the data before the last fit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grd_offline.core.episodes import EpisodeSet
from grd_offline.methods.closed_form.columns import ColumnSource
from grd_offline.methods.closed_form.evidence import Posterior
from grd_offline.methods.closed_form.inputs import Effect
from grd_offline.methods.closed_form.outliers import (
    FAR_WEIGHT,
    FEWEST_EVENTS,
    find_errors,
    is_better,
    is_hopeful,
    measure_weights,
)
from grd_offline.methods.closed_form.search import (
    EffectBank,
    Selection,
    drop_idle,
    search_backward,
    search_forward,
)
from grd_offline.methods.closed_form.settings import ClosedFormSettings
from grd_offline.methods.closed_form.switches import add_switches, is_switch

Array = NDArray[np.float64]
Progress = Callable[[str, float], None]

_JOINT = {3: (24, 3, 0, -np.inf), 4: (14, 2, 300, 0.2)}
"""For effects of three and of four inputs: the largest number of inputs to search, the features per
input at first, the smallest number of returns, and the smallest fraction of returns that is still
unexplained."""
_JOINT_TRIED = 6
_FEWEST, _MOST = 10, 400  # amounts between which models are averaged
_ROUNDS = 2  # of searches with new weights
_TURNS = 4  # of new weights between two searches
_SETTLED = 0.1  # change of a weight that asks for no further round
_NOISY = 0.98
"""If more than this fraction of left-out amounts is explained, the rest is hardly noise."""


@dataclass(frozen=True, eq=False)
class Chosen:
    """The effects that a search chose, and what it chose them from."""

    selection: Selection
    bank: EffectBank
    null_evidence: float
    """Log evidence of a constant reward."""
    is_undecided: bool
    """Whether amounts are so few or so noisy that other models are about as likely."""


class EffectChooser:
    """The search on the data of one moment of the transitions."""

    def __init__(
        self,
        episodes: EpisodeSet,
        state_at: str,
        settings: ClosedFormSettings,
        rng: np.random.Generator,
        progress: Progress,
        only: Collection[int] | None = None,
        combine: Callable[[NDArray[Any]], NDArray[Any]] = lambda sums: sums,
    ) -> None:
        """If `only` is given, only these columns of [states, actions, terminated] are inputs.

        `combine` is that of `ColumnSource`.
        """
        self.settings, self.progress = settings, progress
        progress("sample of the steps", 0.0)
        self.data = ColumnSource(
            episodes,
            state_at=state_at,
            discount=settings.discount,
            sample=settings.sample,
            sizes=(max(settings.basis, settings.final_basis), settings.rough_basis),
            reach=settings.reach,
            rng=rng,
            only=only,
            combine=combine,
        )
        ended = self.data.terminated
        kept = frozenset() if ended is None else frozenset({(ended,)})
        self.rules = replace(settings.rules(), inputs=max(self.data.inputs, 1), kept=kept)

    def choose(self) -> Chosen:
        """Search for effects; again where some returns turn out to be far from any reward."""
        found = self.search()
        first, start = found, self.data.weights
        sharp = self._sharpen(found)
        before = self._find_errors(sharp)
        weighed = sharp
        for _ in range(_ROUNDS):
            if not self._weigh(weighed):
                break
            found = self.search()
            weighed = found.selection
            if not is_hopeful(self._find_errors(weighed), before):
                break
        if found is first:
            return first
        if sharp is not first.selection:
            weighed = self._sharpen(found)
        if not is_better(self._find_errors(weighed), before):
            self.data.reweight(start)
            return first
        return found

    def settle_noise(self, found: Chosen) -> Chosen:
        """Search again where the noise turns out to be of another kind than noise of steps."""
        if explain_left_out(found.selection.fit) >= _NOISY:
            return found
        noise = self.data.find_noise(self._find_errors(found.selection))
        if noise == self.data.noise:
            return found
        weights = self.data.weights
        self.data.take_noise(noise)
        return self.choose_again(weights)

    def choose_again(self, weights: Array) -> Chosen:
        """Search for effects with each return counting so much."""
        self.data.reweight(weights)
        return self.search()

    def _sharpen(self, found: Chosen) -> Selection:
        """The effects found, or switches where these explain returns that are far from them.

        A return is far from any reward only if no threshold predicts it when it is left out.
        """
        plain = self._find_errors(found.selection)
        weights = measure_weights(plain, self._measure_near())
        if weights is None or (weights < FAR_WEIGHT).sum() < FEWEST_EVENTS:
            return found.selection
        self.progress("thresholds", 0.0)
        bank = EffectBank({}, self.data.target)
        bank.join(found.bank)
        sharp = add_switches(self.data, found.selection, bank, self.rules)
        return sharp if is_better(self._find_errors(sharp), plain) else found.selection

    def _weigh(self, selection: Selection) -> bool:
        """Weigh the returns by their errors, the effects held; whether any weight has changed."""
        start = self.data.weights
        for _ in range(_TURNS):
            weights = measure_weights(self._find_errors(selection), self._measure_near())
            if weights is None or np.abs(weights - self.data.weights).max() < _SETTLED:
                break
            self.data.reweight(weights)
            guesses, noise = selection.start()
            small = [e for e in selection.effects if len(e) < 3]
            switches = [e for e in small if is_switch(self.data, e)]
            bank = self.data.build_bank(
                [e for e in small if e not in switches], self.settings.basis
            )
            bank.join(self.data.build_bank(switches, 1))
            selection = bank.fit(list(bank.columns), guesses, noise, self.rules)
        return bool(np.abs(self.data.weights - start).max() >= _SETTLED)

    def measure(self, effects: Sequence[Effect], start: Selection) -> float:
        """Log evidence of some effects with the larger basis, and of terminating."""
        bank = self.build_final(effects)
        rules = replace(self.rules, noise_floor=self.settings.noise_floor)
        guesses, noise = start.start()
        return bank.fit(list(bank.columns), guesses, noise, rules).fit.evidence

    def measure_switches(
        self, effects: Sequence[Effect], switches: Sequence[Effect], start: Selection
    ) -> float:
        """Measure the log evidence with these switches, and with others if they gain evidence."""
        bank = self.build_final(effects)
        bank.join(self.data.build_bank(switches, 1))
        rules = replace(self.rules, noise_floor=self.settings.noise_floor)
        guesses, noise = start.start()
        fitted = drop_idle(bank, bank.fit(list(bank.columns), guesses, noise, rules), rules)
        return add_switches(self.data, fitted, bank, rules).fit.evidence

    def build_final(self, effects: Sequence[Effect]) -> EffectBank:
        """Columns of these effects with the larger basis; terminating is always among them."""
        ended = self.data.terminated
        small = [effect for effect in effects if len(effect) < 3]
        if ended is not None and (ended,) not in small:
            small.append((ended,))
        bank = self.data.build_bank(small, self.settings.final_basis)
        for order in (3, 4):
            joint = [effect for effect in effects if len(effect) == order]
            bank.join(self.data.build_bank(joint, self.settings.basis_of(order)))
        return bank

    def _find_errors(self, selection: Selection) -> Array:
        """(row,) errors of amounts that are left out in turn, as if all counted alike."""
        errors = find_errors(selection.fit, self.data.equations)
        return np.asarray(errors * self.data.unit / np.sqrt(self.data.weights))

    def _measure_near(self) -> float:
        """The size of errors that the search takes for noise in any case."""
        return float(np.sqrt(self.settings.search_floor)) * self.data.measure_size()

    def search(self) -> Chosen:
        """Search for effects, every amount counting as it does now."""
        inputs = list(range(self.data.inputs))
        if not self.data.varies or len(self.data.target) < 2:
            inputs = []
        size = self.find_search_size(len(inputs))
        chosen, bank = self._search(inputs, size)
        if size < self.settings.basis and chosen.inputs:
            inputs = self.data.expand_inputs(chosen.effects)
            chosen, bank = self._search(inputs, self.settings.basis)
        null = bank.fit([], {}, 1.0, self.rules).fit.evidence
        for order in (3, 4):
            chosen = self._search_joint(chosen, bank, order)
        if self._is_undecided(chosen.fit):
            return Chosen(chosen, bank, null, True)
        threshold = self.settings.find_input_loss(chosen.fit.evidence - null)
        self.progress("removing inputs", 0.0)
        chosen, _ = search_backward(bank, chosen, self.rules, threshold, self.data.column)
        return Chosen(chosen, bank, null, False)

    def find_search_size(self, count: int) -> int:
        """Features per input that candidate pairs of this many inputs leave memory for."""
        pairs = max(1, count * (count - 1) // 2)
        room = self.settings.memory / (4.0 * len(self.data.equations.target) * pairs)
        return int(np.clip(np.sqrt(room), 2, self.settings.basis))

    def _search(self, inputs: Sequence[int], size: int) -> tuple[Selection, EffectBank]:
        """Forward from the main effects, over all effects of up to two inputs."""
        self.progress("sums over episodes", 0.0)
        mains = [(i,) for i in inputs]
        # Main effects are cheap: what a short basis leaves of them would pass for interactions.
        room = len(self.data.target) // (2 * max(len(inputs), 1))
        main_size = max(size, min(self.settings.final_basis, room))
        bank = self.data.build_bank(mains, main_size)
        self.progress("main effects", 0.0)
        chosen = bank.fit(list(bank.columns), {}, 1.0, self.rules)
        chosen = drop_idle(bank, chosen, self.rules)
        report = partial(self.progress, "pairs")
        if self.settings.order > 1:
            is_small = len(inputs) <= self.settings.most_paired
            pool = inputs if is_small else self.data.expand_inputs(chosen.effects)
            pairs = list(combinations(self.data.find_joint(pool), 2))
            bank.join(self.data.build_bank(pairs, size))
        chosen = search_forward(bank, list(bank.columns), chosen, self.rules, report)
        return chosen, bank

    def _search_joint(self, chosen: Selection, bank: EffectBank, order: int) -> Selection:
        """Offer effects of three or four inputs: of all inputs if few, else of those chosen.

        Not where the noise is at its floor already: nothing is left for them to explain.
        """
        most, first_size, fewest, unexplained = _JOINT[order]
        is_settled = chosen.fit.noise <= 1.01 * self.rules.noise_floor
        if self.settings.order < order or is_settled or len(self.data.target) < fewest:
            return chosen
        if explain_left_out(chosen.fit) > 1 - unexplained:
            return chosen
        pool = sorted({i for effect in bank.columns for i in effect})
        if len(pool) > most:
            pool = list(chosen.inputs[:most])
        candidates = list(combinations(self.data.find_joint(pool), order))
        if not candidates:
            return chosen
        self.progress(f"effects of {order} inputs", 0.0)
        size = self.settings.basis_of(order)
        small = self.data.build_bank(candidates, min(size, first_size))
        gains, _ = small.scan(chosen, candidates)
        ranked = np.argsort(-gains, kind="stable")[:_JOINT_TRIED]
        best = [candidates[k] for k in ranked if gains[k] > self.settings.joint_gain]
        if not best:
            return chosen
        bank.join(self.data.build_bank(best, size))
        return search_forward(bank, list(bank.columns), chosen, self.rules)

    def _is_undecided(self, fit: Posterior) -> bool:
        rows = len(fit.target)
        if not fit.sizes or not _FEWEST <= rows <= _MOST:
            return False
        return rows < self.settings.few or explain_left_out(fit) < self.settings.decided


def explain_left_out(fit: Posterior) -> float:
    """Explained share of the amounts' variance, each left out in turn at the same variances."""
    errors = fit.residual / np.maximum(fit.inverse_diagonal(), 1e-300)
    return 1 - float((errors**2).sum()) / max(float((fit.target**2).sum()), 1e-300)
