"""Policies: agents, environments side by side, training online and from datasets."""
