"""Names in the folder of a sweep, for who reads it and for who looks for runs in it."""

from pathlib import Path

from grd_offline.io.files.plain import folder_errors, read_json

SWEEP_FILE = "sweep.json"
JOBS_FOLDER, RESULT_FOLDER = "jobs", "result"


def is_sweep(folder: Path) -> bool:
    return (folder / SWEEP_FILE).is_file()


def list_results(folder: Path) -> list[Path]:
    """Where the jobs of a sweep write, in its order. Jobs of earlier versions of its file are not
    among them."""
    path = folder / SWEEP_FILE
    contents = read_json(path)
    with folder_errors(path, "cannot be read as a sweep"):
        names = [check_job_name(str(job["name"])) for job in contents["jobs"]]
    return [folder / JOBS_FOLDER / name / RESULT_FOLDER for name in names]


def check_job_name(name: str) -> str:
    """Refuse a name that leads out of the folder of the jobs."""
    if Path(name).name != name or name in ("", ".."):
        raise ValueError(f"expected the name of a job, got {name[:40]!r}")
    return name
