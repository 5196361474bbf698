"""Environments made from their names, with a limit on the steps of an episode."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from grd_offline.core.errors import DataError
from grd_offline.core.settings import DEFAULT_STEP_LIMIT, LARGEST_STEP_LIMIT
from grd_offline.core.typing import SingleArray
from grd_offline.learning.fleet.worker import make_heartbeat
from grd_offline.worlds.spaces import (
    describe_space,
    find_sizes,
    list_observation_leaves,
    make_flattener,
)

if TYPE_CHECKING:
    import gymnasium as gym


TOLERANT: dict[str, Any] = {"over": "ignore", "invalid": "ignore"}
"""What numpy makes of numbers that are too large while environments are stepped: no warning."""


def make_environment(
    environment_id: str, env_args: Mapping[str, Any], max_episode_steps: int | None
) -> tuple[gym.Env[Any, Any], str, int]:
    """Make an environment. Gives it, its full id, and the largest number of steps of an episode."""
    import gymnasium as gym

    from grd_offline.worlds.environments import FactoredEnv, resolve_environment_id

    name = resolve_environment_id(environment_id)
    try:
        with _without_mujoco_warnings():
            environment = gym.make(
                name, max_episode_steps=max_episode_steps, disable_env_checker=True, **env_args
            )
            limit = environment.spec.max_episode_steps if environment.spec else None
    except DataError:
        raise
    except (Exception, SystemExit) as error:
        module = name.partition(":")[0].partition(".")[0] if ":" in name else ""
        if isinstance(error, ModuleNotFoundError) and module and find_spec(module) is None:
            raise DataError(
                f"{name} cannot be made: Python finds no module {module}: install it, or name its "
                "folder in PYTHONPATH, for example PYTHONPATH=. grd-offline collect"
            ) from error
        raise DataError(f"{name} cannot be made: {describe_error(error)}") from error
    if limit is None:
        limit = DEFAULT_STEP_LIMIT
        # Its episodes end by themselves, after the number of steps in its settings.
        if isinstance(environment.unwrapped, FactoredEnv):
            limit = environment.unwrapped.world.settings.length
    if limit > LARGEST_STEP_LIMIT:
        reason = f"{name} has a limit of {limit} steps: expected at most {LARGEST_STEP_LIMIT}"
        raise DataError(reason, field="max_episode_steps")
    return environment, name, limit


@contextmanager
def _without_mujoco_warnings() -> Iterator[None]:
    """Silence MuJoCo while an environment is made.

    Some of Gymnasium's models use deprecated attributes. MuJoCo warns of them on the terminal and
    in a log file in the working directory, though the user can do nothing about it.
    """
    try:
        import mujoco
    except ImportError:
        yield
        return
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda message: None)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(before)


def describe_error(error: BaseException) -> str:
    """Describe an exception of code that is not ours in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


class VectorEnvironment:
    """An environment whose observations and actions are vectors, and whose episodes always end.

    Nested observations and choices are flattened. A discrete action is one-hot here, and a whole
    number for the environment itself.
    """

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
        self.observation_size = sum(leaf.size for leaf, _ in list_observation_leaves(observed))
        self.state_sizes = find_sizes(observed)
        """(state,) the largest size of each state, and at most 1."""
        self._flatten = make_flattener(observed)
        space: Any = acted
        self.choices = int(space.n) if hasattr(space, "n") else 0
        """Number of choices of a discrete action; 0 where actions are continuous."""
        self.first_choice = int(space.start) if self.choices else 0
        if self.choices:
            self.low, self.high = np.zeros(self.choices), np.ones(self.choices)
        else:
            self.low, self.high = space.low.astype(np.float64), space.high.astype(np.float64)
        self.steps = 0
        """Number of steps taken in this episode."""
        self._is_started = False
        self.success: bool | None = None
        """Whether this episode was a success at any of its steps. None if nothing tells it."""
        self.heartbeat = make_heartbeat()
        """An odd count means that the environment is at work."""
        self._action_type = np.dtype(acted.dtype)
        self._step, self._is_limited = _find_step(self.environment, self.step_limit)

    def reset(self, seed: int) -> SingleArray:
        """Begin an episode and give its first observation."""
        self.steps, self._is_started, self.success = 0, False, None
        self.heartbeat += 1
        observation, _ = self.environment.reset(seed=seed)
        self.heartbeat += 1
        self._is_started = True
        first = self._flatten(observation)
        if first.shape != (self.observation_size,):
            expected = f"observations of shape {(self.observation_size,)}, as the space says"
            raise DataError(f"expected {expected}, got {first.shape}")
        return first

    def step(self, action: SingleArray) -> tuple[SingleArray, float, bool, bool]:
        """The next observation, the reward, and whether the episode is terminated or truncated."""
        # Copies both ways: an environment may change an action that it was given, and an
        # observation that it gave.
        taken: Any = action.astype(self._action_type)
        if self.choices:
            taken = self._action_type.type(self.first_choice + int(action.argmax()))
        self.heartbeat += 1
        observation, reward, terminated, truncated, info = self._step(taken)
        self.heartbeat += 1
        self.steps += 1
        if info and "success" in info:
            self.success = bool(self.success) or bool(info["success"])
        terminated = bool(terminated)
        if self.steps >= self.step_limit:
            truncated = truncated or self._is_limited or not terminated
        return self._flatten(observation), float(reward), terminated, bool(truncated)

    @contextmanager
    def explain_errors(self, describe: Callable[[], str]) -> Iterator[None]:
        """Turn any failure into one line that says where it happened and whose episode it was."""
        try:
            yield
        except (Exception, SystemExit) as error:
            reason = str(error)
            if not isinstance(error, DataError):
                moment = f"step {self.steps}" if self._is_started else "the reset"
                reason = f"{self.id} failed at {moment}: {describe_error(error)}"
            raise DataError(f"{describe()}: {reason}") from error

    def close(self) -> None:
        with suppress(Exception):
            self.environment.close()


def _find_step(environment: Any, limit: int) -> tuple[Callable[[Any], tuple[Any, ...]], bool]:
    """The innermost function that makes the same steps, and whether the limit was outside of it.

    `VectorEnvironment` counts steps itself and always resets first, as two of Gymnasium's wrappers
    do, so it need not go through these two.
    """
    from gymnasium.wrappers import OrderEnforcing, TimeLimit

    is_limited = False
    while True:
        if type(environment) is TimeLimit and environment._max_episode_steps == limit:
            is_limited = True
        elif type(environment) is not OrderEnforcing:
            break
        environment = environment.env
    return environment.step, is_limited


def _check_spaces(environment: Any) -> None:
    from gymnasium.spaces import Box, Discrete

    list_observation_leaves(environment.observation_space)
    acted = environment.action_space
    fits = isinstance(acted, Box) and len(acted.shape) == 1
    fits = fits and np.issubdtype(acted.dtype, np.floating) and acted.is_bounded("both")
    if not fits and not isinstance(acted, Discrete):
        kinds = "one choice (Discrete) or a bounded one-dimensional Box of floats"
        reason = f"policies can be trained for {kinds}, got {describe_space(acted)}"
        raise DataError(reason, field="actions")
