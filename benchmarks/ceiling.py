"""What the inputs of data with true step rewards can tell at best, if every step had a label.

    python benchmarks/ceiling.py real/*.h5

Boosted trees learn the true rewards of four fifths of the episodes step by step, and predict those
of the rest. Their correlation with the truth is a ceiling for what returns alone can give.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import GroupKFold, cross_val_predict

from grd_offline import read, read_truth


def compute_ceiling(file: Path) -> float:
    """Pearson's correlation over all steps, each predicted by trees that never saw its episode."""
    episodes, truth = read(file), np.concatenate(read_truth(file))
    inputs = np.concatenate([np.hstack([e.observations[: len(e)], e.actions]) for e in episodes])
    groups = np.repeat(np.arange(len(episodes)), episodes.lengths)
    trees = HistGradientBoostingRegressor(random_state=0)
    found = cross_val_predict(trees, inputs, truth, groups=groups, cv=GroupKFold(5))
    return float(np.corrcoef(found, truth)[0, 1])


def main() -> None:
    """Print a line for each file."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("files", nargs="+", type=Path)
    for file in parser.parse_args().files:
        print(f"{file.stem}: {compute_ceiling(file):.4f}")


if __name__ == "__main__":
    main()
