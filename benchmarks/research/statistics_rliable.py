"""Our statistics beside those of rliable, in an environment that holds both.

pip install rliable "pandas<3" && pip install --no-deps -e .
python benchmarks/research/statistics_rliable.py
"""

from __future__ import annotations

import numpy as np
from rliable import library, metrics

from grd_offline.core import statistics


def main() -> None:
    rng = np.random.default_rng(0)
    first, second = rng.normal(1.0, 0.3, (5, 8)), rng.normal(0.8, 0.4, (5, 8))
    first[0, 0] = second[0, 0]  # an equal score counts as half a win
    ours = {"first": list(first.T), "second": list(second.T)}
    theirs = {"first": first, "second": second}
    for name, tasks in ours.items():
        values, ends = library.get_interval_estimates(
            {name: theirs[name]},
            lambda scores: np.array([metrics.aggregate_iqm(scores)]),
            reps=20000,
        )
        print(f"interquartile mean, {name}: rliable {values[name][0]:.4f} {ends[name].ravel()}")
        print(f"    ours {statistics.estimate_mean(tasks, rng)}")
    values, ends = library.get_interval_estimates(
        {"both": (first, second)},
        lambda x, y: np.array([metrics.probability_of_improvement(x, y)]),
        reps=2000,
    )
    print(f"probability of improvement: rliable {values['both'][0]:.4f} {ends['both'].ravel()}")
    print(f"    ours {statistics.estimate_improvement(ours['first'], ours['second'], rng)}")
    thresholds = np.linspace(0, 1.6, 9)
    profile, band = library.create_performance_profile({"first": first}, thresholds)
    gap = np.abs(profile["first"] - statistics.performance_profile(ours["first"], thresholds))
    found = statistics.profile_band(ours["first"], thresholds, rng)
    gaps = [np.abs(one - other).max() for one, other in zip(band["first"], found, strict=True)]
    print(f"profile: largest gap {gap.max()}, of the ends of its band {gaps}")


if __name__ == "__main__":
    main()
