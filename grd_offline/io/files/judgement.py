"""The folder of a judgement: what `grd-offline judge` writes, and how it is read.

judge.json      verdicts on all sources of rewards, how the rewards were found, settings, versions
judge.csv       the verdicts as a table
run/            the run of offline training behind them
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from grd_offline.core.errors import DataError, printable
from grd_offline.io.files.plain import convert, read_record, refuse_outside, write_json
from grd_offline.io.files.runs import RunRecord, read_run, start_table

JUDGE_FILE, TABLE_FILE, RUN_FOLDER = "judge.json", "judge.csv", "run"
FORMAT, VERSION = "grd-offline judge", 1
MISFIT = "cannot be read as verdicts"
TRUE, OBSERVED = "true", "observed"
"""The sources that no method found: the true rewards, and the delayed rewards as they are."""


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
    contents = {"format": FORMAT, "version": VERSION, **about, "verdicts": rows}
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
        about = read_record(path, (FORMAT,), VERSION, inside=folder)
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
