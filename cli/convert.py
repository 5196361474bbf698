"""`grd-offline convert`: convert a dataset to another layout without loss."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from grd_offline.core.errors import DataError
from grd_offline.core.words import count

from .options import command, option, reading_options
from .text import echo, print_warning

if TYPE_CHECKING:
    from grd_offline.io.datasets import Record, Recording

    from .display import Advance


def _check_layout(ctx: click.Context, parameter: click.Parameter, name: str) -> str:
    from grd_offline.io.datasets import list_writable_layouts

    known = list_writable_layouts()
    if name not in known:
        raise click.BadParameter(f"{name!r} is not one of {', '.join(known)}.")
    return name


@command()
@click.argument("source", metavar="IN")
@click.argument("destination", metavar="OUT")
@option(
    "--to",
    "layout",
    callback=_check_layout,
    metavar="LAYOUT",
    default="own",
    help="Layout to write. own is one file with names and settings. minari is a folder that Minari "
    "loads. d4rl is one flat file with timeouts and next_observations.",
)
@reading_options
def convert(source: str, destination: str, layout: str, **reading: Any) -> None:
    """Convert a dataset to another layout. Every array and every name is kept.

    IN is any dataset that `grd-offline inspect` reads. If OUT exists, it is replaced once the new
    dataset is complete on the disk.

    \b
    Examples:
      grd-offline convert hopper-medium.hdf5 hopper.h5 --to own
      grd-offline convert hc.h5 hc-minari --to minari
      grd-offline convert trips.csv trips.h5 --to own
      grd-offline convert minari:mujoco/halfcheetah/medium-v0 hc.hdf5 --to d4rl
    """
    from grd_offline.io.datasets import is_same_place, open_recording, write_dataset
    from grd_offline.io.tables.results import find_columns

    from .display import show_progress

    if is_same_place(source, destination):
        raise DataError("IN and OUT are the same", file=source)
    with (
        open_recording(source, **reading) as recording,
        show_progress("converting", len(recording), unit="episodes", work="steps") as advance,
    ):
        records, lengths = _checked(recording, source, advance), recording.lengths
        warnings = write_dataset(
            destination, recording.header, records, layout=layout, lengths=lengths
        )
        episodes, steps = len(recording), int(lengths.sum())
        warnings = [*recording.warnings, *warnings]
        columns = find_columns(recording)
    for warning in warnings:
        print_warning(warning)
    if columns is not None:
        echo(f"columns: {columns}")
    echo(
        f"wrote {destination}: {count(episodes, 'episode')}, {count(steps, 'step')}, "
        f"from {recording.layout} to {layout}"
    )


def _checked(recording: Recording, source: str, advance: Advance) -> Iterator[Record]:
    """Yield every record after the checks that a fit would make."""
    from grd_offline.io.datasets import as_episode, find_delay, locate

    delay = find_delay(recording)
    for index, record in enumerate(recording):
        with locate(source, index):
            as_episode(record, recording.header, delay)
        yield record
        advance(1, len(record.rewards))
