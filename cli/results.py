"""`report`, `plot`, `compare` and `sweep`: results of commands, and many of them."""

from __future__ import annotations

import functools
import os
import shlex
import sys
from collections.abc import Sequence
from itertools import compress, pairwise, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from grd_offline.comparison.metrics import LAST, METRICS
from grd_offline.core.errors import DataError, located
from grd_offline.core.packages import find_missing, tell_missing
from grd_offline.core.words import count
from grd_offline.io.files import PLOTS_FOLDER, REPORT_FILE
from grd_offline.learning.settings import OfflineSettings, OnlineSettings, check_trusted
from grd_offline.methods.settings import DecomposeSettings

from .jobs import Where, run_all, runner_options
from .options import (
    command,
    file_option,
    option,
    out_option,
    path_argument,
    pick_settings,
    video_options,
)
from .terminal import echo, print_table, print_warning

if TYPE_CHECKING:
    from grd_offline.comparison.compare import Comparison, Printed
    from grd_offline.io.files.results import RunRecord
    from grd_offline.lab.sweep.folder import SweepComparison, SweepRecord
    from grd_offline.lab.sweep.plan import Job, SweepPlan


@command()
@path_argument("folders", metavar="FOLDER...", nargs=-1, required=True)
@file_option("File to write.  [default: report.html in the first folder]")
@video_options("Show frames of three episodes of a decomposition.")
def report(folders: tuple[Path, ...], out: Path | None, video: str | None) -> None:
    """Make a page that opens offline in any browser.

    FOLDER is a folder that `grd-offline decompose`, `judge` or `sweep` wrote, or a run of
    `train-online` or `train-offline`. Several runs are compared on one page. A video uses only the
    environment that you name with --env, never one that a file names.

    \b
    Examples:
      grd-offline report hc-grd
      grd-offline report hc-grd --video --env HalfCheetah
      grd-offline report runs/Walker2d-grd
      grd-offline report runs/Walker2d-grd runs/Walker2d-rrd -o both.html
      grd-offline report hc-judge
      grd-offline report sweeps/main
    """
    from grd_offline.io.files.storage import check_file

    path = out or folders[0] / REPORT_FILE
    if out is not None:
        check_file(path)
    write_page(path, _make_page(folders, video))
    echo(f"wrote {path}")


def leave_report(folder: Path) -> None:
    """Write the page of a new result. If that fails, print a warning and keep the result."""
    try:
        write_page(folder / REPORT_FILE, _make_page([folder]))
    except Exception as error:
        echo(f"warning: no report: {' '.join(str(error).split())}", err=True)
    else:
        echo(f"look at {folder / REPORT_FILE}")


def _make_page(folders: Sequence[Path], filmed: str | None = None) -> str:
    from grd_offline import report as pages
    from grd_offline.io.files import results
    from grd_offline.lab.sweep.folder import compare_sweep, read_sweep
    from grd_offline.methods.result import read_decomposition, read_outcomes

    if len(folders) == 1 and results.has_outcomes(folders[0]) and filmed is None:
        return pages.make_outcomes_page(*read_outcomes(folders[0]))
    kinds = (results.is_decomposition, results.is_sweep, results.is_judgement)
    is_decomposed, is_swept, is_judged = (any(map(is_it, folders)) for is_it in kinds)
    if (is_decomposed or is_judged or is_swept) and len(folders) > 1:
        raise click.UsageError(
            "expected one decomposition, one judgement, one sweep, or one or more runs"
        )
    if is_decomposed:
        found = read_decomposition(folders[0])
        return pages.make_decomposition_page(found, video=filmed, warn=print_warning)
    if filmed is not None:
        raise click.UsageError("--video: only a decomposition has episodes to show")
    if is_swept:
        record = read_sweep(folders[0])
        return make_sweep(record, compare_sweep(record))
    if is_judged:
        return pages.make_judgement_page(results.read_judgement(folders[0]))
    return pages.make_run_page([results.read_run(folder) for folder in folders])


def make_sweep(record: SweepRecord, compared: SweepComparison) -> str:
    """Make the page of a sweep."""
    from grd_offline.lab.sweep.folder import list_jobs
    from grd_offline.report import make_sweep_page

    comparison = None if isinstance(compared, str) else compared[0]
    return make_sweep_page(record.title, record.about, list_jobs(record), comparison)


def write_page(path: Path, page: str) -> None:
    """Write a page in full or not at all."""
    from grd_offline.io.files.storage import replace_file

    with replace_file(path) as output:
        output.write(page.encode())


FORMATS = ("png", "svg", "pdf")


@command()
@path_argument("runs", metavar="RUN...", nargs=-1, required=True)
@file_option("Write only the learning curves of all runs, to this file.")
@option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help="File format.  [default: the ending of FILE, or png]",
)
@option(
    "--metric",
    type=click.Choice(tuple(METRICS)),
    default="return",
    help="What the learning curves show: the true return of evaluations, the success rate where "
    "the environment tells it, or the correlation of the found reward with the true reward within "
    "an episode.",
)
def plot(runs: tuple[Path, ...], out: Path | None, form: str | None, metric: str) -> None:
    """Draw figures of runs and decompositions, sized for a column of a paper.

    The figures of each RUN are written to RUN/plots. For a run of train-online they are the
    learning curves (mean and standard deviation over seeds), the share of edges in the masks over
    time, the four masks of one member at its first, middle and last evaluation, and the found and
    true rewards of its last episode. For a run of train-offline there are only learning curves. If
    there are several runs, the folder of the first run also gets one figure that compares them.

    A RUN can also be a folder that decompose wrote. Its figures show effects, masks, returns, and
    the rewards of the episode with the median return.

    \b
    Examples:
      grd-offline plot runs/Walker2d-grd
      grd-offline plot runs/Walker2d-grd --metric correlation --format pdf
      grd-offline plot runs/Walker2d-grd runs/Walker2d-rrd -o comparison.svg
      grd-offline plot hc-grd --format pdf
    """
    form = form or _find_format(out)

    from grd_offline.io.files.plain import folder_errors
    from grd_offline.io.files.results import is_decomposition, read_run
    from grd_offline.io.files.storage import make_folder
    from grd_offline.methods.result import read_decomposition

    decomposed = [run for run in runs if is_decomposition(run)]
    if out is not None and decomposed:
        raise click.UsageError(
            f"-o: draws learning curves of runs, and {decomposed[0]} is not a run"
        )
    found_in = {folder: read_decomposition(folder) for folder in decomposed}
    records = [read_run(run) for run in runs if run not in decomposed]
    with folder_errors(runs[0], "does not fit together"):
        from grd_offline.report import figures

        drawn: dict[Path, Any] = {}
        if out is None:
            made = {path: figures.draw_decomposition(found) for path, found in found_in.items()}
            made |= {record.path: figures.draw_run(record, metric) for record in records}
            for path, named in made.items():
                places = path / PLOTS_FOLDER
                drawn |= {places / f"{name}.{form}": figure for name, figure in named.items()}
        if out is not None or len(records) > 1:
            file = records[0].path / PLOTS_FOLDER / f"comparison-{metric}.{form}"
            drawn[out or file] = figures.draw_comparison(records, metric)
        for path, figure in drawn.items():
            if out is None:
                make_folder(path.parent.parent, path.parent.name)
            figures.save_figure(figure, path, form)
            echo(f"wrote {path}")


def _find_format(out: Path | None) -> str:
    ending = "png" if out is None else out.suffix.removeprefix(".").lower()
    if ending not in FORMATS:
        known = ", ".join(f".{form}" for form in FORMATS)
        raise click.UsageError(
            f"{out}: expected a name that ends in {known}, or the option --format"
        )
    return ending


def parse_steps(value: Any) -> tuple[int, ...]:
    """Steps of training, separated by commas."""
    if isinstance(value, tuple):
        return value
    texts = str(value).replace("_", "").split(",")
    if not all(text.isdecimal() and len(text) <= 15 and int(text) > 0 for text in texts):
        raise click.BadParameter(f"expected steps such as 100000,200000, got {value!r}")
    return tuple(sorted({int(text) for text in texts}))


@command()
@path_argument("results", metavar="RESULTS...", nargs=-1, required=True)
@option(
    "--metric",
    type=click.Choice(tuple(METRICS)),
    default="return",
    help="What is compared: the true return of evaluations, the success rate if the environment "
    "reports it, or the correlation of the found reward with the true one.",
)
@option(
    "--at",
    type=parse_steps,
    metavar="STEP,...",
    help="Compare after this number of training steps. If there are several numbers, one table "
    "shows them side by side, and everything else uses the last number.  [default: the "
    "end of each run]",
)
@option(
    "--last",
    type=click.IntRange(min=1),
    default=LAST,
    help="Number of evaluations whose mean is a score. The last of them is at the step.",
)
@option("--method", "chosen", help="Method that the other methods are compared with.")
@option(
    "--reference",
    help="Method whose mean is 1 after normalising.  [default: the oracle, if there is one]",
)
@option(
    "--paper",
    type=click.Path(path_type=Path),
    metavar="FILE.toml",
    help="Show the numbers of a paper beside these results. FILE.toml is a file of experiments/.  "
    "[default: that of the sweep]",
)
@option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="png",
    help="File format of the figures.",
)
@out_option("Folder for tables, figures and a page.  [default: comparison in the first folder]")
def compare(
    results: tuple[Path, ...], at: tuple[int, ...] | None, last: int, paper: Path | None,
    form: str, out: Path | None, **options: Any,
) -> None:  # fmt: skip
    """Compare methods over seeds and tasks, with intervals.

    RESULTS are runs of train-online or train-offline, folders of judge, sweeps, or folders that
    hold any of them. Prints interquartile means over seeds and tasks with 95 % intervals from a
    stratified bootstrap, shares of the oracle, and the probability that one method does better than
    another. Writes the same as a page, as tables, and as figures with performance profiles.

    \b
    Examples:
      grd-offline compare runs/Walker2d-grd
      grd-offline compare runs/Walker2d-grd runs/Hopper-grd --out comparison
      grd-offline compare sweeps/main --method grd-closed-form
      grd-offline compare sweeps/table1 --at 100000,200000,1000000 --last 1
      grd-offline compare sweeps/metaworld --metric success
      grd-offline compare runs/Swimmer --paper experiments/table1.toml
    """
    from grd_offline.comparison import compare as comparing

    folders = {path.resolve(): path for path in results}  # each of them once
    runs = [run for path in folders.values() for run in comparing.find_runs(path)]
    folder = out if out is not None else results[0] / "comparison"
    comparing.check_place(folder)
    printed = _find_printed(results, paper)
    metric = options["metric"]
    whole = comparing.collect_scores(runs, metric=metric, last=last)
    steps: Sequence[int | None] = at or (None,)
    comparisons = []
    for step in steps:
        scores = comparing.collect_scores(runs, metric=metric, at=step, last=last)
        if not scores:
            where = "" if step is None else f" after {step:,} steps"
            raise click.UsageError(f"no {METRICS[metric][1]} in any evaluation{where}")
        # What a paper says of the end of a training is not of a step on the way.
        shown = [number for number in printed if step is None or number.step is not None]
        notes = [] if step is None else comparing.list_left_out(whole, scores, step)
        comparisons.append(comparing.compare_scores(scores, printed=shown, notes=notes, **options))
    if len(comparisons) > 1:
        _print_steps(comparisons, [step for step in steps if step is not None])
    print_comparison(comparisons[-1])
    title = results[0].resolve().name if len(results) == 1 else f"{len(results)} results"
    write_comparison(folder, comparisons[-1], runs, title=title, form=form)


def _find_printed(results: Sequence[Path], paper: Path | None) -> tuple[Printed, ...]:
    """The numbers of the paper that was named, or of the sweeps among the results."""
    from grd_offline.comparison.compare import read_printed
    from grd_offline.io.files.plain import refuse_outside

    if paper is not None:
        return read_printed(paper)
    found: list[Printed] = []
    for folder in results:
        file = folder / "sweep.toml"
        if file.is_file():
            refuse_outside(file, folder)
            found += read_printed(file)
    return tuple(found)


def print_comparison(comparison: Comparison) -> None:
    """Print the tables of a comparison."""
    from grd_offline.report.training import explain, list_rows, list_totals

    rows: list[Sequence[str]] = []
    for row in list_rows(comparison):
        if [row[0]] not in rows:
            rows.append([row[0]])
        rows.append((f"  {row[1]}", *row[2:]))
    reference = f"of {comparison.reference}"
    head: Sequence[str] = ("task", "seeds", "step", "mean", "IQM (95 %)", reference, "paper")
    _print_table(head, rows, ("task",))
    if len(comparison.totals) > 1:
        better = f"P({comparison.chosen} better)"
        head = ("over tasks", "tasks", "IQM (95 %)", reference, better)
        _print_table(head, list_totals(comparison), ("over tasks",))
        echo(explain(comparison))
    for note in comparison.notes:
        echo(f"note: {note}", err=True)


def _print_steps(comparisons: Sequence[Comparison], steps: Sequence[int]) -> None:
    """One row for each method on each task, one column for each step, the paper's number below."""
    from grd_offline.report.training import show_printed, show_spread

    keys = dict.fromkeys((row.task, row.method) for one in comparisons for row in one.rows)
    rows = []
    for key in keys:
        found = [one.find(*key) for one in comparisons]
        cells = ["-" if r is None else show_spread(r.mean, r.spread, len(r.scores)) for r in found]
        rows.append((*key, *cells))
        printed = [None if row is None else row.printed for row in found]
        if any(printed):
            rows.append(("", "    paper", *map(show_printed, printed)))
    _print_table(("task", "method", *(f"{step:,}" for step in steps)), rows, ("task", "method"))


def _print_table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], words: Sequence[str]
) -> None:
    """Print a table without the columns of numbers that have none."""
    known = [[cell != "-" for cell in column] for column in zip_longest(*rows, fillvalue="-")]
    kept = [title in words or any(cells) for title, cells in zip(titles, known, strict=True)]
    print_table([*compress(titles, kept)], [[*compress(row, kept)] for row in rows], words)
    click.echo()


def write_comparison(
    folder: Path, comparison: Comparison, runs: Sequence[RunRecord], *, title: str, form: str
) -> None:
    """Write the page, the tables and the figures of a comparison, and say so."""
    from grd_offline.comparison.compare import COMPARISON_FILE, SCORES_FILE, write_scores
    from grd_offline.io.files.plain import write_json
    from grd_offline.io.files.storage import make_folder
    from grd_offline.report import make_comparison_page
    from grd_offline.report.figures import draw_comparison_figures, save_figure

    folder.parent.mkdir(parents=True, exist_ok=True)
    make_folder(folder.parent, folder.name)
    sources = [str(run.path) for run in runs]
    write_json(folder / COMPARISON_FILE, {**comparison.to_json(), "runs": sources})
    write_scores(folder, comparison)
    for name, figure in draw_comparison_figures(comparison).items():
        save_figure(figure, folder / f"{name}.{form}", form)
    write_page(folder / REPORT_FILE, make_comparison_page(comparison, title))
    echo(f"wrote {folder}: {REPORT_FILE}, {COMPARISON_FILE}, {SCORES_FILE}, figures")


@command()
@path_argument("file", metavar="FILE.toml")
@out_option("Folder of the sweep.  [default: sweeps/ and the name of the file]")
@runner_options("jobs")
@option(
    "--cpus",
    type=click.IntRange(min=1),
    help="Cores of each job.  [default: the cores of this machine, divided by its accelerators]",
)
@option(
    "--gpus",
    type=click.FloatRange(min=0, max=1),
    help="Part of an accelerator that each job has. With 0.5, two jobs share one.  [default: 1, or "
    "0 where there is none]",
)
@option(
    "--scale",
    type=click.FloatRange(min=0, min_open=True, max=1),
    default=1.0,
    help="Multiply steps, updates, evaluations, episodes and seeds by this, down to what is just "
    "enough to run. For trying a file out.",
)
@option("--dry-run", is_flag=True, help="Print the jobs and their commands, and run nothing.")
@option(
    "--env",
    "trusted",
    multiple=True,
    metavar="MODULE:ID",
    help="Trust this environment, whose id imports a Python module. A job that names another such "
    "environment is refused.",
)
def sweep(
    file: Path,
    out: Path | None,
    where: Where,
    scale: float,
    dry_run: bool,
    trusted: tuple[str, ...],
    **resources: Any,
) -> None:
    """Run a grid of decompose, judge, train-online and train-offline jobs.

    Each job is a command with its own folder inside the folder of the sweep. A job that is finished
    is skipped. A job that broke is repeated, and a training run continues from its last checkpoint.
    Seeds of the same command are members of one run. At the end, the command prints a table and
    writes a comparison of all methods and one report about all jobs.

    \b
    Examples:
      grd-offline sweep experiments/table1.toml
      grd-offline sweep experiments/main.toml --dry-run
      grd-offline sweep experiments/main.toml --scale 0.001 --out try
      grd-offline sweep experiments/main.toml --cpus 4 --gpus 0.5
      grd-offline sweep experiments/main.toml --runner ray --address auto
      grd-offline compare sweeps/main

    \b
    A sweep file:
      title = "Two methods on two tasks"
      [[jobs]]
      command = "train-online"
      options = { method = ["grd", "oracle"] }
      grid = { env = ["Hopper", "Walker2d"], seed = [0, 1] }

    To continue a sweep that was stopped, run the same command again. Jobs that are finished are
    skipped.
    """
    from grd_offline.lab.sweep.folder import describe_marks
    from grd_offline.lab.sweep.plan import read_plan

    plan = read_plan(file, scale=scale)
    owners: dict[Any, str] = {}
    for job in plan.jobs:
        for option_name, value in pairwise(job.command):
            if option_name == "--env":
                with located(file=file, field=job.name):
                    check_trusted(value, named=trusted)
        _refuse_twice(plan, job, _check_job(plan, job), owners)
    name = file.stem if scale == 1 else f"{file.stem}-x{scale:g}"
    folder = Path(os.path.abspath(out or Path("sweeps") / name))
    if not dry_run:
        _run(plan, folder, where, scale, resources)
        return
    for job, mark in zip(plan.jobs, describe_marks(folder, plan.jobs).values(), strict=True):
        state = "new" if mark is None else mark.state
        echo(f"{job.name} ({state}): grd-offline {shlex.join(job.command)}")


def _refuse_twice(plan: SweepPlan, job: Job, settings: Any, owners: dict[Any, str]) -> None:
    """Refuse a member that another job has too: it would be trained twice, and compared once."""
    if not isinstance(settings, OnlineSettings) or not _can_train():
        return
    from grd_offline.worlds.environments import resolve_environment_id

    # Settings with several values make members of their own.
    single = {name: values for name, values in settings.sets.items() if len(values) == 1}
    named = settings.environment
    task = named if "/" in named or ":" in named else resolve_environment_id(named)
    split = {"methods", "fits", "sets", "seed", "seeds", "environment"}
    plain = [(name, value) for name, value in vars(settings).items() if name not in split]
    rest = repr((task, single, plain))
    for member in settings.make_members():
        owner = owners.setdefault((rest, member.name), job.name)
        if owner != job.name:
            reason = f"{job.name}: {member.name} is also in {owner}: leave it out of one of them"
            raise DataError(reason, file=plan.path)


def _check_job(plan: SweepPlan, job: Job) -> Any:
    """The settings of a job. Options and values that its command would refuse are refused."""
    context = click.get_current_context()
    root = context.find_root().command
    assert isinstance(root, click.Group)
    name, *arguments = job.command
    command = root.get_command(context, name)
    assert command is not None
    kinds: dict[str, type[Any]] = {"decompose": DecomposeSettings, "train-online": OnlineSettings}
    kind = kinds.get(name, OfflineSettings)
    try:
        parsed = command.make_context(name, arguments)
        if parsed.params.get("environment", "") is None and name == "train-online":
            raise DataError("Missing option '--env'.")
        settings = kind(**pick_settings(kind, parsed.params))
        # A name of another package may be known where the job runs.
        if name == "train-online" and "/" not in settings.environment and _can_train():
            from grd_offline.worlds.environments import resolve_environment_id

            resolve_environment_id(settings.environment)
    except (click.UsageError, DataError) as error:
        reason = error.format_message() if isinstance(error, click.UsageError) else error
        raise DataError(f"{job.name}: {reason}", file=plan.path) from None
    return settings


@functools.cache
def _can_train() -> bool:
    """Whether the packages are here, which the machine that hands out jobs need not have."""
    return not find_missing("train-online")


def _run(
    plan: SweepPlan, folder: Path, where: Where, scale: float, resources: dict[str, Any]
) -> None:
    from grd_offline.lab.sweep import folder as sweeps
    from grd_offline.lab.sweep.run import find_machine

    for name in {job.command[0] for job in plan.jobs} if where.kind == "local" else ():
        if missing := find_missing(name):
            raise click.ClickException(tell_missing(f"the job {name}", missing))
    with sweeps.hold_new_sweep(folder):
        # Other commands are refused before anything is changed.
        sweeps.describe_marks(folder, plan.jobs)
        sweeps.write_sweep(folder, plan, ["grd-offline", *sys.argv[1:]], scale)
        if others := sweeps.list_others(folder, plan.jobs):
            echo(
                f"{folder / 'jobs'} has {count(len(others), 'job')} that the file does not name, "
                f"such as {others[0]}: what they have is not used",
                err=True,
            )
        _, stop = run_all(folder, plan.jobs, where, find_machine(), "jobs", **resources)
        record = sweeps.read_sweep(folder)
        titles = ("job", "state", "tries", "time", "result")
        rows = [row[:-1] for row in sweeps.list_jobs(record)]
        print_table(titles, rows, ("job", "state", "result"))
        click.echo()
        leave_sweep_report(record)
    stop.leave("stopped: run the same command again to continue")
    states = {name: mark and mark.state for name, mark in record.marks.items()}
    open_jobs = [name for name, state in states.items() if state != sweeps.FINISHED]
    if open_jobs:
        raise click.ClickException(
            f"{len(open_jobs)} of {count(len(record.jobs), 'job')} failed, the first is "
            f"{open_jobs[0]}: look at {folder / 'jobs' / open_jobs[0] / 'output.txt'}"
        )


def leave_sweep_report(record: SweepRecord) -> None:
    """Compare the methods of a sweep and write the page over all of its jobs."""
    from grd_offline.lab.sweep.folder import COMPARISON_FOLDER, compare_sweep

    compared = compare_sweep(record)
    if isinstance(compared, str):
        echo(f"nothing is compared: {compared}", err=True)
    else:
        print_comparison(compared[0])
        place = record.path / COMPARISON_FOLDER
        write_comparison(place, *compared, title=record.title, form="png")
    write_page(record.path / REPORT_FILE, make_sweep(record, compared))
    echo(f"look at {record.path / REPORT_FILE}")
