"""The page a person looks at: one file that opens offline.

Python prepares text and numbers (`decomposed`, `viewer`, `film`; `runs`, `judged`, `curves`), and
`page` puts them into the template with its style and scripts. Drawing is by plotly.js, whose bundle
is part of the page.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from grd_offline.files.plain import folder_errors
from grd_offline.files.runs import read_run
from grd_offline.report.decomposed import Decomposed
from grd_offline.report.film import make_film
from grd_offline.report.judged import make_judge_page
from grd_offline.report.runs import make_run_page
from grd_offline.report.viewer import find_landmarks

REPORT_FILE = "report.html"


def report_decomposition(
    folder: Path,
    *,
    video: str | None = None,
    warn: Callable[[str], None] = lambda text: None,
) -> str:
    """The page of a decomposition's folder; `video` names the environment to film with.

    `warn` hears why there is no video, which the page says as well.
    """
    read = Decomposed(folder)
    film = None
    if video is not None:
        shown = sorted(set(find_landmarks(read.tracks).values()))
        film = make_film(folder, shown, video)
        if not film.clips:
            warn(film.note)
    return read.make_page(film)


def report_runs(folders: Sequence[Path]) -> str:
    """The page of one or more runs of `train-online` or `train-offline`."""
    runs = [read_run(folder) for folder in folders]
    with folder_errors(folders[0], "settings, evaluations and members do not fit together"):
        return make_run_page(runs)


def report_judgement(folder: Path) -> str:
    """The page of what `grd-offline judge` wrote."""
    return make_judge_page(folder)
