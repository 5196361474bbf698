"""One file for each layout of datasets, and the guard that reads files of unknown origin."""
