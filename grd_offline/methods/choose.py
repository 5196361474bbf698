"""Which fit to use: decided by returns of episodes that no candidate has seen.

The rule of `auto`. The closed form is fitted to part of the episodes and predicts the returns of
the others. Where it explains at least `GOOD_ENOUGH` of their variance it is taken: returns cannot
tell finer differences in the rewards apart, and the closed form is the fit that can be explained.
With fewer than `FEWEST_TO_COMPARE` held-out returns it is taken too: they could not tell.
Else `masked-net` and `pair-net` are fitted to the same part and challenge it: a challenger beats it
if its squared errors on the held-out returns are smaller by at least a tenth, and by more than two
standard errors of the paired differences. Of several that do, the one with the smallest errors
wins. The winner is fitted again to all episodes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grd_offline.episodes import EpisodeSet
from grd_offline.evaluate import compute_coverage, r_squared
from grd_offline.methods.contract import Decomposer, Progress
from grd_offline.methods.registry import AUTO, find_method, make_decomposer
from grd_offline.rewards.contract import Array

GOOD_ENOUGH = 0.95
MARGIN = 0.9
HELD_OUT = 0.2
FEWEST_TO_COMPARE = 20
CHALLENGERS = ("masked-net", "pair-net")
MOST_LISTED = 1000
FEWEST = 10
"""With fewer episodes none are held out: there is nothing to decide by."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """A candidate and how it did on returns it had not seen."""

    fit: str
    decomposer: Decomposer
    true: Array
    predicted: Array
    std: Array
    errors: Array
    """Squared errors per step of the segment, for comparing candidates."""
    step_std: float
    """Spread of a step's reward that the held-out returns speak for."""

    def describe(self) -> dict[str, Any]:
        """For `metrics.json`."""
        return {
            "fit": self.fit,
            "held_out_return_r2": r_squared(self.predicted, self.true),
            "held_out_return_coverage_90": compute_coverage(self.predicted, self.std, self.true),
            "held_out_returns": len(self.true),
        }

    def list_returns(self) -> dict[str, list[float]]:
        """Returns held out and what was predicted for them; at most `MOST_LISTED`, evenly."""
        count = min(len(self.true), MOST_LISTED)
        keep = np.linspace(0, len(self.true) - 1, count).round().astype(np.int64)
        parts = {"observed": self.true, "predicted": self.predicted, "std": self.std}
        return {name: part[keep].tolist() for name, part in parts.items()}


@dataclass(frozen=True, eq=False)
class Choice:
    """The fit that was chosen, fitted to all episodes, and why."""

    decomposer: Decomposer
    fit: str
    reason: str
    candidates: tuple[Candidate, ...]
    step_std: float

    @property
    def winner(self) -> Candidate | None:
        """The candidate that was chosen; None where no returns were held out."""
        return next((one for one in self.candidates if one.fit == self.fit), None)


def choose(
    episodes: EpisodeSet,
    method: str,
    fit: str,
    settings: dict[str, Any],
    rng: np.random.Generator,
    progress: Progress,
) -> Choice:
    """Fit the method, or for `auto` the winner among its fits, and test it on held-out returns."""
    first = find_method(method, fit)
    name = first.fit or first.name

    def make(which: str) -> Decomposer:
        return make_decomposer(method, which, **settings)

    if len(episodes) < FEWEST:
        alone = make(name).fit(episodes, rng=rng, progress=progress)
        reason = f"only {len(episodes)} episodes: none were held out, nothing was compared"
        return Choice(alone, name, reason, (), _in_sample_std(alone, episodes, settings))
    training, held_out = split(episodes, rng)
    candidates = [
        _try(make(name), name, training, held_out, settings, rng, _prefix(progress, "judging: "))
    ]
    winner, reason = candidates[0], f"{name} was asked for"
    if fit == AUTO and first.fit is not None:
        explained = r_squared(winner.predicted, winner.true)
        reason = f"the closed form explains {explained:.3f} of held-out returns: not challenged"
        if len(winner.true) < FEWEST_TO_COMPARE:
            reason = f"only {len(winner.true)} returns to judge by: the closed form, not challenged"
        elif explained < GOOD_ENOUGH and not settings.get("next_state"):
            for challenger in CHALLENGERS:
                told = _prefix(progress, f"challenger {challenger}: ")
                candidates.append(
                    _try(make(challenger), challenger, training, held_out, settings, rng, told)
                )
            winner, reason = _compare(candidates[0], candidates[1:])
    chosen = make(winner.fit)
    chosen.fit(episodes, rng=rng, progress=progress)
    return Choice(chosen, winner.fit, reason, tuple(candidates), winner.step_std)


def split(episodes: EpisodeSet, rng: np.random.Generator) -> tuple[EpisodeSet, EpisodeSet]:
    """Episodes to fit to, and episodes to test with."""
    order = rng.permutation(len(episodes))
    count = max(1, round(HELD_OUT * len(episodes)))
    return episodes[np.sort(order[count:])], episodes[np.sort(order[:count])]


def _try(
    decomposer: Decomposer,
    name: str,
    training: EpisodeSet,
    held_out: EpisodeSet,
    settings: dict[str, Any],
    rng: np.random.Generator,
    progress: Progress,
) -> Candidate:
    decomposer.fit(training, rng=rng, progress=progress)
    true, predicted, std, sizes = _predict_all(decomposer, held_out, settings["discount"])
    errors = (true - predicted) ** 2 / sizes
    step_std = float(np.sqrt(errors.mean()))
    if not decomposer.function_.knows_std:
        std = step_std * np.sqrt(sizes)
    return Candidate(name, decomposer, true, predicted, std, errors, step_std)


def _predict_all(
    decomposer: Decomposer, episodes: EpisodeSet, discount: float
) -> tuple[Array, Array, Array, Array]:
    """True and predicted amounts of all episodes, their spread, and sums of squared weights."""
    parts: list[tuple[NDArray[Any], ...]] = []
    for episode in episodes:
        starts, stops, amounts = episode.segments()
        if not len(stops):
            continue
        paid = slice(0, int(stops[-1]))
        weights = discount ** np.arange(paid.stop)
        sizes = np.add.reduceat(weights**2, starts)
        mean, std = decomposer.predict_amounts(episode, discount)
        std = std if std is not None else np.zeros(len(starts))
        parts.append((amounts.astype(np.float64), mean, std, sizes))
    if not parts:
        return np.zeros(0), np.zeros(0), np.zeros(0), np.ones(0)
    true, predicted, std, sizes = (np.concatenate(column) for column in zip(*parts, strict=True))
    return true, predicted, std, sizes


def _compare(closed: Candidate, challengers: list[Candidate]) -> tuple[Candidate, str]:
    """The winner by the rule above, and what is said of it."""
    winner, reasons = closed, []
    for challenger in challengers:
        gain = closed.errors - challenger.errors
        error = float(gain.std() / max(1.0, np.sqrt(len(gain))))
        ratio = float(challenger.errors.mean() / max(float(closed.errors.mean()), 1e-300))
        beats = ratio < MARGIN and float(gain.mean()) > 2 * error
        if beats and challenger.errors.mean() < winner.errors.mean():
            winner = challenger
        reasons.append(f"{challenger.fit}'s is {ratio:.2f} of it")
    verdict = f"{winner.fit} wins" if winner is not closed else "the closed form stands"
    return (
        winner,
        f"{verdict}: against the closed form's held-out squared error, {', '.join(reasons)}",
    )


def _in_sample_std(decomposer: Decomposer, episodes: EpisodeSet, settings: dict[str, Any]) -> float:
    true, predicted, _, sizes = _predict_all(decomposer, episodes, settings["discount"])
    return float(np.sqrt(((true - predicted) ** 2 / sizes).mean())) if len(true) else 0.0


def _prefix(progress: Progress, text: str) -> Callable[[str, float], None]:
    return lambda stage, share: progress(f"{text}{stage}", share)
