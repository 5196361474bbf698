"""Policies that learn, policies that were saved, and exploration without a policy."""

BACKBONES = ("sac", "td3", "ddpg")
"""Names of the algorithms that train a policy online."""
EXPLORATIONS = ("random", "explore")
"""Names of the ways to act without a trained policy."""
