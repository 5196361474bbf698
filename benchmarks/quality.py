"""How good each method is where the truth is known: factored worlds, and MuJoCo recipes.

    python benchmarks/quality.py --worlds smooth hard --episodes 200 500 --seeds 1000:1012
    python benchmarks/quality.py --full --workers 16 --device cuda --json full.json
    python benchmarks/quality.py --data halfcheetah-explore.h5 --methods grd:closed-form rrd

Set OMP_NUM_THREADS=1 with several workers. On a world, a method is fitted to the returns of some
episodes and judged on the steps of others. On a file, it is fitted to all that the file delivers
and judged by the true rewards of the same steps, which the file has to hold under `--truth`.
Prints one table; `--json` keeps every single figure. Needs numpy, torch and safetensors alone,
but h5py for files.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

from grd_offline.episodes import Episode, EpisodeSet
from grd_offline.evaluate import NORMAL_90, affine_error, compare_masks, pearson, r_squared
from grd_offline.graph import compact_closure
from grd_offline.methods import Decomposer, make_decomposer
from grd_offline.synthetic import FactoredWorld, WorldSettings

WORLDS = {
    "smooth": {},
    "hard": {"family": "hard"},
    "noisy": {"reward_noise": 1.0},
    "three-way": {"order": 3},
    "hard three-way": {"family": "hard", "order": 3},
    "wide": {"states": 100, "actions": 10, "reward_states": 5, "reward_actions": 2, "indirect": 5},
}
METHODS = (
    "grd:closed-form",
    "grd:pair-net",
    "grd:paper",
    "rrd",
    "rrd-unbiased",
    "ircr",
    "uniform",
)
FULL = {"worlds": ["smooth", "hard"], "episodes": [100, 200, 500, 1000], "methods": METHODS}
"""What `--full` stands for."""
HELD_OUT = 50
"""Further episodes, which no fit sees."""


def make_episodes(rollout) -> EpisodeSet:
    episodes = []
    for observations, actions, rewards, length in zip(
        rollout.observations, rollout.actions, rollout.rewards, rollout.lengths, strict=True
    ):
        last = np.arange(length) == length - 1
        episodes.append(
            Episode(
                observations=observations[: length + 1],
                actions=actions[:length],
                rewards=last * rewards[:length].sum(),
                terminations=np.zeros(length, np.bool_),
                truncations=last,
                delivered=last,
            )
        )
    return EpisodeSet.from_episodes(episodes)


def judge(case: dict) -> dict:
    """One method on one world."""
    settings = WorldSettings(graph_seed=case["seed"], **WORLDS[case["world"]])
    world = FactoredWorld(settings)
    rng = np.random.default_rng([case["seed"], case["episodes"]])
    training = make_episodes(world.rollout(rng, case["episodes"]))
    test = world.rollout(rng, HELD_OUT)
    decomposer, seconds = fit_method(case, training)
    observations = test.observations[:, :-1].reshape(-1, settings.states)
    actions = test.actions.reshape(-1, settings.actions)
    following = test.observations[:, 1:].reshape(-1, settings.states)
    terminations = np.zeros(len(actions), np.bool_)  # these worlds have no end of their own
    steps = (observations, actions, following, terminations)
    if case["method"] in ("uniform", "ircr"):
        predicted = np.concatenate(list(decomposer.relabel(make_episodes(test))))
    else:
        predicted = decomposer.predict(*steps)
    noisy, clean = test.rewards.reshape(-1), test.noise_free_rewards.reshape(-1)
    result = {
        **case,
        "pearson": pearson(predicted, noisy),
        "pearson_noise_free": pearson(predicted, clean),
        "error": affine_error(predicted, noisy),
        "seconds": seconds,
        "peak_mb": measure_memory(),
    }
    masks = decomposer.masks_ or {}
    for name, found in masks.items():
        result[f"f1_{name}"] = compare_masks(found, world.masks[name])["f1"]
    if decomposer.function_.knows_std:
        std = decomposer.function_.predict_std(*steps)
        result["coverage"] = float((np.abs(predicted - noisy) <= NORMAL_90 * std).mean())
        if case["dynamics"]:
            result |= judge_dynamics(training, world, masks["state_to_reward"])
    return result


def fit_method(case: dict, episodes: EpisodeSet) -> tuple[Decomposer, float]:
    """The case's method, fitted, and the seconds that took."""
    method, _, fit = case["method"].partition(":")
    decomposer = make_decomposer(method, fit or "closed-form", device=case["device"])
    start = time.perf_counter()
    decomposer.fit(episodes, rng=np.random.default_rng(0))
    return decomposer, time.perf_counter() - start


def measure_memory() -> float:
    """Megabytes that this process took at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def judge_file(case: dict) -> dict:
    """One method on one file."""
    from grd_offline import read, read_truth

    data = read(case["data"])
    loaded = list(data)
    true = [np.asarray(rewards, float) for rewards in read_truth(case["data"], case["truth"])]
    episodes = EpisodeSet.from_episodes(loaded)
    decomposer, seconds = fit_method(case, episodes)
    predicted = list(decomposer.relabel(episodes))
    result = {
        **case,
        "world": Path(case["data"]).stem,
        "episodes": len(loaded),
        "pearson": pearson(np.concatenate(predicted), np.concatenate(true)),
        "error": affine_error(np.concatenate(predicted), np.concatenate(true)),
        "return_r2": r_squared(
            np.array([rewards.sum() for rewards in predicted]),
            np.array([rewards.sum() for rewards in true]),
        ),
        "seconds": seconds,
        "peak_mb": measure_memory(),
    }
    if decomposer.masks_ is not None:
        for name, known in (
            ("state_to_reward", data.observation_names),
            ("action_to_reward", data.action_names),
        ):
            mask = decomposer.masks_[name]
            result[name] = [n for n, on in zip(known, mask, strict=True) if on]
    return result


def judge_dynamics(training: EpisodeSet, world: FactoredWorld, to_reward) -> dict:
    from grd_offline.dynamics.search import fit_dynamics

    start = time.perf_counter()
    found = fit_dynamics(training, rng=np.random.default_rng(0))
    result = {"dynamics_seconds": time.perf_counter() - start}
    for name in ("state_to_state", "action_to_state"):
        result[f"f1_{name}"] = compare_masks(getattr(found, name), world.masks[name])["f1"]
    true = compact_closure(world.masks["state_to_reward"], world.masks["state_to_state"])
    closure = compact_closure(to_reward, found.state_to_state)
    return result | {"f1_closure": compare_masks(closure, true)["f1"]}


COLUMNS = {
    "pearson": "Pearson",
    "pearson_noise_free": "noise-free",
    "error": "error",
    "return_r2": "returns R2",
    "f1_state_to_reward": "F1 s>r",
    "f1_action_to_reward": "F1 a>r",
    "f1_state_to_state": "F1 s>s",
    "f1_action_to_state": "F1 a>s",
    "f1_closure": "closure",
    "coverage": "cover",
    "seconds": "s",
    "dynamics_seconds": "s dyn",
    "peak_mb": "MB",
}


def show(results: list[dict]) -> None:
    """Means over seeds; below the correlation, the worst seed."""
    print(f"{'world':15}{'episodes':>9} {'method':18}{'n':>3} {'worst':>7}", end="")
    print("".join(f"{title:>11}" for title in COLUMNS.values()))
    groups: dict[tuple, list[dict]] = {}
    for result in results:
        key = result["world"], result["episodes"], result["method"]
        groups.setdefault(key, []).append(result)
    for (world, episodes, method), rows in groups.items():
        worst = min(row["pearson"] for row in rows)
        print(f"{world:15}{episodes:9} {method:18}{len(rows):3} {worst:7.4f}", end="")
        for column in COLUMNS:
            values = [row[column] for row in rows if column in row]
            print(f"{np.mean(values):11.4f}" if values else f"{'':11}", end="")
        print()
    for row in results:
        if "state_to_reward" in row:
            inputs = ", ".join(row["state_to_reward"] + row["action_to_reward"])
            print(f"{row['world']}, {row['method']}: the reward depends on {inputs or 'nothing'}")


def make_cases(options: argparse.Namespace) -> list[dict]:
    """Every combination that is asked for."""
    shared = {"device": options.device}
    if options.data:
        return [
            {**shared, "data": str(file), "truth": options.truth, "method": method}
            for file in options.data
            for method in options.methods
        ]
    return [
        {**shared, "world": w, "episodes": e, "method": m, "seed": s, "dynamics": options.dynamics}
        for w in options.worlds
        for e in options.episodes
        for m in options.methods
        for s in options.seeds
    ]


def parse_seeds(text: str) -> range:
    first, _, last = text.partition(":")
    return range(int(first), int(last or int(first) + 1))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--worlds", nargs="+", choices=WORLDS, default=["smooth", "hard"])
    parser.add_argument("--episodes", nargs="+", type=int, default=[200])
    parser.add_argument("--methods", nargs="+", default=["grd:closed-form"])
    parser.add_argument("--seeds", type=parse_seeds, default=range(1000, 1012))
    parser.add_argument("--full", action="store_true", help="all methods, 100 to 1000 episodes")
    parser.add_argument("--data", nargs="+", type=Path, help="files instead of worlds")
    parser.add_argument("--truth", default="true_rewards", help="their field of true rewards")
    parser.add_argument("--dynamics", action="store_true", help="judge the dynamics masks too")
    parser.add_argument("--device", default="cpu", help="where networks are trained")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.full:
        vars(options).update(FULL)
    work = judge_file if options.data else judge
    cases = make_cases(options)
    if options.workers == 1:
        results = [work(case) for case in cases]
    else:
        # A forked process cannot use CUDA once its parent has.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(options.workers, mp_context=context) as pool:
            results = list(pool.map(work, cases))
    show(results)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
