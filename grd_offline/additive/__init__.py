"""Additive models in closed form."""
