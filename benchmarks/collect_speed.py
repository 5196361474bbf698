"""Steps per second of `collect`, beside those of a bare Gymnasium loop on one core.

    python benchmarks/collect_speed.py [EPISODES] [ENVIRONMENT]

All are measured in turn, three times over, and medians are printed, since the speed of a shared
machine drifts. "whole" is from the call to the last episode, the start of the workers included;
"steady" is what passes after the first episode. Nothing is written to disk.
"""

from __future__ import annotations

import sys
import time
from statistics import median

import gymnasium as gym

from grd_offline.learning.collecting.dataset import run_episodes
from grd_offline.learning.settings import CollectSettings
from grd_offline.worlds.environments import resolve_environment_id

ROUNDS = 3
BARE_STEPS = 30_000


def measure_bare_loop(environment_id: str) -> float:
    """Steps per second of what everybody writes first."""
    env = gym.make(environment_id)
    env.reset(seed=0)
    begin = time.perf_counter()
    for _ in range(BARE_STEPS):
        _, _, terminated, truncated, _ = env.step(env.action_space.sample())
        if terminated or truncated:
            env.reset()
    return BARE_STEPS / (time.perf_counter() - begin)


def measure_collect(environment_id: str, episodes: int, workers: int) -> tuple[float, float]:
    """Steps per second of the whole run, and after the first episode."""
    begin = time.perf_counter()
    settings = CollectSettings(environment_id, episodes=episodes, workers=workers)
    _, records = run_episodes(settings)
    first_steps = len(next(records).rewards)
    first = time.perf_counter()
    later_steps = sum(len(record.rewards) for record in records)
    end = time.perf_counter()
    return (first_steps + later_steps) / (end - begin), later_steps / max(end - first, 1e-9)


def main() -> None:
    """Measure and print."""
    episodes = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    environment_id = resolve_environment_id(sys.argv[2] if len(sys.argv) > 2 else "HalfCheetah")
    speeds: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        speeds.setdefault("bare loop", []).append(measure_bare_loop(environment_id))
        for workers in (1, 2):
            whole, steady = measure_collect(environment_id, episodes, workers)
            speeds.setdefault(f"{workers} worker(s), whole", []).append(whole)
            speeds.setdefault(f"{workers} worker(s), steady", []).append(steady)
    print(f"{environment_id}, {episodes} episodes")
    bare = median(speeds["bare loop"])
    for name, values in speeds.items():
        print(
            f"{name:20} {median(values):8,.0f} steps/s  {median(values) / bare:5.2f} x "
            f"({min(values):,.0f} to {max(values):,.0f})"
        )


if __name__ == "__main__":
    main()
