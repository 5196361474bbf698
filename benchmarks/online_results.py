"""Tables of finished runs of `grd-offline train-online`, from what they left on disk.

python benchmarks/online_results.py benchmarks/results/online/*/
"""

from __future__ import annotations

import argparse
import csv
import json
import shlex
from pathlib import Path

import numpy as np


def describe(folder: Path) -> str:
    """The command, and each group's true returns at the last evaluation."""
    settings = json.loads((folder / "settings.json").read_text())
    with open(folder / "evaluations.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    last = max(int(row["step"]) for row in rows)
    groups: dict[str, list[dict[str, str]]] = {}
    for row in rows:
        if int(row["step"]) == last:
            groups.setdefault(row["group"], []).append(row)
    lines = [shlex.join(settings["command"]), f"{settings['environment']}, step {last:,}:"]
    for name, members in groups.items():
        returns = np.array([float(row["mean_return"]) for row in members])
        seeds = ", ".join(f"{value:.0f}" for value in returns)
        found = [float(row["correlation"]) for row in members if row["correlation"]]
        correlation = f", correlation {np.mean(found):.2f}" if np.isfinite(found).any() else ""
        spread = returns.std()
        lines.append(f"  {name:44} {returns.mean():7.0f} ± {spread:5.0f}  ({seeds}){correlation}")
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path)
    print("\n\n".join(describe(folder) for folder in parser.parse_args().folders))
