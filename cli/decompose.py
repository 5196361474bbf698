"""`grd-offline decompose`: rewards, masks, compact state and a model from returns."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from grd_offline.core.errors import DataError
from grd_offline.core.outcomes import NUMBER, Outcome
from grd_offline.core.words import format_seconds, format_share
from grd_offline.io.files import beside
from grd_offline.methods.registry import find_method
from grd_offline.methods.settings import DecomposeSettings

from .options import (
    command,
    option,
    out_option,
    reading_options,
    setting_option,
    setting_options,
    video_options,
)
from .text import echo, print_warning

if TYPE_CHECKING:
    from grd_offline.methods.result import Decomposition


_COLOURS = {"careful": "yellow", "unreliable": "red"}
"""Colours of the levels of findings."""
_REPLACED = "(the earlier result was replaced; --out keeps both)"


@command()
@click.argument("file")
@out_option("Folder for the results.  [default: FILE without its ending, plus -grd]")
@setting_options(
    DecomposeSettings,
    *("method", "fit", "gamma", "state_at", "next_state", "outcome"),
    *("step_rewards", "exact_returns", "compact"),
)
@setting_option(DecomposeSettings, "truth", metavar="FIELD")
@option(
    "--preferences",
    metavar="FILE",
    help="Learn from preferences instead of returns. FILE is a .csv or .parquet file with the "
    "columns first and second (two episodes) and preferred (first, second or both).",
)
@option(
    "--outcomes",
    metavar="NAME,NAME,...",
    help="Decompose several outcomes, and show their effects side by side. Each outcome has a "
    "folder of its own. The names are columns of a table with one number per episode, or fields of "
    "a file with one number per step.",
)
@video_options("Film three episodes for the report.")
@setting_options(DecomposeSettings, "seed", "device")
@reading_options
def decompose(
    file: str, out: Path | None, video: str | None, outcomes: str | None, **options: Any
) -> None:
    """Turn the returns of episodes into a reward for every step.

    FILE is any dataset that `grd-offline inspect` reads. The command writes a folder with the
    relabelled data, a reward model, a dynamics model, the effects of the inputs on the reward, the
    causal masks, quality metrics and a report.

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
    from rich.console import Console

    from grd_offline.io.tables.columns import split_names
    from grd_offline.methods.choose import CLOSED
    from grd_offline.pipeline.decompose import decompose as run
    from grd_offline.pipeline.several import decompose_each

    from .display import show_stages

    names = ("max_episode_steps", "max_bytes", "columns", "returns", "preferences")
    given = {name: options.pop(name) for name in names}
    given = {name: value for name, value in given.items() if value is not None}
    settings = DecomposeSettings(**options)
    folder = out if out is not None else beside(file, "-grd")
    is_new = not folder.is_dir() or not any(folder.iterdir())
    for name in ("returns", "preferences") if outcomes is not None else ():
        if name in given:
            raise click.UsageError(
                f"--outcomes and --{name} cannot be combined: leave --{name} out."
            )
    if outcomes is not None and video is not None:
        raise click.UsageError(
            "--video works with one outcome only. Film each outcome with: grd-offline report."
        )
    parts = ("",) if outcomes is None else split_names(outcomes)
    try:
        is_closed_form = find_method(settings.method, settings.fit).fit == CLOSED
        with show_stages(parts) as forecast:
            given["progress"] = forecast.hear
            given["on_data"] = partial(forecast.take_size, is_closed_form=is_closed_form)
            if outcomes is None:
                results = {"": run(file, folder, settings, video=video, **given)}
            else:
                results = decompose_each(file, folder, parts, settings, **given)
    except DataError as error:
        raise error.at(file=file) from None
    for name, result in results.items():
        if name:
            Console(highlight=False).rule(name)
        show_result(result, is_new=is_new or bool(name))
    if outcomes is not None:
        replaced = "" if is_new else f" {_REPLACED}"
        echo(f"All outcomes side by side: {folder}/report.html{replaced}")


def show_result(result: Decomposition, *, is_new: bool = True) -> None:
    from rich.console import Console

    from .text import print_facts, print_text

    metrics = result.metrics
    console = Console(highlight=False)
    facts = {"columns": result.columns} if result.columns is not None else {}
    facts["fit"] = f"{metrics['fit']} ({metrics['reason']})"
    facts |= _list_drivers(result)
    for candidate in metrics["alternatives"]:
        called = Outcome(candidate.get("outcome", NUMBER)).plural
        inside = format_share(candidate["held_out_return_coverage_90"])
        facts[f"test of {candidate['fit']}"] = (
            f"R² {candidate['held_out_return_r2']:.4f} on held-out {called}; 90 % intervals hold "
            f"{inside} of {candidate['held_out_returns']:,} {called}. This proves nothing about "
            "single steps."
        )
    likelihood = metrics["dynamics_held_out_log_likelihood"]
    facts["test of dynamics"] = (
        f"log-likelihood per held-out step {likelihood['masked']:.3f} with the masks, "
        f"{likelihood['unmasked']:.3f} without them"
    )
    if "truth" in metrics:
        truth = metrics["truth"]
        facts["against the truth"] = (
            f"Pearson {truth['pearson']:.4f}, Spearman {truth['spearman']:.4f}, "
            f"within episodes {truth['pearson_within_episodes']:.4f}, "
            f"90 % bands hold {format_share(truth['coverage_90'])} of the steps"
        )
    if unit := Outcome(metrics["outcome"]).unit:
        facts["unit"] = unit
    facts["bands"] = metrics["bands"]
    facts["time"] = format_seconds(metrics["seconds"])
    facts["results"] = f"{result.folder}/{'' if is_new else f' {_REPLACED}'}"
    facts["report"] = f"{result.folder}/report.html"
    if result.table is not None:
        facts["table"] = str(result.table)
    verdict = metrics["verdict"]
    print_text(console, verdict["text"], f"bold {_COLOURS.get(verdict['level'], '')}")
    print_facts(console, facts)
    for finding in result.findings:
        line = f"{finding.level}: {finding.text}"
        print_text(console, line, _COLOURS.get(finding.level, ""), indent="  ")
    for warning in result.warnings:
        print_warning(warning)


def _list_drivers(result: Decomposition) -> dict[str, str]:
    """What drives the reward, what its names mean, and the compact state."""
    from grd_offline.core.inputs import explain_marks

    metrics, masks = result.metrics, result.masks
    if not find_method(metrics["method"]).has_masks:
        return {"drives the reward": f"not known: {metrics['method']} does not look for masks"}
    facts = {}
    top = [f"{name} {format_share(share)}" for name, share in result.shares[:8]]
    if not top:
        top = _names(masks["state_names"], masks["state_to_reward"])
        top += _names(masks["action_names"], masks["action_to_reward"])
    facts["drives the reward"] = ", ".join(top) or "nothing: every step is worth the same"
    if top and metrics["verdict"]["level"] == "unreliable":
        facts["drives the reward"] += " (not to be relied on)"
    if explained := explain_marks(
        one for effect in result.effects[:8] for one in effect["references"]
    ):
        facts["names"] = explained
    compact = _names(masks["state_names"], masks["compact"]["closure"])
    named = f": {', '.join(compact)}" if compact else ""
    facts["compact state"] = f"{len(compact)} of {len(masks['state_names'])}{named}"
    return facts


def _names(names: list[str], mask: list[int]) -> list[str]:
    return [name for name, on in zip(names, mask, strict=True) if on]
