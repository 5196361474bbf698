"""How long the report of 500 episodes of 1,000 steps takes to build and to open, and its size.

    python benchmarks/report.py [FOLDER]

FOLDER is what `grd-offline decompose` wrote; without it, one of that size is made up. Opening is
from the start of navigation until the first drawing is on the screen, in a headless Chromium that
runs already; the best of five, and the median.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from grd_offline.io.datasets import Header, Leaf, Record, write_dataset
from grd_offline.methods.result import read_decomposition
from grd_offline.report import make_decomposition_page

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "helpers"))
from browser import Browser, find_chromium
from decompositions import refer

EPISODES, STEPS, STATES, ACTIONS = 500, 1000, 17, 6
DRAWN = """
new Promise((done) => {
  const drawn = () => document.querySelector('.viewer .main-svg') ?
    requestAnimationFrame(() => done(performance.now())) : setTimeout(drawn, 5);
  document.querySelector('.viewer').scrollIntoView();
  drawn();
})
"""


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(sys.argv[1]) if len(sys.argv) > 1 else make_folder(Path(scratch) / "grd")
        seconds = []
        for _ in range(3):
            start = time.perf_counter()
            page = make_decomposition_page(read_decomposition(folder))
            seconds.append(time.perf_counter() - start)
        print(f"build: {min(seconds):.2f} s, median {statistics.median(seconds):.2f} s")
        print(f"size: {len(page.encode()) / 1e6:.2f} MB")
        if find_chromium() is None:
            print("open: no Chromium here")
            return
        file = Path(scratch) / "report.html"
        file.write_text(page)
        with Browser() as browser:
            opened = []
            for _ in range(5):
                browser.open(file)
                opened.append(browser.run(DRAWN) / 1000)
            picks = [browser.run(PICK) / 1000 for _ in range(5)]
        print(f"open: {min(opened):.2f} s, median {statistics.median(opened):.2f} s")
        print(f"pick another episode: median {statistics.median(picks):.2f} s")


PICK = """
(() => {
  const start = performance.now();
  document.querySelector('#next').click();
  document.querySelector('.viewer').getBoundingClientRect();
  return performance.now() - start;
})()
"""


def make_folder(folder: Path) -> Path:
    """A decomposition of the size of HalfCheetah's, with made-up numbers."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    names = [f"state {i}" for i in range(STATES)], [f"action {i}" for i in range(ACTIONS)]
    header = Header(
        observation_leaves=(Leaf("", (STATES,), "float32"),),
        action_leaves=(Leaf("", (ACTIONS,), "float32"),),
        observation_names=tuple(names[0]),
        action_names=tuple(names[1]),
        delay="step",
    )
    last = np.arange(STEPS) == STEPS - 1

    def make_record() -> Record:
        observations = rng.normal(size=(STEPS + 1, STATES)).astype(np.float32)
        rewards = observations[:-1, 0].astype(np.float64)
        return Record(
            observations={"": observations},
            actions={"": rng.normal(size=(STEPS, ACTIONS)).astype(np.float32)},
            rewards=rewards,
            terminations=np.zeros(STEPS, np.bool_),
            truncations=last,
            extras={
                "reward_std": rng.uniform(0.1, 0.2, STEPS).astype(np.float32),
                "observed_rewards": last * rewards.sum(),
                "true_rewards": rewards + rng.normal(size=STEPS),
            },
        )

    records = (make_record() for _ in range(EPISODES))
    lengths = np.full(EPISODES, STEPS)
    write_dataset(folder / "relabelled.h5", header, records, layout="own", lengths=lengths)
    grid = np.linspace(-3, 3, 65).tolist()
    inputs = [names[0][0], *names[1]]
    curve = {"grids": [grid], "mean": grid, "std": [0.1] * 65}
    references = [one.to_json() for one in refer(inputs, *names)]
    effects = [
        {"inputs": [one["name"]], "references": [one], "share": 1 / (i + 2), **curve}
        for i, one in enumerate(references)
    ]
    masks = {
        "state_to_reward": [int(i == 0) for i in range(STATES)],
        "action_to_reward": [1] * ACTIONS,
        "state_to_state": (rng.random((STATES, STATES)) < 0.4).astype(int).tolist(),
        "action_to_state": (rng.random((ACTIONS, STATES)) < 0.4).astype(int).tolist(),
    }
    masks["score"] = dict(masks)
    masks |= {"compact": {"closure": [1] * STATES}}
    masks |= {"state_names": names[0], "action_names": names[1]}
    masks["references"] = [one.to_json() for one in refer([*names[0], *names[1]], *names)]
    metrics = {
        **{"fit": "closed-form", "reason": "made up", "alternatives": [], "warnings": []},
        **{"episodes": EPISODES, "steps": EPISODES * STEPS, "data": "made-up.h5", "seconds": 0.0},
        "identifiability": {"findings": []},
        "settings": {"gamma": 1.0, "truth": "true_rewards", "step_rewards": False},
        "delay": "end",
    }
    for name, contents in (
        ("metrics", metrics),
        ("masks", masks),
        ("effects", {"effects": effects}),
    ):
        (folder / f"{name}.json").write_text(json.dumps(contents))
    return folder


if __name__ == "__main__":
    main()
