"""`grd-offline plot`: figures of training runs and of decompositions, for papers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from grd_offline.io.files import PLOTS_FOLDER

from .options import command, file_option, option, path_argument
from .text import echo

if TYPE_CHECKING:
    from grd_offline.io.files.results import RunRecord
    from grd_offline.methods.result import Decomposition

FORMATS = ("png", "svg", "pdf")


@command()
@path_argument("runs", metavar="RUN...", nargs=-1, required=True)
@file_option("Write only the learning curves of all runs, to this file.")
@option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help="File format.  [default: the ending of FILE, or png]",
)
@option(
    "--metric",
    type=click.Choice(("return", "success", "correlation")),
    default="return",
    help="What the learning curves show: the true return of evaluations, the success rate where "
    "the environment tells it, or the correlation of the found reward with the true reward within "
    "an episode.",
)
def plot(runs: tuple[Path, ...], out: Path | None, form: str | None, metric: str) -> None:
    """Draw figures of runs and decompositions, sized for a column of a paper.

    The figures of each RUN are written to RUN/plots. For a run of train-online they are the
    learning curves (mean and standard deviation over seeds), the share of edges in the masks over
    time, the four masks of one member at its first, middle and last evaluation, and the found and
    true rewards of its last episode. For a run of train-offline there are only learning curves. If
    there are several runs, the folder of the first run also gets one figure that compares them.

    A RUN can also be a folder that decompose wrote. Its figures show effects, masks, returns, and
    the rewards of the episode with the median return.

    \b
    Examples:
      grd-offline plot runs/Walker2d-grd
      grd-offline plot runs/Walker2d-grd --metric correlation --format pdf
      grd-offline plot runs/Walker2d-grd runs/Walker2d-rrd -o comparison.svg
      grd-offline plot hc-grd --format pdf
    """
    form = form or _find_format(out)

    from grd_offline.io.files.plain import folder_errors
    from grd_offline.io.files.results import is_decomposition, read_run
    from grd_offline.methods.result import read_decomposition

    decomposed = [run for run in runs if is_decomposition(run)]
    if out is not None and decomposed:
        raise click.UsageError(
            f"-o: draws learning curves of runs, and {decomposed[0]} is not a run"
        )
    decompositions = {folder: read_decomposition(folder) for folder in decomposed}
    records = [read_run(run) for run in runs if run not in decomposed]
    with folder_errors(runs[0], "does not fit together"):
        _draw(decompositions, records, out, form, metric)


def _draw(
    decompositions: dict[Path, Decomposition],
    records: list[RunRecord],
    out: Path | None,
    form: str,
    metric: str,
) -> None:
    from grd_offline.io.files.storage import make_folder
    from grd_offline.report.figures import (
        draw_comparison,
        draw_decomposition,
        draw_run,
        save_figure,
    )

    if out is not None:
        figures = {out: draw_comparison(records, metric)}
    else:
        drawn = [(path, draw_decomposition(found)) for path, found in decompositions.items()]
        drawn += [(record.path, draw_run(record, metric)) for record in records]
        figures = {
            path / PLOTS_FOLDER / f"{name}.{form}": figure
            for path, named in drawn
            for name, figure in named.items()
        }
        if len(records) > 1:
            file = records[0].path / PLOTS_FOLDER / f"comparison-{metric}.{form}"
            figures[file] = draw_comparison(records, metric)
    for path, figure in figures.items():
        if out is None:
            make_folder(path.parent.parent, path.parent.name)
        save_figure(figure, path, form)
        echo(f"wrote {path}")


def _find_format(out: Path | None) -> str:
    if out is None:
        return "png"
    ending = out.suffix.removeprefix(".").lower()
    if ending not in FORMATS:
        known = ", ".join(f".{form}" for form in FORMATS)
        raise click.UsageError(
            f"{out}: expected a name that ends in {known}, or the option --format"
        )
    return ending
