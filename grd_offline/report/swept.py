"""The page of a sweep: its jobs, and the comparison of its methods."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import grd_offline.report.page as page
from grd_offline.lab.comparison.compare import Comparison
from grd_offline.report.compared import list_sections


def make_sweep_page(
    title: str, about: str, jobs: Sequence[Sequence[str]], comparison: Comparison | None
) -> str:
    """Make the page of a sweep.

    A job has a name, a state, a number of tries, a time, a result and a command.
    """
    finished = sum(job[1] == "finished" for job in jobs)
    facts = [(str(len(jobs)), "jobs"), (str(finished), "finished")]
    if comparison is not None:
        facts.append((str(len(comparison.tasks)), "tasks"))
        facts.append((str(len(comparison.methods)), "methods"))
    headline = page.make_headline("Sweep", escape(title), [about] if about else [], facts, "")
    sections = [] if comparison is None else list_sections(comparison)
    head = ("job", "state", "tries", "time", "result", "command")
    table = page.make_table(head, jobs, "Jobs of the sweep", (2, 3))
    sections.append(("jobs", "Jobs", page.make_section("jobs", "Jobs", "", table)))
    body = page.make_body(headline, sections)
    return page.make_page(f"{title}: sweep", body, {"kind": "sweep"})
