"""Small fleets, and rounds of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from grd_offline.learning.agents.actors import count_weights
from grd_offline.learning.fleet.fleet import Fleet, Round

WORLD = {"length": 30, "min_length": 11, "states": 6}
SEEDS = (3, 8, 8, 2)


def make_fleet(seeds: Sequence[int] = SEEDS, **options: Any) -> Fleet:
    defaults = {"workers": 0, "hidden": (16,), "steps": 25, "env_args": WORLD}
    return Fleet("Factored", seeds, **{**defaults, **options})


def make_odd(mode: str, seeds: Sequence[int] = (1, 2), after: int = 1, **options: Any) -> Fleet:
    defaults = {"workers": 0, "hidden": (4,), "steps": 10, "max_episode_steps": 7}
    args = {"mode": mode, "after": after}
    return Fleet("odd_fleet_environments:Fleet-v1", seeds, env_args=args, **{**defaults, **options})


def make_weights(fleet: Fleet, number: int = 0, seeds: Sequence[int] | None = None) -> np.ndarray:
    """The weights of member m depend on its seed alone."""
    shape = count_weights(fleet.spec)
    rows = [
        np.random.default_rng((seed, number)).standard_normal(shape)
        for seed in seeds or fleet.state()["seeds"].tolist()
    ]
    return 0.5 * np.array(rows, np.float32)


def run_round(fleet: Fleet, index: int, warm_up: int = 1) -> Round:
    fleet.start_round(index, None if index < warm_up else make_weights(fleet, index))
    return fleet.finish_round()


def assert_same(first: Round, second: Round, rows: Sequence[int] | slice = slice(None)) -> None:
    for name, array in first._asdict().items():
        np.testing.assert_array_equal(array[rows], getattr(second, name), err_msg=name)
