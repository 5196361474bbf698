"""`grd-offline compare`: statistics of methods over seeds and tasks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from grd_offline.comparison.metrics import LAST, METRICS
from grd_offline.io.files import REPORT_FILE

from .options import command, option, out_option, path_argument
from .plot import FORMATS
from .text import echo, print_table

if TYPE_CHECKING:
    from grd_offline.comparison.compare import Comparison
    from grd_offline.comparison.paper import Printed
    from grd_offline.io.files.results import RunRecord


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
    results: tuple[Path, ...],
    metric: str,
    at: tuple[int, ...] | None,
    last: int,
    chosen: str | None,
    reference: str | None,
    paper: Path | None,
    form: str,
    out: Path | None,
) -> None:
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
    from grd_offline.comparison.compare import check_place, compare_scores
    from grd_offline.comparison.scores import collect_scores, find_runs, list_left_out

    folders = {path.resolve(): path for path in results}  # each of them once
    runs = [run for path in folders.values() for run in find_runs(path)]
    folder = out if out is not None else results[0] / "comparison"
    check_place(folder)
    printed = _find_printed(results, paper)
    whole = collect_scores(runs, metric=metric, last=last)
    steps: Sequence[int | None] = at or (None,)
    comparisons = []
    for step in steps:
        scores = collect_scores(runs, metric=metric, at=step, last=last)
        if not scores:
            where = "" if step is None else f" after {step:,} steps"
            raise click.UsageError(f"no {METRICS[metric][1]} in any evaluation{where}")
        # What a paper says of the end of a training is not of a step on the way.
        shown = [number for number in printed if step is None or number.step is not None]
        notes = [] if step is None else list_left_out(whole, scores, step)
        comparisons.append(
            compare_scores(
                scores,
                metric=metric,
                chosen=chosen,
                reference=reference,
                printed=shown,
                notes=notes,
            )
        )
    if len(comparisons) > 1:
        _print_steps(comparisons, [step for step in steps if step is not None])
    print_comparison(comparisons[-1])
    write_comparison(folder, comparisons[-1], runs, title=_name(results), form=form)


def _name(results: Sequence[Path]) -> str:
    return results[0].resolve().name if len(results) == 1 else f"{len(results)} results"


def _find_printed(results: Sequence[Path], paper: Path | None) -> tuple[Printed, ...]:
    """The numbers of the paper that was named, or of the sweeps among the results."""
    from grd_offline.comparison.paper import read_printed
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
    from grd_offline.report.compared import explain, list_rows, list_totals

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
    from grd_offline.report.compared import show_printed
    from grd_offline.report.curves import show_spread

    keys = dict.fromkeys((row.task, row.method) for one in comparisons for row in one.rows)
    rows = []
    for key in keys:
        found = [one.find(*key) for one in comparisons]
        cells = ["-" if r is None else show_spread(r.mean, r.spread, len(r.scores)) for r in found]
        rows.append((*key, *cells))
        if any(row is not None and row.printed is not None for row in found):
            cells = [show_printed(row.printed) if row is not None else "-" for row in found]
            rows.append(("", "    paper", *cells))
    _print_table(("task", "method", *(f"{step:,}" for step in steps)), rows, ("task", "method"))


def _print_table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], words: Sequence[str]
) -> None:
    """Print a table without the columns of numbers that have none."""
    kept = [
        place
        for place, title in enumerate(titles)
        if title in words or any(len(row) > place and row[place] != "-" for row in rows)
    ]
    shown = [[row[place] for place in kept if place < len(row)] for row in rows]
    print_table([titles[place] for place in kept], shown, words)
    click.echo()


def write_comparison(
    folder: Path, comparison: Comparison, runs: Sequence[RunRecord], *, title: str, form: str
) -> None:
    """Write the page, the tables and the figures of a comparison, and say so."""
    from grd_offline.comparison.compare import COMPARISON_FILE, SCORES_FILE, write_scores
    from grd_offline.io.files.plain import write_json
    from grd_offline.io.files.storage import make_folder, replace_file
    from grd_offline.report import make_comparison_page
    from grd_offline.report.figures import draw_comparison_figures, save_figure

    folder.parent.mkdir(parents=True, exist_ok=True)
    make_folder(folder.parent, folder.name)
    sources = [str(run.path) for run in runs]
    write_json(folder / COMPARISON_FILE, {**comparison.to_json(), "runs": sources})
    write_scores(folder, comparison)
    for name, figure in draw_comparison_figures(comparison).items():
        save_figure(figure, folder / f"{name}.{form}", form)
    with replace_file(folder / REPORT_FILE) as output:
        output.write(make_comparison_page(comparison, title).encode())
    echo(f"wrote {folder}: {REPORT_FILE}, {COMPARISON_FILE}, {SCORES_FILE}, figures")
