"""Small trials of offline training on a CPU: small networks, a few sources, two seeds.

python benchmarks/research/offline_trials.py data.h5 Pendulum-v1 --algorithm iql --updates 20000
"""

from __future__ import annotations

import argparse

import torch

from grd_offline.lab.judge import Scores, find_references, find_rewards, judge_sources
from grd_offline.learning.agents.algorithms import list_offline
from grd_offline.learning.offline.run import OfflineRun, load_data
from grd_offline.learning.settings import OfflineSettings


class Printer(Scores):
    def on_result(self, work, result):
        super().on_result(work, result)
        means = result.returns.mean(1)
        told = (f"{m.name} {mean:.0f}" for m, mean in zip(work.members, means, strict=True))
        print(result.step, ", ".join(told), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file")
    parser.add_argument("environment")
    parser.add_argument("--algorithm", choices=list_offline(), default="iql")
    parser.add_argument("--methods", nargs="*", default=["grd", "uniform", "rrd"])
    parser.add_argument("--updates", type=int, default=8000)
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = load_data(options.file)
    found = find_references(data)
    found |= {method: find_rewards(data, method, seed=100) for method in options.methods}
    settings = OfflineSettings(
        tuple(found),
        options.environment,
        options.algorithm,
        seeds=options.seeds,
        seed=100,
        updates=options.updates,
        hidden=(64, 64),
        learning_rate=1e-3,
        eval_every=options.updates // 8,
        eval_episodes=20,
    )
    scores = Printer()
    rewards = {name: one.rewards for name, one in found.items()}
    with OfflineRun(settings, data.episodes, rewards, workers=0, observer=scores) as run:
        run.train()
    print(f"data {data.behaviour_return:.0f}")
    for verdict in judge_sources(settings, scores.compute(), data, found):
        print(f"{verdict.source:10} {verdict.mean:8.0f} ± {verdict.spread:.0f}", verdict.pearson)


if __name__ == "__main__":
    main()
