"""How good each method is where the truth is known: factored worlds, and MuJoCo recipes.

    python benchmarks/quality.py --worlds smooth hard --episodes 200 500 --seeds 1000:1012
    python benchmarks/quality.py --full --workers 16 --device cuda --json full.json
    python benchmarks/quality.py --data halfcheetah-explore.h5 --methods grd:closed-form rrd
    python benchmarks/quality.py --suite --data FOLDER --workers 16 --json suite.jsonl

Set OMP_NUM_THREADS=1 with several workers; `--suite` does so itself. On a world, a method is fitted
to the returns of some episodes and judged on the steps of others. On a file, it is fitted to all
that the file delivers and judged by the true rewards of the same steps, which the file has to hold
under `--truth`.
Prints one table; `--json` keeps every single figure. Needs numpy, torch and safetensors alone,
but h5py for files.

`--suite` runs the plain default beside simple peers on worlds, families of worlds (`families.py`)
and the files of `--data`, and marks the rows that miss a bar: see `suite.py`. `--data` takes
folders with files named after a task, such as `Hopper-1.h5`, and any other file with true rewards.
Choose on seeds 0 to 99 and report on seeds from 1000 on. `--json` gets a line as soon as a case is
done; `--resume` leaves out what the file has.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import numpy as np
from factored_worlds import HELD_OUT, WORLDS, make_episodes

from grd_offline.core.episodes import EpisodeSet
from grd_offline.core.graph import compact_closure
from grd_offline.core.statistics import NORMAL_90, affine_error, compare_masks, pearson, r_squared
from grd_offline.core.steps import StepBatch
from grd_offline.methods import make_decomposer
from grd_offline.methods.contract import Decomposer
from grd_offline.worlds.synthetic import FactoredWorld, WorldSettings

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
        std = decomposer.function_.predict_std(StepBatch(*steps))
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
    from grd_offline.additive.dynamics import fit_dynamics

    start = time.perf_counter()
    found = fit_dynamics(training, rng=np.random.default_rng(0))
    result = {"dynamics_seconds": time.perf_counter() - start}
    for name in ("state_to_state", "action_to_state"):
        result[f"f1_{name}"] = compare_masks(getattr(found.model, name), world.masks[name])["f1"]
    true = compact_closure(world.masks["state_to_reward"], world.masks["state_to_state"])
    closure = compact_closure(to_reward, found.model.state_to_state)
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


def run_suite(options: argparse.Namespace) -> None:
    """Run the cases of the suite, keep each result as it comes, and print the table."""
    import suite
    from suite_table import make_table

    seeds, methods = options.seeds or range(1000, 1003), options.methods or list(suite.METHODS)
    cases = suite.list_cases(options.data or [], options.only, seeds, methods, options.truth)
    results: list[dict] = []
    if options.resume and options.json is not None and options.json.exists():
        kept = [json.loads(line) for line in options.json.read_text().splitlines()]
        results = [result for result in kept if "error" not in result]
    done = {(r["row"], r["method"], r["seed"], r["file"]) for r in results}
    cases = [case for case in cases if (case.row, case.method, case.seed, case.file) not in done]
    # Workers are started afresh, so that numpy and torch read this before they start threads.
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.workers, mp_context=context) as pool:
        started = {pool.submit(suite.judge, case): case for case in cases}
        for future in as_completed(started):
            failure = future.exception()  # a worker that was killed
            known = vars(started[future]) | {"error": repr(failure)}
            results.append(future.result() if failure is None else known)
            if options.json is not None:
                with options.json.open("a") as file:
                    file.write(json.dumps(results[-1]) + "\n")
    print(make_table(results))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--worlds", nargs="+", choices=WORLDS, default=["smooth", "hard"])
    parser.add_argument("--episodes", nargs="+", type=int, default=[200])
    parser.add_argument("--methods", nargs="+", help="METHOD or METHOD:FIT")
    parser.add_argument("--seeds", type=parse_seeds, help="FIRST:END")
    parser.add_argument("--full", action="store_true", help="all methods, 100 to 1000 episodes")
    parser.add_argument("--data", nargs="+", type=Path, help="files instead of worlds")
    parser.add_argument("--truth", default="true_rewards", help="their field of true rewards")
    parser.add_argument("--dynamics", action="store_true", help="judge the dynamics masks too")
    parser.add_argument("--device", default="cpu", help="where networks are trained")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--suite", action="store_true", help="the default beside simple peers")
    parser.add_argument("--only", nargs="+", metavar="ROW", help="these rows of the suite alone")
    parser.add_argument("--resume", action="store_true", help="keep the rows that --json has")
    options = parser.parse_args()
    if options.suite:
        return run_suite(options)
    options.methods = options.methods or ["grd:closed-form"]
    options.seeds = options.seeds or range(1000, 1012)
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
