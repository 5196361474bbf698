"""Time and held-out figures of the dynamics fit on HalfCheetah-v5, where every edge is real.

OMP_NUM_THREADS=1 .venv/bin/python benchmarks/research/dynamics_halfcheetah.py --episodes 50
"""

import argparse
import resource
import time

import gymnasium
import numpy as np

from grd_offline.additive.dynamics import compare_masks, fit_dynamics
from grd_offline.core.episodes import Episode, EpisodeSet


def collect(environment: str, count: int, smooth: float) -> list[Episode]:
    """Episodes under random actions that hold on for a while."""
    env = gymnasium.make(environment)
    rng = np.random.default_rng(0)
    episodes = []
    for index in range(count):
        observations, actions, action = [env.reset(seed=index)[0]], [], 0.0
        done = False
        while not done:
            fresh = rng.uniform(env.action_space.low, env.action_space.high)
            action = smooth * action + (1 - smooth) * fresh
            actions.append(np.asarray(action, np.float32))
            observation, _, terminated, truncated, _ = env.step(actions[-1])
            observations.append(observation)
            done = terminated or truncated
        ends = np.arange(len(actions)) == len(actions) - 1
        episodes.append(
            Episode(
                np.array(observations),
                np.array(actions),
                np.zeros(len(actions)),
                ends & terminated,
                ends & truncated,
                ends,
            )
        )
    return episodes


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--environment", default="HalfCheetah-v5")
    parser.add_argument("--episodes", type=int, default=50)
    parser.add_argument("--copies", type=int, default=10, help="repeat them, for the time alone")
    parser.add_argument("--smooth", type=float, default=0.5)
    args = parser.parse_args()
    episodes = collect(args.environment, args.episodes, args.smooth)
    data = EpisodeSet.from_episodes(episodes * args.copies)
    wall, cpu = time.perf_counter(), time.process_time()
    fit = fit_dynamics(data, rng=np.random.default_rng(0))
    print(
        f"{data.total_steps} steps: {time.perf_counter() - wall:.1f} s wall, "
        f"{time.process_time() - cpu:.1f} s CPU, "
        f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB"
    )
    print("edges", fit.model.state_to_state.mean(), fit.model.action_to_state.mean())
    data = EpisodeSet.from_episodes(episodes)
    fit = fit_dynamics(data, rng=np.random.default_rng(0))
    print("edges without copies", fit.model.state_to_state.mean(), fit.model.action_to_state.mean())
    print("R2", np.round(fit.model.metrics["held_out_r2"], 3))
    print("R2 of change", np.round(fit.model.metrics["held_out_r2_of_change"], 3))
    print("terms per state", np.bincount(fit.model.terms[:, 0]))
    print(compare_masks(data, fit.model.state_to_state, fit.model.action_to_state))


if __name__ == "__main__":
    main()
