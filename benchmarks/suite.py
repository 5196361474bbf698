"""The plain default beside simple peers, on everything whose true step rewards are known.

`python benchmarks/quality.py --suite` runs it. A case is one row of the table, one seed and one
method:

- worlds: factored worlds. Fitted to the returns of some episodes, judged on the steps of 50 others.
- families: `families.py`. Fitted to returns and judged on the steps of the same episodes.
- tasks: explore data of MuJoCo and classic control, made by
  `grd-offline collect --env TASK --episodes 200 --keep-true-rewards --out FOLDER/TASK-1.h5`,
  judged as families are. So is any other file that holds its true rewards.

The method `grd` is `grd-offline decompose` without an option, up to its relabelled rewards: its
choice among the fits, tested on held-out returns, and its findings. Seconds are those of the fits,
beside other cases, without reading, dynamics and report. `ridge` is the best linear reward of a
step.

Choices are made on seeds 0 to 99 and on files kept for that. Seeds from 1000 on and other files
are for reports.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from factored_worlds import HELD_OUT, WORLDS, make_episodes
from families import FAMILIES, make_family
from numpy.typing import NDArray

from grd_offline.core.episodes import Episode, EpisodeSet
from grd_offline.core.outcomes import NUMBER
from grd_offline.core.statistics import compare_masks, compute_coverage, pearson
from grd_offline.core.steps import StepBatch
from grd_offline.methods import make_decomposer
from grd_offline.methods.choose import Choice, choose
from grd_offline.methods.settings import DecomposeSettings
from grd_offline.methods.verdict import gather_findings, reach_verdict
from grd_offline.worlds.synthetic import FactoredWorld, WorldSettings

Array = NDArray[np.float64]
METHODS = ("grd", "uniform", "ridge", "rrd", "rrd-unbiased")
WORLD_ROWS = {
    "smooth 200": ("smooth", 200),
    "hard 500": ("hard", 500),
    "three-way 500": ("three-way", 500),
    "noisy 200": ("noisy", 200),
    "wide 1000": ("wide", 1000),
}
TASKS = (
    "HalfCheetah",
    "Hopper",
    "Walker2d",
    "Ant",
    "Swimmer",
    "Reacher",
    "Pusher",
    "InvertedPendulum",
    "InvertedDoublePendulum",
    "Pendulum",
    "MountainCarContinuous",
    "Humanoid",
)
SLOW = ("Humanoid", "Ant", "HalfCheetah", "wide 1000", "success labels", "network of six")
"""Started first, so that no worker has one of them left at the end."""


@dataclass(frozen=True)
class Case:
    """One method on one row with one seed."""

    row: str
    method: str
    seed: int = 0
    file: str | None = None
    """The dataset, for tasks and other files."""
    truth: str = "true_rewards"
    """The field of the file that holds its true rewards."""


@dataclass(frozen=True, eq=False)
class Problem:
    """What a method is fitted to, and what it is judged by."""

    training: EpisodeSet
    judged: EpisodeSet
    true: list[Array]
    """The true rewards of the judged episodes' steps."""
    masks: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None
    """States and actions that the true reward depends on, where known."""
    discount: float = 1.0


def list_cases(
    files: list[Path], only: list[str] | None, seeds: range, methods: list[str], truth: str
) -> list[Case]:
    """All cases that are asked for, the slow ones first."""
    every = [(row, seed, None) for row in (*WORLD_ROWS, *FAMILIES) for seed in seeds]
    every += [(find_task(file) or file.stem, 0, str(file)) for file in find_files(files)]
    known = {row for row, _, _ in every}
    wrong = sorted(set(only or ()) - known)
    if wrong:
        raise SystemExit(f"--only: {', '.join(wrong)}: expected among {', '.join(sorted(known))}")
    cases = [
        Case(row, method, seed, file, truth)
        for method in methods
        for row, seed, file in every
        if only is None or row in only
    ]
    return sorted(cases, key=lambda case: case.row not in SLOW)


def find_files(places: list[Path]) -> list[Path]:
    """The files that are named, and those of a task in the folders that are named."""
    found = []
    for place in places:
        inside = sorted(place.glob("*.h5")) if place.is_dir() else [place]
        found += [file for file in inside if file is place or find_task(file) is not None]
    return found


def find_task(file: Path) -> str | None:
    """The task that a file is named after: `Hopper-1.h5` is Hopper, `HopperX.h5` is none."""
    for task in TASKS:
        rest = file.stem.removeprefix(task)
        if rest != file.stem and not rest[:1].isalpha():
            return task
    return None


def load_problem(case: Case) -> Problem:
    """The data of a case."""
    if case.file is not None:
        return _load_file(case.file, case.truth)
    if case.row in WORLD_ROWS:
        return _make_world(*WORLD_ROWS[case.row], case.seed)
    episodes, true, masks = make_family(case.row, case.seed)
    return Problem(episodes, episodes, true, masks, FAMILIES[case.row].discount)


def _make_world(name: str, episodes: int, seed: int) -> Problem:
    world = FactoredWorld(WorldSettings(graph_seed=seed, **WORLDS[name]))
    rng = np.random.default_rng([seed, episodes])
    training = make_episodes(world.rollout(rng, episodes))
    test = world.rollout(rng, HELD_OUT)
    true = [rewards[:length] for rewards, length in zip(test.rewards, test.lengths, strict=True)]
    masks = world.masks["state_to_reward"], world.masks["action_to_reward"]
    return Problem(training, make_episodes(test), true, masks)


def _load_file(file: str, truth: str) -> Problem:
    from grd_offline.io.datasets import as_episodes, find_delay, open_recording, read_truth

    recording = open_recording(file)
    delay, header = find_delay(recording), recording.header
    episodes = as_episodes(recording, file, delay=delay)
    if delay == "step":
        episodes = episodes.delivered_at_end(header.discount)
    has_field = truth in recording.load(0).extras
    true = read_truth(file, "rewards" if delay == "step" and not has_field else truth)
    masks = header.truth.get("masks")
    known = None
    if masks:
        names = ("state_to_reward", "action_to_reward")
        states, actions = (np.asarray(masks[name], np.int64) for name in names)
        known = states, actions
    return Problem(episodes, episodes, true, known, header.discount)


def judge(case: Case) -> dict[str, Any]:
    """The figures of one case; `error` instead of them where it failed."""
    result = {**asdict(case)}
    try:
        problem = load_problem(case)
        start = time.perf_counter()
        if case.method == "grd":
            predicted, more = _judge_default(problem, start)
        else:
            predicted, more = _fit_peer(case.method, problem), {}
            more["seconds"] = time.perf_counter() - start
    except Exception as error:  # a row that fails must not end the others
        return result | {"error": f"{type(error).__name__}: {error}"}
    centred = [[part - part.mean() for part in parts] for parts in (predicted, problem.true)]
    return {
        **result,
        "episodes": len(problem.training),
        "steps": problem.training.total_steps,
        "pearson": pearson(np.concatenate(predicted), np.concatenate(problem.true)),
        "within": pearson(*(np.concatenate(parts) for parts in centred)),
        **more,
    }


def _judge_default(problem: Problem, start: float) -> tuple[list[Array], dict[str, Any]]:
    """Rewards of the plain default, and all that it says of itself."""
    settings, rng = DecomposeSettings(), np.random.default_rng(0)
    choice = choose(problem.training, settings, problem.discount, rng, lambda stage, share: None)
    described = choice.winner.describe() if choice.winner is not None else None
    findings, numbers = gather_findings(choice.decomposer, problem.training, described)
    seconds = time.perf_counter() - start
    both = [_predict(choice, episode) for episode in problem.judged]
    rewards, std = [mean for mean, _ in both], np.concatenate([std for _, std in both])
    predicted, truth = np.concatenate(rewards), np.concatenate(problem.true)
    if choice.decomposer.function_.outcome != NUMBER:  # log-odds have no unit in common with it
        slope, level = np.polyfit(predicted, truth, 1)
        predicted, std = slope * predicted + level, abs(slope) * std
    result: dict[str, Any] = {
        "seconds": seconds,
        "step_coverage": compute_coverage(predicted, std, truth),
        "band": 1.645 * float(std.mean()) / float(truth.std() or 1.0),
        "fit": choice.fit,
        "reason": choice.reason,
        "verdict": reach_verdict(findings)._asdict(),
        "findings": [finding._asdict() for finding in findings],
        "conditions": numbers.get("conditions", []),
    }
    fitted = getattr(choice.decomposer, "fit_", None)
    if fitted is not None:
        result |= {"moment": fitted.state_at, "moments": dict(fitted.moments)}
    if described is not None:
        result["return_coverage"] = described["held_out_return_coverage_90"]
        result["return_r2"] = described["held_out_return_r2"]
    found = choice.decomposer.masks_
    if found is not None and problem.masks is not None:
        for name, mask in zip(("state_to_reward", "action_to_reward"), problem.masks, strict=True):
            result[f"f1_{name}"] = compare_masks(found[name], mask)["f1"]
    return rewards, result


def _predict(choice: Choice, episode: Episode) -> tuple[Array, Array]:
    """Rewards and their standard deviations, as `decompose` writes them."""
    function = choice.decomposer.function_
    if not function.knows_std:
        rewards = choice.decomposer.relabel_episode(episode)
        return rewards, np.full(len(rewards), choice.step_std)
    rewards, std = function.predict_both(StepBatch.from_episode(episode))
    assert std is not None
    return rewards, std


def _fit_peer(method: str, problem: Problem) -> list[Array]:
    if method == "ridge":
        return fit_ridge(problem.training, problem.judged, problem.discount)
    name, _, fit = method.partition(":")
    decomposer = make_decomposer(name, fit or None, discount=problem.discount)
    decomposer.fit(problem.training, rng=np.random.default_rng(0))
    return list(decomposer.relabel(problem.judged))


def fit_ridge(training: EpisodeSet, judged: EpisodeSet, discount: float = 1.0) -> list[Array]:
    """The reward of a step as a linear function of state and action, from sums over episodes.

    Returns are regressed on the sums of states and actions and on the lengths, each scaled to unit
    variance. The penalty is the one of 49 with the least leave-one-out error, as scikit-learn's
    `RidgeCV` chooses it.
    """
    sums = np.array([_weigh(episode, discount) @ _list_inputs(episode) for episode in training])
    centre, scale = sums.mean(0), sums.std(0)
    scale[scale < 1e-9 * (1 + np.abs(centre))] = np.inf
    returns = training.compute_returns(discount)
    left, sizes, right = np.linalg.svd((sums - centre) / scale, full_matrices=False)
    target = returns - returns.mean()
    best, least = np.zeros(sums.shape[1]), np.inf
    for penalty in np.logspace(-6, 6, 49):
        shrunk = sizes**2 / (sizes**2 + penalty)
        kept = 1 - 1 / len(sums) - (left**2 @ shrunk)
        error = float((((target - left @ (shrunk * (left.T @ target))) / kept) ** 2).mean())
        if error < least:
            least = error
            best = right.T @ (sizes / (sizes**2 + penalty) * (left.T @ target))
    return [_list_inputs(episode) @ (best / scale) for episode in judged]


def _list_inputs(episode: Episode) -> Array:
    """(T, state + action + 1) inputs of the linear reward; the last column sums to the length."""
    observations = episode.observations[: len(episode)]
    return np.column_stack([observations, episode.actions, np.ones(len(episode))]).astype(float)


def _weigh(episode: Episode, discount: float) -> Array:
    return np.asarray(discount ** np.arange(len(episode)), np.float64)
