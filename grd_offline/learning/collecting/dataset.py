"""Collect whole episodes with one or several workers, and write them to a file in order."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import tempfile
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from grd_offline.core.episodes import LARGEST, check_finite, check_rewards
from grd_offline.core.errors import DataError, StorageError
from grd_offline.core.observer import NOBODY, Observer
from grd_offline.core.packages import find_version
from grd_offline.core.process import ProcessDied
from grd_offline.core.typing import AnyArray
from grd_offline.core.words import count
from grd_offline.io import datasets
from grd_offline.io.files.storage import check_file, storage_errors
from grd_offline.io.formats.record import Header, Leaves, Record, flatten
from grd_offline.learning.agents import EXPLORATIONS
from grd_offline.learning.agents.actors import SavedPolicy, load_policies
from grd_offline.learning.agents.exploration import draw_box_actions, draw_discrete_actions
from grd_offline.learning.fleet import worker as processes
from grd_offline.learning.fleet.environment import TOLERANT, describe_error, make_environment
from grd_offline.learning.fleet.worker import (
    HangWatch,
    Heartbeat,
    Stuck,
    WorkerTask,
    make_heartbeat,
    watch_this_process,
)
from grd_offline.learning.settings import OF_TRAINED_POLICIES, CollectSettings
from grd_offline.worlds.spaces import describe_space, list_observation_leaves, make_action_leaf

if TYPE_CHECKING:
    import gymnasium as gym

_PACKAGES = ("grd-offline", "gymnasium", "mujoco", "numpy")
_RECORDED = ("seed", "delay", "discount", "keep_true_rewards")
Attributes = dict[str, int | float | str]


def deliver(rewards: NDArray[np.float64], delay: int | str, discount: float) -> AnyArray:
    """The rewards that a learner sees: sums at the steps that deliver them, and zeros elsewhere.

    With a delay of one step there is no sum to discount, and the rewards stay as they are.
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


class EpisodeRunner(WorkerTask):
    """One environment, with arrays that are filled again in every episode."""

    def __init__(self, settings: CollectSettings, memory: Any = None, index: int = 0) -> None:
        """Whoever watches finds the heartbeat at the `index` of shared `memory`."""
        self.settings = settings
        self.environment, self.id, self.step_limit = make_environment(
            settings.environment, settings.env_args, settings.max_episode_steps
        )
        self._observations = [
            (nested, np.empty((self.step_limit + 1, *nested.leaf.shape), nested.leaf.dtype))
            for nested in list_observation_leaves(self.environment.observation_space)
        ]
        """Each array of the observations, with what they are in this episode."""
        self._action_leaf = make_action_leaf(self.environment.action_space)
        self._action_type = self.environment.action_space.dtype
        self._policies: list[SavedPolicy] = []
        if settings.policy not in EXPLORATIONS:
            self._policies = load_policies(settings.policy, settings.checkpoints)
            for policy in self._policies:
                self._check_fit(policy)
        self._rewards = np.empty(self.step_limit)
        self.heartbeat = make_heartbeat(memory, index)
        masks = _true_masks(self.environment) if settings.keep_true_rewards else None
        self._noise_free_rewards = None if masks is None else np.empty(self.step_limit)
        self.header = self._make_header(masks)

    def _check_fit(self, policy: SavedPolicy) -> None:
        """Refuse a policy that was trained for another environment."""
        spec, space, name = policy.actor.spec, self.environment.action_space, policy.name
        expected = spec.observation_size, spec.action_size
        found = sum(n.leaf.size for n, _ in self._observations), self._action_leaf.size
        if expected != found:
            sizes = f"{expected[0]} observations and {expected[1]} actions"
            other = f"{self.id} has {found[0]} and {found[1]}"
            raise DataError(f"{name} is for {sizes}, {other}", field="policy")
        if spec.is_discrete:
            fits = self._action_leaf.categories and getattr(space, "start", 0) == spec.first_choice
            acts = f"chooses from {spec.first_choice} to {spec.first_choice + spec.action_size - 1}"
        else:
            low, high = getattr(space, "low", np.nan), getattr(space, "high", np.nan)
            fits = np.allclose(low, spec.low) and np.allclose(high, spec.high)
            acts = f"acts from {min(spec.low):.4g} to {max(spec.high):.4g}"
        if not fits:
            reason = f"{name} {acts}, {self.id} takes {describe_space(space)}"
            raise DataError(reason, field="policy")

    def close(self) -> None:
        with suppress(Exception):
            self.environment.close()

    def carry_out(self, order: int) -> Record:
        """Run the episode of that number from start to end."""
        seeds = np.random.SeedSequence(self.settings.seed, spawn_key=(order,))
        reset_seed = int(seeds.generate_state(1)[0])
        generator = np.random.default_rng(seeds.spawn(1)[0])
        attributes: Attributes = {"seed": reset_seed}
        try:
            if self._policies:
                leaf = self._action_leaf
                actions = np.empty((self.step_limit, *leaf.shape), leaf.dtype)
                stepwise: Iterable[AnyArray] = self._act(actions, attributes, generator)
            else:
                actions = self._draw_actions(self.settings.policy, self.step_limit, generator)
                # The environment gets a copy in its own type, because it may change an action.
                stepwise = actions.astype(self._action_type)
            return self._make_record(actions, attributes, *self._play(stepwise, reset_seed))
        except DataError as error:
            raise error.at(episode=order) from error.__cause__

    def _draw_actions(self, policy: str, steps: int, generator: np.random.Generator) -> AnyArray:
        space, leaf = self.environment.action_space, self._action_leaf
        if leaf.categories is None:
            box: Any = space
            return draw_box_actions(policy, box.low, box.high, steps, generator)
        choices = [
            start + draw_discrete_actions(policy, count, steps, generator)
            for count, start in zip(leaf.categories, leaf.starts, strict=True)
        ]
        return np.stack(choices, axis=1).reshape(steps, *leaf.shape)

    def _act(
        self, actions: AnyArray, attributes: Attributes, generator: np.random.Generator
    ) -> Iterator[AnyArray]:
        """Give the actions of the run's policies step by step, and fill `actions` with them."""
        settings, noise = self.settings, None
        stretch = settings.switch_every or len(actions)
        for start in range(0, len(actions), stretch):
            part = actions[start : start + stretch]
            is_random = bool(settings.random_share) and generator.random() < settings.random_share
            if is_random:
                name = "random"
                part[:] = self._draw_actions("random", len(part), generator)
            else:
                policy = self._policies[generator.integers(len(self._policies))]
                name, actor = policy.name, policy.actor
                if settings.policy_noise == "sampled":
                    noise = actor.draw_noise(len(part), generator)
            if attributes.setdefault("policy", name) != name:
                attributes["policy"] = "several"
            for at in range(len(part)):
                if not is_random:
                    vector = self._flatten_step(start + at)
                    action = actor.act_with_noise(vector, None if noise is None else noise[at])
                    part[at] = actor.decode(action)
                yield part[at].astype(self._action_type)

    def _flatten_step(self, at: int) -> AnyArray:
        """(column,) the observation of this step of the episode, as policies take it."""
        leaves = [nested.leaf for nested, _ in self._observations]
        if len(leaves) == 1 and leaves[0].categories is None and len(leaves[0].shape) == 1:
            row: AnyArray = self._observations[0][1][at]
            return row
        rows = {nested.leaf.path: array[at : at + 1] for nested, array in self._observations}
        flat: AnyArray = flatten(leaves, rows, "observations")[0]
        return flat

    def _play(self, actions: Iterable[AnyArray], seed: int) -> tuple[int, bool, bool]:
        """Step through an episode. Gives its length, and whether it was terminated or truncated."""
        step, rewards, noise_free = self.environment.step, self._rewards, self._noise_free_rewards
        leaves = [(array, nested.pick) for nested, array in self._observations]
        at = -1
        try:
            with np.errstate(**TOLERANT):
                self.heartbeat += 1
                observation, _ = self.environment.reset(seed=seed)
                self._store_first(observation)
                for at, action in enumerate(actions):
                    self.heartbeat += 2  # The count stays odd during the episode.
                    observation, reward, terminated, truncated, info = step(action)
                    for array, pick in leaves:
                        array[at + 1] = pick(observation)
                    rewards[at] = reward
                    if noise_free is not None:
                        noise_free[at] = info["noise_free_reward"]
                    if terminated or truncated:
                        return at + 1, bool(terminated), bool(truncated)
        except DataError:
            raise
        except (Exception, SystemExit) as error:
            place = "at the reset" if at < 0 else f"at step {at}"
            raise DataError(f"{self.id} failed {place}: {describe_error(error)}") from error
        finally:
            self.heartbeat += 1
        return self.step_limit, False, True

    def _store_first(self, observation: Any) -> None:
        for nested, array in self._observations:
            value = nested.pick(observation)
            if np.shape(value) != nested.leaf.shape:
                expected = f"shape {nested.leaf.shape}, as the observation space says"
                reason = f"expected {expected}, got {np.shape(value)}"
                raise DataError(reason, field="observations")
            array[0] = value

    def _make_record(
        self, actions: AnyArray, attributes: Attributes, steps: int, *ends: bool
    ) -> Record:
        """The episode as it was played. `ends`: whether it was terminated, and truncated."""
        observations: Leaves = {}
        for nested, array in self._observations:
            observations[nested.leaf.path] = array[: steps + 1].copy()
            if nested.leaf.categories is None:
                check_finite(array[: steps + 1], "observations", array, LARGEST)
        rewards = self._rewards[:steps].copy()
        check_rewards(rewards)
        delivered = deliver(rewards, self.settings.delay, self.settings.discount)
        check_rewards(delivered)
        terminations, truncations = np.zeros((2, steps), np.bool_)
        terminations[-1], truncations[-1] = ends
        extras: Leaves = {"true_rewards": rewards} if self.settings.keep_true_rewards else {}
        if self._noise_free_rewards is not None:
            extras["noise_free_rewards"] = self._noise_free_rewards[:steps].copy()
        return Record(
            observations=observations,
            actions={self._action_leaf.path: actions[:steps].copy()},
            rewards=delivered,
            terminations=terminations,
            truncations=truncations,
            extras=extras,
            attributes=attributes,
        )

    def _make_header(self, masks: dict[str, Any] | None) -> Header:
        from grd_offline.worlds.environments import dimension_names

        settings = self.settings
        observation_names, action_names = dimension_names(self.environment)
        about: dict[str, Any] = {"policy": settings.policy}
        if self._policies:
            about = {
                # The path is left out, because it differs between computers.
                "policy": Path(settings.policy).resolve().name,
                **{name: getattr(settings, name) for name in OF_TRAINED_POLICIES},
                "policies": [policy.describe() for policy in self._policies],
            }
        return Header(
            observation_leaves=tuple(nested.leaf for nested, _ in self._observations),
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
                **({"first_episode": settings.first_episode} if settings.first_episode else {}),
                **about,
                **{name: getattr(settings, name) for name in _RECORDED},
                "max_episode_steps": self.step_limit,
                "versions": {name: find_version(name) for name in _PACKAGES},
            },
            truth={} if masks is None else {"masks": masks},
        )


def _true_masks(environment: gym.Env[Any, Any]) -> dict[str, Any] | None:
    """The masks of a factored world; None for any other environment."""
    from grd_offline.worlds.environments import FactoredEnv

    if not isinstance(environment.unwrapped, FactoredEnv):
        return None
    masks = environment.unwrapped.world.masks
    return {name: np.asarray(mask).astype(int).tolist() for name, mask in masks.items()}


EPISODES_QUEUED = 2
"""A worker process is given so many episodes at a time, so that it never waits for the next."""
EPISODES_AHEAD = 4
"""Number of episodes that each worker may begin before the one that is due. This bounds memory."""


@dataclass(eq=False)
class EpisodeWorker:
    """A worker, and the episodes that it was given."""

    worker: processes.Worker
    heartbeat: Heartbeat
    most_queued: int
    queue: deque[int] = field(default_factory=deque)
    """Episodes that were given to the worker and are not back yet, in order."""
    has_failed: bool = False

    def describe(self) -> str:
        return f"episode {self.queue[0]}{self.worker.label}"

    def receive(self) -> tuple[int, Record | DataError]:
        """The next episode, or the error that ended it. A worker that failed has nothing more."""
        index = self.queue[0]
        result: Any
        try:
            result = self.worker.receive()
        except ProcessDied as death:
            result = DataError(f"the worker process died {death}", episode=index)
        except DataError as error:
            result = error
        self.has_failed = isinstance(result, DataError)
        self.queue.popleft()
        return index, result


def run_episodes(
    settings: CollectSettings, observer: Observer = NOBODY
) -> tuple[Header, Generator[Record, None, None]]:
    """The header of a new dataset, and its episodes one by one, in order.

    Episodes are run while they are asked for. Closing the generator ends the workers. When the
    observer says to stop, episodes that are finished still come, and no more.
    """
    runner = EpisodeRunner(settings)
    count = min(settings.workers, settings.episodes)
    if count == 1:
        alone = processes.InProcessWorker(lambda: runner)
        here = EpisodeWorker(alone, runner.heartbeat, most_queued=1)
        return runner.header, _run([here], settings, observer)
    runner.close()
    memory = multiprocessing.get_context("spawn").RawArray("q", count)
    workers = []
    for index in range(count):
        worker = processes.make_worker(partial(EpisodeRunner, settings, memory, index))
        workers.append(EpisodeWorker(worker, make_heartbeat(memory, index), EPISODES_QUEUED))
    return runner.header, _run(workers, settings, observer)


def _run(
    workers: list[EpisodeWorker], settings: CollectSettings, observer: Observer
) -> Generator[Record, None, None]:
    """Give episodes to workers that are free, and pass the results on in order."""
    started: list[processes.Worker] = []
    watch = HangWatch(observer.on_warning)
    results: dict[int, Record | DataError] = {}
    episodes = range(settings.first_episode, settings.first_episode + settings.episodes)
    waiting, due, first = deque(episodes), episodes.start, workers[0]
    with ExitStack() as stack:
        if isinstance(first.worker, processes.InProcessWorker):  # then a thread watches it
            stack.enter_context(
                watch_this_process(first.heartbeat, first.describe, observer.on_warning)
            )
        stack.callback(processes.end_workers, started)
        for each in workers:
            each.worker.start()
            started.append(each.worker)
        while due < episodes.stop:
            stopping = observer.should_stop()
            if not stopping:
                _hand_out(workers, waiting, due + EPISODES_AHEAD * len(workers))
            try:
                results.update(worker.receive() for worker in _wait(workers, watch))
            except Stuck:
                return
            while due in results:
                result = results.pop(due)
                if isinstance(result, DataError):
                    # Errors wait for their turn, so that every run ends with the same error.
                    # A signal for the whole process group may have ended a worker.
                    if observer.should_stop():
                        return
                    raise result
                due += 1
                yield result
            if stopping:
                return


def _hand_out(workers: list[EpisodeWorker], waiting: deque[int], limit: int) -> None:
    for depth in range(1, EPISODES_QUEUED + 1):
        for worker in workers:
            is_free = not worker.has_failed and len(worker.queue) < min(depth, worker.most_queued)
            if is_free and waiting and waiting[0] < limit:
                worker.queue.append(waiting.popleft())
                worker.worker.send(worker.queue[-1])


def _wait(workers: list[EpisodeWorker], watch: HangWatch) -> list[EpisodeWorker]:
    """Wait a moment. Gives the workers that have replied or died while they had work."""
    busy = [worker for worker in workers if worker.queue and not worker.has_failed]
    for worker in workers:
        if worker in busy:
            watch.look(id(worker), int(worker.heartbeat[0]), worker.describe)
        else:
            watch.forget(id(worker))
    if not busy:
        return []
    ready = processes.find_ready([worker.worker for worker in busy], processes.POLL_SECONDS)
    return [worker for worker, is_ready in zip(busy, ready, strict=True) if is_ready]


@dataclass(frozen=True)
class Collected:
    """The result of `collect`."""

    path: Path | None
    """The file. None: `collect` was stopped before there was anything to write."""
    returns: NDArray[np.float64]
    """(episode,) the sum of the delivered rewards."""
    lengths: NDArray[np.int64]
    """(episode,) the number of steps."""
    is_complete: bool
    """Whether the file holds all episodes. If not, its name ends in `.partial` and `.h5`."""


class _NothingFinished(Exception):
    """There is nothing to write."""


def collect(
    environment: str,
    out: str | os.PathLike[str],
    *,
    keep_partial: bool = True,
    observer: Observer = NOBODY,
    **settings: Any,
) -> Collected:
    """Run a policy in an environment and write the episodes into an HDF5 file.

    With several workers, the calling script needs `if __name__ == "__main__":` around its call,
    because each worker imports the script.

    Parameters
    ----------
    environment
        The id of an environment, such as `HalfCheetah`.
    out
        The file to write.
    keep_partial
        Whether finished episodes go into a partial file when the observer says to stop or an
        environment fails. No earlier partial file is replaced.
    observer
        Hears of each episode after it was written, and of environments that hang.
    **settings
        The fields of `CollectSettings`: `episodes`, `policy`, `checkpoints`, `policy_noise`,
        `random_share`, `switch_every`, `seed`, `first_episode`, `workers`, `delay`, `discount`,
        `keep_true_rewards`, `max_episode_steps` and `env_args`.

    Returns
    -------
    Collected
        The file that was written, and the returns and lengths of its episodes.

    Raises
    ------
    DataError
        What is wrong with an argument or an environment.
    StorageError
        Why the file cannot be written.

    Examples
    --------
    >>> import grd_offline
    >>> done = grd_offline.collect("Pendulum", "swing.h5", episodes=3, workers=1)
    >>> len(grd_offline.read("swing.h5"))
    3
    """
    chosen = CollectSettings(environment, **settings)
    out = Path(out)
    check_destination(out)
    check_file(out)
    datasets.check_ending(out)
    header, records = run_episodes(chosen, observer)
    returns: list[float] = []
    lengths: list[int] = []
    failures: list[DataError] = []

    def pass_on() -> Iterator[Record]:
        """Pass the records on to be written, and count those that were."""
        try:
            for record in records:
                yield record
                returns.append(float(record.rewards.sum()))
                lengths.append(len(record.rewards))
                observer.on_result(chosen, record)
        except DataError as error:
            failures.append(error)
        if len(returns) < (1 if keep_partial else chosen.episodes):
            raise failures[0] if failures else _NothingFinished

    # Whether the file is complete, and so its name, is known only at the end.
    path = _name_partial(out)
    try:
        with closing(records):
            datasets.write_dataset(path, header, pass_on())
    except _NothingFinished:
        return Collected(None, np.array(returns), np.array(lengths, np.int64), is_complete=False)
    except StorageError as error:
        raise StorageError(str(error).replace(str(path), str(out))) from error
    for failure in failures:
        kept = f"{path.name} holds the {count(len(returns), 'episode')} before it"
        raise DataError(f"{failure.reason}; {kept}", episode=failure.episode, field=failure.field)
    if is_complete := len(returns) == chosen.episodes:
        with storage_errors(out):
            path.replace(out.resolve())
        path = out
    return Collected(path, np.array(returns), np.array(lengths, np.int64), is_complete)


def _name_partial(out: Path) -> Path:
    """A name beside `out` that is not taken: NAME.partial.h5, NAME.partial-2.h5, ..."""
    marks = itertools.chain([".partial"], map(".partial-{}".format, itertools.count(2)))
    paths = (out.with_name(f"{out.stem}{mark}{out.suffix or '.h5'}") for mark in marks)
    return next(path for path in paths if not os.path.lexists(path))


def check_destination(out: Path) -> None:
    """Refuse a file that cannot be written before any time is spent."""
    if out.is_dir():
        raise StorageError(f"{out}: is a folder, expected the name of a file")
    if not out.parent.is_dir():
        raise StorageError(f"{out}: cannot be written: the folder {out.parent} does not exist")
    try:
        tempfile.TemporaryFile(dir=out.parent).close()
    except OSError as error:
        reason = f"{out}: cannot be written: {error.strerror} in the folder {out.parent}"
        raise StorageError(reason) from None
