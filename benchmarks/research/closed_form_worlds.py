"""Closed form on factored worlds: correlation with the truth, masks, coverage, seconds.

python benchmarks/research/closed_form_worlds.py smooth 200 100 112
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from grd_offline.additive.settings import ClosedFormSettings
from grd_offline.core.episodes import Episode, EpisodeSet
from grd_offline.core.steps import StepBatch
from grd_offline.methods.closed_form.fit import fit_closed_form
from grd_offline.worlds.synthetic import FactoredWorld, Rollout, WorldSettings

KINDS = {
    "smooth": {"family": "smooth"},
    "hard": {"family": "hard"},
    "noisy": {"family": "smooth", "reward_noise": 1.0},
    "order3": {"family": "smooth", "order": 3},
    "hard3": {"family": "hard", "order": 3},
    "wide": {"states": 100, "actions": 10},
}


def to_episodes(rollout: Rollout, every: int = 0) -> EpisodeSet:
    """Episodes with one delivery at the end, or one every so many steps."""
    episodes = []
    for k, length in enumerate(rollout.lengths):
        rewards, delivered = np.zeros(length), np.zeros(length, bool)
        delivered[-1] = True
        if every:
            delivered[every - 1 :: every] = True
        stops = np.flatnonzero(delivered) + 1
        starts = np.concatenate([[0], stops[:-1]])
        for a, b in zip(starts, stops, strict=True):
            rewards[b - 1] = rollout.rewards[k, a:b].sum()
        flags = np.zeros(length, bool)
        episodes.append(
            Episode(
                rollout.observations[k, : length + 1],
                rollout.actions[k, :length],
                rewards,
                flags,
                np.arange(length) == length - 1,
                delivered,
            )
        )
    return EpisodeSet.from_episodes(episodes)


def f1(found: np.ndarray, truth: np.ndarray) -> float:
    both = float((found * truth).sum())
    return 2 * both / max(float(found.sum() + truth.sum()), 1e-9)


def run_one(kind: str, episodes: int, seed: int, settings: ClosedFormSettings, every: int) -> dict:
    world = FactoredWorld(WorldSettings(graph_seed=seed, **KINDS[kind]))
    rng = np.random.default_rng(seed)
    train, test = world.rollout(rng, episodes), world.rollout(rng, 50)
    data = to_episodes(train, every)
    begin = time.perf_counter()
    fit = fit_closed_form(data, settings, np.random.default_rng(0))
    seconds = time.perf_counter() - begin
    states = test.observations[:, :-1].reshape(-1, world.settings.states)
    actions = test.actions.reshape(-1, world.settings.actions)
    noisy, clean = test.rewards.ravel(), test.noise_free_rewards.ravel()
    mean = fit.model.predict(StepBatch(states, actions))
    std = fit.model.predict_std(StepBatch(states, actions))
    inner = fit.model.predict_std(StepBatch(states, actions), noise=False)
    truth = world.masks
    corr = lambda a: float(np.corrcoef(mean, a)[0, 1]) if mean.std() > 0 else 0.0  # noqa: E731
    return {
        "noisy": corr(noisy),
        "clean": corr(clean),
        "f1_s": f1(fit.state_to_reward, truth["state_to_reward"]),
        "f1_a": f1(fit.action_to_reward, truth["action_to_reward"]),
        "cover": float((np.abs(noisy - mean) < 1.645 * std).mean()),
        "cover0": float((np.abs(clean - mean) < 1.645 * np.maximum(inner, 1e-12)).mean()),
        "r2": fit.left_out_r2,
        "noise": fit.noise / world.reward_noise_std**2,
        "s": seconds,
        "mask": "".join(map(str, fit.state_to_reward))
        + "|"
        + "".join(map(str, fit.action_to_reward))
        if world.settings.states < 30
        else "",
        "true": "".join(map(str, truth["state_to_reward"]))
        + "|"
        + "".join(map(str, truth["action_to_reward"]))
        if world.settings.states < 30
        else "",
        "effects": len(fit.model.effects),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("episodes", type=int)
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int)
    parser.add_argument("--every", type=int, default=0)
    parser.add_argument("--set", action="append", default=[])
    args = parser.parse_args()
    values = dict(item.split("=") for item in args.set)
    settings = ClosedFormSettings(
        **{k: float(v) if "." in v or "e" in v else int(v) for k, v in values.items()}
    )
    rows = []
    for seed in range(args.first, args.last):
        row = run_one(args.kind, args.episodes, seed, settings, args.every)
        rows.append(row)
        print(
            seed,
            " ".join(
                f"{k}={v:.3f}" if isinstance(v, float) else f"{k}={v}" for k, v in row.items()
            ),
            flush=True,
        )
    keys = [k for k, v in rows[0].items() if isinstance(v, float)]
    print("mean", " ".join(f"{k}={np.mean([r[k] for r in rows]):.4f}" for k in keys))
    print("min ", " ".join(f"{k}={np.min([r[k] for r in rows]):.4f}" for k in keys))
    print("max ", " ".join(f"{k}={np.max([r[k] for r in rows]):.4f}" for k in keys))


if __name__ == "__main__":
    main()
