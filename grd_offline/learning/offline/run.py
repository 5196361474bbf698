"""A run of `train-offline`: updates of all members on the same data."""

from collections.abc import Mapping

import numpy as np
import torch

from grd_offline.core.episodes import EpisodeSet
from grd_offline.core.errors import DataError
from grd_offline.core.observer import NOBODY, Observer
from grd_offline.core.typing import Array
from grd_offline.learning.agents.actors import ActorSpec
from grd_offline.learning.agents.algorithms import find_algorithm
from grd_offline.learning.fleet.environment import VectorEnvironment
from grd_offline.learning.fleet.fleet import Fleet
from grd_offline.learning.offline.data import Units, find_units, make_transitions
from grd_offline.learning.offline.learner import OfflineLearner, find_bounds, find_outside
from grd_offline.learning.offline.settings import OfflineMember, OfflineSettings
from grd_offline.learning.runs.run import CHECK_EVERY, CHUNK, Evaluation, Run


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
        super().__init__(observer)
        self.settings, self.members = settings, settings.make_members()
        self.total = settings.updates
        rewards = {name: np.asarray(values) for name, values in rewards.items()}
        self.units = _find_units(settings, episodes, rewards)
        is_discrete = episodes.discrete_actions
        agent = find_algorithm(settings.algorithm).find_class(is_discrete=is_discrete)
        transitions = make_transitions(episodes)
        check_environment(settings, episodes)
        self.fleet = self._make_fleet(workers, agent.actor_kind)
        try:
            if self.fleet is not None:
                low, high = self.fleet.low, self.fleet.high
            elif is_discrete:
                low, high = np.zeros(episodes.action_size), np.ones(episodes.action_size)
            else:
                low, high = find_bounds(transitions.actions)
            self.outside = find_outside(transitions.actions, low, high)
            """Fraction of the steps of the data whose action the policies cannot take."""
            sizes = (episodes.state_size, *settings.hidden, episodes.action_size)
            units = self.units.items()
            first = self.fleet.spec.first_choice if self.fleet is not None else 0
            self.spec = ActorSpec(
                agent.actor_kind, sizes, tuple(low), tuple(high), first_choice=first
            )
            self.learner = OfflineLearner(
                settings,
                self.members,
                transitions,
                {name: (rewards[name] - shift) * scale for name, (shift, scale) in units},
                low=low,
                high=high,
                device=torch.device(device),
                is_discrete=is_discrete,
            )
        except BaseException:
            self.close()
            raise

    def _make_fleet(self, workers: int, kind: str) -> Fleet | None:
        settings = self.settings
        if settings.environment is None:
            return None
        return Fleet(
            settings.environment,
            [member.seed for member in self.members],
            kind=kind,
            hidden=settings.hidden,
            workers=workers,
            steps=1,  # it only evaluates
            env_args=settings.env_args,
            max_episode_steps=settings.max_episode_steps,
            observer=self.observer,
        )

    @property
    def step(self) -> int:
        return self.learner.updates

    @property
    def title(self) -> str:
        return f"{self.settings.algorithm}, {self.environment or 'no environment'}"

    def measure(self) -> None:
        """There is nothing to show but returns."""

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

    def _keep_last(self) -> None:
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
        raise DataError(
            f"{environment.id}: expected {kinds[episodes.discrete_actions]} ones, as in the data, "
            f"got {kinds[environment.choices > 0]} ones",
            field="actions",
        )
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
