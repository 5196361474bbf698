"""Policies that learn, policies that were saved, and exploration without a policy."""
