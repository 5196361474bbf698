"""Data that the processes of a fleet share: settings, seeds, and arrays in shared memory."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from grd_offline.core.errors import DataError
from grd_offline.learning.agents.actors import DISCRETE_KINDS, NOISY_KINDS, ActorSpec, count_weights
from grd_offline.learning.fleet.environment import Array, VectorEnvironment

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


class Rows(NamedTuple):
    """The steps of a round: arrays (step, ...) of one environment, (environment, step, ...) of all,
    or (slot, environment, step, ...) of all rounds that are under way."""

    observations: Array
    actions: Array
    next_observations: Array
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
        self.rows = Rows(
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

    def rows_of(self, slot: int, environment: int) -> Rows:
        return Rows(*(array[slot, environment] for array in self.rows))

    def _array(self, shape: tuple[int, ...], kind: type) -> NDArray[Any]:
        array: NDArray[Any] = np.ndarray(shape, kind, self._memory, self._begin)
        self._begin += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
        return array
