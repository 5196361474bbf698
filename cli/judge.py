"""`grd-offline judge`: which method's rewards teach a policy the most."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from grd_offline.files.naming import beside
from grd_offline.methods.registry import AUTO, NEXT_STATE, find_method, list_fits, list_judged
from grd_offline.names import OFFLINE
from grd_offline.offline.settings import OfflineSettings

from .live import format_correlation, format_percentage
from .options import NamesType, NameType, print_warning, setting_option
from .progress import show_stages
from .report import leave_report
from .train_offline import (
    describe_data,
    find_environment,
    make_settings,
    tell_other_environment,
    train,
    training_options,
)

if TYPE_CHECKING:
    from grd_offline.files.judgement import Verdict
    from grd_offline.offline.data import OfflineData
    from grd_offline.offline.judge import Found


@click.command(
    epilog="""
    \b
    Examples:
      grd-offline judge hc.h5 --env HalfCheetah
      grd-offline judge hc.h5 --env HalfCheetah --methods grd,grd-next-state,rrd,uniform \\
          --algo td3bc --alpha 20 --seeds 5 --device cuda --out hc-judge
      grd-offline judge factored.h5 --env grd/Factored-v0 --seeds 2 --updates 5000 \\
          --eval-every 1000
      grd-offline report hc-judge
      grd-offline plot hc-judge/run

    A score is the mean of the last three evaluations, not the best one: to choose that, one would
    have to know the truth.
    """
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
    type=NamesType(list_judged),
    default="grd,uniform,ircr,rrd",
    show_default=True,
    help="Methods to compare. grd-next-state is grd with the next state as a further input.",
)
@click.option(
    "--fit",
    type=NameType(list_fits(), OFFLINE),
    default=AUTO,
    show_default=True,
    help="How grd is fitted.",
)
@click.option(
    "--observed/--no-observed",
    default=True,
    show_default=True,
    help="Also train on the delayed rewards as they are.",
)
@training_options
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Folder for the results.  [default: FILE without its ending, plus -judge]",
)
def judge(
    file: str, out: Path | None, methods: tuple[str, ...], fit: str, observed: bool, **options: Any
) -> None:
    """Decompose with several methods, train policies on each method's rewards, and compare.

    FILE holds episodes with late rewards, as `grd-offline collect` writes them. With
    --keep-true-rewards in there, policies are also trained on the true rewards, and every method is
    told as a share of what those reach. All policies of all methods are trained at once.
    """
    from grd_offline.errors import DataError
    from grd_offline.files.judgement import RUN_FOLDER
    from grd_offline.offline.data import load_data
    from grd_offline.offline.judge import (
        LAST,
        Scores,
        check_data,
        check_names,
        find_references,
        find_unsteady,
        judge_sources,
    )
    from grd_offline.offline.run import check_environment
    from grd_offline.offline.run_folder import OfflineFolder

    check_names(methods, fit)
    found_fits = [find_method(name.removesuffix(NEXT_STATE)).fit for name in methods]
    if fit != AUTO and not any(found_fits):
        print_warning("--fit is for grd: none of these methods has several fits")
    settings = make_settings({**options, "rewards": methods})
    find_environment(settings.environment)
    folder = out if out is not None else beside(file, "-judge")
    OfflineFolder(folder).check_free()
    try:
        data = load_data(
            file, max_episode_steps=options["max_episode_steps"], max_bytes=options["max_size"]
        )
        # Before any time is spent.
        limit = check_environment(settings, data.episodes)
        check_data(data, methods)
        found = find_references(data)
        if not observed:
            found.pop("observed", None)
        _tell_notes(data)
        tell_other_environment(settings, data)
        _tell_horizon(data, limit)
        found |= _decompose(data, methods, fit, options)
    except DataError as error:
        raise error.at(file=file) from None
    settings = replace(settings, rewards=tuple(found))
    scores = Scores()
    stop = train(
        settings,
        data,
        {name: one.rewards for name, one in found.items()},
        folder / RUN_FOLDER,
        file=file,
        options=options,
        observers=[scores],
        alone=False,
    )
    if scores.means:
        verdicts = judge_sources(settings, scores.compute(), data, found)
        unsteady = find_unsteady(settings, scores, data.behaviour_return)
        last = min(LAST, len(scores.means))
        about = {
            "score": f"mean of the last {last} evaluations",
            "unsteady_seeds": unsteady,
            "fit": fit,
            "stopped": stop.is_set(),
        }
        _write(folder, file, data, settings, found, verdicts, about)
        _print_table(verdicts, data, settings, evaluations=len(scores.means))
        _tell_unsteady(unsteady, settings.seeds)
        leave_report(folder)
        click.echo(f"wrote {folder}: judge.json, judge.csv, run/")
    else:
        click.echo("stopped before the first evaluation: there is nothing to compare")
    if stop.is_set():
        raise SystemExit(128 + stop.signal_number)


def _tell_horizon(data: OfflineData, limit: int | None) -> None:
    """Where all episodes of the data were cut at another step than evaluations will be."""
    lengths = set(data.episodes.lengths.tolist())
    cut = not any(bool(episode.terminations[-1]) for episode in data.episodes)
    if len(lengths) == 1 and cut and lengths != {limit}:
        (steps,) = lengths
        click.echo(
            f"warning: the data's episodes have {steps:,} steps, those of evaluations up to "
            f"{limit:,}: --max-episode-steps {steps} makes them alike",
            err=True,
        )


def _tell_notes(data: OfflineData) -> None:
    for warning in data.warnings:
        click.echo(f"note: {warning}", err=True)
    if "true" not in data.rewards:
        click.echo(
            "note: the data hold no true rewards (collect --keep-true-rewards stores them): "
            "returns are told, shares of what the true rewards reach are not",
            err=True,
        )


def _decompose(
    data: OfflineData, methods: tuple[str, ...], fit: str, options: dict[str, Any]
) -> dict[str, Found]:
    from grd_offline.offline.judge import find_rewards
    from grd_offline.runs.process import choose_device

    device, found = choose_device(options["device"]), {}
    for method in methods:
        with show_stages() as report:

            def progress(stage: str, share: float, name: str = method, tell: Any = report) -> None:
                tell(f"decomposing: {name}", share)

            one = find_rewards(
                data, method, fit=fit, seed=options["seed"], device=device, progress=progress
            )
        found[method] = one
        line = f"{method}: {one.about['fit']} in {one.about['seconds']:.1f} s"
        if "against_truth" in one.about:
            line += f", Pearson {one.about['against_truth']['pearson']:.3f} with the true rewards"
        click.echo(line, err=True)
    return found


def _write(
    folder: Path,
    file: str,
    data: OfflineData,
    settings: OfflineSettings,
    found: dict[str, Found],
    verdicts: list[Verdict],
    about: dict[str, Any],
) -> None:
    from grd_offline.files.judgement import write_judgement
    from grd_offline.versions import find_versions

    write_judgement(
        folder,
        verdicts,
        {
            "command": ["grd-offline", *sys.argv[1:]],
            "data": describe_data(file, data),
            "data_mean_return": data.behaviour_return,
            **about,
            "sources": {name: one.about for name, one in found.items()},
            "settings": settings.to_json(),
            "versions": find_versions(),
        },
    )


def _print_table(
    verdicts: list[Verdict], data: OfflineData, settings: OfflineSettings, *, evaluations: int
) -> None:
    from rich.console import Console
    from rich.table import Table

    from grd_offline.offline.judge import LAST

    from .live import count, format_point
    from .run_state import Point

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("rewards", overflow="fold")
    for title in ("return", "of true", "of true's gain", "Pearson"):
        table.add_column(title, justify="right", no_wrap=True)
    for verdict in verdicts:
        table.add_row(
            verdict.source,
            format_point(Point(0, verdict.mean, verdict.spread), len(verdict.scores)),
            format_percentage(verdict.share_of_true),
            format_percentage(verdict.share_of_gain),
            "-" if verdict.pearson is None else format_correlation(verdict.pearson),
        )
    console = Console(highlight=False)
    console.print(table)
    words = (
        f"return: true, mean ± standard deviation over {count(settings.seeds, 'seed')} of the mean "
        f"of the last {count(min(LAST, evaluations), 'evaluation')}"
    )
    if data.behaviour_return is not None:
        words += f"; the data have {format_point(Point(0, data.behaviour_return, 0.0), 1)}"
    if "true" in data.rewards:
        words += ", above which gain begins; Pearson: with the true rewards, per step"
    console.print(words, style="dim")


def _tell_unsteady(unsteady: dict[str, list[int]], seeds: int) -> None:
    if not unsteady:
        return
    told = ", ".join(f"{len(lost)} of {seeds} of {name}" for name, lost in unsteady.items())
    click.echo(
        f"unsteady seeds: {told}. They end with less than two thirds of what their best "
        "evaluation had gained over the data, whatever the rewards: look at the curves before "
        "you trust the means, and take more seeds",
        err=True,
    )
