"""A folder of `grd-offline judge`, written by hand: small, and with numbers that are known."""

import csv
import json

import numpy as np

from grd_offline.io.files.results import EVALUATION_COLUMNS, OFFLINE, VERSION
from grd_offline.learning.settings import OfflineSettings

SCORES = {
    "true": (290.0, 310.0),
    "observed": (20.0, 38.0),
    "grd": (280.0, 302.0),
    "uniform": (200.0, 220.0),
    "ircr": (200.0, 220.0),
}
PEARSON = {"true": 1.0, "observed": 0.03, "grd": 0.995, "uniform": 0.45, "ircr": 0.45}
DATA_MEAN = -100.0


def write_offline_run(folder, *, scores=None, file="data.h5", seconds=30.0):
    """A run whose last three evaluations are each seed's score, less 1, plus 0 and plus 1."""
    scores = SCORES if scores is None else scores
    folder.mkdir(parents=True)
    seeds = len(next(iter(scores.values())))
    settings = OfflineSettings(tuple(scores), "Some-v0", updates=4000, seeds=seeds, seed=5)
    about = {"format": OFFLINE, "version": VERSION, "environment": "Some-v0", "device": "cpu"}
    about |= {"data": {"file": file, "episodes": 12, "steps": 2400}, "settings": settings.to_json()}
    about |= {"command": ["grd-offline", "train-offline", file]}
    (folder / "settings.json").write_text(json.dumps(about))
    with (folder / "evaluations.csv").open("w", newline="") as table:
        writer = csv.DictWriter(table, EVALUATION_COLUMNS, restval="")
        writer.writeheader()
        for number, change in enumerate((-50, -1, 0, 1), start=1):
            for source, values in scores.items():
                for seed, score in enumerate(values, start=5):
                    row = {"step": 1000 * number, "seconds": seconds * number / 4, "group": source}
                    row |= {"member": f"{source}-seed{seed}", "seed": seed}
                    row |= {"mean_return": score + change, "correlation": PEARSON[source]}
                    writer.writerow(row)
    return folder


def write_judgement(folder, *, scores=None, file="data.h5", data_mean=DATA_MEAN, **more):
    """The folder; shares are left out where the true rewards' are."""
    scores = SCORES if scores is None else scores
    run = write_offline_run(folder / "run", scores=scores, file=file)
    about = json.loads((run / "settings.json").read_text())
    known = "true" in scores
    best = float(np.mean(scores["true"])) if known else None
    verdicts, sources = [], {}
    for source, values in scores.items():
        mean = float(np.mean(values))
        verdicts.append(
            {
                "source": source,
                "mean_return": mean,
                "std_return": float(np.std(values)),
                "share_of_true": mean / best if known and best > 0 else None,
                "share_of_gain": (mean - data_mean) / (best - data_mean) if known else None,
                "pearson": PEARSON[source] if known else None,
                "scores": list(values),
            }
        )
        measures = (
            "pearson",
            "spearman",
            "pearson_within_episodes",
            "error_after_affine_fit",
            "r2",
        )
        sources[source] = (
            {"against_truth": dict.fromkeys(measures, PEARSON[source])} if known else {}
        )
        if source not in ("true", "observed"):
            sources[source] |= {"fit": f"{source}-fit", "reason": f"{source} was asked for"}
            sources[source] |= {"seconds": 12.34, "held_out_return_r2": 0.876}
    contents = {
        "format": "grd-offline judge",
        "version": 1,
        "command": ["grd-offline", "judge", file, "--env", "Some-v0"],
        "data": about["data"],
        "data_mean_return": data_mean,
        "score": "mean of the last 3 evaluations",
        "stopped": False,
        "verdicts": verdicts,
        "sources": sources,
        "fit": "auto",
        "algorithm": "IQL",
        "settings": about["settings"],
        "versions": {"torch": "2.13.0"},
    }
    (folder / "judge.json").write_text(json.dumps(contents | more))
    return folder
