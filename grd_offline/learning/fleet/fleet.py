"""A fleet of worker processes that step the members' environments while the learner learns.

    with Fleet("HalfCheetah", seeds=[0, 1, 2], workers=2) as fleet:
        fleet.start_round(0, None)                  # warm-up: random actions
        round_ = fleet.finish_round()
        fleet.start_round(1, weights)               # returns at once; update meanwhile
        fleet.start_round(2, others)                # each environment begins it when done with 1
        round_ = fleet.finish_round()               # round 1

Weights and steps go through shared memory, orders and replies through pipes. Which worker steps an
environment, and when, does not change what happens.
"""

from __future__ import annotations

import multiprocessing
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grd_offline.core.errors import DataError
from grd_offline.core.observer import NOBODY, Observer
from grd_offline.core.process import ProcessDied
from grd_offline.learning.agents.actors import count_weights
from grd_offline.learning.fleet import task
from grd_offline.learning.fleet import worker as processes
from grd_offline.learning.fleet.environment import VectorEnvironment
from grd_offline.learning.fleet.task import (
    SLOTS,
    EvaluatedEpisode,
    EvaluationOrder,
    EvaluationResult,
    FleetSettings,
    RunningEvaluation,
    SharedArrays,
    make_spec,
    pack_positions,
    start_of_episode,
    unpack_positions,
)
from grd_offline.learning.fleet.watch import STOP_SECONDS, HangWatch, Hung
from grd_offline.learning.fleet.worker import Worker
from grd_offline.worlds.environments import dimension_names


class WorkerGroup:
    """Some environments, the worker that steps them, and the replies that it still owes."""

    def __init__(self, worker: Worker, number: int, environments: list[int]) -> None:
        self.worker, self.number = worker, number
        self.environments = environments
        """Those that it steps in rounds. A worker without any only evaluates."""
        self.owes: list[task.FleetOrder] = []
        """Orders that the worker has and has not carried out yet."""
        self.deaths = 0
        """Number of deaths in a row."""
        self.interrupted: Sequence[task.FleetOrder] = ()
        """Orders that the worker had when it died last."""

    def send(self, order: task.FleetOrder) -> None:
        self.owes.append(order)
        self.worker.send(order)

    def count(self, kind: type) -> int:
        """The number of orders of this kind that the worker has."""
        return sum(isinstance(order, kind) for order in self.owes)


ASK_SECONDS = 1.0
"""The fleet waits for so many seconds before it asks whether to stop."""
MAX_DEATHS = 3
"""A worker that dies so many times in a row is not replaced any more."""


class Round(NamedTuple):
    """The steps of all environments: arrays (environment, step, ...) that belong to the caller.

    Row t of `observations` is what action t reacts to. After the end of an episode, the next row
    begins another episode.
    """

    observations: NDArray[np.float32]
    actions: NDArray[np.float32]
    """Actions in the units of the environment."""
    next_observations: NDArray[np.float32]
    rewards: NDArray[np.float64]
    """The true rewards of the environment."""
    terminations: NDArray[np.bool_]
    truncations: NDArray[np.bool_]
    restarted: NDArray[np.bool_]
    """(environment,) whether its worker died, so that its unfinished episode from before this round
    is lost."""


class Fleet:
    """Environments of several members, one or more each, stepped by worker processes."""

    def __init__(
        self,
        environment: str,
        seeds: Sequence[int],
        *,
        kind: str | Callable[[bool], str] = "gaussian",
        hidden: Sequence[int] = (256, 256),
        noise: float = 0.0,
        workers: int,
        steps: int = 100,
        environments_each: int = 1,
        env_args: Mapping[str, Any] | None = None,
        max_episode_steps: int | None = None,
        observer: Observer = NOBODY,
    ) -> None:
        """Make one member for each seed. In a round, each of its environments takes `steps` steps.

        `kind` is that of the policies, or a function that gives it for discrete actions (True) or
        for continuous ones (False). `noise` is for the kinds that have any.
        The observer is warned of environments that hang, and asked whether to wait for them any
        longer. With 0 workers, this process steps the environments when results are asked for.
        The results are the same to the last bit if numpy uses one thread here, as it does in
        workers (OMP_NUM_THREADS=1).
        """
        _check_numbers(seeds, workers, steps, environments_each)
        first = VectorEnvironment(environment, env_args or {}, max_episode_steps)
        self.environment, self.step_limit = first.id, first.step_limit
        self.is_discrete = first.choices > 0
        self.low, self.high, self.state_sizes = first.low, first.high, first.state_sizes
        observed, acted = dimension_names(first.environment)
        first.close()
        self.observation_size, self.action_size = first.observation_size, len(first.low)
        self.dimension_names = (
            observed or tuple(f"observation_{i}" for i in range(self.observation_size)),
            acted or tuple(f"action_{i}" for i in range(self.action_size)),
        )
        """The names of observations and of actions; unknown ones are numbered."""
        self.spec = make_spec(first, kind, hidden, noise)
        self._settings = FleetSettings(
            environment=first.id,
            env_args=dict(env_args or {}),
            max_episode_steps=max_episode_steps,
            seeds=tuple(int(seed) for seed in seeds),
            steps=steps,
            spec=self.spec,
            workers=max(1, workers),
            environments_each=environments_each,
        )
        self._watch, self._observer = HangWatch(observer.on_warning), observer
        self._start_positions()
        self._evaluation: RunningEvaluation | None = None
        self._start_workers(workers)

    def _start_positions(self) -> None:
        count = self._settings.environments
        self._positions = [start_of_episode(self._settings, 0) for _ in range(count)]
        self._restarted = np.zeros((SLOTS, count), np.bool_)
        self._lost = np.zeros(count, np.bool_)
        """(environment,) whether it lost its unfinished episode since its last round."""
        self._after = [list(self._positions) for _ in range(SLOTS)]
        """The positions after the round of each slot."""
        self._settled = list(self._positions), self._lost.copy()
        """The positions after the last round that was finished."""
        self._gaps: list[str] = []
        """Why environments could not go back to where they were."""
        self._rounds: deque[task.RoundOrder] = deque()
        """The rounds that are under way, the oldest first."""
        self._slot = 0

    def _start_workers(self, workers: int) -> None:
        self._groups: list[WorkerGroup] = []
        # This memory has no name, so that nothing is left behind however the processes end.
        context = multiprocessing.get_context("spawn")
        memory = context.RawArray("b", SharedArrays.count_bytes(self._settings))
        self._shared = SharedArrays(self._settings, memory)
        make = processes.make_worker if workers else processes.InProcessWorker
        groups = np.array_split(np.arange(self._settings.environments), self._settings.workers)
        try:
            for number, group in enumerate(groups):
                numbers = group.tolist()
                worker: processes.Worker = make(
                    partial(task.WorkerEnvironments, self._settings, number, numbers, memory)
                )
                worker.start()
                self._groups.append(WorkerGroup(worker, number, numbers))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def members(self) -> int:
        return len(self._settings.seeds)

    @property
    def steps(self) -> int:
        return self._settings.steps

    @property
    def processes(self) -> list[multiprocessing.process.BaseProcess]:
        """The worker processes that are running now."""
        workers = [group.worker for group in self._groups]
        return [worker.process for worker in workers if worker.process is not None]

    @property
    def is_collecting(self) -> bool:
        """Whether a round was started that is not finished yet."""
        return bool(self._rounds)

    def start_round(self, index: int, weights: ArrayLike | None) -> None:
        """Start a round and return at once. `index` decides the noise.

        Each member acts with its row of `weights` (member, P). Without weights, actions are
        uniformly random. One round may be under way already: then each environment begins as soon
        as it has finished that one, and does not wait for the others.
        """
        if not self._groups:
            raise RuntimeError("the fleet is closed")
        if len(self._rounds) == SLOTS:
            raise RuntimeError(f"round {self._rounds[0].number} is running: finish it first")
        slot = (self._slot + 1) % SLOTS
        if weights is not None:
            self._put(self._shared.weights[slot], weights)
        self._slot = slot
        order = task.RoundOrder(int(index), weights is None, slot)
        self._rounds.append(order)
        for group in self._groups:
            if group.environments:
                group.send(order)

    def wait_round(self, seconds: float) -> bool:
        """Wait a little for the oldest round. Says whether it is finished."""
        if not self._rounds:
            raise RuntimeError("no round is running: start one first")
        busy = [group for group in self._groups if group.owes]
        if any(self._rounds[0] in group.owes for group in busy):
            self._receive(busy, seconds)
        return not any(self._rounds[0] in group.owes for group in self._groups)

    def finish_round(self) -> Round:
        """Wait for the oldest round that was started."""
        if not self._rounds:
            raise RuntimeError("no round is running: start one first")
        order = self._rounds[0]
        self._wait_for(lambda group: order in group.owes)
        self._rounds.popleft()
        self._settled = list(self._after[order.slot]), np.zeros_like(self._lost)
        rows = self._shared.rows._asdict().items()
        copies = {name: array[order.slot].copy() for name, array in rows}
        return Round(**copies, restarted=self._restarted[order.slot].copy())

    def start_evaluation(self, index: int, weights: ArrayLike, episodes: int) -> None:
        """Start an evaluation and return at once. `index` decides how the episodes start.

        Every member acts without noise for some episodes, while no round is due.
        """
        if not self._groups:
            raise RuntimeError("the fleet is closed")
        if self._evaluation is not None:
            number = self._evaluation.result.evaluation
            raise RuntimeError(f"evaluation {number} is running: finish it first")
        if episodes < 1:
            raise ValueError(f"episodes: expected at least 1, got {episodes}")
        self._put(self._shared.evaluation_weights, weights)
        self._evaluation = RunningEvaluation(int(index), self.members, episodes)
        for group in sorted(self._groups, key=lambda group: len(group.environments)):
            self._give_episodes(group)

    def _give_episodes(self, group: WorkerGroup) -> None:
        """Give a worker that is in no round an episode to evaluate, or two if it only evaluates."""
        if self._evaluation is None or group.count(task.RoundOrder):
            return
        while group.count(EvaluationOrder) < (1 if group.environments else 2):
            order = self._evaluation.take_order()
            if order is None:
                break
            group.send(order)

    def poll_evaluation(self) -> EvaluationResult | None:
        """The result of the evaluation that was started, if it is finished."""
        if self._evaluation is None:
            return None
        self._receive([group for group in self._groups if group.owes], 0.0)
        return self.finish_evaluation() if self._evaluation.is_over else None

    def finish_evaluation(self) -> EvaluationResult:
        """Wait for the evaluation that was started."""
        if self._evaluation is None:
            raise RuntimeError("no evaluation is running: start one first")
        running = self._evaluation
        for group in self._groups:
            self._give_episodes(group)
        self._wait_for(lambda group: bool(group.owes) and not running.is_over)
        self._evaluation = None
        return running.result

    def state(self) -> dict[str, NDArray[Any]]:
        """The positions of all environments between rounds, as plain arrays.

        A running evaluation is not part of it. The caller starts it again with the same index and
        weights.
        """
        if self._rounds:
            raise RuntimeError(f"round {self._rounds[0].number} is running: finish it first")
        return pack_positions(self._settings, self._positions, self._lost)

    def restore(self, state: Mapping[str, ArrayLike]) -> list[str]:
        """Go back to where `state` was taken, by repeating the actions of unfinished episodes.

        An episode whose repetition gives other observations is lost. The texts say so.
        """
        if not self._groups:
            raise RuntimeError("the fleet is closed")
        if self._rounds:
            raise RuntimeError(f"round {self._rounds[0].number} is running: finish it first")
        self._gaps = []
        self._positions, self._lost = unpack_positions(self._settings, state)
        for group in self._groups:
            self._send_positions(group)
        self._wait_for(lambda group: group.count(task.PositionOrder) > 0)
        self._settled = list(self._positions), self._lost.copy()
        return self._gaps

    def abandon(self) -> None:
        """End the workers and forget the rounds and the evaluation that were running.

        `state` is then what it was before these rounds, if there were any.
        """
        self.close()
        if self._rounds:
            self._positions, self._lost = self._settled
        self._rounds.clear()
        self._evaluation = None

    def close(self) -> None:
        """End the workers. Whatever they were doing is lost."""
        processes.end_workers([group.worker for group in self._groups])
        self._groups = []

    def _put(self, destination: NDArray[np.float32], weights: ArrayLike) -> None:
        given = np.asarray(weights, np.float32)
        expected = (self.members, count_weights(self.spec))
        if given.shape != expected:
            raise ValueError(f"weights: expected shape {expected}, got {given.shape}")
        wrong = np.flatnonzero(~np.isfinite(given).all(axis=1))
        if len(wrong):
            raise DataError(f"member {wrong[0]}: nan or infinite", field="weights")
        destination[...] = given

    def _send_positions(self, group: WorkerGroup) -> None:
        group.send(task.PositionOrder(tuple(self._positions[m] for m in group.environments)))

    def _wait_for(self, is_busy: Callable[[WorkerGroup], bool]) -> None:
        begin, stopped_at = time.monotonic(), None
        for group in self._groups:
            self._watch.forget(id(group))
        while busy := [group for group in self._groups if is_busy(group)]:
            # Whoever has evaluated an episode meanwhile gets the next one.
            self._receive([g for g in self._groups if g.owes], processes.POLL_SECONDS)
            for group in busy:
                heartbeats = self._shared.heartbeats[group.environments, 0].tolist()
                heartbeats.append(int(self._shared.evaluation_heartbeats[group.number, 0]))
                self._watch.look(id(group), heartbeats, partial(self._describe, group))
            if time.monotonic() - begin > ASK_SECONDS and self._observer.should_stop():
                stopped_at = time.monotonic() if stopped_at is None else stopped_at
                if time.monotonic() - stopped_at > STOP_SECONDS:
                    raise Hung(f"{self._describe(busy[0])} does not answer")

    def _describe(self, group: WorkerGroup) -> str:
        """Name the member whose environment is at work. Name all members where none is."""
        numbers = group.environments
        inside = [number for number in numbers if self._shared.heartbeats[number, 0] % 2]
        members = self._find_members(inside or numbers)
        evaluated = int(self._shared.evaluated[group.number])
        if self._shared.evaluation_heartbeats[group.number, 0] % 2:
            members = [*(members if inside else ()), evaluated]
        names = ", ".join(map(str, members or [evaluated]))
        return f"member {names}{group.worker.label}"

    def _find_members(self, environments: Sequence[int]) -> list[int]:
        """The members that these environments belong to."""
        return sorted({self._settings.find_member(number) for number in environments})

    def _receive(self, groups: list[WorkerGroup], timeout: float) -> None:
        ready = processes.find_ready([group.worker for group in groups], timeout)
        for group in (group for group, is_ready in zip(groups, ready, strict=True) if is_ready):
            try:
                reply = group.worker.receive()
            except ProcessDied as death:
                self._replace(group, str(death))
            else:
                if reply is not None:
                    self._take(group, reply)

    def _take(self, group: WorkerGroup, reply: task.FleetReply) -> None:
        if isinstance(reply, task.RoundOrder):
            group.owes.remove(reply)
            self._restarted[reply.slot, group.environments] = self._lost[group.environments]
            self._lost[group.environments] = False
            for number in group.environments:
                rows = self._shared.rows_of(reply.slot, number)
                self._positions[number] = self._positions[number].advance(rows)
                self._after[reply.slot][number] = self._positions[number]
        elif isinstance(reply, EvaluatedEpisode):
            assert self._evaluation is not None
            self._evaluation.put(reply)
            group.owes.remove(reply.order)
        else:
            group.owes = [o for o in group.owes if not isinstance(o, task.PositionOrder)]
            for number, gap in zip(group.environments, reply.gaps, strict=True):
                if gap is not None:
                    self._gaps.append(gap)
                    self._lose(number)
        self._give_episodes(group)
        # Deaths count until all is done that the last one interrupted.
        if not any(order in group.owes for order in group.interrupted):
            group.deaths = 0

    def _lose(self, number: int) -> None:
        """Give up the unfinished episode of an environment, which goes on with its next one."""
        self._lost[number] = True
        self._positions[number] = start_of_episode(
            self._settings, self._positions[number].episode + 1
        )

    def _replace(self, group: WorkerGroup, cause: str) -> None:
        """Start another worker for the environments of one that died.

        These go on with their next episodes, because the unfinished ones may be what killed
        the worker.
        """
        group.deaths += 1
        if group.deaths >= MAX_DEATHS:
            members = _name_members(self._find_members(group.environments))
            raise DataError(
                f"the worker process of {members} died {MAX_DEATHS} times in a row, the last "
                f"time {cause}"
            )
        group.worker.let_go()
        group.worker.end(time.monotonic())
        # A worker that was still on its way to a position has done nothing that could be lost.
        if not group.count(task.PositionOrder):
            for number in group.environments:
                self._lose(number)
        rest = [order for order in group.owes if not isinstance(order, task.PositionOrder)]
        group.owes, group.interrupted = [], rest
        group.worker.start()
        self._send_positions(group)
        for order in rest:
            group.send(order)


def _name_members(members: Sequence[int]) -> str:
    return f"members {', '.join(map(str, members))}" if members else "evaluations"


def _check_numbers(seeds: Sequence[int], workers: int, steps: int, environments_each: int) -> None:
    if not len(seeds):
        raise DataError("expected at least one", field="seeds")
    # Networks are seeded with four times these numbers.
    if not all(0 <= seed < 2**60 for seed in seeds):
        raise DataError("expected whole numbers of at least 0 and less than 2^60", field="seeds")
    if workers < 0:
        raise DataError(f"expected at least 0, got {workers}", field="workers")
    for name, count in (("steps", steps), ("environments_each", environments_each)):
        if count < 1:
            raise DataError(f"expected at least 1, got {count}", field=name)
