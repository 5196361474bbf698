"""Time to read an honest dataset, in this tree and in another installation, in turns.

pip install --no-deps --target OTHER .        # in a checkout of the tree to compare with
python benchmarks/read_speed.py OTHER
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from grd_offline.io.datasets import Header, Leaf, Record, write_dataset

CODE = """
import sys, time
from grd_offline.io.datasets import open_recording, as_episodes
try:
    from grd_offline.io.formats.summary import summarise
except ImportError:  # up to version 0.1.0
    from grd_offline.summary import summarise
best = {}
for _ in range(int(sys.argv[2])):
    for name, work in (
        ("open", lambda recording: None),
        ("stream", lambda recording: list(as_episodes(recording, sys.argv[1]))),
        ("inspect", lambda recording: summarise(recording, sys.argv[1])),
    ):
        begin = time.perf_counter()
        with open_recording(sys.argv[1]) as recording:
            work(recording)
        best[name] = min(best.get(name, 9e9), time.perf_counter() - begin)
print(*best.values())
"""


def make_records(episodes: int, steps: int, states: int) -> list[Record]:
    """Episodes of random numbers with a return at the end."""
    rng = np.random.default_rng(0)
    last = np.arange(steps) == steps - 1
    return [
        Record(
            {"": rng.normal(size=(steps + 1, states)).astype(np.float32)},
            {"": rng.normal(size=(steps, 6)).astype(np.float32)},
            last * rng.normal(),
            np.zeros(steps, np.bool_),
            last,
            extras={"true_rewards": rng.normal(size=steps)},
        )
        for _ in range(episodes)
    ]


def measure(path: Path, other: str | None, repeats: int) -> list[float]:
    """Best times of opening, streaming and inspecting."""
    environment = {**os.environ, **({"PYTHONPATH": other} if other else {})}
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(path), str(repeats)],
        env=environment, cwd=path.parent, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [float(number) for number in done.stdout.split()]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("other", help="where the other tree was installed with --target")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    header = Header((Leaf("", (17,), "float32"),), (Leaf("", (6,), "float32"),), delay="end")
    with tempfile.TemporaryDirectory() as folder:
        print(f"{'':44} {'open':>22} {'stream':>22} {'inspect':>22}")
        for layout in ("own", "minari", "d4rl"):
            for episodes, steps in ((50, 100), (2000, 50), (500, 1000)):
                path = Path(folder) / f"{layout}-{episodes}"
                records = make_records(episodes, steps, 17)
                lengths = np.full(episodes, steps)
                write_dataset(path, header, records, layout=layout, lengths=lengths)
                old, new = [], []
                for _ in range(options.rounds):  # in turns: the machine may be busy
                    old.append(measure(path, options.other, 3))
                    new.append(measure(path, None, 3))
                before, after = np.min(old, 0), np.min(new, 0)
                cells = (
                    f"{a * 1e3:7.1f} → {b * 1e3:7.1f} ({b / a:4.2f})"
                    for a, b in zip(before, after, strict=True)
                )
                name = f"{layout}, {episodes} episodes of {steps} steps, ms"
                print(f"{name:44} {' '.join(cells)}", flush=True)


if __name__ == "__main__":
    main()
