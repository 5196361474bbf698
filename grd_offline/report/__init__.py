"""Pages and figures of results: each page is one file that opens offline.

Every function takes what a reader of `io` gave, and returns the page as text. Python prepares words
and numbers, the templates put them in place. plotly.js draws; its bundle is part of the page.
"""

from grd_offline.report.decomposed import make_decomposition_page as make_decomposition_page
from grd_offline.report.decomposed import make_outcomes_page as make_outcomes_page
from grd_offline.report.training import make_comparison_page as make_comparison_page
from grd_offline.report.training import make_judgement_page as make_judgement_page
from grd_offline.report.training import make_run_page as make_run_page
from grd_offline.report.training import make_sweep_page as make_sweep_page
