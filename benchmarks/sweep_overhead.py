"""What a sweep adds to a job of a minute.

python benchmarks/sweep_overhead.py

The job sleeps, so that what others do on this machine hardly matters: its time is compared with the
time from the start to the end of the sweep, with the start of the command and its report.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SECONDS = 60
JOB = f"""
import sys, time
from pathlib import Path
time.sleep({SECONDS})
Path(sys.argv[sys.argv.index("--out") + 1]).mkdir()
"""
SWEEP = "[[jobs]]\ncommand = 'decompose'\noptions = { file = 'nothing.h5' }\n"
CALL = """
import sys
from grd_offline.cli import main
from grd_offline.lab.sweep import folder
folder.PROGRAM = (sys.executable, sys.argv.pop(1))
folder.describe_result = lambda record, one: ""
main(sys.argv[1:])
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        (place / "job.py").write_text(JOB)
        (place / "sweep.toml").write_text(SWEEP)
        alone = [sys.executable, str(place / "job.py"), "--out", str(place / "alone")]
        begin = time.monotonic()
        subprocess.run(alone, check=True)
        plain = time.monotonic() - begin
        line = [sys.executable, "-c", CALL, str(place / "job.py"), "sweep", "sweep.toml"]
        before, begin = os.times(), time.monotonic()
        subprocess.run(line, check=True, cwd=place, stdout=subprocess.DEVNULL)
        swept, after = time.monotonic() - begin, os.times()
        used = after.children_user + after.children_system
        used -= before.children_user + before.children_system
        added = swept - plain
        print(f"job alone {plain:.2f} s, in a sweep {swept:.2f} s: {added / plain:.1%} more")
        print(f"processor time of the sweep and its job: {used:.2f} s")


if __name__ == "__main__":
    main()
