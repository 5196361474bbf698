"""Time and peak memory of commands on a CSV file of five million rows.

    python benchmarks/table_speed.py /tmp/large --rows 5000000

writes 100,000 made-up trips of 50 rows with six inputs, one of them text, and runs `inspect` and
`decompose` on them, each in a process of its own. `--commands inspect` runs only some, and
`--method uniform` leaves out the fit of the rewards. `--commands read` measures the reading alone.
`--beside FOLDER` repeats all with the Python of another tree, such as that of an earlier version.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

STEPS = 50
BLOCK = 2_000


def write_table(path: Path, rows: int) -> None:
    """Write the trips, in blocks."""
    rng = np.random.default_rng(0)
    weathers = np.array(["rain", "snow", "sun"])
    with open(path, "w") as file:
        file.write("trip,minute,speed,load,slope,temperature,weather,throttle,fuel\n")
        for first in range(0, rows // STEPS, BLOCK):
            count = min(BLOCK, rows // STEPS - first)
            numbers = rng.normal(size=(count, STEPS, 5)).round(3)
            weather = rng.choice(3, (count, STEPS))
            cost = numbers[..., 0] ** 2 + numbers[..., 4] + 2 * (weather == 0)
            fuel = cost.sum(1).round(4)
            for trip in range(count):
                file.writelines(
                    f"{first + trip},{minute},{','.join(map(str, numbers[trip, minute, :4]))},"
                    f"{weathers[weather[trip, minute]]},{numbers[trip, minute, 4]},{fuel[trip]}\n"
                    for minute in range(STEPS)
                )


def measure(arguments: list[str]) -> tuple[float, float, float]:
    """Seconds by the clock and of the processor, and peak memory in MB, of one command."""
    begin = time.perf_counter()
    # Elsewhere than in this tree: Python looks for the package in the working folder first.
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, cwd="/")
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(arguments)} failed")
    seconds = time.perf_counter() - begin
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main() -> None:
    """Write the table if it is not there, and measure."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--commands", default="inspect,decompose")
    parser.add_argument("--method", default="grd", help="method of decompose")
    parser.add_argument("--beside", type=Path, help="another tree with a .venv in it")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    table = arguments.folder.resolve() / f"trips-{arguments.rows}.csv"
    if not table.exists():
        write_table(table, arguments.rows)
    print(f"{table.name}: {arguments.rows:,} rows, {table.stat().st_size / 2**20:,.0f} MB")
    columns = "step=minute,actions=throttle,return=fuel"
    pythons = {"": sys.executable}
    if arguments.beside is not None:
        pythons[f" in {arguments.beside}"] = str(arguments.beside.absolute() / ".venv/bin/python")
    for command in arguments.commands.split(","):
        program = ["-m", "grd_offline.cli", command, str(table), "--columns", columns]
        if command == "decompose":
            program += ["--method", arguments.method]
        if command == "read":
            code = f"import grd_offline; grd_offline.read({str(table)!r}, columns={columns!r})"
            program = ["-c", code]
        for place, python in pythons.items():
            seconds, work, memory = measure([python, *program])
            print(
                f"{command}{place}: {seconds:.1f} s ({work:.1f} s of processor time), "
                f"peak {memory:,.0f} MB",
                flush=True,
            )


if __name__ == "__main__":
    main()
