"""How `pair-net` does on factored worlds with a known graph.

    .venv/bin/python benchmarks/research/pair_net_worlds.py --seeds 0:4 [--set edge_price=.002 ...]

400 episodes to fit, 100 held out; Pearson with the noisy and the noise-free step reward of the
held-out ones, F1 of the four masks, seconds.
"""

from __future__ import annotations

import argparse
import ast
import time

import numpy as np
import torch

from grd_offline.core.episodes import Episode, EpisodeSet
from grd_offline.methods.pair_net import PairNet
from grd_offline.worlds.synthetic import FactoredWorld, Rollout, WorldSettings


def as_episodes(rollout: Rollout, every: int | None = None) -> EpisodeSet:
    """Episodes with their return at the end, or a delivery every so many steps."""
    episodes = []
    for index, steps in enumerate(rollout.lengths):
        delivered = np.zeros(steps, bool)
        delivered[-1] = True
        if every is not None:
            delivered[every - 1 :: every] = True
        sums = np.diff(np.cumsum(rollout.rewards[index, :steps])[delivered], prepend=0.0)
        rewards = np.zeros(steps)
        rewards[delivered] = sums
        ends = np.arange(steps) == steps - 1
        observations = rollout.observations[index, : steps + 1]
        actions = rollout.actions[index, :steps]
        episodes.append(
            Episode(observations, actions, rewards, np.zeros(steps, bool), ends, delivered)
        )
    return EpisodeSet.from_episodes(episodes)


def f1(found: np.ndarray, true: np.ndarray) -> float:
    both = (found * true).sum()
    return float(2 * both / max(1, found.sum() + true.sum()))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", default="0:4")
    parser.add_argument("--set", nargs="*", default=[])
    parser.add_argument("--world", nargs="*", default=[])
    parser.add_argument("--episodes", type=int, default=500)
    parser.add_argument("--every", type=int)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    first, last = (int(part) for part in options.seeds.split(":"))
    changed = {k: ast.literal_eval(v) for k, v in (item.split("=") for item in options.set)}
    kind = {k: ast.literal_eval(v) for k, v in (item.split("=") for item in options.world)}
    lines = []
    for seed in range(first, last):
        world = FactoredWorld(WorldSettings(graph_seed=seed, **kind))
        rollout = world.rollout(np.random.default_rng(1000 + seed), options.episodes)
        cut = options.episodes * 4 // 5
        training = Rollout(*(part[:cut] for part in rollout))
        test = Rollout(*(part[cut:] for part in rollout))
        begun = time.process_time()
        model = PairNet(**changed)
        model.fit(as_episodes(training, options.every), rng=np.random.default_rng(seed))
        seconds = time.process_time() - begun
        valid = test.valid
        found = model.predict(test.observations[:, :-1][valid], test.actions[valid])
        line = [
            np.corrcoef(found, test.rewards[valid])[0, 1],
            np.corrcoef(found, test.noise_free_rewards[valid])[0, 1],
            *(f1(model.masks_[name], world.masks[name]) for name in world.masks),
            model.held_out_r2_,
            seconds,
        ]
        lines.append(line)
        wrong = {
            name: np.flatnonzero(model.masks_[name] != world.masks[name]).tolist()
            for name in ("state_to_reward", "action_to_reward")
        }
        print(seed, " ".join(f"{value:.4f}" for value in line), wrong, flush=True)
    print("mean", " ".join(f"{value:.4f}" for value in np.mean(lines, 0)), flush=True)
    print("min ", " ".join(f"{value:.4f}" for value in np.min(lines, 0)), flush=True)


if __name__ == "__main__":
    main()
