"""A dataset in memory: its episodes, every reward that it holds for them, and its transitions."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from grd_offline.core.episodes import Episode, EpisodeSet, check_finite, find_resolution
from grd_offline.core.errors import DataError
from grd_offline.core.statistics import pearson
from grd_offline.core.typing import Array
from grd_offline.io import datasets
from grd_offline.io.formats.record import OBSERVED, STD
from grd_offline.io.tables.columns import Given, Outcomes
from grd_offline.learning.offline.settings import SOURCES

TRUE = "true_rewards"


@dataclass(frozen=True, eq=False)
class OfflineData:
    """Episodes with the rewards as they were delivered, and the sources that the file holds."""

    episodes: EpisodeSet
    """The episodes, in memory. Their rewards are what a decomposition may see: if the file has a
    reward at every step, it is their sum at the last step."""
    rewards: Mapping[str, Array]
    """(step,) rewards of all episodes, one after the other, by the name of the source."""
    discount: float
    """Discount factor inside the delivered sums."""
    env_args: Mapping[str, Any] | None = None
    """Arguments of the environment of the data; None if they are not known."""
    warnings: list[str] = field(default_factory=list)
    spread: Array | None = None
    """(step,) standard deviations of the relabelled rewards, where the file holds them."""

    def find(self, name: str, pessimism: float = 0.0) -> Array:
        """The rewards of one source. If they are missing, the error says how to get them.

        Those of a decomposition are less by `pessimism` times their standard deviation.
        """
        if name == "relabelled" and name in self.rewards and pessimism > 0:
            return be_pessimistic(self.rewards[name], self.spread, pessimism)
        if name in self.rewards:
            return self.rewards[name]
        reasons = {
            "relabelled": "the data are not relabelled: decompose them first",
            "true": "the data hold no true rewards: collect them with --keep-true-rewards",
        }
        known = ", ".join(self.rewards)
        reason = reasons.get(name, f"expected one of {', '.join(SOURCES)}, got {name!r}")
        raise DataError(f"{reason}; there are: {known}", field="rewards")

    def correlate(self, rewards: Array) -> float | None:
        """Pearson's correlation with the true rewards over all steps; None without them."""
        return pearson(rewards, self.rewards["true"]) if "true" in self.rewards else None

    @property
    def behaviour_return(self) -> float | None:
        """Mean return of the episodes, which policies have to beat; None if it is not known."""
        name = "true" if "true" in self.rewards else "observed"
        if name == "observed" and self.discount != 1:
            return None
        return float(self.rewards[name].sum() / len(self.episodes))


def load_data(
    source: str | os.PathLike[str],
    *,
    max_episode_steps: int | None = None,
    max_bytes: int | None = None,
    columns: Given | None = None,
    returns: Outcomes | None = None,
) -> OfflineData:
    """Read a dataset in any layout, relabelled or not. `columns` and `returns` are for tables."""
    with datasets.open_recording(
        source,
        max_episode_steps=max_episode_steps,
        max_bytes=max_bytes,
        columns=columns,
        returns=returns,
    ) as opened:
        header, delay = opened.header, datasets.find_delay(opened)
        episodes, parts = [], []
        for index, record in enumerate(opened):
            with datasets.locate(source, index):
                episode = datasets.as_episode(record, header, delay)
                parts.append(_find_rewards(record, episode))
                if delay == "step" and OBSERVED not in record.extras:
                    episode = episode.delivered_at_end(header.discount)
            episodes.append(episode)
        shape = datasets.as_episodes(opened, source, delay=delay)
        warnings = list(opened.warnings)
        relabelled = all("relabelled" in part for part in parts)
        # Of a relabelled file the header tells of the new rewards.
        given = datasets.infer_delay(part["observed"] for part in parts) if relabelled else delay
        if given == "step":
            parts = [_withhold(part, header.discount) for part in parts]
            warnings.append(
                "rewards come with every step: they are the true ones here, and the observed ones "
                "their sum at the end of each episode"
            )
        arguments = header.settings.get("env_args")
        names = [name for name in SOURCES if all(name in part for part in parts)]
        has_spread = all("spread" in part for part in parts)
        return OfflineData(
            episodes=EpisodeSet.from_episodes(
                episodes,
                observation_names=shape.observation_names,
                action_names=shape.action_names,
                discrete_actions=shape.discrete_actions,
                environment=header.environment,
            ),
            rewards={name: np.concatenate([part[name] for part in parts]) for name in names},
            discount=header.discount,
            env_args=arguments if isinstance(arguments, Mapping) else None,
            warnings=warnings,
            spread=np.concatenate([part["spread"] for part in parts]) if has_spread else None,
        )


def be_pessimistic(rewards: Array, spread: Array | None, pessimism: float) -> Array:
    """Rewards less some of their standard deviations, which must be known."""
    if pessimism == 0:
        return rewards
    if spread is None or not np.isfinite(spread).all():
        raise DataError(
            "the spread of the rewards is not known: use 0, or rewards of another method",
            field="pessimism",
        )
    return rewards - pessimism * spread


def _find_rewards(record: datasets.Record, episode: Episode) -> dict[str, Array]:
    """The rewards of one episode, by the name of the source."""
    given = record.rewards.astype(np.float64)
    found = {"observed": given}
    if OBSERVED in record.extras:
        found = {"relabelled": given, "observed": record.extras[OBSERVED].astype(np.float64)}
    if TRUE in record.extras:
        found["true"] = record.extras[TRUE].astype(np.float64)
    if STD in record.extras:
        found["spread"] = record.extras[STD].astype(np.float64)
    for name, rewards in found.items():
        if rewards.shape != (len(episode),):
            raise DataError(f"expected shape ({len(episode)},), got {rewards.shape}", field=name)
        if name != "spread":  # nan where it is not known
            check_finite(rewards, name, rewards)
    return found


def _withhold(found: dict[str, Array], discount: float) -> dict[str, Array]:
    """Take rewards that come with every step as the true ones, and their sum as the observed."""
    given = found["observed"]
    delayed = np.zeros_like(given)
    delayed[-1] = given @ discount ** np.arange(len(given))
    return {"true": given, **found, "observed": delayed}


@dataclass(frozen=True, eq=False)
class OfflineTransitions:
    """The steps that a policy can learn from, without storing an observation twice."""

    observations: NDArray[np.float32]
    """(row, state) T + 1 rows of each episode: the next observation is one row further."""
    actions: NDArray[np.float32]
    """(step, action) in the units of the environment."""
    terminated: NDArray[np.float32]
    """(step,) 1 where the episode terminated. A time limit is no termination."""
    rows: NDArray[np.int64]
    """(step,) row of the observation."""
    kept: NDArray[np.int64]
    """(step,) place of the step among all steps of the data, where its reward stands."""


def check_actions(episodes: EpisodeSet) -> None:
    """Refuse data that no policy can be trained on: without actions, or with several choices."""
    if not episodes.action_size:
        raise DataError(
            "the data have none: they can be decomposed, but no policy can be trained",
            field="actions",
        )
    if episodes.discrete_actions and episodes[0].actions[0].sum() != 1:
        raise DataError(
            "several choices at once (MultiDiscrete): a policy can be trained for one choice",
            field="actions",
        )


def make_transitions(episodes: EpisodeSet) -> OfflineTransitions:
    """All steps of the episodes whose next observation is known.

    That is the last step of an episode that did not terminate, in layouts that do not hold the
    last observation.
    """
    check_actions(episodes)
    observations, actions, terminated, rows, kept = [], [], [], [], []
    row = step = 0
    for episode in episodes:
        length = len(episode)
        observations.append(episode.observations)
        if not episode.has_final_observation:
            # Never looked at: either nothing follows, or the step is left out.
            observations.append(episode.observations[-1:])
        ends = bool(episode.terminations[-1])
        usable = length if episode.has_final_observation or ends else length - 1
        actions.append(episode.actions[:usable])
        terminated.append(np.zeros(usable, np.float32))
        terminated[-1][-1:] = ends
        rows.append(np.arange(row, row + usable))
        kept.append(np.arange(step, step + usable))
        row, step = row + length + 1, step + length
    if not sum(map(len, rows)):
        raise DataError("no step has a known next observation", field="observations")
    return OfflineTransitions(
        observations=np.concatenate(observations),
        actions=np.concatenate(actions),
        terminated=np.concatenate(terminated),
        rows=np.concatenate(rows),
        kept=np.concatenate(kept),
    )


_ALIKE = 1e-4
"""Returns count as equal if they differ by less than this fraction of the sums of |reward|."""


class Units(NamedTuple):
    """Common units of the rewards of a source: (r - shift) * scale."""

    shift: float
    scale: float


def find_units(rewards: Array, episodes: EpisodeSet) -> Units:
    """Units in which sources compare: returns span as much as the longest episode has steps.

    With episodes of 1,000 steps that is IQL's convention for MuJoCo. Sources that sum to the same
    returns keep their proportion to each other. Returns that are all alike, but for rounding, span
    nothing: there the largest sum of the rewards' sizes counts instead.

    Where no episode terminates the mean reward is taken off as well: it changes no preference
    there, and TD3+BC divides values by their size, so that a large mean would drown the
    differences. Where some do, it would change what is best. If the mean makes up nearly all of
    what returns span, they span what is left without it.
    """
    starts = np.concatenate([[0], np.cumsum(episodes.lengths)[:-1]])
    width, shift = _measure_span(rewards, starts), 0.0
    if not any(bool(episode.terminations[-1]) for episode in episodes):
        shift = float(rewards.mean())
        left = _measure_span(rewards - shift, starts)
        if find_resolution(rewards) * width < left <= _ALIKE * width:
            width = left
    return Units(shift, float(episodes.lengths.max()) / width if width > 0 else 1.0)


def _measure_span(rewards: Array, starts: NDArray[np.int64]) -> float:
    """Measure the span of the returns, or the largest sum of |reward| if the returns are alike."""
    width = float(np.ptp(np.add.reduceat(rewards, starts)))
    size = float(np.add.reduceat(np.abs(rewards), starts).max())
    return size if width <= _ALIKE * size else width
