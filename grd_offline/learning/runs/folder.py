"""The folder of a training run: what runs of `train-online` and of `train-offline` both write."""

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from grd_offline.core.errors import DataError
from grd_offline.core.observer import Observer
from grd_offline.core.packages import find_versions
from grd_offline.io.files import results as run_files
from grd_offline.io.files.plain import write_json
from grd_offline.io.files.storage import check_writable, make_folder, storage_errors
from grd_offline.learning.agents.actors import Actor, save_actor
from grd_offline.learning.runs.member import RunMember
from grd_offline.learning.runs.run import Evaluation, Run


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
        self._start = time.monotonic()

    @property
    def tables(self) -> dict[str, tuple[str, ...]]:
        return {
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

    def create(
        self,
        run: Run,
        *,
        command: Sequence[str],
        workers: int,
        device: str,
        data: Mapping[str, Any] | None = None,
    ) -> None:
        """Start a new folder. A folder that has something in it is refused.

        `data` describes the dataset of a run that learns from one.
        """
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
            **({} if data is None else {"data": dict(data)}),
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
            mean = None
            if evaluation.returns is not None and evaluation.lengths is not None:
                returns, lengths = evaluation.returns[index], evaluation.lengths[index]
                mean = float(returns.mean())
                rows.append(
                    {
                        **self._describe_owner(member, evaluation.step),
                        "mean_return": mean,
                        **{f"{n}_return": float(getattr(returns, n)()) for n in _SPREADS},
                        "mean_length": float(lengths.mean()),
                        **_describe_success(evaluation, index),
                        **self._describe_policy(run, index, evaluation.step),
                    }
                )
            is_best = mean is not None and mean > self.best.get(member.name, -np.inf)
            self._save_policy(run, index, evaluation, mean, is_best)
            if mean is not None and is_best:
                self.best[member.name] = mean
                self._save_best(run, index, evaluation)
        self._append(run_files.EVALUATIONS_FILE, rows)

    def make_result(self) -> TrainingResult:
        """What the run has come to."""
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
        return TrainingResult(self.path, run.step, run.step >= run.total, rows, policies)

    def _save_best(self, run: Any, index: int, evaluation: Evaluation) -> None:
        """Write what belongs to the best policy of a member, apart from the policy."""

    def _describe_owner(self, member: RunMember, step: int) -> dict[str, Any]:
        return {
            "step": step,
            "seconds": round(self.seconds, 1),
            "member": member.name,
            "group": member.group,
            "seed": member.seed,
        }

    def _append(self, name: str, rows: list[dict[str, Any]]) -> None:
        run_files.append_rows(self.path / name, self.tables[name], rows)

    def _save_policy(
        self, run: Run, index: int, evaluation: Evaluation, mean: float | None, is_best: bool
    ) -> None:
        about = {
            "environment": run.environment,
            "member": run.members[index].name,
            "step": evaluation.step,
            "mean_return": mean,
        }
        actor = Actor(run.spec, evaluation.weights[index])
        folder = make_folder(self.path, "members", run.members[index].name, "policies")
        save_actor(folder / f"step-{evaluation.step:09d}", actor, about)
        if is_best:
            save_actor(folder / "best", actor, about)


def _describe_success(evaluation: Evaluation, index: int) -> dict[str, float]:
    """The share of episodes with a success; nothing if the environment does not tell it."""
    if evaluation.successes is None or not np.isfinite(evaluation.successes[index]).all():
        return {}
    return {"success_rate": float(evaluation.successes[index].mean())}


def _describe_member(member: Any) -> dict[str, Any]:
    plain = {n: v._asdict() if hasattr(v, "_asdict") else v for n, v in asdict(member).items()}
    return {"name": member.name, "group": member.group, **plain}
