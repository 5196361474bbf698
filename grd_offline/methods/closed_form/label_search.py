"""The search for effects behind labels: that of `search`, and more that labels need.

A label says so little that the first effects found may stand in for others. So two more moves are
tried once nothing is left to add: an effect is replaced by another, and an input is left out, with
all its effects, while the search goes on without it and then with it. A move is kept if it raises
the evidence, less what the search asks of each effect and input.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from grd_offline.methods.closed_form.evidence import measure_losses
from grd_offline.methods.closed_form.inputs import Effect
from grd_offline.methods.closed_form.labels import LabelBank
from grd_offline.methods.closed_form.search import (
    SearchRules,
    Selection,
    drop_idle,
    search_forward,
)

_TRIED = 2  # effects that may take the place of one
_BETTER = 0.5  # log evidence that a move has to gain
_SWAPS = 12


def search_labels(
    bank: LabelBank,
    candidates: Sequence[Effect],
    rules: SearchRules,
    *,
    start: Sequence[Effect] = (),
) -> Selection:
    """Add effects to those of the start, and replace single ones, until neither helps."""
    chosen: Selection = drop_idle(bank, bank.fit(list(start), {}, 1.0, rules), rules)
    chosen = search_forward(bank, candidates, chosen, rules)
    for _ in range(_SWAPS):
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
        guesses, noise = chosen.start()
        other: Selection = bank.fit(
            [e for e in chosen.effects if left[0] not in e], guesses, noise, rules
        )
        for pool in ([e for e in candidates if left[0] not in e], candidates):
            other = search_forward(bank, pool, other, rules)
        if _score(other, rules) > _score(chosen, rules) + _BETTER:
            chosen = other


def _replace_effect(
    bank: LabelBank, chosen: Selection, candidates: Sequence[Effect], rules: SearchRules
) -> Selection | None:
    """The first better model in which one effect is missing, or another stands in its place."""
    guesses, noise = chosen.start()
    left = [effect for effect in candidates if effect not in chosen.effects]
    for k in np.argsort(measure_losses(chosen.fit), kind="stable"):
        rest = [effect for place, effect in enumerate(chosen.effects) if place != k]
        without: Selection = bank.fit(rest, guesses, noise, rules)
        if _score(without, rules) > _score(chosen, rules):
            return without
        if not left:
            continue
        gains, variances = bank.scan(without, left)
        present = set(without.inputs)
        gains -= [rules.new_input * len(set(e) - present) + rules.price(e) for e in left]
        for place in np.argsort(-gains, kind="stable")[:_TRIED]:
            start = {**guesses, left[place]: float(variances[place])}
            other = bank.fit([*rest, left[place]], start, noise, rules)
            if _score(other, rules) > _score(chosen, rules) + _BETTER:
                return other
    return None


def _score(chosen: Selection, rules: SearchRules) -> float:
    """Log evidence, less what the search asks of each effect and of each input."""
    prices = sum(rules.add_gain + rules.price(effect) for effect in chosen.effects)
    return chosen.fit.evidence - prices - rules.new_input * len(chosen.inputs)
