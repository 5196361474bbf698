"""Findings on what the bands of steps assume about the noise of returns."""

from __future__ import annotations

import numpy as np

from grd_offline.core.episodes import EpisodeSet, have_same_length
from grd_offline.core.outcomes import NUMBER
from grd_offline.methods.closed_form.last_fit import ClosedFormFit
from grd_offline.methods.closed_form.share_words import (
    TOO_MUCH_HIDDEN,
    bound_correlation,
    show_share,
)
from grd_offline.methods.contract import CAREFUL, FINE, Finding

_MUCH_NOISE = 0.05
"""Standard deviation of the noise of steps, as a share of that of the rewards, that matters."""
_SHARED_NOISE = 0.01
"""Ratio of shared noise to noise of steps that is worth a word."""


def measure_step_noise(fit: ClosedFormFit) -> float:
    """Variance of the noise that single steps are said to have, as bands show it."""
    return fit.model.noise_variance * (1 - fit.model.lasting_share) * fit.model.inflation**2


def find_noise_sources(fit: ClosedFormFit, episodes: EpisodeSet, spread: float) -> list[Finding]:
    """Describe where the noise of returns comes from, or what bands assume if nothing shows it."""
    model, step = fit.model, measure_step_noise(fit)
    if model.shared_variance > model.noise_variance * _SHARED_NOISE:
        text = (
            "Much of the noise of returns is shared by all steps of an episode: returns of longer "
            "episodes vary more than independent steps would explain. The bands take that in."
        )
        return [Finding(FINE, text)]
    if model.whole_variance > 0:
        text = (
            "Part of the noise belongs to returns as a whole: those of short episodes vary as much "
            "as those of long ones. The bands of single steps leave it out."
        )
        return [Finding(FINE, text)]
    if not is_noise_open(fit, episodes, spread):
        return []
    share = float(np.sqrt(step)) / max(spread, 1e-300)
    text = (
        "The bands of steps hold on one condition: that what returns leave unexplained is noise "
        f"of single steps, {show_share(share)} of the spread of the rewards. Episodes of one "
        "length cannot show that. If it is noise of whole returns, or an influence that lasts over "
        "many steps, these bands are too wide."
    )
    return [Finding(FINE, text)]


def find_noisy_steps(fit: ClosedFormFit, spread: float) -> list[Finding]:
    """Tell where single steps pay something else than expected, so that few rewards are near it."""
    share = float(np.sqrt(measure_step_noise(fit))) / max(spread, 1e-300)
    if not fit.model.effects or fit.outcome != NUMBER or share < TOO_MUCH_HIDDEN:
        return []
    text = (
        f"What returns leave unexplained is as large as noise of {show_share(share)} of the spread "
        "of the rewards at every step. These are expected rewards: if that is what it is, their "
        "correlation with what each step really paid is about "
        f"{bound_correlation(share):.2f}. If every return is exactly the sum of what its steps "
        "paid, the option --exact-returns spreads the rest over the steps."
    )
    return [Finding(CAREFUL, text, "single steps are mostly noise")]


def is_noise_open(fit: ClosedFormFit, episodes: EpisodeSet, spread: float) -> bool:
    """Whether much noise is shared out over single steps, and nothing shows that it is theirs."""
    model = fit.model
    if model.shared_variance > model.noise_variance * _SHARED_NOISE or model.whole_variance > 0:
        return False
    lengths = np.array([len(episode) for episode in episodes], np.float64)
    share = float(np.sqrt(measure_step_noise(fit))) / max(spread, 1e-300)
    return have_same_length(lengths) and share >= _MUCH_NOISE
