"""Experiments: judging methods, sweeps, and comparing results."""
