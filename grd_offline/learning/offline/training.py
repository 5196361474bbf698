"""`train_offline`: what `grd-offline train-offline` does, for Python.

The folder of an offline run is written while it trains.

settings.json                   settings, members, units of the rewards, versions, the command
log.csv                         every 1,000 updates: losses
evaluations.csv                 every evaluation of every member, in the columns of online runs
members/NAME/policies/          step-000010000/, ..., best/: for `collect --policy`
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from grd_offline.core.errors import DataError
from grd_offline.core.observer import NOBODY, Observer, Observers, Warn
from grd_offline.core.typing import Array
from grd_offline.core.words import format_percentage
from grd_offline.io.files.results import LOG_FILE, OFFLINE
from grd_offline.io.tables.columns import Given, Outcomes
from grd_offline.learning.agents.algorithms import find_algorithm
from grd_offline.learning.offline.data import OfflineData, check_actions, load_data
from grd_offline.learning.offline.run import OfflineRun, check_environment
from grd_offline.learning.offline.settings import OfflineSettings
from grd_offline.learning.runs.folder import LOG_EVERY, RunFolder, TrainingResult
from grd_offline.learning.runs.process import choose_device, choose_workers, prepare_process
from grd_offline.worlds.environments import resolve_environment_id

LOG_COLUMNS = (
    "step", "seconds", "member", "group", "seed", "critic_loss", "actor_loss", "value_loss",
    "skipped",
)  # fmt: skip


class OfflineFolder(RunFolder):
    """Hears of a run and writes its files."""

    format = OFFLINE
    log_columns = LOG_COLUMNS
    correlations: Mapping[str, float | None]
    """Correlation of the rewards of each source with the true rewards. None if those are not
    known."""

    def _describe_run(self, run: OfflineRun) -> dict[str, Any]:
        return {"reward_units": {name: units._asdict() for name, units in run.units.items()}}

    def _describe_policy(self, run: OfflineRun, index: int, step: int) -> dict[str, Any]:
        correlation = self.correlations.get(run.members[index].source)
        return {
            "correlation": "" if correlation is None else correlation,
            "policy_states": run.states,
        }

    def on_progress(self, stage: str, share: float) -> None:
        """Write a row of the log of each member at intervals."""
        run = self.run
        if run.step // LOG_EVERY <= self.logged:
            return
        self.logged = run.step // LOG_EVERY
        agent, skipped = run.learner.agent, run.learner.count_skipped()
        names = [f"{name}_loss" for name in agent.loss_names]
        losses = agent.losses.numpy(force=True).T
        rows = [
            {
                **self._describe_owner(member, run.step),
                "skipped": int(count),
                **dict(zip(names, map(float, own), strict=True)),
            }
            for member, count, own in zip(run.members, skipped, losses, strict=True)
        ]
        self._append(LOG_FILE, rows)


def train_offline(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    rewards: Sequence[str] | Mapping[str, Array] = ("relabelled",),
    max_bytes: int | None = None,
    columns: Given | None = None,
    returns: Outcomes | None = None,
    device: str = "auto",
    workers: int | None = None,
    observer: Observer = NOBODY,
    command: Sequence[str] = (),
    **settings: Any,
) -> TrainingResult:
    """Train policies on a dataset alone, and write the run into the folder `out`.

    It changes settings of the process: see `grd_offline.learning.runs.process.prepare_process`.

    Parameters
    ----------
    source
        Whatever `grd_offline.read` reads.
    out
        The folder of the run.
    rewards
        Names of rewards that the data hold: `relabelled`, `observed` and `true`. Or your own:
        arrays by name, one number for each step of the data.
    max_bytes
        Trusts the file to unpack to that size.
    columns, returns
        The columns and the outcomes of a table, as `decompose` has them.
    device
        `auto`, `cpu` or `cuda`.
    workers
        The processes that step environments. None: one for each core.
    observer
        Hears of the run, and decides whether to stop.
    command
        Is written into the settings of the run.
    **settings
        The fields of `OfflineSettings`, for example `environment`, `algorithm`, `seeds`, `updates`
        and `eval_every`. Without `environment` nothing is evaluated.

    Returns
    -------
    TrainingResult
        The evaluations, and where the policies are.

    Examples
    --------
    >>> import grd_offline
    >>> result = grd_offline.train_offline(
    ...     "hc-grd/relabelled.h5", "runs/hc", environment="HalfCheetah", seeds=5
    ... )  # doctest: +SKIP
    >>> result.evaluations[-1]["mean_return"]  # doctest: +SKIP
    5612.0
    """
    chosen = OfflineSettings(rewards=tuple(rewards), **settings)
    files = OfflineFolder(Path(out))
    files.check_free()
    data = load_checked(source, chosen, max_bytes=max_bytes, columns=columns, returns=returns)
    try:
        own = rewards if isinstance(rewards, Mapping) else {}
        given = {
            name: own[name] if name in own else data.find(name, chosen.pessimism)
            for name in chosen.rewards
        }
    except DataError as error:
        raise error.at(file=source) from None
    warn_of_data(chosen, data, observer.on_warning)
    if chosen.pessimism > 0 and "relabelled" not in {*chosen.rewards} - {*own}:
        observer.on_warning("--pessimism is for relabelled rewards: none of these are")
    return train_members(
        chosen, data, given, files, device=device, workers=workers, observer=observer,
        about=describe_data(source, data), command=command,
    )  # fmt: skip


def load_checked(
    source: str | os.PathLike[str],
    settings: OfflineSettings,
    *,
    max_bytes: int | None = None,
    columns: Given | None = None,
    returns: Outcomes | None = None,
) -> OfflineData:
    """Read a dataset. Refuse an environment that does not fit it before any time is spent."""
    if settings.environment is not None:
        resolve_environment_id(settings.environment)
    try:
        data = load_data(
            source,
            max_episode_steps=settings.max_episode_steps,
            max_bytes=max_bytes,
            columns=columns,
            returns=returns,
        )
        check_actions(data.episodes)
        algorithm = find_algorithm(settings.algorithm)
        algorithm.find_class(is_discrete=data.episodes.discrete_actions)
        check_environment(settings, data.episodes)
    except DataError as error:
        raise error.at(file=source) from None
    return data


def warn_of_data(settings: OfflineSettings, data: OfflineData, warn: Warn) -> None:
    """Warn of what is unusual about the data, and of evaluations in another environment."""
    for warning in data.warnings:
        warn(warning)
    if settings.environment is None:
        warn("there is no environment (--env): policies are trained and saved, not evaluated")
    other = describe_other_environment(settings, data)
    if other is not None:
        warn(other)


def train_members(
    settings: OfflineSettings,
    data: OfflineData,
    rewards: Mapping[str, Array],
    files: OfflineFolder,
    *,
    device: str,
    workers: int | None,
    observer: Observer,
    about: Mapping[str, Any],
    command: Sequence[str],
) -> TrainingResult:
    """Train all members and write the run into its folder. `about` describes the data."""
    files.correlations = {name: data.correlate(values) for name, values in rewards.items()}
    device, workers = choose_device(device), choose_workers(workers)
    prepare_process(device, batch=settings.batch, hidden=settings.hidden)
    with OfflineRun(
        settings,
        data.episodes,
        rewards,
        workers=workers,
        device=device,
        observer=Observers([files, observer]),
    ) as run:
        if run.outside > 0:
            observer.on_warning(
                f"{format_percentage(max(run.outside, 0.001), 1)} of the data's actions are "
                "outside of what the environment takes: policies cannot take them either"
            )
        files.create(run, data=about, command=command, workers=workers, device=device)
        observer.on_start(files)
        run.train()
        result = files.make_result()
        observer.on_result(files, result)
        return result


def describe_data(source: str | os.PathLike[str], data: OfflineData) -> dict[str, Any]:
    """The dataset in plain values."""
    return {
        "file": Path(source).name,
        "episodes": len(data.episodes),
        "steps": data.episodes.total_steps,
        "environment": data.episodes.environment,
        "folder": Path(source).resolve().parent.name,
        "digest": compute_digest(data),
    }


def compute_digest(data: OfflineData) -> str:
    """A short text that differs where the steps or any of their rewards do."""
    found = hashlib.sha256()
    for episode in data.episodes:
        for part in (episode.observations, episode.actions):
            found.update(np.ascontiguousarray(part).tobytes())
    for name in sorted(data.rewards):
        found.update(name.encode() + np.ascontiguousarray(data.rewards[name]).tobytes())
    return found.hexdigest()[:16]


def describe_other_environment(settings: OfflineSettings, data: OfflineData) -> str | None:
    """Say that evaluations are not in the environment of the data; None if they are."""
    if settings.environment is None:
        return None
    chosen, recorded = resolve_environment_id(settings.environment), data.episodes.environment
    if recorded is not None and chosen.rpartition(":")[2] != recorded.rpartition(":")[2]:
        return f"the data are of {recorded}, evaluations of {chosen}"
    if data.env_args is not None and dict(settings.env_args) != dict(data.env_args):
        arguments = " ".join(
            f"--env-arg {name}={json.dumps(value)}" for name, value in data.env_args.items()
        )
        return f"the data are of {chosen} with {arguments or 'no --env-arg'}, evaluations are not"
    return None
