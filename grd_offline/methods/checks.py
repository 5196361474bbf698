"""Whether returns hold something else than rewards of steps, whatever the method.

- *A fixed amount*, as in scores that do not start at 0, fees, and averages over steps. Where
  episodes differ in length it shows: what the rewards leave unexplained is then a constant, and
  not noise about 0.
- *A total* that grows during an episode, such as a score so far, among the inputs. It may also lack
  the last step, as a score before each move does, or the first one, as an amount that is left after
  it. Then it has the unit of the returns, and what it leaves unexplained is no more than one of its
  own steps.
- *Copies* of episodes: a merge went wrong, or a log was written twice.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np

from grd_offline.additive.bars import BARS
from grd_offline.core.episodes import Episode, EpisodeSet, have_same_length
from grd_offline.core.outcomes import NUMBER, Outcome
from grd_offline.core.typing import Array, BoolArray
from grd_offline.core.words import count, format_percentage
from grd_offline.methods.contract import CAREFUL, UNRELIABLE, Decomposer, Finding

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
    function = decomposer.function_
    if function.outcome != NUMBER or function.needs_termination or episodes.preferences is not None:
        return []
    chosen = pick_evenly(episodes, _MOST_READ)
    lengths = np.array([len(episode) for episode in chosen], np.float64)
    is_whole = all(one.delivered.sum() == 1 and one.delivered[-1] for one in chosen)
    if not is_whole or len(chosen) < BARS.fewest_checked or have_same_length(lengths):
        return []
    discount = float(getattr(decomposer, "discount", 1.0))
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
    discount = float(getattr(decomposer, "discount", 1.0))
    returns = np.array([episode.compute_return(discount) for episode in chosen])
    lengths = np.array([len(episode) for episode in chosen], np.float64)
    if _explain(lengths[:, None], returns)[0] > BARS.same_as_returns:
        return []
    ends, growths = (np.array(part) for part in zip(*map(_read_ends, chosen), strict=True))
    changing = growths.any(axis=0)
    shares = np.maximum(_explain(ends, returns), _explain(growths, returns))
    steps = np.mean([_measure_steps(episode) for episode in chosen if len(episode) > 1], axis=0)
    nearly = _lacks_a_step(ends, returns, steps) | _lacks_a_step(growths, returns, steps)
    found = np.flatnonzero(used & changing & ((shares > BARS.same_as_returns) | nearly))
    best = sorted(found, key=lambda column: -shares[column])[:1]
    outcome = decomposer.function_.outcome
    return [_tell_total(str(names[column]), float(shares[column]), outcome) for column in best]


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


def _tell_total(name: str, share: float, outcome: Outcome) -> Finding:
    text = (
        f"{name} at the end of an episode explains {format_percentage(share)} of how "
        f"{outcome.plural} differ, by itself. If it is the outcome so far, such as a running "
        "total, the rewards are hardly more than its changes: leave it out (--columns ignored=NAME "
        "for a table). If the outcome is measured at the end, all of the reward may belong to the "
        "last step."
    )
    return Finding(CAREFUL, text, f"{name} stands for the outcome")


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
    made = hashlib.blake2b(digest_size=16)
    for part in (episode.observations, episode.actions, episode.rewards):
        made.update(np.ascontiguousarray(part).tobytes())
    return made.digest()
