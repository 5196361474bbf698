"""The folders of results: what belongs to each, how they are written and read, and their names.

A decomposition:

metrics.json        how good the decomposition is, what the data cannot tell, settings, versions
masks.json          the four masks of the causal graph, their scores, and the compact state
effects.json        the effects that add up to the reward, each with its curve and band
relabelled.h5       the data with a reward at every step; a folder if the data were Minari's
relabelled.csv      the rewards as a table, if the data were one (or .parquet, .jsonl)
reward_model/       the reward as a function
dynamics_model/     the next state as a function

Decompositions of several outcomes:

outcomes.json       the names of the outcomes, and how their rewards correlate
report.html         the effects of all outcomes side by side
NAME/               the decomposition of one outcome

A judgement:

judge.json          verdicts on all sources of rewards, how they were found, settings, versions
judge.csv           the verdicts as a table
run/                the run of offline training behind them
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from grd_offline.core.errors import DataError, printable
from grd_offline.core.inputs import InputRef
from grd_offline.io.files import PLOTS_FOLDER, REPORT_FILE
from grd_offline.io.files.models import DYNAMICS_FOLDER, REWARD_FOLDER
from grd_offline.io.files.plain import (
    convert,
    read_json,
    read_record,
    refuse_outside,
    write_json,
)
from grd_offline.io.files.runs import RunRecord, read_run, start_table
from grd_offline.io.files.storage import create_file

METRICS_FILE, MASKS_FILE, EFFECTS_FILE = "metrics.json", "masks.json", "effects.json"
RELABELLED = ("relabelled.h5", "relabelled")
TABLES = ("relabelled.csv", "relabelled.parquet", "relabelled.jsonl")
"""The rewards as a table, where the data came as one."""
MISFIT = "metrics, masks and effects do not fit together"
_ENTRIES = {
    *RELABELLED, *TABLES, REWARD_FOLDER, DYNAMICS_FOLDER, METRICS_FILE, MASKS_FILE, EFFECTS_FILE,
    REPORT_FILE, PLOTS_FOLDER,
}  # fmt: skip
OUTCOMES_FILE = "outcomes.json"
JUDGE_FILE, TABLE_FILE, RUN_FOLDER = "judge.json", "judge.csv", "run"
JUDGE_FORMAT, JUDGE_VERSION = "grd-offline judge", 1
JUDGE_MISFIT = "cannot be read as verdicts"
TRUE, OBSERVED = "true", "observed"
"""The sources that no method found: the true rewards, and the delayed rewards as they are."""


def is_decomposition(folder: Path) -> bool:
    return (folder / METRICS_FILE).is_file() and (folder / REWARD_FOLDER).is_dir()


def is_replaceable(folder: Path) -> bool:
    """Whether a new decomposition may replace the folder: it holds an old one, nothing else."""
    return is_decomposition(folder) and {entry.name for entry in folder.iterdir()} <= _ENTRIES


def find_relabelled(folder: Path) -> Path | None:
    """The relabelled data in the folder of a decomposition, or None."""
    return next((folder / name for name in RELABELLED if (folder / name).exists()), None)


def write_decomposition(
    folder: Path,
    *,
    metrics: Mapping[str, Any],
    masks: Mapping[str, Any],
    effects: Mapping[str, Any],
) -> None:
    """Write the three JSON files into a folder that `replace_folder` handed out."""
    files = {EFFECTS_FILE: effects, MASKS_FILE: masks, METRICS_FILE: metrics}
    for name, contents in files.items():
        with create_file(folder / name) as output:
            output.write(json.dumps(contents, indent=1, default=_encode).encode())


def _encode(value: Any) -> Any:
    return value.to_json() if isinstance(value, InputRef) else float(value)


def check_outcomes(names: Sequence[str]) -> None:
    """Refuse names that cannot be folders, or that stand there twice."""
    for name in names:
        if not re.fullmatch(r"[\w][\w .+-]{0,99}", name):
            raise DataError(f"{name!r:.60} cannot be the name of a folder", field="outcomes")
        if name in (OUTCOMES_FILE, REPORT_FILE):
            raise DataError(f"{name} is the name of a file of the results", field="outcomes")
    if len({name.casefold() for name in names}) < len(names):
        raise DataError("expected each of them once", field="outcomes")
    if len(names) < 2:
        raise DataError("expected at least two", field="outcomes")


def holds_outcomes_only(folder: Path) -> bool:
    """Whether new results may replace the folder: it holds old ones, nothing else."""
    if not (folder / OUTCOMES_FILE).is_file():
        return False
    entries = [e for e in folder.iterdir() if e.name not in (OUTCOMES_FILE, REPORT_FILE)]
    return all(is_replaceable(entry) and not entry.is_symlink() for entry in entries)


def write_outcomes(
    folder: Path, names: Sequence[str], correlation: Sequence[Sequence[float]]
) -> None:
    """Write the list of outcomes."""
    contents: Mapping[str, object] = {"outcomes": list(names), "correlation": correlation}
    with create_file(folder / OUTCOMES_FILE) as output:
        output.write(json.dumps(contents, indent=1).encode())


def has_outcomes(folder: Path) -> bool:
    """Whether a folder holds the decompositions of several outcomes."""
    return (folder / OUTCOMES_FILE).is_file()


class _Outcomes(TypedDict):
    """What is read of `outcomes.json`."""

    outcomes: list[str]
    correlation: list[list[float]]


def read_names(folder: Path) -> tuple[list[str], NDArray[np.float64]]:
    """Read the names of the outcomes, and the correlation of their rewards."""
    file = folder / OUTCOMES_FILE
    found = convert(read_json(file, inside=folder), _Outcomes, file)
    names, rows = found["outcomes"], found["correlation"]
    try:
        check_outcomes(names)
    except DataError as error:
        raise error.at(file=file) from None
    if [len(row) for row in rows] != [len(names)] * len(names):
        raise DataError("expected a number for each pair", file=file, field="correlation")
    return names, np.array(rows)


@dataclass(frozen=True)
class Verdict:
    """Scores of the policies that were trained on one source of rewards."""

    source: str
    scores: tuple[float, ...]
    """The score of each seed."""
    share_of_true: float | None
    """Mean score as a share of that with the true rewards; None where that is not above 0."""
    share_of_gain: float | None
    """Gain over the mean return of the data, as a fraction of the gain with the true rewards. None
    if there is no gain."""
    pearson: float | None
    """Correlation of the rewards with the true ones over all steps of the data."""

    @property
    def mean(self) -> float:
        return float(np.mean(self.scores))

    @property
    def spread(self) -> float:
        return float(np.std(self.scores))

    def to_json(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "mean_return": self.mean,
            "std_return": self.spread,
            "share_of_true": self.share_of_true,
            "share_of_gain": self.share_of_gain,
            "pearson": self.pearson,
            "scores": list(self.scores),
        }


@dataclass(frozen=True)
class JudgementRecord:
    """The files of a judgement."""

    path: Path
    about: Mapping[str, Any]
    """The contents of `judge.json`."""
    run: RunRecord
    ranking: tuple[Verdict, ...]
    """The verdict with the best mean score comes first."""
    sources: Mapping[str, Mapping[str, Any]]
    """For each source, a description of how its rewards were found."""

    @property
    def methods(self) -> list[Verdict]:
        """The verdicts on methods; there is at least one."""
        return [verdict for verdict in self.ranking if verdict.source not in (TRUE, OBSERVED)]

    @property
    def best(self) -> Verdict:
        return self.methods[0]

    @property
    def data_mean(self) -> float | None:
        """Mean return of the episodes in the data."""
        mean = self.about["data_mean_return"]
        return None if mean is None else float(mean)

    def find(self, source: str) -> Verdict | None:
        """Return the verdict on a source, if there is one."""
        return next((verdict for verdict in self.ranking if verdict.source == source), None)


def is_judgement(folder: Path) -> bool:
    return (folder / JUDGE_FILE).is_file()


def write_judgement(folder: Path, verdicts: Sequence[Verdict], about: Mapping[str, Any]) -> None:
    """Write the verdicts as JSON, together with `about`, and as a table."""
    rows = [verdict.to_json() for verdict in verdicts]
    contents = {"format": JUDGE_FORMAT, "version": JUDGE_VERSION, **about, "verdicts": rows}
    write_json(folder / JUDGE_FILE, contents)
    start_table(folder / TABLE_FILE, [name for name in rows[0] if name != "scores"], rows)


class _About(TypedDict):
    """What is read of `judge.json`."""

    verdicts: list[Verdict]
    sources: dict[str, dict[str, Any] | None]


def read_judgement(folder: Path) -> JudgementRecord:
    """Read a judgement of the version that this package writes."""
    path = folder / JUDGE_FILE
    try:
        about = read_record(path, (JUDGE_FORMAT,), JUDGE_VERSION, inside=folder)
    except FileNotFoundError:
        raise DataError(f"not a folder of judge: no {JUDGE_FILE}", file=folder) from None
    found = convert(about, _About, path)
    refuse_outside(folder / RUN_FOLDER, folder)
    run = read_run(folder / RUN_FOLDER)
    verdicts = [replace(one, source=printable(one.source)) for one in found["verdicts"]]
    for one in verdicts:
        if not one.scores or not math.isfinite(one.mean) or not math.isfinite(one.spread):
            raise DataError(f"{one.source}: expected finite scores", file=path)
    if all(one.source in (TRUE, OBSERVED) for one in verdicts):
        raise DataError("expected a verdict on at least one method", file=path)
    ranking = tuple(sorted(verdicts, key=lambda verdict: -verdict.mean))
    sources = {printable(name): one or {} for name, one in found["sources"].items()}
    return JudgementRecord(folder, about, run, ranking, sources)
