"""How good rewards from success labels, from preferences and of two outcomes at once are.

    python benchmarks/outcomes.py success --seeds 1000:1008
    python benchmarks/outcomes.py preferences --seeds 1000:1008
    python benchmarks/outcomes.py two --seeds 1000:1004

Smooth factored worlds, 500 episodes. Success is a return above the median. Preferences are 1,000
pairs of episodes, of which the one with the larger return is preferred. Two outcomes are the
rewards of two graphs with the same inputs; each is also decomposed alone. Every row is the whole
command of the README, default options, in a process of its own: correlations of ranks with the true
rewards of all steps, F1 of the masks, and seconds.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from grd_offline.core.statistics import compare_masks
from grd_offline.worlds.synthetic import FactoredWorld, WorldSettings

EPISODES, PAIRS = 500, 1000
MASKS = ("state_to_reward", "action_to_reward")
COMMAND = "import sys; from grd_offline.cli import main; sys.exit(main())"


def write_table(file: Path, rollout, outcomes: dict[str, np.ndarray], truth: np.ndarray) -> None:
    """One row per step as CSV."""
    states, actions = rollout.observations.shape[2], rollout.actions.shape[2]
    names = [f"s{i}" for i in range(states)] + [f"a{i}" for i in range(actions)]
    lines = [",".join(["episode", "step", *names, *outcomes, "true_reward"])]
    for episode, length in enumerate(rollout.lengths):
        ends = [repr(float(values[episode])) for values in outcomes.values()]
        for step in range(length):
            inputs = [*rollout.observations[episode, step], *rollout.actions[episode, step]]
            row = [episode, step, *(repr(float(one)) for one in inputs), *ends]
            lines.append(",".join(map(str, [*row, repr(float(truth[episode, step]))])))
    file.write_text("\n".join(lines) + "\n")


def run_command(*arguments: str | Path) -> float:
    """The seconds that a command of grd-offline took."""
    start = time.perf_counter()
    command = [sys.executable, "-c", COMMAND, *map(str, arguments)]
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - start


def read_result(folder: Path, masks: dict[str, np.ndarray]) -> dict[str, float]:
    """What a decomposition found, against the truth."""
    metrics = json.loads((folder / "metrics.json").read_text())
    found = json.loads((folder / "masks.json").read_text())
    scores = [compare_masks(np.array(found[name]), masks[name])["f1"] for name in MASKS]
    truth = metrics["truth"]
    return {
        "spearman": truth["spearman"],
        "bands": truth["coverage_90"],
        "f1": float(np.mean(scores)),
        "held out": metrics["held_out_return_r2"],
        "at": metrics["identifiability"]["state_at"],
    }


def make_rollout(seed: int):
    world = FactoredWorld(WorldSettings(graph_seed=seed))
    rollout = world.rollout(np.random.default_rng([seed, EPISODES]), EPISODES)
    return world, rollout, rollout.rewards.sum(1)


def judge_success(seed: int, folder: Path) -> dict[str, dict]:
    world, rollout, returns = make_rollout(seed)
    labels = {"success": (returns > np.median(returns)).astype(int)}
    write_table(folder / "data.csv", rollout, labels, rollout.rewards)
    seconds = run_command(
        "decompose", folder / "data.csv", "--truth", "true_rewards", "--out", folder / "out",
        "--columns", "actions=a*",
    )  # fmt: skip
    return {"success": {**read_result(folder / "out", world.masks), "seconds": seconds}}


def judge_preferences(seed: int, folder: Path) -> dict[str, dict]:
    world, rollout, returns = make_rollout(seed)
    write_table(folder / "data.csv", rollout, {}, rollout.rewards)
    rng = np.random.default_rng([seed, PAIRS])
    first = rng.integers(EPISODES, size=PAIRS)
    second = (first + 1 + rng.integers(EPISODES - 1, size=PAIRS)) % EPISODES
    answers = np.where(returns[first] > returns[second], "first", "second")
    rows = [f"{a},{b},{c}" for a, b, c in zip(first, second, answers, strict=True)]
    (folder / "pairs.csv").write_text("\n".join(["first,second,preferred", *rows]) + "\n")
    seconds = run_command(
        "decompose", folder / "data.csv", "--truth", "true_rewards", "--out", folder / "out",
        "--columns", "actions=a*", "--preferences", folder / "pairs.csv",
    )  # fmt: skip
    return {"preferences": {**read_result(folder / "out", world.masks), "seconds": seconds}}


def judge_two(seed: int, folder: Path) -> dict[str, dict]:
    """The returns of a world, and of the same steps by the reward of another graph."""
    world, rollout, _ = make_rollout(seed)
    other = FactoredWorld(WorldSettings(graph_seed=seed + 500))
    steps = rollout.observations[:, :-1], rollout.actions
    rewards = {"first": rollout.rewards, "second": other.reward(*steps)}
    found = {}
    for name, truth in rewards.items():
        sums = {key: values.sum(1) for key, values in rewards.items()}
        masks = {"first": world.masks, "second": other.masks}[name]
        write_table(folder / f"{name}.csv", rollout, sums, truth)
        roles = "actions=a*,truth=true_reward"
        both, alone = folder / f"both-{name}", folder / f"alone-{name}"
        truth_option = ("--truth", "true_rewards")
        run_command(
            "decompose", folder / f"{name}.csv", "--columns", roles, "--outcomes", "first,second",
            "--out", both, *truth_option,
        )  # fmt: skip
        rest = next(key for key in rewards if key != name)
        run_command(
            "decompose", folder / f"{name}.csv", "--out", alone, *truth_option,
            "--columns", f"{roles},return={name},ignored={rest}",
        )  # fmt: skip
        found[f"{name} of two"] = read_result(both / name, masks)
        found[f"{name} alone"] = read_result(alone, masks)
    return found


JUDGES = {"success": judge_success, "preferences": judge_preferences, "two": judge_two}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=JUDGES)
    parser.add_argument("--seeds", default="1000:1008", help="first:last + 1")
    options = parser.parse_args()
    first, stop = map(int, options.seeds.split(":"))
    rows: dict[str, list[dict]] = {}
    for seed in range(first, stop):
        with tempfile.TemporaryDirectory() as folder:
            for name, row in JUDGES[options.kind](seed, Path(folder)).items():
                rows.setdefault(name, []).append(row)
                shown = {k: v if isinstance(v, str) else round(v, 4) for k, v in row.items()}
                print(seed, name, shown, flush=True)
    for name, found in rows.items():
        keys = [key for key in found[0] if key != "at"]
        means = {key: round(float(np.mean([row[key] for row in found])), 4) for key in keys}
        print(f"mean of {len(found)}, {name}: {means}")


if __name__ == "__main__":
    main()
