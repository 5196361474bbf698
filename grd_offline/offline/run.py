"""The loop: updates of all members, and every so often an evaluation while updates go on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from grd_offline.agents.actors import ActorSpec
from grd_offline.episodes import EpisodeSet
from grd_offline.errors import DataError
from grd_offline.fleet.environment import VectorEnvironment
from grd_offline.fleet.fleet import Fleet
from grd_offline.fleet.watch import Hung, Warn
from grd_offline.offline.data import Array, Units, find_units, make_transitions
from grd_offline.offline.learner import OfflineLearner, find_bounds, find_outside
from grd_offline.offline.settings import OfflineSettings
from grd_offline.online.run import MOST_SKIPPED, prepare_process
from grd_offline.threads import one_numpy_thread

CHUNK = 20
"""Updates between two looks at whether to stop and whether an evaluation is done."""
CHECK_EVERY = 1000
"""Updates between two looks at what was skipped: a device is not asked all the time."""


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The policies as they were after some updates, and how they did."""

    step: int
    """Updates so far."""
    weights: NDArray[np.float32]
    """(member, number) of the actors."""
    returns: NDArray[np.float64] | None = None
    """(member, episode) true and undiscounted; None without an environment."""
    lengths: NDArray[np.int64] | None = None


class Observer(Protocol):
    """Who hears of a run: a display, the files of the run."""

    def on_progress(self, run: OfflineRun) -> None:
        """After every few updates."""

    def on_checkpoint(self, run: OfflineRun, checkpoint: Checkpoint) -> None:
        """When policies are to be kept; evaluated ones come when their returns are there."""


class OfflineRun:
    """One training run of all members."""

    def __init__(
        self,
        settings: OfflineSettings,
        episodes: EpisodeSet,
        rewards: Mapping[str, Array],
        *,
        workers: int = 1,
        device: str = "cpu",
        observers: Sequence[Observer] = (),
        warn: Warn = lambda text: None,
    ) -> None:
        """`rewards`: for each of the settings' sources, one for every step of the episodes.

        `warn` hears of environments that hang.
        """
        self._warn = warn
        self.settings, self.members = settings, settings.make_members()
        self.observers = list(observers)
        rewards = {name: np.asarray(values) for name, values in rewards.items()}
        self.units = _find_units(settings, episodes, rewards)
        """Of each source's rewards."""
        transitions = make_transitions(episodes)
        check_environment(settings, episodes)
        self.states, self.actions = episodes.state_size, episodes.action_size
        prepare_process()
        self.fleet = self._make_fleet(workers)
        try:
            if self.fleet is not None:
                low, high = self.fleet.low, self.fleet.high
            else:
                low, high = find_bounds(transitions.actions)
            self.outside = find_outside(transitions.actions, low, high)
            """Share of the data's steps whose action the policies cannot take."""
            sizes = (self.states, *settings.hidden, self.actions)
            units = self.units.items()
            self.spec = ActorSpec("deterministic", sizes, tuple(low), tuple(high))
            self.learner = OfflineLearner(
                settings,
                self.members,
                transitions,
                {name: (rewards[name] - shift) * scale for name, (shift, scale) in units},
                low=low,
                high=high,
                device=torch.device(device),
            )
        except BaseException:
            self.close()
            raise
        self._evaluating: tuple[int, NDArray[np.float32]] | None = None

    def _make_fleet(self, workers: int) -> Fleet | None:
        settings = self.settings
        if settings.environment is None:
            return None
        return Fleet(
            settings.environment,
            [member.seed for member in self.members],
            kind="deterministic",
            hidden=settings.hidden,
            workers=workers,
            steps=1,  # it only evaluates
            env_args=settings.env_args,
            max_episode_steps=settings.max_episode_steps,
            warn=self._warn,
        )

    def __enter__(self) -> OfflineRun:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the workers."""
        if self.fleet is not None:
            self.fleet.close()

    @property
    def step(self) -> int:
        """Updates of each member so far."""
        return self.learner.updates

    @one_numpy_thread()
    def train(self, should_stop: Callable[[], bool] = lambda: False) -> None:
        """Go on until `updates`, or until `should_stop`; the policies of then are kept.

        When it is to stop and an environment does not answer, the evaluation is given up.
        """
        if self.fleet is not None:
            self.fleet.should_stop = should_stop
        try:
            self._train(should_stop)
        except Hung as hung:
            assert self.fleet is not None
            self._warn(f"{hung}: the evaluation is given up")
            self.fleet.abandon()
            self._evaluating = None
            self._keep(evaluate=False)

    def _train(self, should_stop: Callable[[], bool]) -> None:
        settings = self.settings
        while self.step < settings.updates and not should_stop():
            ahead = settings.eval_every - self.step % settings.eval_every
            self.learner.run_updates(min(CHUNK, ahead, settings.updates - self.step))
            if self.step % CHECK_EVERY < CHUNK:
                self._check_skipped()
            if self.step % settings.eval_every == 0 or self.step == settings.updates:
                self._check_skipped()
                self._keep(evaluate=True)
            elif self.fleet is not None and self._evaluating is not None:
                self._tell(wait=False)
            for observer in self.observers:
                observer.on_progress(self)
        self._tell(wait=True)
        if self.step % settings.eval_every and self.step < settings.updates:
            self._keep(evaluate=False)

    def _keep(self, *, evaluate: bool) -> None:
        """Keep the policies as they are, after their evaluation if there is to be one."""
        weights = self.learner.export_actors()
        if self.fleet is None or not evaluate:
            self._tell_observers(Checkpoint(self.step, weights))
            return
        self._tell(wait=True)
        self.fleet.start_evaluation(self.step, weights, self.settings.eval_episodes)
        self._evaluating = (self.step, weights)

    def _tell(self, *, wait: bool) -> None:
        """Pass on the evaluation under way, if there is one and it is done."""
        if self.fleet is None or self._evaluating is None:
            return
        result = self.fleet.finish_evaluation() if wait else self.fleet.poll_evaluation()
        if result is not None:
            step, weights = self._evaluating
            self._evaluating = None
            self._tell_observers(Checkpoint(step, weights, result.returns, result.lengths))

    def _tell_observers(self, checkpoint: Checkpoint) -> None:
        for observer in self.observers:
            observer.on_checkpoint(self, checkpoint)

    def _check_skipped(self) -> None:
        skipped = self.learner.count_skipped()
        worst = int(skipped.argmax())
        if skipped[worst] > MOST_SKIPPED:
            raise DataError(
                f"{self.members[worst].name}: {skipped[worst]} updates were not finite and left "
                f"out by update {self.step}; look at the data's rewards and observations"
            )


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
    for name, expected, got in (
        ("observations", episodes.state_size, environment.observation_size),
        ("actions", episodes.action_size, len(environment.low)),
    ):
        if expected != got:
            raise DataError(
                f"{environment.id}: expected {expected} numbers, as in the data, got {got}",
                field=name,
            )
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
            raise DataError(
                f"{name}: expected shape ({episodes.total_steps},), one for every step of the "
                f"data, got {given.shape}",
                field="rewards",
            )
        if not np.isfinite(given).all():
            raise DataError(f"{name}: nan or infinite", field="rewards")
        units[name] = find_units(given.astype(np.float64), episodes)
    return units
