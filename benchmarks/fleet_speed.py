"""Steps per second of the fleet, beside those of a bare loop with the same policy on one core.

    python benchmarks/fleet_speed.py [ROUNDS] [ENVIRONMENT]

Four members, 100 steps per round, a policy of two layers of 256. All are measured in turn, five
times over, and medians are printed, since the speed of a shared machine drifts. CPU is what the
processes that step use per step: its ratio hardly depends on who else uses the machine.
"""

from __future__ import annotations

import os
import sys
import time
from statistics import median

import gymnasium as gym
import numpy as np

from grd_offline.learning.agents.actors import Actor, ActorSpec, count_weights
from grd_offline.learning.fleet.fleet import Fleet

MEMBERS, STEPS, REPEATS = 4, 100, 5
WORKERS = (1, 2)


def measure_bare_loop(
    environment_id: str, spec: ActorSpec, weights: np.ndarray, rounds: int
) -> tuple[float, float]:
    """Steps per second, and CPU seconds per step."""
    envs = [gym.make(environment_id, disable_env_checker=True) for _ in weights]
    actors = [Actor(spec, row) for row in weights]
    observations = [env.reset(seed=0)[0] for env in envs]
    rng = np.random.default_rng(0)
    begin, cpu = time.perf_counter(), time.process_time()
    for _ in range(rounds):
        for member, (env, actor) in enumerate(zip(envs, actors, strict=True)):
            observation = observations[member]
            for _ in range(STEPS):
                observation, _, terminated, truncated, _ = env.step(actor.act(observation, rng))
                if terminated or truncated:
                    observation, _ = env.reset()
            observations[member] = observation
    steps = rounds * len(weights) * STEPS
    return steps / (time.perf_counter() - begin), (time.process_time() - cpu) / steps


def measure_fleet(fleet: Fleet, weights: np.ndarray, rounds: int) -> tuple[float, float]:
    """Steps per second, and CPU seconds of the workers per step."""
    begin, cpu = time.perf_counter(), count_cpu_seconds(fleet)
    for index in range(rounds):
        fleet.start_round(index, weights)
        fleet.finish_round()
    steps = rounds * fleet.members * fleet.steps
    return steps / (time.perf_counter() - begin), (count_cpu_seconds(fleet) - cpu) / steps


def count_cpu_seconds(fleet: Fleet) -> float:
    """What the workers have used so far, as Linux counts it."""
    total = 0
    for process in fleet.processes:
        with open(f"/proc/{process.pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def main(rounds: int = 20, environment: str = "HalfCheetah") -> None:
    fleets = [
        Fleet(environment, range(MEMBERS), workers=workers, steps=STEPS) for workers in WORKERS
    ]
    spec, name = fleets[0].spec, fleets[0].environment
    weights = 0.05 * np.random.default_rng(0).standard_normal((MEMBERS, count_weights(spec)))
    found: dict[str, list[tuple[float, float]]] = {}
    for fleet in fleets:  # until the workers are up
        measure_fleet(fleet, weights, 1)
    for _ in range(REPEATS):
        found.setdefault("bare loop", []).append(measure_bare_loop(name, spec, weights, rounds))
        for workers, fleet in zip(WORKERS, fleets, strict=True):
            found.setdefault(f"{workers} workers", []).append(measure_fleet(fleet, weights, rounds))
    for fleet in fleets:
        fleet.close()
    bare_rate, bare_cpu = (median(values) for values in zip(*found["bare loop"], strict=True))
    print(f"{name}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    for label, values in found.items():
        rate, cpu = (median(column) for column in zip(*values, strict=True))
        print(
            f"{label:10} {rate:7,.0f} steps/s ({rate / bare_rate:.2f} of bare), "
            f"{cpu * 1e6:4.0f} us CPU per step ({cpu / bare_cpu:.2f})"
        )


if __name__ == "__main__":
    main(*(int(value) if value.isdigit() else value for value in sys.argv[1:]))  # type: ignore[arg-type]
