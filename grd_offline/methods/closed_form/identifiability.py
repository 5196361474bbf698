"""What the data can and cannot tell, in words a person understands.

Returns fix rewards only up to what cancels over an episode. These findings say how strongly the
episodes constrain each effect, which inputs are hard to tell apart, whether a telescoping term
h(s') - h(s) could hide below the noise, and whether more episodes would help.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from grd_offline.episodes import EpisodeSet
from grd_offline.methods.closed_form.last_fit import ClosedFormFit
from grd_offline.methods.contract import Finding

Array = NDArray[np.float64]
_WEAK = 0.5
_ALIKE = 0.95
_HIDDEN_SHARE = 0.1
"""A telescoping term of this share of the reward's spread is what might go unseen."""


def examine(fit: ClosedFormFit, episodes: EpisodeSet) -> tuple[list[Finding], dict[str, Any]]:
    """Findings in words, and the numbers behind them."""
    hidden, numbers = _find_hidden(fit, episodes)
    findings = [*_find_weak(fit), *_find_alike(fit), *_find_more(fit, episodes), *hidden]
    if not fit.model.effects:
        findings = [_tell_nothing(episodes)]
    return findings, {
        "equations": _count_equations(episodes),
        "effective_parameters": fit.effective_parameters,
        "pinned_down": _combine_pinned(fit),
        "return_noise_share": 1 - fit.left_out_r2,
        "telescoping": numbers,
    }


def _tell_nothing(episodes: EpisodeSet) -> Finding:
    sums = np.array([float(episode.rewards.sum()) for episode in episodes])
    lengths = np.array([len(episode) for episode in episodes], np.float64)
    rest = sums - lengths * sums.sum() / lengths.sum()
    if np.abs(rest).max() <= 1e-6 * max(float(np.abs(sums).max()), 1e-300):
        text = "Every step earns the same: returns follow from the length of an episode alone."
        return Finding("fine", text)
    text = (
        "Nothing was found to drive the return: no input explains it better than chance, so the "
        "reward is the same at every step."
    )
    return Finding("careful", text)


def _combine_pinned(fit: ClosedFormFit) -> dict[str, float]:
    """By names. An input may have a smooth and a rough effect: the larger counts more."""
    names = fit.model.input_names
    total: dict[str, float] = {}
    weight: dict[str, float] = {}
    shares = np.abs(fit.model.shares) + 1e-9
    for effect, pinned, share in zip(fit.model.effects, fit.pinned, shares, strict=True):
        name = " x ".join(names[i] for i in effect)
        total[name] = total.get(name, 0.0) + float(pinned * share)
        weight[name] = weight.get(name, 0.0) + float(share)
    return {name: total[name] / weight[name] for name in total}


def _find_weak(fit: ClosedFormFit) -> list[Finding]:
    every = _combine_pinned(fit)
    weak = [name for name, pinned in every.items() if pinned < _WEAK]
    if not weak:
        return [Finding("fine", "The episodes pin down every effect that was found.")]
    return [
        Finding(
            "careful",
            f"The episodes leave much of the shape of {len(weak)} of {len(every)} effects "
            f"open ({', '.join(weak[:4])}{' and others' if len(weak) > 4 else ''}): read their "
            "bands, not only their curves.",
        )
    ]


def _find_alike(fit: ClosedFormFit) -> list[Finding]:
    correlation = np.abs(fit.sum_correlation)
    names = fit.correlated_names
    pairs = [
        (names[i], names[j], correlation[i, j])
        for i in range(len(names))
        for j in range(i)
        if correlation[i, j] > _ALIKE
    ]
    return [
        Finding(
            "careful",
            f"{a} and {b} rise and fall together from episode to episode (correlation {r:.2f}): "
            "credit between them is a matter of fine differences.",
        )
        for a, b, r in pairs[:5]
    ]


def _find_more(fit: ClosedFormFit, episodes: EpisodeSet) -> list[Finding]:
    rows, used = _count_equations(episodes), fit.effective_parameters
    if rows >= 3 * used:
        return [
            Finding(
                "fine",
                f"{rows:,} returns determine about {used:.0f} numbers: more episodes would sharpen "
                "the reward only slowly.",
            )
        ]
    return [
        Finding(
            "careful",
            f"{rows:,} returns have to determine about {used:.0f} numbers: about "
            f"{round(3 * used):,} returns would be comfortable. A reward delivered more often "
            "helps as much as more episodes.",
        )
    ]


def _find_hidden(
    fit: ClosedFormFit, episodes: EpisodeSet
) -> tuple[list[Finding], dict[str, float]]:
    """Compare what a term h(s') - h(s) would do to returns with their noise."""
    firsts, lasts, steps, lengths = [], [], [], []
    for episode in episodes[: min(len(episodes), 500)]:
        observations = episode.observations.astype(np.float64)
        if len(observations) < 2:
            continue
        firsts.append(observations[0])
        lasts.append(observations[-1])
        steps.append((np.diff(observations, axis=0) ** 2).mean(axis=0))
        lengths.append(len(episode))
    if not lengths:
        return [], {}
    moved = np.std(np.array(lasts) - np.array(firsts), axis=0)
    per_step = np.sqrt(np.mean(steps, axis=0))
    reward = _reward_spread(fit)
    noise = float(np.sqrt(fit.noise * np.mean(lengths)))
    size = _HIDDEN_SHARE * reward
    change = size * moved / np.where(per_step > 0, per_step, np.inf)
    hidden = [
        name
        for name, c, p in zip(episodes.observation_names, change, per_step, strict=True)
        if p > 0 and c < noise
    ]
    numbers = {name: float(c) for name, c in zip(episodes.observation_names, change, strict=True)}
    if not hidden:
        text = (
            "A term that cancels between steps, h(next state) - h(state), would show in the "
            "returns if it were a tenth of the reward's spread."
        )
        return [Finding("fine", text)], {"return_noise": noise, **numbers}
    shown = ", ".join(hidden[:4]) + (f" and {len(hidden) - 4} more" if len(hidden) > 4 else "")
    text = (
        f"A term h(next state) - h(state) of a tenth of the reward's spread could hide in {shown}: "
        "it would change returns by less than their noise. Such a term moves reward between "
        "neighbouring steps and changes no return and no best policy."
    )
    return [Finding("careful", text)], {"return_noise": noise, **numbers}


def _reward_spread(fit: ClosedFormFit) -> float:
    spread = 0.0
    for curve in fit.model.explain().effects:
        spread += float(np.var(curve.mean))
    return float(np.sqrt(spread))


def _count_equations(episodes: EpisodeSet) -> int:
    return sum(int(episode.delivered.sum()) for episode in episodes)
