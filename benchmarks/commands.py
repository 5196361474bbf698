"""Time and memory of whole commands: `grd-offline decompose FILE`, as a user runs it.

grd-offline collect --env HalfCheetah --episodes 500 --out hc.h5
grd-offline collect --env Ant --episodes 200 --out ant.h5
python benchmarks/commands.py hc.h5 ant.h5

For each file: seconds on the clock, seconds of all processors, and the largest memory of any of its
processes. Run it while the computer does nothing else.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

COMMAND = "import sys; from grd_offline.cli import main; sys.exit(main())"


def measure(file: Path) -> tuple[float, float, float]:
    """Seconds on the clock and of processors, and gigabytes."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", COMMAND, "decompose", str(file), "--out", f"{folder}/out"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        begin = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        seconds = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, used, after.ru_maxrss / 2**20


def main() -> None:
    """Print one line for each file; memory is the largest so far, so begin with small data."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", type=Path, nargs="+")
    arguments = parser.parse_args()
    print(f"{len(os.sched_getaffinity(0))} cores")
    print(f"{'data':<12}{'clock':>10}{'processors':>12}{'memory':>10}")
    for file in arguments.files:
        seconds, used, memory = measure(file)
        print(f"{file.stem:<12}{seconds:>8.1f} s{used:>10.1f} s{memory:>7.2f} GB", flush=True)


if __name__ == "__main__":
    main()
