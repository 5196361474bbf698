"""A candidate of a contest between fits, and its errors on returns that it has not seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grd_offline.core.episodes import EpisodeSet, cut_pieces
from grd_offline.core.outcomes import NUMBER, Outcome
from grd_offline.core.statistics import compute_coverage, r_squared, soften_chance
from grd_offline.core.typing import Array
from grd_offline.methods.contract import Decomposer

MOST_LISTED = 1000
_FAR = 10.0  # times the usual error
_NEAR = 0.03  # of the spread of the returns


@dataclass(frozen=True, eq=False)
class Candidate:
    """A candidate, and its errors on returns that it had not seen."""

    fit: str
    decomposer: Decomposer
    true: Array
    predicted: Array
    std: Array
    errors: Array
    """Squared errors per step of the segment, for comparing candidates."""
    step_std: float
    """Spread of a step's reward that the held-out returns speak for."""
    outcome: Outcome = NUMBER

    def describe(self) -> dict[str, Any]:
        """Describe the candidate for `metrics.json`."""
        voting = self.find_voters()
        return {
            "fit": self.fit,
            "held_out_return_r2": r_squared(self.predicted, self.true),
            "held_out_return_r2_without_outliers": r_squared(
                self.predicted[voting], self.true[voting]
            ),
            "held_out_return_coverage_90": compute_coverage(self.predicted, self.std, self.true),
            "held_out_returns": len(self.true),
            "outcome": self.outcome,
            "held_out_returns_differ": len(self.true) > 0 and bool(np.ptp(self.true) > 0),
            **self._describe_chance(),
        }

    def _describe_chance(self) -> dict[str, float]:
        """Describe the R² of labels that come out by chance as often as predicted."""
        spread = float(self.true.var()) if len(self.true) else 0.0
        if self.outcome == NUMBER or spread == 0:
            return {}
        return {"held_out_chance_r2": 1 - float((self.std**2).mean()) / spread}

    def find_voters(self) -> NDArray[np.bool_]:
        """(return,) the returns that have a vote: those that are not far from any explanation.

        Labels all have one: where one is unlikely, that is what labels are there to tell.
        """
        if self.outcome != NUMBER:
            return self.errors >= 0
        usual = float(np.median(self.errors))
        # Where nearly all is explained, hardly anything is far: most errors may be rounding.
        near = np.abs(self.true - self.predicted) < _NEAR * self.true.std()
        return np.asarray(near | (self.errors <= _FAR**2 * usual)) if usual > 0 else near | True

    def list_returns(self) -> dict[str, list[float]]:
        """List held-out returns and their predictions: at most `MOST_LISTED`, evenly chosen."""
        count = min(len(self.true), MOST_LISTED)
        keep = np.linspace(0, len(self.true) - 1, count).round().astype(np.int64)
        parts = {"observed": self.true, "predicted": self.predicted, "std": self.std}
        return {name: part[keep].tolist() for name, part in parts.items()}


def judge(
    decomposer: Decomposer, name: str, held_out: EpisodeSet, settings: dict[str, Any]
) -> Candidate:
    """Judge a fitted estimator by held-out returns."""
    true, predicted, std, sizes = _predict_all(decomposer, held_out, settings["discount"])
    outcome = decomposer.function_.outcome
    if outcome != NUMBER:
        sizes = np.ones_like(sizes)
    errors = (true - predicted) ** 2 / sizes
    step_std = float(np.sqrt(errors.mean()))
    if not decomposer.function_.knows_std:
        std = step_std * np.sqrt(sizes)
    return Candidate(name, decomposer, true, predicted, std, errors, step_std, outcome)


def _predict_all(
    decomposer: Decomposer, episodes: EpisodeSet, discount: float
) -> tuple[Array, Array, Array, Array]:
    """Predict the amounts of all episodes. Returns true and predicted amounts, their spread, and
    sums of squared weights."""
    if episodes.preferences is not None:
        return _predict_preferences(decomposer, episodes, discount)
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


def _predict_preferences(
    decomposer: Decomposer, episodes: EpisodeSet, discount: float
) -> tuple[Array, Array, Array, Array]:
    """Predict preferences: the probability that the first piece of each pair is preferred."""
    assert episodes.preferences is not None
    pieces, first, second = cut_pieces(episodes)
    sums = [decomposer.predict_amounts(piece, discount) for piece in pieces]
    means = np.array([float(mean[0]) for mean, _ in sums])
    stds = np.array([0.0 if std is None else float(std[0]) for _, std in sums])
    gap = np.sqrt(stds[first] ** 2 + stds[second] ** 2)
    chances = soften_chance(means[first] - means[second], gap)
    true = episodes.preferences.preferred
    return true, chances, np.sqrt(chances * (1 - chances)), np.ones(len(true))


def find_in_sample_std(
    decomposer: Decomposer, episodes: EpisodeSet, settings: dict[str, Any]
) -> float:
    """Find the spread of a step's reward from the returns of the fit itself."""
    true, predicted, _, sizes = _predict_all(decomposer, episodes, settings["discount"])
    return float(np.sqrt(((true - predicted) ** 2 / sizes).mean())) if len(true) else 0.0
