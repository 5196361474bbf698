"""Policy and environment in, episodes whose reward arrives late out.

Every episode has seeds of its own, made from the run's seed and the episode's number, so the data
do not depend on how many worker processes share the work. The true step rewards leave this module
only where `keep_true_rewards` asks for them.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import connection, resource_tracker
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from grd_offline.episodes import check_finite
from grd_offline.errors import DataError
from grd_offline.formats.leaves import check_leaf
from grd_offline.formats.record import Array, Header, Leaf, Leaves, Record
from grd_offline.policies import POLICIES, draw_box_actions, draw_discrete_actions
from grd_offline.saved_policies import SavedPolicy, check_checkpoints, load_policies

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    import gymnasium as gym

DEFAULT_STEP_LIMIT = 1000
"""Where an environment has no time limit: as long as Gymnasium's MuJoCo tasks."""
LARGEST_STEP_LIMIT = 1_000_000
"""The arrays of a whole episode are held in memory."""
POLICY_NOISES = ("deterministic", "sampled")


def count_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass(frozen=True)
class CollectSettings:
    """What to collect. Everything but `workers` decides what the data are."""

    environment: str
    """Gymnasium id, or the name alone: HalfCheetah is the latest HalfCheetah."""
    episodes: int = 100
    """Number of episodes."""
    policy: str = "explore"
    """"random": each action anew; "explore": another way of moving in each episode; else the folder
    of a training run, of one of its members, or of a policy."""
    checkpoints: str = "best"
    """Which policies of a run: best, last, all, or FIRST:LAST in steps. Each episode draws one."""
    policy_noise: str = "sampled"
    """Whether a trained policy acts with the noise that it explored with."""
    seed: int = 0
    """Same seed, same data."""
    workers: int = field(default_factory=count_cores)
    """Processes that step environments; 1 uses this process."""
    delay: int | str = "end"
    """When rewards are handed out: "end", or every so many steps and at the end."""
    discount: float = 1.0
    """What is handed out is sum_t discount^t r_t, with t counted from the episode's start."""
    keep_true_rewards: bool = False
    """Store the rewards of the single steps too, and what else is known of the truth."""
    max_episode_steps: int | None = None
    """Truncate episodes here. None: the environment's own limit, or 1000 where it has none."""
    env_args: Mapping[str, Any] = field(default_factory=dict)
    """Arguments for the environment: plain JSON values."""

    def __post_init__(self) -> None:
        _check_integer("episodes", self.episodes, 1)
        _check_integer("seed", self.seed, 0)
        _check_integer("workers", self.workers, 1)
        if self.delay != "end":
            _check_integer("delay", self.delay, 1, hint='"end" or ')
        if self.max_episode_steps is not None:
            _check_integer("max_episode_steps", self.max_episode_steps, 1, LARGEST_STEP_LIMIT)
        if self.policy not in POLICIES and not Path(self.policy).is_dir():
            raise DataError(
                f"expected {', '.join(POLICIES)} or the folder of a policy or a training run, got "
                f"{self.policy!r}",
                field="policy",
            )
        check_checkpoints(self.checkpoints)
        if self.policy_noise not in POLICY_NOISES:
            raise DataError(
                f"expected {' or '.join(POLICY_NOISES)}, got {self.policy_noise!r}",
                field="policy_noise",
            )
        for name, default in (("checkpoints", "best"), ("policy_noise", "sampled")):
            if self.policy in POLICIES and getattr(self, name) != default:
                raise DataError(
                    f"expected a trained policy to go with it, got {self.policy}", field=name
                )
        if not 0.0 < self.discount <= 1.0:
            raise DataError(
                f"expected more than 0 and at most 1, got {self.discount}", field="discount"
            )
        try:
            json.dumps(dict(self.env_args), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise DataError(f"expected plain JSON values: {error}", field="env_args") from None


def _check_integer(
    name: str, value: object, lowest: int, highest: int | None = None, hint: str = ""
) -> None:
    expected = f"{hint}a whole number of at least {lowest}"
    if highest is not None:
        expected += f" and at most {highest}"
    fits = isinstance(value, int) and not isinstance(value, bool) and value >= lowest
    if not fits or (highest is not None and isinstance(value, int) and value > highest):
        raise DataError(f"expected {expected}, got {value!r}", field=name)


def collect(
    settings: CollectSettings, should_stop: Callable[[], bool] = lambda: False
) -> tuple[Header, Generator[Record, None, None]]:
    """The header of a new dataset, and its episodes one by one, in order.

    Episodes are made while they are asked for; closing the generator ends the workers. When
    `should_stop` becomes true, episodes that are finished still come, and no more.
    """
    runner = EpisodeRunner(settings)
    workers = min(settings.workers, settings.episodes)
    if workers == 1:
        return runner.header, _collect_here(runner, should_stop)
    runner.close()
    return runner.header, _collect_in_workers(settings, workers, should_stop)


def deliver(rewards: NDArray[np.float64], delay: int | str, discount: float) -> Array:
    """What a learner sees of an episode's rewards: sums when they are handed out, else zeros.

    Where each step's reward is handed out at that step there is no sum to discount, and the
    rewards stay as they are.
    """
    if delay == 1:
        return rewards.copy()
    steps = len(rewards)
    starts = np.arange(0, steps, steps if delay == "end" else int(delay))
    stops = np.append(starts[1:], steps)
    delivered = np.zeros(steps)
    weighted = rewards if discount == 1.0 else rewards * discount ** np.arange(steps)
    delivered[stops - 1] = np.add.reduceat(weighted, starts)
    return delivered


class EpisodeRunner:
    """One environment, with arrays that are filled again in every episode."""

    def __init__(self, settings: CollectSettings) -> None:
        self.settings = settings
        self.environment, self.id, self.step_limit = make_environment(settings)
        self._observation_leaves = _observation_leaves(self.environment.observation_space)
        self._action_leaf = _action_leaf(self.environment.action_space)
        self._action_type = self.environment.action_space.dtype
        self._policies: list[SavedPolicy] = []
        if settings.policy not in POLICIES:
            self._policies = load_policies(settings.policy, settings.checkpoints)
            for policy in self._policies:
                _check_fit(policy, self.environment, self.id)
        self._observations = [
            np.empty((self.step_limit + 1, *nested.leaf.shape), nested.leaf.dtype)
            for nested in self._observation_leaves
        ]
        self._rewards = np.empty(self.step_limit)
        masks = _true_masks(self.environment) if settings.keep_true_rewards else None
        self._noise_free_rewards = None if masks is None else np.empty(self.step_limit)
        self.header = self._make_header(masks)

    def close(self) -> None:
        """Close the environment."""
        with suppress(Exception):
            self.environment.close()

    def run(self, index: int) -> Record:
        """Run the episode of that number from start to end."""
        seeds = np.random.SeedSequence(self.settings.seed, spawn_key=(index,))
        reset_seed = int(seeds.generate_state(1)[0])
        generator = np.random.default_rng(seeds.spawn(1)[0])
        attributes: dict[str, int | float | str] = {"seed": reset_seed}
        try:
            if self._policies:
                policy = self._policies[generator.integers(len(self._policies))]
                attributes["policy"] = policy.name
                actions = np.empty((self.step_limit, *self._action_leaf.shape), np.float32)
                played = self._play(self._act(policy, actions, generator), reset_seed)
            else:
                actions = self._draw_actions(generator)
                # A copy, in the type the environment expects: it may change what it is handed.
                played = self._play(actions.astype(self._action_type), reset_seed)
            return self._make_record(actions, *played, attributes)
        except DataError as error:
            raise error.at(episode=index) from error.__cause__

    def _draw_actions(self, generator: np.random.Generator) -> Array:
        policy, space, leaf = self.settings.policy, self.environment.action_space, self._action_leaf
        if leaf.categories is None:
            box: Any = space
            return draw_box_actions(policy, box.low, box.high, self.step_limit, generator)
        choices = [
            start + draw_discrete_actions(policy, count, self.step_limit, generator)
            for count, start in zip(leaf.categories, leaf.starts, strict=True)
        ]
        return np.stack(choices, axis=1).reshape(self.step_limit, *leaf.shape)

    def _act(
        self, policy: SavedPolicy, actions: Array, generator: np.random.Generator
    ) -> Iterator[Array]:
        """What a policy does, step by step; `actions` is filled with it."""
        observations = self._observations[0]
        normal = None
        if self.settings.policy_noise == "sampled":
            normal = generator.standard_normal(actions.shape, np.float32)
        for at in range(len(actions)):
            noise = None if normal is None else normal[at]
            actions[at] = policy.actor.act_with_noise(observations[at], noise)
            yield actions[at].astype(self._action_type)

    def _play(self, actions: Iterable[Array], seed: int) -> tuple[int, bool, bool]:
        """Step through an episode; gives its length and how it ended."""
        step, rewards, noise_free = self.environment.step, self._rewards, self._noise_free_rewards
        leaves = [
            (array, nested.keys)
            for array, nested in zip(self._observations, self._observation_leaves, strict=True)
        ]
        at = -1
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                observation, _ = self.environment.reset(seed=seed)
                self._store_first(observation)
                for at, action in enumerate(actions):
                    observation, reward, terminated, truncated, info = step(action)
                    for array, keys in leaves:
                        array[at + 1] = _pick(observation, keys) if keys else observation
                    rewards[at] = reward
                    if noise_free is not None:
                        noise_free[at] = info["noise_free_reward"]
                    if terminated or truncated:
                        return at + 1, bool(terminated), bool(truncated)
        except DataError:
            raise
        except Exception as error:
            place = "at the reset" if at < 0 else f"at step {at}"
            raise DataError(f"{self.id} failed {place}: {describe_error(error)}") from error
        return self.step_limit, False, True

    def _store_first(self, observation: Any) -> None:
        for array, nested in zip(self._observations, self._observation_leaves, strict=True):
            value = _pick(observation, nested.keys)
            if np.shape(value) != nested.leaf.shape:
                raise DataError(
                    f"expected shape {nested.leaf.shape}, as the observation space says, got "
                    f"{np.shape(value)}",
                    field="observations",
                )
            array[0] = value

    def _make_record(
        self,
        actions: Array,
        steps: int,
        terminated: bool,
        truncated: bool,
        attributes: dict[str, int | float | str],
    ) -> Record:
        observations: Leaves = {}
        for array, nested in zip(self._observations, self._observation_leaves, strict=True):
            observations[nested.leaf.path] = array[: steps + 1].copy()
            if nested.leaf.categories is None:
                check_finite(array[: steps + 1], "observations", array)
        rewards = self._rewards[:steps].copy()
        check_finite(rewards, "rewards", rewards)
        terminations, truncations = np.zeros((2, steps), np.bool_)
        terminations[-1], truncations[-1] = terminated, truncated
        extras: Leaves = {}
        if self.settings.keep_true_rewards:
            extras["true_rewards"] = rewards
        if self._noise_free_rewards is not None:
            extras["noise_free_rewards"] = self._noise_free_rewards[:steps].copy()
        return Record(
            observations=observations,
            actions={self._action_leaf.path: actions[:steps].copy()},
            rewards=deliver(rewards, self.settings.delay, self.settings.discount),
            terminations=terminations,
            truncations=truncations,
            extras=extras,
            attributes=attributes,
        )

    def _make_header(self, masks: dict[str, Any] | None) -> Header:
        from grd_offline.environments import dimension_names

        settings = self.settings
        observation_names, action_names = dimension_names(self.environment)
        return Header(
            observation_leaves=tuple(nested.leaf for nested in self._observation_leaves),
            action_leaves=(self._action_leaf,),
            observation_names=observation_names,
            action_names=action_names,
            environment=self.id,
            delay="step" if settings.delay == 1 else settings.delay,
            discount=settings.discount,
            settings={
                "environment": self.id,
                "env_args": dict(settings.env_args),
                "episodes": settings.episodes,
                **self._describe_policy(),
                "seed": settings.seed,
                "delay": settings.delay,
                "discount": settings.discount,
                "keep_true_rewards": settings.keep_true_rewards,
                "max_episode_steps": self.step_limit,
                "versions": _versions(),
            },
            truth={} if masks is None else {"masks": masks},
        )

    def _describe_policy(self) -> dict[str, Any]:
        if not self._policies:
            return {"policy": self.settings.policy}
        return {
            # Not where it lies: that is different on another computer.
            "policy": Path(self.settings.policy).resolve().name,
            "checkpoints": self.settings.checkpoints,
            "policy_noise": self.settings.policy_noise,
            "policies": [policy.describe() for policy in self._policies],
        }


class NestedLeaf(NamedTuple):
    """An array of an observation, and the keys that lead to it."""

    leaf: Leaf
    keys: tuple[str | int, ...]


def _pick(observation: Any, keys: tuple[str | int, ...]) -> Any:
    for key in keys:
        observation = observation[key]
    return observation


def make_environment(settings: CollectSettings) -> tuple[gym.Env[Any, Any], str, int]:
    """The environment, its full id, and the number of steps after which it truncates."""
    import gymnasium as gym

    from grd_offline.environments import FactoredEnv, resolve_environment_id

    name = resolve_environment_id(settings.environment)
    try:
        with _without_mujoco_warnings():
            environment = gym.make(
                name,
                max_episode_steps=settings.max_episode_steps,
                disable_env_checker=True,
                **settings.env_args,
            )
            limit = environment.spec.max_episode_steps if environment.spec else None
    except DataError:
        raise
    except Exception as error:
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


def _observation_leaves(
    space: gym.Space[Any], keys: tuple[str | int, ...] = ()
) -> list[NestedLeaf]:
    """The arrays of an observation: floats become float32, choices stay integers."""
    from gymnasium import spaces

    if isinstance(space, spaces.Dict | spaces.Tuple):
        items: Any = (
            sorted(space.spaces.items())
            if isinstance(space, spaces.Dict)
            else enumerate(space.spaces)
        )
        return [
            nested for key, inner in items for nested in _observation_leaves(inner, (*keys, key))
        ]
    path = "/".join(f"_index_{key}" if isinstance(key, int) else key for key in keys)
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return [NestedLeaf(_choice_leaf(space, path), keys)]
    if not isinstance(space, spaces.Box | spaces.MultiBinary):
        raise DataError(
            f"expected numbers (Box, Discrete, Dict of these), got {space}", field="observations"
        )
    leaf = check_leaf(Leaf(path, space.shape, str(space.dtype)), "observations")
    return [NestedLeaf(replace(leaf, dtype="float32"), keys)]


def _action_leaf(space: gym.Space[Any]) -> Leaf:
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return _choice_leaf(space, "")
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        return Leaf("", space.shape, "float32")
    raise DataError(f"expected a Box of floats or discrete choices, got {space}", field="actions")


def _choice_leaf(space: Any, path: str) -> Leaf:
    """A leaf for Discrete (one choice) and MultiDiscrete (several)."""
    counts = np.ravel(space.nvec if hasattr(space, "nvec") else space.n).tolist()
    starts = np.ravel(space.start).tolist()
    return Leaf(path, tuple(space.shape), "int64", tuple(counts), tuple(starts))


def _check_fit(policy: SavedPolicy, environment: gym.Env[Any, Any], name: str) -> None:
    """Refuse a policy that was trained for another environment."""
    spec, space = policy.actor.spec, environment.action_space
    expected = (spec.observation_size,), (spec.action_size,)
    found = environment.observation_space.shape, space.shape
    if expected != found:
        raise DataError(
            f"{policy.name} is for observations of shape {expected[0]} and actions of shape "
            f"{expected[1]}, {name} has {found[0]} and {found[1]}",
            field="policy",
        )
    low, high = getattr(space, "low", np.nan), getattr(space, "high", np.nan)
    if not (np.allclose(low, spec.low) and np.allclose(high, spec.high)):
        raise DataError(
            f"{policy.name} acts from {min(spec.low):.4g} to {max(spec.high):.4g}, {name} takes "
            f"{' '.join(str(space).split())}",
            field="policy",
        )


def _true_masks(environment: gym.Env[Any, Any]) -> dict[str, Any] | None:
    """The masks of a factored world; None for any other environment."""
    from grd_offline.environments import FactoredEnv

    if not isinstance(environment.unwrapped, FactoredEnv):
        return None
    masks = environment.unwrapped.world.masks
    return {name: np.asarray(mask).astype(int).tolist() for name, mask in masks.items()}


def _versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for package in ("grd-offline", "gymnasium", "mujoco", "numpy"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found


def describe_error(error: BaseException) -> str:
    """An exception of someone else's code, in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _collect_here(
    runner: EpisodeRunner, should_stop: Callable[[], bool]
) -> Generator[Record, None, None]:
    try:
        for index in range(runner.settings.episodes):
            if should_stop():
                return
            yield runner.run(index)
    finally:
        runner.close()


EPISODES_QUEUED = 2
"""Episodes handed to a worker at a time: it never waits for the next, and none holds many."""
EPISODES_AHEAD = 4
"""Episodes per worker that may be finished or begun before the one that is due: bounds memory."""
POLL_SECONDS = 0.2
GRACE_SECONDS = 1.0


@dataclass(eq=False)
class _Worker:
    process: multiprocessing.process.BaseProcess
    connection: Connection[int, Record | DataError]
    queue: deque[int] = field(default_factory=deque)
    """Episodes handed to it and not yet back, in order."""


def _collect_in_workers(
    settings: CollectSettings, count: int, should_stop: Callable[[], bool]
) -> Generator[Record, None, None]:
    workers = _start_workers(settings, count)
    try:
        yield from _in_order(workers, settings.episodes, should_stop)
    finally:
        _end_workers(workers)


def _in_order(
    workers: list[_Worker], episodes: int, should_stop: Callable[[], bool]
) -> Iterator[Record]:
    """Hand out episodes to whoever is free, and pass the results on in order."""
    results: dict[int, Record | DataError] = {}
    window = EPISODES_AHEAD * len(workers)
    workers = list(workers)
    waiting = deque(range(episodes))
    due = 0
    while due < episodes:
        _hand_out(workers, waiting, due + window)
        for worker in _wait(workers):
            index, result = _receive(worker)
            results[index] = result
            if isinstance(result, DataError):
                # It ends the run when its turn comes, so that every run ends with the same error.
                workers.remove(worker)
        stopping = should_stop()
        while due in results:
            result = results.pop(due)
            if isinstance(result, DataError):
                # A signal for the whole process group may have ended a worker.
                if should_stop():
                    return
                raise result
            due += 1
            yield result
        if stopping:
            return


def _hand_out(workers: list[_Worker], waiting: deque[int], limit: int) -> None:
    for depth in range(1, EPISODES_QUEUED + 1):
        for worker in workers:
            if len(worker.queue) < depth and waiting and waiting[0] < limit:
                worker.queue.append(waiting.popleft())
                # A broken pipe means that it died, which shows when its result is due.
                with suppress(OSError):
                    worker.connection.send(worker.queue[-1])


def _wait(workers: list[_Worker]) -> list[_Worker]:
    """Workers that have sent something, or died, while they had something to do."""
    busy = [worker for worker in workers if worker.queue]
    ready = connection.wait([worker.connection for worker in busy], POLL_SECONDS)
    if ready:
        return [worker for worker in busy if worker.connection in ready]
    # A process that a worker left behind can hold its pipe open.
    return [worker for worker in busy if not worker.process.is_alive()]


def _receive(worker: _Worker) -> tuple[int, Record | DataError]:
    index = worker.queue.popleft()
    try:
        if worker.process.is_alive() or worker.connection.poll():
            return index, worker.connection.recv()
    except (EOFError, OSError):
        pass
    cause = describe_death(worker.process)
    return index, DataError(f"the worker process died {cause}", episode=index)


def describe_death(process: multiprocessing.process.BaseProcess) -> str:
    """What ended a worker: its exit code or a signal."""
    process.join(GRACE_SECONDS)
    code = process.exitcode
    if code is not None and code < 0:
        return f"of signal {signal.Signals(-code).name}"
    return f"with exit code {code}"


def _start_workers(settings: CollectSettings, count: int) -> list[_Worker]:
    context = multiprocessing.get_context("spawn")
    workers = []
    with environment_for_workers():
        for _ in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_work, args=(settings, theirs), name="grd-offline-collect", daemon=True
            )
            process.start()
            theirs.close()
            workers.append(_Worker(process, ours))
    return workers


def _end_workers(workers: list[_Worker]) -> None:
    """A closed pipe tells a worker to close its environment and leave; then it is made to."""
    for worker in workers:
        worker.connection.close()
    deadline = time.monotonic() + GRACE_SECONDS
    for worker in workers:
        worker.process.join(max(0.0, deadline - time.monotonic()))
        worker.process.kill()
        worker.process.join()


@contextmanager
def environment_for_workers() -> Iterator[None]:
    """What a process must be given before it starts: one thread each, and deaf to Ctrl-C.

    A blocked signal stays blocked in the children, so that a Ctrl-C while they import does not
    end them; ours is delivered when it is unblocked.
    """
    # Started now, because it unblocks the signal when it starts.
    resource_tracker.ensure_running()
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _work(settings: CollectSettings, pipe: Connection[Record | DataError, int]) -> None:
    """The life of a worker: an episode's number in, the episode or its error out."""
    become_worker()
    runner: EpisodeRunner | DataError
    try:
        runner = EpisodeRunner(settings)
    except DataError as error:
        runner = error
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            pipe.send(_attempt(runner, pipe.recv()))
    if isinstance(runner, EpisodeRunner):
        runner.close()


def become_worker() -> None:
    """What a process does first: deaf to the terminal's signals, gone when its parent is."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.setpgid(0, 0)
    threading.Thread(target=_leave_with_parent, daemon=True).start()


def _attempt(runner: EpisodeRunner | DataError, index: int) -> Record | DataError:
    if isinstance(runner, DataError):
        return runner
    try:
        return runner.run(index)
    except DataError as error:
        return error


def _leave_with_parent() -> None:
    """However the parent ends, kill -9 included, its workers do not outlive it."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
