"""Where the time goes: the whole `decompose`, relabelling against bare forward passes, the fits.

    OMP_NUM_THREADS=1 python benchmarks/speed.py halfcheetah.h5 --fits closed-form

Everything is measured in one run, one after the other: compare figures within it, not between.
Relabelling is timed over arrays in memory and from file to file, and given as its rate relative
to a bare forward pass over the same arrays: the model's own `predict`, and the paper's reward net.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from grd_offline.core.episodes import EpisodeSet
from grd_offline.io.datasets import as_episodes, open_recording
from grd_offline.methods import make_decomposer
from grd_offline.methods.relabelling import apply_model, write_relabelled
from grd_offline.methods.settings import DecomposeSettings
from grd_offline.networks.members.nn import RewardNet
from grd_offline.pipeline.decompose import decompose
from grd_offline.rewards.model import RewardModel


class Stages:
    """Seconds of each stage, as `progress` hears of them."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last, self._since = "reading", time.perf_counter()

    def __call__(self, stage: str, share: float) -> None:
        if stage != self._last:
            now = time.perf_counter()
            self.seconds[self._last] = self.seconds.get(self._last, 0.0) + now - self._since
            self._last, self._since = stage, now


def measure(work: Callable[[], object], repeats: int) -> float:
    """Seconds of the fastest of some runs: the others were disturbed."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def show_decompose(data: Path, out: Path) -> RewardModel:
    """The whole command, stage by stage; gives the model."""
    stages, start = Stages(), time.perf_counter()
    settings = DecomposeSettings(truth=None)
    found = decompose(data, out, settings, progress=stages)
    total = time.perf_counter() - start
    stages("", 1.0)
    print(f"decompose: {total:.1f} s")
    for stage, seconds in stages.seconds.items():
        print(f"  {stage:32}{seconds:8.2f} s {seconds / total:6.1%}")
    return found.model


def show_relabel(data: Path, model: RewardModel, out: Path, repeats: int) -> None:
    """Rewards and their spread, against bare forward passes."""
    with open_recording(data) as recording:
        episodes = list(as_episodes(recording, data))
        observations = np.concatenate([e.observations[: len(e)] for e in episodes])
        actions = np.concatenate([e.actions for e in episodes])
        following = np.concatenate([e.observations[-len(e) :] for e in episodes])
        terminations = np.concatenate([e.terminations for e in episodes])
        arrays = [observations, actions, following, terminations]
        net = RewardNet(1, sum(part.shape[1] for part in arrays[:2]), hidden=(256, 256))
        inputs = torch.from_numpy(np.concatenate(arrays[:2], 1)).unsqueeze(0)

        def forward() -> None:
            with torch.no_grad():
                for block in inputs.split(4096, 1):
                    net(block, torch.ones(1, 1, block.shape[-1]))

        def relabel() -> None:
            write_relabelled(apply_model(recording, data, model), out, table=None)

        predict = measure(lambda: model.predict(*arrays), repeats)
        bare = measure(forward, repeats)
        print(f"\nrelabelling {len(observations):,} steps: rate relative to")
        print(f"{'':36}{'s':>8}{'predict':>10}{'net':>10}")
        for name, work in (
            ("bare predict", lambda: model.predict(*arrays)),
            ("bare net, 256-256-1", forward),
            ("rewards and std, in memory", lambda: model.predict_both(*arrays)),
            ("reading alone", lambda: [recording.load(i) for i in range(len(recording))]),
            ("rewards and std, file to file", relabel),
        ):
            seconds = measure(work, repeats)
            print(f"  {name:34}{seconds:8.2f}{predict / seconds:10.2f}{bare / seconds:10.2f}")


def show_fits(data: Path, fits: list[str]) -> None:
    """Each fit of the reward, alone."""
    with open_recording(data) as recording:
        loaded = EpisodeSet.from_episodes(list(as_episodes(recording, data)))
        print()
        for fit in fits:
            work = make_decomposer("grd", fit)
            seconds = measure(lambda w=work: w.fit(loaded, rng=np.random.default_rng(0)), 1)
            print(f"fit {fit:32}{seconds:8.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--model", type=Path, help="a decomposition; without it one is made")
    parser.add_argument("--fits", nargs="*", default=["closed-form"])
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.model is None:
            model = show_decompose(options.data, Path(folder, "out"))
        else:
            model = RewardModel.load(options.model)
        show_relabel(options.data, model, Path(folder, "relabelled.h5"), options.repeats)
    show_fits(options.data, options.fits)


if __name__ == "__main__":
    main()
