"""Metrics that can be compared. This module needs only Python, so that a command can print its help
quickly."""

LAST = 3
"""Number of evaluations whose mean is a score."""
METRICS = {
    "return": ("mean_return", "true return"),
    "success": ("success_rate", "success rate"),
    "correlation": ("correlation", "correlation with the true reward"),
}
"""For each metric, its column in `evaluations.csv` and its name in words."""
