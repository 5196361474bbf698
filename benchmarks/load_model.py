"""Seconds from starting Python to a loaded reward model and its first prediction; cost of a step.

    grd-offline decompose datasets/sample.h5 --out sample-grd
    python benchmarks/load_model.py sample-grd

A fresh process each time, the fastest and the slowest of five, beside one that starts Python alone.
The step is one call of `LearnedReward`'s model with a single row.
"""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np

from grd_offline import RewardModel

CODES = {
    "python alone": "pass",
    "import grd_offline": "import grd_offline",
    "and load": "import grd_offline; grd_offline.RewardModel.load({0!r})",
    "and torch()": "import grd_offline; grd_offline.RewardModel.load({0!r}).torch()",
}


def main() -> None:
    folder = sys.argv[1]
    for name, code in CODES.items():
        seconds = []
        for _ in range(5):
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", code.format(folder)], check=True)
            seconds.append(time.perf_counter() - start)
        print(f"{name:20} {min(seconds):.2f} to {max(seconds):.2f} s")
    model = RewardModel.load(folder)
    rng = np.random.default_rng(0)
    observations = rng.normal(size=(1, len(model.observation_names)))
    actions = rng.normal(size=(1, len(model.action_names)))
    start, calls = time.perf_counter(), 2000
    for _ in range(calls):
        model.predict(observations, actions, observations, [False])
    print(f"{'one step':20} {(time.perf_counter() - start) / calls * 1e6:.0f} microseconds")


if __name__ == "__main__":
    main()
