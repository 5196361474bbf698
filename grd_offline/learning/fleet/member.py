"""An environment of a member of a fleet.

It lives on from round to round. All randomness is stateless: it comes from the member's seed, a
number (of the episode, the round or the evaluation), and which of the member's environments it is.
What happens does not depend on which worker does the work, or when, and any moment can be reached
again.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grd_offline.core.episodes import LARGEST, describe_number
from grd_offline.core.errors import DataError
from grd_offline.learning.agents.actors import Actor
from grd_offline.learning.agents.exploration import draw_box_actions, draw_discrete_actions
from grd_offline.learning.fleet import shared
from grd_offline.learning.fleet.environment import Array
from grd_offline.learning.fleet.position import EpisodePosition
from grd_offline.learning.fleet.watch import Heartbeat


class MemberEnvironment:
    """One of the environments of a member, which is kept from round to round."""

    def __init__(self, settings: shared.FleetSettings, number: int, heartbeat: Heartbeat) -> None:
        self._environment = settings.make_environment()
        self._environment.heartbeat = heartbeat
        member = settings.find_member(number)
        self._seed = settings.seeds[member]
        which = number % settings.environments_each
        # The first environment of a member does the same however many there are.
        self._key = (which,) if which else ()
        self._name = f"member {member}"
        if settings.environments_each > 1:
            self._name += f", environment {which}"
        self._episode = 0
        self._observation: Array | None = None

    def close(self) -> None:
        self._environment.close()

    def go_to(self, position: EpisodePosition) -> str | None:
        """Reach a position by repeating the actions that led to it.

        If they lead elsewhere, the text says how, and the next episode comes instead.
        """
        self._episode, self._observation = position.episode, None
        if not len(position.actions):
            return None
        with self._explain_errors():
            self._begin_episode()
            gap = self._repeat(position)
        if gap is None:
            return None
        self._episode, self._observation = position.episode + 1, None
        return (
            f"{self._name}, episode {position.episode}: the environment does not repeat "
            f"itself: {gap}"
        )

    def _repeat(self, position: EpisodePosition) -> str | None:
        for action in position.actions:
            self._observation, _, terminated, truncated = self._environment.step(action)
            if terminated or truncated:
                return (
                    f"it ended after {self._environment.steps} of {len(position.actions)} actions"
                )
        return position.find_difference(self._observation)

    def run(self, index: int, actor: Actor | None, rows: shared.Rows) -> None:
        """Fill the rows of a round. Without an actor, the actions are uniformly random."""
        environment, steps = self._environment, len(rows.rewards)
        seed = np.random.SeedSequence(self._seed, spawn_key=(shared.ROUNDS, index, *self._key))
        generator = np.random.default_rng(seed)
        if actor is None:
            planned = self._draw_actions(steps, generator)
        else:
            noise = actor.draw_noise(steps, generator)
        first_step = 0 if self._observation is None else environment.steps
        first_episode, done = self._episode, 0
        try:
            with self._explain_errors():
                for t in range(steps):
                    observation = self._observation
                    if observation is None:
                        observation = self._begin_episode()
                    if actor is None:
                        action = planned[t]
                    else:
                        action = actor.act_with_noise(observation, noise[t])
                    next_observation, reward, terminated, truncated = environment.step(action)
                    rows.observations[t], rows.actions[t] = observation, action
                    rows.next_observations[t], rows.rewards[t] = next_observation, reward
                    rows.terminations[t], rows.truncations[t] = terminated, truncated
                    done, is_over = t + 1, terminated or truncated
                    self._observation = None if is_over else next_observation
                    self._episode += is_over
        finally:
            # This also runs when the environment failed, because nan may be the reason.
            self._check_finite(rows, done, first_episode, first_step)

    def _draw_actions(self, steps: int, generator: np.random.Generator) -> Array:
        """(step, action) uniformly random actions."""
        environment = self._environment
        if environment.choices:
            chosen = draw_discrete_actions("random", environment.choices, steps, generator)
            return np.eye(environment.choices, dtype=np.float32)[chosen]
        return draw_box_actions("random", environment.low, environment.high, steps, generator)

    def _begin_episode(self) -> Array:
        self._observation = self._environment.reset(
            shared.make_reset_seed(self._seed, shared.RESETS, self._episode, *self._key)
        )
        return self._observation

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        def describe() -> str:
            return f"{self._name}, episode {self._episode}"

        with (
            self._environment.explain_errors(describe),
            np.errstate(over="ignore", invalid="ignore"),
        ):
            yield

    def _check_finite(self, rows: shared.Rows, count: int, episode: int, step: int) -> None:
        whole = rows._replace(rewards=rows.rewards[:, None])
        arrays: list[NDArray[Any]] = [array[:count] for array in whole[:4]]
        wrong = [(~(np.abs(array) <= LARGEST)).any(axis=1) for array in arrays]
        if not any(flags.any() for flags in wrong):
            return
        row = int(np.flatnonzero(np.any(wrong, axis=0))[0])
        which = next(i for i, flags in enumerate(wrong) if flags[row])
        dimension = int(np.flatnonzero(~(np.abs(arrays[which][row]) <= LARGEST))[0])
        ends = np.flatnonzero((rows.terminations | rows.truncations)[:row])
        at = row - ends[-1] - 1 if len(ends) else step + row
        field = rows._fields[which]
        if field == "next_observations":
            field, at = "observations", at + 1
        place = f"at step {at}" + (f", dimension {dimension}" if field != "rewards" else "")
        value = describe_number(arrays[which][row, dimension], arrays[which].dtype)
        raise DataError(f"{self._name}, episode {episode + len(ends)}: {field}: {value} {place}")
