"""Policies that learn, policies that were saved, and exploration without a policy."""

EXPLORATIONS = ("random", "explore")
"""Names of the ways to act without a trained policy."""
