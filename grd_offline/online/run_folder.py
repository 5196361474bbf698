"""What a run leaves on disk, written as it goes.

settings.json                   settings, members, versions, the command
log.csv                         every 1,000 steps: losses, training returns, correlation
evaluations.csv                 every evaluation of every member
checkpoint.pt                   to go on from
tensorboard/                    the same numbers, where TensorBoard is installed
members/NAME/policies/          step-000010000/, ..., best/: for `collect --policy`
members/NAME/reward_model/      as it was at the best evaluation: for `RewardModel.load`
members/NAME/masks/             step-000010000.json, ...: the graph over time
members/NAME/episodes/          step-000010000.csv, ...: reward found and true, per step
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from grd_offline.agents.actors import Actor, save_actor
from grd_offline.errors import DataError
from grd_offline.files.models import REWARD_FOLDER
from grd_offline.files.plain import folder_errors
from grd_offline.files.runs import (
    EVALUATION_COLUMNS,
    EVALUATIONS_FILE,
    FORMAT,
    LOG_BYTES,
    LOG_FILE,
    SETTINGS_FILE,
    VERSION,
    append_rows,
    read_about,
    read_rows,
    start_table,
    write_episode,
    write_json,
    write_masks,
)
from grd_offline.files.storage import (
    check_writable,
    lock_folder,
    make_folder,
    storage_errors,
)
from grd_offline.members.nn import EDGES
from grd_offline.names import find_member_folder, rename_member, rename_row
from grd_offline.online.checkpoints import has_checkpoint, load_checkpoint, save_checkpoint
from grd_offline.online.run import Evaluation, Run
from grd_offline.online.settings import OnlineSettings
from grd_offline.rewards.contract import RewardFunction
from grd_offline.rewards.model import RewardModel
from grd_offline.versions import find_versions

LOG_EVERY = 1000
CHECKPOINT_SECONDS = 600.0
LOG_COLUMNS = (
    "step", "seconds", "member", "group", "seed", "updates", "training_return", "correlation",
    "critic_loss", "actor_loss", "temperature", "reward_loss", "dynamics_loss", "sparsity_loss",
    "skipped",
)  # fmt: skip
TABLES = {LOG_FILE: LOG_COLUMNS, EVALUATIONS_FILE: EVALUATION_COLUMNS}


class RunFolder:
    """Hears of a run and writes its files."""

    def __init__(self, path: Path, *, checkpoint_seconds: float = CHECKPOINT_SECONDS) -> None:
        self.path = path
        self.best: dict[str, float] = {}
        """Best mean return of each member so far."""
        self._before = 0.0
        """Seconds of training before this process."""
        self._start = time.monotonic()
        self._checkpoint_seconds = checkpoint_seconds
        self._last_checkpoint = time.monotonic()
        self._pending: dict[int, dict[str, Any]] = {}
        self._rows = dict.fromkeys(TABLES, 0)
        """Of each table so far: a resume looks whether they are still there."""
        self._board: Any = None
        self._let_go: Callable[[], Any] = lambda: None

    def check_free(self) -> None:
        """Refuse a folder that has something in it."""
        if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            hint = "; to go on with it: --resume" if has_checkpoint(self.path) else ""
            raise DataError(f"exists already{hint}", file=self.path)
        check_writable(self.path)

    def create(self, run: Run, *, command: Sequence[str], workers: int, device: str) -> None:
        """Start a new folder; one that has something in it is refused."""
        self.check_free()
        with storage_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        self._hold()
        contents = {
            "format": FORMAT,
            "version": VERSION,
            "command": list(command),
            "environment": run.fleet.environment,
            "observation_names": list(run.dimension_names[0]),
            "action_names": list(run.dimension_names[1]),
            "settings": run.settings.to_json(),
            "members": [_describe(member) for member in run.members],
            "device": device,
            "workers": workers,
            "versions": find_versions(),
        }
        write_json(self.path / SETTINGS_FILE, contents)
        for name, columns in TABLES.items():
            start_table(self.path / name, columns)
        self._open_board(None)

    def resume(self, run: Run) -> list[str]:
        """Go on from the last checkpoint; gives what may keep it from being exact."""
        self._hold()
        extra, warnings = load_checkpoint(run, self.path)
        with folder_errors(self.path, "the checkpoint does not fit"):
            self.best = {rename_member(str(n)): float(value) for n, value in extra["best"].items()}
            self._before = float(extra["seconds"])
            counts = {name: int(extra.get("rows", {}).get(name, 0)) for name in TABLES}
        for name, columns in TABLES.items():
            rows = [rename_row(row) for row in read_rows(self.path / name, LOG_BYTES)]
            # What came after the checkpoint comes again.
            kept = [row for row in rows if int(row["step"]) <= run.step]
            missing = counts[name] - len(kept)
            if missing > 0:
                warnings.append(
                    f"{self.path / name}: {missing} rows are missing that were there when the "
                    "checkpoint was written: going on without them"
                )
            start_table(self.path / name, columns, kept)
            self._rows[name] = len(kept)
        with storage_errors(self.path):
            for member in run.members:
                former = find_member_folder(self.path, member.name)
                if former.name != member.name:
                    former.rename(former.with_name(member.name))
        self._open_board(run.step + 1)
        return warnings

    def _hold(self) -> None:
        """Keep others from writing here until `close`, or as long as this object lives."""
        try:
            descriptor = lock_folder(self.path)
        except BlockingIOError:
            raise DataError("another process is training in it", file=self.path) from None
        self._let_go = weakref.finalize(self, os.close, descriptor)

    def _open_board(self, purge_step: int | None) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            return
        folder = make_folder(self.path, "tensorboard")
        self._board = SummaryWriter(str(folder), purge_step=purge_step)

    @property
    def seconds(self) -> float:
        """Of training so far, all processes together."""
        return self._before + time.monotonic() - self._start

    def on_round(self, run: Run) -> None:
        """Log now and then; save a checkpoint when it is time."""
        if run.has_passed(LOG_EVERY):
            self._log(run)
        if time.monotonic() - self._last_checkpoint > self._checkpoint_seconds:
            self.save(run)

    def save(self, run: Run) -> None:
        """Write a checkpoint."""
        # An evaluation under way is finished first, and its files must be in the folder.
        run.finish_evaluation()
        extra = {"best": self.best, "seconds": self.seconds, "rows": self._rows}
        save_checkpoint(run, self.path, extra)
        self._last_checkpoint = time.monotonic()

    def on_evaluation_start(self, run: Run) -> None:
        """Keep what belongs to this moment: reward functions, masks, correlation."""
        status = run.status()
        kept: dict[str, Any] = {"correlations": status.correlations, "functions": []}
        kept["compact"] = run.learner.compute_compact()
        kept["policy_mask"] = run.learner.mask.numpy(force=True) > 0
        kept["masks"] = []
        for index, member in enumerate(run.members):
            source, place = run.learner.find_source(index)
            kept["functions"].append(source.export(place))
            masks, found = None, source.find_masks()
            if found is not None:
                masks = {
                    name: getattr(found, name)[place].numpy(force=True).astype(int).tolist()
                    for name in EDGES
                }
                write_masks(self.path, member.name, run.step, masks, kept["compact"][index])
            kept["masks"].append(masks)
            both = run.predict_last(index)
            if both is not None:
                write_episode(self.path, member.name, run.step, *both)
        self._pending[run.step] = kept

    def on_evaluation(self, run: Run, evaluation: Evaluation) -> None:
        """Write returns, policies, and at a member's best its reward model."""
        kept = self._pending.pop(evaluation.step)
        rows = []
        for index, member in enumerate(run.members):
            returns = evaluation.returns[index]
            masks = kept["masks"][index]
            edges = [np.mean(masks[name]) for name in EDGES] if masks else []
            mean = float(returns.mean())
            rows.append(
                {
                    "step": evaluation.step,
                    "seconds": round(self.seconds, 1),
                    "member": member.name,
                    "group": member.group,
                    "seed": member.seed,
                    "mean_return": mean,
                    "std_return": float(returns.std()),
                    "min_return": float(returns.min()),
                    "max_return": float(returns.max()),
                    "mean_length": float(evaluation.lengths[index].mean()),
                    "correlation": _blank(kept["correlations"][index]),
                    "edges_on": float(np.mean(edges)) if edges else "",
                    "compact_states": int(kept["compact"][index].sum()),
                    "policy_states": int(kept["policy_mask"][index].sum()),
                }
            )
            is_best = mean > self.best.get(member.name, -np.inf)
            if is_best:
                self.best[member.name] = mean
            self._save_policy(run, index, evaluation, mean, is_best)
            if is_best and kept["functions"][index] is not None:
                self._save_reward(run, index, evaluation, kept)
        self._append(EVALUATIONS_FILE, rows)
        self._show_on_board(rows, ("mean_return", "correlation", "edges_on", "compact_states"))

    def _log(self, run: Run) -> None:
        status, policy = run.status(), run.learner.policy
        losses = policy.losses.numpy(force=True)
        temperatures = policy.temperature.logarithm.detach().exp().squeeze(1).numpy(force=True)
        rows = []
        for index, member in enumerate(run.members):
            source, place = run.learner.find_source(index)
            row: dict[str, Any] = {
                "step": run.step,
                "seconds": round(self.seconds, 1),
                "member": member.name,
                "group": member.group,
                "seed": member.seed,
                "updates": status.updates,
                "training_return": _blank(status.training_returns[index]),
                "correlation": _blank(status.correlations[index]),
                "critic_loss": float(losses[0, index]) if status.updates else "",
                "actor_loss": float(losses[1, index]) if status.updates else "",
                "temperature": float(temperatures[index]) if policy.backbone == "sac" else "",
                "skipped": int(status.skipped[index]),
            }
            if source.losses is not None and status.updates:
                values = source.losses[:, place].numpy(force=True)
                for name, value in zip(source.loss_names, values, strict=True):
                    row[f"{name}_loss"] = float(value)
            rows.append(row)
        self._append(LOG_FILE, rows)
        self._show_on_board(rows, LOG_COLUMNS[6:])

    def _append(self, name: str, rows: list[dict[str, Any]]) -> None:
        append_rows(self.path / name, TABLES[name], rows)
        self._rows[name] += len(rows)

    def _show_on_board(self, rows: list[dict[str, Any]], columns: Sequence[str]) -> None:
        if self._board is None:
            return
        for row in rows:
            for column in columns:
                if row.get(column, "") != "":
                    self._board.add_scalar(f"{column}/{row['member']}", row[column], row["step"])

    def _save_policy(
        self, run: Run, index: int, evaluation: Evaluation, mean: float, is_best: bool
    ) -> None:
        member = run.members[index]
        about = {
            "environment": run.fleet.environment,
            "member": member.name,
            "step": evaluation.step,
            "mean_return": mean,
        }
        actor = Actor(run.fleet.spec, evaluation.weights[index])
        folder = make_folder(self.path, "members", member.name, "policies")
        save_actor(folder / f"step-{evaluation.step:09d}", actor, about)
        if is_best:
            save_actor(folder / "best", actor, about)

    def _save_reward(
        self, run: Run, index: int, evaluation: Evaluation, kept: Mapping[str, Any]
    ) -> None:
        member, masks = run.members[index], kept["masks"][index]
        function: RewardFunction = kept["functions"][index]
        states, actions = run.fleet.observation_size, run.fleet.action_size
        to_reward = masks["state_to_reward"] if masks else np.ones(states)
        from_action = masks["action_to_reward"] if masks else np.ones(actions)
        names = run.dimension_names
        model = RewardModel(
            function=function,
            observation_names=names[0],
            action_names=names[1],
            state_mask=np.asarray(to_reward, np.int64),
            action_mask=np.asarray(from_action, np.int64),
            compact_mask=kept["compact"][index].astype(np.int64),
            about={
                "environment": run.fleet.environment,
                "member": member.name,
                "step": evaluation.step,
                "method": member.method,
                "fit": member.fit,
                "mean_return": float(evaluation.returns[index].mean()),
                "correlation_last_episode": _number(kept["correlations"][index]),
            },
        )
        model.save(make_folder(self.path, "members", member.name) / REWARD_FOLDER)

    def close(self) -> None:
        """Finish what is being written."""
        if self._board is not None:
            self._board.close()
        self._let_go()


def read_settings(folder: Path) -> tuple[OnlineSettings, dict[str, Any]]:
    """The settings of a run, and the rest of its `settings.json`."""
    contents = read_about(folder)
    file = folder / SETTINGS_FILE
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


def _describe(member: Any) -> dict[str, Any]:
    plain = asdict(member)
    plain["lambdas"] = dict(member.lambdas._asdict())
    return {"name": member.name, "group": member.group, **plain}


def _blank(value: float) -> float | str:
    return float(value) if np.isfinite(value) else ""


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
