"""Updates per second of online training, as ratios in one run.

    pip install stable-baselines3==2.9.2
    python benchmarks/online_speed.py cpu                 # against Stable-Baselines3's SAC
    python benchmarks/online_speed.py cuda                # captured against eager, one against many
    python benchmarks/online_speed.py run --env HalfCheetah-v5 --device cuda --members 5

On the CPU blocks of updates of both sides take turns, and the smallest time of each counts: on a
shared machine that is what the arithmetic takes. Replays hold random episodes of full length.
"""

from __future__ import annotations

import argparse
import json
import time
from functools import partial

import numpy as np
import torch

from grd_offline.online.learner import Learner
from grd_offline.online.replay import separate_truth
from grd_offline.online.settings import OnlineSettings
from grd_offline.runs.process import prepare_process

SIZES = {"HalfCheetah": (17, 6), "Humanoid": (348, 17), "Swimmer": (8, 2)}
STEPS = 1000


def make_learner(task: str, device: str, *, capture: bool = True, **settings) -> Learner:
    states, actions = SIZES[task]
    chosen = OnlineSettings(task, steps=20_000, **settings)
    members = chosen.make_members()
    learner = Learner(
        chosen,
        members,
        states=states,
        low=[-1.0] * actions,
        high=[1.0] * actions,
        step_limit=STEPS,
        device=torch.device(device),
        capture=capture,
    )
    rng = np.random.default_rng(0)
    for member in range(len(members)):
        for _ in range(10):
            observations = rng.normal(size=(STEPS + 1, states)).astype(np.float32)
            acted = rng.uniform(-1, 1, (STEPS, actions)).astype(np.float32)
            rewards = observations[:-1, 0] - 0.1 * (acted**2).sum(1)
            told = separate_truth(observations, acted, rewards.astype(np.float64), False)
            learner.add(member, *told)
    learner.refresh()
    return learner


def make_sb3(task: str):
    import gymnasium
    from stable_baselines3 import SAC
    from stable_baselines3.common.logger import Logger

    states, actions = SIZES[task]

    class Blank(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (states,), np.float32)
        action_space = gymnasium.spaces.Box(-1.0, 1.0, (actions,), np.float32)

    model = SAC("MlpPolicy", Blank(), buffer_size=20_000)
    model.set_logger(Logger(None, []))
    rng = np.random.default_rng(0)
    for _ in range(10 * STEPS):
        model.replay_buffer.add(
            rng.normal(size=(1, states)),
            rng.normal(size=(1, states)),
            rng.uniform(-1, 1, (1, actions)),
            rng.normal(size=1),
            np.zeros(1),
            [{}],
        )
    return model


def compare_on_cpu(threads: int, blocks: int) -> list[dict]:
    torch.set_num_threads(threads)
    prepare_process("cpu")  # for both sides
    rows = []
    cases = [
        ("HalfCheetah", "SAC alone", {"methods": ("oracle",)}, 20),
        ("HalfCheetah", "grd quadratic", {"fits": ("quadratic",)}, 20),
        ("HalfCheetah", "grd joint-net", {"fits": ("joint-net",)}, 5),
        ("HalfCheetah", "grd paper", {"fits": ("paper",)}, 5),
        ("Humanoid", "SAC alone", {"methods": ("oracle",)}, 10),
        ("Humanoid", "grd joint-net", {"fits": ("joint-net",)}, 3),
    ]
    peers = {task: make_sb3(task) for task in ("HalfCheetah", "Humanoid")}
    for task, name, settings, count in cases:
        learner, peer = make_learner(task, "cpu", **settings), peers[task]
        ours, theirs = [], []
        for _ in range(blocks + 1):
            theirs.append(measure(partial(peer.train, batch_size=256), count))
            ours.append(measure(learner.run_updates, count))
        ours, theirs = ours[1:], theirs[1:]
        row = {
            "task": task,
            "what": name,
            "ms": 1e3 * min(ours),
            "sb3_ms": 1e3 * min(theirs),
            "ratio": min(ours) / min(theirs),
            "median_ratio": float(np.median(np.array(ours) / np.array(theirs))),
        }
        print(
            f"{task:12}{name:18}{row['ms']:8.2f} ms, SB3's SAC {row['sb3_ms']:6.2f} ms: "
            f"ratio {row['ratio']:.2f} (median of blocks {row['median_ratio']:.2f})",
            flush=True,
        )
        rows.append(row)
    return rows


def measure(work, count: int) -> float:
    start = time.perf_counter()
    work(count)
    return (time.perf_counter() - start) / count


def compare_on_cuda(updates: int) -> list[dict]:
    prepare_process("cuda")
    rows = []
    cases = [
        ("HalfCheetah", {"fits": ("paper",)}, (1, 5, 20)),
        ("HalfCheetah", {"fits": ("quadratic",)}, (1, 5, 20)),
        ("HalfCheetah", {"fits": ("joint-net",)}, (1, 5)),
        ("HalfCheetah", {"methods": ("oracle",)}, (1, 5)),
        ("Swimmer", {"fits": ("paper",)}, (1, 20)),
    ]
    for task, settings, counts in cases:
        for members in counts:
            for capture in (True, False) if members == 1 else (True,):
                learner = make_learner(task, "cuda", capture=capture, seeds=members, **settings)
                learner.run_updates(20)
                torch.cuda.synchronize()
                count = updates if capture else updates // 20

                def work(count, learner=learner):
                    learner.run_updates(count)
                    torch.cuda.synchronize()

                rate = 1 / measure(work, count)
                name = next(iter(settings.values()))[0]
                row = {
                    "task": task,
                    "what": name,
                    "members": members,
                    "captured": capture,
                    "updates_per_second": rate,
                    "member_updates_per_second": rate * members,
                }
                print(
                    f"{task:12}{name:14}{members:3} members, "
                    f"{'captured' if capture else 'eager':9}{rate:8.0f} updates/s,"
                    f"{rate * members:8.0f} member-updates/s",
                    flush=True,
                )
                rows.append(row)
                del learner
    return rows


class Clock:
    """Hears of a run: time per step, once training has begun."""

    def __init__(self, skip: int) -> None:
        self.skip, self.marks = skip, []

    def on_round(self, run) -> None:
        if run.learner.updates > self.skip:
            self.marks.append((time.perf_counter(), run.learner.updates))

    def on_evaluation_start(self, run) -> None:
        pass

    def on_evaluation(self, run, evaluation) -> None:
        pass


def measure_run(options: argparse.Namespace) -> list[dict]:
    """Updates per second with environments stepped and evaluated on the side."""
    from grd_offline.online.run import OnlineRun

    settings = OnlineSettings(
        options.env, fits=(options.fit,), seeds=options.members, steps=options.steps
    )
    clock = Clock(skip=1000)
    with OnlineRun(
        settings, workers=options.workers, device=options.device, observers=[clock]
    ) as run:
        run.train()
    (first, begun), (last, ended) = clock.marks[0], clock.marks[-1]
    rate = (ended - begun) / (last - first)
    print(
        f"{options.env} {options.fit} {options.members} members, environment included: "
        f"{rate:.0f} updates/s, {rate * options.members:.0f} member-updates/s"
    )
    return [{"env": options.env, "fit": options.fit, "members": options.members, "rate": rate}]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("cpu", "cuda", "run"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--blocks", type=int, default=15)
    parser.add_argument("--updates", type=int, default=2000)
    parser.add_argument("--env", default="HalfCheetah-v5")
    parser.add_argument("--fit", default="paper")
    parser.add_argument("--members", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--json")
    options = parser.parse_args()
    if options.what == "cpu":
        rows = compare_on_cpu(options.threads, options.blocks)
    elif options.what == "cuda":
        rows = compare_on_cuda(options.updates)
    else:
        rows = measure_run(options)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
