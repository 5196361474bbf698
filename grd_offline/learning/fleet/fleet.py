"""A fleet of worker processes that step the members' environments while the learner learns.

    with Fleet("HalfCheetah", seeds=[0, 1, 2], workers=2) as fleet:
        fleet.start_round(0, None)                  # warm-up: random actions
        round_ = fleet.finish_round()
        fleet.start_round(1, weights)               # returns at once; update meanwhile
        fleet.start_round(2, others)                # each environment begins it when done with 1
        round_ = fleet.finish_round()               # round 1

Weights and steps go through shared memory, orders and replies through pipes. An environment of a
member lives on from round to round. All randomness is stateless: it comes from the member's seed, a
number (of the episode, the round or the evaluation), and which of the member's environments it is.
What happens does not depend on which worker does the work, or when, and any moment can be reached
again.

An evaluation is whole episodes without noise. An episode does not depend on who steps it. Each
worker gets one after the other, and asks for the next by giving the result of the last. So workers
that have less to do in rounds evaluate more.
"""

from __future__ import annotations

import multiprocessing
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grd_offline.core.episodes import LARGEST, describe_number
from grd_offline.core.errors import DataError
from grd_offline.core.observer import NOBODY, Observer
from grd_offline.core.process import ProcessDied
from grd_offline.core.threads import lower_priority
from grd_offline.core.typing import SingleArray
from grd_offline.learning.agents.actors import (
    DISCRETE_KINDS,
    NOISY_KINDS,
    Actor,
    ActorSpec,
    count_weights,
)
from grd_offline.learning.agents.exploration import draw_box_actions, draw_discrete_actions
from grd_offline.learning.fleet import worker as processes
from grd_offline.learning.fleet.environment import TOLERANT, VectorEnvironment
from grd_offline.learning.fleet.worker import STOP_SECONDS, HangWatch, Heartbeat, Hung, Worker
from grd_offline.worlds.environments import dimension_names

RESETS, ROUNDS, EVALUATIONS = range(3)
"""The first number of a key says what the randomness is for."""
SLOTS = 2
"""Rounds that may be under way at the same time. Each has arrays of its own."""
_ALIGNMENT = 64


@dataclass(frozen=True)
class FleetSettings:
    """Settings that a process needs to step members."""

    environment: str
    env_args: Mapping[str, Any]
    max_episode_steps: int | None
    seeds: tuple[int, ...]
    steps: int
    """Steps of each environment in a round."""
    spec: ActorSpec
    workers: int = 1
    environments_each: int = 1
    """Environments of each member. Those of member 0 come first, then those of member 1."""

    @property
    def environments(self) -> int:
        return len(self.seeds) * self.environments_each

    def find_member(self, environment: int) -> int:
        """The member that an environment belongs to."""
        return environment // self.environments_each

    def make_environment(self) -> VectorEnvironment:
        return VectorEnvironment(self.environment, self.env_args, self.max_episode_steps)


def make_reset_seed(seed: int, *key: int) -> int:
    """The seed that an environment is reset with."""
    return int(np.random.SeedSequence(seed, spawn_key=key).generate_state(1)[0])


class Round(NamedTuple):
    """The steps of a round: arrays (step, ...) of one environment, (environment, step, ...) of all,
    or (slot, environment, step, ...) of all rounds that are under way.

    Row t of `observations` is what action t reacts to. After the end of an episode, the next row
    begins another episode.
    """

    observations: SingleArray
    actions: SingleArray
    """Actions in the units of the environment."""
    next_observations: SingleArray
    rewards: NDArray[np.float64]
    """The true rewards of the environment."""
    terminations: NDArray[np.bool_]
    truncations: NDArray[np.bool_]
    restarted: NDArray[np.bool_]
    """(environment,) whether its worker died, so that its unfinished episode from before this round
    is lost."""


class SharedArrays:
    """Arrays that all processes see: weights go in, the steps of a round come out."""

    def __init__(self, settings: FleetSettings, memory: Any) -> None:
        """Lay the arrays out in `memory`. Without memory they show how much of it they need."""
        self._memory = memory
        self.size = 0
        """Number of bytes of all arrays, with room for their alignment."""
        members, environments = len(settings.seeds), settings.environments
        shape = (SLOTS, environments, settings.steps)
        states, actions = settings.spec.observation_size, settings.spec.action_size
        self.weights = self._array((SLOTS, members, count_weights(settings.spec)), np.float32)
        self.evaluation_weights = self._array(self.weights.shape[1:], np.float32)
        self.rows = Round(
            observations=self._array((*shape, states), np.float32),
            actions=self._array((*shape, actions), np.float32),
            next_observations=self._array((*shape, states), np.float32),
            rewards=self._array(shape, np.float64),
            terminations=self._array(shape, np.bool_),
            truncations=self._array(shape, np.bool_),
            restarted=self._array(shape[:2], np.bool_),
        )
        self.heartbeats = self._array((environments, 1), np.int64)
        """The heartbeat of each environment that is stepped in rounds."""
        self.evaluation_heartbeats = self._array((settings.workers, 1), np.int64)
        """The heartbeat of each worker's environment for evaluations."""
        self.evaluated = self._array((settings.workers,), np.int64)
        """The member that each worker evaluates, or has evaluated last."""

    def rows_of(self, slot: int, environment: int) -> Round:
        return Round(*(array[slot, environment] for array in self.rows))

    def _array(self, shape: tuple[int, ...], kind: type) -> NDArray[Any]:
        array: NDArray[Any] = np.ndarray(shape, kind, self._memory, self.size)
        self.size += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
        return array


class EpisodePosition(NamedTuple):
    """The position of an environment in its episode. Repeating the actions leads to it again."""

    episode: int
    actions: SingleArray
    """(step, action) the actions of that episode so far."""
    observation: SingleArray
    """(state,) the last observation, which a repetition must reach. It is not used at the start of
    an episode."""

    def advance(self, rows: Round) -> EpisodePosition:
        """Return the position of the environment after a round."""
        ends = np.flatnonzero(rows.terminations | rows.truncations)
        last = rows.next_observations[-1].copy()
        if len(ends):
            unfinished = rows.actions[ends[-1] + 1 :].copy()
            return EpisodePosition(self.episode + len(ends), unfinished, last)
        return EpisodePosition(self.episode, np.concatenate([self.actions, rows.actions]), last)


def start_of_episode(settings: FleetSettings, episode: int) -> EpisodePosition:
    """The position before the first step of an episode."""
    actions = np.zeros((0, settings.spec.action_size), np.float32)
    return EpisodePosition(episode, actions, np.zeros(settings.spec.observation_size, np.float32))


def pack_positions(
    settings: FleetSettings, positions: Sequence[EpisodePosition], lost: NDArray[np.bool_]
) -> dict[str, NDArray[Any]]:
    """The positions of all environments as plain arrays; `lost`: those that lost an episode."""
    return {
        "seeds": np.array(settings.seeds, np.uint64),
        "episodes": np.array([position.episode for position in positions], np.int64),
        "steps": np.array([len(position.actions) for position in positions], np.int64),
        "actions": np.concatenate([position.actions for position in positions]),
        "observations": np.stack([position.observation for position in positions]),
        "lost": lost.copy(),
    }


def unpack_positions(
    settings: FleetSettings, state: Mapping[str, ArrayLike]
) -> tuple[list[EpisodePosition], NDArray[np.bool_]]:
    """Read what `pack_positions` made, and refuse what belongs to another fleet."""
    count = settings.environments
    for name in ("seeds", "episodes", "steps", "actions", "observations", "lost"):
        if name not in state:
            raise DataError("is missing", field=name)
    shapes: dict[str, tuple[int, ...]] = {
        "seeds": (len(settings.seeds),),
        **dict.fromkeys(("episodes", "steps"), (count,)),
        "actions": (int(np.sum(state["steps"])), settings.spec.action_size),
        "observations": (count, settings.spec.observation_size),
        "lost": (count,),
    }
    arrays = {name: np.asarray(state[name]) for name in shapes}
    for name, shape in shapes.items():
        if arrays[name].shape != shape:
            raise DataError(f"expected shape {shape}, got {arrays[name].shape}", field=name)
    seeds = arrays["seeds"].tolist()
    if tuple(seeds) != settings.seeds:
        raise DataError(f"expected {list(settings.seeds)}, got {seeds}", field="seeds")
    stops = np.cumsum(arrays["steps"])[:-1]
    actions = np.split(arrays["actions"].astype(np.float32), stops)
    observations = arrays["observations"].astype(np.float32)
    episodes = arrays["episodes"].tolist()
    positions = [EpisodePosition(*p) for p in zip(episodes, actions, observations, strict=True)]
    return positions, np.array(state["lost"], np.bool_)


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
        self._missing = members * episodes
        self._waiting = deque(
            EvaluationOrder(number, place % members, place // members)
            for place in range(self._missing)
        )

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


class MemberEnvironment:
    """One of the environments of a member, which is kept from round to round."""

    def __init__(self, settings: FleetSettings, number: int, heartbeat: Heartbeat) -> None:
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
        self._observation: SingleArray | None = None

    def close(self) -> None:
        self._environment.close()

    def go_to(self, position: EpisodePosition) -> str | None:
        """Reach a position by repeating the actions that led to it.

        If they lead elsewhere, the text says how, and the next episode comes instead.
        """
        self._episode, self._observation = position.episode, None
        if not len(position.actions):
            return None
        with self._environment.explain_errors(self._describe), np.errstate(**TOLERANT):
            self._begin_episode()
            gap = self._repeat(position)
        if gap is None:
            return None
        self._episode, self._observation = position.episode + 1, None
        where = f"{self._name}, episode {position.episode}"
        return f"{where}: the environment does not repeat itself: {gap}"

    def _repeat(self, position: EpisodePosition) -> str | None:
        for action in position.actions:
            self._observation, _, terminated, truncated = self._environment.step(action)
            if terminated or truncated:
                steps = self._environment.steps
                return f"it ended after {steps} of {len(position.actions)} actions"
        arrived, expected = self._observation, position.observation
        if arrived is None or np.array_equal(arrived, expected):
            return None
        at = int(np.flatnonzero(arrived != expected)[0])
        values = f"dimension {at} is {arrived[at]}, expected {expected[at]}"
        return f"after {len(position.actions)} actions, {values}"

    def run(self, index: int, actor: Actor | None, rows: Round) -> None:
        """Fill the rows of a round. Without an actor, the actions are uniformly random."""
        environment, steps = self._environment, len(rows.rewards)
        seed = np.random.SeedSequence(self._seed, spawn_key=(ROUNDS, index, *self._key))
        generator = np.random.default_rng(seed)
        if actor is None:
            planned = self._draw_actions(steps, generator)
        else:
            noise = actor.draw_noise(steps, generator)
        first_step = 0 if self._observation is None else environment.steps
        first_episode, done = self._episode, 0
        try:
            with environment.explain_errors(self._describe), np.errstate(**TOLERANT):
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

    def _draw_actions(self, steps: int, generator: np.random.Generator) -> SingleArray:
        """(step, action) uniformly random actions."""
        environment = self._environment
        if environment.choices:
            chosen = draw_discrete_actions("random", environment.choices, steps, generator)
            return np.eye(environment.choices, dtype=np.float32)[chosen]
        return draw_box_actions("random", environment.low, environment.high, steps, generator)

    def _begin_episode(self) -> SingleArray:
        self._observation = self._environment.reset(
            make_reset_seed(self._seed, RESETS, self._episode, *self._key)
        )
        return self._observation

    def _describe(self) -> str:
        return f"{self._name}, episode {self._episode}"

    def _check_finite(self, rows: Round, count: int, episode: int, step: int) -> None:
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


FleetOrder = RoundOrder | EvaluationOrder | PositionOrder
FleetReply = RoundOrder | EvaluatedEpisode | list[str | None]
"""An order for a round comes back when it has been carried out. To one for positions the reply is a
text for each environment that could not get there, which says why: it is at the start of its next
episode."""


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
            return [environment.go_to(position) for environment, position in pairs]
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
            self._evaluation = self._evaluate(self._orders.popleft())
        try:
            with np.errstate(**TOLERANT):
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

    def _evaluate(self, order: EvaluationOrder) -> Generator[None, None, EvaluatedEpisode]:
        """Run an episode without noise, and pause every few steps. The generator returns the
        result."""
        if self._evaluation_environment is None:
            self._evaluation_environment = self._settings.make_environment()
        environment, actor, total = self._evaluation_environment, self._evaluated_actor, 0.0
        environment.heartbeat = self._shared.evaluation_heartbeats[self._worker]
        actor.load(self._shared.evaluation_weights[order.member])
        self._shared.evaluated[self._worker] = order.member
        key = (EVALUATIONS, order.number, order.episode)
        seed = make_reset_seed(self._settings.seeds[order.member], *key)
        about = f"member {order.member}, evaluation {order.number}, episode {order.episode}"
        with environment.explain_errors(lambda: about):
            observation, over = environment.reset(seed), False
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


class WorkerGroup:
    """Some environments, the worker that steps them, and the replies that it still owes."""

    def __init__(self, worker: Worker, number: int, environments: list[int]) -> None:
        self.worker, self.number = worker, number
        self.environments = environments
        """Those that it steps in rounds. A worker without any only evaluates."""
        self.owes: list[FleetOrder] = []
        """Orders that the worker has and has not carried out yet."""
        self.deaths = 0
        """Number of deaths in a row."""
        self.interrupted: Sequence[FleetOrder] = ()
        """Orders that the worker had when it died last."""

    def send(self, order: FleetOrder) -> None:
        self.owes.append(order)
        self.worker.send(order)

    def count(self, kind: type) -> int:
        """The number of orders of this kind that the worker has."""
        return sum(isinstance(order, kind) for order in self.owes)


ASK_SECONDS = 1.0
"""The fleet waits for so many seconds before it asks whether to stop."""
MAX_DEATHS = 3
"""A worker that dies so many times in a row is not replaced any more."""


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
        kind = kind if isinstance(kind, str) else kind(self.is_discrete)
        if self.is_discrete != (kind in DISCRETE_KINDS):
            what = "discrete" if self.is_discrete else "continuous"
            raise DataError(f"{first.id} has {what} actions, a {kind} policy has others")
        outputs = self.action_size * (2 if kind == "gaussian" else 1)
        sizes, noise = (self.observation_size, *hidden, outputs), noise * (kind in NOISY_KINDS)
        bounds = tuple(first.low), tuple(first.high)
        self.spec = ActorSpec(kind, sizes, *bounds, noise, first.first_choice)
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
        self.members, self.steps = len(self._settings.seeds), steps
        self._watch, self._observer = HangWatch(observer.on_warning), observer
        count = self._settings.environments
        self._positions = [start_of_episode(self._settings, 0) for _ in range(count)]
        self._lost = np.zeros(count, np.bool_)
        """(environment,) whether it lost its unfinished episode since its last round."""
        self._after = [list(self._positions) for _ in range(SLOTS)]
        """The positions after the round of each slot."""
        self._settled = list(self._positions), self._lost.copy()
        """The positions after the last round that was finished."""
        self._gaps: list[str] = []
        """Why environments could not go back to where they were."""
        self._rounds: deque[RoundOrder] = deque()
        """The rounds that are under way, the oldest first."""
        self._slot = 0
        self._evaluation: RunningEvaluation | None = None
        self._start_workers(workers)

    def _start_workers(self, workers: int) -> None:
        self._groups: list[WorkerGroup] = []
        # This memory has no name, so that nothing is left behind however the processes end.
        context = multiprocessing.get_context("spawn")
        memory = context.RawArray("b", SharedArrays(self._settings, None).size)
        self._shared = SharedArrays(self._settings, memory)
        make = processes.make_worker if workers else processes.InProcessWorker
        groups = np.array_split(np.arange(self._settings.environments), self._settings.workers)
        try:
            for number, group in enumerate(groups):
                numbers = group.tolist()
                worker: processes.Worker = make(
                    partial(WorkerEnvironments, self._settings, number, numbers, memory)
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
        order = RoundOrder(int(index), weights is None, slot)
        self._rounds.append(order)
        for group in self._groups:
            if group.environments:
                group.send(order)

    def wait_round(self, seconds: float) -> bool:
        """Wait a little for the oldest round. Says whether it is finished."""
        order, busy = self._find_oldest(), [group for group in self._groups if group.owes]
        if any(order in group.owes for group in busy):
            self._receive(busy, seconds)
        return not any(order in group.owes for group in self._groups)

    def finish_round(self) -> Round:
        """Wait for the oldest round that was started. The arrays belong to the caller."""
        order = self._find_oldest()
        self._wait_for(lambda group: order in group.owes)
        self._rounds.popleft()
        self._settled = list(self._after[order.slot]), np.zeros_like(self._lost)
        return Round(*(array[order.slot].copy() for array in self._shared.rows))

    def _find_oldest(self) -> RoundOrder:
        if not self._rounds:
            raise RuntimeError("no round is running: start one first")
        return self._rounds[0]

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
        if self._evaluation is None or group.count(RoundOrder):
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
        self._wait_for(lambda group: group.count(PositionOrder) > 0)
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
        group.send(PositionOrder(tuple(self._positions[m] for m in group.environments)))

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

    def _take(self, group: WorkerGroup, reply: FleetReply) -> None:
        if isinstance(reply, RoundOrder):
            group.owes.remove(reply)
            restarted = self._shared.rows.restarted[reply.slot]
            restarted[group.environments] = self._lost[group.environments]
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
            group.owes = [o for o in group.owes if not isinstance(o, PositionOrder)]
            for number, gap in zip(group.environments, reply, strict=True):
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
            members = ", ".join(map(str, self._find_members(group.environments)))
            whose = f"members {members}" if members else "evaluations"
            often = f"{MAX_DEATHS} times in a row, the last time {cause}"
            raise DataError(f"the worker process of {whose} died {often}")
        group.worker.let_go()
        group.worker.end(time.monotonic())
        # A worker that was still on its way to a position has done nothing that could be lost.
        if not group.count(PositionOrder):
            for number in group.environments:
                self._lose(number)
        rest = [order for order in group.owes if not isinstance(order, PositionOrder)]
        group.owes, group.interrupted = [], rest
        group.worker.start()
        self._send_positions(group)
        for order in rest:
            group.send(order)


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
