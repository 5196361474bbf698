"""Training offline: policies from a dataset alone, one for every reward source and seed at once."""
