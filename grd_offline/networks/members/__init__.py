"""Networks, optimiser and random numbers for many members at once."""
