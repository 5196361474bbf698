"""The choice of a fit, decided by returns of episodes that no candidate has seen.

The rule of `auto`. The closed form is fitted to part of the episodes and predicts the returns of
the others. Where it explains at least `GOOD_ENOUGH` of their variance it is taken: returns cannot
tell finer differences in the rewards apart, and the closed form is the fit that can be explained.
With fewer than `FEWEST_TO_COMPARE` held-out returns it is taken too: they could not tell. Else two
plain explanations compete, at nearly no cost: `linear`, and `uniform`, in which returns follow from
the length of an episode alone.

- A candidate beats the closed form if its squared errors on the held-out returns are smaller by at
  least a tenth, and by more than two standard errors of the paired differences. Of several that do,
  the one with the smallest errors wins.
- Where the linear fit is level with the closed form, so that neither beats the other, the reward is
  the average of both, and its bands cover both.
- `masked-net` and `pair-net` challenge the closed form only where they can win: it explains more
  than `LITTLE` (else there is little to learn), and there are at least `FEWEST_TO_CHALLENGE`
  returns to train on. A quarter of the training decides whether a
  challenger goes on: if its errors are then more than `HOPELESS` times those of the closed form, it
  stops there. Its time is measured in a short trial and told first.

The winner is fitted again to all episodes. Nearly always that is the closed form, so this fit of it
begins at once in a second process, if there is a core for it (`grd_offline.core.process`). Where
outcomes are labels of success or preferences, the closed form is the only fit with a link for them,
and is not challenged.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grd_offline.core.episodes import Episode, EpisodeSet, cut_pieces
from grd_offline.core.errors import DataError
from grd_offline.core.observer import Progress
from grd_offline.core.outcomes import NUMBER, PREFERENCE, SUCCESS, Outcome
from grd_offline.core.packages import is_installed
from grd_offline.core.process import Call
from grd_offline.core.statistics import compute_coverage, r_squared, soften_chance
from grd_offline.core.threads import count_cores, one_numpy_thread, one_torch_thread
from grd_offline.core.typing import Array
from grd_offline.methods.contract import Decomposer
from grd_offline.methods.registry import AUTO, find_method, make_decomposer
from grd_offline.methods.settings import DecomposeSettings
from grd_offline.rewards.effects import EffectModel, average_effects

MOST_LISTED = 1000  # held-out returns that are listed
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
        voting, true, predicted = self.find_voters(), self.true, self.predicted
        about = {
            "fit": self.fit,
            "held_out_return_r2": r_squared(predicted, true),
            "held_out_return_r2_without_outliers": r_squared(predicted[voting], true[voting]),
            "held_out_return_coverage_90": compute_coverage(predicted, self.std, true),
            "held_out_returns": len(true),
            "outcome": self.outcome,
            "held_out_returns_differ": len(true) > 0 and bool(np.ptp(true) > 0),
        }
        if self.outcome != NUMBER and (spread := float(true.var()) if len(true) else 0.0):
            # The R² of labels that come out by chance as often as predicted.
            about["held_out_chance_r2"] = 1 - float((self.std**2).mean()) / spread
        return about

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


def judge(decomposer: Decomposer, name: str, held_out: EpisodeSet) -> Candidate:
    """Judge a fitted estimator by held-out returns."""
    true, predicted, std, sizes = _predict_all(decomposer, held_out)
    outcome = decomposer.function_.outcome
    if outcome != NUMBER:
        sizes = np.ones_like(sizes)
    errors = (true - predicted) ** 2 / sizes
    step_std = float(np.sqrt(errors.mean()))
    if not decomposer.function_.knows_std:
        std = step_std * np.sqrt(sizes)
    return Candidate(name, decomposer, true, predicted, std, errors, step_std, outcome)


def _predict_all(decomposer: Decomposer, episodes: EpisodeSet) -> tuple[Array, Array, Array, Array]:
    """Predict the amounts of all episodes. Returns true and predicted amounts, their spread, and
    sums of squared weights.

    Of preferences, it is the probability that the first piece of each pair is preferred.
    """
    given, discount = episodes.preferences, decomposer.discount
    if given is not None:
        pieces, first, second = cut_pieces(episodes)
        sums = [decomposer.predict_amounts(piece, discount) for piece in pieces]
        means = np.array([float(mean[0]) for mean, _ in sums])
        stds = np.array([0.0 if std is None else float(std[0]) for _, std in sums])
        gap = np.sqrt(stds[first] ** 2 + stds[second] ** 2)
        chances = soften_chance(means[first] - means[second], gap)
        return given.preferred, chances, np.sqrt(chances * (1 - chances)), np.ones(len(given))
    parts = [(np.zeros(0),) * 4]
    for episode in episodes:
        starts, stops, amounts = episode.segments()
        if len(stops):
            weights = discount ** np.arange(stops[-1])
            mean, std = decomposer.predict_amounts(episode, discount)
            std = std if std is not None else np.zeros(len(starts))
            sizes = np.add.reduceat(weights**2, starts)
            parts.append((amounts.astype(np.float64), mean, std, sizes))
    true, predicted, std, sizes = (np.concatenate(column) for column in zip(*parts, strict=True))
    return true, predicted, std, sizes


_WORTH = 3.0  # seconds; starting a process takes about one
_MOST_BYTES = 400_000_000  # of observations and actions, which the second process holds again


def estimate_fit_seconds(episodes: int, steps: int, states: int, actions: int) -> float:
    """Rough seconds of the closed form on one core, from the size of the data.

    They were read off runs on the sample, Hopper, HalfCheetah, Ant and a world with a known graph.
    """
    inputs = states + actions
    pairs = inputs * (inputs - 1) // 2
    seen = min(steps, 100_000)
    return 1 + 2.5e-6 * inputs * seen + (0.01 + 6e-5 * min(pairs, 6000)) * episodes


def is_worth_a_process(episodes: EpisodeSet) -> bool:
    """Whether a fit to these episodes is long enough for a second process, and has a core."""
    sizes = episodes.state_size, episodes.action_size
    seconds = estimate_fit_seconds(len(episodes), episodes.total_steps, *sizes)
    held = 8 * episodes.total_steps * sum(sizes)
    return count_cores() > 1 and seconds > _WORTH and held < _MOST_BYTES


GOOD_ENOUGH = 0.95  # R² of held-out returns at which nothing else is tried
MARGIN = 0.9  # times the error of the other fit: a better one has less
HELD_OUT = 0.2  # share of the episodes that are held out
FEWEST_TO_COMPARE = 20  # outcomes held out, without which no fit is compared
FEWEST_TO_CHALLENGE = 200  # outcomes, without which no network is tried
LITTLE = 0.2  # R² of held-out returns, up to which no network is tried
HOPELESS = 1.5  # times the error of the closed form, at which a network is given up early
CLOSED = "closed-form"
SIMPLE = ("linear", "uniform")
CHALLENGERS = ("masked-net", "pair-net")
AVERAGE = "closed-form and linear, averaged"
MOST_FITTED = 5_000
"""Largest number of deliveries that rewards are fitted to. If there are more, so many are drawn.
All steps get their rewards."""
_MOST_COMPARED = 200  # episodes over which two fits are averaged
_TOLD = {
    SUCCESS: "outcomes are success or failure: the closed form with a logistic link",
    PREFERENCE: "preferences: the closed form with a logistic link",
}
_MANY_TIMES = 1000  # larger ratios are not printed
_COMPARING = "comparing with other fits: "
_TRIALS = (0.0, 0.01, 0.03)  # of a network's updates, to time it; the first one warms up
FEWEST = 10
"""With fewer episodes, no episode is held out, because a test would be worthless."""


@dataclass(frozen=True, eq=False)
class Choice:
    """The fit that was chosen, fitted to all episodes, with the reason."""

    decomposer: Decomposer
    fit: str
    reason: str
    candidates: tuple[Candidate, ...]
    step_std: float

    @property
    def winner(self) -> Candidate | None:
        """The candidate that was chosen; None where no returns were held out."""
        return next((one for one in self.candidates if one.fit == self.fit), None)

    def describe(self) -> dict[str, Any]:
        """Describe the choice for `metrics.json`."""
        return {
            **(self.winner.describe() if self.winner else {}),
            "fit": self.fit,
            "reason": self.reason,
            "alternatives": [one.describe() for one in self.candidates],
        }

    def relabel_episode(self, episode: Episode) -> tuple[Array, Array]:
        """Compute the reward of each step and its standard deviation: (T,) each."""
        rewards, spread = self.decomposer.relabel_with_spread(episode)
        if not self.decomposer.function_.knows_std:
            spread = np.full(len(episode), self.step_std)
        return rewards, spread


@one_numpy_thread()
def choose(
    episodes: EpisodeSet,
    settings: DecomposeSettings,
    discount: float,
    rng: np.random.Generator,
    progress: Progress,
    meanwhile: Callable[[], object] = lambda: None,
) -> Choice:
    """Fit the method, or for `auto` the winner among its fits, and test it on held-out returns.

    If the last fit runs in a second process, `meanwhile` is called before the wait for it.
    """
    first = find_method(settings.method, settings.fit)
    name = first.fit or first.name
    contest = _Contest(episodes, settings, discount, rng, progress, meanwhile)
    if episodes.preferences is not None and name != CLOSED:
        raise DataError(f"{name} learns from returns, not from preferences", field="preferences")
    if count_outcomes(episodes) < FEWEST:
        alone = contest.make(name).learn(episodes, rng=rng, progress=contest.report_last)
        return _leave_untested(alone, name, episodes)
    with ExitStack() as stack:
        if name == CLOSED and is_worth_a_process(episodes):
            call = Call(fit_to, contest.make(name), episodes.load_all(), contest.last_rng)
            contest.beside = stack.enter_context(call)
        contest.try_fit(name, "testing on held-out episodes: ")
        if settings.fit == AUTO and first.fit is not None:
            return contest.run()
        return contest.finish(name, f"{name} was asked for")


def judge_fitted(
    decomposer: Decomposer, name: str, episodes: EpisodeSet, rng: np.random.Generator
) -> Choice:
    """Test a fitted estimator: a fresh one learns from a part of its episodes, as in `choose`."""
    if count_outcomes(episodes) < FEWEST:
        return _leave_untested(decomposer, name, episodes)
    rng.spawn(1)  # those of the last fit
    training, held_out = split(episodes, rng)
    fresh = type(decomposer)(**decomposer.get_params()).learn(training, rng=rng)
    tested = judge(fresh, name, held_out)
    return Choice(decomposer, name, f"{name} was asked for", (tested,), tested.step_std)


def _leave_untested(decomposer: Decomposer, name: str, episodes: EpisodeSet) -> Choice:
    """The choice of the only fit where there are too few outcomes to hold out any."""
    told = "episodes" if episodes.preferences is None else "preferences"
    reason = f"only {count_outcomes(episodes)} {told}: none were held out, nothing was compared"
    true, predicted, _, sizes = _predict_all(decomposer, episodes)
    errors = (true - predicted) ** 2 / sizes
    step_std = float(np.sqrt(errors.mean())) if len(true) else 0.0
    return Choice(decomposer, name, reason, (), step_std)


@dataclass(eq=False)
class _Contest:
    """Fits of the same episodes that are judged by the same held-out returns."""

    episodes: EpisodeSet
    settings: DecomposeSettings
    discount: float
    rng: np.random.Generator
    progress: Progress
    meanwhile: Callable[[], object]

    def __post_init__(self) -> None:
        self.last_rng = self.rng.spawn(1)[0]  # the same numbers in whichever process
        self.report_last = _prefix(self.progress, "fitting the rewards: ")
        self.beside: Call | None = None
        """The last fit in a second process, if it has begun."""
        self.candidates: list[Candidate] = []
        if count_outcomes(self.episodes) >= FEWEST:
            self.training, self.held_out = split(self.episodes, self.rng)

    def make(self, fit: str, **more: Any) -> Decomposer:
        """Make the estimator of a fit, or of a method of that name."""
        method, which = ("uniform", None) if fit == "uniform" else (self.settings.method, fit)
        names = ("next_state", "state_at", "outcome", "device")
        options = {name: getattr(self.settings, name) for name in names}
        return make_decomposer(method, which, discount=self.discount, **options, **more)

    def try_fit(self, fit: str, told: str, **more: Any) -> Candidate:
        """Fit to the training part, and predict the returns of the other."""
        found = self._try(fit, _prefix(self.progress, told), **more)
        self.candidates.append(found)
        return found

    def _try(self, fit: str, progress: Progress, **more: Any) -> Candidate:
        decomposer = self.make(fit, **more)
        if self.candidates:
            decomposer.start_from(self.candidates[0].decomposer)
        decomposer.learn(self.training, rng=self.rng, progress=progress)
        return judge(decomposer, fit, self.held_out)

    def run(self) -> Choice:
        """Apply the rule of `auto`."""
        closed = self.candidates[0]
        if closed.outcome != NUMBER:
            return self.finish(closed.fit, _TOLD[closed.outcome])
        voting = closed.find_voters()
        explained = r_squared(closed.predicted[voting], closed.true[voting])
        if (count := len(closed.true)) < FEWEST_TO_COMPARE:
            reason = f"only {count} returns to judge by: the closed form, not challenged"
            return self.finish(closed.fit, reason)
        if explained >= GOOD_ENOUGH:
            reason = f"the closed form explains {explained:.3f} of held-out returns: not challenged"
            return self.finish(closed.fit, reason)
        rivals = [self.try_fit(fit, f"{_COMPARING}{fit}: ") for fit in SIMPLE]
        is_asked = self.settings.next_state or self.settings.state_at != AUTO
        returns = sum(int(episode.delivered.sum()) for episode in self.training)
        is_worth_it = not is_asked and explained > LITTLE and returns >= FEWEST_TO_CHALLENGE
        can_train = is_installed("torch")
        if is_worth_it and can_train:
            with one_torch_thread():
                rivals += [found for fit in CHALLENGERS if (found := self._challenge(fit, closed))]
        winner, figures = _compare(closed, rivals)
        if is_worth_it and not can_train:
            figures = f"{figures}; no network competed, because torch is not installed"
        if winner is closed and _are_level(closed, rivals[0]):
            return self._finish_average(f"neither fit is clearly better; {figures}")
        verdict = "no other fit is clearly better" if winner is closed else f"{winner.fit} wins"
        return self.finish(winner.fit, f"{verdict}; {figures}")

    def _challenge(self, fit: str, closed: Candidate) -> Candidate | None:
        """Train a network for a quarter of its time, and to the end if that is promising."""
        whole = self.make(fit).get_params()
        updates = {name: whole[name] for name in whole if name.endswith("updates")}
        # Two short trials tell how long it takes, after one that loads torch.
        timed = []
        for share in _TRIALS:
            start = time.perf_counter()
            few = {name: max(1, round(share * count)) for name, count in updates.items()}
            self._try(fit, _prefix(self.progress, f"{_COMPARING}{fit}, timed: "), **few)
            timed.append(time.perf_counter() - start)
        _, short, long = timed
        seconds = short + max(0.0, long - short) / (_TRIALS[2] - _TRIALS[1])
        quarter = {name: count // 4 for name, count in updates.items()}
        told = (
            f"{_COMPARING}{fit}, about {seconds / 4:.0f} s for a first quarter, and "
            f"{seconds:.0f} s more if that is promising: "
        )
        early = self._try(fit, _prefix(self.progress, told), **quarter)
        if early.errors.mean() > HOPELESS * closed.errors.mean():
            return None
        return self.try_fit(fit, told)

    def fit_last(self, fit: str) -> Decomposer:
        """Fit to all episodes, or wait for the fit that has begun already."""
        if fit == CLOSED and self.beside is not None:
            self.meanwhile()
            self.report_last("second process", 0.0)
            if (found := self.beside.finish()) is not None:
                fitted: Decomposer = found[0]
                return fitted.remember(self.episodes)
        rng = self.last_rng if fit == CLOSED else self.rng
        return self.make(fit).learn(self.episodes, rng=rng, progress=self.report_last)

    def finish(self, fit: str, reason: str) -> Choice:
        """Fit the winner to all episodes."""
        winner = next(one for one in self.candidates if one.fit == fit)
        return Choice(self.fit_last(fit), fit, reason, tuple(self.candidates), winner.step_std)

    def _finish_average(self, reason: str) -> Choice:
        """Fit both to all episodes and average their rewards."""
        closed, linear = (one.decomposer for one in self.candidates[:2])
        average_decomposers(closed, linear, self.training)
        tested = judge(closed, AVERAGE, self.held_out)
        chosen, other = (self.fit_last(fit) for fit in (CLOSED, "linear"))
        average_decomposers(chosen, other, self.episodes)
        return Choice(chosen, AVERAGE, reason, (*self.candidates, tested), tested.step_std)


def fit_to(decomposer: Decomposer, episodes: EpisodeSet, rng: np.random.Generator) -> Decomposer:
    """Fit to the episodes. A function, so that another process can find it."""
    return decomposer.learn(episodes, rng=rng)


def average_decomposers(closed: Decomposer, linear: Decomposer, episodes: EpisodeSet) -> None:
    """Make the closed form's reward the average of both, which depends on every input."""
    first, second = closed.function_, linear.function_
    assert isinstance(first, EffectModel)
    assert isinstance(second, EffectModel)
    gaps = [
        (closed.predict_episode(episode) - linear.predict_episode(episode)) ** 2
        for episode in episodes[: min(len(episodes), _MOST_COMPARED)]
    ]
    closed.function_ = average_effects(first, second, float(np.concatenate(gaps).mean()))
    closed.masks_ = {
        "state_to_reward": np.ones(episodes.state_size, np.int64),
        "action_to_reward": np.ones(episodes.action_size, np.int64),
    }


def _are_level(one: Candidate, other: Candidate) -> bool:
    """Whether neither has clearly smaller errors."""
    gain, error, ratio = _measure_gain(one, other)
    return ratio < 1 / MARGIN or abs(gain) < error


def _measure_gain(closed: Candidate, other: Candidate) -> tuple[float, float, float]:
    """Measure by how much the squared errors of the other fit are smaller, with the standard error
    and the ratio."""
    voting = closed.find_voters()
    mine, theirs = closed.errors[voting], other.errors[voting]
    error = float((mine - theirs).std() / max(1.0, np.sqrt(len(mine))))
    ratio = float(theirs.mean() / max(float(mine.mean()), 1e-300))
    return float((mine - theirs).mean()), error, ratio


def count_outcomes(episodes: EpisodeSet) -> int:
    """Count the episodes or pairs to learn from."""
    return len(episodes if episodes.preferences is None else episodes.preferences)


def draw_episodes(episodes: EpisodeSet, deliveries: int, rng: np.random.Generator) -> EpisodeSet:
    """Draw episodes at random that hold about `MOST_FITTED` of all deliveries. If there are fewer,
    take all.

    A fit to more takes gigabytes, and gains little. The same holds for preferences.
    """
    count = MOST_FITTED
    if episodes.preferences is not None:
        deliveries = len(episodes.preferences)
    elif deliveries:
        count = max(min(len(episodes), FEWEST), round(len(episodes) * MOST_FITTED / deliveries))
    if deliveries <= MOST_FITTED:
        return episodes
    return _take(episodes, rng.choice(count_outcomes(episodes), count, replace=False))


def split(episodes: EpisodeSet, rng: np.random.Generator) -> tuple[EpisodeSet, EpisodeSet]:
    """Split the episodes into those to fit to and those to test with."""
    order = rng.permutation(count_outcomes(episodes))
    count = max(1, round(HELD_OUT * len(order)))
    return _take(episodes, order[count:]), _take(episodes, order[:count])


def _take(episodes: EpisodeSet, chosen: NDArray[np.int64]) -> EpisodeSet:
    """Some of the episodes, or all of them with some of the preferences, in their order."""
    if episodes.preferences is None:
        return episodes[np.sort(chosen)]
    return replace(episodes, preferences=episodes.preferences[np.sort(chosen)])


def _compare(closed: Candidate, challengers: list[Candidate]) -> tuple[Candidate, str]:
    """Choose the winner by the rule above. Returns it with the errors of all in words."""
    winner, told = closed, []
    for challenger in challengers:
        gain, error, ratio = _measure_gain(closed, challenger)
        beats = ratio < MARGIN and gain > 2 * error
        if beats and challenger.errors.mean() < winner.errors.mean():
            winner = challenger
        size = f"{ratio:.2f}" if ratio < _MANY_TIMES else f"over {_MANY_TIMES:,}"
        doubt = " (not clearly smaller)" if ratio < 1 and not beats else ""
        told.append(f"{challenger.fit} {size}{doubt}")
    unit = "squared errors on held-out returns, in units of the closed form's"
    return winner, f"{unit}: {', '.join(told)}"


def _prefix(progress: Progress, text: str) -> Callable[[str, float], None]:
    return lambda stage, share: progress(f"{text}{stage}", share)
