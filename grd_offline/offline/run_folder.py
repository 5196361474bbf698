"""What an offline run leaves on disk, written as it goes.

settings.json                   settings, members, units of the rewards, versions, the command
log.csv                         every 1,000 updates: losses
evaluations.csv                 every evaluation of every member, in the columns of online runs
members/NAME/policies/          step-000010000/, ..., best/: for `collect --policy`
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from grd_offline.agents.actors import Actor, save_actor
from grd_offline.errors import DataError
from grd_offline.files.runs import (
    EVALUATION_COLUMNS,
    EVALUATIONS_FILE,
    LOG_FILE,
    OFFLINE,
    SETTINGS_FILE,
    VERSION,
    append_rows,
    start_table,
    write_json,
)
from grd_offline.files.storage import check_writable, make_folder, storage_errors
from grd_offline.offline.run import CHECK_EVERY, Checkpoint, OfflineRun
from grd_offline.versions import find_versions

LOG_COLUMNS = (
    "step", "seconds", "member", "group", "seed", "critic_loss", "actor_loss", "value_loss",
    "skipped",
)  # fmt: skip


class OfflineFolder:
    """Hears of a run and writes its files."""

    def __init__(
        self, path: Path, *, correlations: Mapping[str, float | None] | None = None
    ) -> None:
        """`correlations`: of the sources' rewards with the true ones, where those are known."""
        self.path = path
        self.best: dict[str, float] = {}
        """Best mean return of each member so far."""
        self._correlations = dict(correlations or {})
        self._start = time.monotonic()
        self._logged = 0

    @property
    def seconds(self) -> float:
        """Of training so far."""
        return time.monotonic() - self._start

    def check_free(self) -> None:
        """Refuse a folder that has something in it."""
        if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            raise DataError("exists already", file=self.path)
        check_writable(self.path)

    def create(
        self,
        run: OfflineRun,
        *,
        data: Mapping[str, Any],
        command: Sequence[str],
        workers: int,
        device: str,
    ) -> None:
        """Start a new folder; one that has something in it is refused."""
        self.check_free()
        with storage_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        contents = {
            "format": OFFLINE,
            "version": VERSION,
            "command": list(command),
            "environment": None if run.fleet is None else run.fleet.environment,
            "data": dict(data),
            "settings": run.settings.to_json(),
            "members": [
                {"name": member.name, "group": member.group, **asdict(member)}
                for member in run.members
            ],
            "reward_units": {name: units._asdict() for name, units in run.units.items()},
            "device": device,
            "workers": workers,
            "versions": find_versions(),
        }
        write_json(self.path / SETTINGS_FILE, contents)
        start_table(self.path / LOG_FILE, LOG_COLUMNS)
        start_table(self.path / EVALUATIONS_FILE, EVALUATION_COLUMNS)

    def on_progress(self, run: OfflineRun) -> None:
        """Log losses, if it is time."""
        if run.step // CHECK_EVERY > self._logged:
            self._logged = run.step // CHECK_EVERY
            self._log(run)

    def on_checkpoint(self, run: OfflineRun, checkpoint: Checkpoint) -> None:
        """Write policies and, if they were evaluated, how they did."""
        if checkpoint.returns is not None and checkpoint.lengths is not None:
            rows = [
                self._describe(run, index, checkpoint.step, returns, lengths)
                for index, (returns, lengths) in enumerate(
                    zip(checkpoint.returns, checkpoint.lengths, strict=True)
                )
            ]
            append_rows(self.path / EVALUATIONS_FILE, EVALUATION_COLUMNS, rows)
        for index in range(len(run.members)):
            self._save_policy(run, index, checkpoint)

    def _describe(
        self, run: OfflineRun, index: int, step: int, returns: np.ndarray, lengths: np.ndarray
    ) -> dict[str, Any]:
        member = run.members[index]
        correlation = self._correlations.get(member.source)
        return {
            "step": step,
            "seconds": round(self.seconds, 1),
            "member": member.name,
            "group": member.group,
            "seed": member.seed,
            "mean_return": float(returns.mean()),
            "std_return": float(returns.std()),
            "min_return": float(returns.min()),
            "max_return": float(returns.max()),
            "mean_length": float(lengths.mean()),
            "correlation": "" if correlation is None else correlation,
            "policy_states": run.states,
        }

    def _save_policy(self, run: OfflineRun, index: int, checkpoint: Checkpoint) -> None:
        member = run.members[index]
        mean = None if checkpoint.returns is None else float(checkpoint.returns[index].mean())
        about = {
            "environment": None if run.fleet is None else run.fleet.environment,
            "member": member.name,
            "step": checkpoint.step,
            "mean_return": mean,
        }
        actor = Actor(run.spec, checkpoint.weights[index])
        folder = make_folder(self.path, "members", member.name, "policies")
        save_actor(folder / f"step-{checkpoint.step:09d}", actor, about)
        if mean is not None and mean > self.best.get(member.name, -np.inf):
            self.best[member.name] = mean
            save_actor(folder / "best", actor, about)

    def _log(self, run: OfflineRun) -> None:
        losses = run.learner.agent.losses.numpy(force=True)
        skipped = run.learner.count_skipped()
        rows = []
        for index, member in enumerate(run.members):
            row: dict[str, Any] = {
                "step": run.step,
                "seconds": round(self.seconds, 1),
                "member": member.name,
                "group": member.group,
                "seed": member.seed,
                "skipped": int(skipped[index]),
            }
            for name, values in zip(run.learner.agent.loss_names, losses, strict=True):
                row[f"{name}_loss"] = float(values[index])
            rows.append(row)
        append_rows(self.path / LOG_FILE, LOG_COLUMNS, rows)
