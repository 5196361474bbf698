"""The search for effects: forward by the evidence that each would add, backward by the evidence
that each carries.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from grd_offline.additive.bars import BARS
from grd_offline.additive.basis import Effect
from grd_offline.additive.evidence import (
    EvidenceProblem,
    Posterior,
    measure_gains,
    measure_losses,
)
from grd_offline.core.typing import Array, IntArray

Start = tuple[Mapping[Effect, float], float]
"""Variances of some effects, and the noise."""
NOWHERE: Start = ({}, 1.0)

_CHUNK = 8_000_000  # entries of candidate columns looked at in one go


@dataclass(frozen=True)
class SearchRules:
    """Thresholds of the search, in units of log evidence unless said otherwise."""

    add_gain: float
    """An effect is added only if it gains more than this."""
    new_input: float
    """Further gain for each input of the effect that no other effect has yet."""
    add_share: float
    """Fraction of the best gain of a round. Effects that gain less wait for the next round."""
    add_most: int
    """Largest number of effects that are added in one round."""
    rounds: int
    drop_loss: float
    """An effect is dropped if the evidence would fall by less than this."""
    gain_share: float
    """Fraction of the evidence gained so far. Both thresholds are at least this."""
    noise_floor: float
    """Smallest noise, as a share of the target's variance."""
    iterations: int
    """Number of iterations of the fixed point in each fit."""
    hasty: bool = False
    """Whether to take short cuts where there are many columns or many inputs."""
    inputs: int = 1
    """Number of inputs to choose from."""
    kept: frozenset[Effect] = frozenset()
    """Effects that are never dropped, so that others which stand in for them go first."""

    def price(self, effect: Effect) -> float:
        """The further evidence that an effect has to gain or carry. It grows with the number of
        effects of its kind.

        The best of many effects that are not there gains the logarithm of their number by chance.
        """
        kinds = {1: self.inputs / BARS.free_mains, 2: self.inputs**2 / 2 / BARS.free_pairs}
        return max(0.0, math.log(kinds.get(len(effect), 1.0)))

    def price_new(self, effects: Sequence[Effect], chosen: Selection) -> Array:
        """(effect,) what each has to gain beside the chosen: its price and that of new inputs."""
        present = set(chosen.inputs)
        return np.array([self.new_input * len(set(e) - present) + self.price(e) for e in effects])


@dataclass(frozen=True, eq=False)
class Selection:
    """Effects in the model, with the fit of their variances."""

    effects: tuple[Effect, ...]
    fit: Posterior

    @property
    def inputs(self) -> tuple[int, ...]:
        """Inputs that stand in any effect."""
        return tuple(sorted({i for effect in self.effects for i in effect}))

    @property
    def start(self) -> Start:
        """Variances and noise, from which a related fit may start."""
        return dict(zip(self.effects, self.fit.variances.tolist(), strict=True)), self.fit.noise


class Block(NamedTuple):
    """The scaled columns of one effect."""

    columns: NDArray[np.floating]
    average: NDArray[np.floating] | float = 0.0
    """(column,) the average per step, which the columns are free of."""
    scale: float = 1.0
    """What the features were multiplied by."""
    size: int = 0
    """Number of features of each input."""


class EffectBank(dict[Effect, Block]):
    """The columns of all candidate effects, and fits of subsets of them."""

    def __init__(self, blocks: Mapping[Effect, Block], target: Array) -> None:
        super().__init__(blocks)
        self.target = target

    @cached_property
    def null_evidence(self) -> float:
        """Log evidence without any effect, at the best noise."""
        rows = len(self.target)
        noise = max(float(self.target @ self.target) / max(rows, 1), 1e-300)
        return float(-0.5 * rows * (np.log(2 * np.pi * noise) + 1))

    def merge(self, effect: Effect, parts: Sequence[Effect]) -> None:
        """Make one block of several, which will share a variance."""
        blocks = [self.pop(part) for part in parts]
        scale = float(np.mean([block.scale for block in blocks])) / len(blocks) ** 0.5
        columns = np.hstack([block.columns * (scale / block.scale) for block in blocks])
        average = np.hstack([block.average * (scale / block.scale) for block in blocks])
        self[effect] = Block(columns, average, scale, blocks[0].size)

    def fit(
        self,
        effects: Sequence[Effect],
        start: Start,
        rules: SearchRules,
        *,
        free: bool = True,
        iterations: int | None = None,
    ) -> Selection:
        """Maximise the evidence of these effects from a first guess of variances and noise."""
        blocks = [np.asarray(self[effect].columns, np.float64) for effect in effects]
        every = np.concatenate(blocks, 1) if blocks else np.zeros((len(self.target), 0))
        problem = EvidenceProblem(every, [block.shape[1] for block in blocks], self.target)
        known, noise = start
        spread = [float((block**2).sum()) / max(1, len(block)) for block in blocks]
        even = [0.5 / (len(blocks) * max(one, 1e-12)) for one in spread]
        first = np.array([known.get(e, one) for e, one in zip(effects, even, strict=True)])
        if iterations is None:
            is_wide = rules.hasty and every.shape[1] > BARS.many_columns
            iterations = rules.iterations // 5 if is_wide else rules.iterations
        fit = problem.maximise(
            first, noise, floor=rules.noise_floor, iterations=iterations, free=free
        )
        return Selection(tuple(effects), fit)

    def measure_losses(self, chosen: Selection, rules: SearchRules) -> Array:
        """(effect,) evidence lost if that effect alone were removed, all else held."""
        return measure_losses(chosen.fit)

    def scan(self, chosen: Selection, candidates: Sequence[Effect]) -> tuple[Array, Array]:
        """Gain of each candidate at its best variance, and that variance."""
        gains, variances = np.zeros(len(candidates)), np.zeros(len(candidates))
        widths = self.group_widths([self[effect].columns.shape[1] for effect in candidates])
        for width in np.unique(widths):
            members = np.flatnonzero(widths == width)
            step = max(1, _CHUNK // int(len(self.target) * width))
            for begin in range(0, len(members), step):
                part = members[begin : begin + step]
                blocks = self.stack(chosen, [candidates[k] for k in part], int(width))
                gains[part], variances[part] = measure_gains(chosen.fit, blocks)
        return gains, variances

    def group_widths(self, widths: Sequence[int]) -> IntArray:
        """(effect,) equal numbers for those that are looked at together."""
        return np.array(widths, np.int64)

    def stack(
        self, chosen: Selection, effects: Sequence[Effect], width: int
    ) -> NDArray[np.floating]:
        """(row, effect, column) the columns of some candidates as the fit has its own."""
        return np.stack([self[effect].columns for effect in effects], 1)


def search_forward(
    bank: EffectBank,
    candidates: Sequence[Effect],
    start: Selection,
    rules: SearchRules,
    progress: Callable[[float], None] = lambda share: None,
) -> Selection:
    """Add what gains evidence, refit, drop what carries none; until nothing gains."""
    chosen = start
    dropped: set[Effect] = set()
    for turn in range(rules.rounds):
        progress(turn / rules.rounds)
        left = [e for e in candidates if e not in set(chosen.effects) and e not in dropped]
        if not left:
            break
        gains, variances = bank.scan(chosen, left)
        if rules.hasty and len(left) > BARS.many_candidates:
            # What gains little now will hardly gain more once others are in.
            best = np.sort(np.argsort(-gains, kind="stable")[: BARS.many_candidates])
            left, gains, variances = [left[k] for k in best], gains[best], variances[best]
            candidates = [*chosen.effects, *left]
        gains -= rules.price_new(left, chosen)
        order = np.argsort(-gains, kind="stable")[: rules.add_most]
        least = max(rules.add_gain, rules.gain_share * (chosen.fit.evidence - bank.null_evidence))
        order = order[gains[order] > max(least, rules.add_share * gains[order[0]])]
        if not len(order):
            break
        new = [left[k] for k in order]
        known, noise = chosen.start
        guesses = {**known, **{left[k]: float(variances[k]) for k in order}}
        grown = bank.fit([*chosen.effects, *new], (guesses, noise), rules)
        kept = drop_idle(bank, grown, rules)
        dropped = set(grown.effects) - set(kept.effects)
        if kept.fit.evidence < chosen.fit.evidence + 0.5 * least:
            break
        chosen = kept
    return chosen


def drop_idle(bank: EffectBank, chosen: Selection, rules: SearchRules) -> Selection:
    """Drop effects whose removal costs less than `drop_loss`, the idlest first; refit."""
    while chosen.effects:
        losses = bank.measure_losses(chosen, rules)
        gained = chosen.fit.evidence - bank.null_evidence
        prices = np.array([rules.price(effect) for effect in chosen.effects])
        least = max(rules.drop_loss, 0.5 * rules.gain_share * gained)
        is_free = np.array([effect not in rules.kept for effect in chosen.effects])
        idle = np.flatnonzero((losses < least + prices) & is_free)
        if not len(idle):
            break
        # Effects that stand in for each other look idle one at a time: never all at once.
        gone = set(idle[np.argsort(losses[idle], kind="stable")][: max(1, len(idle) // 2)].tolist())
        kept = [effect for k, effect in enumerate(chosen.effects) if k not in gone]
        chosen = bank.fit(kept, chosen.start, rules)
    return chosen


def measure_inputs(
    bank: EffectBank,
    chosen: Selection,
    rules: SearchRules,
    threshold: float,
    column: Callable[[int], int],
) -> dict[int, tuple[float, Selection]]:
    """For each column, the evidence that is lost when its inputs are removed and the rest is fitted
    again, and that fit.

    A hasty search does not refit where far more than `threshold` would be lost without it.
    """
    losses = {}
    every = sorted({column(i) for i in chosen.inputs})
    is_hasty = _is_hasty(rules, len(every))
    if is_hasty:
        owners = np.repeat(np.arange(len(chosen.effects)), chosen.fit.sizes)
        has = [{column(i) for i in effect} for effect in chosen.effects]
        groups = [
            np.flatnonzero(np.isin(owners, [k for k, own in enumerate(has) if one in own]))
            for one in every
        ]
        found = measure_losses(chosen.fit, groups).tolist()
        losses = {one: (loss, chosen) for one, loss in zip(every, found, strict=True)}
    for removed in every:
        if removed in losses and losses[removed][0] > BARS.far_loss * threshold:
            continue
        rest = _leave_out(bank, chosen, {removed}, column)
        without = bank.fit(rest, chosen.start, rules, iterations=1 if is_hasty else 12)
        losses[removed] = (chosen.fit.evidence - without.fit.evidence, without)
    return losses


def _is_hasty(rules: SearchRules, inputs: int) -> bool:
    return rules.hasty and inputs > BARS.many_inputs


def _leave_out(
    bank: EffectBank, chosen: Selection, gone: Collection[int], column: Callable[[int], int]
) -> list[Effect]:
    """The effects without the inputs of some columns."""
    rest: list[Effect] = []
    for effect in chosen.effects:
        left = tuple(i for i in effect if column(i) not in gone)
        if left and left not in rest and left in bank:
            rest.append(left)
    return rest


def search_backward(
    bank: EffectBank,
    chosen: Selection,
    rules: SearchRules,
    threshold: float,
    column: Callable[[int], int],
) -> tuple[Selection, dict[int, float]]:
    """Remove the column that carries least evidence, while that is less than `threshold`.

    A hasty search removes half of such columns at once while there are many.
    """
    while True:
        losses = measure_inputs(bank, chosen, rules, threshold, column)
        kept = {column(i) for effect in rules.kept for i in effect}
        weak = [i for i in losses.keys() - kept if losses[i][0] < threshold]
        weak.sort(key=lambda i: (losses[i][0], i))
        if not weak:
            return chosen, {i: loss for i, (loss, _) in losses.items()}
        rest, start = list(losses[weak[0]][1].effects), losses[weak[0]][1]
        if _is_hasty(rules, len(losses)) and len(weak) > 3:
            rest, start = _leave_out(bank, chosen, weak[: len(weak) // 2], column), chosen
        chosen = drop_idle(bank, bank.fit(rest, start.start, rules), rules)
