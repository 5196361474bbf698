"""The folder of an online run, written while it trains.

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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from grd_offline.core.errors import DataError
from grd_offline.core.observer import Warn
from grd_offline.core.words import format_bytes
from grd_offline.io.files import results as run_files
from grd_offline.io.files.models import REWARD_FOLDER
from grd_offline.io.files.plain import folder_errors
from grd_offline.io.files.storage import lock_folder, make_folder, replace_file
from grd_offline.learning.online.run import OnlineRun
from grd_offline.learning.online.settings import OnlineSettings
from grd_offline.learning.runs.folder import LOG_EVERY, RunFolder, Writer
from grd_offline.learning.runs.run import Evaluation, Run
from grd_offline.networks.members.download import Download
from grd_offline.networks.members.nn import EDGES
from grd_offline.rewards.contract import RewardFunction
from grd_offline.rewards.model import RewardModel

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
        raise DataError(
            f"not a checkpoint: declares {declared:,} bytes, more than the file has", file=path
        )


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
PARTS = ("collecting", "taking_in", "updating", "evaluating", "logging", "solving", "searches")
"""Parts of the time of a run. The seconds are those of all members together."""
LOG_COLUMNS = (
    "step", "seconds", "member", "group", "seed", "updates", "training_return", "correlation",
    "critic_loss", "actor_loss", "temperature", "reward_loss", "dynamics_loss", "sparsity_loss",
    "skipped", *(f"{name}_seconds" for name in PARTS),
)  # fmt: skip
BOARD = {
    run_files.LOG_FILE: LOG_COLUMNS[6 : -len(PARTS)],
    run_files.EVALUATIONS_FILE: ("mean_return", "correlation", "edges_on", "compact_states"),
}
"""The columns that TensorBoard shows."""


@dataclass(frozen=True, eq=False)
class _Moment:
    """The state of each member at the beginning of an evaluation."""

    correlations: np.ndarray
    compact: np.ndarray
    policy_mask: np.ndarray
    functions: list[RewardFunction | None]
    masks: list[dict[str, np.ndarray] | None]


class OnlineFolder(RunFolder):
    """Hears of a run and writes its files."""

    format = run_files.FORMAT
    log_columns = LOG_COLUMNS

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._last_checkpoint = time.monotonic()
        self._moments: dict[int, _Moment] = {}
        self._rows = dict.fromkeys(self.tables, 0)
        """Number of rows of each table. A resume looks whether they are still there."""
        self._writer = Writer()
        self._log: tuple[Download, Callable[[], list[dict[str, Any]]]] | None = None
        """Rows of the log whose numbers are on their way from the device."""
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
        self.logged = run.step // LOG_EVERY
        for name, columns in self.tables.items():
            rows = run_files.read_rows(self.path / name, run_files.LOG_BYTES)
            # What came after the checkpoint comes again.
            kept = [row for row in rows if int(row["step"]) <= run.step]
            missing = counts[name] - len(kept)
            if missing > 0:
                warnings.append(
                    f"{self.path / name}: {missing} rows are missing that were there when the "
                    "checkpoint was written: the run continues without them"
                )
            run_files.start_table(self.path / name, columns, kept)
            self._rows[name] = len(kept)
        self._open_board(run.step + 1)
        return warnings

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
        """Begin a row of the log for each member now and then; write it when it is complete."""
        run = self.run
        if run.step // LOG_EVERY > self.logged:
            self._write_log()
            self.logged = run.step // LOG_EVERY
            self._log = self._begin_log(run)
        if self._log is not None and self._log[0].is_ready:
            self._write_log()
        if time.monotonic() - self._last_checkpoint > CHECKPOINT_SECONDS:
            self._begin_checkpoint(run)

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
        self._writer.submit(write_checkpoint, take_checkpoint(run, extra), self.path)
        self._last_checkpoint = time.monotonic()

    def on_start(self, work: Any) -> None:
        """Keep what belongs to an evaluation: reward functions, masks, correlation."""
        if not isinstance(work, Evaluation):
            return
        run: OnlineRun = self.run
        predicted = run.begin_predictions()()
        moment = _Moment(
            run.correlate(predicted),
            run.learner.compute_compact(),
            run.learner.mask.numpy(force=True) > 0,
            [],
            [],
        )
        for source in run.learner.sources:
            found = source.find_masks()
            edges = found and {
                name: getattr(found, name).numpy(force=True).astype(np.uint8) for name in EDGES
            }
            for place in range(source.size):
                moment.functions.append(source.export(place))
                moment.masks.append(edges and {name: edges[name][place] for name in EDGES})
        self._moments[run.step] = moment
        names = [member.name for member in run.members]
        self._writer.submit(self._write_moment, names, run.step, moment, predicted)

    def _write_moment(
        self, names: list[str], step: int, moment: _Moment, predicted: list[Any]
    ) -> None:
        every = zip(names, moment.masks, moment.compact, predicted, strict=True)
        for name, masks, compact, both in every:
            if masks is not None:
                run_files.write_masks(self.path, name, step, masks, compact)
            if both is not None:
                run_files.write_episode(self.path, name, step, *both)

    def on_result(self, run: Any, evaluation: Evaluation) -> None:
        self._writer.submit(self._write_evaluation, run, evaluation)

    def _write_evaluation(self, run: Run, evaluation: Evaluation) -> None:
        super().on_result(run, evaluation)
        del self._moments[evaluation.step]

    def _describe_policy(self, run: OnlineRun, index: int, step: int) -> dict[str, Any]:
        moment = self._moments[step]
        masks = moment.masks[index]
        edges = [np.mean(masks[name]) for name in EDGES] if masks else []
        return {
            "correlation": _blank(moment.correlations[index]),
            "edges_on": float(np.mean(edges)) if edges else "",
            "compact_states": int(moment.compact[index].sum()),
            "policy_states": int(moment.policy_mask[index].sum()),
        }

    def _write_log(self) -> None:
        """Write the rows that have been begun, if any, and wait for what they need."""
        if self._log is not None:
            rows, self._log = self._log[1](), None
            self._append(run_files.LOG_FILE, rows)

    def _begin_log(self, run: OnlineRun) -> tuple[Download, Callable[[], list[dict[str, Any]]]]:
        """Ask for the numbers of a moment. The function makes the rows of them.

        The first that comes back is ready when the function would not wait for the device.
        """
        agent, updates, skipped = (
            run.learner.agent,
            run.learner.updates,
            run.learner.begin_skipped(),
        )
        others = {name: Download(values) for name, values in agent.find_log_values().items()}
        predicted, losses = run.begin_predictions(), Download(agent.losses)
        of_sources = [
            None if source.losses is None else Download(source.losses)
            for source in run.learner.sources
        ]
        owners = [self._describe_owner(member, run.step) for member in run.members]
        returns = [
            "" if last is None else _blank(last[0].episode_return) for last in run.last_episodes
        ]
        seconds = {f"{name}_seconds": value for name, value in run.count_seconds().items()}

        def finish() -> list[dict[str, Any]]:
            correlations, rows = run.correlate(predicted()), []
            for index, owner in enumerate(owners):
                row = {
                    **owner,
                    "updates": updates,
                    "training_return": returns[index],
                    "correlation": _blank(correlations[index]),
                    **_pick_losses(agent.loss_names, losses, index, updates),
                    **{name: float(values.finish()[index]) for name, values in others.items()},
                    "skipped": int(skipped.finish()[index]),
                    **seconds,
                }
                for source, own in zip(run.learner.sources, of_sources, strict=True):
                    place = index - source.members.start
                    if own is not None and 0 <= place < source.size:
                        row |= _pick_losses(source.loss_names, own, place, updates)
                rows.append(row)
            return rows

        return Download(run.learner.counter), finish

    def _append(self, name: str, rows: list[dict[str, Any]]) -> None:
        super()._append(name, rows)
        self._rows[name] += len(rows)
        for row in rows if self._board is not None else ():
            for column in BOARD[name]:
                if row.get(column, "") != "":
                    self._board.add_scalar(f"{column}/{row['member']}", row[column], row["step"])

    def _save_best(self, run: OnlineRun, index: int, evaluation: Evaluation) -> None:
        """Write the reward model of a member, as it was when its best evaluation began."""
        member, moment = run.members[index], self._moments[evaluation.step]
        function, masks = moment.functions[index], moment.masks[index]
        if function is None:
            return
        states, actions = run.fleet.observation_size, run.fleet.action_size
        to_reward = masks["state_to_reward"] if masks else np.ones(states)
        from_action = masks["action_to_reward"] if masks else np.ones(actions)
        correlation = float(moment.correlations[index])
        model = RewardModel(
            function=function,
            observation_names=run.fleet.dimension_names[0],
            action_names=run.fleet.dimension_names[1],
            state_mask=np.asarray(to_reward, np.int64),
            action_mask=np.asarray(from_action, np.int64),
            compact_mask=moment.compact[index].astype(np.int64),
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

    def close(self) -> None:
        self._write_log()
        self._writer.close()
        if self._board is not None:
            self._board.close()
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


def _pick_losses(
    names: Sequence[str], losses: Download, place: int, updates: int
) -> dict[str, float | str]:
    """The losses of one member, blank before the first update."""
    values = losses.finish()[:, place]
    return {
        f"{name}_loss": float(value) if updates else ""
        for name, value in zip(names, values, strict=True)
    }


def _blank(value: float) -> float | str:
    return float(value) if np.isfinite(value) else ""
