"""`grd-offline report`: the page of a decomposition, of runs, of a judgement, or of a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from grd_offline.io.files import REPORT_FILE

from .options import command, file_option, path_argument, video_options
from .text import echo, print_warning

if TYPE_CHECKING:
    from grd_offline.lab.sweep.folder import SweepRecord


@command()
@path_argument("folders", metavar="FOLDER...", nargs=-1, required=True)
@file_option("File to write.  [default: report.html in the first folder]")
@video_options("Show frames of three episodes of a decomposition.")
def report(folders: tuple[Path, ...], out: Path | None, video: str | None) -> None:
    """Make a page that opens offline in any browser.

    FOLDER is a folder that `grd-offline decompose`, `judge` or `sweep` wrote, or a run of
    `train-online` or `train-offline`. Several runs are compared on one page. A video uses only the
    environment that you name with --env, never one that a file names.

    \b
    Examples:
      grd-offline report hc-grd
      grd-offline report hc-grd --video --env HalfCheetah
      grd-offline report runs/Walker2d-grd
      grd-offline report runs/Walker2d-grd runs/Walker2d-rrd -o both.html
      grd-offline report hc-judge
      grd-offline report sweeps/main
    """
    from grd_offline.io.files.storage import check_file

    path = folders[0] / REPORT_FILE
    if out is not None:
        path = out
        check_file(path)
    write_page(path, _make_page(folders, video))
    echo(f"wrote {path}")


def leave_report(folder: Path) -> None:
    """Write the page of a new result. If that fails, print a warning and keep the result."""
    try:
        write_page(folder / REPORT_FILE, _make_page([folder]))
    except Exception as error:
        echo(f"warning: no report: {' '.join(str(error).split())}", err=True)
    else:
        echo(f"look at {folder / REPORT_FILE}")


def _make_page(folders: Sequence[Path], filmed: str | None = None) -> str:
    from grd_offline.io.files.results import (
        has_outcomes,
        is_decomposition,
        is_judgement,
        is_sweep,
        read_judgement,
        read_run,
    )
    from grd_offline.lab.sweep.folder import read_sweep
    from grd_offline.methods.result import read_decomposition, read_outcomes
    from grd_offline.report import (
        make_decomposition_page,
        make_judgement_page,
        make_outcomes_page,
        make_run_page,
    )

    if len(folders) == 1 and has_outcomes(folders[0]) and filmed is None:
        return make_outcomes_page(*read_outcomes(folders[0]))
    decomposed = any(is_decomposition(folder) for folder in folders)
    judged = any(is_judgement(folder) for folder in folders)
    swept = any(is_sweep(folder) for folder in folders)
    if (decomposed or judged or swept) and len(folders) > 1:
        raise click.UsageError(
            "expected one decomposition, one judgement, one sweep, or one or more runs"
        )
    if decomposed:
        record = read_decomposition(folders[0])
        return make_decomposition_page(record, video=filmed, warn=print_warning)
    if filmed is not None:
        raise click.UsageError("--video: only a decomposition has episodes to show")
    if swept:
        return make_sweep(read_sweep(folders[0]))
    if judged:
        return make_judgement_page(read_judgement(folders[0]))
    return make_run_page([read_run(folder) for folder in folders])


def make_sweep(record: SweepRecord) -> str:
    """Make the page of a sweep."""
    from grd_offline.lab.sweep.folder import compare_sweep, list_jobs
    from grd_offline.report import make_sweep_page

    compared = compare_sweep(record)
    comparison = None if isinstance(compared, str) else compared[0]
    return make_sweep_page(record.title, record.about, list_jobs(record), comparison)


def write_page(path: Path, page: str) -> None:
    """Write a page in full or not at all."""
    from grd_offline.io.files.storage import replace_file

    with replace_file(path) as output:
        output.write(page.encode())
