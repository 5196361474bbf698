"""Pages and figures of results: each page is one file that opens offline.

Every function takes what a reader of `io` gave, and returns the page as text. Python prepares words
and numbers, the templates put them in place. plotly.js draws; its bundle is part of the page.
"""

from grd_offline.report.decomposed import make_decomposition_page, make_outcomes_page
from grd_offline.report.training import (
    make_comparison_page,
    make_judgement_page,
    make_run_page,
    make_sweep_page,
)

__all__ = [
    "make_comparison_page",
    "make_decomposition_page",
    "make_judgement_page",
    "make_outcomes_page",
    "make_run_page",
    "make_sweep_page",
]
