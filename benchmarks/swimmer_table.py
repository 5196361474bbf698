"""Returns on Swimmer by weight of the sparsity penalty, beside Table 1 of the paper.

python benchmarks/swimmer_table.py benchmarks/results/online/Swimmer-v5-paper
"""

from __future__ import annotations

import argparse
import csv
import json
from pathlib import Path

import numpy as np

PAPER = {
    "0": ("87 ± 41 (.77)", "153 ± 43 (.80)"),
    "3e-06": ("182 ± 103 (.72)", "201 ± 109 (.71)"),
    "5e-06": ("130 ± 103 (.56)", "245 ± 104 (.69)"),
    "5e-05": ("118 ± 100 (.46)", "109 ± 107 (.41)"),
}
STEPS = (100_000, 200_000)


def describe(folder: Path, rows: list[dict[str, str]], weight: str, step: int) -> str:
    """Mean and standard deviation over seeds, and the share of states in the reward's mask."""
    chosen = [
        row
        for row in rows
        if int(row["step"]) == step and row["group"].endswith(f"lambda_state_reward={weight}")
    ]
    returns = [float(row["mean_return"]) for row in chosen]
    shares = []
    for row in chosen:
        path = folder / "members" / row["member"] / "masks" / f"step-{step:09d}.json"
        shares.append(np.mean(json.loads(path.read_text())["state_to_reward"]))
    share = f"{np.mean(shares):.2f}".removeprefix("0")
    return f"{np.mean(returns):.0f} ± {np.std(returns):.0f} ({share})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    with open(folder / "evaluations.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    print("| lambda 1 | 100,000 steps | paper | 200,000 steps | paper |\n|---|---|---|---|---|")
    for weight, paper in PAPER.items():
        cells = [describe(folder, rows, weight, step) for step in STEPS]
        line = [cell for pair in zip(cells, paper, strict=True) for cell in pair]
        print(f"| {weight} | {' | '.join(line)} |")


if __name__ == "__main__":
    main()
