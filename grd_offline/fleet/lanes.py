"""Stepping environments for members in training: rounds of steps, and evaluation in between.

A member has one environment, which lives on from round to round. All randomness is stateless: it
comes from the member's seed and a number (of the episode, the round, the evaluation), so what
happens depends neither on who shares the work nor on when, and any moment can be reached again.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from grd_offline.agents.actors import Actor, ActorSpec, count_weights
from grd_offline.agents.exploration import draw_box_actions
from grd_offline.episodes import LARGEST, describe_number
from grd_offline.errors import DataError
from grd_offline.fleet.environment import describe_error, make_environment
from grd_offline.fleet.watch import Pulse, make_pulse

Array = NDArray[np.float32]
EVALUATION_STEPS = 24
"""Steps of an evaluation between two looks at whether a round is due."""
_RESETS, _ROUNDS, _EVALUATIONS = range(3)


@dataclass(frozen=True)
class LaneSettings:
    """What a process must know to run members."""

    environment: str
    env_args: Mapping[str, Any]
    max_episode_steps: int | None
    seeds: tuple[int, ...]
    """One per member."""
    steps: int
    """Steps per member and round."""
    spec: ActorSpec

    def make_stage(self) -> Stage:
        """Another instance of the environment."""
        return Stage(self.environment, self.env_args, self.max_episode_steps)


class Place(NamedTuple):
    """Where a member stands: enough to get there again."""

    episode: int
    """Number of the unfinished episode."""
    actions: Array
    """(step, action) what was done in it so far."""
    observation: Array
    """(state,) the last one seen, which a replay must arrive at; unused where nothing was done."""


class Rows(NamedTuple):
    """One member's part of a round, to be filled."""

    observations: Array
    actions: Array
    next_observations: Array
    rewards: NDArray[np.float64]
    terminations: NDArray[np.bool_]
    truncations: NDArray[np.bool_]


class Stage:
    """An environment with vectors for observations and actions, whose episodes always end."""

    def __init__(
        self, environment: str, env_args: Mapping[str, Any], max_episode_steps: int | None
    ) -> None:
        self.environment, self.id, self.step_limit = make_environment(
            environment, env_args, max_episode_steps
        )
        try:
            _check_spaces(self.environment)
        except DataError as error:
            self.close()
            raise DataError(f"{self.id}: {error}") from None
        observed, acted = self.environment.observation_space, self.environment.action_space
        self.observation_size = int(np.prod(observed.shape or ()))
        space: Any = acted
        self.low, self.high = space.low.astype(np.float64), space.high.astype(np.float64)
        self.steps = 0
        """Taken in this episode."""
        self.pulse = make_pulse()
        """Odd while the environment is at work."""
        self._action_type = acted.dtype
        self._step = self.environment.step

    def reset(self, seed: int) -> Array:
        """Begin an episode."""
        self.steps = 0
        self.pulse += 1
        observation, _ = self.environment.reset(seed=seed)
        self.pulse += 1
        first = np.array(observation, np.float32)
        if first.shape != (self.observation_size,):
            raise DataError(
                f"expected observations of shape {(self.observation_size,)}, as the space says, "
                f"got {first.shape}"
            )
        return first

    def step(self, action: Array) -> tuple[Array, float, bool, bool]:
        """What follows, the reward, and whether the episode was terminated or truncated."""
        # A copy each way: an environment may change what it is handed, and what it handed out.
        self.pulse += 1
        observation, reward, terminated, truncated, _ = self._step(action.astype(self._action_type))
        self.pulse += 1
        self.steps += 1
        terminated = bool(terminated)
        truncated = bool(truncated) or (self.steps >= self.step_limit and not terminated)
        return np.array(observation, np.float32), float(reward), terminated, truncated

    def close(self) -> None:
        """Close the environment."""
        with suppress(Exception):
            self.environment.close()


def _check_spaces(environment: Any) -> None:
    from gymnasium.spaces import Box

    observed, acted = environment.observation_space, environment.action_space
    if not isinstance(observed, Box) or len(observed.shape) != 1:
        raise DataError(
            f"expected a one-dimensional Box, got {_one_line(observed)}", field="observations"
        )
    fits = isinstance(acted, Box) and len(acted.shape) == 1
    if not fits or not np.issubdtype(acted.dtype, np.floating) or not acted.is_bounded("both"):
        raise DataError(
            f"expected a bounded one-dimensional Box of floats, got {_one_line(acted)}",
            field="actions",
        )


def _one_line(space: object) -> str:
    return " ".join(str(space).split())[:200]


def _generator(seed: int, *key: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


def reset_seed(seed: int, *key: int) -> int:
    """What an environment is reset with."""
    return int(np.random.SeedSequence(seed, spawn_key=key).generate_state(1)[0])


def follow(place: Place, rows: Rows) -> Place:
    """Where a member stands after a round."""
    ends = np.flatnonzero(rows.terminations | rows.truncations)
    last = rows.next_observations[-1].copy()
    if len(ends):
        return Place(place.episode + len(ends), rows.actions[ends[-1] + 1 :].copy(), last)
    return Place(place.episode, np.concatenate([place.actions, rows.actions]), last)


class Lane:
    """One member and its environment, kept from round to round."""

    def __init__(self, settings: LaneSettings, member: int, pulse: Pulse) -> None:
        self._stage = settings.make_stage()
        self._stage.pulse = pulse
        self._member = member
        self._seed = settings.seeds[member]
        self._episode = 0
        self._observation: Array | None = None

    def close(self) -> None:
        """Close the environment."""
        self._stage.close()

    def go_to(self, place: Place) -> str | None:
        """Reach a place by repeating the actions that led there.

        Where they lead elsewhere, says how, and stands before the next episode.
        """
        self._episode, self._observation = place.episode, None
        if not len(place.actions):
            return None
        with self._blaming():
            self._begin_episode()
            gap = self._repeat(place)
        if gap is None:
            return None
        self._episode, self._observation = place.episode + 1, None
        return (
            f"member {self._member}, episode {place.episode}: the environment does not repeat "
            f"itself: {gap}"
        )

    def _repeat(self, place: Place) -> str | None:
        for action in place.actions:
            self._observation, _, terminated, truncated = self._stage.step(action)
            if terminated or truncated:
                return f"it ended after {self._stage.steps} of {len(place.actions)} actions"
        return _compare(self._observation, place)

    def run(self, index: int, actor: Actor | None, rows: Rows) -> None:
        """Fill the rows of round `index`; without an actor, with uniformly random actions."""
        stage, steps = self._stage, len(rows.rewards)
        generator = _generator(self._seed, _ROUNDS, index)
        if actor is None:
            planned = draw_box_actions("random", stage.low, stage.high, steps, generator)
        else:
            normal = generator.standard_normal((steps, len(stage.low)), np.float32)
        first_episode, first_step, done = self._episode, self._steps_taken(), 0
        try:
            with self._blaming():
                for t in range(steps):
                    observation = self._observation
                    if observation is None:
                        observation = self._begin_episode()
                    action = (
                        planned[t]
                        if actor is None
                        else actor.act_with_noise(observation, normal[t])
                    )
                    following, reward, terminated, truncated = stage.step(action)
                    rows.observations[t] = observation
                    rows.actions[t] = action
                    rows.next_observations[t] = following
                    rows.rewards[t] = reward
                    rows.terminations[t] = terminated
                    rows.truncations[t] = truncated
                    done = t + 1
                    if terminated or truncated:
                        self._episode += 1
                        self._observation = None
                    else:
                        self._observation = following
        finally:
            # Also where the environment failed: nan may be why.
            self._check_finite(rows, done, first_episode, first_step)

    def _begin_episode(self) -> Array:
        self._observation = self._stage.reset(reset_seed(self._seed, _RESETS, self._episode))
        return self._observation

    def _steps_taken(self) -> int:
        return 0 if self._observation is None else self._stage.steps

    @contextmanager
    def _blaming(self) -> Iterator[None]:
        """Any failure becomes one line that says whose environment it was."""
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                yield
        except (Exception, SystemExit) as error:
            place = f"step {self._stage.steps}" if self._observation is not None else "the reset"
            reason = str(error)
            if not isinstance(error, DataError):
                reason = f"{self._stage.id} failed at {place}: {describe_error(error)}"
            raise DataError(f"member {self._member}, episode {self._episode}: {reason}") from error

    def _check_finite(self, rows: Rows, count: int, episode: int, step: int) -> None:
        named = ("observations", "actions", "next_observations", "rewards")
        whole = (rows.observations, rows.actions, rows.next_observations, rows.rewards[:, None])
        arrays: list[NDArray[Any]] = [array[:count] for array in whole]
        wrong = [(~(np.abs(array) <= LARGEST)).any(axis=1) for array in arrays]
        if not any(flags.any() for flags in wrong):
            return
        row = int(np.flatnonzero(np.any(wrong, axis=0))[0])
        which = next(i for i, flags in enumerate(wrong) if flags[row])
        dimension = int(np.flatnonzero(~(np.abs(arrays[which][row]) <= LARGEST))[0])
        ends = np.flatnonzero((rows.terminations | rows.truncations)[:row])
        at = row - ends[-1] - 1 if len(ends) else step + row
        field = named[which]
        if field == "next_observations":
            field, at = "observations", at + 1
        place = f"at step {at}" + (f", dimension {dimension}" if field != "rewards" else "")
        value = describe_number(arrays[which][row, dimension])
        raise DataError(
            f"member {self._member}, episode {episode + len(ends)}: {field}: {value} {place}"
        )


def _compare(observation: Array | None, place: Place) -> str | None:
    if observation is None or np.array_equal(observation, place.observation):
        return None
    at = int(np.flatnonzero(observation != place.observation)[0])
    return (
        f"after {len(place.actions)} actions, dimension {at} is {observation[at]}, expected "
        f"{place.observation[at]}"
    )


class EvaluationResult(NamedTuple):
    """How well each member did, without noise: the true, undiscounted returns."""

    evaluation: int
    """The index it was started with."""
    returns: NDArray[np.float64]
    """(member, episode)"""
    lengths: NDArray[np.int64]
    """(member, episode)"""


def evaluate(
    stage: Stage,
    settings: LaneSettings,
    members: Sequence[int],
    board: Board,
    index: int,
    episodes: int,
) -> Generator[None, None, EvaluationResult]:
    """Run episodes without noise, pausing every few steps; returns what came of them."""
    weights = board.evaluation_weights
    actor = Actor(settings.spec, weights[members[0]])
    returns = np.zeros((len(members), episodes))
    lengths = np.zeros((len(members), episodes), np.int64)
    taken = 0
    for row, member in enumerate(members):
        actor.load(weights[member])
        stage.pulse = board.pulses[member]
        for episode in range(episodes):
            key = (_EVALUATIONS, index, episode)
            with _blaming_evaluation(stage, member, index, episode):
                observation = stage.reset(reset_seed(settings.seeds[member], *key))
                over = False
                while not over:
                    action = actor.act_with_noise(observation, None)
                    observation, reward, terminated, truncated = stage.step(action)
                    returns[row, episode] += reward
                    over = terminated or truncated
                    taken += 1
                    if taken % EVALUATION_STEPS == 0:
                        yield
                if not np.isfinite(returns[row, episode]) or not np.isfinite(observation).all():
                    raise DataError("observations or rewards: nan or infinite")
            lengths[row, episode] = stage.steps
    return EvaluationResult(index, returns, lengths)


@contextmanager
def _blaming_evaluation(stage: Stage, member: int, index: int, episode: int) -> Iterator[None]:
    try:
        yield
    except (Exception, SystemExit) as error:
        reason = str(error)
        if not isinstance(error, DataError):
            reason = f"{stage.id} failed at step {stage.steps}: {describe_error(error)}"
        where = f"member {member}, evaluation {index}, episode {episode}"
        raise DataError(f"{where}: {reason}") from error


class Board:
    """The arrays that all processes see: weights in, rounds out."""

    def __init__(self, settings: LaneSettings, memory: Any) -> None:
        self._memory = memory
        self._begin = 0
        members, steps = len(settings.seeds), settings.steps
        states, actions = settings.spec.observation_size, settings.spec.action_size
        self.weights = self._array((members, count_weights(settings.spec)), np.float32)
        self.evaluation_weights = self._array(self.weights.shape, np.float32)
        self.rows = Rows(
            observations=self._array((members, steps, states), np.float32),
            actions=self._array((members, steps, actions), np.float32),
            next_observations=self._array((members, steps, states), np.float32),
            rewards=self._array((members, steps), np.float64),
            terminations=self._array((members, steps), np.bool_),
            truncations=self._array((members, steps), np.bool_),
        )
        self.pulses = self._array((members, 1), np.int64)
        """Of each member's environment."""

    @staticmethod
    def count_bytes(settings: LaneSettings) -> int:
        """How much memory the arrays take, with room for their alignment."""
        spec, members, steps = settings.spec, len(settings.seeds), settings.steps
        per_step = 4 * (2 * spec.observation_size + spec.action_size) + 8 + 2
        return members * (2 * 4 * count_weights(spec) + steps * per_step + 8) + 9 * _ALIGNMENT

    def rows_of(self, member: int) -> Rows:
        """One member's part."""
        return Rows(*(array[member] for array in self.rows))

    def _array(self, shape: tuple[int, ...], kind: type) -> NDArray[Any]:
        array: NDArray[Any] = np.ndarray(shape, kind, self._memory, self._begin)
        self._begin += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
        return array


_ALIGNMENT = 64


class RoundOrder(NamedTuple):
    """Run a round."""

    number: int
    is_random: bool


class EvaluationOrder(NamedTuple):
    """Evaluate, whenever no round is due."""

    number: int
    episodes: int


class PlaceOrder(NamedTuple):
    """Go to these places, one per member of the crew."""

    places: tuple[Place, ...]


class Placed(NamedTuple):
    """The members are where they were told to go, but for those that could not get there."""

    gaps: tuple[str | None, ...]
    """Why not, one per member of the crew; such a member stands before its next episode."""


Order = RoundOrder | EvaluationOrder | PlaceOrder
Reply = RoundOrder | EvaluationResult | Placed | DataError
"""An order for a round comes back when it has been carried out."""


class Crew:
    """Some of the members, stepped by one process."""

    def __init__(self, settings: LaneSettings, members: Sequence[int], memory: Any) -> None:
        self._settings = settings
        self._members = tuple(members)
        self._board = Board(settings, memory)
        self._actor = Actor(settings.spec, np.zeros(count_weights(settings.spec), np.float32))
        self._lanes = [Lane(settings, member, self._board.pulses[member]) for member in members]
        self._stage: Stage | None = None
        self._evaluation: Generator[None, None, EvaluationResult] | None = None

    @property
    def is_evaluating(self) -> bool:
        """Whether `advance` has anything to do."""
        return self._evaluation is not None

    def carry_out(self, order: Order) -> Reply | None:
        """Do as told; an evaluation is only begun."""
        if isinstance(order, EvaluationOrder):
            if self._stage is None:
                self._stage = self._settings.make_stage()
            self._evaluation = evaluate(
                self._stage,
                self._settings,
                self._members,
                self._board,
                order.number,
                order.episodes,
            )
            return None
        if isinstance(order, PlaceOrder):
            pairs = zip(self._lanes, order.places, strict=True)
            return Placed(tuple(lane.go_to(place) for lane, place in pairs))
        self._run_round(order)
        return order

    def advance(self) -> EvaluationResult | None:
        """Some more steps of the evaluation; its result when that was the last."""
        assert self._evaluation is not None
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                next(self._evaluation)
        except StopIteration as stop:
            self._evaluation = None
            result: EvaluationResult = stop.value
            return result
        return None

    def close(self) -> None:
        """Close the environments."""
        for lane in self._lanes:
            lane.close()
        if self._stage is not None:
            self._stage.close()

    def _run_round(self, order: RoundOrder) -> None:
        for member, lane in zip(self._members, self._lanes, strict=True):
            actor = None
            if not order.is_random:
                actor = self._actor
                actor.load(self._board.weights[member])
            lane.run(order.number, actor, self._board.rows_of(member))
