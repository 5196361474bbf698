"""Outcomes that are one of two: a logistic link between sums of rewards and labels.

Of an episode that ended in success or failure, and of a pair of which one was preferred, only a
label y is known, 1 or 0 (or 1/2 where both of a pair were found alike):

    P(y = 1) = 1 / (1 + exp(-eta)),   eta = b + c n + sum_p Z_p w_p,   w_p ~ N(0, v_p I)

For success, eta is a base b and the sum of the rewards of the episode, so rewards are in units of
log-odds: a step of reward 1 multiplies the odds of success by e. Success often means that a sum is
above some limit, and then the base is less than 0. Where all episodes have the same number of steps
n, it cannot be told from the constant reward c, and is 0. For a preference eta is the sum of the
first piece less that of the second (Bradley and Terry), without a base. Rows of Z are the same sums
of features as those of returns.

Laplace's method. About the weights that are most likely, the logarithm of the likelihood is nearly
a parabola. With p = P(y = 1) there and h = p (1 - p), it is that of a return z = eta + (y - p) / h
with noise of variance 1 / h. So the evidence of some effects is

    L = log P(y | eta) - 1/2 sum_p |w_p|^2 / v_p
        - 1/2 log |I + D^1/2 Z^T H Z D^1/2| - 1/2 log |N^T H N|

at that place, with D the variances of all weights, H = diag(h), and N the columns of c and b.
Newton's steps for the weights and MacKay's for the variances take turns. Gains of candidates follow
from the parabola. The loss of an effect that stands in the model does not: far from the place of
the parabola it says too little, so such an effect is taken out and the rest is fitted anew.

The search is that of `search`, and more. A label says so little that the first effects found may
stand in for others. So two more moves are tried once nothing is left to add: an effect is replaced
by another, and an input is left out, with all its effects, while the search goes on without it and
then with it. A move is kept if it raises the evidence, less what the search asks of each effect and
input.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from grd_offline.additive.bars import BARS
from grd_offline.additive.basis import Effect
from grd_offline.additive.equations import Equations
from grd_offline.additive.search import (
    NOWHERE,
    SMALLEST_VARIANCE,
    Block,
    EffectBank,
    EvidenceProblem,
    Posterior,
    SearchRules,
    Selection,
    Start,
    drop_idle,
    measure_losses,
    search_forward,
    sum_blocks,
)
from grd_offline.core.statistics import give_chance
from grd_offline.core.typing import Array, IntArray

_STEPS = 30  # expansions at most
_WIDTH = 8  # columns of a block are filled up to a multiple of this


@dataclass(frozen=True, eq=False)
class LabelSelection(Selection):
    """Effects in the model of labels; `fit` is that of the parabola, with the evidence of labels.

    Its columns and target have been multiplied by the root of h, and its noise is 1.
    """

    logits: Array
    """(row,) eta."""
    base: float = 0.0
    """The part b of eta that belongs to no step."""


class LabelBank(EffectBank):
    """Columns of candidate effects, without scaling of their rows, and fits of them to labels."""

    def __init__(
        self, blocks: Mapping[Effect, Block], labels: Array, totals: Array, has_base: bool = False
    ):
        """`totals` is (row,) n: how often the constant reward stands in eta."""
        super().__init__(blocks, labels)
        self.has_constant, self._has_base = bool(totals.any()), has_base
        ones = np.ones_like(totals)
        fixed = [*([totals] if self.has_constant else []), *([ones] if has_base else [])]
        self.fixed = np.stack(fixed, 1) if fixed else np.zeros((len(totals), 0))
        """(row, one or two) columns of weights that have no prior: the constant, and the base."""
        self._latest: dict[Effect, Array] = {}
        self._levels = np.zeros(self.fixed.shape[1])

    @cached_property
    def null_evidence(self) -> float:
        """Log evidence without any effect."""
        return self.fit([], NOWHERE).fit.evidence

    def fit(
        self,
        effects: Sequence[Effect],
        start: Start,
        rules: SearchRules | None = None,
        *,
        iterations: int | None = None,
    ) -> LabelSelection:
        """Maximise the evidence of these effects; the noise has no meaning for labels.

        The fit takes as many steps as it needs; with 0 `iterations` the variances stay.
        """
        blocks = [np.asarray(self[effect].columns, np.float64) for effect in effects]
        sizes = [block.shape[1] for block in blocks]
        rows = len(self.target)
        every = np.concatenate([np.zeros((rows, 0)), *blocks], 1)
        powers = np.array([self._measure_power(block) for block in blocks])
        even = BARS.first_logit**2 / max(len(effects), 1) / np.maximum(powers, 1e-12)
        variances = np.array([start[0].get(e, v) for e, v in zip(effects, even, strict=True)])
        # Newton's steps begin where the fit before ended, which is near for related effects.
        known = [self._latest.get(e, np.zeros(k)) for e, k in zip(effects, sizes, strict=True)]
        weights, last = np.concatenate([np.zeros(0), *known]), -np.inf
        logits = every @ weights + self.fixed @ self._levels
        for step in range(_STEPS):
            fit, evidence, goal, goal_logits = self._expand(logits, every, sizes, variances)
            spread = np.repeat(variances, sizes)
            part = self._find_step(weights, logits, goal, goal_logits, spread)
            weights = weights + part * (goal - weights)
            logits = logits + part * (goal_logits - logits)
            if abs(evidence - last) < BARS.label_close and part == 1:
                break
            last = evidence
            if step and iterations != 0 and len(variances):
                variances = _move_variances(fit, variances, powers)
        parts = np.split(weights, np.cumsum(sizes)[:-1]) if sizes else []
        self._latest.update(zip(effects, parts, strict=True))
        rest = logits - every @ weights
        self._levels = np.linalg.lstsq(self.fixed, rest, rcond=None)[0]
        base = float(self._levels[-1]) if self._has_base else 0.0
        return LabelSelection(tuple(effects), replace(fit, evidence=evidence), logits, base)

    def _expand(
        self, logits: Array, every: Array, sizes: Sequence[int], variances: Array
    ) -> tuple[Posterior, float, Array, Array]:
        """The fit to the parabola at these logits, its evidence, and the place where it leads."""
        amounts, root = self.find_parabola(logits)
        target = np.asarray(self._whiten(amounts[:, None], root)[:, 0], np.float64)
        columns = np.asarray(self._whiten(every, root), np.float64)
        fit = EvidenceProblem(columns, sizes, target).solve(variances, 1.0)
        explained = every @ fit.weights
        fixed = self.fixed * root[:, None]
        levels = np.linalg.lstsq(fixed, (amounts - explained) * root, rcond=None)[0]
        place = explained + self.fixed @ levels
        price = 0.5 * float(np.linalg.slogdet(fixed.T @ fixed)[1])
        rest = 0.5 * (len(target) * np.log(2 * np.pi) + float(fit.residual @ fit.residual))
        evidence = fit.evidence + rest + self.measure_likelihood(place) - price
        return fit, evidence, fit.weights, place

    def _find_step(
        self, weights: Array, logits: Array, goal: Array, goal_logits: Array, spread: Array
    ) -> float:
        """The part of Newton's step that does not lower the posterior density."""

        def measure(part: float) -> float:
            moved = weights + part * (goal - weights)
            penalty = 0.5 * float((moved**2 / spread).sum())
            return self.measure_likelihood(logits + part * (goal_logits - logits)) - penalty

        before, part = measure(0.0), 1.0
        while part > 1e-3 and measure(part) < before - 1e-9:
            part /= 2
        return part

    def measure_likelihood(self, logits: Array) -> float:
        """Log probability of the labels."""
        return float((self.target * logits - np.logaddexp(0, logits)).sum())

    def find_parabola(self, logits: Array) -> tuple[Array, Array]:
        """(row,) the return that a label stands for, and the root of its precision."""
        chances = give_chance(logits)
        precisions = np.maximum(chances * (1 - chances), BARS.least_precision)
        return logits + (self.target - chances) / precisions, np.sqrt(precisions)

    def _whiten(self, columns: NDArray[np.floating], root: Array) -> NDArray[np.floating]:
        """Rows scaled to equal noise, and free of the constant and of the base."""
        scaled = columns * root[:, None].astype(columns.dtype)
        fixed: NDArray[np.floating] = self.fixed * root[:, None]
        while fixed.shape[1]:
            first = Equations(self.target, np.asarray(fixed[:, 0], np.float64), root)
            scaled, fixed = (first.remove_constant(part)[0] for part in (scaled, fixed[:, 1:]))
        return scaled

    def _measure_power(self, block: NDArray[np.floating]) -> float:
        """Mean square of the rows of a block, apart from the constant."""
        directions = np.linalg.qr(self.fixed)[0]
        power = float((block**2).sum() - ((directions.T @ block) ** 2).sum())
        return max(power, 0.0) / max(len(block), 1)

    def group_widths(self, widths: Sequence[int]) -> IntArray:
        """Columns of zeros gain nothing, so that blocks of nearly the same width go together."""
        return -(-np.array(widths, np.int64) // _WIDTH) * _WIDTH

    def stack(
        self, chosen: Selection, effects: Sequence[Effect], width: int
    ) -> NDArray[np.floating]:
        """Gains are those of the parabola at the logits of the fit."""
        assert isinstance(chosen, LabelSelection)
        padded = np.zeros((len(self.target), len(effects), width), np.float32)
        for place, effect in enumerate(effects):
            block = self[effect].columns
            padded[:, place, : block.shape[1]] = block
        _, root = self.find_parabola(chosen.logits)
        flat = self._whiten(padded.reshape(len(padded), -1), root)
        return flat.reshape(len(flat), len(effects), width)

    def measure_losses(self, chosen: Selection, rules: SearchRules) -> Array:
        """(effect,) evidence lost without it; refitted where the parabola says it is little."""
        losses = measure_losses(chosen.fit)
        for k in np.flatnonzero(losses < BARS.sure_loss):
            rest = [effect for place, effect in enumerate(chosen.effects) if place != k]
            without = self.fit(rest, chosen.start, rules)
            losses[k] = chosen.fit.evidence - without.fit.evidence
        return losses


def _move_variances(fit: Posterior, variances: Array, powers: Array) -> Array:
    """MacKay's step, with the size of eta bounded."""
    strength = sum_blocks(fit.weights**2, fit.sizes) / variances**2
    ratios = strength / np.maximum(fit.block_traces(), 1e-300)
    moved = variances * np.clip(ratios, 1 / BARS.most_factor, BARS.most_factor) ** BARS.hurry
    moved = np.clip(moved, SMALLEST_VARIANCE, 1e6)
    total = float((moved * powers).sum())
    return moved * min(1.0, BARS.largest_logit**2 / max(total, 1e-300))


def search_labels(
    bank: LabelBank, candidates: Sequence[Effect], rules: SearchRules, start: Sequence[Effect] = ()
) -> Selection:
    """Add effects to those of the start, and replace single ones, until neither helps."""
    chosen: Selection = drop_idle(bank, bank.fit(list(start), NOWHERE, rules), rules)
    chosen = search_forward(bank, candidates, chosen, rules)
    for _ in range(BARS.most_swaps):
        other = _replace_effect(bank, chosen, candidates, rules)
        if other is None:
            break
        chosen = search_forward(bank, candidates, other, rules)
    return chosen


def shake_inputs(
    bank: LabelBank, chosen: Selection, candidates: Sequence[Effect], rules: SearchRules
) -> Selection:
    """Leave out each input in turn, and search on, until nothing better is found."""
    tried: set[tuple[int, tuple[Effect, ...]]] = set()
    while True:
        left = [i for i in chosen.inputs if (i, chosen.effects) not in tried]
        if not left:
            return chosen
        tried.add((left[0], chosen.effects))
        rest = [effect for effect in chosen.effects if left[0] not in effect]
        other: Selection = bank.fit(rest, chosen.start, rules)
        for pool in ([e for e in candidates if left[0] not in e], candidates):
            other = search_forward(bank, pool, other, rules)
        if _score(other, rules) > _score(chosen, rules) + BARS.swap_gain:
            chosen = other


def _replace_effect(
    bank: LabelBank, chosen: Selection, candidates: Sequence[Effect], rules: SearchRules
) -> Selection | None:
    """The first better model in which one effect is missing, or another stands in its place."""
    guesses, noise = chosen.start
    left = [effect for effect in candidates if effect not in chosen.effects]
    for k in np.argsort(measure_losses(chosen.fit), kind="stable"):
        rest = [effect for place, effect in enumerate(chosen.effects) if place != k]
        without: Selection = bank.fit(rest, chosen.start, rules)
        if _score(without, rules) > _score(chosen, rules):
            return without
        if not left:
            continue
        gains, variances = bank.scan(without, left)
        gains -= rules.price_new(left, without)
        for place in np.argsort(-gains, kind="stable")[: BARS.swap_tried]:
            start = {**guesses, left[place]: float(variances[place])}
            other = bank.fit([*rest, left[place]], (start, noise), rules)
            if _score(other, rules) > _score(chosen, rules) + BARS.swap_gain:
                return other
    return None


def _score(chosen: Selection, rules: SearchRules) -> float:
    """Log evidence, less what the search asks of each effect and of each input."""
    prices = sum(rules.settings.add_gain + rules.price(effect) for effect in chosen.effects)
    return chosen.fit.evidence - prices - rules.settings.new_input * len(chosen.inputs)
