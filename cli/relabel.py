"""`grd-offline relabel`: rewards of a saved model for another dataset."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .options import print_warning, reading_options

if TYPE_CHECKING:
    from grd_offline.formats import Record


@click.command(
    epilog="""
    \b
    Examples:
      grd-offline relabel other.h5 --model hc-grd --out other-relabelled.h5
    """
)
@click.argument("file")
@click.option(
    "--model", type=click.Path(path_type=Path), required=True, help="Folder of a decomposition."
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="What to write.  [default: FILE without its ending, plus -relabelled.h5]",
)
@click.option("--exact-returns", is_flag=True, help="Make every episode sum to its return exactly.")
@reading_options
def relabel(
    file: str,
    model: Path,
    out: Path | None,
    exact_returns: bool,
    max_episode_steps: int | None,
    max_size: int | None,
) -> None:
    """Give every step of another dataset the reward of a model that was learned before.

    The observed rewards are kept under observed_rewards. The data must have the same dimensions.
    """
    from grd_offline.errors import DataError
    from grd_offline.formats import open_recording, write_dataset
    from grd_offline.methods.relabelling import check_sizes, relabel_records, relabelled_header
    from grd_offline.rewards.model import RewardModel
    from grd_offline.threads import one_numpy_thread

    from .convert import same_place
    from .naming import beside
    from .progress import show_progress

    reward_model = RewardModel.load(model)
    with (
        one_numpy_thread(),
        open_recording(file, max_episode_steps=max_episode_steps, max_bytes=max_size) as recording,
    ):
        episodes = check_sizes(reward_model, recording, file)
        layout = recording.layout if recording.layout in ("minari", "d4rl") else "own"
        target = out or beside(file, f"-relabelled{'' if layout == 'minari' else '.h5'}")
        if same_place(file, target):
            raise DataError("IN and OUT are the same", file=file)
        about = reward_model.about or {}
        discount = float(about.get("discount", 1.0))
        with show_progress("relabelling", len(recording), unit="episodes", work="steps") as advance:
            records = relabel_records(
                recording, file, reward_model, discount=discount, exact=exact_returns
            )

            def counted() -> Iterator[Record]:
                for record in records:
                    yield record
                    advance(1, len(record.rewards))

            warnings = write_dataset(
                target,
                relabelled_header(recording.header, {"model": dict(about)}),
                counted(),
                layout=layout,
                lengths=recording.lengths,
            )
    for warning in warnings:
        print_warning(warning)
    click.echo(f"wrote {target}: {len(episodes):,} episodes, {episodes.total_steps:,} steps")
