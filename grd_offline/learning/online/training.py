"""`train_online` and `resume_online`: what `grd-offline train-online` does, for Python."""

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from grd_offline.core.errors import DataError
from grd_offline.core.observer import NOBODY, Observer, Observers
from grd_offline.learning.agents.algorithms import find_algorithm
from grd_offline.learning.fleet.environment import VectorEnvironment
from grd_offline.learning.online.run import OnlineRun
from grd_offline.learning.online.run_folder import OnlineFolder, check_space, read_settings
from grd_offline.learning.online.settings import DISCRETE, MANY_STATES, OnlineSettings
from grd_offline.learning.runs.folder import TrainingResult
from grd_offline.learning.runs.process import choose_device, choose_workers, prepare_process
from grd_offline.worlds.environments import resolve_environment_id


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
        `grd_offline.learning.online.settings.DISCRETE`.

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
            observer.on_warning(
                f"nothing will be learned in {run.total:,} steps: the warm-up alone takes "
                f"{chosen.warmup:,} (--warmup)"
            )
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
    _confirm_environment(folder, chosen.environment, environment)
    device = choose_device(rest["device"] if device == "auto" else device)
    workers = choose_workers(rest["workers"] if workers is None else workers)
    files = OnlineFolder(folder)
    prepare_process(device, batch=chosen.batch, hidden=chosen.hidden)
    both = Observers([files, observer])
    with OnlineRun(chosen, workers=workers, device=device, observer=both) as run:
        for warning in files.resume(run):
            observer.on_warning(warning)
        return _train(run, files, observer)


def _confirm_environment(folder: Path, stored: str, given: str | None) -> None:
    """An id that imports a module is taken from the caller, never from a file alone."""
    if given is not None and given != stored:
        raise DataError(
            f"its environment is {stored}, not {given}: a run continues with the settings that it "
            "began with",
            file=folder,
        )
    if ":" in stored and given is None:
        raise DataError(
            f"its environment {stored} imports a Python module: if you trust it, add "
            f"--env {shlex.quote(stored)}",
            file=folder,
        )


def _train(run: OnlineRun, files: OnlineFolder, observer: Observer) -> TrainingResult:
    observer.on_start(files)
    run.train()
    files.save(run)
    files.close()
    result = files.make_result()
    observer.on_result(files, result)
    if run.restarts:
        observer.on_warning(
            f"unfinished episodes lost: {run.restarts} (a worker process died, or the environment "
            "does not repeat itself)"
        )
    return result
