"""Switches: rewards that jump where an input passes a threshold, or two inputs pass theirs at once.

Smooth effects need many returns to bend as sharply as a threshold, and are worst where it is rarely
passed. A switch is one number, 1{x > c} or 1{x > c} 1{y > d}, with the threshold c (and d) that
gains most evidence: first among quantiles of the data, then between the neighbours of the best. The
best of many thresholds gains the logarithm of their number by chance, so that is its price.
"""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from grd_offline.methods.closed_form.columns import ColumnSource
from grd_offline.methods.closed_form.evidence import measure_gains
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

_TAIL = (0.0, 0.002, 0.005, 0.01, 0.02, 0.04)
_QUANTILES = np.array([*_TAIL, *np.arange(0.08, 0.93, 0.06), *(1 - q for q in reversed(_TAIL))])
_BETWEEN = 12
_MOST_INPUTS = 8
_MOST_SWITCHES = 4
_MOST_TRIED = 4
_LEAST_GAIN = 5.0


def add_switches(
    data: ColumnSource, chosen: Selection, bank: EffectBank, rules: SearchRules
) -> Selection:
    """Put switches in the place of effects of the same inputs, while they gain evidence.

    A reward of switches alone competes too: where a smooth model stands in for them, some of its
    effects are false, and stay in the way.
    """
    inputs = _list_inputs(data, chosen)
    grown = _grow(data, chosen, bank, rules, inputs)
    alone = _grow(data, bank.fit([], {}, 1.0, rules), bank, rules, inputs)
    return max(grown, alone, key=lambda one: one.fit.evidence)


def _grow(
    data: ColumnSource, chosen: Selection, bank: EffectBank, rules: SearchRules, inputs: Effect
) -> Selection:
    for _ in range(_MOST_SWITCHES):
        candidates, tried = _find_candidates(data, chosen, bank, rules, inputs)
        fitted = []
        for base, cuts in candidates:
            effect = tuple(_add_input(data, *cut) for cut in cuts)
            bank.join(data.build_bank([effect], 1))
            guesses, noise = base.start()
            grown = bank.fit([*base.effects, effect], guesses, noise, rules)
            fitted.append(drop_idle(bank, grown, rules))
        best = max(fitted, key=lambda one: one.fit.evidence, default=chosen)
        if best.fit.evidence < chosen.fit.evidence + _LEAST_GAIN + math.log(tried):
            break
        chosen = best
    return chosen


def _list_inputs(data: ColumnSource, chosen: Selection) -> Effect:
    """The inputs that may have a threshold: those of the model, but for terminating."""
    columns = sorted({data.column(i) for i in chosen.inputs})
    places = {data.column(i): i for i in range(data.inputs) if i != data.terminated}
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
    data: ColumnSource, chosen: Selection, bank: EffectBank, rules: SearchRules, inputs: Effect
) -> tuple[list[tuple[Selection, list[Cut]]], int]:
    """The most promising switches, each with the model in which it stands for other effects.

    Also how many thresholds were tried. Gains are measured with the noise held, so they only rank.
    """
    cuts = {
        i: np.unique(np.quantile(data.probe[:, data.basis.columns[i]], _QUANTILES)) for i in inputs
    }
    groups: list[Effect] = [(i,) for i in inputs] + list(combinations(inputs, 2))
    bases = {group: _leave_out(data, chosen, group, bank, rules) for group in groups}
    gains = {group: _scan(data, bases[group], group, cuts) for group in groups}
    worth = {group: bases[group].fit.evidence + float(gains[group].max()) for group in groups}
    found = []
    for group in sorted(groups, key=worth.__getitem__, reverse=True)[:_MOST_TRIED]:
        where = np.unravel_index(int(gains[group].argmax()), gains[group].shape)
        finer = {i: _refine(cuts[i], int(k)) for i, k in zip(group, where, strict=True)}
        again = _scan(data, bases[group], group, finer)
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
    return bank.fit(kept, guesses, noise, rules, iterations=12)


def _refine(cuts: Array, place: int) -> Array:
    """Thresholds between the neighbours of one of them."""
    low, high = cuts[max(place - 1, 0)], cuts[min(place + 1, len(cuts) - 1)]
    return np.linspace(low, high, 2 * _BETWEEN + 1)


def _scan(data: ColumnSource, chosen: Selection, group: Effect, cuts: dict[int, Array]) -> Array:
    """(threshold of each input) the evidence that each switch would gain."""
    shape = tuple(len(cuts[i]) for i in group)
    sums = np.zeros((len(data.equations.target), math.prod(shape)))
    for row, segment in enumerate(data.segments()):
        above = [segment.inputs[:, data.basis.columns[i], None] > cuts[i] for i in group]
        weighted = above[0] * segment.weights[:, None]
        sums[row] = weighted.sum(0) if len(above) == 1 else (weighted.T @ above[1]).ravel()
    free, _ = data.equations.remove_constant(sums * data.equations.scale[:, None])
    size = np.sqrt(np.maximum((free**2).mean(0), 1e-300))
    gains, _ = measure_gains(chosen.fit, (free / size)[:, :, None])
    return np.where(size > 1e-9, gains, 0.0).reshape(shape)


def _add_input(data: ColumnSource, index: int, cut: float) -> int:
    """A further input of the basis: 1 where an input is above the threshold."""
    basis = data.basis
    low, high = basis.low[index], basis.high[index]
    table = (np.linspace(low, high, GRID) > cut).astype(np.float64)
    data.basis = basis.join(
        InputBasis(
            basis.columns[[index]], basis.low[[index]], basis.high[[index]], table[None, :, None]
        )
    )
    return len(basis.columns)
