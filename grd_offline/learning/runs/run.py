"""The loop of every training run: advance, evaluate now and then, tell the observers.

Evaluations go on in worker processes while the members learn. What a run does between two looks
(a round of collection and updates, or some updates on data) is left to `OnlineRun` and
`OfflineRun`. Updates of all members are recorded as graphs on CUDA.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray

from grd_offline.core.errors import DataError
from grd_offline.core.observer import Observer
from grd_offline.core.threads import one_numpy_thread
from grd_offline.core.waiting import sleep_beside_others
from grd_offline.learning.agents.actors import ActorSpec
from grd_offline.learning.agents.agent import Agent
from grd_offline.learning.fleet.fleet import Fleet
from grd_offline.learning.fleet.watch import Hung
from grd_offline.learning.runs.member import RunMember
from grd_offline.networks.members.capture import find_tensors, record


class RunLearner(ABC):
    """The agents of all members, and the number of their updates so far."""

    agent: Agent

    def __init__(self, device: torch.device, *, capture: bool) -> None:
        self.device, self.updates = device, 0
        self.counter = torch.zeros((), dtype=torch.int64, device=device)
        self._capture = capture and device.type == "cuda"
        self._graphs: dict[tuple[bool, Hashable], Callable[[], None]] = {}

    def run_updates(self, count: int) -> None:
        """Run this number of updates of every member."""
        for _ in range(count):
            with_actor = self.agent.moves_actor(self.updates)
            if self._capture:
                self._find_graph(with_actor, self.cuda_graph_key())()
            else:
                self._update(with_actor)
            self.updates += 1

    def cuda_graph_key(self) -> Hashable:
        """What recorded CUDA graphs are good for: where it changes, updates are recorded anew."""
        return 0

    def _find_graph(self, with_actor: bool, cuda_graph_key: Hashable) -> Callable[[], None]:
        key = (with_actor, cuda_graph_key)
        if key not in self._graphs:
            if cuda_graph_key not in (known for _, known in self._graphs):
                self._graphs.clear()
            tensors = list(find_tensors(self.state()))
            self._graphs[key] = record(partial(self._update, with_actor), tensors)
        return self._graphs[key]

    @abstractmethod
    def _update(self, with_actor: bool) -> None:
        """One update of every member."""

    @abstractmethod
    def export_actors(self) -> NDArray[np.float32]:
        """(member, number) weights of actors that take observations as they are."""

    def count_skipped(self) -> NDArray[np.int64]:
        """(member,) updates that were left out because they were not finite."""
        return self.agent.count_skipped().numpy(force=True).astype(np.int64)

    def state(self) -> dict[str, Any]:
        """Networks, optimisers and counters: what an update changes."""
        return {"counter": self.counter, "policy": self.agent.state()}


MOST_SKIPPED = 100
"""Largest number of updates of one member that may be skipped because they were not finite."""
CHUNK = 20
"""Number of updates after which a run asks whether to stop and whether an evaluation is done."""
CHECK_EVERY = 1000
"""Steps between two counts of skipped updates. Each count waits for the device."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The policies of all members at one moment, and the returns that they reached."""

    step: int
    weights: NDArray[np.float32]
    """(member, number) weights of the actors."""
    returns: NDArray[np.float64] | None = None
    """(member, episode) true returns, not discounted. None if nothing was evaluated."""
    lengths: NDArray[np.int64] | None = None
    """(member, episode) steps of each episode."""
    successes: NDArray[np.float64] | None = None
    """(member, episode) 1 for a success, 0 for none, nan if the environment does not tell it."""


@dataclass(frozen=True, eq=False)
class Measures:
    """Measures of each member besides its returns, for a display: arrays (member,)."""

    correlations: NDArray[np.float64]
    """Correlation of the reward found with the true one; nan if it is not known."""
    edges: NDArray[np.float64]
    """Fraction of the edges of the masks that are on; nan without masks."""
    compact: NDArray[np.float64]
    """Number of dimensions of the compact state."""
    skipped: NDArray[np.int64]
    """Number of updates that were skipped because they were not finite."""


class Run(ABC):
    """One training run of all members."""

    unit: ClassVar[str]
    """The unit that is counted: `step` or `update`."""
    advice: ClassVar[str]
    """Advice if too many updates were skipped."""
    settings: Any
    members: Sequence[RunMember]
    learner: RunLearner
    fleet: Fleet | None
    """The environments. None if the run has none."""
    spec: ActorSpec
    total: int
    """Steps of the whole run."""
    waits_for_evaluations = False
    """Whether members stop learning during an evaluation."""

    def __init__(self, observer: Observer) -> None:
        self.observer = observer
        self._evaluating: tuple[int, NDArray[np.float32]] | None = None
        self._told = 0
        """Step of the policies that observers heard of last."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self.fleet is not None:
            self.fleet.close()

    @property
    @abstractmethod
    def step(self) -> int:
        """Steps, or updates, of each member so far."""

    @property
    def states(self) -> int:
        return self.spec.observation_size

    @property
    def environment(self) -> str | None:
        """The Gymnasium id of the environment. None if the run has none."""
        return None if self.fleet is None else self.fleet.environment

    @property
    @abstractmethod
    def title(self) -> str:
        """The title of the run in a few words."""

    @property
    def phase(self) -> str:
        """The phase before the first update, in words. It is empty once the members learn."""
        return ""

    @abstractmethod
    def measure(self) -> Measures | None:
        """Measure the members for a display. None if there are only returns."""

    @one_numpy_thread()
    def train(self) -> None:
        """Train until the end, or until the observer says that it should stop.

        If the run is to stop and an environment does not answer, what is under way is given up.
        """
        try:
            with sleep_beside_others(self._list_processes):
                self._learn()
            self._finish_work()
        except Hung as hung:
            assert self.fleet is not None
            self.observer.on_warning(f"{hung}: {self._give_up()}")
            self.fleet.abandon()
            self._evaluating = None
        self._keep_last()

    def _learn(self) -> None:
        while not self._is_done() and not self.observer.should_stop():
            if not self._advance():
                break
            self.finish_evaluation(wait=False)
            if self._is_evaluation_due():
                self._evaluate()
            self._report_progress()

    def _list_processes(self) -> list[int]:
        """The numbers of the worker processes."""
        found = [] if self.fleet is None else self.fleet.processes
        return [process.pid for process in found if process.pid is not None]

    def _is_done(self) -> bool:
        """Whether nothing is left to learn."""
        return self.step >= self.total

    @abstractmethod
    def _advance(self) -> bool:
        """Learn for a while. False if the run is to stop before that is done."""

    @abstractmethod
    def _is_evaluation_due(self) -> bool:
        """Whether the policies are to be evaluated now."""

    @abstractmethod
    def _give_up(self) -> str:
        """Forget what the workers were doing, and say what is lost."""

    @abstractmethod
    def _keep_last(self) -> None:
        """Keep the policies at the end of the loop, if they were not kept already."""

    def _evaluate(self) -> None:
        """Begin to evaluate the policies as they are. Without an environment, they are kept."""
        weights = self.learner.export_actors()
        if self.fleet is None:
            self._tell(Evaluation(self.step, weights))
            return
        self.finish_evaluation()
        self.fleet.start_evaluation(self.step, weights, self.settings.eval_episodes)
        self._evaluating = (self.step, weights)
        self.observer.on_start(Evaluation(self.step, weights))
        if self.waits_for_evaluations:
            self.finish_evaluation()

    def _finish_work(self) -> None:
        """Wait for what the workers are doing."""
        self.finish_evaluation()

    def finish_evaluation(self, *, wait: bool = True) -> None:
        """Wait for the evaluation under way, if there is one, and tell the observers."""
        if self.fleet is None or self._evaluating is None:
            return
        result = self.fleet.finish_evaluation() if wait else self.fleet.poll_evaluation()
        if result is not None:
            step, weights = self._evaluating
            self._evaluating = None
            self._tell(Evaluation(step, weights, result.returns, result.lengths, result.successes))

    def _tell(self, evaluation: Evaluation) -> None:
        self._told = evaluation.step
        self.observer.on_result(self, evaluation)

    def _report_progress(self) -> None:
        self.observer.on_progress(self.phase, self.step / self.total)

    def check_skipped(self, counts: NDArray[Any] | None = None) -> None:
        """Refuse to go on if too many updates of a member were not finite.

        `counts` (member,) are asked for where they are not given.
        """
        skipped = (self.learner.count_skipped() if counts is None else counts).astype(np.int64)
        worst = int(skipped.argmax())
        if skipped[worst] > MOST_SKIPPED:
            raise DataError(
                f"{self.members[worst].name}: {skipped[worst]} updates were not finite and left "
                f"out by {self.unit} {self.step}; look at {self.advice}"
            )
