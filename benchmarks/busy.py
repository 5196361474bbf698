"""Time of `grd-offline decompose`, alone and beside busy processes, in turns.

grd-offline collect --env grd/Factored-v0 --env-arg family=hard --episodes 500 --out hard.h5
python benchmarks/busy.py hard.h5
"""

from __future__ import annotations

import argparse
import multiprocessing
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def spin() -> None:
    """Keep a core busy."""
    while True:
        pass


def decompose(data: Path) -> float:
    """Seconds of the plain command."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["-m", "grd_offline.cli", "decompose", str(data), "--out", f"{folder}/out"]
        begin = time.monotonic()
        subprocess.run([sys.executable, *command], check=True, capture_output=True)
        return time.monotonic() - begin


def main() -> None:
    """Print both times and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--processes", type=int, default=1, help="busy ones")
    options = parser.parse_args()
    alone, beside = [], []
    for _ in range(options.rounds):
        alone.append(decompose(options.data))
        busy = [multiprocessing.Process(target=spin, daemon=True) for _ in range(options.processes)]
        for process in busy:
            process.start()
        beside.append(decompose(options.data))
        for process in busy:
            process.kill()
    first, second = min(alone), min(beside)
    print(f"alone {first:.1f} s, beside {options.processes} busy {second:.1f} s")
    print(f"ratio {second / first:.2f}")


if __name__ == "__main__":
    main()
