"""Is a mean of the actor's last steps a better policy than the last one?

    python benchmarks/research/offline_averages.py medium.h5 HalfCheetah-v5 --algorithm iql \
        --seeds 20 --device cuda --workers 16

Trains on the true rewards; every evaluation tries several means of each actor's weights: over
a share of its steps so far (the weight of step k of n is about (k / n) ** (1 / share)).
"""

from __future__ import annotations

import argparse

import numpy as np
import torch

from grd_offline.learning.agents.agent import Agent
from grd_offline.learning.agents.algorithms import list_offline
from grd_offline.learning.offline.run import OfflineRun, load_data
from grd_offline.learning.settings import OfflineSettings

SHARES = (0.0, 0.01, 0.02, 0.05)
EVERY = 10
"""Updates between two looks at the actor."""


class Averages:
    def __init__(self, agent: Agent) -> None:
        self.actor, self.acting = agent.adams["actor"].flat.values, agent.averages.values
        self.means = {share: self.actor.clone() for share in SHARES}

    def follow(self, update: int) -> None:
        for share, mean in self.means.items():
            mean.lerp_(self.actor, min(1.0, EVERY / max(share * update, EVERY)))

    def evaluate(self, run: OfflineRun) -> dict[float, np.ndarray]:
        """(member, episode) returns of each."""
        found = {}
        for share, mean in self.means.items():
            self.acting.copy_(mean)
            run.fleet.start_evaluation(
                run.step, run.learner.export_actors(), run.settings.eval_episodes
            )
            found[share] = run.fleet.finish_evaluation().returns
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file")
    parser.add_argument("environment")
    parser.add_argument("--algorithm", choices=list_offline(), default="iql")
    parser.add_argument("--updates", type=int, default=100_000)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--alpha", type=float, default=2.5, help="Of td3bc.")
    parser.add_argument("--eval-every", type=int, default=20_000)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workers", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = load_data(options.file)
    settings = OfflineSettings(
        ("true",), options.environment, options.algorithm, seeds=options.seeds,
        seed=options.seed, updates=options.updates, alpha=options.alpha,
        eval_every=options.eval_every,
    )  # fmt: skip
    with OfflineRun(
        settings,
        data.episodes,
        {"true": data.find("true")},
        workers=options.workers,
        device=options.device,
    ) as run:
        averages = Averages(run.learner.agent)
        while run.step < options.updates:
            run.learner.run_updates(EVERY)
            averages.follow(run.step)
            if run.step % settings.eval_every == 0:
                for share, returns in averages.evaluate(run).items():
                    means = returns.mean(1)
                    stuck = (returns < np.median(returns) / 2).mean()
                    print(
                        f"{run.step:7,} updates, mean over {share:4.0%} of the steps: "
                        f"{means.mean():7.0f} ± {means.std():5.0f}, "
                        f"{stuck:4.0%} of the episodes stuck",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
