"""What the examination of a fit says."""

from __future__ import annotations

import numpy as np

from grd_offline.decompose.closed_form import ClosedFormSettings, fit_closed_form
from grd_offline.episodes import Episode, EpisodeSet
from grd_offline.identifiability import examine


def test_inputs_that_move_together_are_named_where_effects_have_rough_mates() -> None:
    rng = np.random.default_rng(0)
    episodes = []
    for _ in range(60):
        walk = np.cumsum(rng.normal(size=(31, 1)), 0)
        states = np.concatenate([walk, walk + 0.3 * rng.normal(size=walk.shape)], 1)
        last = np.arange(30) == 29
        amount = (np.sign(walk[:-1, 0]) + np.sign(states[:-1, 1] - 1)).sum()
        actions = rng.uniform(-1, 1, (30, 1))
        flags = np.zeros(30, bool)
        episodes.append(Episode(states, actions, last * amount, flags, last, last))
    data = EpisodeSet.from_episodes(episodes)
    fit = fit_closed_form(data, ClosedFormSettings(order=1), np.random.default_rng(0))
    assert len(fit.model.columns) > len(fit.correlated_columns)
    findings, _ = examine(fit, data)
    names = fit.model.observation_names
    assert any(
        f"{names[1]} and {names[0]} rise and fall together" in finding.text for finding in findings
    )
