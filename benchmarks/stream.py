"""How fast, and in how little memory, a dataset larger than memory is read and written.

    python benchmarks/stream.py --gigabytes 2

Prints, from the same run, the rate of copying the same arrays with plain h5py (no checks, no
checksums, not synced), the rate of our read and write (checked, checksummed, synced, read back),
their ratio, and the peak memory above the imports of each.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import h5py
import numpy as np

from grd_offline.io.datasets import Header, Leaf, Record, open_recording, read, write_dataset

STEPS, STATES, ACTIONS = 1000, 128, 8


def make(path: Path, episodes: int) -> None:
    rng = np.random.default_rng(0)
    observations = rng.normal(size=(STEPS + 1, STATES)).astype(np.float32)
    ends = np.arange(STEPS) == STEPS - 1

    def records():
        for index in range(episodes):
            yield Record(
                observations={"": observations + np.float32(index)},
                actions={"": observations[:STEPS, :ACTIONS]},
                rewards=ends * float(index),
                terminations=np.zeros(STEPS, np.bool_),
                truncations=ends,
            )

    leaves = (Leaf("", (STATES,), "float32"),), (Leaf("", (ACTIONS,), "float32"),)
    write_dataset(path, Header(*leaves, delay="end"), records())


def copy_plainly(source: Path, destination: Path) -> None:
    with h5py.File(source) as before, h5py.File(destination, "w") as after:
        for name, episode in before.items():
            group = after.create_group(name)
            for field, dataset in episode.items():
                group[field] = dataset[()]


def copy_ours(source: Path, destination: Path) -> None:
    with open_recording(source) as recording:
        write_dataset(destination, recording.header, recording)


def read_only(source: Path, _: Path) -> None:
    for episode in read(source):
        assert len(episode) == STEPS


WAYS = {"plain h5py copy": copy_plainly, "our read and write": copy_ours, "our read": read_only}


def measure(way: str, source: Path, destination: Path) -> dict[str, float]:
    """Run one way in a process of its own, so that its memory is its own."""
    command = [sys.executable, __file__, "--way", way, str(source), str(destination)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(output)


def run_way(way: str, source: Path, destination: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    WAYS[way](source, destination)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        json.dumps({"seconds": seconds, "peak_mb": peak / 1024, "above_mb": (peak - before) / 1024})
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where to put the files (default: temporary)")
    parser.add_argument("--way", nargs=3, metavar=("WAY", "SOURCE", "DESTINATION"))
    options = parser.parse_args()
    if options.way:
        run_way(options.way[0], Path(options.way[1]), Path(options.way[2]))
        return
    episodes = int(options.gigabytes * 2**30 / (STEPS * STATES * 4))
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        source, destination = Path(folder) / "source.h5", Path(folder) / "destination.h5"
        make(source, episodes)
        size = source.stat().st_size / 2**20
        best: dict[str, dict[str, float]] = {}
        for _ in range(options.repeats):
            for way in WAYS:
                destination.unlink(missing_ok=True)
                result = measure(way, source, destination)
                if way not in best or result["seconds"] < best[way]["seconds"]:
                    best[way] = result
        print(f"{size:,.0f} MB, {episodes} episodes, best of {options.repeats}")
        for way, result in best.items():
            print(
                f"{way:20} {size / result['seconds']:8,.0f} MB/s   peak {result['peak_mb']:5.0f} MB"
                f" ({result['above_mb']:.0f} MB above the imports)"
            )
        ratio = best["plain h5py copy"]["seconds"] / best["our read and write"]["seconds"]
        print(f"ours at {ratio:.2f} of the speed of plain h5py")


if __name__ == "__main__":
    main()
