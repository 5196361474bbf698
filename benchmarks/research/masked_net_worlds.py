"""Does a net within the closed form's mask help? Worlds whose reward needs four inputs at once.

    OMP_NUM_THREADS=1 python benchmarks/research/masked_net_worlds.py --seeds 0:3 --episodes 500

States and actions come from a smooth factored world; its reward is replaced. Scores on held-out
steps (Pearson with the noise-free reward) and returns (R2).
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np

from grd_offline.core.episodes import Episode, EpisodeSet
from grd_offline.core.statistics import pearson, r_squared
from grd_offline.methods.closed_form.estimator import ClosedForm
from grd_offline.methods.pair_net import MaskedNet, MaskedNetSettings, PairNet
from grd_offline.worlds.synthetic import FactoredWorld, WorldSettings

REWARDS = {
    "goal": lambda z: 4 * np.exp(-0.5 * ((z[..., :5] - 0.4) ** 2).sum(-1)),
    "corner": lambda z: 3.0 * (z[..., :4] > 0).all(-1),
    "product": lambda z: z[..., :4].sum(-1) / 2 + 1.5 * np.tanh(1.5 * z[..., :4]).prod(-1),
    "wave": lambda z: np.sin(z[..., 0] + z[..., 1] + 2 * z[..., 2] + 1.5 * z[..., 3]),
    "ridge": lambda z: np.abs(z[..., :4] @ np.array([1.0, -0.8, 0.7, 0.9])),
    "largest": lambda z: z[..., :4].max(-1),
}
FITS = {
    "closed-form": ClosedForm,
    "pair-net": lambda: PairNet(dynamics_updates=0),
    "masked-net": lambda: MaskedNet.from_settings(SETTINGS),
}
SETTINGS = MaskedNetSettings()


def make_world(seed: int, episodes: int, reward, noise: float = 0.1):
    """Episodes with the new reward's returns, and its noise-free steps."""
    world = FactoredWorld(WorldSettings(graph_seed=seed, scales=False))
    rng = np.random.default_rng([seed, episodes])
    rollout = world.rollout(rng, episodes)
    states = rollout.observations[:, :-1]
    inputs = np.concatenate([states[..., :3], 1.7 * rollout.actions[..., :2]], -1)
    clean = reward(inputs[..., [0, 1, 3, 2, 4]])
    rewards = clean + noise * clean.std() * rng.standard_normal(clean.shape)
    last = np.arange(clean.shape[1]) == clean.shape[1] - 1
    data = [
        Episode(
            observations=rollout.observations[i],
            actions=rollout.actions[i],
            rewards=last * rewards[i].sum(),
            terminations=np.zeros(len(last), np.bool_),
            truncations=last,
            delivered=last,
        )
        for i in range(episodes)
    ]
    return EpisodeSet.from_episodes(data), clean


def judge(name: str, fit: str, seed: int, episodes: int) -> dict[str, float]:
    everything, clean = make_world(seed, episodes + 100, REWARDS[name])
    training, test = everything[np.arange(episodes)], everything[np.arange(episodes, len(clean))]
    start = time.perf_counter()
    found = FITS[fit]().fit(training, rng=np.random.default_rng(0))
    seconds = time.perf_counter() - start
    predicted = [found.predict(e.observations[: len(e)], e.actions) for e in test]
    sums = np.array([p.sum() for p in predicted])
    true = np.array([e.compute_return() for e in test])
    masks = found.masks_ or {}
    return {
        "pearson": pearson(np.concatenate(predicted), clean[episodes:].ravel()),
        "return_r2": r_squared(sums, true),
        "inputs": sum(int(masks[m].sum()) for m in ("state_to_reward", "action_to_reward")),
        "seconds": seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rewards", nargs="+", choices=REWARDS, default=list(REWARDS))
    parser.add_argument("--fits", nargs="+", choices=FITS, default=list(FITS))
    parser.add_argument("--episodes", type=int, default=500)
    parser.add_argument("--seeds", default="0:2")
    parser.add_argument("--set", nargs="*", default=[], help="settings of the masked net")
    options = parser.parse_args()
    global SETTINGS
    pairs = (item.split("=") for item in options.set)
    SETTINGS = MaskedNetSettings(**{k: json.loads(v) for k, v in pairs})
    first, _, last = options.seeds.partition(":")
    for name in options.rewards:
        for fit in options.fits:
            for seed in range(int(first), int(last)):
                result = judge(name, fit, seed, options.episodes)
                print(f"{name:9}{fit:12}{seed:3}", end="")
                print("".join(f"  {k} {v:.3f}" for k, v in result.items()), flush=True)


if __name__ == "__main__":
    main()
