"""Labels of success where episodes differ in length, and success needs a sum above a limit.

    python benchmarks/research/label_lengths.py --seeds 0:5

300 made-up sessions of 8 to 30 minutes: spending depends on health in a bent way, on an offer
together with the level, and on the device. `median` labels sessions that spend more than the
median. `chance` makes this a matter of chance near the limit. `none` has rewards with mean 0 and no
limit. Printed are correlations with the true rewards of all steps, the base, and the inputs found.
"""

from __future__ import annotations

import argparse

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

import grd_offline

SESSIONS = 300
KINDS = ("median", "chance", "none")


def make_sessions(kind: str, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """One row per minute with the label of its session, and the true rewards."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(8, 31, SESSIONS)
    session = np.repeat(np.arange(SESSIONS), lengths)
    table = pd.DataFrame({"session": session})
    rows = len(table)
    table["minute"] = np.concatenate([np.arange(length) for length in lengths])
    table["level"] = rng.integers(1, 11, rows)
    table["enemies"] = (0.8 * table.level + rng.normal(0, 2, rows)).round(1)
    table["health"] = rng.uniform(0, 100, rows).round(1)
    table["offer"] = rng.integers(0, 2, rows)
    table["device"] = rng.choice(["phone", "tablet", "pc"], SESSIONS)[session]
    table["latency"] = rng.normal(80, 20, rows).round(1)
    rewards = 0.1 + 0.6 * np.exp(-(((table.health - 35) / 15) ** 2))
    rewards += table.offer * (0.05 + 0.08 * table.level)
    rewards += table.device.map({"phone": 0.0, "tablet": 0.15, "pc": 0.3})
    if kind == "none":
        rewards -= rewards.mean()
    sums = rewards.groupby(session).sum().to_numpy()
    margin = sums if kind == "none" else sums - np.median(sums)
    chances = 1 / (1 + np.exp(-margin))
    labels = margin > 0 if kind == "median" else rng.random(SESSIONS) < chances
    table["back"] = labels.astype(int)[session]
    return table, rewards.to_numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", default="0:5")
    first, last = map(int, parser.parse_args().seeds.split(":"))
    for kind in KINDS:
        for seed in range(first, last):
            table, truth = make_sessions(kind, seed)
            episodes = grd_offline.from_dataframe(
                table, episode="session", step="minute", actions="offer", returns="back"
            )
            fit = grd_offline.ClosedForm().fit(episodes)
            found = np.asarray(fit.rewards_["reward"])
            names = [*episodes.observation_names, *episodes.action_names]
            masks = [*fit.masks_["state_to_reward"], *fit.masks_["action_to_reward"]]
            inputs = [name for name, is_on in zip(names, masks, strict=True) if is_on]
            print(
                f"{kind:7}{seed:3} spearman {spearmanr(found, truth)[0]:.3f}, pearson "
                f"{np.corrcoef(found, truth)[0, 1]:.3f}, base {fit.function_.base:8.2f}, {inputs}",
                flush=True,
            )


if __name__ == "__main__":
    main()
