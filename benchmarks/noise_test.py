"""Trained policies with noise on the unused dimensions of the 111-dimensional Ant.

python benchmarks/noise_test.py sweeps/noise
python benchmarks/noise_test.py sweeps/noise --episodes 1 --max-episode-steps 50

The argument is a run of `train-online --env grd/PaddedAnt-v0`, or a folder that holds some. Every
member's last policy acts without noise of its own. The table has the interquartile mean over seeds
with its 95 % interval; the file noise.csv in the folder has every seed.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from grd_offline.comparison.compare import find_runs
from grd_offline.core.statistics import estimate_mean
from grd_offline.io.files.results import RunRecord, start_table
from grd_offline.learning.agents.actors import load_policies
from grd_offline.learning.fleet.environment import VectorEnvironment

TASK = "grd/PaddedAnt-v0"
LEVELS = (0.0, 0.25, 0.5, 0.75, 1.0)
COLUMNS = ("group", "seed", "step", "noise", "mean_return")


def evaluate(actor: object, noise: float, episodes: int, limit: int | None) -> float:
    """Mean true return. Every policy and every level starts from the same states."""
    environment = VectorEnvironment(TASK, {"noise": noise}, limit)
    returns: NDArray[np.float64] = np.zeros(episodes)
    for episode in range(episodes):
        observation, over = environment.reset(1_000_000 + episode), False
        while not over:
            action = actor.act_with_noise(observation, None)  # type: ignore[attr-defined]
            observation, reward, terminated, truncated = environment.step(action)
            returns[episode] += reward
            over = terminated or truncated
    environment.close()
    return float(returns.mean())


def test_run(run: RunRecord, episodes: int, limit: int | None) -> list[dict[str, object]]:
    """Rows of the table for all members of a run."""
    rows = []
    owners = {row["member"]: (row["group"], row["seed"]) for row in run.rows}
    for member, (group, seed) in owners.items():
        (policy,) = load_policies(run.path / "members" / member, "last")
        for noise in LEVELS:
            mean = evaluate(policy.actor, noise, episodes, limit)
            row = {"group": group, "seed": seed, "step": policy.step, "noise": noise}
            rows.append({**row, "mean_return": mean})
    return rows


def print_table(rows: list[dict[str, object]]) -> None:
    print("| method | " + " | ".join(f"noise {level:g}" for level in LEVELS) + " |")
    print("|---" * (1 + len(LEVELS)) + "|")
    for group in dict.fromkeys(row["group"] for row in rows):
        cells = []
        for level in LEVELS:
            chosen = [r for r in rows if r["group"] == group and r["noise"] == level]
            scores = [float(str(row["mean_return"])) for row in chosen]
            found = estimate_mean([scores], np.random.default_rng(0))
            cells.append(f"{found.value:.0f} ({found.low:.0f} to {found.high:.0f})")
        print(f"| {group} | " + " | ".join(cells) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--episodes", type=int, default=10)
    parser.add_argument("--max-episode-steps", type=int)
    given = parser.parse_args()
    runs = [run for run in find_runs(given.folder) if run.environment == TASK]
    if not runs:
        parser.error(f"{given.folder}: no run of {TASK}")
    rows = [r for run in runs for r in test_run(run, given.episodes, given.max_episode_steps)]
    start_table(given.folder / "noise.csv", COLUMNS, rows)
    print_table(rows)
    print(f"wrote {given.folder / 'noise.csv'}")


if __name__ == "__main__":
    main()
