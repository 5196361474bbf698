"""`grd-offline collect`: run a policy in an environment and store what a learner would see."""

from __future__ import annotations

import difflib
import os
import shlex
import tempfile
import time
import tomllib
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from .options import make_settings_option, parse_argument, print_warning
from .progress import Advance, format_bytes, show_progress
from .signals import Stop, catch_signals

if TYPE_CHECKING:
    from grd_offline.collecting import CollectSettings
    from grd_offline.formats import Record


def _load_settings() -> CollectSettings:
    from grd_offline.collecting import CollectSettings

    return CollectSettings("any")


SettingsOption = make_settings_option(_load_settings)


def parse_delay(value: Any) -> int | str:
    """`end`, or a number of steps."""
    if value == "end" or isinstance(value, int):
        return value  # type: ignore[no-any-return]
    try:
        return int(value)
    except (TypeError, ValueError):
        raise click.BadParameter(f"expected 'end' or a number of steps, got {value!r}") from None


def read_recipe(ctx: click.Context, _: click.Parameter, path: Path | None) -> Path | None:
    """Make a recipe's values the defaults of the options that have their names."""
    from grd_offline.errors import DataError

    if path is None:
        return None
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise DataError(f"cannot be read: {error}", file=path) from None
    options = {
        option.opts[-1].removeprefix("--"): option
        for option in ctx.command.params
        if option.name not in ("recipe", "help")
    }
    defaults = {}
    for key, value in values.items():
        if key not in options:
            near = difflib.get_close_matches(key, options, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(options)}"
            raise DataError(f"unknown key, {hint}", file=path, field=key)
        try:
            defaults[str(options[key].name)] = _understand(ctx, options[key], value)
        except click.BadParameter as error:
            raise DataError(error.message, file=path, field=key) from None
    ctx.default_map = defaults
    return path


def _understand(ctx: click.Context, option: click.Parameter, value: Any) -> Any:
    """What an option makes of a recipe's value; refuses 3.7 for a whole number and the like."""
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


@click.command(epilog="The same seed gives the same data, whatever the number of workers.")
@click.option("--env", required=True, help="Gymnasium id, or the name alone (the latest version).")
@click.option(
    "--env-arg",
    type=parse_argument,
    metavar="KEY=VALUE",
    multiple=True,
    help="Argument for the environment; JSON or text. Repeatable.",
)
@click.option(
    "--episodes",
    cls=SettingsOption,
    type=click.IntRange(min=1),
    show_default=True,
    help="Number of episodes.",
)
@click.option(
    "--policy",
    cls=SettingsOption,
    metavar="random|explore|RUN",
    show_default=True,
    help="explore: noise, drifting noise or a gait, another in each episode. RUN: folder of a "
    "training run, of a member of it, or of one policy.",
)
@click.option(
    "--checkpoints",
    cls=SettingsOption,
    metavar="best|last|all|FIRST:LAST",
    show_default=True,
    help="Which policies of RUN, by steps of training; each episode draws one of them.",
)
@click.option(
    "--policy-noise",
    cls=SettingsOption,
    type=click.Choice(["deterministic", "sampled"]),
    show_default=True,
    help="Whether the policies of RUN act with noise, as they explored.",
)
@click.option(
    "--random-share",
    cls=SettingsOption,
    type=click.FloatRange(0, 1),
    show_default=True,
    help="With RUN: so many of the episodes act at random instead, 0.25 for a quarter.",
)
@click.option(
    "--switch-every",
    type=click.IntRange(min=1),
    metavar="STEPS",
    help="With RUN: draw who acts anew after so many steps.  [default: once an episode]",
)
@click.option(
    "--seed",
    cls=SettingsOption,
    type=click.IntRange(min=0),
    show_default=True,
    help="Decides the data.",
)
@click.option(
    "--workers",
    cls=SettingsOption,
    type=click.IntRange(min=1),
    show_default=True,
    help="Processes; by default one per core.",
)
@click.option(
    "--delay",
    cls=SettingsOption,
    type=parse_delay,
    metavar="end|K",
    show_default=True,
    help="Hand out the reward at the end, or every K steps and at the end.",
)
@click.option(
    "--discount",
    cls=SettingsOption,
    type=float,
    show_default=True,
    help="Of the rewards within what is handed out.",
)
@click.option(
    "--keep-true-rewards",
    is_flag=True,
    help="Also store each step's reward, to judge a decomposition by.",
)
@click.option(
    "--max-episode-steps",
    type=click.IntRange(min=1),
    help="Truncate episodes here.  [default: the environment's limit, else 1000]",
)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="File to write.")
@click.option(
    "--recipe",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    is_eager=True,
    callback=read_recipe,
    help="TOML file with any of these options; those given here come first.",
)
@click.pass_context
def collect(
    ctx: click.Context,
    /,
    env: str,
    env_arg: tuple[tuple[str, Any], ...],
    out: Path,
    recipe: Path | None,
    **options: Any,
) -> None:
    """Collect episodes whose reward arrives only at the end.

    Runs a policy in a Gymnasium environment and writes one HDF5 file. Ctrl-C keeps the episodes
    that are finished in a file of their own, OUT with .partial before its ending; a second Ctrl-C
    keeps nothing.

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
    """
    # Before numpy is imported: workers are what uses the cores here, and one thread in each place
    # keeps results the same wherever an episode runs.
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    from grd_offline.collecting import CollectSettings
    from grd_offline.errors import DataError

    if ":" in env and ctx.get_parameter_source("env") is not ParameterSource.COMMANDLINE:
        raise DataError(
            f"{env} imports a Python module: if you trust it, add --env {shlex.quote(env)}",
            file=recipe,
            field="env",
        )
    recipe_args = (ctx.default_map or {}).get("env_arg", ())
    settings = CollectSettings(
        environment=env, env_args={**dict(recipe_args), **dict(env_arg)}, **options
    )
    check_destination(out)
    with catch_signals(impatient=True) as stop:
        try:
            tally = write_episodes(settings, out, stop)
        except KeyboardInterrupt:
            tally = Tally()
    if tally.episodes == settings.episodes:
        click.echo(tally.describe(out))
        return
    if tally.episodes:
        click.echo(
            f"stopped: {tally.episodes} of {settings.episodes} episodes are in "
            f"{partial_path(out)}; {out} was not written"
        )
    else:
        click.echo("stopped: nothing was written")
    raise SystemExit(128 + stop.signal_number)


def check_destination(out: Path) -> None:
    """Refuse a place that cannot be written to before any time is spent."""
    from grd_offline.errors import StorageError

    if out.is_dir():
        raise StorageError(f"{out}: is a folder, expected the name of a file")
    if not out.parent.is_dir():
        raise StorageError(f"{out}: cannot be written: the folder {out.parent} does not exist")
    try:
        with tempfile.TemporaryFile(dir=out.parent):
            pass
    except OSError as error:
        raise StorageError(
            f"{out}: cannot be written: {error.strerror} in the folder {out.parent}"
        ) from None


def partial_path(out: Path) -> Path:
    """Where a run that is stopped leaves what it has."""
    return out.with_name(f"{out.stem}.partial{out.suffix or '.h5'}")


@dataclass
class Tally:
    """What has been written so far."""

    returns: list[float] = field(default_factory=list)
    steps: int = 0
    begin: float = field(default_factory=time.monotonic)

    @property
    def episodes(self) -> int:
        """Number of episodes."""
        return len(self.returns)

    def watch(self, records: Iterator[Record], advance: Advance) -> Iterator[Record]:
        """Count episodes on their way; one is counted when it has been written."""
        for record in records:
            yield record
            self.returns.append(float(record.rewards.sum()))
            self.steps += len(record.rewards)
            advance(1, len(record.rewards))
        if not self.returns:
            raise KeyboardInterrupt

    def describe(self, path: Path) -> str:
        """One line on what is in the file."""
        import numpy as np

        rate = self.steps / max(time.monotonic() - self.begin, 1e-9)
        return (
            f"{path}: {self.episodes} episodes, {self.steps:,} steps, "
            f"return {np.mean(self.returns):.4g} ± {np.std(self.returns):.4g}, "
            f"{format_bytes(path.stat().st_size)}, {rate:,.0f} steps/s"
        )


def write_episodes(settings: CollectSettings, out: Path, stop: Stop) -> Tally:
    """Collect into `out`, or where that is stopped, into the partial file."""
    from grd_offline.collecting import collect as collect_records
    from grd_offline.errors import StorageError
    from grd_offline.formats import write_dataset

    tally = Tally()
    # Which of the two names the file deserves is known only when it is finished.
    unnamed = out.with_name(f".{out.name}.collecting")
    records: Generator[Record, None, None]
    header, records = collect_records(settings, stop.is_set, print_warning)
    label = f"collecting {header.environment}"
    try:
        with (
            closing(records),
            show_progress(label, settings.episodes, unit="episodes", work="steps") as advance,
        ):
            write_dataset(unnamed, header, tally.watch(records, advance))
        is_complete = tally.episodes == settings.episodes
        unnamed.replace(out if is_complete else partial_path(out))
    except StorageError as error:
        raise StorageError(str(error).replace(str(unnamed), str(out))) from error
    finally:
        unnamed.unlink(missing_ok=True)
    return tally
