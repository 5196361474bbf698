"""Mean return of uniformly random actions, the zero of normalised scores.

python benchmarks/random_returns.py

The results are in `grd_offline/comparison/compare.py`.
"""

from __future__ import annotations

import argparse

import gymnasium
import numpy as np

import grd_offline.worlds.environments  # noqa: F401

TASKS = (
    *("Ant-v5", "HalfCheetah-v5", "Hopper-v5", "Humanoid-v5", "HumanoidStandup-v5", "Reacher-v5"),
    *("Swimmer-v5", "Walker2d-v5", "grd/PaddedAnt-v0", "CartPole-v1", "Acrobot-v1"),
)


def measure(task: str, episodes: int) -> tuple[float, float]:
    """The mean return, and the standard error of this mean."""
    environment = gymnasium.make(task)
    environment.action_space.seed(0)
    returns = []
    for episode in range(episodes):
        environment.reset(seed=episode)
        total, over = 0.0, False
        while not over:
            _, reward, terminated, truncated, _ = environment.step(
                environment.action_space.sample()
            )
            total, over = total + float(reward), terminated or truncated
        returns.append(total)
    return float(np.mean(returns)), float(np.std(returns) / np.sqrt(episodes))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=100)
    for name in TASKS:
        mean, error = measure(name, parser.parse_args().episodes)
        print(f'    "{name}": {mean:.4g},  # standard error {error:.2g}', flush=True)
