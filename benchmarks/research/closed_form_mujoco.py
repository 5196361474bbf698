"""Closed form on MuJoCo data with step truth: correlation per step, mask, seconds.

grd-offline collect --recipe datasets/recipes/hopper-explore.toml --out hopper.h5
python benchmarks/research/closed_form_mujoco.py hopper.h5
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from grd_offline.additive.settings import ClosedFormSettings
from grd_offline.core.steps import StepBatch
from grd_offline.io.datasets import read, read_truth
from grd_offline.methods.closed_form.fit import fit_closed_form


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("--next-state", action="store_true")
    parser.add_argument("--set", action="append", default=[])
    args = parser.parse_args()
    values = {
        k: float(v) if "." in v or "e" in v else int(v)
        for k, v in (item.split("=") for item in args.set)
    }
    settings = ClosedFormSettings(next_state=args.next_state, **values)
    episodes = read(args.file)
    truth = read_truth(args.file)
    begin = time.perf_counter()
    fit = fit_closed_form(episodes, settings, np.random.default_rng(0))
    seconds = time.perf_counter() - begin
    begin = time.perf_counter()
    parts, mine = [], []
    for k, episode in enumerate(episodes):
        mine.append(fit.model.predict(StepBatch.from_episode(episode)))
        parts.append(np.asarray(truth[k]) if not callable(truth) else truth(k))
    every, predicted = np.concatenate(parts), np.concatenate(mine)
    names = [n for n, m in zip(episodes.observation_names, fit.state_to_reward, strict=True) if m]
    names += [n for n, m in zip(episodes.action_names, fit.action_to_reward, strict=True) if m]
    pearson = np.corrcoef(every, predicted)[0, 1]
    print(f"{args.file} {args.set} next={args.next_state} pearson={pearson:.4f}", end=" ")
    print(f"r2={fit.return_r2:.5f} loo={fit.left_out_r2:.5f}", end=" ")
    print(f"noise/var={fit.noise / every.var():.4f} fit={seconds:.1f}s", end=" ")
    print(f"relabel={time.perf_counter() - begin:.1f}s effects={len(fit.model.effects)}", end=" ")
    print(f"evidence={fit.evidence:.1f}")
    print("   mask:", ", ".join(names))
    scores = np.concatenate([fit.state_score, fit.action_score])
    print("   scores:", np.round(scores[scores > 0], 1))
    for c in fit.model.explain().effects:
        if c.share > 0.01:
            print("      ", c.inputs, round(c.share, 3), "std", round(float(c.mean.std()), 3))


if __name__ == "__main__":
    main()
