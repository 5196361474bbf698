"""What a worker of a fleet does: it steps some of the members' environments."""

from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from grd_offline.core.cores import lower_priority
from grd_offline.learning.agents.actors import Actor, count_weights
from grd_offline.learning.fleet.environment import VectorEnvironment
from grd_offline.learning.fleet.evaluation import EvaluatedEpisode, EvaluationOrder, evaluate
from grd_offline.learning.fleet.member import MemberEnvironment
from grd_offline.learning.fleet.position import EpisodePosition
from grd_offline.learning.fleet.shared import FleetSettings, SharedArrays


@dataclass(frozen=True)
class RoundOrder:
    """An order to run a round."""

    number: int
    is_random: bool
    slot: int
    """Which of the shared arrays are those of the round."""


@dataclass(frozen=True, eq=False)
class PositionOrder:
    """Go to these positions, one for each environment of the worker."""

    positions: tuple[EpisodePosition, ...]


class PositionReply(NamedTuple):
    """All are where they were told to go, except for those that could not get there."""

    gaps: tuple[str | None, ...]
    """One text for each environment of the worker that says why it could not. It is at the start
    of its next episode."""


FleetOrder = RoundOrder | EvaluationOrder | PositionOrder
FleetReply = RoundOrder | EvaluatedEpisode | PositionReply
"""An order for a round comes back when it has been carried out."""


class WorkerEnvironments:
    """The environments that one worker steps."""

    def __init__(
        self, settings: FleetSettings, worker: int, numbers: Sequence[int], memory: Any
    ) -> None:
        self._settings, self._worker = settings, worker
        self._numbers = tuple(numbers)
        self._shared = SharedArrays(settings, memory)
        nothing = np.zeros(count_weights(settings.spec), np.float32)
        self._actor, self._evaluated_actor = (Actor(settings.spec, nothing) for _ in range(2))
        self._environments = [
            MemberEnvironment(settings, number, self._shared.heartbeats[number])
            for number in numbers
        ]
        if worker and not numbers:
            lower_priority()  # nobody waits for a worker that only evaluates
        self._evaluation_environment: VectorEnvironment | None = None
        self._evaluation: Generator[None, None, EvaluatedEpisode] | None = None
        self._orders: deque[EvaluationOrder] = deque()
        """Episodes to evaluate after the one that is under way."""

    @property
    def has_background_work(self) -> bool:
        return self._evaluation is not None or bool(self._orders)

    def carry_out(self, order: FleetOrder) -> FleetReply | None:
        """Carry out an order. One to evaluate waits until there is nothing else to do."""
        if isinstance(order, EvaluationOrder):
            self._orders.append(order)
            return None
        if isinstance(order, PositionOrder):
            pairs = zip(self._environments, order.positions, strict=True)
            return PositionReply(tuple(env.go_to(position) for env, position in pairs))
        for number, environment in zip(self._numbers, self._environments, strict=True):
            actor = None
            if not order.is_random:
                actor = self._actor
                actor.load(self._shared.weights[order.slot, self._settings.find_member(number)])
            environment.run(order.number, actor, self._shared.rows_of(order.slot, number))
        return order

    def advance(self) -> EvaluatedEpisode | None:
        """Take some more steps of an evaluation. Gives the episode when it is finished."""
        if self._evaluation is None:
            self._evaluation = self._begin_evaluation(self._orders.popleft())
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                next(self._evaluation)
        except StopIteration as stop:
            self._evaluation = None
            done: EvaluatedEpisode = stop.value
            return done
        return None

    def close(self) -> None:
        for environment in self._environments:
            environment.close()
        if self._evaluation_environment is not None:
            self._evaluation_environment.close()

    def _begin_evaluation(self, order: EvaluationOrder) -> Generator[None, None, EvaluatedEpisode]:
        if self._evaluation_environment is None:
            self._evaluation_environment = self._settings.make_environment()
        return evaluate(
            self._evaluation_environment,
            self._settings,
            self._shared,
            self._worker,
            self._evaluated_actor,
            order,
        )
