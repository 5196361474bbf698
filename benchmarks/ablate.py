"""What each bar of the closed form is worth: one at a time, halved and doubled, or off.

    python benchmarks/ablate.py                                   # all bars, a few worlds each
    python benchmarks/ablate.py add_gain switch_gain --seeds 3000:3010 --workers 8
    python benchmarks/ablate.py --factors 0 --rows "rare event" "heavy tails"

Bars are the fields of `grd_offline.additive.bars.Bars` and the numbers among the settings of the
closed form. Rows are those of `quality.py --suite`. Seeds from 3000 on were used for no choice.
Printed is the change against the bars as they are, in the mean over rows and seeds: of the
correlation with the true rewards, of the F1 of the masks, and of the share of verdicts that are
wrong (rewards below a correlation of .8 that may be used, or above .9 that may not). A bar of which
no change is seen may go; one that gains by a change may be wrong.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np
from quality import parse_seeds
from suite import Case, load_problem

from grd_offline import ClosedForm
from grd_offline.additive.bars import BARS
from grd_offline.additive.settings import ClosedFormSettings
from grd_offline.core.statistics import compare_masks, pearson
from grd_offline.methods.contract import UNRELIABLE
from grd_offline.methods.verdict import gather_findings, reach_verdict

ROWS = ("smooth 200", "noisy 200", "rare event", "heavy tails", "drift", "success labels")
FIXED = ("discount", "sample", "memory", "most_paired", "reach")
"""Settings that decide nothing of what is found."""
GOOD, BAD = 0.9, 0.8


class Trial(NamedTuple):
    """One fit with one bar changed; no bar for the fit to compare with."""

    row: str
    seed: int
    bar: str | None = None
    factor: float = 1.0


def list_bars() -> dict[str, float]:
    """All numbers that decide something."""
    settings = ClosedFormSettings()
    values = {one.name: getattr(settings, one.name) for one in fields(settings)}
    values |= {one.name: getattr(BARS, one.name) for one in fields(BARS)}
    return {
        name: value
        for name, value in values.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and name not in FIXED
    }


def change(name: str, factor: float) -> float:
    """The bar's new value; whole numbers stay whole."""
    value = list_bars()[name]
    return round(value * factor) if isinstance(value, int) else value * factor


def judge(trial: Trial) -> dict[str, Any]:
    """Correlation, F1 and whether the verdict is wrong; an error where the fit failed."""
    problem = load_problem(Case(trial.row, "grd", trial.seed))
    settings = {"discount": problem.discount}
    before = None if trial.bar is None else getattr(BARS, trial.bar, None)
    try:
        if trial.bar is not None:
            value = change(trial.bar, trial.factor)
            if before is None:
                settings[trial.bar] = value
            else:
                object.__setattr__(BARS, trial.bar, value)
        fitted = ClosedForm(**settings).fit(problem.training, rng=np.random.default_rng(0))
        findings, _ = gather_findings(fitted, problem.training, None)
        predicted = np.concatenate([fitted.relabel_episode(one) for one in problem.judged])
        correlation = pearson(predicted, np.concatenate(problem.true))
        names = ("state_to_reward", "action_to_reward")
        masks = zip(names, problem.masks or (), strict=False)
        f1 = [compare_masks(fitted.masks_[name], mask)["f1"] for name, mask in masks]
        is_refused = reach_verdict(findings).level == UNRELIABLE
        wrong = correlation > GOOD if is_refused else correlation < BAD
        figures = {"pearson": correlation, "f1": float(np.mean(f1 or [1.0])), "wrong": float(wrong)}
    except Exception as error:  # a bar that may not be changed so must not end the others
        figures = {"error": f"{type(error).__name__}: {error}"}
    finally:
        if before is not None:
            object.__setattr__(BARS, trial.bar, before)
    return {**trial._asdict(), **figures}


def list_trials(options: argparse.Namespace) -> Iterator[Trial]:
    for row in options.rows:
        for seed in options.seeds:
            yield Trial(row, seed)
            for bar in options.bars or list_bars():
                yield from (Trial(row, seed, bar, factor) for factor in options.factors)


def show(results: list[dict[str, Any]]) -> None:
    """A line per bar and factor."""
    plain = {(r["row"], r["seed"]): r for r in results if r["bar"] is None}
    groups: dict[tuple[str, float], list[dict[str, Any]]] = {}
    for result in results:
        if result["bar"] is not None:
            groups.setdefault((result["bar"], result["factor"]), []).append(result)
    print(f"{'bar':22}{'value':>12}{'times':>7}{'n':>4}{'Pearson':>10}{'F1':>9}{'wrong':>9}")
    for (bar, factor), mine in groups.items():
        pairs = [(r, plain[r["row"], r["seed"]]) for r in mine if "error" not in r]
        changes = [
            np.mean([new[name] - old[name] for new, old in pairs]) if pairs else np.nan
            for name in ("pearson", "f1", "wrong")
        ]
        print(f"{bar:22}{list_bars()[bar]:12g}{factor:7g}{len(pairs):4}", end="")
        print(f"{changes[0]:+10.4f}{changes[1]:+9.4f}{changes[2]:+9.3f}", end="")
        failed = next((r["error"] for r in mine if "error" in r), "")
        print(f"  {failed[:60]}" if failed else "")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("bars", nargs="*", help="names; all where none is given")
    parser.add_argument("--rows", nargs="+", default=list(ROWS), help="rows of the suite")
    parser.add_argument("--seeds", type=parse_seeds, default=range(3000, 3002), help="FIRST:END")
    parser.add_argument("--factors", type=float, nargs="+", default=[0.5, 2.0], help="0 is off")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--json", help="file for every single figure")
    options = parser.parse_args()
    unknown = sorted(set(options.bars) - set(list_bars()))
    if unknown:
        parser.error(f"no such bars: {', '.join(unknown)}; there are {', '.join(list_bars())}")
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.workers, mp_context=context) as pool:
        results = list(pool.map(judge, list_trials(options), chunksize=1))
    show(results)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
