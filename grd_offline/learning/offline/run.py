"""Training offline: the data, the run that learns from them, its folder, and `train_offline`.

The transitions lie on the device once, for all members. The rewards lie there once for each source.
On CUDA an update is recorded as a graph and replayed. The folder is written while the run trains:

settings.json                   settings, members, units of the rewards, versions, the command
log.csv                         every 1,000 updates: losses
evaluations.csv                 every evaluation of every member, in the columns of online runs
members/NAME/policies/          step-000010000/, ..., best/: for `collect --policy`
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from grd_offline.core.episodes import Episode, EpisodeSet, check_finite, find_resolution
from grd_offline.core.errors import DataError
from grd_offline.core.observer import NOBODY, Observer, Observers, Warn
from grd_offline.core.statistics import pearson
from grd_offline.core.threads import one_numpy_thread
from grd_offline.core.typing import Array
from grd_offline.core.words import format_percentage
from grd_offline.io import datasets
from grd_offline.io.files.results import OFFLINE
from grd_offline.io.formats.record import OBSERVED, STD
from grd_offline.io.tables.columns import Given, Outcomes
from grd_offline.learning.agents.actors import ActorSpec
from grd_offline.learning.agents.agent import PolicyBatch
from grd_offline.learning.agents.algorithms import find_algorithm
from grd_offline.learning.fleet.environment import VectorEnvironment
from grd_offline.learning.fleet.fleet import Fleet
from grd_offline.learning.runs.process import choose_device, choose_workers, prepare_process
from grd_offline.learning.runs.run import (
    CHECK_EVERY,
    CHUNK,
    Evaluation,
    Run,
    RunFolder,
    RunLearner,
    TrainingResult,
)
from grd_offline.learning.settings import SOURCES, OfflineMember, OfflineSettings
from grd_offline.networks.members.nn import UniformNumbers, to_index
from grd_offline.worlds.environments import resolve_environment_id

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
        if name in self.rewards:
            deducted = pessimism if name == "relabelled" else 0.0
            return be_pessimistic(self.rewards[name], self.spread, deducted)
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


def load_data(source: str | os.PathLike[str], **reading: Any) -> OfflineData:
    """Read a dataset in any layout, relabelled or not. `open_recording` has the same keywords."""
    with datasets.open_recording(source, **reading) as opened:
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
            episodes=replace(shape, load=episodes.__getitem__, provenance=None),
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
        reason = "the spread of the rewards is not known: use 0, or rewards of another method"
        raise DataError(reason, field="pessimism")
    return rewards - pessimism * spread


def _find_rewards(record: datasets.Record, episode: Episode) -> dict[str, Array]:
    """The rewards of one episode, by the name of the source."""
    fields = {"observed": OBSERVED, "true": TRUE, "spread": STD}
    given = {name: record.extras[field] for name, field in fields.items() if field in record.extras}
    given = {"relabelled" if "observed" in given else "observed": record.rewards, **given}
    found = {name: rewards.astype(np.float64) for name, rewards in given.items()}
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
        reason = "the data have none: they can be decomposed, but no policy can be trained"
        raise DataError(reason, field="actions")
    if episodes.discrete_actions and episodes[0].actions[0].sum() != 1:
        reason = "several choices at once (MultiDiscrete): a policy can be trained for one choice"
        raise DataError(reason, field="actions")


def make_transitions(episodes: EpisodeSet) -> OfflineTransitions:
    """All steps of the episodes whose next observation is known.

    That is the last step of an episode that did not terminate, in layouts that do not hold the
    last observation.
    """
    check_actions(episodes)
    parts = []
    row = step = 0
    for episode in episodes:
        length, seen = len(episode), episode.observations
        if not episode.has_final_observation:
            # Never looked at: either nothing follows, or the step is left out.
            seen = np.concatenate([seen, seen[-1:]])
        ends = bool(episode.terminations[-1])
        usable = length if episode.has_final_observation or ends else length - 1
        terminated, times = np.zeros(usable, np.float32), np.arange(usable)
        terminated[-1:] = ends
        parts.append((seen, episode.actions[:usable], terminated, row + times, step + times))
        row, step = row + length + 1, step + length
    if not any(len(rows) for *_, rows, _ in parts):
        raise DataError("no step has a known next observation", field="observations")
    return OfflineTransitions(*(np.concatenate(part) for part in zip(*parts, strict=True)))


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


STREAM = 1
_FLOOR = 1e-3
"""Added to the standard deviation of each observation (TD3+BC)."""
_STILL = 1e-6
"""An observation whose standard deviation is less than this share of its mean does not change."""


class OfflineLearner(RunLearner):
    """All that learns in a run."""

    def __init__(
        self,
        settings: OfflineSettings,
        members: Sequence[OfflineMember],
        transitions: OfflineTransitions,
        rewards: Mapping[str, Array],
        *,
        low: ArrayLike,
        high: ArrayLike,
        device: torch.device,
        capture: bool = True,
        is_discrete: bool = False,
    ) -> None:
        """`rewards` of each source, one for every step of the data, in common units.

        Discrete actions are one-hot.
        """
        super().__init__(device, capture=capture)
        self.settings, self.members = settings, list(members)
        self._put_data(transitions, np.asarray(low, np.float64), np.asarray(high, np.float64))
        names = list(dict.fromkeys(member.source for member in members))
        table = np.stack([rewards[name][transitions.kept] for name in names])
        self.rewards = self._send(table)
        places = [names.index(member.source) for member in members]
        self._sources = torch.tensor(places, device=device).unsqueeze(1)
        seeds = [member.seed for member in members]
        sizes = transitions.observations.shape[1], transitions.actions.shape[1]
        algorithm = find_algorithm(settings.algorithm)
        self.agent = algorithm.find_class(is_discrete=is_discrete)(
            *sizes,
            seeds=seeds,
            hidden=settings.hidden,
            rates=self._fill(settings.learning_rate),
            discounts=self._fill(settings.discount),
            target_rates=self._fill(settings.target_rate),
            **algorithm.pick_settings(settings),
        )
        self._sizes = torch.full((len(seeds),), len(transitions.rows), device=device)
        self._noise_size = self.agent.noise_size * sizes[1]
        count = settings.batch * (2 + self._noise_size)
        self._uniform = UniformNumbers(seeds, count, stream=STREAM, device=device)
        self._draw = self._draw_batch
        if self._capture:
            self.compile()

    def _put_data(self, transitions: OfflineTransitions, low: Array, high: Array) -> None:
        acted_upon = transitions.observations[transitions.rows]
        # In float32, as the data are: of millions of rows there is no room for a wider copy.
        self.mean = acted_upon.mean(0, dtype=np.float64).astype(np.float32)
        spread = acted_upon.std(0, dtype=np.float64)
        # What never changes tells nothing. Its weights would be huge, and cancel in float32.
        still = spread <= _STILL * np.abs(self.mean)
        self.std = np.where(still, np.inf, spread + _FLOOR).astype(np.float32)
        self.observations = self._send((transitions.observations - self.mean) / self.std)
        self.actions = self._send((transitions.actions - (high + low) / 2) / ((high - low) / 2))
        self.terminated = self._send(transitions.terminated)
        self.rows = torch.from_numpy(transitions.rows).to(self.device)

    def _fill(self, value: float) -> Tensor:
        return torch.full((len(self.members),), value, device=self.device)

    def _send(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(np.asarray(array, np.float32)).to(self.device)

    def _update(self, with_actor: bool) -> None:
        self.counter += 1
        self.agent.update(self._draw(self.counter), with_actor=with_actor)

    def _draw_batch(self, counter: Tensor) -> PolicyBatch:
        size = self.settings.batch
        uniform = self._uniform.draw(counter)
        # One number has 23 bits: too coarse to reach each of millions of steps equally often.
        coarse, fine = uniform[:, :size].double(), uniform[:, size : 2 * size].double()
        steps = to_index(coarse + (fine - 0.5) * 2.0**-23, self._sizes)
        rows = self.rows[steps]
        return PolicyBatch(
            observations=self.observations[rows],
            actions=self.actions[steps],
            next_observations=self.observations[rows + 1],
            terminated=self.terminated[steps],
            rewards=self.rewards[self._sources, steps],
            uniform=uniform[:, 2 * size :].reshape(len(self.members), size, self._noise_size),
        )

    def compile(self, backend: str = "inductor") -> None:
        """Fuse what lies between matrix products; `backend` is one of torch.compile's."""
        self._draw = torch.compile(self._draw_batch, dynamic=False, backend=backend)
        self.agent.compile(backend)

    def export_actors(self) -> NDArray[np.float32]:
        return self.agent.export_actors(self.mean, self.std)


def find_outside(actions: NDArray[np.float32], low: ArrayLike, high: ArrayLike) -> float:
    """Share of the steps with an action outside of the bounds, by more than rounding."""
    low, high = np.asarray(low, np.float64), np.asarray(high, np.float64)
    margin = 1e-3 * (high - low)
    return float(((actions < low - margin) | (actions > high + margin)).any(1).mean())


def find_bounds(actions: NDArray[np.float32]) -> tuple[Array, Array]:
    """The smallest and largest action of the data, where no environment says what they may be."""
    low, high = actions.min(0).astype(np.float64), actions.max(0).astype(np.float64)
    flat = np.flatnonzero(low == high)
    if len(flat):
        advice = "name the environment, which knows the range of actions"
        reason = f"dimension {flat[0]} is always {low[flat[0]]:g}: {advice}"
        raise DataError(reason, field="actions")
    return low, high


class OfflineRun(Run):
    """One training run of all members, which learn from the same data."""

    unit = "update"
    advice = "the data's rewards and observations"
    settings: OfflineSettings
    members: list[OfflineMember]
    learner: OfflineLearner

    def __init__(
        self,
        settings: OfflineSettings,
        episodes: EpisodeSet,
        rewards: Mapping[str, Array],
        *,
        workers: int = 1,
        device: str = "cpu",
        observer: Observer = NOBODY,
    ) -> None:
        """`rewards`: for each of the settings' sources, one for every step of the episodes."""
        super().__init__(settings, observer)
        self.total = settings.updates
        rewards = {name: np.asarray(values) for name, values in rewards.items()}
        self.units = _find_units(settings, episodes, rewards)
        is_discrete = episodes.discrete_actions
        agent = find_algorithm(settings.algorithm).find_class(is_discrete=is_discrete)
        transitions = make_transitions(episodes)
        check_environment(settings, episodes)
        self.fleet = None
        if settings.environment is not None:
            self.fleet = Fleet(
                settings.environment,
                [member.seed for member in self.members],
                kind=agent.actor_kind,
                hidden=settings.hidden,
                workers=workers,
                steps=1,  # it only evaluates
                env_args=settings.env_args,
                max_episode_steps=settings.max_episode_steps,
                observer=observer,
            )
        self.title = f"{settings.algorithm}, {self.environment or 'no environment'}"
        try:
            if self.fleet is not None:
                self.spec = self.fleet.spec
            else:
                low, high = np.zeros(episodes.action_size), np.ones(episodes.action_size)
                if not is_discrete:
                    low, high = find_bounds(transitions.actions)
                sizes = (episodes.state_size, *settings.hidden, episodes.action_size)
                self.spec = ActorSpec(agent.actor_kind, sizes, tuple(low), tuple(high))
            self.outside = find_outside(transitions.actions, self.spec.low, self.spec.high)
            """Fraction of the steps of the data whose action the policies cannot take."""
            units = self.units.items()
            self.learner = OfflineLearner(
                settings,
                self.members,
                transitions,
                {name: (rewards[name] - shift) * scale for name, (shift, scale) in units},
                low=self.spec.low,
                high=self.spec.high,
                device=torch.device(device),
                is_discrete=is_discrete,
            )
        except BaseException:
            self.close()
            raise

    @property
    def step(self) -> int:
        return self.learner.updates

    def _advance(self) -> bool:
        """Some updates, up to the next evaluation at most."""
        every = self.settings.eval_every
        ahead = every - self.step % every
        self.learner.run_updates(min(CHUNK, ahead, self.total - self.step))
        if self.step % CHECK_EVERY < CHUNK or self._is_evaluation_due():
            self.check_skipped()
        return True

    def _is_evaluation_due(self) -> bool:
        return self.step % self.settings.eval_every == 0 or self.step == self.total

    def _give_up(self) -> str:
        return "the evaluation is given up"

    @one_numpy_thread()
    def train(self) -> None:
        super().train()
        if self._told != self.step:
            self._tell(Evaluation(self.step, self.learner.export_actors()))


def check_environment(settings: OfflineSettings, episodes: EpisodeSet) -> int | None:
    """Refuse an environment whose observations or actions are not those of the data.

    Gives the steps after which it ends an episode.
    """
    if settings.environment is None:
        return None
    environment = VectorEnvironment(
        settings.environment, settings.env_args, settings.max_episode_steps
    )
    environment.close()
    if episodes.action_size and episodes.discrete_actions != (environment.choices > 0):
        kinds = ("continuous", "discrete")
        wanted, given = kinds[episodes.discrete_actions], kinds[environment.choices > 0]
        reason = f"{environment.id}: expected {wanted} ones, as in the data, got {given} ones"
        raise DataError(reason, field="actions")
    for name, expected, got in (
        ("observations", episodes.state_size, environment.observation_size),
        ("actions", episodes.action_size, len(environment.low)),
    ):
        if expected != got:
            reason = f"{environment.id}: expected {expected} numbers, as in the data, got {got}"
            raise DataError(reason, field=name)
    return environment.step_limit


def _find_units(
    settings: OfflineSettings, episodes: EpisodeSet, rewards: Mapping[str, Array]
) -> dict[str, Units]:
    units = {}
    for name in settings.rewards:
        if name not in rewards:
            known = ", ".join(rewards) or "none"
            raise DataError(f"no rewards called {name!r}; there are: {known}", field="rewards")
        given = rewards[name]
        if given.shape != (episodes.total_steps,):
            expected = f"shape ({episodes.total_steps},), one for every step of the data"
            raise DataError(f"{name}: expected {expected}, got {given.shape}", field="rewards")
        if not np.isfinite(given).all():
            raise DataError(f"{name}: nan or infinite", field="rewards")
        units[name] = find_units(given.astype(np.float64), episodes)
    return units


LOG_COLUMNS = (
    "step", "seconds", "member", "group", "seed", "critic_loss", "actor_loss", "value_loss",
    "skipped",
)  # fmt: skip


class OfflineFolder(RunFolder):
    """Hears of a run and writes its files."""

    format = OFFLINE
    log_columns = LOG_COLUMNS
    data: Mapping[str, Any]
    """Plain values that describe the dataset."""
    correlations: Mapping[str, float | None]
    """Correlation of the rewards of each source with the true rewards. None if those are not
    known."""

    def _describe_run(self, run: OfflineRun) -> dict[str, Any]:
        units = {name: units._asdict() for name, units in run.units.items()}
        return {"data": dict(self.data), "reward_units": units}

    def _describe_policy(self, run: OfflineRun, index: int, step: int) -> dict[str, Any]:
        correlation = self.correlations.get(run.members[index].source)
        return {
            "correlation": "" if correlation is None else correlation,
            "policy_states": run.states,
        }


def train_offline(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    rewards: Sequence[str] | Mapping[str, Array] = ("relabelled",),
    max_bytes: int | None = None,
    columns: Given | None = None,
    returns: Outcomes | None = None,
    device: str = "auto",
    workers: int | None = None,
    observer: Observer = NOBODY,
    command: Sequence[str] = (),
    **settings: Any,
) -> TrainingResult:
    """Train policies on a dataset alone, and write the run into the folder `out`.

    It changes settings of the process: see `grd_offline.learning.runs.process.prepare_process`.

    Parameters
    ----------
    source
        Whatever `grd_offline.read` reads.
    out
        The folder of the run.
    rewards
        Names of rewards that the data hold: `relabelled`, `observed` and `true`. Or your own:
        arrays by name, one number for each step of the data.
    max_bytes
        Trusts the file to unpack to that size.
    columns, returns
        The columns and the outcomes of a table, as `decompose` has them.
    device
        `auto`, `cpu` or `cuda`.
    workers
        The processes that step environments. None: one for each core.
    observer
        Hears of the run, and decides whether to stop.
    command
        Is written into the settings of the run.
    **settings
        The fields of `OfflineSettings`, for example `environment`, `algorithm`, `seeds`, `updates`
        and `eval_every`. Without `environment` nothing is evaluated.

    Returns
    -------
    TrainingResult
        The evaluations, and where the policies are.

    Examples
    --------
    >>> import grd_offline
    >>> result = grd_offline.train_offline(
    ...     "hc-grd/relabelled.h5", "runs/hc", environment="HalfCheetah", seeds=5
    ... )  # doctest: +SKIP
    >>> result.evaluations[-1]["mean_return"]  # doctest: +SKIP
    5612.0
    """
    chosen = OfflineSettings(rewards=tuple(rewards), **settings)
    files = OfflineFolder(Path(out))
    files.check_free()
    data = load_checked(source, chosen, max_bytes=max_bytes, columns=columns, returns=returns)
    try:
        own = rewards if isinstance(rewards, Mapping) else {}
        given = {
            name: own[name] if name in own else data.find(name, chosen.pessimism)
            for name in chosen.rewards
        }
    except DataError as error:
        raise error.at(file=source) from None
    warn_of_data(chosen, data, observer.on_warning)
    if chosen.pessimism > 0 and "relabelled" not in {*chosen.rewards} - {*own}:
        observer.on_warning("--pessimism is for relabelled rewards: none of these are")
    return train_members(
        chosen, data, given, files, device=device, workers=workers, observer=observer,
        about=describe_data(source, data), command=command,
    )  # fmt: skip


def load_checked(
    source: str | os.PathLike[str], settings: OfflineSettings, **reading: Any
) -> OfflineData:
    """Read a dataset. Refuse an environment that does not fit it before any time is spent."""
    if settings.environment is not None:
        resolve_environment_id(settings.environment)
    try:
        data = load_data(source, max_episode_steps=settings.max_episode_steps, **reading)
        check_actions(data.episodes)
        algorithm = find_algorithm(settings.algorithm)
        algorithm.find_class(is_discrete=data.episodes.discrete_actions)
        check_environment(settings, data.episodes)
    except DataError as error:
        raise error.at(file=source) from None
    return data


def warn_of_data(settings: OfflineSettings, data: OfflineData, warn: Warn) -> None:
    """Warn of what is unusual about the data, and of evaluations in another environment."""
    for warning in data.warnings:
        warn(warning)
    if settings.environment is None:
        warn("there is no environment (--env): policies are trained and saved, not evaluated")
    if (other := describe_other_environment(settings, data)) is not None:
        warn(other)


def train_members(
    settings: OfflineSettings,
    data: OfflineData,
    rewards: Mapping[str, Array],
    files: OfflineFolder,
    *,
    device: str,
    workers: int | None,
    observer: Observer,
    about: Mapping[str, Any],
    command: Sequence[str],
) -> TrainingResult:
    """Train all members and write the run into its folder. `about` describes the data."""
    files.data = about
    files.correlations = {name: data.correlate(values) for name, values in rewards.items()}
    device, workers = choose_device(device), choose_workers(workers)
    prepare_process(device, batch=settings.batch, hidden=settings.hidden)
    both = Observers([files, observer])
    with OfflineRun(
        settings, data.episodes, rewards, workers=workers, device=device, observer=both
    ) as run:
        if run.outside > 0:
            share = format_percentage(max(run.outside, 0.001), 1)
            where = "outside of what the environment takes: policies cannot take them either"
            observer.on_warning(f"{share} of the data's actions are {where}")
        files.create(run, command=command, workers=workers, device=device)
        return files.train(observer)


def describe_data(source: str | os.PathLike[str], data: OfflineData) -> dict[str, Any]:
    """The dataset in plain values. Its digest differs where the steps or any of its rewards do."""
    digest = hashlib.sha256()
    for episode in data.episodes:
        for part in (episode.observations, episode.actions):
            digest.update(np.ascontiguousarray(part).tobytes())
    for name in sorted(data.rewards):
        digest.update(name.encode() + np.ascontiguousarray(data.rewards[name]).tobytes())
    return {
        "file": Path(source).name,
        "episodes": len(data.episodes),
        "steps": data.episodes.total_steps,
        "environment": data.episodes.environment,
        "folder": Path(source).resolve().parent.name,
        "digest": digest.hexdigest()[:16],
    }


def describe_other_environment(settings: OfflineSettings, data: OfflineData) -> str | None:
    """Say that evaluations are not in the environment of the data; None if they are."""
    if settings.environment is None:
        return None
    chosen, recorded = resolve_environment_id(settings.environment), data.episodes.environment
    if recorded is not None and chosen.rpartition(":")[2] != recorded.rpartition(":")[2]:
        return f"the data are of {recorded}, evaluations of {chosen}"
    if data.env_args is not None and dict(settings.env_args) != dict(data.env_args):
        arguments = " ".join(
            f"--env-arg {name}={json.dumps(value)}" for name, value in data.env_args.items()
        )
        return f"the data are of {chosen} with {arguments or 'no --env-arg'}, evaluations are not"
    return None
