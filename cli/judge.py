"""`grd-offline judge`: which method's rewards teach a policy the most."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from grd_offline.core.words import count, format_percentage
from grd_offline.io.files.naming import beside
from grd_offline.learning.offline.settings import JUDGED, OfflineSettings
from grd_offline.methods.registry import AUTO, list_fits, list_judged

from .help import Command
from .live import Terminal, format_correlation
from .options import NamesOption, NamesType, NameType, out_option, setting_option
from .progress import show_stages
from .report import leave_report
from .text import echo
from .train_offline import pick_training, training_options

if TYPE_CHECKING:
    from grd_offline.lab.judge import Found, JudgingResult

    from .forecast import Forecast


@click.command(
    cls=Command,
    epilog="""
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
    """,
)
@click.argument("file")
@setting_option(
    OfflineSettings,
    "environment",
    required=True,
    help="Gymnasium id of the environment to evaluate in. The name alone means its latest version.",
)
@click.option(
    "--methods",
    cls=NamesOption,
    type=NamesType(list_judged),
    default=",".join(JUDGED),
    show_default=True,
    help="Methods to compare. grd-next-state is grd with the next state as a further input.",
)
@click.option(
    "--fit",
    cls=NamesOption,
    type=NameType(list_fits()),
    default=AUTO,
    show_default=True,
    help="Model of the reward that grd fits. auto compares several.",
)
@click.option(
    "--observed/--no-observed",
    default=True,
    show_default=True,
    help="Also train on the delayed rewards as they are.",
)
@training_options
@out_option("Folder for the results.  [default: FILE without its ending, plus -judge]")
def judge(
    file: str, out: Path | None, methods: tuple[str, ...], fit: str, observed: bool, **options: Any
) -> None:
    """Measure how well policies learn from the rewards of each method.

    The command decomposes FILE with several methods, trains policies on the rewards of each method,
    and compares the true returns of these policies. FILE holds episodes with delayed rewards, as
    `grd-offline collect` writes them. If FILE also holds the true rewards (collect
    --keep-true-rewards), policies are trained on them too, and each method is compared with them.
    All policies of all methods are trained at once.
    """
    from grd_offline.lab.judge import judge

    settings = pick_training(options)
    folder = out if out is not None else beside(file, "-judge")
    with _Display() as terminal:
        result = judge(
            file, folder, environment=options["environment"], methods=methods, fit=fit,
            observed=observed, observer=terminal, **settings,
        )  # fmt: skip
    if result.verdicts:
        _print_table(result)
        _tell_unsteady(result.unsteady, options["seeds"])
        leave_report(folder)
        echo(f"wrote {folder}: judge.json, judge.csv, run/")
    else:
        echo("stopped before the first evaluation: there is nothing to compare")
    if terminal.stop.is_set():
        raise SystemExit(128 + terminal.stop.signal_number)


class _Display(Terminal):
    """Shows the decomposition by each method, and then the training."""

    def __init__(self) -> None:
        super().__init__()
        self._stages = self._open.enter_context(ExitStack())
        self._forecast: Forecast | None = None

    def on_start(self, work: Any) -> None:
        if isinstance(work, str):
            self._forecast = self._stages.enter_context(show_stages((work,)))
        else:
            super().on_start(work)

    def on_progress(self, stage: str, share: float) -> None:
        if self._forecast is not None:
            self._forecast.hear(stage, share)
        else:
            super().on_progress(stage, share)

    def on_result(self, work: Any, result: Any) -> None:
        if isinstance(work, str):
            self._stages.close()
            self._forecast = None
            _tell_rewards(work, result)
        else:
            super().on_result(work, result)


def _tell_rewards(method: str, found: Found) -> None:
    line = f"{method}: {found.about['fit']} in {found.about['seconds']:.1f} s"
    if "against_truth" in found.about:
        line += f", Pearson {found.about['against_truth']['pearson']:.3f} with the true rewards"
    echo(line, err=True)


def _print_table(result: JudgingResult) -> None:
    from rich.console import Console
    from rich.table import Table

    from grd_offline.io.files.judgement import TRUE
    from grd_offline.lab.judge import LAST

    from .live import format_point
    from .run_state import Point

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("rewards", overflow="fold")
    for title in ("return", "of true", "of true's gain", "Pearson"):
        table.add_column(title, justify="right", no_wrap=True)
    for verdict in result.verdicts:
        table.add_row(
            verdict.source,
            format_point(Point(0, verdict.mean, verdict.spread), len(verdict.scores)),
            format_percentage(verdict.share_of_true),
            format_percentage(verdict.share_of_gain),
            "-" if verdict.pearson is None else format_correlation(verdict.pearson),
        )
    console = Console(highlight=False)
    console.print(table)
    seeds = len(result.verdicts[0].scores)
    words = (
        f"return: true, mean ± standard deviation over {count(seeds, 'seed')} of the mean "
        f"of the last {count(min(LAST, result.evaluations), 'evaluation')}"
    )
    if result.data_mean_return is not None:
        words += f"; the data have {format_point(Point(0, result.data_mean_return, 0.0), 1)}"
    if any(verdict.source == TRUE for verdict in result.verdicts):
        words += ", above which gain begins; Pearson: with the true rewards, per step"
    console.print(words, style="dim")


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
