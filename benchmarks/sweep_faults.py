"""A sweep of twelve small jobs on Ray, with a worker and then the driver killed in the middle.

python benchmarks/sweep_faults.py FOLDER

The same jobs run on this machine alone first. At the end the results of both must be equal. Needs
Linux and Ray.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

SAMPLE = Path(__file__).parents[1] / "datasets" / "sample.h5"
SWEEP = f"""
title = "Twelve small jobs"
members = 1

[[jobs]]
command = "decompose"
options = {{ file = "{SAMPLE}" }}
grid = {{ method = ["uniform", "ircr"], seed = [0, 1, 2, 3] }}

[[jobs]]
command = "train-online"
options = {{ steps = 200, warmup = 100, eval_every = 100, eval_episodes = 1, workers = 0 }}
grid = {{ env = ["grd/Factored-v0"], method = ["grd", "oracle"], seed = [0, 1] }}
"""
COMMAND = (sys.executable, "-P", "-m", "grd_offline.cli")


def start(*arguments: object) -> subprocess.Popen[str]:
    line = [*COMMAND, *map(str, arguments)]
    return subprocess.Popen(line, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)


def count_finished(out: Path) -> int:
    marks = [json.loads(path.read_text()) for path in out.glob("jobs/*/job.json")]
    return sum(mark["state"] == "finished" for mark in marks)


def find_descendants(parent: int) -> dict[int, str]:
    """The processes below one, with their command lines."""
    parents, names = {}, {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                status = (folder / "stat").read_text().rsplit(")", 1)[1].split()
                names[int(folder.name)] = (folder / "cmdline").read_text().replace("\0", " ")
                parents[int(folder.name)] = int(status[1])
            except (OSError, IndexError):
                continue
    found = {parent}
    while True:
        more = {pid for pid, above in parents.items() if above in found} - found
        if not more:
            return {pid: names[pid] for pid in found - {parent}}
        found |= more


def wait_for_finished(driver: subprocess.Popen[str], out: Path, count: int) -> None:
    while driver.poll() is None and count_finished(out) < count:
        time.sleep(0.1)


def kill_worker(driver: subprocess.Popen[str]) -> bool:
    """Kill a worker of Ray that is running a job."""
    for _ in range(600):
        workers = [p for p, n in find_descendants(driver.pid).items() if n.startswith("ray::_run")]
        if workers:
            os.kill(workers[0], signal.SIGKILL)
            return True
        if driver.poll() is not None:
            return False
        time.sleep(0.1)
    return False


def read_result(folder: Path) -> object:
    """What must be equal: the relabelled data, or all evaluations without their times."""
    data = folder / "relabelled.h5"
    if data.is_file():
        return data.read_bytes()
    with (folder / "evaluations.csv").open() as file:
        return [{n: v for n, v in row.items() if n != "seconds"} for row in csv.DictReader(file)]


def run_here(*arguments: object) -> bool:
    """Run a command on this machine. Whether it succeeded."""
    begin = time.monotonic()
    first = start(*arguments)
    told = first.communicate()[1]
    print(f"local: exit code {first.returncode}, {time.monotonic() - begin:.0f} s", flush=True)
    if first.returncode:
        print(told)
    return first.returncode == 0


def run_with_faults(out: Path, *arguments: object) -> bool:
    """Run a command on Ray that loses a worker, then its driver, and is then given once more.

    Whether it succeeded in the end, and nothing that was finished was touched again.
    """
    begin = time.monotonic()
    driver = start(*arguments, "--runner", "ray")
    wait_for_finished(driver, out, 2)
    print(f"worker killed: {kill_worker(driver)}, {count_finished(out)} jobs finished", flush=True)
    wait_for_finished(driver, out, 6)
    was_alive = driver.poll() is None
    driver.kill()
    told = driver.communicate()[1]
    print(f"driver killed: {was_alive}, {count_finished(out)} jobs finished; it had said:")
    print("\n".join(f"    {line}" for line in told.splitlines()), flush=True)
    kept = {
        p: p.stat().st_mtime_ns for p in out.glob("jobs/*/job.json") if "finished" in p.read_text()
    }
    driver = start(*arguments, "--runner", "ray")
    told = driver.communicate()[1]
    print(f"second driver: exit code {driver.returncode}; it said:")
    print("\n".join(f"    {line}" for line in told.splitlines()))
    print(f"ray: {time.monotonic() - begin:.0f} s in all")
    untouched = sum(path.stat().st_mtime_ns == moment for path, moment in kept.items())
    print(f"jobs that were finished before and not touched again: {untouched} of {len(kept)}")
    return was_alive and driver.returncode == 0 and untouched == len(kept)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    file, local, ray = folder / "twelve.toml", folder / "local", folder / "ray"
    file.write_text(SWEEP)
    given = ("sweep", file, "--cpus", 1, "--tries", 3, "--out")
    fits = run_here(*given, local)
    fits &= run_with_faults(ray, *given, ray)
    names = sorted(path.name for path in (local / "jobs").iterdir())
    equal = [
        name
        for name in names
        if read_result(local / "jobs" / name / "result")
        == read_result(ray / "jobs" / name / "result")
    ]
    print(f"{len(equal)} of {len(names)} results are equal to the local runner's")
    sys.exit(0 if fits and len(equal) == len(names) == 12 else 1)


if __name__ == "__main__":
    main()
