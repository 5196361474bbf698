"""What a worker of a fleet does: it steps some of the members' environments.

Settings and arrays are shared by all processes. An environment of a member lives on from round to
round. All randomness is stateless: it comes from the member's seed, a number (of the episode, the
round or the evaluation), and which of the member's environments it is. What happens does not depend
on which worker does the work, or when, and any moment can be reached again.

An evaluation is whole episodes without noise. An episode does not depend on who steps it. Each
worker gets one after the other, and asks for the next by giving the result of the last. So workers
that have less to do in rounds evaluate more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grd_offline.core.episodes import LARGEST, describe_number
from grd_offline.core.errors import DataError
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
from grd_offline.learning.fleet.environment import VectorEnvironment
from grd_offline.learning.fleet.watch import Heartbeat

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


def make_spec(
    environment: VectorEnvironment,
    kind: str | Callable[[bool], str],
    hidden: Sequence[int],
    noise: float,
) -> ActorSpec:
    """The policies of all members."""
    kind = kind if isinstance(kind, str) else kind(environment.choices > 0)
    if (environment.choices > 0) != (kind in DISCRETE_KINDS):
        what = "discrete" if environment.choices else "continuous"
        raise DataError(f"{environment.id} has {what} actions, a {kind} policy has others")
    outputs = len(environment.low) * (2 if kind == "gaussian" else 1)
    return ActorSpec(
        kind,
        (environment.observation_size, *hidden, outputs),
        tuple(environment.low),
        tuple(environment.high),
        noise if kind in NOISY_KINDS else 0.0,
        environment.first_choice,
    )


class RoundSteps(NamedTuple):
    """The steps of a round: arrays (step, ...) of one environment, (environment, step, ...) of all,
    or (slot, environment, step, ...) of all rounds that are under way."""

    observations: SingleArray
    actions: SingleArray
    next_observations: SingleArray
    rewards: NDArray[np.float64]
    terminations: NDArray[np.bool_]
    truncations: NDArray[np.bool_]


class SharedArrays:
    """Arrays that all processes see: weights go in, the steps of a round come out."""

    def __init__(self, settings: FleetSettings, memory: Any) -> None:
        self._memory = memory
        self._begin = 0
        members, environments = len(settings.seeds), settings.environments
        shape = (SLOTS, environments, settings.steps)
        states, actions = settings.spec.observation_size, settings.spec.action_size
        self.weights = self._array((SLOTS, members, count_weights(settings.spec)), np.float32)
        self.evaluation_weights = self._array(self.weights.shape[1:], np.float32)
        self.rows = RoundSteps(
            observations=self._array((*shape, states), np.float32),
            actions=self._array((*shape, actions), np.float32),
            next_observations=self._array((*shape, states), np.float32),
            rewards=self._array(shape, np.float64),
            terminations=self._array(shape, np.bool_),
            truncations=self._array(shape, np.bool_),
        )
        self.heartbeats = self._array((environments, 1), np.int64)
        """The heartbeat of each environment that is stepped in rounds."""
        self.evaluation_heartbeats = self._array((settings.workers, 1), np.int64)
        """The heartbeat of each worker's environment for evaluations."""
        self.evaluated = self._array((settings.workers,), np.int64)
        """The member that each worker evaluates, or has evaluated last."""

    @staticmethod
    def count_bytes(settings: FleetSettings) -> int:
        """The memory that the arrays need, with room for their alignment."""
        spec, members = settings.spec, len(settings.seeds)
        per_step = 4 * (2 * spec.observation_size + spec.action_size) + 8 + 2
        weights = members * (SLOTS + 1) * 4 * count_weights(spec)
        rows = settings.environments * (SLOTS * settings.steps * per_step + 8)
        return weights + rows + settings.workers * 16 + 11 * _ALIGNMENT

    def rows_of(self, slot: int, environment: int) -> RoundSteps:
        return RoundSteps(*(array[slot, environment] for array in self.rows))

    def _array(self, shape: tuple[int, ...], kind: type) -> NDArray[Any]:
        array: NDArray[Any] = np.ndarray(shape, kind, self._memory, self._begin)
        self._begin += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
        return array


_ARRAYS = ("seeds", "episodes", "steps", "actions", "observations", "lost")


class EpisodePosition(NamedTuple):
    """The position of an environment in its episode. Repeating the actions leads to it again."""

    episode: int
    actions: SingleArray
    """(step, action) the actions of that episode so far."""
    observation: SingleArray
    """(state,) the last observation, which a repetition must reach. It is not used at the start of
    an episode."""

    def advance(self, rows: RoundSteps) -> EpisodePosition:
        """Return the position of the environment after a round."""
        ends = np.flatnonzero(rows.terminations | rows.truncations)
        last = rows.next_observations[-1].copy()
        if len(ends):
            unfinished = rows.actions[ends[-1] + 1 :].copy()
            return EpisodePosition(self.episode + len(ends), unfinished, last)
        return EpisodePosition(self.episode, np.concatenate([self.actions, rows.actions]), last)

    def find_difference(self, observation: SingleArray | None) -> str | None:
        """Describe how a repetition that arrived at this observation differs, or return None."""
        if observation is None or np.array_equal(observation, self.observation):
            return None
        at = int(np.flatnonzero(observation != self.observation)[0])
        return (
            f"after {len(self.actions)} actions, dimension {at} is {observation[at]}, expected "
            f"{self.observation[at]}"
        )


def start_of_episode(settings: FleetSettings, episode: int) -> EpisodePosition:
    """The position before the first step of an episode."""
    return EpisodePosition(
        episode,
        np.zeros((0, settings.spec.action_size), np.float32),
        np.zeros(settings.spec.observation_size, np.float32),
    )


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
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(_ARRAYS, (count,))
    shapes["seeds"] = (len(settings.seeds),)
    for name in shapes:
        if name not in state:
            raise DataError("is missing", field=name)
    shapes["actions"] = (int(np.sum(state["steps"])), settings.spec.action_size)
    shapes["observations"] = (count, settings.spec.observation_size)
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

    def run(self, index: int, actor: Actor | None, rows: RoundSteps) -> None:
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

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        def describe() -> str:
            return f"{self._name}, episode {self._episode}"

        with (
            self._environment.explain_errors(describe),
            np.errstate(over="ignore", invalid="ignore"),
        ):
            yield

    def _check_finite(self, rows: RoundSteps, count: int, episode: int, step: int) -> None:
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
