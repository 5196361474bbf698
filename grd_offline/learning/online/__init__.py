"""Training online: environments in worker processes, a learner that steps all members at once."""
