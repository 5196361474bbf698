"""Fields that a decomposition adds to a dataset."""

OBSERVED, STD = "observed_rewards", "reward_std"
"""The rewards as they were delivered, and the standard deviation of the new rewards."""
