"""What every training run shares: the loop of advancing and evaluating, and the folder it writes.

Evaluations go on in worker processes while the members learn. What a run does between two looks
(a round of collection and updates, or some updates on data) is left to `OnlineRun` and
`OfflineRun`. Updates of all members are recorded as graphs on CUDA.
"""

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray

from grd_offline.core.errors import DataError
from grd_offline.core.observer import Observer
from grd_offline.core.packages import find_versions
from grd_offline.core.threads import one_numpy_thread
from grd_offline.core.waiting import sleep_beside_others
from grd_offline.io.files import results as run_files
from grd_offline.io.files.plain import write_json
from grd_offline.io.files.storage import check_writable, make_folder, storage_errors
from grd_offline.learning.agents.actors import Actor, ActorSpec, save_actor
from grd_offline.learning.agents.agent import Agent
from grd_offline.learning.fleet.fleet import Fleet
from grd_offline.learning.fleet.worker import Hung
from grd_offline.learning.settings import RunMember
from grd_offline.networks.members.device import Download, find_tensors, record


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
        return self.begin_skipped().finish().astype(np.int64)

    def begin_skipped(self) -> Download:
        """`count_skipped` without waiting for the device."""
        return Download(self.agent.count_skipped())

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
class MemberMeasures:
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
    title: str
    """The title of the run in a few words."""
    total: int
    """Steps of the whole run."""
    waits_for_evaluations = False
    """Whether members stop learning during an evaluation."""

    def __init__(self, settings: Any, observer: Observer) -> None:
        self.settings, self.members = settings, settings.make_members()
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
    def phase(self) -> str:
        """The phase before the first update, in words. It is empty once the members learn."""
        return ""

    def measure(self) -> MemberMeasures | None:
        """Measure the members for a display. None if there are only returns."""
        return None

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

    def _learn(self) -> None:
        while not self.is_done() and not self.observer.should_stop() and self._advance():
            self.finish_evaluation(wait=False)
            if self._is_evaluation_due():
                self._evaluate()
            self._report_progress()

    def _list_processes(self) -> list[int]:
        """The numbers of the worker processes."""
        found = [] if self.fleet is None else self.fleet.processes
        return [process.pid for process in found if process.pid is not None]

    def is_done(self) -> bool:
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
            left_out = f"{skipped[worst]} updates were not finite and left out"
            when = f"by {self.unit} {self.step}; look at {self.advice}"
            raise DataError(f"{self.members[worst].name}: {left_out} {when}")


class Writer:
    """Calls functions in a thread of its own, one after the other.

    What one of them raises is raised by the next `submit` or `wait`, which also gives up those that
    have not begun by then.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="grd-offline-writer")
        self._under_way: deque[Future[None]] = deque()

    def submit(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call a function when its turn comes."""
        while self._under_way and self._under_way[0].done():
            self._finish_first()
        self._under_way.append(self._pool.submit(function, *arguments))

    def wait(self) -> None:
        """Wait until all functions have returned."""
        while self._under_way:
            self._finish_first()

    def _finish_first(self) -> None:
        try:
            self._under_way.popleft().result()
        except BaseException:
            for later in self._under_way:
                later.cancel()
            self._under_way.clear()
            raise

    def close(self) -> None:
        """Wait, and end the thread."""
        try:
            self.wait()
        finally:
            self._pool.shutdown()


_NAMES = ("member", "group")
"""Columns of `evaluations.csv` that hold text."""


@dataclass(frozen=True, eq=False)
class TrainingResult:
    """The result of a training run."""

    folder: Path
    step: int
    """Environment steps, or updates, of each member."""
    is_complete: bool
    """Whether the run came to its end. If not, it was stopped."""
    evaluations: list[dict[str, Any]]
    """The rows of `evaluations.csv`: `step`, `member`, `mean_return` and others. A value that is
    not known is None."""
    policies: dict[str, Path]
    """The folder of the best policy of each member, or of its last one if nothing was evaluated."""


LOG_EVERY = 1000
_SPREADS = ("std", "min", "max")


class RunFolder(Observer, ABC):
    """Hears of a run and writes its files."""

    run: Any
    """The run, once there is a folder for it."""
    format: ClassVar[str]
    """The name of the format in `settings.json`."""
    log_columns: ClassVar[tuple[str, ...]]

    def __init__(self, path: Path) -> None:
        self.path = path
        self.best: dict[str, float] = {}
        """Best mean return of each member so far."""
        self.seconds_before = 0.0
        """Seconds of training before this process."""
        self.logged = 0
        """Number of times that `LOG_EVERY` steps are in the log."""
        self._log: tuple[Callable[[], list[dict[str, Any]]], Download] | None = None
        """Rows of the log whose numbers are on their way from the device."""
        self._start = time.monotonic()
        self.tables = {
            run_files.LOG_FILE: self.log_columns,
            run_files.EVALUATIONS_FILE: run_files.EVALUATION_COLUMNS,
        }

    @property
    def seconds(self) -> float:
        """Seconds of training so far, of all processes together."""
        return self.seconds_before + time.monotonic() - self._start

    def check_free(self) -> None:
        """Refuse a folder that has something in it."""
        if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            raise DataError(f"exists already{self._hint()}", file=self.path)
        check_writable(self.path)

    def _hint(self) -> str:
        """Say what to do with a folder that exists already."""
        return ""

    def create(self, run: Run, *, command: Sequence[str], workers: int, device: str) -> None:
        """Start a new folder. A folder that has something in it is refused."""
        self.run = run
        self.check_free()
        with storage_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        self._hold()
        contents = {
            "format": self.format,
            "version": run_files.VERSION,
            "command": list(command),
            "environment": run.environment,
            **self._describe_run(run),
            "settings": run.settings.to_json(),
            "members": [_describe_member(member) for member in run.members],
            "device": device,
            "workers": workers,
            "versions": find_versions(),
        }
        write_json(self.path / run_files.SETTINGS_FILE, contents)
        for name, columns in self.tables.items():
            run_files.start_table(self.path / name, columns)

    def _hold(self) -> None:
        """Keep other processes from writing here."""

    @abstractmethod
    def _describe_run(self, run: Any) -> dict[str, Any]:
        """Entries of `settings.json` that only this kind of run has."""

    @abstractmethod
    def _describe_policy(self, run: Any, index: int, step: int) -> dict[str, Any]:
        """Columns of `evaluations.csv` that this kind of run fills in."""

    def on_result(self, run: Any, evaluation: Evaluation) -> None:
        """Write the policies and, if they were evaluated, their returns."""
        rows = []
        for index, member in enumerate(run.members):
            mean, is_best = None, False
            if evaluation.returns is not None and evaluation.lengths is not None:
                returns = evaluation.returns[index]
                mean = float(returns.mean())
                is_best = mean > self.best.get(member.name, -np.inf)
                row = {
                    **self._describe_owner(member, evaluation.step),
                    "mean_return": mean,
                    **{f"{n}_return": float(getattr(returns, n)()) for n in _SPREADS},
                    "mean_length": float(evaluation.lengths[index].mean()),
                    **self._describe_policy(run, index, evaluation.step),
                }
                successes = evaluation.successes
                # Nan if the environment does not tell it.
                if successes is not None and np.isfinite(successes[index]).all():
                    row["success_rate"] = float(successes[index].mean())
                rows.append(row)
            about = {"environment": run.environment, "member": member.name}
            about |= {"step": evaluation.step, "mean_return": mean}
            actor = Actor(run.spec, evaluation.weights[index])
            folder = make_folder(self.path, "members", member.name, "policies")
            save_actor(folder / f"step-{evaluation.step:09d}", actor, about)
            if is_best and mean is not None:
                save_actor(folder / "best", actor, about)
                self.best[member.name] = mean
                self._save_best(run, index, evaluation)
        self._append(run_files.EVALUATIONS_FILE, rows)

    def on_progress(self, stage: str, share: float) -> None:
        """Begin a row of the log for each member now and then; write it when it is complete."""
        if self.run.step // LOG_EVERY > self.logged:
            self._write_log()
            self.logged = self.run.step // LOG_EVERY
            self._log = self._begin_log(self.run), Download(self.run.learner.counter)
        if self._log is not None and self._log[1].is_ready:
            self._write_log()

    def _begin_log(self, run: Any) -> Callable[[], list[dict[str, Any]]]:
        """Ask for the numbers of a moment. The function waits for them and makes the rows."""
        agent, updates = run.learner.agent, run.learner.updates
        skipped, losses = run.learner.begin_skipped(), Download(agent.losses)
        rows = [self._describe_owner(member, run.step) for member in run.members]

        def finish() -> list[dict[str, Any]]:
            for index, row in enumerate(rows):
                row |= pick_losses(agent.loss_names, losses, index, updates)
                row["skipped"] = int(skipped.finish()[index])
            return rows

        return finish

    def _write_log(self) -> None:
        """Write the rows that have been begun, if any, and wait for what they need."""
        if self._log is not None:
            rows, self._log = self._log[0](), None
            self._append(run_files.LOG_FILE, rows)

    def finish(self) -> None:
        """Write what is missing at the end of the run."""
        self._write_log()

    def train(self, observer: Observer) -> TrainingResult:
        """Let the run train, and tell the observer how it begins and what it comes to."""
        observer.on_start(self)
        self.run.train()
        self.finish()
        result = self._make_result()
        observer.on_result(self, result)
        return result

    def _make_result(self) -> TrainingResult:
        run, policies = self.run, {}
        rows = [
            {n: v if n in _NAMES else float(v) if v else None for n, v in row.items()}
            for row in run_files.read_rows(self.path / run_files.EVALUATIONS_FILE)
        ]
        for member in run.members:
            folder = self.path / "members" / member.name / "policies"
            best = [folder / "best"] if (folder / "best").is_dir() else []
            if found := best or sorted(folder.glob("step-*")):
                policies[member.name] = found[-1]
        return TrainingResult(self.path, run.step, run.is_done(), rows, policies)

    def _save_best(self, run: Any, index: int, evaluation: Evaluation) -> None:
        """Write what belongs to the best policy of a member, apart from the policy."""

    def _describe_owner(self, member: RunMember, step: int) -> dict[str, Any]:
        owner = {"member": member.name, "group": member.group, "seed": member.seed}
        return {"step": step, "seconds": round(self.seconds, 1), **owner}

    def _append(self, name: str, rows: list[dict[str, Any]]) -> None:
        run_files.append_rows(self.path / name, self.tables[name], rows)


def pick_losses(
    names: Sequence[str], losses: Download, place: int, updates: int
) -> dict[str, float | str]:
    """The losses of one member, blank before the first update."""
    values = losses.finish()[:, place].tolist() if updates else [""] * len(names)
    return {f"{name}_loss": value for name, value in zip(names, values, strict=True)}


def _describe_member(member: Any) -> dict[str, Any]:
    plain = {n: v._asdict() if hasattr(v, "_asdict") else v for n, v in asdict(member).items()}
    return {"name": member.name, "group": member.group, **plain}
