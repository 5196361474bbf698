"""`grd-offline judge`: which method's rewards teach a policy the most."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from grd_offline.core.words import count, format_percentage
from grd_offline.io.files import beside
from grd_offline.learning.offline.settings import JUDGED, OfflineSettings
from grd_offline.methods.registry import AUTO, list_fits, list_judged

from .options import NamesType, command, option, out_option, setting_option
from .report import leave_report
from .text import echo, print_table, print_text
from .train_offline import tell_unused, training_options

if TYPE_CHECKING:
    from grd_offline.lab.judge import JudgingResult


@command()
@click.argument("file")
@setting_option(
    OfflineSettings,
    "environment",
    required=True,
    help="Gymnasium id of the environment to evaluate in. The name alone means its latest version.",
)
@option(
    "--methods",
    type=NamesType(list_judged),
    default=",".join(JUDGED),
    help="Methods to compare. grd-next-state is grd with the next state as a further input.",
)
@option(
    "--fit",
    type=click.Choice(list_fits()),
    default=AUTO,
    help="Model of the reward that grd fits. auto compares several.",
)
@option(
    "--observed/--no-observed",
    default=True,
    help="Also train on the delayed rewards as they are.",
)
@training_options
@out_option("Folder for the results.  [default: FILE without its ending, plus -judge]")
def judge(file: str, out: Path | None, **given: Any) -> None:
    """Measure how well policies learn from the rewards of each method.

    The command decomposes FILE with several methods, trains policies on the rewards of each method,
    and compares the true returns of these policies. FILE holds episodes with delayed rewards, as
    `grd-offline collect` writes them. If FILE also holds the true rewards (collect
    --keep-true-rewards), policies are trained on them too, and each method is compared with them.
    All policies of all methods are trained at once.

    \b
    Examples:
      grd-offline judge hc.h5 --env HalfCheetah
      grd-offline judge hc.h5 --env HalfCheetah --methods grd,grd-next-state,rrd,uniform \\
          --algo td3bc --alpha 20 --seeds 5 --device cuda --out hc-judge
      grd-offline judge factored.h5 --env grd/Factored-v0 --seeds 2 --updates 5000 --eval-every 1000
      grd-offline report hc-judge
      grd-offline plot hc-judge/run

    A score is the mean of the last three evaluations. It is not the best evaluation, because nobody
    can choose that one without the true returns.
    """
    from grd_offline.lab.judge import judge

    from .display import Terminal

    tell_unused(given["algorithm"])
    folder = out if out is not None else beside(file, "-judge")
    with Terminal() as terminal:
        line = ["grd-offline", *sys.argv[1:]]
        result = judge(file, folder, observer=terminal, command=line, **given)
    if result.verdicts:
        _print_table(result)
        _tell_unsteady(result.unsteady, given["seeds"])
        leave_report(folder)
        echo(f"wrote {folder}: judge.json, judge.csv, run/")
    else:
        echo("stopped before the first evaluation: there is nothing to compare")
    terminal.stop.leave()


def _print_table(result: JudgingResult) -> None:
    from rich.console import Console

    from grd_offline.io.files.results import TRUE
    from grd_offline.lab.judge import LAST

    from .display import Point, format_correlation, format_point

    rows = [
        (
            verdict.source,
            format_point(Point(0, verdict.mean, verdict.spread), len(verdict.scores)),
            format_percentage(verdict.share_of_true),
            format_percentage(verdict.share_of_gain),
            format_correlation(verdict.pearson),
        )
        for verdict in result.verdicts
    ]
    print_table(("rewards", "return", "of true", "of true's gain", "Pearson"), rows, ("rewards",))
    seeds = len(result.verdicts[0].scores)
    words = (
        f"return: true, mean ± standard deviation over {count(seeds, 'seed')} of the mean "
        f"of the last {count(min(LAST, result.evaluations), 'evaluation')}"
    )
    if result.data_mean_return is not None:
        words += f"; the data have {format_point(Point(0, result.data_mean_return, 0.0), 1)}"
    if any(verdict.source == TRUE for verdict in result.verdicts):
        words += ", above which gain begins; Pearson: with the true rewards, per step"
    print_text(Console(highlight=False), words, "dim")


def _tell_unsteady(unsteady: dict[str, list[int]], seeds: int) -> None:
    if not unsteady:
        return
    told = ", ".join(f"{len(lost)} of {seeds} of {name}" for name, lost in unsteady.items())
    echo(
        f"unsteady seeds: {told}. They end with less than two thirds of the gain over the data "
        "that their best evaluation had. Look at the curves before you trust the means, and use "
        "more seeds.",
        err=True,
    )
