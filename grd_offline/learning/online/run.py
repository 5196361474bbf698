"""A run of `train-online`: collection and updates in turn.

    warm-up: random actions until `warmup` steps
    then, again and again: `round_steps` steps of every member, `round_updates` updates of all

With `overlap` the workers collect the next round during the updates, with the policies as they
were before. Only finished episodes enter the replay.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from grd_offline.core.observer import NOBODY, Observer
from grd_offline.core.statistics import pearson
from grd_offline.learning.agents.algorithms import find_algorithm
from grd_offline.learning.fleet.fleet import Fleet, Round
from grd_offline.learning.online.learner import Learner
from grd_offline.learning.online.replay import FinishedEpisode, TrueRewards, separate_truth
from grd_offline.learning.online.settings import Member, OnlineSettings
from grd_offline.learning.runs.run import CHECK_EVERY, CHUNK, Evaluation, Measures, Run
from grd_offline.networks.members.download import Download

PARTS = ("collecting", "taking_in", "updating", "evaluating", "logging")
"""Parts of the time of a run, apart from those of the sources."""
LOOK_SECONDS = 0.002
"""While a round is waited for, the run looks so often whether the device has the next policies."""


Both = tuple[NDArray[np.float64], NDArray[np.float64]]
"""The learned and the true rewards of the steps of an episode."""


@dataclass
class Unfinished:
    """The episode that an environment is in."""

    observations: list[NDArray[np.float32]] = field(default_factory=list)
    actions: list[NDArray[np.float32]] = field(default_factory=list)
    rewards: list[NDArray[np.float64]] = field(default_factory=list)


class OnlineRun(Run):
    """One training run of all members, which collect their own data."""

    unit = "step"
    advice = "the environment's rewards and observations, or lower the learning rate"
    settings: OnlineSettings
    members: list[Member]
    learner: Learner
    fleet: Fleet
    _skipped: Download | None = None
    """Counts of skipped updates, on their way from the device."""

    def __init__(
        self,
        settings: OnlineSettings,
        *,
        workers: int = 1,
        device: str = "cpu",
        observer: Observer = NOBODY,
    ) -> None:
        super().__init__(observer)
        self.settings, self.members = settings, settings.make_members()
        self.waits_for_evaluations = not settings.overlap
        self.total = -(-settings.steps // settings.round_steps) * settings.round_steps
        algorithm = find_algorithm(settings.backbone)
        self.fleet = Fleet(
            settings.environment,
            [member.seed for member in self.members],
            kind=lambda discrete: algorithm.find_class(is_discrete=discrete).actor_kind,
            hidden=settings.hidden,
            noise=settings.exploration,
            workers=workers,
            steps=settings.round_steps // settings.environments,
            environments_each=settings.environments,
            env_args=settings.env_args,
            max_episode_steps=settings.max_episode_steps,
            observer=observer,
        )
        try:
            self.learner = self._make_learner(self.fleet, device)
        except BaseException:
            self.fleet.close()
            raise
        self.spec = self.fleet.spec
        self.rounds = 0
        """Number of finished rounds. Each is `round_steps` steps of every member."""
        self.unfinished = [Unfinished() for _ in range(len(self.members) * settings.environments)]
        self.last_episodes: list[tuple[FinishedEpisode, TrueRewards] | None]
        self.last_episodes = [None] * len(self.members)
        self.restarts = 0
        """Number of unfinished episodes that were lost with a worker or in a resume."""
        self._actors: Download | None = None
        """The policies of a round that is to be started, on their way from the device."""
        self._collected: Round | None = None
        """A round that was finished for a checkpoint, before its turn."""
        self.seconds = dict.fromkeys(PARTS, 0.0)
        """Seconds of this process so far, by what it did or waited for."""
        self._counted = 0.0
        """Seconds of the part under way that belong to other parts."""
        self._updates_left = 0
        """Number of updates that the last round still needs: a stop does not wait for them."""

    def _make_learner(self, fleet: Fleet, device: str) -> Learner:
        return Learner(
            self.settings,
            self.members,
            states=fleet.observation_size,
            low=fleet.low,
            high=fleet.high,
            step_limit=fleet.step_limit,
            device=torch.device(device),
            sizes=fleet.state_sizes if self.settings.scale_states else None,
            names=fleet.dimension_names,
            is_discrete=fleet.is_discrete,
        )

    def close(self) -> None:
        super().close()
        self.learner.close()

    @property
    def step(self) -> int:
        return self.rounds * self.settings.round_steps

    @property
    def title(self) -> str:
        return self.fleet.environment

    @property
    def phase(self) -> str:
        if self.learner.updates > 0:
            return ""
        if self.step < self.settings.warmup:
            return f"warm-up with random actions until step {self.settings.warmup:,}"
        return "waiting until every member has finished an episode"

    @property
    def _is_collecting(self) -> bool:
        """Whether the next round is under way, or was finished for a checkpoint before its turn."""
        return self.fleet.is_collecting or self._collected is not None

    def _is_learning(self) -> bool:
        has_data = all(layout.episodes for layout in self.learner.replay.layouts)
        return self.step >= self.settings.warmup and has_data

    def _advance(self) -> bool:
        """A round of every member: collect, take in, update. False if it is to stop before its end.

        With `overlap` the next round is collected during the updates, with the policies from before
        them. Where the device has these in time, no member waits for another, or until the round is
        taken in. Otherwise the workers start when the device has new updates to go on with.
        """
        if not self._updates_left:  # else the run was stopped within the updates of a round
            if not self._is_collecting:
                self._start_round()
            collected = self._finish_round()
            if self._actors is not None and self._actors.is_ready:
                self._start_round()
            with self._timing("taking_in"):
                self._take_in(collected)
            self._let_sources(self.learner.refresh)
            if self._is_learning():
                self._updates_left = self.settings.round_updates
                if self.settings.overlap and not self._is_collecting and self._actors is None:
                    self._ask_for_actors()
        while self._updates_left and not self.observer.should_stop():
            count = min(CHUNK, self._updates_left)
            with self._timing("updating"):
                self.learner.run_updates(count)
            self._updates_left -= count
            if self._actors is not None:
                self._start_round()
        if self._actors is not None:
            self._start_round()
        if self._updates_left:
            return False
        if self._is_collecting and self._is_learning():
            self._ask_for_actors()
        self._let_sources(self.learner.prepare)
        if self._is_learning() and (self._has_passed(CHECK_EVERY) or self.step == self.total):
            self._check_skipped()
        return True

    def _ask_for_actors(self) -> None:
        """Ask the device for the policies of the round after those that are under way, if any."""
        if self.step + self._is_collecting * self.settings.round_steps < self.total:
            self._actors = self.learner.begin_export()

    def _start_round(self) -> None:
        """Start a round with the policies that were asked for, or with those of now."""
        with self._timing("updating"):  # waits for a device that is still at it
            weights = None
            if self._actors is not None:
                weights, self._actors = self._actors.finish(), None
            elif self._is_learning():
                weights = self.learner.export_actors()
        with self._timing("collecting"):
            self.fleet.start_round(self.rounds + self._is_collecting, weights)

    def _finish_round(self) -> Round:
        """Wait for the round that is under way.

        Each member begins with the round after it as soon as it is done, however long the others
        take, if the policies of that one are there in time.
        """
        with self._timing("collecting"):
            if self._collected is None and self._actors is not None:
                with self._timing("updating"):  # the workers may be at it as well
                    while not self._actors.is_ready:
                        if self.fleet.wait_round(LOOK_SECONDS):
                            break
                    else:
                        self._start_round()
            collected = self._collected or self.fleet.finish_round()
        self._collected = None
        self.rounds += 1
        return collected

    def _has_passed(self, every: int) -> bool:
        """Whether the last round reached or passed a multiple of so many steps."""
        return self.step // every > (self.step - self.settings.round_steps) // every

    def _check_skipped(self) -> None:
        """Look at the counts from before, and ask for new ones. The last ones are waited for."""
        if self._skipped is not None:
            self.check_skipped(self._skipped.finish())
        self._skipped = self.learner.begin_skipped()
        if self._skipped.is_ready or self.step == self.total:
            self.check_skipped(self._skipped.finish())
            self._skipped = None

    def _is_done(self) -> bool:
        return super()._is_done() and not self._updates_left

    def _is_evaluation_due(self) -> bool:
        is_time = self.step == self.total or self._has_passed(self.settings.eval_every)
        return is_time and self._is_learning()

    def _give_up(self) -> str:
        self._actors = None
        return f"given up: the steps since {self.step:,}, and any evaluation"

    def _keep_last(self) -> None:
        """A checkpoint holds the policies."""

    @contextmanager
    def _timing(self, name: str) -> Iterator[None]:
        begun, outer = time.perf_counter(), self._counted
        self._counted = 0.0
        yield
        spent = time.perf_counter() - begun
        self.seconds[name] += spent - self._counted
        self._counted = outer + spent

    def _count_sources(self) -> float:
        """Seconds of the sources so far, which they count themselves."""
        return sum(sum(source.count_seconds().values()) for source in self.learner.sources)

    def count_seconds(self) -> dict[str, float]:
        """Seconds of this process so far, by what it did or waited for."""
        parts = [source.count_seconds() for source in self.learner.sources]
        names = dict.fromkeys(name for part in parts for name in part)
        work = {name: sum(part.get(name, 0.0) for part in parts) for name in names}
        return {**self.seconds, **work}

    def _evaluate(self) -> None:
        with self._timing("evaluating"):
            super()._evaluate()

    def _tell(self, evaluation: Evaluation) -> None:
        with self._timing("logging"):
            super()._tell(evaluation)

    def _report_progress(self) -> None:
        with self._timing("logging"):
            super()._report_progress()

    def _let_sources(self, work: Callable[[], None]) -> None:
        """Let the sources work, which count their own seconds."""
        with self._timing("updating"):  # it may wait for the device
            before = self._count_sources()
            work()
            self._counted += self._count_sources() - before

    def _take_in(self, collected: Round) -> None:
        """Take in a round of all environments, and the episodes that end in it."""
        finished = []
        for number, lost in enumerate(collected.restarted):
            if lost:
                self.unfinished[number] = Unfinished()
                self.restarts += 1
            start, member = 0, number // self.settings.environments
            ends = collected.terminations[number] | collected.truncations[number]
            for stop in [*(np.flatnonzero(ends) + 1).tolist(), self.fleet.steps]:
                open_, rows = self.unfinished[number], slice(start, stop)
                if stop > start:
                    open_.observations.append(collected.observations[number, rows])
                    open_.actions.append(collected.actions[number, rows])
                    open_.rewards.append(collected.rewards[number, rows])
                if stop > start and ends[stop - 1]:
                    episode, truth = separate_truth(
                        np.concatenate(
                            [
                                *open_.observations,
                                collected.next_observations[number, stop - 1 : stop],
                            ]
                        ),
                        np.concatenate(open_.actions),
                        np.concatenate(open_.rewards),
                        bool(collected.terminations[number, stop - 1]),
                    )
                    finished.append((member, episode, truth))
                    self.last_episodes[member] = episode, truth
                    self.unfinished[number] = Unfinished()
                start = stop
        self.learner.add_all(finished)

    def begin_predictions(self) -> Callable[[], list[Both | None]]:
        """Ask for the learned rewards of each member's last finished episode.

        The function that comes back waits for the device. It gives them with the true ones.
        """
        last_ones = list(self.last_episodes)
        parts = [
            source.begin_predictions([one and one[0] for one in last_ones[source.members]])
            for source in self.learner.sources
        ]

        def finish() -> list[Both | None]:
            found = [predicted for part in parts for predicted in part()]
            return [
                None if predicted is None or last is None else (predicted, last[1].rewards)
                for predicted, last in zip(found, last_ones, strict=True)
            ]

        return finish

    def correlate(self, predicted: Sequence[Both | None]) -> NDArray[np.float64]:
        """(member,) correlation of learned and true reward in the last episode; nan: unknown."""
        found = np.full(len(self.members), np.nan)
        for member, both in enumerate(predicted):
            if both is not None and min(np.ptp(both[0]), np.ptp(both[1])) > 0:
                found[member] = pearson(*both)
        return found

    def measure(self) -> Measures:
        edges = np.full(len(self.members), np.nan)
        for member in range(len(self.members)):
            source, place = self.learner.find_source(member)
            masks = source.find_masks()
            if masks is not None:
                edges[member] = np.mean([float(mask[place].float().mean()) for mask in masks])
        compact = self.learner.compute_compact().sum(1).astype(np.float64)
        return Measures(
            self.correlate(self.begin_predictions()()), edges, compact, self.learner.count_skipped()
        )

    def _finish_work(self) -> None:
        super()._finish_work()
        if self.fleet.is_collecting:
            self._collected = self.fleet.finish_round()

    def state(self) -> dict[str, Any]:
        """Everything that a resumed run needs, as tensors, arrays and plain values.

        A round that is under way is waited for and kept: it was begun with older policies. So is
        an evaluation.
        """
        self._finish_work()
        return {
            "rounds": self.rounds,
            "updates_left": self._updates_left,
            "collected": None if self._collected is None else self._collected._asdict(),
            "unfinished": [vars(episode) for episode in self.unfinished],
            "last_episodes": [_join_truth(*last) if last else None for last in self.last_episodes],
            "fleet": self.fleet.state(),
            "learner": self.learner.save_state(),
        }

    def load_state(self, state: dict[str, Any]) -> list[str]:
        """Restore what `state` gave. Says which unfinished episodes could not be reached."""
        self.rounds = int(state["rounds"])
        left = int(state["updates_left"])
        self._updates_left = min(max(left, 0), self.settings.round_updates)
        if state["collected"] is not None:
            self._collected = Round(**state["collected"])
        self.unfinished = [Unfinished(**episode) for episode in state["unfinished"]]
        self.last_episodes = [
            separate_truth(**last) if last else None for last in state["last_episodes"]
        ]
        self.learner.load_state(state["learner"])
        if self._is_collecting and not self._updates_left and self._is_learning():
            self._ask_for_actors()
        return self.fleet.restore(state["fleet"])


def _join_truth(episode: FinishedEpisode, truth: TrueRewards) -> dict[str, Any]:
    """The arguments of `separate_truth`."""
    kept = episode._asdict()
    del kept["episode_return"]
    return {**kept, "rewards": truth.rewards}
