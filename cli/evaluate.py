"""`grd-offline evaluate`: compare a decomposition with the true rewards."""

import json
from pathlib import Path
from typing import Any

import click

from .options import command, option, path_argument, reading_options


@command()
@path_argument("folder")
@option(
    "--truth",
    metavar="FIELD",
    required=True,
    help="Field of the data, or column of a table, that holds the true rewards.",
)
@option(
    "--data",
    metavar="FILE",
    help="Compare on this dataset. The default is the relabelled data in FOLDER.",
)
@option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@reading_options
def evaluate(folder: Path, truth: str, data: str | None, as_json: bool, **reading: Any) -> None:
    """Compare a decomposition with the true rewards.

    FOLDER is a folder that `grd-offline decompose` wrote. The command prints correlations over all
    steps and within episodes. The error is what remains after the best affine fit, as a fraction of
    the variance of the true rewards. If the true masks are known, they are compared too.

    The columns of a table have the roles that they had in `decompose`. Use --columns if they are
    called differently.

    \b
    Examples:
      grd-offline evaluate hc-grd --truth true_rewards
      grd-offline evaluate hc-grd --truth true_rewards --data held-out.h5 --json
      grd-offline evaluate trips-grd --truth burnt --data more-trips.csv
    """
    from grd_offline.methods.relabelling import compare_with_truth

    result = compare_with_truth(folder, truth, data, **reading)
    if as_json:
        click.echo(json.dumps(result, indent=1))
        return
    for name, value in result["rewards"].items():
        click.echo(f"{name:26} {value:.4f}")
    for name, scores in result.get("masks", {}).items():
        click.echo(
            f"{name:26} F1 {scores['f1']:.3f}, precision {scores['precision']:.3f}, "
            f"recall {scores['recall']:.3f}"
        )
