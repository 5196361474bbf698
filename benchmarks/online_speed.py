"""Updates per second of online training, as ratios in one run.

    pip install stable-baselines3==2.9.2
    python benchmarks/online_speed.py cpu                 # against Stable-Baselines3's SAC
    python benchmarks/online_speed.py cuda                # captured against eager, one against many
    python benchmarks/online_speed.py run --env HalfCheetah --device cuda --steps 1000000

`run` runs the plain command of the README, with no variables set, and reads its files: updates of
all members per second by tenths of the run, and the share of each part; then how many processors
were busy, and how fast the environments alone are. Further options go to the command.

On the CPU blocks of updates of both sides take turns, and the smallest time of each counts: on a
shared machine that is what the arithmetic takes. Replays hold random episodes of full length.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import tempfile
import time
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

from grd_offline.core.threads import count_cores
from grd_offline.io.files.results import read_rows
from grd_offline.learning.agents.actors import load_actor
from grd_offline.learning.fleet.fleet import Fleet
from grd_offline.learning.online.learner import Learner
from grd_offline.learning.online.replay import separate_truth
from grd_offline.learning.online.run import read_settings
from grd_offline.learning.runs.process import choose_workers, prepare_process
from grd_offline.learning.settings import OnlineSettings

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
    prepare_process("cpu", batch=256, hidden=(256, 256))  # for both sides
    rows = []
    cases = [
        ("HalfCheetah", "SAC alone", {"methods": ("oracle",)}, 20),
        ("HalfCheetah", "grd closed-form", {"fits": ("closed-form",), "warmup": 0}, 20),
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
    prepare_process("cuda", batch=256, hidden=(256, 256))
    rows = []
    cases = [
        ("HalfCheetah", {"fits": ("paper",)}, (1, 5, 20)),
        ("HalfCheetah", {"fits": ("closed-form",), "warmup": 0}, (1, 5, 20)),
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


def measure_run(options: argparse.Namespace) -> list[dict]:
    """The plain command over its whole length: speed by tenths, and the share of each part."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(options.out or place) / "run"
        command = ["grd-offline", "train-online", "--env", options.env, "--method", options.method]
        command += ["--fit", options.fit, "--seeds", str(options.members)]
        command += ["--steps", str(options.steps), "--device", options.device]
        command += ["--out", str(folder), *options.more]
        print(" ".join(command), flush=True)
        busy = count_busy(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL))
        alone = measure_environments(folder, options.env)
        members = {row["member"] for row in read_rows(folder / "evaluations.csv")}
        rows = [row for row in read_rows(folder / "log.csv") if row["updates"] not in ("", "0")]
    marks = {int(row["updates"]): row for row in rows if row["member"] == rows[0]["member"]}
    counts = sorted(marks)
    counts = [count for count in counts if count > options.skip]  # the first compile
    seconds = {count: float(marks[count]["seconds"]) for count in counts}
    parts = min(10, len(counts) - 1)  # the log has a row for every 1,000 steps
    if parts < 2:
        raise SystemExit("expected a run with at least 3,000 steps after its warm-up")
    edges = [counts[round(share * (len(counts) - 1))] for share in np.linspace(0, 1, parts + 1)]
    tenths = [
        len(members) * (last - first) / max(seconds[last] - seconds[first], 1e-9)
        for first, last in pairwise(edges)
    ]
    first, last = marks[counts[0]], marks[counts[-1]]
    whole = float(last["seconds"]) - float(first["seconds"])
    shares = {
        name: (float(last[name]) - float(first[name])) / whole
        for name in last
        if name.endswith("_seconds") and last[name] != "" and first[name] != ""
    }
    total = len(members) * (counts[-1] - counts[0]) / whole
    print(f"{total:.0f} member-updates/s; by tenths: {', '.join(f'{x:.0f}' for x in tenths)}")
    print(f"last tenth / second tenth: {tenths[-1] / tenths[1]:.2f}")
    print("; ".join(f"{name.removesuffix('_seconds')} {x:.1%}" for name, x in shares.items()))
    print(
        f"{busy:.1f} of {count_cores()} processors busy; the environments alone, with the last "
        f"policies: {alone:.0f} steps/s"
    )
    about = {"env": options.env, "fit": options.fit, "members": len(members)}
    about |= {"busy": busy, "environments": alone}
    return [{**about, "rate": total, "tenths": tenths, "shares": shares, "seconds": whole}]


def count_busy(work) -> float:
    """Processors that child processes keep busy while `work` runs, on average."""
    begin, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    work()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return used / (time.perf_counter() - begin)


def measure_environments(folder: Path, environment: str, rounds: int = 30) -> float:
    """Steps per second of the workers with the last policies of a run, and nothing beside them.

    A run cannot be faster than that. It also evaluates, which takes processors too.
    """
    saved = [sorted(path.glob("policies/step-*")) for path in sorted(folder.glob("members/*"))]
    actors = [load_actor(paths[-1]) for paths in saved]
    weights = np.stack([actor.weights for actor in actors])
    settings, _ = read_settings(folder)
    each = settings.environments
    with Fleet(
        environment,
        range(len(actors)),
        kind=actors[0].spec.kind,
        hidden=actors[0].spec.sizes[1:-1],
        workers=choose_workers(None, len(actors) * each),
        steps=settings.round_steps // each,
        environments_each=each,
    ) as fleet:
        fleet.start_round(0, weights)
        fleet.finish_round()  # the workers are up
        begin = time.perf_counter()
        fleet.start_round(1, weights)
        for index in range(2, rounds + 1):
            fleet.start_round(index, weights)
            fleet.finish_round()
        fleet.finish_round()
        steps = rounds * fleet.members * settings.round_steps
        return steps / (time.perf_counter() - begin)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("cpu", "cuda", "run"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--blocks", type=int, default=15)
    parser.add_argument("--updates", type=int, default=2000)
    parser.add_argument("--env", default="HalfCheetah-v5")
    parser.add_argument("--method", default="grd")
    parser.add_argument("--fit", default="closed-form")
    parser.add_argument("--skip", type=int, default=1000, help="first updates, not counted")
    parser.add_argument("--out", help="keep the run in this folder")
    parser.add_argument("--members", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--json")
    options, options_more = parser.parse_known_args()
    options.more = options_more
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
