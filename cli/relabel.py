"""`grd-offline relabel`: rewards of a saved model for another dataset."""

from pathlib import Path
from typing import Any

import click

from grd_offline.core.errors import DataError
from grd_offline.core.words import count
from grd_offline.io.files import beside

from .jobs import Where, run_parts, runner_options
from .options import command, option, out_option, reading_options, workers_option
from .text import echo, print_warning


@command()
@click.argument("file")
@option(
    "--model", type=click.Path(path_type=Path), required=True, help="Folder of a decomposition."
)
@out_option(
    "What to write.  [default: FILE without its ending, plus -relabelled.h5, or -relabelled for a "
    "folder of parts]"
)
@option("--exact-returns", is_flag=True, help="Make every episode sum to its return exactly.")
@runner_options("parts")
@workers_option(
    "For parts: number of parts that this machine works on at the same time.",
    kind=click.IntRange(min=1),
)
@reading_options
def relabel(
    file: str, model: Path, out: Path | None, where: Where, workers: int | None, **options: Any
) -> None:
    """Write a dataset with the rewards of a model that was learned before.

    The old rewards are kept in the field observed_rewards. The data must have the same dimensions
    as those of the model. A table must have the same columns, but needs no outcomes, and its
    rewards are also written as a table.

    FILE can be a folder of parts, as `collect --parts` writes it. Then each part is relabelled into
    a part of another folder, on this machine or on a cluster. The same command again continues
    with the parts that are missing.

    \b
    Examples:
      grd-offline relabel other.h5 --model hc-grd --out other-relabelled.h5
      grd-offline relabel more-trips.csv --model trips-grd
      grd-offline relabel hopper --model hopper-grd --runner ray --address auto
    """
    from grd_offline.io.formats.parts import find_parts

    if find_parts(Path(file)):
        _relabel_parts(file, model, out, where, workers, options)
        return
    if not Path(file).exists() and not file.startswith("minari:"):
        raise DataError("no such file", file=file)
    if where.kind != "local" or workers is not None:
        raise click.UsageError("--runner ray and --workers are for a folder of part-00000.h5 files")
    from grd_offline.methods.relabelling import relabel as run

    from .display import show_stages

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


def _relabel_parts(
    file: str,
    model: Path,
    out: Path | None,
    where: Where,
    workers: int | None,
    options: dict[str, Any],
) -> None:
    """Relabel a folder of parts into another one."""
    from grd_offline.lab.sweep.parts import plan_relabelling

    if options.pop("columns") is not None or options.pop("returns") is not None:
        raise DataError("--columns and --returns are for tables (.csv, .parquet)", file=file)
    target = out if out is not None else beside(file, "-relabelled")
    if target.suffix in (".h5", ".hdf5"):
        raise DataError("expected the name of a folder, because FILE is one", file=target)
    if target.resolve() == Path(file).resolve():
        raise DataError("IN and OUT are the same", file=file)
    plan = plan_relabelling(file, model, **options)
    missing = len(plan.manifest.parts) - len(plan.jobs)
    if missing > 0:
        print_warning(f"{file}: {missing} of {len(plan.manifest.parts)} parts are not there yet")
    run_parts(target, plan, where, workers)
    echo(f"wrote {target}: {count(len(plan.jobs), 'part')}")
