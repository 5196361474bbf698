"""Training online: a run of collection and updates in turn, its folder, and `train_online`.

    warm-up: random actions until `warmup` steps
    then, again and again: `round_steps` steps of every member, `round_updates` updates of all

With `overlap` the workers collect the next round during the updates, with the policies as they
were before. Only finished episodes enter the replay. The folder is written while the run trains:

settings.json                   settings, members, versions, the command
log.csv                         every 1,000 steps: losses, training returns, correlation
evaluations.csv                 every evaluation of every member
checkpoint.pt                   to go on from
tensorboard/                    the same numbers, where TensorBoard is installed
members/NAME/policies/          step-000010000/, ..., best/: for `collect --policy`
members/NAME/reward_model/      as it was at the best evaluation: for `RewardModel.load`
members/NAME/masks/             step-000010000.json, ...: the graph over time
members/NAME/episodes/          step-000010000.csv, ...: reward found and true, per step

A run goes on from a checkpoint, bit for bit on the same machine. It holds tensors and plain Python
values only and is loaded as such: no code from the file runs. It is written all or nothing, so a
run killed at any moment finds the last one whole.
"""

import os
import shutil
import time
import weakref
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from grd_offline.core.errors import DataError, located
from grd_offline.core.observer import NOBODY, Observer, Observers, Warn
from grd_offline.core.statistics import pearson
from grd_offline.core.words import format_bytes
from grd_offline.io.files import results as run_files
from grd_offline.io.files.models import REWARD_FOLDER
from grd_offline.io.files.plain import MISFITS, folder_errors
from grd_offline.io.files.storage import lock_folder, make_folder, replace_file
from grd_offline.learning.agents.algorithms import find_algorithm
from grd_offline.learning.fleet.environment import VectorEnvironment
from grd_offline.learning.fleet.fleet import Fleet, Round
from grd_offline.learning.online.learner import Learner
from grd_offline.learning.online.replay import FinishedEpisode, TrueRewards, separate_truth
from grd_offline.learning.runs.process import choose_device, choose_workers, prepare_process
from grd_offline.learning.runs.run import (
    CHECK_EVERY,
    CHUNK,
    LOG_EVERY,
    Evaluation,
    MemberMeasures,
    Run,
    RunFolder,
    TrainingResult,
    Writer,
    pick_losses,
)
from grd_offline.learning.settings import (
    DISCRETE,
    MANY_STATES,
    Member,
    OnlineSettings,
    check_trusted,
)
from grd_offline.networks.members.device import Download
from grd_offline.networks.members.nn import EDGES
from grd_offline.rewards.contract import RewardFunction
from grd_offline.rewards.model import RewardModel
from grd_offline.worlds.environments import resolve_environment_id

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
        super().__init__(settings, observer)
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
            self.learner = Learner(
                settings,
                self.members,
                states=self.fleet.observation_size,
                low=self.fleet.low,
                high=self.fleet.high,
                step_limit=self.fleet.step_limit,
                device=torch.device(device),
                sizes=self.fleet.state_sizes if settings.scale_states else None,
                names=self.fleet.dimension_names,
                is_discrete=self.fleet.is_discrete,
            )
        except BaseException:
            self.fleet.close()
            raise
        self.spec, self.title = self.fleet.spec, self.fleet.environment
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

    def close(self) -> None:
        super().close()
        self.learner.close()

    @property
    def step(self) -> int:
        return self.rounds * self.settings.round_steps

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

    def is_done(self) -> bool:
        return super().is_done() and not self._updates_left

    def _is_evaluation_due(self) -> bool:
        is_time = self.step == self.total or self._has_passed(self.settings.eval_every)
        return is_time and self._is_learning()

    def _give_up(self) -> str:
        self._actors = None
        return f"given up: the steps since {self.step:,}, and any evaluation"

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
        work: Counter[str] = Counter()
        for source in self.learner.sources:
            work.update(source.count_seconds())
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
            member = number // self.settings.environments
            ends = collected.terminations[number] | collected.truncations[number]
            stops = {*(np.flatnonzero(ends) + 1).tolist(), self.fleet.steps}
            for start, stop in pairwise([0, *sorted(stops)]):
                open_, rows = self.unfinished[number], slice(start, stop)
                open_.observations.append(collected.observations[number, rows])
                open_.actions.append(collected.actions[number, rows])
                open_.rewards.append(collected.rewards[number, rows])
                if ends[stop - 1]:
                    last = collected.next_observations[number, stop - 1 : stop]
                    episode, truth = separate_truth(
                        np.concatenate([*open_.observations, last]),
                        np.concatenate(open_.actions),
                        np.concatenate(open_.rewards),
                        bool(collected.terminations[number, stop - 1]),
                    )
                    finished.append((member, episode, truth))
                    self.last_episodes[member] = episode, truth
                    self.unfinished[number] = Unfinished()
        self.learner.add_all(finished)

    def begin_predictions(self) -> Callable[[], list[Both | None]]:
        """Ask for the learned rewards of each member's last finished episode.

        The function that comes back waits for the device. It gives them with the true ones.
        """
        last_ones = list(self.last_episodes)
        seen = [one and one[0] for one in last_ones]
        sources = self.learner.sources
        parts = [source.begin_predictions(seen[source.members]) for source in sources]

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

    def measure(self) -> MemberMeasures:
        edges = np.full(len(self.members), np.nan)
        for member in range(len(self.members)):
            source, place = self.learner.find_source(member)
            masks = source.find_masks()
            if masks is not None:
                edges[member] = np.mean([float(mask[place].float().mean()) for mask in masks])
        compact = self.learner.compute_compact().sum(1).astype(np.float64)
        return MemberMeasures(
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
            "last_episodes": [last and _join_truth(*last) for last in self.last_episodes],
            "fleet": self.fleet.state(),
            "learner": self.learner.save_state(),
        }

    def load_state(self, state: dict[str, Any]) -> list[str]:
        """Restore what `state` gave. Says which unfinished episodes could not be reached."""
        self.rounds, self._updates_left = int(state["rounds"]), int(state["updates_left"])
        last = self.total // self.settings.round_steps
        if (
            not 0 <= self.rounds <= last
            or not 0 <= self._updates_left <= self.settings.round_updates
        ):
            raise ValueError(f"round {self.rounds} of {last}, {self._updates_left} updates left")
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


NAME = "checkpoint.pt"
FORMAT = "grd-offline checkpoint"
VERSION = 2
MOST_PARTS = 10**6
"""Largest number of tensors, numbers and lists in a checkpoint. Real ones have thousands."""


def take_checkpoint(run: OnlineRun, extra: dict[str, Any]) -> dict[str, Any]:
    """A copy of the run's state in memory; `extra` is handed back by `load_checkpoint`."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "members": [member.name for member in run.members],
        "settings": run.settings.to_json(),
        "threads": torch.get_num_threads(),
        "torch": str(torch.__version__),
        "run": _to_plain(run.state()),
        "extra": _to_plain(extra),
    }


def write_checkpoint(contents: dict[str, Any], folder: Path) -> None:
    """Write what `take_checkpoint` gave. The run may go on meanwhile."""
    with replace_file(folder / NAME) as output:
        torch.save(contents, output)


def load_checkpoint(run: OnlineRun, folder: Path) -> tuple[dict[str, Any], list[str]]:
    """Restore the saved state. Returns `extra`, and why the run may not go on exactly."""
    path = folder / NAME
    with folder_errors(path, "does not fit this run"):
        contents = _read(path)
        names = [member.name for member in run.members]
        if (found := contents["members"]) != names:
            raise DataError(f"expected members {names}, got {found!r:.200}", file=path)
        try:
            gaps = run.load_state(contents["run"])
        except (RuntimeError, AssertionError) as error:
            raise ValueError(str(error).splitlines()[0] if str(error) else "state") from error
        now = {"threads": torch.get_num_threads(), "torch": str(torch.__version__)}
        changed = [
            f"{name} was {contents[name]} and is {value}: going on, but not bit for bit"
            for name, value in now.items()
            if contents[name] != value
        ]
        lost = [f"{gap}; the episode is lost: going on, but not bit for bit" for gap in gaps]
        return contents["extra"], changed + lost


def _read(path: Path) -> dict[str, Any]:
    """Read a checkpoint and check its format, version and sizes."""
    if not path.is_file():
        text = "no checkpoint here, the run cannot continue: begin anew in another folder (--out)"
        raise DataError(text, file=path)
    _check_archive(path)
    try:
        contents = torch.load(path, map_location="cpu", weights_only=True)
        plain = _from_plain(contents, [MOST_PARTS])
    except Exception as error:  # torch raises whatever its reader meets, with advice of its own
        if isinstance(error, MemoryError):
            raise
        reason = "damaged, or holds more than tensors and plain values"
        raise DataError(f"not a checkpoint: {reason}", file=path) from error
    if not isinstance(plain, dict) or plain.get("format") != FORMAT:
        raise DataError("not a checkpoint of grd-offline", file=path)
    if (version := plain.get("version")) != VERSION:
        raise DataError(f"expected version {VERSION}, got {version!r:.40}", file=path)
    return plain


def _check_archive(path: Path) -> None:
    """Refuse an archive that unpacks to more than its size: torch does not compress."""
    try:
        with zipfile.ZipFile(path) as archive:
            declared = sum(entry.file_size for entry in archive.infolist())
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise DataError("not a checkpoint: damaged, or of another kind", file=path) from error
    if declared > path.stat().st_size:
        reason = f"not a checkpoint: declares {declared:,} bytes, more than the file has"
        raise DataError(reason, file=path)


_ARRAY = "array"


def _to_plain(value: Any) -> Any:
    """Copy arrays as marked tensors and tuples as lists, which a safe loader takes."""
    if isinstance(value, np.ndarray):
        numbers = value.view(np.int64) if value.dtype == np.uint64 else value
        return {_ARRAY: torch.from_numpy(np.array(numbers)), "dtype": str(value.dtype)}
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        return {str(name): _to_plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_to_plain(part) for part in value]
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, str):  # a member of an enumeration is more than plain text
        return str(value)
    return value


def _from_plain(value: Any, parts_left: list[int]) -> Any:
    """The inverse. Endless repetitions, and tensors larger than their numbers, are refused."""
    parts_left[0] -= 1
    if parts_left[0] < 0:
        raise ValueError(f"more than {MOST_PARTS} parts")
    if isinstance(value, Tensor):
        if value.numel() * value.element_size() > value.untyped_storage().nbytes():
            raise ValueError("a tensor that is larger than its numbers")
        return value
    if isinstance(value, dict):
        if _ARRAY in value:
            numbers = _from_plain(value[_ARRAY], parts_left).numpy()
            return numbers.view(np.uint64) if value["dtype"] == "uint64" else numbers
        return {name: _from_plain(part, parts_left) for name, part in value.items()}
    if isinstance(value, list):
        return [_from_plain(part, parts_left) for part in value]
    return value


def check_space(run: OnlineRun, folder: Path, warn: Warn) -> None:
    """Tell in time if the disk will be full. The last checkpoint stays until the next is whole."""
    rows = len(run.members) * min(run.total, run.settings.replay)
    size = 4 * rows * (run.fleet.observation_size + run.spec.action_size)
    free = shutil.disk_usage(folder).free
    if 2 * size > free:
        warn(
            f"{folder}: {format_bytes(free)} are free, but checkpoints will grow to "
            f"{format_bytes(size)}, and each needs room beside the one before it"
        )


def has_checkpoint(folder: str | os.PathLike[str]) -> bool:
    return (Path(folder) / NAME).is_file()


CHECKPOINT_SECONDS = 600.0
LOG_COLUMNS = (
    "step", "seconds", "member", "group", "seed", "updates", "training_return", "correlation",
    "critic_loss", "actor_loss", "temperature", "reward_loss", "dynamics_loss", "sparsity_loss",
    "skipped", *(f"{name}_seconds" for name in (*PARTS, "solving", "searches")),
)  # fmt: skip
BOARD = {
    run_files.LOG_FILE: LOG_COLUMNS[6 : -len(PARTS) - 2],
    run_files.EVALUATIONS_FILE: ("mean_return", "correlation", "edges_on", "compact_states"),
}
"""The columns that TensorBoard shows."""


@dataclass(frozen=True, eq=False)
class _Moment:
    """The state of a member at the beginning of an evaluation."""

    correlation: float
    compact: np.ndarray
    policy_mask: np.ndarray
    function: RewardFunction | None
    masks: dict[str, np.ndarray] | None


class OnlineFolder(RunFolder):
    """Hears of a run and writes its files."""

    format = run_files.FORMAT
    log_columns = LOG_COLUMNS

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._last_checkpoint = time.monotonic()
        self._moments: dict[int, list[_Moment]] = {}
        self._rows = dict.fromkeys(self.tables, 0)
        """Number of rows of each table. A resume looks whether they are still there."""
        self._kept: dict[str, list[dict[str, str]]] = {}
        """The rows of a run that is resumed, until something is written."""
        self._writer = Writer()
        self._board: Any = None
        self._let_go: Callable[[], Any] = lambda: None

    def _hint(self) -> str:
        if has_checkpoint(self.path):
            return "; to continue it: --resume"
        return "; no checkpoint is there to continue from: choose another --out, or remove it"

    def create(self, run: Run, **options: Any) -> None:
        super().create(run, **options)
        self._open_board(None)

    def _describe_run(self, run: OnlineRun) -> dict[str, Any]:
        names = run.fleet.dimension_names
        return {"observation_names": list(names[0]), "action_names": list(names[1])}

    def resume(self, run: OnlineRun) -> list[str]:
        """Restore the last checkpoint. Returns why the run may not go on exactly."""
        self.run = run
        self._hold()
        extra, warnings = load_checkpoint(run, self.path)
        with folder_errors(self.path, "the checkpoint does not fit"):
            self.best = {str(name): float(value) for name, value in extra["best"].items()}
            self.seconds_before = float(extra["seconds"])
            counts = {name: int(extra["rows"][name]) for name in self.tables}
            if min(counts.values()) < 0:
                raise ValueError("a negative number of rows")
        tables = {n: run_files.read_rows(self.path / n, run_files.LOG_BYTES) for n in self.tables}
        for name, rows in tables.items():
            missing = counts[name] - len(rows)
            if missing > 0:
                lost = f"{missing} rows are missing that were there when the checkpoint was written"
                warnings.append(f"{self.path / name}: {lost}: the run continues without them")
            # What was written after the checkpoint comes again, be it of the same step.
            self._kept[name] = rows[: counts[name]]
            self._rows[name] = len(self._kept[name])
        logged = self._kept[run_files.LOG_FILE]
        self.logged = int(logged[-1]["step"]) // LOG_EVERY if logged else 0
        self._open_board(run.step + 1)
        return warnings

    @property
    def is_untouched(self) -> bool:
        """Whether a resumed run has written nothing yet."""
        return bool(self._kept)

    def _cut(self) -> None:
        """Cut the tables of a resumed run before anything is added to them.

        The thread that trains calls this before it hands anything to the thread that writes.
        """
        for name, rows in self._kept.items():
            run_files.start_table(self.path / name, self.tables[name], rows)
        self._kept = {}

    def _hold(self) -> None:
        """Keep other processes from writing here until `close`, or as long as this object lives."""
        try:
            lock = lock_folder(self.path)
        except BlockingIOError:
            raise DataError("another process is training in it", file=self.path) from None
        self._let_go = weakref.finalize(self, lock.release)

    def _open_board(self, purge_step: int | None) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            return
        folder = make_folder(self.path, "tensorboard")
        self._board = SummaryWriter(str(folder), purge_step=purge_step)

    def on_progress(self, stage: str, share: float) -> None:
        """Write the log, and a checkpoint now and then."""
        super().on_progress(stage, share)
        if time.monotonic() - self._last_checkpoint > CHECKPOINT_SECONDS:
            self._begin_checkpoint(self.run)

    def _write_log(self) -> None:
        if self._log is not None:
            self._cut()
        super()._write_log()

    def save(self, run: Any) -> None:
        """Write a checkpoint, and wait for it."""
        self._begin_checkpoint(run)
        self._writer.wait()

    def _begin_checkpoint(self, run: Any) -> None:
        """Copy the run's state; the training goes on while the copy is written."""
        # An evaluation under way is finished first, and its files must be in the folder.
        run.finish_evaluation()
        self._write_log()
        self._writer.wait()
        extra = {"best": self.best, "seconds": self.seconds, "rows": self._rows}
        contents = take_checkpoint(run, extra)
        self._cut()
        self._writer.submit(write_checkpoint, contents, self.path)
        self._last_checkpoint = time.monotonic()

    def on_start(self, work: Any) -> None:
        """Keep what belongs to an evaluation: reward functions, masks, correlation."""
        if not isinstance(work, Evaluation):
            return
        run: OnlineRun = self.run
        predicted = run.begin_predictions()()
        compact, seen = run.learner.compute_compact(), run.learner.mask.numpy(force=True) > 0
        states = list(zip(run.correlate(predicted), compact, seen, strict=True))
        moments = self._moments[run.step] = []
        for source in run.learner.sources:
            found = source.find_masks()
            edges = found and {
                name: getattr(found, name).numpy(force=True).astype(np.uint8) for name in EDGES
            }
            for place, state in enumerate(states[source.members]):
                masks = edges and {name: edges[name][place] for name in EDGES}
                moments.append(_Moment(*state, source.export(place), masks))
        self._cut()
        self._writer.submit(self._write_moment, run, run.step, moments, predicted)

    def _write_moment(self, run: Run, step: int, moments: list[_Moment], predicted: Any) -> None:
        for member, moment, both in zip(run.members, moments, predicted, strict=True):
            if moment.masks is not None:
                masks, compact = moment.masks, moment.compact
                run_files.write_masks(self.path, member.name, step, masks, compact)
            if both is not None:
                run_files.write_episode(self.path, member.name, step, *both)

    def on_result(self, run: Any, evaluation: Evaluation) -> None:
        self._writer.submit(self._write_evaluation, run, evaluation)

    def _write_evaluation(self, run: Run, evaluation: Evaluation) -> None:
        super().on_result(run, evaluation)
        del self._moments[evaluation.step]

    def _describe_policy(self, run: OnlineRun, index: int, step: int) -> dict[str, Any]:
        moment = self._moments[step][index]
        masks = moment.masks
        return {
            "correlation": _blank(moment.correlation),
            "edges_on": float(np.mean([np.mean(masks[name]) for name in EDGES])) if masks else "",
            "compact_states": int(moment.compact.sum()),
            "policy_states": int(moment.policy_mask.sum()),
        }

    def _begin_log(self, run: OnlineRun) -> Callable[[], list[dict[str, Any]]]:
        finish_rows, updates = super()._begin_log(run), run.learner.updates
        found = run.learner.agent.find_log_values()
        others = {name: Download(values) for name, values in found.items()}
        sources = run.learner.sources
        of_sources = [(s, Download(losses)) for s in sources if (losses := s.losses) is not None]
        predicted = run.begin_predictions()
        seconds = {f"{name}_seconds": value for name, value in run.count_seconds().items()}
        last_ones = list(run.last_episodes)

        def finish() -> list[dict[str, Any]]:
            correlations, rows = run.correlate(predicted()), finish_rows()
            for index, (row, last) in enumerate(zip(rows, last_ones, strict=True)):
                row |= {"updates": updates, "correlation": _blank(correlations[index]), **seconds}
                row["training_return"] = "" if last is None else _blank(last[0].episode_return)
                row |= {name: float(values.finish()[index]) for name, values in others.items()}
                for source, own in of_sources:
                    place = index - source.members.start
                    if 0 <= place < source.size:
                        row |= pick_losses(source.loss_names, own, place, updates)
            return rows

        return finish

    def _append(self, name: str, rows: list[dict[str, Any]]) -> None:
        super()._append(name, rows)
        self._rows[name] += len(rows)
        for row in rows if self._board is not None else ():
            for column in BOARD[name]:
                if row.get(column, "") != "":
                    self._board.add_scalar(f"{column}/{row['member']}", row[column], row["step"])

    def _save_best(self, run: OnlineRun, index: int, evaluation: Evaluation) -> None:
        """Write the reward model of a member, as it was when its best evaluation began."""
        member, moment = run.members[index], self._moments[evaluation.step][index]
        if moment.function is None:
            return
        observed, acted = run.fleet.dimension_names
        masks = moment.masks or {
            "state_to_reward": np.ones(len(observed)),
            "action_to_reward": np.ones(len(acted)),
        }
        correlation = float(moment.correlation)
        model = RewardModel(
            function=moment.function,
            observation_names=observed,
            action_names=acted,
            state_mask=masks["state_to_reward"].astype(np.int64),
            action_mask=masks["action_to_reward"].astype(np.int64),
            compact_mask=moment.compact.astype(np.int64),
            about={
                "environment": run.environment,
                "member": member.name,
                "step": evaluation.step,
                "method": member.method,
                "fit": member.fit,
                "mean_return": self.best[member.name],
                "correlation_last_episode": correlation if np.isfinite(correlation) else None,
            },
        )
        model.save(make_folder(self.path, "members", member.name) / REWARD_FOLDER)

    def finish(self) -> None:
        self.save(self.run)
        self.close()

    def close(self) -> None:
        try:
            self._write_log()
            self._writer.close()
            if self._board is not None:
                self._board.close()
        finally:
            self._let_go()


def read_settings(folder: Path) -> tuple[OnlineSettings, dict[str, Any]]:
    """The settings of a run, and the rest of its `settings.json`."""
    contents = run_files.read_about(folder)
    file = folder / run_files.SETTINGS_FILE
    try:
        with folder_errors(file, "settings do not fit"):
            for name in ("device", "workers"):
                if name not in contents:
                    raise DataError("is missing", field=name)
            given = dict(contents["settings"])
            given = {name: tuple(v) if isinstance(v, list) else v for name, v in given.items()}
            given["sets"] = {name: tuple(values) for name, values in given["sets"].items()}
            return OnlineSettings(**given), contents
    except DataError as error:
        raise error.at(file=file) from None


def _blank(value: float) -> float | str:
    return float(value) if np.isfinite(value) else ""


def train_online(
    environment: str,
    out: str | os.PathLike[str],
    *,
    device: str = "auto",
    workers: int | None = None,
    observer: Observer = NOBODY,
    command: Sequence[str] = (),
    **settings: Any,
) -> TrainingResult:
    """Train agents that see only episode returns, and write the run into the folder `out`.

    With several workers, the calling script needs `if __name__ == "__main__":` around its call,
    because each worker imports the script. The function changes settings of the process: see
    `grd_offline.learning.runs.process.prepare_process`.

    Parameters
    ----------
    environment
        The id of an environment, such as `Hopper`.
    out
        The folder of the run.
    device
        `auto`, `cpu` or `cuda`.
    workers
        The processes that step environments. None: one for each core, less one where there are
        many, or one for each environment if there are more of these, up to two for each core.
    observer
        Hears of the run, and decides whether to stop: see `grd_offline.core.observer.Observer`.
    command
        Is written into the settings of the run.
    **settings
        The fields of `OnlineSettings`, for example `methods`, `fits`, `backbone`, `steps`, `seeds`
        and `warmup`. Some defaults are others where actions are discrete: see
        `grd_offline.learning.settings.DISCRETE`.

    Returns
    -------
    TrainingResult
        The evaluations, and where the policies are.

    Examples
    --------
    >>> import grd_offline
    >>> result = grd_offline.train_online(
    ...     "Hopper", "runs/hopper", methods=("grd",), seeds=5
    ... )  # doctest: +SKIP
    >>> result.evaluations[-1]["mean_return"]  # doctest: +SKIP
    3206.0
    """
    OnlineSettings(environment, **settings)  # what is wrong with them is told before anything else
    device = choose_device(device)
    resolve_environment_id(environment)
    files = OnlineFolder(Path(out))
    files.check_free()
    chosen = complete_settings(environment, **settings)
    workers = choose_workers(workers, len(chosen.make_members()) * chosen.environments)
    prepare_process(device, batch=chosen.batch, hidden=chosen.hidden)
    both = Observers([files, observer])
    with OnlineRun(chosen, workers=workers, device=device, observer=both) as run:
        files.create(run, command=command, workers=workers, device=device)
        if chosen.warmup > run.total:
            alone = f"the warm-up alone takes {chosen.warmup:,} (--warmup)"
            observer.on_warning(f"nothing will be learned in {run.total:,} steps: {alone}")
        check_space(run, files.path, observer.on_warning)
        return _train(run, files, observer)


def complete_settings(environment: str, **given: Any) -> OnlineSettings:
    """The settings of a run, with the defaults for the actions and the size of the environment.

    A backbone for the other kind of actions is refused.
    """
    limit = given.get("max_episode_steps")
    made = VectorEnvironment(environment, given.get("env_args") or {}, limit)
    made.close()
    is_discrete = made.choices > 0
    defaults = dict(DISCRETE) if is_discrete else {}
    if made.observation_size >= MANY_STATES and given.get("round_steps", 2) % 2 == 0:
        defaults["environments"] = 2
    settings = OnlineSettings(environment, **{**defaults, **given})
    algorithm = find_algorithm(settings.backbone)
    settings = OnlineSettings(environment, **{**defaults, **algorithm.defaults, **given})
    try:
        algorithm.find_class(is_discrete=is_discrete)
    except DataError as error:
        raise DataError(f"{made.id}: {error}") from None
    return settings


def resume_online(
    folder: str | os.PathLike[str],
    *,
    environment: str | None = None,
    env_args: Mapping[str, Any] | None = None,
    device: str = "auto",
    workers: int | None = None,
    observer: Observer = NOBODY,
) -> TrainingResult:
    """Continue a run of `train_online` from its last checkpoint.

    Parameters
    ----------
    folder
        The folder of the run, which keeps the settings that it began with.
    environment
        Confirms an environment whose id imports a Python module.
    env_args
        Confirms arguments of the environment that are paths of files.
    device, workers
        As `train_online` has them. The default is what the run began with.
    observer
        Hears of the run, and decides whether to stop.

    Returns
    -------
    TrainingResult
        The evaluations, and where the policies are.

    Examples
    --------
    >>> import grd_offline
    >>> result = grd_offline.resume_online("runs/hopper")  # doctest: +SKIP
    """
    folder = Path(folder)
    chosen, rest = read_settings(folder)
    known = {"environment": chosen.environment, **chosen.env_args}
    for name, value in {"environment": environment, **(env_args or {})}.items():
        if value not in (None, known.get(name)):
            reason = f"its {name} is {known.get(name)}, not {value}"
            begun = "a run continues with the settings that it began with"
            raise DataError(f"{reason}: {begun}", file=folder)
    with located(file=folder):
        named = (environment,) if environment else ()
        check_trusted(chosen.environment, chosen.env_args, named=named, given=env_args)
    device = choose_device(rest["device"] if device == "auto" else device)
    workers = choose_workers(rest["workers"] if workers is None else workers)
    files = OnlineFolder(folder)
    prepare_process(device, batch=chosen.batch, hidden=chosen.hidden)
    both = Observers([files, observer])
    with OnlineRun(chosen, workers=workers, device=device, observer=both) as run:
        for warning in files.resume(run):
            observer.on_warning(warning)
        try:
            return _train(run, files, observer)
        except MISFITS as error:  # what no check of a checkpoint has foreseen
            if isinstance(error, DataError) or not files.is_untouched:
                raise
            reason = f"{type(error).__name__}: {error}"
            raise DataError(f"does not fit this run: {reason}", file=folder / NAME) from error


def _train(run: OnlineRun, files: OnlineFolder, observer: Observer) -> TrainingResult:
    result = files.train(observer)
    if run.restarts:
        why = "a worker process died, or the environment does not repeat itself"
        observer.on_warning(f"unfinished episodes lost: {run.restarts} ({why})")
    return result
