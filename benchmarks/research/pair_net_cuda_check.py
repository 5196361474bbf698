"""On a GPU: is a captured update the same as an eager one, and how fast is it?

    python benchmarks/research/pair_net_cuda_check.py [--device cpu] [--updates 200]

Runs every kind of update of `pair-net` (dense, masked, fixed, dynamics), of `paper` and of `rrd`,
once eager and once captured, from the same seeds; prints the largest difference between the
weights they end with, relative to the weights' size, and updates per second for 1 and 5 members.
Exits 1 if some difference exceeds 1e-3 after 60 updates: sums on a GPU have no fixed order, so
bit equality is not asked. A whole `fit` on the GPU follows, scored against the known reward.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

import numpy as np
import torch
from pair_net_worlds import as_episodes, f1

from grd_offline.methods.pair_net import DynamicsStage, PairNet, PairNetSettings, RewardStage
from grd_offline.methods.paper import DEFAULT_LAMBDAS, PaperSettings
from grd_offline.methods.paper import _Updates as PaperUpdates
from grd_offline.methods.rrd import RrdSettings, build_updates
from grd_offline.methods.training import NetworkData, Noise, Trainer
from grd_offline.worlds.synthetic import FactoredWorld, Rollout, WorldSettings

Made = tuple[Trainer, Callable[[], None]]


def make_updates(problem: NetworkData, members: int, capture: bool) -> dict[str, Made]:
    """Every kind of update, each on a model of its own."""
    device = str(problem.device)
    settings = PairNetSettings(members=members, device=device, capture=capture)
    kept = torch.arange(problem.states + problem.actions, device=device)

    def noise() -> Noise:
        return Noise(np.random.default_rng(0), device)

    made: dict[str, Made] = {}
    for name in ("update_dense", "update_masked", "update_fixed"):
        stage = RewardStage(problem, kept, settings, noise(), members=members)
        made[f"pair-net {name}"] = (stage.trainer, getattr(stage, name))
    dynamics = DynamicsStage(problem, settings, noise())
    made["pair-net dynamics"] = (dynamics.trainer, dynamics.update_masked)
    paper = PaperUpdates(
        problem, PaperSettings(members=members, device=device), DEFAULT_LAMBDAS, noise()
    )
    made["paper"] = (paper.trainer, paper.update)
    rrd = build_updates(problem, RrdSettings(members=members, device=device), noise())
    made["rrd"] = rrd[1:]
    for trainer, _ in made.values():
        trainer.capture = capture and device.startswith("cuda")
    return made


def synchronise(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def time_updates(made: Made, updates: int, device: str) -> float:
    """Updates per second, capture and warm-up not counted."""
    trainer, update = made
    begun = 0.0

    def report(done: int) -> None:
        nonlocal begun
        synchronise(device)
        if done == updates // 2:
            begun = time.perf_counter()

    trainer.run(update, updates, report=report, every=updates // 2)
    synchronise(device)
    return (updates - updates // 2) / (time.perf_counter() - begun)


def compare(eager: Made, captured: Made, updates: int) -> float:
    """Largest difference between the weights, relative to their size."""
    for trainer, update in (eager, captured):
        trainer.run(update, updates)
    pairs = [
        (one.flat.values, two.flat.values)
        for one, two in zip(eager[0].optimisers, captured[0].optimisers, strict=True)
    ]
    with torch.no_grad():
        return max(float((a - b).abs().max() / (b.abs().max() + 1e-6)) for a, b in pairs)


def check_fit(world: FactoredWorld, rollout: Rollout, device: str) -> None:
    training, test = (
        Rollout(*(part[cut] for part in rollout)) for cut in (slice(400), slice(400, None))
    )
    begun = time.perf_counter()
    model = PairNet(device=device)
    model.fit(as_episodes(training), rng=np.random.default_rng(0))
    seconds = time.perf_counter() - begun
    found = model.predict(test.observations[:, :-1][test.valid], test.actions[test.valid])
    score = np.corrcoef(found, test.rewards[test.valid])[0, 1]
    masks = {name: round(f1(model.masks_[name], world.masks[name]), 3) for name in world.masks}
    print(f"fit on {device}: Pearson {score:.4f}, F1 {masks}, {seconds:.1f} s")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--updates", type=int, default=400)
    parser.add_argument("--no-fit", action="store_true")
    options = parser.parse_args()
    device = options.device
    if device == "cpu":
        torch.set_num_threads(1)
    print(f"torch {torch.__version__}, {device}")
    world = FactoredWorld(WorldSettings(graph_seed=0))
    rollout = world.rollout(np.random.default_rng(1000), 500)
    problem = NetworkData.from_episodes(as_episodes(rollout), PairNetSettings(device=device))
    failed = False
    for members in (1, 5):
        eager, captured = (make_updates(problem, members, capture) for capture in (False, True))
        for name in eager:
            difference = compare(eager[name], captured[name], 60)
            failed |= not difference < 1e-3
            rates = [
                time_updates(made[name], options.updates, device) for made in (eager, captured)
            ]
            print(
                f"{name:22s} members {members}: difference {difference:.1e}, "
                f"eager {rates[0]:7.0f}/s, captured {rates[1]:7.0f}/s",
                flush=True,
            )
    if not options.no_fit:
        check_fit(world, rollout, device)
    sys.exit(int(failed))


if __name__ == "__main__":
    main()
