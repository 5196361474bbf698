"""`grd-offline inspect`: show the contents of a dataset."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import click

from grd_offline.core.errors import printable
from grd_offline.core.words import count

from .options import command, option, reading_options

if TYPE_CHECKING:
    from rich.table import Table

    from grd_offline.io.formats.summary import Summary

_BARS = " ▁▂▃▄▅▆▇█"
_ROWS = 40


@command()
@click.argument("file")
@option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@reading_options
def inspect(file: str, as_json: bool, **reading: Any) -> None:
    """Show what a dataset holds: layout, episodes, returns, names and warnings.

    FILE is an HDF5 file in a known layout (own, Minari, D4RL, d3rlpy or robomimic), a folder of
    such files (part-00000.h5 and so on), a Minari folder, a table with one row per step (.csv or
    .parquet), a LeRobot folder, or JSON lines of conversation turns with a score (.jsonl).
    minari:ID is a dataset of Minari's library, which is downloaded if needed.

    \b
    Examples:
      grd-offline inspect hc.h5
      grd-offline inspect hc.h5 --json | jq .returns.mean
      grd-offline inspect minari:mujoco/halfcheetah/medium-v0
      grd-offline inspect old-d4rl.hdf5 --max-episode-steps 1000
      grd-offline inspect trips.csv --columns episode=trip,return=fuel
    """
    from grd_offline.io.datasets import open_recording
    from grd_offline.io.formats.summary import summarise

    from .display import show_progress

    with (
        open_recording(file, **reading) as recording,
        show_progress("reading", len(recording), unit="episodes", work="steps") as advance,
    ):
        summary = summarise(recording, file, on_episode=lambda steps: advance(1, steps))
    if as_json:
        click.echo(json.dumps(_as_json(file, summary), indent=1))
    else:
        _show(file, summary)


def _as_json(file: str, summary: Summary) -> dict[str, Any]:
    from grd_offline.io.formats.summary import measure

    def numbers(values: Any) -> dict[str, float | None]:
        # JSON has no infinity, which sums of huge rewards can be.
        found = measure(values)._asdict().items()
        return {name: value if math.isfinite(value) else None for name, value in found}

    values = (summary.minimum, summary.maximum, summary.mean, summary.deviation)
    columns = dict(
        zip(("min", "max", "mean", "std"), (one.tolist() for one in values), strict=True)
    )
    names = (*summary.observation_names, *summary.action_names)
    dimensions = [
        {"name": name, **{key: column[i] for key, column in columns.items()}}
        for i, name in enumerate(names)
    ]
    as_they_are = (
        "terminated", "truncated", "convention", "has_final_observations", "delay", "deliveries",
        "discrete_actions",
    )  # fmt: skip
    return {
        "file": file,
        "layout": summary.layout,
        "columns": summary.columns,
        "environment": summary.environment,
        "episodes": len(summary.lengths),
        "steps": int(summary.lengths.sum()),
        "lengths": numbers(summary.lengths),
        "returns": numbers(summary.returns),
        **{name: getattr(summary, name) for name in as_they_are},
        "observations": dimensions[: len(summary.observation_names)],
        "actions": dimensions[len(summary.observation_names) :],
        "extras": summary.extras,
        "warnings": summary.warnings,
    }


def _show(file: str, summary: Summary) -> None:
    from rich.console import Console
    from rich.text import Text

    from grd_offline.io.formats.summary import measure

    from .text import print_facts, print_text

    lengths, returns = summary.lengths, measure(summary.returns)
    ends = [
        f"{number:,} {word}"
        for number, word in (
            (summary.terminated, "terminated"),
            (summary.truncated, "truncated"),
            (len(lengths) - summary.terminated - summary.truncated, "unfinished"),
        )
        if number
    ]
    facts = {
        "layout": summary.layout,
        **({} if summary.columns is None else {"columns": printable(summary.columns)}),
        "environment": summary.environment or "not known",
        "episodes": f"{len(lengths):,} ({', '.join(ends)})",
        "steps": f"{lengths.sum():,}",
        "lengths": f"{lengths.min():,} to {lengths.max():,}, mean {lengths.mean():,.1f}",
        "returns": f"{returns.min:.4g} to {returns.max:.4g}, mean {returns.mean:.4g}, "
        f"sd {returns.std:.4g}",
        "": _histogram(summary.returns),
        "rewards": f"{summary.delivery} ({summary.deliveries:,} in all)",
        "alignment": summary.convention,
        "states": count(len(summary.observation_names), "dimension"),
        "actions": count(len(summary.action_names), "dimension")
        + (" (discrete choices as one-hot)" if summary.discrete_actions else ""),
        "further fields": ", ".join(summary.extras) or "none",
    }
    console = Console(highlight=False)
    console.print(Text(file, style="bold cyan"))
    print_facts(console, facts)
    console.print(_dimension_table(summary))
    for warning in summary.warnings:
        print_text(console, f"warning: {warning}", "yellow")


def _dimension_table(summary: Summary) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("dimension", overflow="fold")
    for title in ("min", "mean", "max", "sd"):
        table.add_column(title, justify="right", no_wrap=True)
    names = summary.observation_names + summary.action_names
    for i, name in enumerate(names[:_ROWS]):
        columns = (summary.minimum, summary.mean, summary.maximum, summary.deviation)
        table.add_row(Text(printable(name)), *(f"{column[i]:.4g}" for column in columns))
    if len(names) > _ROWS:
        table.add_row(f"and {len(names) - _ROWS} more (--json lists all)")
    return table


def _histogram(values: Any, bins: int = 40) -> str:
    import numpy as np

    size = float(np.abs(values).max()) or 1.0
    if not math.isfinite(size):
        return ""
    # Equal parts of the range as numbers from 0 to 1: huge numbers lie too close together for it.
    scaled = values / size
    width = float(np.ptp(scaled))
    places = (scaled - scaled.min()) / width if width > 0 else np.full(len(values), 0.5)
    counts, _ = np.histogram(places, bins=bins, range=(0, 1))
    levels = np.ceil(counts / counts.max() * (len(_BARS) - 1)).astype(int)
    return "".join(_BARS[level] for level in levels)
