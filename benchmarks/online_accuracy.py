"""How well the rewards of `train-online` agree with the truth, without a policy that learns.

    python benchmarks/online_accuracy.py worlds --graphs 8 --first 0     # hard and smooth worlds
    python benchmarks/online_accuracy.py files Reacher.h5 Hopper.h5 ...  # files with true rewards

Episodes are handed to each fit one after the other, as a run would: after every 100 steps the fit
hears that a round is over. Printed is the correlation with the true rewards of other episodes.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from factored_worlds import WORLDS, make_episodes

from grd_offline.core.episodes import Episode
from grd_offline.core.threads import one_numpy_thread
from grd_offline.io.datasets import read, read_truth
from grd_offline.learning.online.learner import SOURCES
from grd_offline.learning.online.replay import FinishedEpisode, Replay
from grd_offline.learning.settings import OnlineSettings
from grd_offline.worlds.synthetic import FactoredWorld, WorldSettings

HELD_OUT = 30


def hand_over(episode: Episode) -> FinishedEpisode:
    return FinishedEpisode(
        np.array(episode.observations),
        np.array(episode.actions),
        float(episode.rewards.sum()),
        bool(episode.terminations[-1]),
    )


@one_numpy_thread()
def measure(
    fit: str, train: Sequence[FinishedEpisode], test: Sequence[FinishedEpisode], truth: np.ndarray
) -> dict:
    """Correlation on `test` after all of `train`, and the seconds that this took."""
    longest = max(len(episode.actions) for episode in [*train, *test])
    steps = sum(len(episode.actions) for episode in train)
    settings = OnlineSettings("any", fits=(fit,), warmup=min(10_000, steps // 4))
    sizes = train[0].observations.shape[1], train[0].actions.shape[1]
    replay = Replay(1, steps, *sizes, longest, torch.device("cpu"))
    source = SOURCES[fit](slice(0, 1), replay, settings.make_members(), settings)
    begun, seen, rounds = time.perf_counter(), 0, 0
    for episode in train:
        replay.add(0, episode)
        source.add(0, episode)
        seen += len(episode.actions)
        while rounds < seen // settings.round_steps:
            source.refresh()
            rounds += 1
    seconds = time.perf_counter() - begun
    found = np.concatenate([source.predict(0, episode) for episode in test])
    return {
        "fit": fit,
        "correlation": float(np.corrcoef(found, truth)[0, 1]),
        "seconds": seconds,
        **source.count_seconds(),
    }


def load_world(family: str, graph: int, episodes: int):
    world = FactoredWorld(WorldSettings(graph_seed=graph, **WORLDS[family]))
    rollout = world.rollout(np.random.default_rng(1000 + graph), episodes + HELD_OUT)
    every = [hand_over(episode) for episode in make_episodes(rollout)]
    truth = [rollout.rewards[k, : rollout.lengths[k]] for k in range(episodes, len(every))]
    return every[:episodes], every[episodes:], np.concatenate(truth)


def load_file(path: str, episodes: int):
    every = [hand_over(episode) for episode in read(path)]
    truth = [np.asarray(rewards, np.float64) for rewards in read_truth(path)]
    count = min(episodes, len(every) - HELD_OUT)
    return every[:count], every[-HELD_OUT:], np.concatenate(truth[-HELD_OUT:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("worlds", "files"))
    parser.add_argument("names", nargs="*", help="files, or families of worlds")
    parser.add_argument("--fits", default="closed-form,quadratic")
    parser.add_argument("--episodes", type=int, default=500)
    parser.add_argument("--graphs", type=int, default=8)
    parser.add_argument("--first", type=int, default=0, help="first graph")
    parser.add_argument("--json")
    options = parser.parse_args()
    if options.what == "worlds":
        graphs = range(options.first, options.first + options.graphs)
        cases = [(n, g) for n in options.names or ("hard", "smooth") for g in graphs]
    else:
        cases = [(name, None) for name in options.names]
    rows = []
    for name, graph in cases:
        if graph is None:
            data, label = load_file(name, options.episodes), Path(name).stem
        else:
            data, label = load_world(name, graph, options.episodes), name
        for fit in options.fits.split(","):
            row = {"data": label, "graph": graph, "episodes": len(data[0]), **measure(fit, *data)}
            rows.append(row)
            print(json.dumps(row), flush=True)
    for label in dict.fromkeys(row["data"] for row in rows):
        for fit in options.fits.split(","):
            mine = [r["correlation"] for r in rows if (r["data"], r["fit"]) == (label, fit)]
            print(f"{label:24}{fit:14}{np.mean(mine):.4f} (lowest {min(mine):.4f}, {len(mine)})")
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
