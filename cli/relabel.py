"""`grd-offline relabel`: rewards of a saved model for another dataset."""

from pathlib import Path
from typing import Any

import click

from grd_offline.words import count

from .help import Command
from .options import out_option, print_warning, reading_options
from .text import echo


@click.command(
    cls=Command,
    epilog="""
    \b
    Examples:
      grd-offline relabel other.h5 --model hc-grd --out other-relabelled.h5
      grd-offline relabel more-trips.csv --model trips-grd
    """,
)
@click.argument("file")
@click.option(
    "--model", type=click.Path(path_type=Path), required=True, help="Folder of a decomposition."
)
@out_option("What to write.  [default: FILE without its ending, plus -relabelled.h5]")
@click.option("--exact-returns", is_flag=True, help="Make every episode sum to its return exactly.")
@reading_options
def relabel(file: str, model: Path, out: Path | None, **options: Any) -> None:
    """Write a dataset with the rewards of a model that was learned before.

    The old rewards are kept in the field observed_rewards. The data must have the same dimensions
    as those of the model. A table must have the same columns, but needs no outcomes, and its
    rewards are also written as a table.
    """
    from grd_offline.methods.relabelling import relabel as run

    from .progress import show_stages

    with show_stages() as forecast:
        result = run(file, model, out, progress=forecast.hear, **options)
    for warning in result.warnings:
        print_warning(warning)
    if result.columns is not None:
        echo(f"columns: {result.columns}")
    size = f"{count(result.episodes, 'episode')}, {count(result.steps, 'step')}"
    echo(f"wrote {result.path}: {size}")
    if result.table is not None:
        echo(f"wrote {result.table}: one row per step")
