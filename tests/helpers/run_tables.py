"""Folders of runs with tables that were written by hand."""

import csv
import json

import numpy as np

from grd_offline.io.files.results import EVALUATION_COLUMNS, FORMAT, VERSION
from grd_offline.learning.settings import OnlineSettings


def write_run(
    folder, *, groups=("ircr", "grd-quadratic", "oracle"), evaluations=5, states=4, seeds=2
):
    """A run's folder: two seeds a group, whose returns are 1 apart."""
    folder.mkdir(parents=True)
    settings = OnlineSettings("Some-v0").to_json()
    about = {"format": FORMAT, "version": VERSION, "environment": "Some-v0", "settings": settings}
    (folder / "settings.json").write_text(json.dumps(about))
    with (folder / "evaluations.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, EVALUATION_COLUMNS, restval="")
        writer.writeheader()
        for number in range(1, evaluations + 1):
            for place, group in enumerate(groups):
                for seed in range(seeds):
                    row = {"step": 1000 * number, "member": f"{group}-seed{seed}", "group": group}
                    row |= {"seed": seed, "mean_return": number * (place + 1) + seed}
                    if group.startswith("grd"):
                        row |= {"correlation": 0.1 * number, "edges_on": 1 / number}
                    writer.writerow(row)
    for number in range(1, evaluations + 1):
        write_step(folder / "members" / "ircr-seed0", 1000 * number, None)
        write_step(folder / "members" / "grd-quadratic-seed1", 1000 * number, states)
    return folder


def write_step(folder, step, states):
    (folder / "episodes").mkdir(parents=True, exist_ok=True)
    lines = [f"{10 * t + step},{t}" for t in range(20)]
    text = "\n".join(["reward,true_reward", *lines]) + "\n"
    (folder / "episodes" / f"step-{step:09d}.csv").write_text(text)
    if states is not None:
        masks = {
            "step": step,
            "state_to_reward": [1] * states,
            "action_to_reward": [0, 1],
            "state_to_state": np.eye(states, dtype=int).tolist(),
            "action_to_state": np.zeros((2, states), int).tolist(),
            "compact": [1] * states,
        }
        (folder / "masks").mkdir(exist_ok=True)
        (folder / "masks" / f"step-{step:09d}.json").write_text(json.dumps(masks))
