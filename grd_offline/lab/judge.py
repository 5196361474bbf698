"""`judge`: compare methods of decomposition by the policies that learn from their rewards.

Every method sees the returns of the same dataset. Policies for all methods, for the true rewards
and for the delayed rewards are trained side by side and evaluated by the true return.
"""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grd_offline.comparison.metrics import LAST
from grd_offline.core.errors import DataError, located
from grd_offline.core.observer import NOBODY, Observer, Observers, Progress, Warn
from grd_offline.core.packages import find_versions
from grd_offline.core.statistics import compare_rewards
from grd_offline.core.threads import one_numpy_thread
from grd_offline.core.typing import Array
from grd_offline.io.files.results import OBSERVED, RUN_FOLDER, TRUE, SourceScores, write_judgement
from grd_offline.io.tables.columns import Given, Outcomes
from grd_offline.learning.agents.algorithms import find_title
from grd_offline.learning.offline import run as offline
from grd_offline.learning.offline.run import OfflineData, OfflineFolder
from grd_offline.learning.runs.process import choose_device
from grd_offline.learning.runs.run import Evaluation, TrainingResult
from grd_offline.learning.settings import JUDGED, OfflineSettings
from grd_offline.methods.choose import choose, draw_episodes
from grd_offline.methods.registry import AUTO, NEXT_STATE, find_method, list_fits, list_judged
from grd_offline.methods.settings import DecomposeSettings

REFERENCES = (TRUE, OBSERVED)
STEADY = 2 / 3
"""A seed is unsteady if it ends with less than this fraction of its best gain over the data."""


@dataclass(frozen=True, eq=False)
class Found:
    """The rewards of one source, and what is known of them."""

    rewards: Array
    """(step,) rewards of all episodes, one after the other."""
    about: dict[str, Any]
    """Plain values that describe the rewards, for `judge.json`."""


def check_names(methods: Sequence[str], fit: str, warn: Warn) -> None:
    """Refuse names that are no methods. Warn of a fit that no method uses."""
    known = list_judged()
    for method in methods:
        if method not in known:
            raise DataError(f"expected one of {', '.join(known)}, got {method!r}", field="methods")
    if not methods or len(set(methods)) < len(methods):
        raise DataError("expected at least one, and none twice", field="methods")
    if fit not in list_fits():
        raise DataError(f"expected one of {', '.join(list_fits())}, got {fit!r}", field="fit")
    if fit != AUTO and not any(find_method(n.removesuffix(NEXT_STATE)).fit for n in methods):
        warn("--fit is for grd: none of these methods has several fits")


def check_data(data: OfflineData, methods: Sequence[str]) -> None:
    """Refuse data that a method cannot use before any time is spent on the others."""
    if "relabelled" in data.rewards:
        raise DataError("are relabelled already: judge the original", field="data")
    if not all(episode.has_final_observation for episode in data.episodes):
        for method in (name for name in methods if name.endswith(NEXT_STATE)):
            reason = f"{method}: not every episode holds its last observation"
            raise DataError(reason, field="methods")


def find_references(data: OfflineData) -> dict[str, Found]:
    """The true rewards, if they are known, and the delayed rewards."""
    known = {name: data.rewards[name] for name in REFERENCES if name in data.rewards}
    return {name: Found(rewards, _compare(data, rewards)) for name, rewards in known.items()}


@one_numpy_thread()
def find_rewards(
    data: OfflineData,
    method: str,
    *,
    fit: str = "auto",
    seed: int = 0,
    device: str = "cpu",
    pessimism: float = 0.0,
    progress: Progress = NOBODY.on_progress,
) -> Found:
    """The rewards that `grd-offline decompose` would write with the same seed.

    They are less by `pessimism` times their standard deviation; what is told about them is not.
    """
    check_data(data, [method])
    start, rng = time.perf_counter(), np.random.default_rng(seed)
    settings = DecomposeSettings(
        method.removesuffix(NEXT_STATE),
        fit,
        next_state=method.endswith(NEXT_STATE),
        seed=seed,
        device=choose_device(device),
    )
    deliveries = sum(int(episode.delivered.sum()) for episode in data.episodes)
    fitted = draw_episodes(data.episodes, deliveries, rng)
    choice = choose(fitted, settings, data.discount, rng, progress)
    both = zip(*(choice.relabel_episode(episode) for episode in data.episodes), strict=True)
    rewards, spreads = (np.concatenate(part) for part in both)
    about = {
        "reason": choice.reason,
        "fit": choice.fit,
        **(choice.winner.describe() if choice.winner else {}),
        "seconds": round(time.perf_counter() - start, 2),
        **_compare(data, rewards),
    }
    return Found(offline.be_pessimistic(rewards, spreads, pessimism), about)


def _compare(data: OfflineData, rewards: Array) -> dict[str, Any]:
    """Compare rewards with the true ones over all steps; empty if those are not known."""
    if "true" not in data.rewards:
        return {}
    stops = np.cumsum(data.episodes.lengths)[:-1]
    both = (np.split(values, stops) for values in (rewards, data.rewards["true"]))
    return {"against_truth": compare_rewards(*both)}


class Scores(Observer):
    """Hears of a run and keeps the mean return of every evaluation."""

    def __init__(self) -> None:
        self.means: list[NDArray[np.float64]] = []
        """One array (member,) for each evaluation."""

    def on_result(self, work: Any, result: Any) -> None:
        if isinstance(result, Evaluation) and result.returns is not None:
            self.means.append(result.returns.mean(1))

    def compute(self) -> NDArray[np.float64]:
        """(member,) mean of the last few evaluations. Only the truth could choose the best one."""
        return np.asarray(np.stack(self.means[-LAST:]).mean(0))


def find_unsteady(
    settings: OfflineSettings, scores: Scores, behaviour: float | None
) -> dict[str, list[int]]:
    """Seeds of each source whose policy was once much better than it is in the end.

    A gain is the return above the mean return of the data. Offline algorithms lose good policies
    again with any rewards, so that a mean over such seeds says little about the rewards.
    """
    if behaviour is None or len(scores.means) <= LAST:
        return {}
    best, final = np.stack(scores.means).max(0) - behaviour, scores.compute() - behaviour
    lost = (best > 0) & (final < STEADY * best)
    found: dict[str, list[int]] = {}
    for member, is_lost in zip(settings.make_members(), lost, strict=True):
        if is_lost:
            found.setdefault(member.source, []).append(member.seed)
    return found


def judge_sources(
    settings: OfflineSettings,
    scores: NDArray[np.float64],
    data: OfflineData,
    found: Mapping[str, Found],
) -> list[SourceScores]:
    """A verdict on every source, in the order of training."""
    sources = np.array([member.source for member in settings.make_members()])
    of_source = {source: scores[sources == source] for source in settings.rewards}
    # Nothing is above a number that is not known.
    best = float(of_source["true"].mean()) if "true" in of_source else np.nan
    behaviour = np.nan if data.behaviour_return is None else data.behaviour_return
    verdicts = []
    for source, values in of_source.items():
        mean = float(values.mean())
        of_true = mean / best if best > 0 else None
        of_gain = (mean - behaviour) / (best - behaviour) if best > behaviour else None
        against = found[source].about.get("against_truth")
        pearson = None if against is None else float(against["pearson"])
        verdicts.append(SourceScores(source, tuple(values.tolist()), of_true, of_gain, pearson))
    return verdicts


@dataclass(frozen=True, eq=False)
class JudgingResult:
    """The results of `judge`, and the place of its files."""

    folder: Path
    verdicts: list[SourceScores]
    """One for each source of rewards; empty if the training was stopped before an evaluation."""
    unsteady: dict[str, list[int]]
    """Seeds of each source whose policy was once much better than it is in the end."""
    evaluations: int
    """Number of evaluations. A score is the mean of the last three."""
    data_mean_return: float | None
    training: TrainingResult


def judge(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    environment: str,
    methods: Sequence[str] = JUDGED,
    fit: str = AUTO,
    observed: bool = True,
    max_bytes: int | None = None,
    columns: Given | None = None,
    returns: Outcomes | None = None,
    device: str = "auto",
    workers: int | None = None,
    observer: Observer = NOBODY,
    command: Sequence[str] = (),
    **settings: Any,
) -> JudgingResult:
    """Decompose with several methods, train policies on the rewards of each, and compare them.

    Policies are also trained on the true rewards, if the data hold them.

    Parameters
    ----------
    source
        Whatever `read` reads.
    out
        The folder of the judgement.
    environment
        The environment in which policies are judged.
    methods
        Names of methods of decomposition.
    fit
        How `grd` is fitted.
    observed
        Whether policies are trained on the delayed rewards as well.
    max_bytes, columns, returns
        As `open_recording` has them.
    device, workers
        As `train_offline` has them.
    observer
        Hears of each method, by its name, of the rewards that it finds, and of the training.
    command
        Is written into the settings of the run.
    **settings
        The fields of `OfflineSettings`, such as `seeds`, `updates` and `algorithm`.

    Returns
    -------
    JudgingResult
        A verdict on every source of rewards.

    Examples
    --------
    >>> result = judge("hc.h5", "hc-judge", environment="HalfCheetah")  # doctest: +SKIP
    >>> [(verdict.source, verdict.mean) for verdict in result.verdicts]  # doctest: +SKIP
    """
    check_names(methods, fit, observer.on_warning)
    chosen, folder = OfflineSettings(tuple(methods), environment, **settings), Path(out)
    OfflineFolder(folder).check_free()
    data = offline.load_checked(
        source, chosen, max_bytes=max_bytes, columns=columns, returns=returns
    )
    with located(file=source):
        check_data(data, methods)
        _warn_of_data(chosen, data, observer.on_warning)
        found = find_references(data)
        if not observed:
            found.pop(OBSERVED, None)
        for method in methods:
            observer.on_start(method)
            found[method] = find_rewards(
                data, method, fit=fit, seed=chosen.seed, device=device,
                pessimism=chosen.pessimism, progress=observer.on_progress,
            )  # fmt: skip
            observer.on_result(method, found[method])
    chosen, scores = replace(chosen, rewards=tuple(found)), Scores()
    about = offline.describe_data(source, data)
    training = offline.train_members(
        chosen, data, {name: one.rewards for name, one in found.items()},
        OfflineFolder(folder / RUN_FOLDER), device=device, workers=workers,
        observer=Observers([scores, observer]), about=about, command=command,
    )  # fmt: skip
    mean, evaluations = data.behaviour_return, len(scores.means)
    if not evaluations:
        return JudgingResult(folder, [], {}, evaluations, mean, training)
    verdicts = judge_sources(chosen, scores.compute(), data, found)
    unsteady, used = find_unsteady(chosen, scores, mean), min(LAST, evaluations)
    contents = {
        "command": list(command),
        "data": about,
        "fit": fit,
        "data_mean_return": mean,
        "score": f"mean of the last {used} evaluations" if used > 1 else "the last evaluation",
        "unsteady_seeds": unsteady,
        "stopped": not training.is_complete,
        "sources": {name: one.about for name, one in found.items()},
        "settings": chosen.to_json(),
        "algorithm": find_title(chosen.algorithm),
        "versions": find_versions(),
    }
    write_judgement(folder, verdicts, contents)
    return JudgingResult(folder, verdicts, unsteady, evaluations, mean, training)


def _warn_of_data(settings: OfflineSettings, data: OfflineData, warn: Warn) -> None:
    offline.warn_of_data(settings, data, warn)
    if TRUE not in data.rewards:
        warn(
            "the data hold no true rewards, so methods are compared by their returns only (collect "
            "--keep-true-rewards stores the true rewards)"
        )
    if horizon := describe_horizon(data, offline.check_environment(settings, data.episodes)):
        warn(horizon)


def describe_horizon(data: OfflineData, limit: int | None) -> str | None:
    """Say that evaluations end after another number of steps than the data; None if they do not.

    This is asked only of data whose episodes were all truncated at the same step.
    """
    lengths = set(data.episodes.lengths.tolist())
    is_truncated = not any(bool(episode.terminations[-1]) for episode in data.episodes)
    if len(lengths) > 1 or not is_truncated or lengths == {limit}:
        return None
    (steps,) = lengths
    return (
        f"the data's episodes have {steps:,} steps, those of evaluations up to {limit:,}: "
        f"--max-episode-steps {steps} makes them alike"
    )
