"""Switches: rewards that jump where an input passes a threshold, or two inputs pass theirs at once.

Smooth effects need many returns to bend as sharply as a threshold, and are worst where it is rarely
passed. A switch is one number, 1{x > c} or 1{x > c} 1{y > d}, with the threshold c (and d) that
gains most evidence: first among quantiles of the data, then twice between the neighbours of the
best. The best of many thresholds gains the logarithm of their number by chance, so that is its
price.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from grd_offline.methods.closed_form.columns import ColumnSource
from grd_offline.methods.closed_form.evidence import Posterior, measure_gains
from grd_offline.methods.closed_form.inputs import GRID, Effect, InputBasis
from grd_offline.methods.closed_form.search import (
    EffectBank,
    SearchRules,
    Selection,
    drop_idle,
)

Array = NDArray[np.float64]
Cut = tuple[int, float]
"""An input and a threshold."""
Columns = tuple[Array, NDArray[np.bool_]]

_TAIL = (0.0, 0.002, 0.005, 0.01, 0.02, 0.04)
_QUANTILES = np.array([*_TAIL, *np.arange(0.08, 0.93, 0.06), *(1 - q for q in reversed(_TAIL))])
_BETWEEN, _REFINED = 12, 2
_NEAR = 0.001
"""Share of an input's range, to either side of a threshold, that its grid covers. Outside the grid
a switch is constant, and steps within its middle cell alone count in part."""
_MOST_INPUTS = 8
_MOST_SWITCHES = 4
_MOST_TRIED = 4
_LEAST_GAIN = 5.0
_LARGEST = 30_000_000  # entries of columns that are kept
_BLOCK = 20_000  # steps that are counted at once


def add_switches(
    data: ColumnSource, chosen: Selection, bank: EffectBank, rules: SearchRules
) -> Selection:
    """Put switches in the place of effects of the same inputs, while they gain evidence.

    A reward of switches alone competes too: where a smooth model stands in for them, some of its
    effects are false, and stay in the way.
    """
    thresholds = _Thresholds(data, _list_inputs(data, chosen))
    grown = _grow(thresholds, chosen, bank, rules)
    alone = _grow(thresholds, bank.fit([], {}, 1.0, rules), bank, rules)
    return max(grown, alone, key=lambda one: one.fit.evidence)


class _Thresholds:
    """Columns of all switches at first thresholds, summed once for all models they are tried in."""

    def __init__(self, data: ColumnSource, inputs: Effect) -> None:
        self.data, self.inputs = data, inputs
        self.cuts = {
            i: np.unique(np.quantile(data.probe[:, data.basis.columns[i]], _QUANTILES))
            for i in inputs
        }
        self.groups: list[Effect] = [(i,) for i in inputs] + list(combinations(inputs, 2))
        self._blocks = list(_read_blocks(data, inputs)) if self._is_small(inputs) else None
        self._sums: dict[Effect, Columns] = {}
        self._room = _LARGEST

    def scan(self, fit: Posterior, group: Effect) -> Array:
        """(threshold of each input) the evidence that each switch of these inputs would gain."""
        sums = self._sums.get(group)
        if sums is None:
            sums = self.sum(group, self.cuts)
            if sums[0].size <= self._room:
                self._sums[group] = sums
                self._room -= sums[0].size
        return _gain(fit, sums, [len(self.cuts[i]) for i in group])

    def sum(self, group: Effect, cuts: dict[int, Array]) -> Columns:
        """(row, switch) columns of unit size, free of the constant, and whether each one varies."""
        blocks = _read_blocks(self.data, self.inputs) if self._blocks is None else self._blocks
        places = {self.inputs.index(i): cuts[i] for i in group}
        sums = np.concatenate([block.sum_above(places) for block in blocks])
        equations = self.data.equations
        free, _ = equations.remove_constant(sums * equations.scale[:, None])
        size = np.sqrt(np.maximum((free**2).mean(0), 1e-300))
        return np.asarray(free / size, np.float64), size > 1e-9

    def _is_small(self, inputs: Effect) -> bool:
        """Whether the values of these inputs may be kept."""
        return self.data.episodes.total_steps * len(inputs) <= _LARGEST


@dataclass(frozen=True)
class _Block:
    """The steps of some rows that follow each other."""

    row: NDArray[np.int64]
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
    values = np.concatenate([values for values, _ in rows])
    return _Block(
        np.repeat(np.arange(len(rows)), [len(weights) for _, weights in rows]),
        np.ascontiguousarray(values.T),
        np.concatenate([weights for _, weights in rows]),
    )


def _grow(
    thresholds: _Thresholds, chosen: Selection, bank: EffectBank, rules: SearchRules
) -> Selection:
    data = thresholds.data
    for _ in range(_MOST_SWITCHES):
        candidates, tried = _find_candidates(thresholds, chosen, bank, rules)
        effects = [tuple(_add_input(data, *cut) for cut in cuts) for _, cuts in candidates]
        bank.join(data.build_bank(effects, 1))
        fitted = []
        for (base, _), effect in zip(candidates, effects, strict=True):
            guesses, noise = base.start()
            grown = bank.fit([*base.effects, effect], guesses, noise, rules)
            fitted.append(drop_idle(bank, grown, rules))
        best = max(fitted, key=lambda one: one.fit.evidence, default=chosen)
        if best.fit.evidence < chosen.fit.evidence + _LEAST_GAIN + math.log(tried):
            break
        chosen = best
    return chosen


def _list_inputs(data: ColumnSource, chosen: Selection) -> Effect:
    """The inputs that may have a threshold: those of the model, or any where it has none."""
    if not data.varies:
        return ()
    places = {data.column(i): i for i in range(data.inputs) if i != data.terminated}
    columns = sorted({data.column(i) for i in chosen.inputs}) or sorted(places)
    return tuple(places[column] for column in columns if column in places)[:_MOST_INPUTS]


def is_switch(data: ColumnSource, effect: Effect) -> bool:
    """Whether an effect is a switch: its inputs come after the smooth and the rough ones."""
    return min(effect) >= 2 * data.inputs


def translate_switch(data: ColumnSource, effect: Effect, source: ColumnSource) -> Effect:
    """The switch of another source as one of this, with the same thresholds."""
    first, basis = len(data.basis.columns), source.basis
    places = list(effect)
    data.basis = data.basis.join(
        InputBasis(
            basis.columns[places],
            basis.low[places],
            basis.high[places],
            basis.tables[places, :, :1],
        )
    )
    return tuple(range(first, first + len(places)))


def _find_candidates(
    thresholds: _Thresholds, chosen: Selection, bank: EffectBank, rules: SearchRules
) -> tuple[list[tuple[Selection, list[Cut]]], int]:
    """The most promising switches, each with the model in which it stands for other effects.

    Also how many thresholds were tried. Gains are measured with the noise held, so they only rank.
    """
    data, cuts, groups = thresholds.data, thresholds.cuts, thresholds.groups
    bases = {group: _leave_out(data, chosen, group, bank, rules) for group in groups}
    gains = {group: thresholds.scan(bases[group].fit, group) for group in groups}
    worth = {group: bases[group].fit.evidence + float(gains[group].max()) for group in groups}
    found = []
    for group in sorted(groups, key=worth.__getitem__, reverse=True)[:_MOST_TRIED]:
        where = np.unravel_index(int(gains[group].argmax()), gains[group].shape)
        finer = cuts
        for _ in range(_REFINED):
            finer = {i: _refine(finer[i], int(k)) for i, k in zip(group, where, strict=True)}
            sums = thresholds.sum(group, finer)
            again = _gain(bases[group].fit, sums, [len(finer[i]) for i in group])
            where = np.unravel_index(int(again.argmax()), again.shape)
        sharp = [(i, float(finer[i][k])) for i, k in zip(group, where, strict=True)]
        found.append((bases[group], sharp))
    return found, max(1, sum(gain.size for gain in gains.values()))


def _leave_out(
    data: ColumnSource, chosen: Selection, group: Effect, bank: EffectBank, rules: SearchRules
) -> Selection:
    """The model without its effects of these inputs alone, but for switches."""
    mine = {data.column(i) for i in group}
    kept = [
        effect
        for effect in chosen.effects
        if bank.sizes[effect] == 1 or not {data.column(i) for i in effect} <= mine
    ]
    guesses, noise = chosen.start()
    return bank.fit(kept, guesses, noise, rules, iterations=2)


def _refine(cuts: Array, place: int) -> Array:
    """Thresholds between the neighbours of one of them."""
    low, high = cuts[max(place - 1, 0)], cuts[min(place + 1, len(cuts) - 1)]
    return np.linspace(low, high, 2 * _BETWEEN + 1)


def _gain(fit: Posterior, columns: Columns, shape: Sequence[int]) -> Array:
    gains, _ = measure_gains(fit, columns[0][:, :, None])
    return np.where(columns[1], gains, 0.0).reshape(shape)


def _add_input(data: ColumnSource, index: int, cut: float) -> int:
    """A further input of the basis: 1 where an input is above the threshold, else 0."""
    basis = data.basis
    near = _NEAR * (basis.high[index] - basis.low[index])
    table = (np.arange(GRID) > GRID // 2).astype(np.float64)
    ends = np.array([cut - near]), np.array([cut + near])
    data.basis = basis.join(InputBasis(basis.columns[[index]], *ends, table[None, :, None]))
    return len(basis.columns)
