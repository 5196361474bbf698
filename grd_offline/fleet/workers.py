"""A fleet of worker processes that step the members' environments while the learner learns.

    with Fleet("HalfCheetah", seeds=[0, 1, 2], workers=2) as fleet:
        fleet.start_round(0, None)                  # warm-up: random actions
        round_ = fleet.finish_round()
        fleet.start_round(1, weights)               # returns at once; update meanwhile
        round_ = fleet.finish_round()

Weights and steps go through shared memory, orders and replies through pipes. Which worker steps a
member, and when, changes nothing of what happens.
"""

from __future__ import annotations

import multiprocessing
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing import connection
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grd_offline.agents.actors import ActorSpec, count_weights
from grd_offline.environments import dimension_names
from grd_offline.errors import DataError
from grd_offline.fleet.lanes import (
    Board,
    Crew,
    EvaluationOrder,
    EvaluationResult,
    LaneSettings,
    Order,
    Place,
    PlaceOrder,
    Reply,
    RoundOrder,
    Stage,
    follow,
)
from grd_offline.fleet.processes import (
    GRACE_SECONDS,
    POLL_SECONDS,
    become_worker,
    describe_death,
    environment_for_workers,
)
from grd_offline.fleet.watch import STOP_SECONDS, Hung, Warn, Watch

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

ASK_SECONDS = 1.0
"""Of waiting, before the fleet asks whether to stop: it is not its to ask after every round."""
MAX_DEATHS = 3
"""Deaths of one worker within a round after which it is not replaced any more."""


class Round(NamedTuple):
    """Steps of all members: arrays (member, step, ...) that belong to the caller.

    `observations[:, t]` is what was acted upon; after an episode ends, the next row starts another.
    """

    observations: NDArray[np.float32]
    actions: NDArray[np.float32]
    """In the units of the environment."""
    next_observations: NDArray[np.float32]
    rewards: NDArray[np.float64]
    """The true rewards of the environment."""
    terminations: NDArray[np.bool_]
    truncations: NDArray[np.bool_]
    restarted: NDArray[np.bool_]
    """(member,) its worker died, and its unfinished episode from before this round is lost."""


class Fleet:
    """Environments of several members, one each, stepped by worker processes."""

    def __init__(
        self,
        environment: str,
        seeds: Sequence[int],
        *,
        kind: str = "gaussian",
        hidden: Sequence[int] = (256, 256),
        noise: float = 0.0,
        workers: int,
        steps: int = 100,
        env_args: Mapping[str, Any] | None = None,
        max_episode_steps: int | None = None,
        warn: Warn = lambda text: None,
    ) -> None:
        """One member per seed; a round is `steps` steps of each. `warn` hears of environments
        that hang.

        0 workers: in this process, when results are asked for; to the last bit the same as in
        others if numpy uses one thread here, as it does there (OMP_NUM_THREADS=1).
        """
        _check_numbers(seeds, workers, steps)
        stage = Stage(environment, env_args or {}, max_episode_steps)
        self.environment = stage.id
        self.step_limit = stage.step_limit
        self.low, self.high = stage.low, stage.high
        self.names = dimension_names(stage.environment)
        """Of observations and actions; None where nobody knows."""
        stage.close()
        self.observation_size, self.action_size = stage.observation_size, len(stage.low)
        outputs = self.action_size * (2 if kind == "gaussian" else 1)
        sizes = (self.observation_size, *hidden, outputs)
        self.spec = ActorSpec(kind, sizes, tuple(self.low), tuple(self.high), noise)
        self._settings = LaneSettings(
            environment=stage.id,
            env_args=dict(env_args or {}),
            max_episode_steps=max_episode_steps,
            seeds=tuple(int(seed) for seed in seeds),
            steps=steps,
            spec=self.spec,
        )
        # Memory without a name: nothing is left behind, however the processes end.
        context = multiprocessing.get_context("spawn")
        self._memory = context.RawArray("b", Board.count_bytes(self._settings))
        self._board = Board(self._settings, self._memory)
        self._watch = Watch(warn)
        self.should_stop: Callable[[], bool] = lambda: False
        """Whether to wait no longer for environments that do not answer."""
        self._places = [self._start_of(0) for _ in seeds]
        self._restarted = np.zeros(len(seeds), np.bool_)
        self._lost = np.zeros(len(seeds), np.bool_)
        """(member,) its unfinished episode was lost since its last round."""
        self._before_round = self._places, self._lost
        """Where the members stood before the round that is running."""
        self._gaps: list[str] = []
        """Why members could not go back to where they were."""
        self._round: RoundOrder | None = None
        self._evaluation: EvaluationOrder | None = None
        self._results: EvaluationResult | None = None
        self._workers: list[_Worker | _Here] = []
        groups = np.array_split(np.arange(len(seeds)), max(1, min(workers, len(seeds))))
        try:
            for group in groups:
                worker = (_Worker if workers else _Here)(group.tolist())
                worker.start(self._settings, self._memory)
                self._workers.append(worker)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Fleet:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def members(self) -> int:
        """Number of members."""
        return len(self._settings.seeds)

    @property
    def steps(self) -> int:
        """Steps per member and round."""
        return self._settings.steps

    def start_round(self, index: int, weights: ArrayLike | None) -> None:
        """Have every member act for a round, with its row of `weights` (member, P); returns at
        once. None: uniformly random actions. `index` decides the noise."""
        self._check_free()
        if weights is not None:
            self._put(self._board.weights, weights)
        self._round = RoundOrder(int(index), weights is None)
        self._before_round = list(self._places), self._lost.copy()
        for worker in self._workers:
            worker.owes_round = True
            worker.send(self._round)

    def finish_round(self) -> Round:
        """Wait for the round that was started."""
        if self._round is None:
            raise RuntimeError("no round is running: start one first")
        self._wait_for(lambda worker: worker.owes_round)
        self._round = None
        copies = {name: array.copy() for name, array in self._board.rows._asdict().items()}
        return Round(**copies, restarted=self._restarted.copy())

    def start_evaluation(self, index: int, weights: ArrayLike, episodes: int) -> None:
        """Have every member act without noise for some episodes, while no round is due; returns
        at once. `index` decides how the episodes start."""
        if not self._workers:
            raise RuntimeError("the fleet is closed")
        if self._evaluation is not None:
            raise RuntimeError(f"evaluation {self._evaluation.number} is running: finish it first")
        if episodes < 1:
            raise ValueError(f"episodes: expected at least 1, got {episodes}")
        self._put(self._board.evaluation_weights, weights)
        self._evaluation = EvaluationOrder(int(index), episodes)
        shape = (self.members, episodes)
        self._results = EvaluationResult(int(index), np.zeros(shape), np.zeros(shape, np.int64))
        for worker in self._workers:
            worker.owes_evaluation = True
            worker.send(self._evaluation)

    def poll_evaluation(self) -> EvaluationResult | None:
        """The evaluation that was started, if it is finished."""
        if self._evaluation is None:
            return None
        self._receive([worker for worker in self._workers if worker.owes_evaluation], 0.0)
        if any(worker.owes_evaluation for worker in self._workers):
            return None
        return self.finish_evaluation()

    def finish_evaluation(self) -> EvaluationResult:
        """Wait for the evaluation that was started."""
        if self._evaluation is None or self._results is None:
            raise RuntimeError("no evaluation is running: start one first")
        self._wait_for(lambda worker: worker.owes_evaluation)
        self._evaluation = None
        return self._results

    def state(self) -> dict[str, NDArray[Any]]:
        """Where every member stands, between rounds; plain arrays. An evaluation is not in it: one
        that was running is started again with its index and weights."""
        if self._round is not None:
            raise RuntimeError(f"round {self._round.number} is running: finish it first")
        return {
            "seeds": np.array(self._settings.seeds, np.uint64),
            "episodes": np.array([place.episode for place in self._places], np.int64),
            "steps": np.array([len(place.actions) for place in self._places], np.int64),
            "actions": np.concatenate([place.actions for place in self._places]),
            "observations": np.stack([place.observation for place in self._places]),
            "lost": self._lost.copy(),
        }

    def restore(self, state: Mapping[str, ArrayLike]) -> list[str]:
        """Go to where `state` was taken, exactly: the actions of the unfinished episodes are
        repeated. Where they do not lead to the same observations, the episode is lost; says so."""
        self._check_free()
        self._gaps = []
        self._places = self._read_state(state)
        self._lost = np.array(state["lost"], np.bool_)
        for worker in self._workers:
            self._send_places(worker)
        self._wait_for(lambda worker: worker.owes_places)
        return self._gaps

    def abandon(self) -> None:
        """End the workers and forget what they were doing: a round, an evaluation. `state` is
        what it was before the round."""
        self.close()
        if self._round is not None:
            self._places, self._lost = self._before_round
        self._round = self._evaluation = None

    def close(self) -> None:
        """End the workers; what they were doing is lost."""
        for worker in self._workers:
            worker.let_go()
        deadline = time.monotonic() + GRACE_SECONDS
        for worker in self._workers:
            worker.end(deadline)
        self._workers = []

    def _check_free(self) -> None:
        if not self._workers:
            raise RuntimeError("the fleet is closed")
        if self._round is not None:
            raise RuntimeError(f"round {self._round.number} is running: finish it first")

    def _start_of(self, episode: int) -> Place:
        return Place(
            episode,
            np.zeros((0, self.action_size), np.float32),
            np.zeros(self.observation_size, np.float32),
        )

    def _put(self, destination: NDArray[np.float32], weights: ArrayLike) -> None:
        given = np.asarray(weights, np.float32)
        expected = (self.members, count_weights(self.spec))
        if given.shape != expected:
            raise ValueError(f"weights: expected shape {expected}, got {given.shape}")
        wrong = np.flatnonzero(~np.isfinite(given).all(axis=1))
        if len(wrong):
            raise DataError(f"member {wrong[0]}: nan or infinite", field="weights")
        destination[...] = given

    def _read_state(self, state: Mapping[str, ArrayLike]) -> list[Place]:
        members = self.members
        for name in ("seeds", "episodes", "steps", "actions", "observations", "lost"):
            if name not in state:
                raise DataError("is missing", field=name)
        shapes = {
            "seeds": (members,),
            "episodes": (members,),
            "steps": (members,),
            "actions": (int(np.sum(state["steps"])), self.action_size),
            "observations": (members, self.observation_size),
            "lost": (members,),
        }
        arrays = {name: np.asarray(state[name]) for name in shapes}
        for name, shape in shapes.items():
            if arrays[name].shape != shape:
                raise DataError(f"expected shape {shape}, got {arrays[name].shape}", field=name)
        if tuple(arrays["seeds"].tolist()) != self._settings.seeds:
            raise DataError(
                f"expected {list(self._settings.seeds)}, got {arrays['seeds'].tolist()}",
                field="seeds",
            )
        stops = np.cumsum(arrays["steps"])[:-1]
        parts = np.split(arrays["actions"].astype(np.float32), stops)
        observations = arrays["observations"].astype(np.float32)
        episodes = arrays["episodes"].tolist()
        return [Place(*place) for place in zip(episodes, parts, observations, strict=True)]

    def _send_places(self, worker: _Worker | _Here) -> None:
        worker.owes_places = True
        worker.send(PlaceOrder(tuple(self._places[member] for member in worker.members)))

    def _wait_for(self, owes: Callable[[_Debts], bool]) -> None:
        begin, stopped_at = time.monotonic(), None
        for worker in self._workers:
            self._watch.forget(id(worker))
        while busy := [worker for worker in self._workers if owes(worker)]:
            self._receive(busy, POLL_SECONDS)
            for worker in busy:
                pulses = self._board.pulses[worker.members, 0]
                self._watch.look(id(worker), pulses.tolist(), partial(self._describe, worker))
            if time.monotonic() - begin > ASK_SECONDS and self.should_stop():
                stopped_at = time.monotonic() if stopped_at is None else stopped_at
                if time.monotonic() - stopped_at > STOP_SECONDS:
                    raise Hung(f"{self._describe(busy[0])} does not answer")

    def _describe(self, worker: _Worker | _Here) -> str:
        """The member that a worker is busy with; all of its members where it is with none."""
        inside = [member for member in worker.members if self._board.pulses[member, 0] % 2]
        members = ", ".join(map(str, inside or worker.members))
        process = f" (worker process {worker.process.pid})" if isinstance(worker, _Worker) else ""
        return f"member {members}{process}"

    def _receive(self, workers: list[_Worker | _Here], timeout: float) -> None:
        for worker in _ready(workers, timeout):
            try:
                reply = worker.receive()
            except _Died as death:
                self._replace(worker, str(death))
            else:
                if reply is not None:
                    self._take(worker, reply)

    def _take(self, worker: _Worker | _Here, reply: Reply) -> None:
        if isinstance(reply, DataError):
            raise reply
        if isinstance(reply, RoundOrder):
            worker.owes_round = False
            self._restarted[worker.members] = self._lost[worker.members]
            self._lost[worker.members] = False
            for member in worker.members:
                self._places[member] = follow(self._places[member], self._board.rows_of(member))
        elif isinstance(reply, EvaluationResult):
            worker.owes_evaluation = False
            assert self._results is not None
            self._results.returns[worker.members] = reply.returns
            self._results.lengths[worker.members] = reply.lengths
        else:
            worker.owes_places = False
            for member, gap in zip(worker.members, reply.gaps, strict=True):
                if gap is not None:
                    self._gaps.append(gap)
                    self._lose(member)
        # Not before all is delivered: an evaluation may be what kills the worker between rounds.
        if not (worker.owes_round or worker.owes_evaluation or worker.owes_places):
            worker.deaths = 0

    def _lose(self, member: int) -> None:
        """Its unfinished episode is gone: it stands before the next."""
        self._lost[member] = True
        self._places[member] = self._start_of(self._places[member].episode + 1)

    def _replace(self, worker: _Worker | _Here, cause: str) -> None:
        """Another process for the members of one that died; their unfinished episodes are lost.

        They go on with the next episode: the one they were in may be what killed it.
        """
        worker.deaths += 1
        if worker.deaths >= MAX_DEATHS:
            raise DataError(
                f"the worker process of members {', '.join(map(str, worker.members))} died "
                f"{MAX_DEATHS} times in a row, the last time {cause}"
            )
        worker.let_go()
        worker.end(time.monotonic())
        # One that was still on its way to a place has done nothing there that could be lost.
        if not worker.owes_places:
            for member in worker.members:
                self._lose(member)
        worker.start(self._settings, self._memory)
        self._send_places(worker)
        if worker.owes_round and self._round is not None:
            worker.send(self._round)
        if worker.owes_evaluation and self._evaluation is not None:
            worker.send(self._evaluation)


def _check_numbers(seeds: Sequence[int], workers: int, steps: int) -> None:
    if not len(seeds):
        raise DataError("expected at least one", field="seeds")
    # Networks are seeded with four times as much.
    if not all(0 <= seed < 2**60 for seed in seeds):
        raise DataError("expected whole numbers of at least 0 and less than 2^60", field="seeds")
    if workers < 0:
        raise DataError(f"expected at least 0, got {workers}", field="workers")
    if steps < 1:
        raise DataError(f"expected at least 1, got {steps}", field="steps")


class _Died(Exception):
    """A worker process ended by itself; says of what."""


class _Debts:
    """What someone who steps members has been asked for and has not delivered."""

    def __init__(self, members: list[int]) -> None:
        self.members = members
        self.owes_round = self.owes_evaluation = self.owes_places = False
        self.deaths = 0
        """Since it last delivered all that it owed."""


class _Here(_Debts):
    """Members stepped by this process, when their result is asked for."""

    def start(self, settings: LaneSettings, memory: Any) -> None:
        self._crew = Crew(settings, self.members, memory)
        self._orders: deque[Order] = deque()

    def send(self, order: Order) -> None:
        self._orders.append(order)

    def receive(self) -> Reply | None:
        if self._orders:
            return self._crew.carry_out(self._orders.popleft())
        return self._crew.advance() if self._crew.is_evaluating else None

    def let_go(self) -> None:
        self._crew.close()

    def end(self, deadline: float) -> None:
        pass


class _Worker(_Debts):
    """Members stepped by a process of their own."""

    process: multiprocessing.process.BaseProcess
    connection: Connection[Order, Reply]

    def start(self, settings: LaneSettings, memory: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(
            target=_work,
            args=(settings, self.members, memory, theirs),
            name="grd-offline-worker",
            daemon=True,
        )
        with environment_for_workers():
            self.process.start()
        theirs.close()

    def send(self, order: Order) -> None:
        # A broken pipe means that it died, which shows when its reply is due.
        with suppress(OSError):
            self.connection.send(order)

    def receive(self) -> Reply | None:
        try:
            if self.process.is_alive() or self.connection.poll():
                return self.connection.recv()
        except (EOFError, OSError):
            pass
        raise _Died(describe_death(self.process))

    def let_go(self) -> None:
        """A closed pipe tells it to leave."""
        self.connection.close()

    def end(self, deadline: float) -> None:
        self.process.join(max(0.0, deadline - time.monotonic()))
        self.process.kill()
        self.process.join()


def _ready(workers: list[_Worker | _Here], timeout: float) -> list[_Worker | _Here]:
    """Those that have sent something or died; who works here is always ready."""
    away = [worker for worker in workers if isinstance(worker, _Worker)]
    if len(away) < len(workers):
        return workers
    ready = connection.wait([worker.connection for worker in away], timeout)
    # A process that a worker left behind can hold its pipe open.
    return [w for w in away if w.connection in ready or not w.process.is_alive()]


def _work(
    settings: LaneSettings,
    members: list[int],
    memory: Any,
    pipe: Connection[Reply, Order],
) -> None:
    """The life of a worker: orders first, evaluation while there are none."""
    become_worker()
    crew: Crew | None = None
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        try:
            crew = Crew(settings, members, memory)
            while True:
                if crew.is_evaluating and not pipe.poll():
                    reply: Reply | None = crew.advance()
                else:
                    reply = crew.carry_out(pipe.recv())
                if reply is not None:
                    pipe.send(reply)
        except DataError as error:
            pipe.send(error)
            # It stays until it is let go, so that its end is not taken for a death.
            pipe.recv()
    if crew is not None:
        crew.close()
