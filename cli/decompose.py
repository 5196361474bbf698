"""`grd-offline decompose`: rewards, masks, compact state and a model from returns."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from grd_offline.files.naming import beside
from grd_offline.methods.registry import find_method
from grd_offline.methods.settings import DecomposeSettings
from grd_offline.outcomes import NUMBER, UNITS, speak_of

from .options import out_option, print_warning, reading_options, setting_option, setting_options

if TYPE_CHECKING:
    from rich.text import Text

    from grd_offline.methods.result import Decomposition


@click.command(
    epilog="""
    \b
    Examples:
      grd-offline decompose hc.h5
      grd-offline decompose hc.h5 --out results --state-at start
      grd-offline decompose hc.h5 --truth true_rewards
      grd-offline decompose hc.h5 --method rrd --out hc-rrd
      grd-offline decompose hc.h5 --video --env HalfCheetah
      grd-offline decompose trips.csv
      grd-offline decompose trips.csv --outcomes fuel,minutes
      grd-offline decompose trips.csv --preferences answers.csv
      grd-offline decompose trips.csv --columns episode=trip,actions=throttle --returns bills.csv
    """
)
@click.argument("file")
@out_option("Folder for the results.  [default: FILE without its ending, plus -grd]")
@setting_options(
    DecomposeSettings,
    *("method", "fit", "gamma", "state_at", "next_state", "outcome"),
    *("step_rewards", "exact_returns", "compact"),
)
@setting_option(DecomposeSettings, "truth", metavar="FIELD")
@click.option(
    "--preferences",
    metavar="FILE",
    help="Learn from preferences instead of returns: a .csv or .parquet file with the columns "
    "first and second (episodes), and preferred (first, second or both).",
)
@click.option(
    "--outcomes",
    metavar="NAME,NAME,...",
    help="Decompose several outcomes, each into a folder of its own, and show their effects side "
    "by side: columns of a table with a number per episode, or fields with a number per step.",
)
@click.option("--video", is_flag=True, help="Film three episodes for the report; needs --env.")
@click.option("--env", "environment", help="Environment to film in: a Gymnasium id or short name.")
@setting_options(DecomposeSettings, "seed", "device")
@reading_options
def decompose(
    file: str,
    out: Path | None,
    video: bool,
    environment: str | None,
    outcomes: str | None,
    **options: Any,
) -> None:
    """Find the rewards behind the returns, what drives them, and what a policy needs to see.

    FILE is whatever `grd-offline inspect` reads. Writes a folder with the relabelled data, the
    reward and dynamics models, the effects, the masks, how good it all is, and a report.
    """
    from grd_offline.errors import DataError
    from grd_offline.methods.pipeline import decompose as run

    from .progress import show_stages
    from .report import check_video

    filmed = check_video(video, environment)
    reading = {
        name: options.pop(name)
        for name in ("max_episode_steps", "max_bytes", "columns", "returns", "preferences")
    }
    settings = DecomposeSettings(**options)
    folder = out if out is not None else beside(file, "-grd")
    if outcomes is not None and filmed is not None:
        raise click.UsageError("--video is for one outcome: film each with grd-offline report.")
    if outcomes is not None:
        given = {name: value for name, value in reading.items() if value is not None}
        _decompose_each(file, folder, outcomes, settings, given)
        return
    try:
        with show_stages() as progress:
            result = run(file, folder, settings, video=filmed, progress=progress, **reading)
    except DataError as error:
        raise error.at(file=file) from None
    show_result(result)


def _decompose_each(
    file: str, folder: Path, outcomes: str, settings: DecomposeSettings, reading: dict[str, Any]
) -> None:
    from rich.console import Console

    from grd_offline.errors import DataError
    from grd_offline.methods.several import decompose_each

    from .progress import show_stages

    for name in ("returns", "preferences"):
        if name in reading:
            raise click.UsageError(f"--outcomes names the outcomes: leave --{name} out.")
    names = [name.strip() for name in outcomes.split(",") if name.strip()]
    try:
        with show_stages() as progress:
            results = decompose_each(file, folder, names, settings, progress=progress, **reading)
    except DataError as error:
        raise error.at(file=file) from None
    for name, result in results.items():
        Console(highlight=False).rule(name)
        show_result(result)
    click.echo(f"All outcomes side by side: {folder}/report.html")


def show_result(result: Decomposition) -> None:
    from rich.console import Console

    from .live import make_facts

    metrics, masks = result.metrics, result.masks
    console = Console(highlight=False)
    facts = {"columns": result.columns} if result.columns is not None else {}
    facts["fit"] = f"{metrics['fit']} ({metrics['reason']})"
    if not find_method(metrics["method"]).has_masks:
        facts["drives the reward"] = f"not asked: {metrics['method']} looks for no masks"
    else:
        top = [f"{name} {share:.0%}" for name, share in result.shares[:8]]
        if not top:
            top = _names(masks["state_names"], masks["state_to_reward"])
            top += _names(masks["action_names"], masks["action_to_reward"])
        facts["drives the reward"] = ", ".join(top) or "nothing: every step is worth the same"
        compact = _names(masks["state_names"], masks["compact"]["closure"])
        named = f": {', '.join(compact)}" if compact else ""
        facts["compact state"] = f"{len(compact)} of {len(masks['state_names'])}{named}"
    for candidate in metrics["alternatives"]:
        called = speak_of("returns", candidate.get("outcome", NUMBER))
        facts[f"{candidate['fit']}, held-out {called}"] = (
            f"R² {candidate['held_out_return_r2']:.4f}, 90 % intervals hold "
            f"{candidate['held_out_return_coverage_90']:.0%} of {candidate['held_out_returns']} "
            f"{called}; this proves nothing about single steps"
        )
    likelihood = metrics["dynamics_held_out_log_likelihood"]
    facts["dynamics, held out"] = (
        f"log-likelihood {likelihood['masked']:.3f} per step within the masks, "
        f"{likelihood['unmasked']:.3f} without"
    )
    if "truth" in metrics:
        truth = metrics["truth"]
        facts["against the truth"] = (
            f"Pearson {truth['pearson']:.4f}, Spearman {truth['spearman']:.4f}, "
            f"within episodes {truth['pearson_within_episodes']:.4f}, "
            f"90 % bands hold {truth['coverage_90']:.0%} of the steps"
        )
    if metrics.get("outcome") in UNITS:
        facts["unit"] = UNITS[metrics["outcome"]]
    facts["bands"] = speak_of(metrics["bands"], metrics.get("outcome", NUMBER))
    facts["written"] = (
        f"{result.folder}/ in {metrics['seconds']} s; look at {result.folder}/report.html"
    )
    if result.table is not None:
        facts["rewards as a table"] = str(result.table)
    verdict = metrics["verdict"]
    console.print(_paint(verdict["level"], verdict["text"]), style="bold")
    console.print(make_facts(facts))
    for finding in result.findings:
        console.print(_paint(finding.level, f"{finding.level}: {finding.text}"))
    for warning in result.warnings:
        print_warning(warning)


def _paint(level: str, text: str) -> Text:
    """A line in the colour of its level."""
    from rich.text import Text

    from grd_offline.errors import printable

    return Text(printable(text), style={"careful": "yellow", "unreliable": "red"}.get(level, ""))


def _names(names: list[str], mask: list[int]) -> list[str]:
    return [name for name, on in zip(names, mask, strict=True) if on]
