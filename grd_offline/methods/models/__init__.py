"""Models that are learned from returns, whether episodes come from a file or from a replay."""
