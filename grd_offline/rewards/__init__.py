"""Reward functions: their contract, every kind of them, and the model that users load."""
