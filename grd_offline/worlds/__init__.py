"""Environments: worlds with a known causal graph, and spaces as vectors of numbers."""
