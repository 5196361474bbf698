"""Updates per second of offline training, and whether a captured update is the plain one.

    python benchmarks/offline_speed.py --device cuda
    python benchmarks/offline_speed.py --device cpu --members 2 --updates 20 --episodes 20

Random data of HalfCheetah's size, no environment. On CUDA the weights after a few captured updates
are held against those of plain updates on the same device.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch

from grd_offline.learning.agents.algorithms import list_offline
from grd_offline.learning.offline.run import OfflineLearner, OfflineTransitions
from grd_offline.learning.runs.process import prepare_process
from grd_offline.learning.settings import OfflineSettings

STATES, ACTIONS, LENGTH = 17, 6, 1000


def make_data(episodes: int) -> tuple[OfflineTransitions, np.ndarray]:
    rng = np.random.default_rng(0)
    steps = episodes * LENGTH
    rows = np.arange(steps) + np.arange(steps) // LENGTH
    transitions = OfflineTransitions(
        observations=rng.standard_normal((steps + episodes, STATES), np.float32),
        actions=rng.uniform(-1, 1, (steps, ACTIONS)).astype(np.float32),
        terminated=np.zeros(steps, np.float32),
        rows=rows,
        kept=np.arange(steps),
    )
    return transitions, transitions.observations[rows, 0].astype(np.float64)


def make_learner(algorithm: str, data, device: str, members: int, *, capture: bool = True):
    transitions, rewards = data
    sources = {f"source{i}": rewards * (1 + i) for i in range(-(-members // 5))}
    settings = OfflineSettings(tuple(sources), algorithm=algorithm)
    return OfflineLearner(
        settings,
        settings.make_members()[:members],
        transitions,
        sources,
        low=[-1.0] * ACTIONS,
        high=[1.0] * ACTIONS,
        device=torch.device(device),
        capture=capture,
    )


def measure(learner: OfflineLearner, updates: int) -> float:
    learner.run_updates(4)  # records, where it records
    wait(learner.device)
    begin = time.perf_counter()
    learner.run_updates(updates)
    wait(learner.device)
    return updates / (time.perf_counter() - begin)


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def compare(algorithm: str, data, members: int) -> float:
    """Largest difference of weights after ten updates, captured and plain."""
    weights = []
    for capture in (True, False):
        learner = make_learner(algorithm, data, "cuda", members, capture=capture)
        learner.run_updates(10)
        weights.append(learner.export_actors())
    return float(np.abs(weights[0] - weights[1]).max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--members", type=int, nargs="+", default=[1, 5, 30])
    parser.add_argument("--updates", type=int, default=2000)
    parser.add_argument("--episodes", type=int, default=1000)
    options = parser.parse_args()
    prepare_process(options.device, batch=256, hidden=(256, 256))
    data = make_data(options.episodes)
    for algorithm in list_offline():
        for members in options.members:
            learner = make_learner(algorithm, data, options.device, members)
            rate = measure(learner, options.updates)
            print(
                f"{algorithm:6} {members:3} members {rate:9,.1f} updates/s, "
                f"{rate * members:10,.0f} member-updates/s",
                flush=True,
            )
        if options.device == "cuda":
            print(f"{algorithm:6} captured and plain differ by {compare(algorithm, data, 5):.1e}")


if __name__ == "__main__":
    main()
