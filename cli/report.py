"""`grd-offline report`: the page of a decomposition, or of runs."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(
    epilog="""
    \b
    Examples:
      grd-offline report hc-grd
      grd-offline report hc-grd --video --env HalfCheetah
      grd-offline report runs/Walker2d-grd
      grd-offline report runs/Walker2d-grd runs/Walker2d-rrd -o both.html
    """
)
@click.argument(
    "folders", metavar="FOLDER...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
@click.option(
    "-o",
    "--out",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="What to write.  [default: report.html in the first folder]",
)
@click.option("--video", is_flag=True, help="Film three episodes of a decomposition; needs --env.")
@click.option("--env", "environment", help="Environment to film in: a Gymnasium id or short name.")
def report(
    folders: tuple[Path, ...], out: Path | None, video: bool, environment: str | None
) -> None:
    """Make one page to look at, which opens offline in any browser.

    FOLDER is what `grd-offline decompose` wrote, or a run of `train-online`; several runs are
    compared on one page. The environment of a video is the one that is named here, never one that
    a file names.
    """
    from grd_offline.report import REPORT_FILE, report_decomposition, report_runs
    from grd_offline.report.viewer import is_decomposition
    from grd_offline.storage import replace_file

    filmed = check_video(video, environment)
    if any(is_decomposition(folder) for folder in folders):
        if len(folders) > 1:
            raise click.UsageError("expected one decomposition, or one or more runs")
        page = report_decomposition(folders[0], video=filmed)
    elif filmed is not None:
        raise click.UsageError("--video: only episodes of a decomposition can be filmed")
    else:
        page = report_runs(folders)
    path = out if out is not None else folders[0] / REPORT_FILE
    with replace_file(path) as output:
        output.write(page.encode())
    click.echo(f"wrote {path}")


def check_video(video: bool, environment: str | None) -> str | None:
    """The environment to film in, or None."""
    if video != (environment is not None):
        raise click.UsageError("--video and --env go together: name the environment to film in")
    if environment is None:
        return None
    from grd_offline.environments import resolve_environment_id

    return resolve_environment_id(environment)
