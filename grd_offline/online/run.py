"""The loop: collection and updates in turn, evaluation on the side, and who hears of it.

    warm-up: random actions until `warmup` steps
    then, again and again: `round_steps` steps of every member, `round_updates` updates of all

With `overlap` the workers collect the next round, with the policies as they are, while this
process updates. Only finished episodes enter the replay.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from grd_offline.errors import DataError
from grd_offline.evaluate import pearson
from grd_offline.fleet.fleet import Fleet, Round
from grd_offline.fleet.watch import Hung, Warn
from grd_offline.online.learner import Learner
from grd_offline.online.replay import FinishedEpisode
from grd_offline.online.settings import OnlineSettings
from grd_offline.threads import one_numpy_thread

MOST_SKIPPED = 100
"""Updates of one member that may be left out because they were not finite."""
CHECK_EVERY = 1000
"""Steps between looks at how many were: each look waits for the device."""


@dataclass
class Unfinished:
    """The episode that a member is in."""

    observations: list[NDArray[np.float32]] = field(default_factory=list)
    actions: list[NDArray[np.float32]] = field(default_factory=list)
    rewards: list[NDArray[np.float64]] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Evaluation:
    """How the members did with the weights that they had at a step."""

    step: int
    returns: NDArray[np.float64]
    """(member, episode) true and undiscounted."""
    lengths: NDArray[np.int64]
    weights: NDArray[np.float32]
    """(member, number) of the actors that were evaluated."""


@dataclass(frozen=True, eq=False)
class Status:
    """Where a run stands after a round."""

    step: int
    updates: int
    training_returns: NDArray[np.float64]
    """(member,) of the last finished episode; nan before the first."""
    correlations: NDArray[np.float64]
    """(member,) of the reward found with the true one, within the last finished episode."""
    skipped: NDArray[np.int64]


class Observer(Protocol):
    """Who hears of a run: a display, the files of the run."""

    def on_round(self, run: Run) -> None:
        """After every round."""

    def on_evaluation_start(self, run: Run) -> None:
        """When the policies as they are begin to be evaluated."""

    def on_evaluation(self, run: Run, evaluation: Evaluation) -> None:
        """When the returns are there; the run may have gone on meanwhile."""


def find_names(fleet: Fleet) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What observations and actions are called; numbered where nobody knows."""
    observed, acted = fleet.names
    return (
        observed or tuple(f"observation_{i}" for i in range(fleet.observation_size)),
        acted or tuple(f"action_{i}" for i in range(fleet.action_size)),
    )


def prepare_process() -> None:
    """Settings of this process that make updates on a CPU faster and change no result that counts.

    Adam's averages fade into numbers so small that CPUs are slow with them: they become 0. And
    memory that is given back is kept for the next update, instead of being fetched anew from the
    system, page by page.
    """
    torch.set_flush_denormal(True)
    with suppress(OSError, AttributeError):  # not glibc
        library = ctypes.CDLL(None)
        for option, value in ((-1, 2**30), (-3, 2**30), (-2, 2**26)):  # trim, mmap, top pad
            library.mallopt(option, value)


class Run:
    """One training run of all members."""

    def __init__(
        self,
        settings: OnlineSettings,
        *,
        workers: int = 1,
        device: str = "cpu",
        observers: Sequence[Observer] = (),
        warn: Warn = lambda text: None,
    ) -> None:
        """`warn` hears of environments that hang."""
        self.settings, self.members = settings, settings.make_members()
        self.observers = list(observers)
        self._warn = warn
        prepare_process()
        is_sac = settings.backbone == "sac"
        self.fleet = Fleet(
            settings.environment,
            [member.seed for member in self.members],
            kind="gaussian" if is_sac else "deterministic",
            hidden=settings.hidden,
            noise=0.0 if is_sac else settings.exploration,
            workers=workers,
            steps=settings.round_steps,
            env_args=settings.env_args,
            max_episode_steps=settings.max_episode_steps,
            warn=warn,
        )
        try:
            self.learner = Learner(
                settings,
                self.members,
                states=self.fleet.observation_size,
                low=self.fleet.low,
                high=self.fleet.high,
                step_limit=self.fleet.step_limit,
                device=torch.device(device),
            )
        except BaseException:
            self.fleet.close()
            raise
        self.dimension_names = find_names(self.fleet)
        self.rounds = 0
        """Finished; each is `round_steps` steps of every member."""
        self.unfinished = [Unfinished() for _ in self.members]
        self.last_episodes: list[FinishedEpisode | None] = [None] * len(self.members)
        self.restarts = 0
        """Unfinished episodes that were lost: a worker died, or they could not be resumed."""
        self._evaluating: tuple[int, NDArray[np.float32]] | None = None
        self._is_collecting = False
        self._collected: Round | None = None
        """A round that was finished for a checkpoint, before its turn."""

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the workers."""
        self.fleet.close()

    @property
    def step(self) -> int:
        """Environment steps of each member so far."""
        return self.rounds * self.settings.round_steps

    @property
    def total_rounds(self) -> int:
        """Rounds of the whole run."""
        return -(-self.settings.steps // self.settings.round_steps)

    def has_passed(self, every: int) -> bool:
        """Whether the last round reached or passed a multiple of so many steps."""
        return self.step // every > (self.step - self.settings.round_steps) // every

    @one_numpy_thread()
    def train(self, should_stop: Callable[[], bool] = lambda: False) -> None:
        """Go on until `steps`, or until `should_stop` after some round.

        When it is to stop and an environment does not answer, the round and the evaluation under
        way are given up; the run can be saved as it was before them.
        """
        self.fleet.should_stop = should_stop
        try:
            self._train(should_stop)
        except Hung as hung:
            self._warn(f"{hung}: given up: the steps since {self.step:,}, and any evaluation")
            self.fleet.abandon()
            self._is_collecting, self._collected, self._evaluating = False, None, None

    def _train(self, should_stop: Callable[[], bool]) -> None:
        settings = self.settings
        total = self.total_rounds
        while self.rounds < total and not should_stop():
            if not self._is_collecting:
                self._start_round()
            self._finish_round()
            if settings.overlap and self.rounds < total and self._is_learning():
                self._start_round()
            if self._is_learning():
                self.learner.run_updates(settings.round_updates)
                if self.has_passed(CHECK_EVERY) or self.rounds == total:
                    self._check_skipped()
            self._evaluate_if_due()
            for observer in self.observers:
                observer.on_round(self)
        self.finish_evaluation()

    def _is_learning(self) -> bool:
        has_data = all(book.episodes for book in self.learner.replay.books)
        return self.step >= self.settings.warmup and has_data

    def _start_round(self) -> None:
        weights = self.learner.export_actors() if self._is_learning() else None
        self.fleet.start_round(self.rounds, weights)
        self._is_collecting = True

    def _finish_round(self) -> None:
        collected = self._collected or self.fleet.finish_round()
        self._is_collecting, self._collected = False, None
        self.rounds += 1
        for member in range(len(self.members)):
            if collected.restarted[member]:
                self.unfinished[member] = Unfinished()
                self.restarts += 1
            self._take_in(member, collected)
        self.learner.refresh()

    def _take_in(self, member: int, collected: Round) -> None:
        """Append a member's part of a round, and hand on the episodes that end in it."""
        ends = np.flatnonzero(collected.terminations[member] | collected.truncations[member])
        start = 0
        for stop in [*(ends + 1).tolist(), self.settings.round_steps]:
            rows = slice(start, stop)
            open_ = self.unfinished[member]
            if stop > start:
                open_.observations.append(collected.observations[member, rows])
                open_.actions.append(collected.actions[member, rows])
                open_.rewards.append(collected.rewards[member, rows])
            if stop - 1 in ends and stop > start:
                last = collected.next_observations[member, stop - 1 : stop]
                episode = FinishedEpisode(
                    np.concatenate([*open_.observations, last]),
                    np.concatenate(open_.actions),
                    np.concatenate(open_.rewards),
                    bool(collected.terminations[member, stop - 1]),
                )
                self.learner.add(member, episode)
                self.last_episodes[member] = episode
                self.unfinished[member] = Unfinished()
            start = stop

    def _check_skipped(self) -> None:
        skipped = self.learner.count_skipped()
        worst = int(skipped.argmax())
        if skipped[worst] > MOST_SKIPPED:
            raise DataError(
                f"{self.members[worst].name}: {skipped[worst]} updates were not finite and left "
                f"out by step {self.step}; look at the environment's rewards and observations, or "
                "lower the learning rate"
            )

    def _evaluate_if_due(self) -> None:
        done = self.fleet.poll_evaluation() if self._evaluating is not None else None
        if done is not None:
            self._tell_evaluation(done)
        is_last = self.rounds == self.total_rounds
        if (is_last or self.has_passed(self.settings.eval_every)) and self._is_learning():
            self.finish_evaluation()
            weights = self.learner.export_actors()
            self.fleet.start_evaluation(self.step, weights, self.settings.eval_episodes)
            self._evaluating = (self.step, weights)
            for observer in self.observers:
                observer.on_evaluation_start(self)
            if not self.settings.overlap:
                self.finish_evaluation()

    def finish_evaluation(self) -> None:
        """Wait for the evaluation under way, if there is one, and tell of it."""
        if self._evaluating is not None:
            self._tell_evaluation(self.fleet.finish_evaluation())

    def _tell_evaluation(self, result: Any) -> None:
        assert self._evaluating is not None
        step, weights = self._evaluating
        self._evaluating = None
        evaluation = Evaluation(step, result.returns, result.lengths, weights)
        for observer in self.observers:
            observer.on_evaluation(self, evaluation)

    def predict_last(self, member: int) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """The reward found and the true one, along the member's last finished episode."""
        episode = self.last_episodes[member]
        if episode is None:
            return None
        source, place = self.learner.find_source(member)
        predicted = source.predict(place, episode)
        return None if predicted is None else (predicted, episode.rewards)

    def status(self) -> Status:
        """What a display shows."""
        count = len(self.members)
        correlations, returns = np.full(count, np.nan), np.full(count, np.nan)
        for member, episode in enumerate(self.last_episodes):
            if episode is not None:
                returns[member] = episode.rewards.sum()
                both = self.predict_last(member)
                if both is not None and min(np.ptp(both[0]), np.ptp(both[1])) > 0:
                    correlations[member] = pearson(*both)
        return Status(
            self.step, self.learner.updates, returns, correlations, self.learner.count_skipped()
        )

    def state(self) -> dict[str, Any]:
        """Everything that a resumed run needs, as tensors, arrays and plain values.

        A round that is under way is waited for and kept: it was begun with older policies. So is
        an evaluation.
        """
        self.finish_evaluation()
        if self._is_collecting and self._collected is None:
            self._collected = self.fleet.finish_round()
        return {
            "rounds": self.rounds,
            "collected": None if self._collected is None else self._collected._asdict(),
            "unfinished": [vars(episode) for episode in self.unfinished],
            "last_episodes": [e if e is None else e._asdict() for e in self.last_episodes],
            "fleet": self.fleet.state(),
            "learner": self.learner.save_state(),
        }

    def load_state(self, state: dict[str, Any]) -> list[str]:
        """Go on from what `state` gave; says which unfinished episodes could not be reached."""
        self.rounds = int(state["rounds"])
        if state["collected"] is not None:
            self._collected = Round(**state["collected"])
            self._is_collecting = True
        self.unfinished = [Unfinished(**episode) for episode in state["unfinished"]]
        self.last_episodes = [
            None if episode is None else FinishedEpisode(**episode)
            for episode in state["last_episodes"]
        ]
        self.learner.load_state(state["learner"])
        return self.fleet.restore(state["fleet"])
