"""Evaluation of the members of a fleet: whole episodes without noise.

An episode does not depend on who steps it. Each worker gets one after the other, and asks for the
next by giving the result of the last. So workers that have less to do in rounds evaluate more.
"""

from collections import deque
from collections.abc import Generator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from grd_offline.core.errors import DataError
from grd_offline.learning.agents.actors import Actor
from grd_offline.learning.fleet.environment import VectorEnvironment
from grd_offline.learning.fleet.shared import (
    EVALUATIONS,
    FleetSettings,
    SharedArrays,
    make_reset_seed,
)

EVALUATION_STEPS = 2
"""Steps of an evaluation between two looks at whether a round is due."""


class EvaluationResult(NamedTuple):
    """The true, undiscounted returns of members that act without noise."""

    evaluation: int
    """The index that the evaluation was started with."""
    returns: NDArray[np.float64]  # (member, episode)
    lengths: NDArray[np.int64]  # (member, episode)
    successes: NDArray[np.float64]
    """(member, episode) 1 for a success and 0 for none; nan if the environment does not tell it."""


@dataclass(frozen=True)
class EvaluationOrder:
    """Evaluate an episode of a member whenever no round is due."""

    number: int
    member: int
    episode: int


class EvaluatedEpisode(NamedTuple):
    """What came out of an order."""

    order: EvaluationOrder
    total: float
    length: int
    success: float
    """1 or 0; nan if the environment does not tell it."""


class RunningEvaluation:
    """An evaluation that is under way: the episodes that nobody has yet, and the results."""

    def __init__(self, number: int, members: int, episodes: int) -> None:
        shape = (members, episodes)
        self.result = EvaluationResult(
            number, np.zeros(shape), np.zeros(shape, np.int64), np.full(shape, np.nan)
        )
        self._waiting = deque(
            EvaluationOrder(number, member, episode)
            for episode in range(episodes)
            for member in range(members)
        )
        self._missing = members * episodes

    @property
    def is_over(self) -> bool:
        return self._missing == 0

    def take_order(self) -> EvaluationOrder | None:
        """An episode that nobody has yet."""
        return self._waiting.popleft() if self._waiting else None

    def put(self, done: EvaluatedEpisode) -> None:
        place = done.order.member, done.order.episode
        self.result.returns[place] = done.total
        self.result.lengths[place] = done.length
        self.result.successes[place] = done.success
        self._missing -= 1


def evaluate(
    environment: VectorEnvironment,
    settings: FleetSettings,
    shared: SharedArrays,
    worker: int,
    actor: Actor,
    order: EvaluationOrder,
) -> Generator[None, None, EvaluatedEpisode]:
    """Run an episode without noise, and pause every few steps. The generator returns the result."""
    member, total = order.member, 0.0
    actor.load(shared.evaluation_weights[member])
    environment.heartbeat = shared.evaluation_heartbeats[worker]
    shared.evaluated[worker] = member
    key = (EVALUATIONS, order.number, order.episode)
    with environment.explain_errors(partial(_describe, order)):
        observation = environment.reset(make_reset_seed(settings.seeds[member], *key))
        over = False
        while not over:
            action = actor.act_with_noise(observation, None)
            observation, reward, terminated, truncated = environment.step(action)
            total += reward
            over = terminated or truncated
            if environment.steps % EVALUATION_STEPS == 0:
                yield
        if not np.isfinite(total) or not np.isfinite(observation).all():
            raise DataError("observations or rewards: nan or infinite")
    success = np.nan if environment.success is None else float(environment.success)
    return EvaluatedEpisode(order, total, environment.steps, success)


def _describe(order: EvaluationOrder) -> str:
    return f"member {order.member}, evaluation {order.number}, episode {order.episode}"
