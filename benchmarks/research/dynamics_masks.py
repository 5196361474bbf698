"""How well the masks of the dynamics are found, on worlds whose graph is known.

OMP_NUM_THREADS=1 .venv/bin/python benchmarks/research/dynamics_masks.py --seeds 0:10
"""

import argparse
import resource
import time

import numpy as np

from grd_offline.additive.dynamics import DynamicsFit, DynamicsSettings, fit_dynamics
from grd_offline.core.episodes import Episode, EpisodeSet
from grd_offline.core.graph import compact_closure
from grd_offline.worlds.synthetic import FactoredWorld, WorldSettings


def make_episodes(world: FactoredWorld, count: int, seed: int) -> EpisodeSet:
    """Episodes under random actions with one delivery each."""
    rollout = world.rollout(np.random.default_rng(seed), count)
    episodes = []
    for index, length in enumerate(rollout.lengths):
        ends = np.arange(length) == length - 1
        rewards = np.where(ends, rollout.rewards[index, :length].sum(), 0.0)
        episodes.append(
            Episode(
                rollout.observations[index, : length + 1],
                rollout.actions[index, :length],
                rewards,
                np.zeros(length, bool),
                ends,
                ends,
            )
        )
    return EpisodeSet.from_episodes(episodes)


def f1(found: np.ndarray, true: np.ndarray) -> float:
    hits = int(((found == 1) & (true == 1)).sum())
    total = int((found == 1).sum() + (true == 1).sum())
    return 2 * hits / total if total else 1.0


def name(world: FactoredWorld, column: int) -> str:
    states = world.settings.states
    return f"s{column}" if column < states else f"a{column - states}"


def show_errors(world: FactoredWorld, fit: DynamicsFit) -> None:
    true = np.concatenate([world.masks["state_to_state"], world.masks["action_to_state"]])
    found = np.concatenate([fit.model.state_to_state, fit.model.action_to_state])
    score = np.concatenate([fit.state_score, fit.action_score])
    for column, state in np.argwhere(true != found):
        kind = "missed" if true[column, state] else "false "
        terms = [
            (t.shape, tuple(name(world, i) for i in t.inputs))
            for t, s in zip(world._dynamics_table.terms, world._dynamics_targets, strict=True)
            if s == state
        ]
        print(f"    {kind} {name(world, column)} -> s{state} {score[column, state]:.4f} {terms}")
    kept = score[(true == 1) & (found == 1)]
    print(f"    weakest true {kept.min():.4f}  strongest other {score[true == 0].max():.4f}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", default="0:10")
    parser.add_argument("--families", default="smooth,hard")
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--wide", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--set", action="append", default=[], help="name=value of DynamicsSettings")
    parser.add_argument("--world", action="append", default=[], help="name=value of WorldSettings")
    args = parser.parse_args()
    changes = dict(pair.split("=") for pair in args.set)
    settings = DynamicsSettings(
        **{
            k: float(v) if k in ("min_gain", "min_share", "penalty") else int(v)
            for k, v in changes.items()
        }
    )
    first, last = (int(part) for part in args.seeds.split(":"))
    wide = {"states": 100, "actions": 10, "reward_states": 5, "reward_actions": 2, "indirect": 5}
    for family in args.families.split(","):
        table = []
        for seed in range(first, last):
            sizes = dict(wide) if args.wide else {}
            for key, value in (pair.split("=") for pair in args.world):
                sizes[key] = float(value) if "." in value else int(value)
            world = FactoredWorld(WorldSettings(family=family, graph_seed=seed, **sizes))
            episodes = make_episodes(world, args.episodes, 1000 + seed)
            marks: dict[str, float] = {}
            start = time.process_time()
            fit = fit_dynamics(
                episodes,
                settings,
                np.random.default_rng(seed),
                lambda stage, part, marks=marks: marks.update({stage: time.process_time()}),
            )
            seconds = time.process_time() - start
            reward = world.masks["state_to_reward"]
            row = (
                f1(fit.model.state_to_state, world.masks["state_to_state"]),
                f1(fit.model.action_to_state, world.masks["action_to_state"]),
                f1(
                    compact_closure(reward, fit.model.state_to_state),
                    compact_closure(reward, world.masks["state_to_state"]),
                ),
                seconds,
                marks["dynamics graph"] - start,
                float(np.mean(fit.model.metrics["held_out_r2"])),
            )
            table.append(row)
            if args.verbose or args.wide:
                print(f"  {family} {seed}: " + " ".join(f"{value:.3f}" for value in row))
            if args.verbose:
                show_errors(world, fit)
        means, worst = np.mean(table, axis=0), np.min(table, axis=0)
        print(
            f"{family}: F1 states {means[0]:.4f} (worst {worst[0]:.3f}) actions {means[1]:.4f} "
            f"({worst[1]:.3f}) closure {means[2]:.4f} ({worst[2]:.3f}); {means[3]:.2f} s, of which "
            f"graph {means[4]:.2f}; R2 {means[5]:.4f}; "
            f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB",
            flush=True,
        )


if __name__ == "__main__":
    main()
