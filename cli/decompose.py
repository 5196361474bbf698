"""`decompose`, and what its results are good for: `relabel`, `evaluate` and `export`."""

from __future__ import annotations

import json
from functools import partial
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from grd_offline.core.errors import DataError, located
from grd_offline.core.outcomes import NUMBER, Outcome
from grd_offline.core.words import count, format_seconds, format_share
from grd_offline.io.files import beside, name_path
from grd_offline.methods.registry import find_method
from grd_offline.methods.settings import DecomposeSettings

from .jobs import Where, run_parts, runner_options
from .options import (
    command,
    option,
    out_option,
    path_argument,
    pick_settings,
    reading_options,
    setting_options,
    video_options,
    workers_option,
)
from .terminal import echo, print_facts, print_text, print_warning

if TYPE_CHECKING:
    from grd_offline.lab.sweep.parts import PartsPlan
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
    *("step_rewards", "exact_returns", "compact", "truth"),
    truth={"metavar": "FIELD"},
)
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
    from grd_offline.pipeline.decompose import decompose_each

    from .display import show_stages

    settings = DecomposeSettings(**pick_settings(DecomposeSettings, options))
    given = {n: v for n, v in options.items() if not hasattr(settings, n) and v is not None}
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
    is_closed_form = find_method(settings.method, settings.fit).fit == CLOSED
    with located(file=file), show_stages(parts) as forecast:
        given["progress"] = forecast.hear
        given["on_data"] = partial(forecast.take_size, is_closed_form=is_closed_form)
        if outcomes is None:
            results = {"": run(file, folder, settings, video=video, **given)}
        else:
            results = decompose_each(file, folder, parts, settings, **given)
    for name, result in results.items():
        if name:
            Console(highlight=False).rule(name)
        show_result(result, is_new=is_new or bool(name))
    if outcomes is not None:
        replaced = "" if is_new else f" {_REPLACED}"
        echo(f"All outcomes side by side: {folder}/report.html{replaced}")


def show_result(result: Decomposition, *, is_new: bool = True) -> None:
    from rich.console import Console

    metrics = result.metrics
    console = Console(highlight=False)
    facts = {"columns": result.columns} if result.columns is not None else {}
    facts |= {"fit": f"{metrics['fit']} ({metrics['reason']})", **_list_drivers(result)}
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
    facts |= {
        "bands": metrics["bands"],
        "time": format_seconds(metrics["seconds"]),
        "results": f"{result.folder}/{'' if is_new else f' {_REPLACED}'}",
        "report": f"{result.folder}/report.html",
    }
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
    for kind in () if top else ("state", "action"):
        top += compress(masks[f"{kind}_names"], masks[f"{kind}_to_reward"])
    facts["drives the reward"] = ", ".join(top) or "nothing: every step is worth the same"
    if top and metrics["verdict"]["level"] == "unreliable":
        facts["drives the reward"] += " (not to be relied on)"
    inputs = (one for effect in result.effects[:8] for one in effect["references"])
    if explained := explain_marks(inputs):
        facts["names"] = explained
    compact = list(compress(masks["state_names"], masks["compact"]["closure"]))
    named = f": {', '.join(compact)}" if compact else ""
    facts["compact state"] = f"{len(compact)} of {len(masks['state_names'])}{named}"
    return facts


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
    from grd_offline.io.datasets import find_parts

    if find_parts(Path(file)):
        target = out if out is not None else beside(file, "-relabelled")
        plan = _plan_parts(file, model, target, options)
        run_parts(target, plan, where, workers)
        echo(f"wrote {target}: {count(len(plan.jobs), 'part')}")
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


def _plan_parts(file: str, model: Path, target: Path, options: dict[str, Any]) -> PartsPlan:
    """Plan to relabel a folder of parts into another one."""
    from grd_offline.lab.sweep.parts import plan_relabelling

    if options.pop("columns") is not None or options.pop("returns") is not None:
        raise DataError("--columns and --returns are for tables (.csv, .parquet)", file=file)
    if target.suffix in (".h5", ".hdf5"):
        raise DataError("expected the name of a folder, because FILE is one", file=target)
    if target.resolve() == Path(file).resolve():
        raise DataError("IN and OUT are the same", file=file)
    plan = plan_relabelling(file, model, **options)
    missing = len(plan.manifest.parts) - len(plan.jobs)
    if missing > 0:
        print_warning(f"{file}: {missing} of {len(plan.manifest.parts)} parts are not there yet")
    return plan


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


@command()
@path_argument("folder", metavar="DIR")
@option(
    "--to",
    "layout",
    type=click.Choice(["onnx", "torch-export"]),
    required=True,
    help="Format of the file. onnx is for any ONNX runtime and needs: pip install onnx "
    "onnxscript. torch-export is for torch.export.load, which runs code from the file: "
    "load only files that you trust.",
)
@out_option("File to write.  [default: DIR plus .onnx or .pt2]")
def export(folder: Path, layout: str, out: Path | None) -> None:
    """Write the reward model in DIR as one file that runs without grd-offline.

    The inputs of the file are observations (N, state) and actions (N, action). If the reward
    depends on them, next_observations (N, state) and terminations (N,) are inputs too. The output
    is rewards (N,). Terminations are bool, and all other arrays are float32. N is any number from 1
    on. Before the file is kept, it is run on steps within the range of the data, and its numbers
    must be those of the model.

    \b
    Examples:
      grd-offline export hc-grd --to onnx
      grd-offline export hc-grd --to torch-export --out reward.pt2
      grd-offline export runs/walker/members/grd-closed-form-seed0 --to onnx
    """
    from grd_offline.io.files.models import REWARD_FOLDER
    from grd_offline.io.files.storage import check_file
    from grd_offline.rewards.export import FORMATS, export_model
    from grd_offline.rewards.model import RewardModel

    model = RewardModel.load(folder)
    # Beside it, not in it: a folder of results is replaced as a whole when it is made again.
    place = name_path(str(folder))
    if place.name == REWARD_FOLDER:
        place = place.resolve().parent
    target = out or place.parent / f"{place.name}{FORMATS[layout]}"
    check_file(target)
    done = export_model(model, target, layout)
    shapes = ", ".join(
        f"{name} (N,)" if name == "terminations" else f"{name} (N, {columns})"
        for name, columns in done.inputs.items()
    )
    echo(f"wrote {done.path}: {shapes} -> rewards (N,)")
    if done.difference is None:
        echo("not checked: onnxruntime is not installed", err=True)
    else:
        echo(
            f"checked on {count(done.steps, 'step')}: it differs from the model by at most "
            f"{done.difference:.2g}; rewards there are of the order of {done.scale:.2g}"
        )
