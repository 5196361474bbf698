"""What each effect of a reward adds at each step, and how large its share is."""

from __future__ import annotations

import numpy as np

from grd_offline.rewards.contract import Array, Steps
from grd_offline.rewards.effects import EffectModel

_BLOCK = 1024  # Steps at once, so that all products of features of a block fit into memory.


def predict_terms(model: EffectModel, batch: Steps) -> Array:
    """(curve, step) what each curve of `model.explain` adds to the constant at each step.

    The constant and all terms of a step sum to its reward.
    """
    inputs = model.select_inputs(batch)
    groups = model.group_effects()
    places = [place for _, place in model.effect_slices()]
    terms = np.zeros((len(groups), len(inputs)))
    for start in range(0, len(inputs), _BLOCK):
        block = slice(start, start + _BLOCK)
        features = model.expand(inputs[block]) - model.centres
        for term, members in zip(terms, groups, strict=True):
            for place in (places[k] for k in members):
                term[block] += features[:, place] @ model.weights[place]
    return terms


def measure_shares(model: EffectModel, parts: Array) -> Array:
    """(effect,) share of each effect in the variation of the reward; see `EffectCurve`.

    `parts` (step, effect) is what each effect adds at some steps of the data. Effects of the same
    columns are one curve: the first of them has the share of all, the others have 0.
    """
    shares = np.zeros(len(model.effects))
    for members in model.group_effects():
        shares[members[0]] = parts[:, members].sum(1).var()
    return shares / (shares.sum() or 1.0)
