"""Methods of decomposition, judged by what policies reach that are trained on their rewards.

Every method sees the returns of the same dataset; policies for all of them, for the true rewards
and for the delayed ones are trained side by side, and evaluated by the true return.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grd_offline.errors import DataError
from grd_offline.evaluate import compare_rewards
from grd_offline.files.judgement import OBSERVED, TRUE, Verdict
from grd_offline.methods.choose import choose
from grd_offline.methods.registry import NEXT_STATE, list_fits, list_judged
from grd_offline.offline.data import Array, OfflineData
from grd_offline.offline.settings import OfflineSettings
from grd_offline.runs.observer import Observer
from grd_offline.runs.run import Evaluation, Run
from grd_offline.threads import one_numpy_thread

REFERENCES = (TRUE, OBSERVED)
LAST = 3
"""A score is the mean of so many last evaluations: choosing the best would need the truth."""
STEADY = 2 / 3
"""A seed that ends with less than this share of what it had gained at its best is unsteady."""
Progress = Callable[[str, float], None]


@dataclass(frozen=True, eq=False)
class Found:
    """The rewards of one source, and what is known of them."""

    rewards: Array
    """(steps,)"""
    about: dict[str, Any]
    """Plain values for `judge.json`."""


def check_names(methods: Sequence[str], fit: str) -> None:
    """Refuse what is no method, and none at all."""
    known = list_judged()
    for method in methods:
        if method not in known:
            raise DataError(f"expected one of {', '.join(known)}, got {method!r}", field="methods")
    if not methods or len(set(methods)) < len(methods):
        raise DataError("expected at least one, and none twice", field="methods")
    if fit not in list_fits():
        raise DataError(f"expected one of {', '.join(list_fits())}, got {fit!r}", field="fit")


def check_data(data: OfflineData, methods: Sequence[str]) -> None:
    """Refuse data that a method cannot take, before any time is spent on the others."""
    if "relabelled" in data.rewards:
        raise DataError("are relabelled already: judge the original", field="data")
    complete = all(episode.has_final_observation for episode in data.episodes)
    for method in methods:
        if method.endswith(NEXT_STATE) and not complete:
            raise DataError(
                f"{method}: not every episode holds its last observation", field="methods"
            )


def find_references(data: OfflineData) -> dict[str, Found]:
    """The true rewards, where they are known, and the delayed ones."""
    return {
        name: Found(data.rewards[name], _compare(data, data.rewards[name]))
        for name in REFERENCES
        if name in data.rewards
    }


@one_numpy_thread()
def find_rewards(
    data: OfflineData,
    method: str,
    *,
    fit: str = "auto",
    seed: int = 0,
    device: str = "cpu",
    progress: Progress = lambda stage, share: None,
) -> Found:
    """The rewards that `grd-offline decompose` would write with the same seed."""
    check_data(data, [method])
    start = time.perf_counter()
    with_next = method.endswith(NEXT_STATE)
    settings = {"discount": data.discount, "next_state": with_next, "device": device}
    rng = np.random.default_rng(seed)
    name = method.removesuffix(NEXT_STATE)
    choice = choose(data.episodes, name, fit, settings, rng, progress)
    rewards = np.concatenate(list(choice.decomposer.relabel(data.episodes)))
    judged = next((j.describe() for j in choice.judged if j.fit == choice.fit), {})
    about = {"reason": choice.reason, "fit": choice.fit, **judged}
    seconds = round(time.perf_counter() - start, 2)
    return Found(rewards, {**about, "seconds": seconds, **_compare(data, rewards)})


def _compare(data: OfflineData, rewards: Array) -> dict[str, Any]:
    """Against the truth, on all steps of the data; nothing where it is not known."""
    if "true" not in data.rewards:
        return {}
    stops = np.cumsum(data.episodes.lengths)[:-1]
    both = (np.split(values, stops) for values in (rewards, data.rewards["true"]))
    return {"against_truth": compare_rewards(*both)}


class Scores(Observer):
    """Hears of a run and keeps the mean return of every evaluation."""

    def __init__(self) -> None:
        self.means: list[NDArray[np.float64]] = []
        """(member,) each."""

    def on_evaluation(self, run: Run, evaluation: Evaluation) -> None:
        """Keep the means."""
        if evaluation.returns is not None:
            self.means.append(evaluation.returns.mean(1))

    def compute(self) -> NDArray[np.float64]:
        """(member,) mean of the last few evaluations."""
        mean: NDArray[np.float64] = np.stack(self.means[-LAST:]).mean(0)
        return mean


def find_unsteady(
    settings: OfflineSettings, scores: Scores, behaviour: float | None
) -> dict[str, list[int]]:
    """Seeds of each source whose policy was much better once than it is in the end.

    Gains are counted from the mean return of the data. Offline algorithms lose policies again with
    any rewards, the true ones too: a mean over such seeds says little about the rewards.
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
) -> list[Verdict]:
    """A verdict on every source, in the order of training."""
    members = settings.make_members()
    of_source = {
        source: scores[[member.source == source for member in members]]
        for source in settings.rewards
    }
    best = float(of_source["true"].mean()) if "true" in of_source else None
    behaviour = data.behaviour_return
    gain = None
    if best is not None and behaviour is not None and best > behaviour:
        gain = best - behaviour
    verdicts = []
    for source, values in of_source.items():
        mean = float(values.mean())
        against = found[source].about.get("against_truth")
        verdicts.append(
            Verdict(
                source,
                tuple(values.tolist()),
                None if best is None or best <= 0 else mean / best,
                None if gain is None or behaviour is None else (mean - behaviour) / gain,
                None if against is None else float(against["pearson"]),
            )
        )
    return verdicts
