"""Types and helpers of every other part: episodes, outcomes, settings, errors."""
