"""The reports of the gallery, made by the commands that users run."""

from pathlib import Path

ROOT = Path(__file__).parents[2]


def make_reports(folder: Path) -> None:
    """Write the reports to a folder. Reports that are there already are kept."""
    folder.mkdir(parents=True, exist_ok=True)
