"""Digests of what the commands give on fixed seeds, to show that a change changed no result.

python benchmarks/recording.py write before.json
python benchmarks/recording.py write after.json
python benchmarks/recording.py compare before.json after.json

Every command runs as a user types it, in a folder of its own. Each number that it leaves in a file
is part of a digest; times, versions, paths and commands are left out. The digests of two trees are
equal only on one machine: other processors round differently.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

RENAMED = {
    "quadratic": {"train-online": "closed-form"},
    "pair-net": {"decompose": "neural"},
    "joint-net": {"train-online": "neural"},
}
"""Names of fits, and what each command called them before."""
LEFT_OUT = {
    "seconds", "versions", "grd_offline", "command", "workers", "fit", "fits", "chosen_fit",
    "reason", "method", "methods", "group", "member", "name", "kind", "recipe", "settings",
}  # fmt: skip
"""Keys and columns that a change of names, machines or times touches."""
SHORT = ["--warmup", "150", "--eval-every", "200", "--eval-episodes", "2", "--workers", "1"]
WORLD = ["--env", "grd/Factored-v0", "--env-arg", "states=4", "--env-arg", "actions=2"]
WORLD += ["--env-arg", "reward_states=2", "--env-arg", "indirect=1", "--max-episode-steps", "30"]


def list_cases() -> Iterator[tuple[str, list[str], str]]:
    """Label, command and what it writes, in the order in which they run."""
    keep = ["--keep-true-rewards", "--workers", "1"]
    yield (
        "collect world",
        ["collect", *WORLD, "--episodes", "60", *keep, "--out", "world.h5"],
        "world.h5",
    )
    swing = ["--env", "Pendulum", "--episodes", "40", "--max-episode-steps", "40", "--delay", "15"]
    yield "collect pole", ["collect", *swing, *keep, "--out", "pole.h5"], "pole.h5"
    for data in ("world", "pole"):
        for fit in ("closed-form", "masked-net", "pair-net", "paper", "auto"):
            out = f"{data}-{fit}"
            command = ["decompose", f"{data}.h5", "--fit", fit, "--truth", "true_rewards"]
            yield f"decompose {out}", [*command, "--out", out], out
        for method in ("rrd", "rrd-unbiased", "ircr", "uniform"):
            out = f"{data}-{method}"
            yield (
                f"decompose {out}",
                ["decompose", f"{data}.h5", "--method", method, "--out", out],
                out,
            )
        out = f"{data}-next"
        command = ["decompose", f"{data}.h5", "--fit", "closed-form", "--next-state"]
        yield f"decompose {out}", [*command, "--exact-returns", "--out", out], out
        for fit in ("closed-form", "next", "paper", "rrd"):
            model, out = f"{data}-{fit}", f"{data}-{fit}-again.h5"
            yield f"relabel {model}", ["relabel", f"{data}.h5", "--model", model, "--out", out], out
            onnx = f"{model}.pt2"
            yield f"export {model}", ["export", model, "--to", "torch-export", "--out", onnx], onnx
        for algo in ("iql", "td3bc"):
            out = f"{data}-{algo}"
            command = ["train-offline", f"{data}-closed-form/relabelled.h5", "--algo", algo]
            command += ["--rewards", "relabelled,observed,true", "--seeds", "2", "--updates", "60"]
            yield f"train-offline {out}", [*command, *_evaluate(data, 30), "--out", out], out
    command = ["judge", "world.h5", "--seeds", "2", "--updates", "40", "--fit", "closed-form"]
    command += [
        "--methods",
        "grd,grd-next-state,rrd,rrd-unbiased,ircr,uniform",
        *_evaluate("world", 20),
    ]
    yield "judge world", [*command, "--out", "world-judge"], "world-judge"
    every = "grd,grd-no-compact,rrd,rrd-unbiased,ircr,none,oracle"
    online = ["train-online", *WORLD, "--method", every, "--seeds", "2", "--steps", "400", *SHORT]
    for backbone in ("sac", "td3", "ddpg"):
        out = f"run-{backbone}"
        fits = ["--fit", "quadratic,joint-net,paper", "--backbone", backbone]
        yield f"train-online {backbone}", [*online, *fits, "--out", out], out
    hop = [
        "train-online",
        "--env",
        "Hopper",
        "--method",
        every,
        "--fit",
        "quadratic,joint-net,paper",
    ]
    yield (
        "train-online hopper",
        [*hop, "--steps", "400", *SHORT, "--out", "run-hopper"],
        "run-hopper",
    )


def _evaluate(data: str, every: int) -> list[str]:
    where = WORLD if data == "world" else ["--env", "Pendulum", "--max-episode-steps", "40"]
    return [*where, "--eval-every", str(every), "--eval-episodes", "2", "--workers", "1"]


def rename(command: list[str], known: dict[str, str]) -> list[str]:
    """The command in the names that the installed program knows; `known` is its help."""
    renamed = []
    for part in command:
        for new, old in RENAMED.items():
            if command[0] in old and new not in known[command[0]]:
                part = re.sub(rf"(^|,){new}(?=,|$)", rf"\g<1>{old[command[0]]}", part)
        renamed.append(part)
    return renamed


def digest(path: Path) -> dict[str, str]:
    """Digests of everything in a file or folder that holds numbers, by name."""
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    found: dict[str, str] = {}
    for file in files:
        name = plain(str(file.relative_to(path))) if path.is_dir() else file.name
        for part, value in read(file):
            found[f"{name}:{part}"] = value
    return found


def plain(name: str) -> str:
    """A path without names of fits: members are told apart by what remains."""
    for new, old in RENAMED.items():
        word = old.get("train-online", new)
        for method in ("grd", "grd-no-compact"):
            name = name.replace(f"{method}-{word}", f"{method}-{new}")
    return name


def read(file: Path) -> Iterator[tuple[str, str]]:
    """Each part of a file that holds numbers, with its digest."""
    if file.suffix in (".h5", ".hdf5"):
        with h5py.File(file) as opened:
            names: list[str] = []
            opened.visit(names.append)
            for name in names:
                if isinstance(opened[name], h5py.Dataset):
                    yield name, hash_array(opened[name][()])
    elif file.suffix == ".safetensors":
        from safetensors.numpy import load_file

        for name, array in load_file(file).items():
            yield name, hash_array(array)
    elif file.suffix == ".json":
        yield "values", hash_text(json.dumps(strip(json.loads(file.read_text())), sort_keys=True))
    elif file.suffix == ".csv":
        with file.open() as lines:
            rows = [
                {k: v for k, v in r.items() if k not in LEFT_OUT} for r in csv.DictReader(lines)
            ]
        yield "rows", hash_text(json.dumps(rows, sort_keys=True))
    elif file.suffix == ".pt2":
        yield "weights", hash_text(repr(run_exported(file)))


def run_exported(file: Path) -> list[float]:
    """Rewards that an exported model gives on fixed inputs."""
    import torch

    program = torch.export.load(file)
    positional, named = program.example_inputs
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.rand((5, part.shape[1]), generator=generator) for part in positional]
    more = {k: torch.rand((5, v.shape[1]), generator=generator) for k, v in named.items()}
    return program.module()(*inputs, **more).tolist()


def strip(value: Any) -> Any:
    """A JSON value without the keys that are left out."""
    if isinstance(value, dict):
        return {k: strip(v) for k, v in value.items() if k not in LEFT_OUT}
    return [strip(v) for v in value] if isinstance(value, list) else value


def hash_array(array: Any) -> str:
    """Type, shape and bytes; the bytes of texts are those of their letters."""
    array = np.asarray(array)
    body = repr(array.tolist()).encode() if array.dtype == object else array.tobytes()
    return hash_text(f"{array.dtype.kind}{array.shape}{hashlib.sha256(body).hexdigest()}")


def hash_text(text: str) -> str:
    """Short."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def write(target: Path, only: str, folder: Path) -> None:
    """Run every case in `folder` and write what was found; cases that were run there are kept."""
    found: dict[str, dict[str, str]] = json.loads(target.read_text()) if target.exists() else {}
    program = [sys.executable, "-m", "grd_offline.cli"]
    names = {"decompose", "train-online"}
    known = {n: subprocess.check_output([*program, n, "--help"], text=True) for n in names}
    for label, command, out in list_cases():
        if not re.search(only, label) or (label in found and (folder / out).exists()):
            continue
        start = time.monotonic()
        typed = [*program, *rename(command, known)]
        done = subprocess.run(typed, cwd=folder, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{label}: {shlex.join(typed)}\n{done.stderr[-2000:]}")
        found[label] = digest(folder / out)
        print(f"{label}: {len(found[label])} digests, {time.monotonic() - start:.0f} s", flush=True)
        target.write_text(json.dumps(found, indent=1, sort_keys=True))


def compare(first: Path, second: Path) -> int:
    """Print what differs; 1 where anything does."""
    before, after = json.loads(first.read_text()), json.loads(second.read_text())
    same, differing = 0, 0
    for label in sorted({*before, *after}):
        one, two = before.get(label, {}), after.get(label, {})
        for name in sorted({*one, *two}):
            if one.get(name) == two.get(name):
                same += 1
            else:
                differing += 1
                how = "new" if name not in one else "gone" if name not in two else "differs"
                print(f"{label}: {name}: {how}")
    print(f"{same} digests are equal, {differing} are not")
    return int(differing > 0)


def main() -> None:
    """Write a recording, or compare two."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=("write", "compare"))
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--only", default="", help="labels that match this expression")
    parser.add_argument("--folder", type=Path, help="work there, and go on with what is there")
    options = parser.parse_args()
    if options.action == "write":
        with tempfile.TemporaryDirectory() as folder:
            write(options.files[0], options.only, options.folder or Path(folder))
    else:
        raise SystemExit(compare(*options.files))


if __name__ == "__main__":
    main()
