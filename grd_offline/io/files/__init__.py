"""Everything that is written to disk and read back: results, models, and how to do so safely."""

REPORT_FILE, PLOTS_FOLDER = "report.html", "plots"
"""The page and the figures in the folder of any result."""
