"""The reports of the gallery, made by the commands that users run.

Two decompositions are made anew. Runs and judgements take hours of an accelerator, so their reports
are made from results that are committed in benchmarks/results.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

from grd_offline.io.files.results import OFFLINE, VERSION

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
JUDGED = "medium-td3bc-alpha20"


def call(folder: Path, *arguments: str | Path) -> None:
    """Run a command of `grd-offline` in a folder; a failure ends the build."""
    command = [sys.executable, "-m", "grd_offline.cli", *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr[-2000:]}")


def lay_out_judgement(source: Path, folder: Path) -> Path:
    """A committed judgement in the folders that `grd-offline judge` writes."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "run").mkdir(parents=True)
    for name in ("judge.json", "judge.csv"):
        shutil.copy(source / name, folder)
    shutil.copy(source / "evaluations.csv", folder / "run")
    about = json.loads((source / "judge.json").read_text())
    kept = {name: about[name] for name in ("command", "settings", "versions")}
    kept |= {"format": OFFLINE, "version": VERSION, "environment": about["data"]["environment"]}
    (folder / "run" / "settings.json").write_text(json.dumps(kept))
    return folder


def write_trips(folder: Path) -> None:
    """Write the table of trips that the page Start makes."""
    text = (ROOT / "docs" / "start.md").read_text()
    snippet = text.partition("```python\n")[2].partition("```")[0]
    subprocess.run([sys.executable, "-c", snippet], cwd=folder, check=True)


def make_reports(folder: Path, scratch: Path) -> None:
    """Write the reports to a folder. Decompositions that are there already are kept."""
    folder.mkdir(parents=True, exist_ok=True)
    (scratch / "datasets").mkdir(parents=True, exist_ok=True)
    if not (folder / "sample.html").exists():
        shutil.copy(ROOT / "datasets" / "sample.h5", scratch / "datasets")
        sample = ("datasets/sample.h5", "--truth", "true_rewards", "--out", "sample-grd")
        call(scratch, "decompose", *sample)
        shutil.copy(scratch / "sample-grd" / "report.html", folder / "sample.html")
    if not (folder / "trips.html").exists():
        write_trips(scratch)
        columns = "step=minute,actions=throttle,return=fuel,truth=burnt"
        call(scratch, "decompose", "trips.csv", "--columns", columns, "--truth", "true_rewards")
        shutil.copy(scratch / "trips-grd" / "report.html", folder / "trips.html")
    runs = RESULTS / "online"
    call(scratch, "report", runs / "HalfCheetah-v5", "-o", folder / "online.html")
    call(scratch, "compare", *sorted(runs.glob("*-1000000*")), "--out", "comparison")
    shutil.copy(scratch / "comparison" / "report.html", folder / "comparison.html")
    judged = lay_out_judgement(RESULTS / "judge" / JUDGED, scratch / "judgement")
    call(scratch, "report", judged, "-o", folder / "judgement.html")
