"""Settings that all parts of the dynamics model share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

COMPONENTS = 3


@dataclass(frozen=True)
class DynamicsModelSettings:
    """Settings of the fit of a dynamics model within its masks."""

    features: int = 10
    """Features per parent, the value itself included; fewer where parents are many."""
    pair_features: int = 5
    """Features per input in a product of two parents."""
    max_pairs: int = 12
    """Pairs of parents per state dimension, those that matter most."""
    max_columns: int = 400
    """Largest number of regressors per state dimension; pairs that would exceed it are left out."""
    max_transitions: int = 50_000
    """Transitions used, drawn at random from all episodes where there are more."""
    held_out: float = 0.1
    """Share of the episodes kept out of the fit, to judge it and its residuals by."""

    def __post_init__(self) -> None:
        check_whole(self, "features", "pair_features", "max_columns", "max_transitions")
        check_whole(self, "max_pairs", low=0)
        if not 0 < self.held_out < 1:
            raise ValueError(f"held_out: expected a share between 0 and 1, got {self.held_out!r}")


def check_whole(settings: object, *names: str, low: int = 1) -> None:
    """Refuse settings that are not whole numbers of at least `low`."""
    for name in names:
        value = getattr(settings, name)
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < low:
            raise ValueError(f"{name}: expected a whole number of at least {low}, got {value!r}")
