"""A collection of twelve parts on Ray, and its relabelling, with workers and drivers killed.

python benchmarks/parts_faults.py FOLDER

The same parts are made on this machine alone first. At the end the files of both must be equal, and
the parts together must be the episodes of a plain collection. Needs Linux and Ray.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from pathlib import Path

from sweep_faults import run_here, run_with_faults

from grd_offline.io.datasets import find_parts

PARTS = 12
COLLECT = ("collect", "--env", "Hopper", "--episodes", 240, "--seed", 7)


def compute_digests(folder: Path) -> dict[str, str]:
    paths = find_parts(folder)
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def compare(local: Path, ray: Path) -> bool:
    ours, theirs = compute_digests(ray), compute_digests(local)
    equal = sum(ours.get(name) == digest for name, digest in theirs.items())
    print(f"{equal} of {len(theirs)} files are equal to the local runner's", flush=True)
    stray = [p.name for p in ray.iterdir() if p.name not in (*ours, "jobs", "parts.json")]
    print(f"files that a killed process left beside them: {stray or 'none'}", flush=True)
    return equal == len(theirs) == len(ours) == PARTS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    local, ray, model = folder / "local", folder / "ray", folder / "model"
    print("collect", flush=True)
    given = (*COLLECT, "--parts", PARTS, "--tries", 3, "--out")
    fits = run_here(*given, local)
    fits &= run_with_faults(ray, *given, ray)
    fits &= compare(local, ray)
    print("collect without parts, and both as one file", flush=True)
    fits &= run_here(*COLLECT, "--out", folder / "plain.h5")
    for source, target in ((folder / "plain.h5", "plain-again.h5"), (ray, "joined.h5")):
        fits &= run_here("convert", source, folder / target, "--to", "own")
    once, joined = ((folder / f"{name}.h5").read_bytes() for name in ("plain-again", "joined"))
    print(f"the parts together are equal to the plain collection: {once == joined}", flush=True)
    fits &= once == joined
    print("relabel", flush=True)
    fits &= run_here("decompose", local, "--method", "ircr", "--out", model)
    targets = folder / "local-relabelled", folder / "ray-relabelled"
    given = ("relabel", local, "--model", model, "--tries", 3, "--out")
    fits &= run_here(*given, targets[0])
    fits &= run_with_faults(targets[1], *given, targets[1])
    fits &= compare(*targets)
    sys.exit(0 if fits else 1)


if __name__ == "__main__":
    main()
