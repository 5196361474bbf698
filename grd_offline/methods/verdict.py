"""The verdict: one line that says whether rewards can be used. The terminal and the report show it
first.

The findings of a method say what returns leave open. To these come findings on returns held out,
on the true rewards where they are known, and on what returns may hold other than rewards of steps,
whatever the method:

- *A fixed amount*, as in scores that do not start at 0, fees, and averages over steps. Where
  episodes differ in length it shows: what the rewards leave unexplained is then a constant, and
  not noise about 0.
- *A total* that grows during an episode, such as a score so far, among the inputs. It may also lack
  the last step, as a score before each move does, or the first one, as an amount that is left after
  it. Then it has the unit of the returns, and what it leaves unexplained is no more than one of its
  own steps.
- *Copies* of episodes: a merge went wrong, or a log was written twice.

The worst finding decides the verdict.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from grd_offline.additive.bars import BARS
from grd_offline.core.episodes import Episode, EpisodeSet, have_same_length
from grd_offline.core.outcomes import NUMBER, Outcome
from grd_offline.core.typing import Array, BoolArray
from grd_offline.core.words import DO_NOT_RELY, count, format_percentage, format_share
from grd_offline.methods.contract import (
    CAREFUL,
    FINE,
    NOTE,
    UNRELIABLE,
    Decomposer,
    Finding,
    Verdict,
)

_MOST_READ = 2000  # episodes


def suspect(
    size: float, careful: float, text: str, short: str, *, unreliable: float = math.inf
) -> list[Finding]:
    """The finding on something of this size that may be in the reward after all: none below the
    bar at which it calls for care."""
    if not size >= careful:
        return []
    return [Finding(UNRELIABLE if size > unreliable else CAREFUL, text, short)]


def pick_evenly(episodes: EpisodeSet, most: int) -> list[Episode]:
    """At most so many episodes, spread evenly."""
    chosen = np.linspace(0, len(episodes) - 1, min(len(episodes), max(most, 1))).round()
    return [episodes[int(index)] for index in np.unique(chosen)]


def find_base(decomposer: Decomposer, episodes: EpisodeSet) -> list[Finding]:
    """Find a fixed amount in the returns that the rewards of a fit leave unexplained."""
    function, discount = decomposer.function_, decomposer.discount
    if function.outcome != NUMBER or function.needs_termination or episodes.preferences is not None:
        return []
    chosen = pick_evenly(episodes, _MOST_READ)
    lengths = np.array([len(episode) for episode in chosen], np.float64)
    is_whole = all(one.delivered.sum() == 1 and one.delivered[-1] for one in chosen)
    if not is_whole or len(chosen) < BARS.fewest_checked or have_same_length(lengths):
        return []
    predicted = [decomposer.predict_amounts(episode, discount)[0][0] for episode in chosen]
    returns = np.array([episode.rewards[-1] for episode in chosen], np.float64)
    base, deviations, share = _measure_base(returns - predicted, lengths)
    if deviations < BARS.base_errors or abs(base) < BARS.least_base * float(returns.std()):
        return []
    text = (
        f"Returns contain a fixed amount of about {base:,.3g}, however many steps an "
        "episode has. Rewards of steps cannot explain it. If outcomes are scores that do not start "
        "at 0, subtract their base value. If they are averages over steps, multiply them by the "
        "number of steps. If the amount is paid at the end of an episode, mark its last step as "
        "terminated."
    )
    short = "returns contain a fixed amount per episode"
    return suspect(share, BARS.base_share, text, short, unreliable=BARS.base_most)


def _measure_base(errors: Array, lengths: Array) -> tuple[float, float, float]:
    """The constant in the errors, its size in standard errors, and the share that it explains."""
    design = np.stack([np.ones_like(lengths), lengths], 1)
    inverse = np.linalg.inv(design.T @ design)
    weights = inverse @ (design.T @ errors)
    rest = errors - design @ weights
    variance = float(rest @ rest) / max(len(errors) - 2, 1) * float(inverse[0, 0])
    share = 1 - float(rest @ rest) / max(float(errors @ errors), 1e-300)
    return float(weights[0]), float(abs(weights[0]) / np.sqrt(max(variance, 1e-300))), share


def find_totals(decomposer: Decomposer, episodes: EpisodeSet) -> list[Finding]:
    """Inputs of the reward whose end, or growth, explains by itself how returns differ.

    Inputs that stay the same during an episode are another finding's, and clocks are none of these.
    """
    masks = decomposer.masks_
    if masks is None or episodes.preferences is not None or len(episodes) < BARS.fewest_checked:
        return []
    used = np.concatenate([masks["state_to_reward"], masks["action_to_reward"]]).astype(bool)
    names = np.array([*episodes.observation_names, *episodes.action_names])
    chosen = pick_evenly(episodes, _MOST_READ)
    returns = np.array([episode.compute_return(decomposer.discount) for episode in chosen])
    lengths = np.array([len(episode) for episode in chosen], np.float64)
    if _explain(lengths[:, None], returns)[0] > BARS.same_as_returns:
        return []
    ends, growths = (np.array(part) for part in zip(*map(_read_ends, chosen), strict=True))
    changing = growths.any(axis=0)
    shares = np.maximum(_explain(ends, returns), _explain(growths, returns))
    steps = np.mean([_measure_steps(episode) for episode in chosen if len(episode) > 1], axis=0)
    nearly = _lacks_a_step(ends, returns, steps) | _lacks_a_step(growths, returns, steps)
    found = np.flatnonzero(used & changing & ((shares > BARS.same_as_returns) | nearly))
    if not len(found):
        return []
    best = min(found, key=lambda column: -shares[column])
    name, outcomes = str(names[best]), decomposer.function_.outcome.plural
    text = (
        f"{name} at the end of an episode explains {format_percentage(float(shares[best]))} of how "
        f"{outcomes} differ, by itself. If it is the outcome so far, such as a running total, the "
        "rewards are hardly more than its changes: leave it out (--columns ignored=NAME for a "
        "table). If the outcome is measured at the end, all of the reward may belong to the last "
        "step."
    )
    return [Finding(CAREFUL, text, f"{name} stands for the outcome")]


def _read_ends(episode: Episode) -> tuple[Array, Array]:
    """The inputs at the end of an episode, and by how much they have changed."""
    last = len(episode) - 1
    end = np.concatenate([episode.next_observations[last], episode.actions[last]])
    start = np.concatenate([episode.observations[0], episode.actions[0]])
    return end.astype(np.float64), end.astype(np.float64) - start


def _measure_steps(episode: Episode) -> Array:
    """The mean square of how much each input changes from row to row."""
    rows = np.concatenate([episode.observations[: len(episode)], episode.actions], axis=1)
    return np.asarray((np.diff(rows.astype(np.float64), axis=0) ** 2).mean(axis=0))


def _lacks_a_step(columns: Array, returns: Array, steps: Array) -> BoolArray:
    """Whether each column says what the returns say, but for one of its steps."""
    share = _explain(columns, returns)
    centred, others = columns - columns.mean(0), returns - returns.mean()
    slopes = np.abs(centred.T @ others) / np.maximum((centred**2).sum(0), 1e-300)
    left = (1 - share) * returns.var()
    is_unit = np.abs(slopes - 1) < BARS.total_unit
    return np.asarray(is_unit & (share > BARS.total_share) & (left < BARS.total_steps * steps))


def _explain(columns: Array, returns: Array) -> Array:
    """The share of the variance of the returns that a line in each column explains."""
    columns, returns = columns - columns.mean(0), returns - returns.mean()
    power = (columns**2).sum(0) * (returns**2).sum()
    return np.asarray((columns.T @ returns) ** 2 / np.maximum(power, 1e-300), np.float64)


def find_copies(episodes: EpisodeSet, outcome: Outcome = NUMBER) -> list[Finding]:
    """Copies are in both parts when episodes are held out, so the test looks better than it is."""
    total = min(len(episodes), _MOST_READ)
    copies = total - len({_hash(episodes[index]) for index in range(total)})
    if copies <= BARS.many_copies * total:
        return []
    text = (
        f"{copies:,} of {count(total, 'episode')} are exact copies of others. They tell nothing "
        f"new, and the test on {outcome.plural} held out is worth little, because it has seen "
        "copies of them. Leave the copies out."
    )
    return [Finding(CAREFUL, text, f"{copies:,} episodes are copies of others")]


def _hash(episode: Episode) -> bytes:
    parts = (episode.observations, episode.actions, episode.rewards)
    return hashlib.blake2b(b"".join(part.tobytes() for part in parts), digest_size=16).digest()


LITTLE, MUCH = 0.5, 0.9
"""R² of returns held out: below the first most is not explained, from the second on enough is."""
LITTLE_OF_LABELS = 0.2
"""The same for labels whose predicted chances are about right."""
_ABOUT_RIGHT = 0.1  # of the variance of the labels
FEWEST_HELD_OUT = 10
"""Fewer returns held out cannot test rewards."""
ENOUGH_EPISODES = 100
"""With so many episodes, most decompositions can be believed; see docs/faq.md."""
_FAILING = 0.5
"""If 90 % intervals hold less than this fraction, the fitted reward did not make these returns."""
_RIGHT = 0.95
"""If so much of how single rewards held out differ is explained, the rewards are right."""
_BAD_CORRELATION, _GOOD_CORRELATION = 0.8, 0.9
_NARROW = 0.8  # of the true rewards: 90 % bands that hold fewer are too narrow
_ORDER = (UNRELIABLE, CAREFUL, FINE, NOTE)
_MOST_REASONS = 3  # that a verdict names


def gather_findings(
    decomposer: Decomposer,
    episodes: EpisodeSet,
    held_out: Mapping[str, Any] | None,
    truth: Mapping[str, float] | None = None,
) -> tuple[list[Finding], dict[str, Any]]:
    """Gather all findings on a fit, the worst first, and the numbers behind those of its method.

    `held_out` is what the chosen candidate describes, and `truth` compares with true rewards.
    """
    own, numbers = decomposer.examine(episodes)
    outcome = decomposer.function_.outcome
    findings = [*check_truth(truth), *check_examined(own, outcome), *own]
    findings += find_base(decomposer, episodes)
    findings += [*find_totals(decomposer, episodes), *find_copies(episodes, outcome)]
    # Where no effect was found, the method says so already.
    if not own or decomposer.function_.explain().effects:
        findings += check_held_out(held_out, outcome, of_steps=bool(episodes.lengths.max() == 1))
    return settle_findings(findings), numbers


def reach_verdict(findings: Sequence[Finding]) -> Verdict:
    """Combine all findings into one verdict."""
    for level, start in ((UNRELIABLE, DO_NOT_RELY), (CAREFUL, "Use these rewards with care")):
        reasons = [finding.short or finding.text for finding in findings if finding.level == level]
        if reasons:
            more = len(reasons) - _MOST_REASONS
            shown = [*reasons[:_MOST_REASONS], *([f"{more} more"] if more > 0 else [])]
            return Verdict(level, f"{start}: {'; '.join(shown)}.")
    return Verdict(FINE, "These rewards can be used: no finding calls for care.")


def settle_findings(findings: Sequence[Finding]) -> list[Finding]:
    """Sort the findings, the worst first. No finding is called fine beside one that calls for
    care."""
    if any(finding.level != FINE for finding in findings):
        findings = [one._replace(level=NOTE) if one.level == FINE else one for one in findings]
    return sorted(findings, key=lambda finding: _ORDER.index(finding.level))


def check_examined(findings: Sequence[Finding], outcome: Outcome = NUMBER) -> list[Finding]:
    """A finding where the method says nothing about what returns leave open."""
    if findings:
        return []
    text = (
        f"This fit cannot say what {outcome.plural} leave open, because only the closed form can. "
        f"A fit may explain all {outcome.plural} and still be wrong at single steps."
    )
    return [Finding(CAREFUL, text, f"this fit cannot say what {outcome.plural} leave open")]


def check_held_out(
    held_out: Mapping[str, Any] | None, outcome: Outcome = NUMBER, *, of_steps: bool = False
) -> list[Finding]:
    """Findings on returns that the fit had not seen; `held_out` is what a candidate describes.

    `of_steps` says that each return is the reward of a single step.
    """
    if held_out is None:
        text = (
            f"No {outcome.plural} were held out, so it is not known how well the rewards predict."
        )
        return [Finding(CAREFUL, text, f"no {outcome.plural} were held out")]
    count = int(held_out["held_out_returns"])
    if count < FEWEST_HELD_OUT:
        text = (
            f"{outcome.plural.capitalize()} held out: {count}. Fewer than {FEWEST_HELD_OUT} cannot "
            f"test how well the rewards predict. About {ENOUGH_EPISODES} episodes are a good start."
        )
        short = f"only {count} {outcome.plural} were held out"
        few = [Finding(CAREFUL, text, short)] if count else []
        return few + (_check_explained(held_out, outcome) if count > 1 else [])
    intervals = _check_intervals(held_out, outcome, count, of_steps)
    return [*_check_explained(held_out, outcome), *intervals]


def _check_explained(held_out: Mapping[str, Any], outcome: Outcome) -> list[Finding]:
    returns = outcome.plural
    r2 = float(held_out["held_out_return_r2_without_outliers"])
    if not held_out.get("held_out_returns_differ", True):
        short = f"the {returns} held out are all equal, and cannot test them"
        text = f"The {returns} held out are all equal: no test of the rewards."
        return [Finding(CAREFUL, text, short)]
    if _is_chance(held_out, r2):
        text = (
            f"The rewards explain {format_share(r2)} of how {returns} of episodes held out differ. "
            "The predicted chances are about right, so the rest is chance, or depends on something "
            "that was not found."
        )
        return [Finding(CAREFUL, text, f"they explain {format_share(r2)} of how {returns} differ")]
    level, told, rest = FINE, format_share(r2), ""
    short = f"they explain {told} of how {returns} differ"
    if r2 < LITTLE:
        level, told = UNRELIABLE, "nothing" if r2 <= 0 else f"only {told}"
        short = f"they explain {told} of how {returns} held out differ"
        rest = (
            "The differences are noise, or depend" if r2 <= 0 else "The rest is noise, or depends"
        )
    elif r2 < MUCH:
        level, rest = CAREFUL, "The other differences are noise, or depend"
    text = f"The rewards explain {told} of how {returns} of episodes held out differ. "
    text += _tell_outliers(held_out, outcome, r2)
    if level == FINE:
        return [Finding(FINE, text.rstrip())]
    return [Finding(level, f"{text}{rest} on something that was not found.", short)]


def _is_chance(held_out: Mapping[str, Any], r2: float) -> bool:
    """Whether labels are hard to predict, and the predicted chances are right all the same."""
    possible = held_out.get("held_out_chance_r2")
    is_right = possible is not None and abs(float(possible) - r2) < _ABOUT_RIGHT
    return is_right and LITTLE_OF_LABELS <= r2 < MUCH


def _tell_outliers(held_out: Mapping[str, Any], outcome: Outcome, r2: float) -> str:
    """Say how much is explained with outliers, which tables and headlines have, if it differs."""
    every = float(held_out.get("held_out_return_r2", r2))
    if format_share(max(every, 0.0)) == format_share(max(r2, 0.0)):
        return ""
    told = "nothing" if every <= 0 else format_share(every)
    far = f"{outcome.plural} that are far from all others"
    return f"This leaves out {far}; with them it is {told}. "


def _check_intervals(
    held_out: Mapping[str, Any], outcome: Outcome, count: int, of_steps: bool
) -> list[Finding]:
    """Whether fewer returns lie inside 90 % intervals than chance explains.

    If returns are rewards of steps and nearly all of their differences is explained, the bands are
    wrong, but not the rewards.
    """
    inside = float(held_out["held_out_return_coverage_90"])
    if inside >= 0.9 - 2 * float(np.sqrt(0.9 * 0.1 / count)):
        return []
    text = (
        f"The bands are too narrow: 90 % intervals hold {format_share(inside)} of {count} "
        f"{outcome.plural} held out. Something that moves {outcome.plural} is not in the rewards."
    )
    is_right = of_steps and float(held_out["held_out_return_r2_without_outliers"]) >= _RIGHT
    level = UNRELIABLE if inside < _FAILING and not is_right else CAREFUL
    short = f"90 % intervals hold {format_share(inside)} of {outcome.plural} held out"
    return [Finding(level, text, short)]


def check_truth(truth: Mapping[str, float] | None) -> list[Finding]:
    """Findings on the true rewards of the steps, where they are known."""
    if truth is None:
        return []
    correlation, inside = float(truth["pearson"]), float(truth["coverage_90"])
    short = f"correlation with the true rewards is {correlation:.2f}"
    is_bad, is_good = correlation < _BAD_CORRELATION, correlation >= _GOOD_CORRELATION
    level = UNRELIABLE if is_bad else FINE if is_good else CAREFUL
    found = [Finding(level, f"The {short}.", f"the {short}")]
    if inside < _NARROW:
        narrow = f"90 % bands hold {format_share(inside)} of the true rewards"
        found.append(Finding(CAREFUL, f"The {narrow}, so they are too narrow.", narrow))
    return found
