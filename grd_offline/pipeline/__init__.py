"""From a data file to a folder with its decomposition."""
