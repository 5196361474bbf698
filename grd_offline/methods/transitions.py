"""The part of a decomposition that learns from transitions: the causal graph and the dynamics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from grd_offline.additive.dynamics import (
    DynamicsModel,
    compare_masks,
    fit_dynamics,
    fit_dynamics_model,
)
from grd_offline.core.episodes import EpisodeSet
from grd_offline.core.observer import Progress

MASKS = ("state_to_state", "action_to_state")


@dataclass(frozen=True)
class Dynamics:
    """A model of the dynamics, its masks, and how well it predicts held-out transitions."""

    model: DynamicsModel
    masks: dict[str, Any]
    scores: dict[str, Any]
    """Empty where the masks were given."""
    likelihoods: Any


def learn_dynamics(
    episodes: EpisodeSet,
    given: Mapping[str, Any],
    rng: np.random.Generator,
    progress: Progress,
) -> Dynamics:
    """Fit the dynamics. Their masks are found, unless a fit of the rewards has given its own."""
    scores: dict[str, Any] = {}
    if MASKS[0] in given:
        states, actions = (given[name] for name in MASKS)
        model = fit_dynamics_model(episodes, states, actions, rng=rng, progress=progress)
    else:
        found = fit_dynamics(episodes, rng=rng, progress=progress)
        model, states, actions = found.model, found.state_to_state, found.action_to_state
        scores = dict(zip(MASKS, (found.state_score, found.action_score), strict=True))
    likelihoods = compare_masks(episodes, states, actions, rng=rng, progress=progress)
    masks = dict(zip(MASKS, (states, actions), strict=True))
    return Dynamics(model, masks, scores, likelihoods)
