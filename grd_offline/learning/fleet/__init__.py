"""Environments in worker processes, for collecting and for training."""
