"""How good each method is where the truth is known: factored worlds, and MuJoCo recipes.

    python benchmarks/quality.py --worlds smooth hard --episodes 200 500 --seeds 1000:1012
    python benchmarks/quality.py --data halfcheetah-explore.h5 --methods grd:closed-form rrd

Set OMP_NUM_THREADS=1 with several workers. A method is fitted to the returns of some episodes,
and judged on the steps of others. Prints one table; `--json` keeps every single figure.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

from grd_offline.decompose import make_decomposer
from grd_offline.effects import EffectModel
from grd_offline.episodes import Episode, EpisodeSet
from grd_offline.evaluate import NORMAL_90, affine_error, compare_masks, pearson
from grd_offline.graph import compact_closure
from grd_offline.synthetic import FactoredWorld, WorldSettings

WORLDS = {
    "smooth": {},
    "hard": {"family": "hard"},
    "noisy": {"reward_noise": 1.0},
    "three-way": {"order": 3},
    "hard three-way": {"family": "hard", "order": 3},
    "wide": {"states": 100, "actions": 10, "reward_states": 5, "reward_actions": 2, "indirect": 5},
}
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
    method, _, fit = case["method"].partition(":")
    decomposer = make_decomposer(method, fit or "closed-form")
    start = time.perf_counter()
    decomposer.fit(training, rng=np.random.default_rng(0))
    seconds = time.perf_counter() - start
    observations = test.observations[:, :-1].reshape(-1, settings.states)
    actions = test.actions.reshape(-1, settings.actions)
    following = test.observations[:, 1:].reshape(-1, settings.states)
    if method in ("uniform", "ircr"):
        predicted = np.concatenate(list(decomposer.relabel(make_episodes(test))))
    else:
        predicted = decomposer.predict(observations, actions, following)
    noisy, clean = test.rewards.reshape(-1), test.noise_free_rewards.reshape(-1)
    result = {
        **case,
        "pearson": pearson(predicted, noisy),
        "pearson_noise_free": pearson(predicted, clean),
        "error": affine_error(predicted, noisy),
        "seconds": seconds,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    masks = decomposer.masks_ or {}
    for name, found in masks.items():
        result[f"f1_{name}"] = compare_masks(found, world.masks[name])["f1"]
    if isinstance(decomposer.function_, EffectModel):
        std = decomposer.function_.predict_std(observations, actions)
        result["coverage"] = float((np.abs(predicted - noisy) <= NORMAL_90 * std).mean())
        if case["dynamics"]:
            result |= judge_dynamics(training, world, masks["state_to_reward"])
    return result


def judge_dynamics(training: EpisodeSet, world: FactoredWorld, to_reward) -> dict:
    from grd_offline.decompose.dynamics import fit_dynamics

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
    parser.add_argument("--dynamics", action="store_true", help="judge the dynamics masks too")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    cases = [
        {"world": w, "episodes": e, "method": m, "seed": s, "dynamics": options.dynamics}
        for w in options.worlds
        for e in options.episodes
        for m in options.methods
        for s in options.seeds
    ]
    if options.workers == 1:
        results = [judge(case) for case in cases]
    else:
        with ProcessPoolExecutor(options.workers) as pool:
            results = list(pool.map(judge, cases))
    show(results)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
