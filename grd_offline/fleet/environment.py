"""An environment made from its name, with a limit on its steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from grd_offline.errors import DataError

if TYPE_CHECKING:
    import gymnasium as gym

DEFAULT_STEP_LIMIT = 1000
"""Where an environment has no time limit: as long as Gymnasium's MuJoCo tasks."""
LARGEST_STEP_LIMIT = 1_000_000
"""The arrays of a whole episode are held in memory."""


def make_environment(
    environment_id: str, env_args: Mapping[str, Any], max_episode_steps: int | None
) -> tuple[gym.Env[Any, Any], str, int]:
    """The environment, its full id, and the number of steps after which it truncates."""
    import gymnasium as gym

    from grd_offline.environments import FactoredEnv, resolve_environment_id

    name = resolve_environment_id(environment_id)
    try:
        with _without_mujoco_warnings():
            environment = gym.make(
                name,
                max_episode_steps=max_episode_steps,
                disable_env_checker=True,
                **env_args,
            )
            limit = environment.spec.max_episode_steps if environment.spec else None
    except DataError:
        raise
    except (Exception, SystemExit) as error:
        raise DataError(f"{name} cannot be made: {describe_error(error)}") from error
    if limit is None:
        limit = DEFAULT_STEP_LIMIT
        # Its episodes end by themselves, after as many steps as its settings say.
        if isinstance(environment.unwrapped, FactoredEnv):
            limit = environment.unwrapped.world.settings.length
    if limit > LARGEST_STEP_LIMIT:
        raise DataError(
            f"{name} has a limit of {limit} steps: expected at most {LARGEST_STEP_LIMIT}",
            field="max_episode_steps",
        )
    return environment, name, limit


@contextmanager
def _without_mujoco_warnings() -> Iterator[None]:
    """Some of Gymnasium's models use deprecated attributes, of which MuJoCo warns on the terminal
    and in a log file in the working directory, though the user can do nothing about it."""
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
    """An exception of someone else's code, in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
