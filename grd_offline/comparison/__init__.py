"""Methods side by side, over seeds and tasks: scores of runs, statistics, a paper's numbers."""
