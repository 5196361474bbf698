"""Folders of runs, decompositions and judgements, small and whole, to be tampered with."""

import csv
import json

import decompositions
import judgements
import numpy as np
import reward_models

from grd_offline.io.files.results import EVALUATION_COLUMNS, FORMAT, VERSION
from grd_offline.learning.settings import OnlineSettings


def write_online_run(folder, *, groups=("ircr", "grd-quadratic", "oracle"), states=3):
    """A finished run of `train-online`, as far as reports and figures read it."""
    folder.mkdir(parents=True)
    about = {
        "format": FORMAT,
        "version": VERSION,
        "command": ["grd-offline", "train-online", "--env", "Some-v0"],
        "environment": "Some-v0",
        "observation_names": [f"o{i}" for i in range(states)],
        "action_names": ["push"],
        "settings": OnlineSettings("Some-v0").to_json(),
        "members": [{"name": f"{group}-seed0"} for group in groups],
        "device": "cpu",
        "workers": 2,
        "versions": {"python": "3.11"},
    }
    (folder / "settings.json").write_text(json.dumps(about))
    with (folder / "evaluations.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, EVALUATION_COLUMNS, restval="")
        writer.writeheader()
        for step in (1000, 2000, 3000):
            for place, group in enumerate(groups):
                row = {"step": step, "seconds": step / 100, "member": f"{group}-seed0", "seed": 0}
                row |= {"group": group, "mean_return": step * (place + 1), "correlation": 0.5}
                writer.writerow(row)
    for step in (1000, 2000):
        _write_step(folder / "members" / "grd-quadratic-seed0", step, states)
    return folder


def _write_step(member, step, states):
    for name in ("episodes", "masks"):
        (member / name).mkdir(parents=True, exist_ok=True)
    rows = [f"{t % 3},{t % 4}" for t in range(12)]
    text = "\n".join(["reward,true_reward", *rows]) + "\n"
    (member / "episodes" / f"step-{step:09d}.csv").write_text(text)
    masks = {
        "step": step,
        "state_to_reward": [1] * states,
        "action_to_reward": [1],
        "state_to_state": np.eye(states, dtype=int).tolist(),
        "action_to_state": [[0] * states],
        "compact": [1] * states,
    }
    (member / "masks" / f"step-{step:09d}.json").write_text(json.dumps(masks))


def write_decomposition(folder):
    """A decomposition with a reward model that can be loaded."""
    decompositions.write_decomposition(folder, episodes=3, steps=8)
    (folder / "reward_model").rmdir()
    reward_models.make_model("quadratic").save(folder / "reward_model")
    return folder


FOLDERS = {
    "run": write_online_run,
    "offline": judgements.write_offline_run,
    "judge": judgements.write_judgement,
    "grd": write_decomposition,
}
