"""The choice of effects: all passes over the data before the last fit.

The last to be offered are switches: rewards that jump where an input passes a threshold, or two
inputs pass theirs at once.

Smooth effects need many returns to bend as sharply as a threshold, and are worst where it is rarely
passed. A switch is one number, 1{x > c} or 1{x > c} 1{y > d}, with the threshold c (and d) that
gains most evidence: first among quantiles of the data, then twice between the neighbours of the
best. The best of many thresholds gains the logarithm of their number by chance, so that is its
price.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from grd_offline.additive.bars import BARS
from grd_offline.additive.basis import GRID, Effect, InputBasis
from grd_offline.additive.equations import ColumnSource
from grd_offline.additive.search import (
    NOWHERE,
    EffectBank,
    Posterior,
    SearchRules,
    Selection,
    drop_idle,
    is_better,
    measure_gains,
    measure_weights,
    search_backward,
    search_forward,
)
from grd_offline.additive.settings import ClosedFormSettings
from grd_offline.core.episodes import EpisodeSet
from grd_offline.core.observer import Progress
from grd_offline.core.typing import Array, BoolArray, IntArray

_JOINT = {3: (24, 3, 0, -np.inf), 4: (14, 2, 300, 0.2)}
"""For effects of three and of four inputs: the largest number of inputs to search, the features per
input at first, the smallest number of returns, and the smallest fraction of returns that is still
unexplained."""


@dataclass(frozen=True, eq=False)
class Chosen:
    """The effects that a search chose, and what it chose them from."""

    selection: Selection
    bank: EffectBank
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
        **more: Any,
    ) -> None:
        """`more` are further arguments of `ColumnSource`."""
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
            **more,
        )
        ended = self.data.terminated
        kept = frozenset() if ended is None else frozenset({(ended,)})
        self.rules = replace(settings.rules(), inputs=max(self.data.inputs, 1), kept=kept)

    def choose(self) -> Chosen:
        """Search for effects; again where some returns turn out to be far from any reward."""
        first = found = self.search()
        start, sharp = self.data.weights, self._sharpen(first)
        before, weighed = self._find_errors(sharp), sharp
        for _ in range(BARS.weight_rounds):
            if not self._weigh(weighed):
                break
            found = self.search()
            weighed = found.selection
            if not is_better(self._find_errors(weighed), before, BARS.hopeful):
                break
        if found is first:
            return first
        if sharp is not first.selection:
            weighed = self._sharpen(found)
        if not is_better(self._find_errors(weighed), before, BARS.better):
            self.data.reweight(start)
            return first
        return found

    def settle_noise(self, found: Chosen) -> Chosen:
        """Search again where the noise turns out to be of another kind than noise of steps."""
        if explain_left_out(found.selection.fit) >= BARS.noisy:
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
        if weights is None or (weights < BARS.far_weight).sum() < BARS.fewest_events:
            return found.selection
        self.progress("thresholds", 0.0)
        bank = EffectBank(found.bank, self.data.target)
        sharp = add_switches(self.data, found.selection, bank, self.rules)
        is_sharp = is_better(self._find_errors(sharp), plain, BARS.better)
        return sharp if is_sharp else found.selection

    def _weigh(self, selection: Selection) -> bool:
        """Weigh the returns by their errors, the effects held; whether any weight has changed."""
        start = self.data.weights
        for _ in range(BARS.weight_turns):
            weights = measure_weights(self._find_errors(selection), self._measure_near())
            if weights is None or np.abs(weights - self.data.weights).max() < BARS.settled_weight:
                break
            self.data.reweight(weights)
            small = [e for e in selection.effects if len(e) < 3]
            switches = [e for e in small if is_switch(self.data, e)]
            smooth = [e for e in small if e not in switches]
            bank = self.data.build_bank(smooth, self.settings.basis)
            bank.update(self.data.build_bank(switches, 1))
            selection = bank.fit(list(bank), selection.start, self.rules)
        return bool(np.abs(self.data.weights - start).max() >= BARS.settled_weight)

    def measure(
        self, effects: Sequence[Effect], start: Selection, switches: Sequence[Effect] | None = None
    ) -> float:
        """Log evidence of some effects with the larger basis, and of terminating.

        Given `switches`, it is that with these, and with others if they gain evidence.
        """
        bank = self.build_final(effects)
        bank.update(self.data.build_bank(switches or (), 1))
        rules = replace(self.rules, noise_floor=self.settings.noise_floor)
        fitted = bank.fit(list(bank), start.start, rules)
        if switches is not None:
            fitted = add_switches(self.data, drop_idle(bank, fitted, rules), bank, rules)
        return fitted.fit.evidence

    def build_final(self, effects: Sequence[Effect]) -> EffectBank:
        """Columns of these effects with the larger basis; terminating is always among them."""
        ended = self.data.terminated
        small = [effect for effect in effects if len(effect) < 3]
        if ended is not None and (ended,) not in small:
            small.append((ended,))
        bank = self.data.build_bank(small, self.settings.final_basis)
        for order in (3, 4):
            joint = [effect for effect in effects if len(effect) == order]
            bank.update(self.data.build_bank(joint, self.settings.basis_of(order)))
        return bank

    def _find_errors(self, selection: Selection) -> Array:
        """(row,) errors of amounts that are left out in turn, as if all counted alike."""
        errors = self.data.equations.find_errors(selection.fit)
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
        null = bank.fit([], NOWHERE, self.rules).fit.evidence
        for order in (3, 4):
            chosen = self._search_joint(chosen, bank, order)
        if self._is_undecided(chosen.fit):
            return Chosen(chosen, bank, True)
        threshold = self.settings.find_input_loss(chosen.fit.evidence - null)
        self.progress("removing inputs", 0.0)
        chosen, _ = search_backward(bank, chosen, self.rules, threshold, self.data.column)
        return Chosen(chosen, bank, False)

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
        chosen = bank.fit(list(bank), NOWHERE, self.rules)
        chosen = drop_idle(bank, chosen, self.rules)
        report = partial(self.progress, "pairs")
        if self.settings.order > 1:
            is_small = len(inputs) <= self.settings.most_paired
            pool = inputs if is_small else self.data.expand_inputs(chosen.effects)
            pairs = list(combinations(self.data.find_joint(pool), 2))
            bank.update(self.data.build_bank(pairs, size))
        chosen = search_forward(bank, list(bank), chosen, self.rules, report)
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
        pool = sorted({i for effect in bank for i in effect})
        if len(pool) > most:
            pool = list(chosen.inputs[:most])
        candidates = list(combinations(self.data.find_joint(pool), order))
        if not candidates:
            return chosen
        self.progress(f"effects of {order} inputs", 0.0)
        size = self.settings.basis_of(order)
        small = self.data.build_bank(candidates, min(size, first_size))
        gains, _ = small.scan(chosen, candidates)
        ranked = np.argsort(-gains, kind="stable")[: BARS.joint_tried]
        best = [candidates[k] for k in ranked if gains[k] > self.settings.joint_gain]
        if not best:
            return chosen
        bank.update(self.data.build_bank(best, size))
        return search_forward(bank, list(bank), chosen, self.rules)

    def _is_undecided(self, fit: Posterior) -> bool:
        rows = len(fit.target)
        if not fit.sizes or not BARS.fewest_averaged <= rows <= BARS.most_averaged:
            return False
        return rows < self.settings.few or explain_left_out(fit) < self.settings.decided


def explain_left_out(fit: Posterior) -> float:
    """Explained share of the amounts' variance, each left out in turn at the same variances."""
    errors = fit.residual / np.maximum(fit.inverse_diagonal(), 1e-300)
    return 1 - float((errors**2).sum()) / max(float((fit.target**2).sum()), 1e-300)


Cut = tuple[int, float]
"""An input and a threshold."""
Columns = tuple[Array, BoolArray]

_TAIL = (0.0, 0.002, 0.005, 0.01, 0.02, 0.04)
_QUANTILES = np.array([*_TAIL, *np.arange(0.08, 0.93, 0.06), *(1 - q for q in reversed(_TAIL))])
_LARGEST = 30_000_000  # entries of columns that are kept
_BLOCK = 20_000  # steps that are counted at once


def add_switches(
    data: ColumnSource, chosen: Selection, bank: EffectBank, rules: SearchRules
) -> Selection:
    """Put switches in the place of effects of the same inputs, while they gain evidence.

    A reward of switches alone competes too: where a smooth model stands in for them, some of its
    effects are false, and stay in the way.
    """
    thresholds = _Thresholds(data, bank, rules, _list_inputs(data, chosen))
    grown = thresholds.grow(chosen)
    alone = thresholds.grow(bank.fit([], NOWHERE, rules))
    return max(grown, alone, key=lambda one: one.fit.evidence)


class _Thresholds:
    """Columns of all switches at first thresholds, summed once for all models they are tried in."""

    def __init__(
        self, data: ColumnSource, bank: EffectBank, rules: SearchRules, inputs: Effect
    ) -> None:
        self.data, self.bank, self.rules, self.inputs = data, bank, rules, inputs
        values = data.probe[:, data.basis.columns[list(inputs)]].T
        cuts = (np.unique(np.quantile(one, _QUANTILES)) for one in values)
        self.cuts = dict(zip(inputs, cuts, strict=True))
        self.groups: list[Effect] = [(i,) for i in inputs] + list(combinations(inputs, 2))
        is_small = data.episodes.total_steps * len(inputs) <= _LARGEST
        self._blocks = list(_read_blocks(data, inputs)) if is_small else None
        self._sums: dict[Effect, Columns] = {}
        self._room = _LARGEST

    def grow(self, chosen: Selection) -> Selection:
        """Add switches to a model while they gain evidence."""
        data, bank, rules = self.data, self.bank, self.rules
        for _ in range(BARS.most_switches):
            candidates, tried = self._find_candidates(chosen)
            effects = [tuple(_add_input(data, *cut) for cut in cuts) for _, cuts in candidates]
            bank.update(data.build_bank(effects, 1))
            fitted = []
            for (base, _), effect in zip(candidates, effects, strict=True):
                grown = bank.fit([*base.effects, effect], base.start, rules)
                fitted.append(drop_idle(bank, grown, rules))
            best = max(fitted, key=lambda one: one.fit.evidence, default=chosen)
            if best.fit.evidence < chosen.fit.evidence + BARS.switch_gain + math.log(tried):
                break
            chosen = best
        return chosen

    def _find_candidates(self, chosen: Selection) -> tuple[list[tuple[Selection, list[Cut]]], int]:
        """The most promising switches, each with the model in which it stands for other effects.

        Also how many thresholds were tried. Gains are measured with the noise held, so they only
        rank.
        """
        bases = {group: self._leave_group(chosen, group) for group in self.groups}
        gains = {group: self._scan(bases[group].fit, group) for group in self.groups}
        worth = {group: bases[group].fit.evidence + float(gains[group].max()) for group in gains}
        found = []
        for group in sorted(gains, key=worth.__getitem__, reverse=True)[: BARS.switch_tried]:
            where = np.unravel_index(int(gains[group].argmax()), gains[group].shape)
            finer = self.cuts
            for _ in range(BARS.cut_rounds):
                finer = {i: _refine(finer[i], int(k)) for i, k in zip(group, where, strict=True)}
                again = _gain(bases[group].fit, self._sum(group, finer), finer)
                where = np.unravel_index(int(again.argmax()), again.shape)
            sharp = [(i, float(finer[i][k])) for i, k in zip(group, where, strict=True)]
            found.append((bases[group], sharp))
        return found, max(1, sum(gain.size for gain in gains.values()))

    def _leave_group(self, chosen: Selection, group: Effect) -> Selection:
        """The model without its effects of these inputs alone, but for switches."""
        mine, column = {self.data.column(i) for i in group}, self.data.column
        kept = [
            effect
            for effect in chosen.effects
            if self.bank[effect].size == 1 or not {column(i) for i in effect} <= mine
        ]
        return self.bank.fit(kept, chosen.start, self.rules, iterations=2)

    def _scan(self, fit: Posterior, group: Effect) -> Array:
        """(threshold of each input) the evidence that each switch of these inputs would gain."""
        sums = self._sums.get(group)
        if sums is None:
            sums = self._sum(group, self.cuts)
            if sums[0].size <= self._room:
                self._sums[group] = sums
                self._room -= sums[0].size
        return _gain(fit, sums, {i: self.cuts[i] for i in group})

    def _sum(self, group: Effect, cuts: dict[int, Array]) -> Columns:
        """(row, switch) columns of unit size, free of the constant, and whether each one varies."""
        blocks = _read_blocks(self.data, self.inputs) if self._blocks is None else self._blocks
        places = {self.inputs.index(i): cuts[i] for i in group}
        sums = np.concatenate([block.sum_above(places) for block in blocks])
        columns, sizes = self.data.normalise(sums)
        return columns, sizes > 1e-9


@dataclass(frozen=True)
class _Block:
    """The steps of some rows that follow each other."""

    row: IntArray
    """(step,) the row of each step, counted from the first of the block."""
    values: Array
    """(input, step)."""
    weights: Array

    def sum_above(self, cuts: Mapping[int, Array]) -> Array:
        """(row, switch) the summed weights of the steps above the thresholds of all these inputs.

        Each step is counted once, in its cell between thresholds. What lies above a threshold is
        the sum of the cells beyond it.
        """
        cell, shape = self.row, [int(self.row[-1]) + 1]
        for place, thresholds in cuts.items():
            shape.append(len(thresholds) + 1)
            cell = cell * shape[-1] + np.searchsorted(thresholds, self.values[place])
        counts = np.bincount(cell, self.weights, math.prod(shape)).reshape(shape)
        for axis in range(1, len(shape)):
            counts = np.flip(np.flip(counts, axis).cumsum(axis), axis)
            counts = counts.take(range(1, shape[axis]), axis)
        return np.asarray(counts.reshape(shape[0], -1), np.float64)


def _read_blocks(data: ColumnSource, inputs: Effect) -> Iterator[_Block]:
    """All steps, in blocks of at least some thousand but for the last."""
    columns = data.basis.columns[list(inputs)]
    held: list[tuple[Array, Array]] = []
    for segment in data.segments():
        held.append((segment.inputs[:, columns], segment.weights))
        if sum(len(weights) for _, weights in held) >= _BLOCK:
            yield _join_rows(held)
            held = []
    if held:
        yield _join_rows(held)


def _join_rows(rows: Sequence[tuple[Array, Array]]) -> _Block:
    values, weights = zip(*rows, strict=True)
    row = np.repeat(np.arange(len(rows)), [len(one) for one in weights])
    return _Block(row, np.ascontiguousarray(np.concatenate(values).T), np.concatenate(weights))


def _list_inputs(data: ColumnSource, chosen: Selection) -> Effect:
    """The inputs that may have a threshold: those of the model, or any where it has none."""
    if not data.varies:
        return ()
    places = {data.column(i): i for i in range(data.inputs) if i != data.terminated}
    columns = sorted({data.column(i) for i in chosen.inputs}) or sorted(places)
    return tuple(places[column] for column in columns if column in places)[: BARS.switch_inputs]


def is_switch(data: ColumnSource, effect: Effect) -> bool:
    """Whether an effect is a switch: its inputs come after the smooth and the rough ones."""
    return min(effect) >= 2 * data.inputs


def translate_switch(data: ColumnSource, effect: Effect, source: ColumnSource) -> Effect:
    """The switch of another source as one of this, with the same thresholds."""
    first, basis, places = len(data.basis.columns), source.basis, list(effect)
    ends = basis.low[places], basis.high[places]
    tables = basis.tables[places, :, :1]
    data.basis = data.basis.join(InputBasis(basis.columns[places], *ends, tables))
    return tuple(range(first, first + len(places)))


def _refine(cuts: Array, place: int) -> Array:
    """Thresholds between the neighbours of one of them."""
    low, high = cuts[max(place - 1, 0)], cuts[min(place + 1, len(cuts) - 1)]
    return np.linspace(low, high, 2 * BARS.finer_cuts + 1)


def _gain(fit: Posterior, columns: Columns, cuts: Mapping[int, Array]) -> Array:
    gains, _ = measure_gains(fit, columns[0][:, :, None])
    return np.where(columns[1], gains, 0.0).reshape([len(one) for one in cuts.values()])


def _add_input(data: ColumnSource, index: int, cut: float) -> int:
    """A further input of the basis: 1 where an input is above the threshold, else 0."""
    basis = data.basis
    near = BARS.cut_width * (basis.high[index] - basis.low[index])
    table = (np.arange(GRID) > GRID // 2).astype(np.float64)
    ends = np.array([cut - near]), np.array([cut + near])
    data.basis = basis.join(InputBasis(basis.columns[[index]], *ends, table[None, :, None]))
    return len(basis.columns)
