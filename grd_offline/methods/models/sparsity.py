"""The paper's sparsity weights, one row per environment (its Table 3)."""

from __future__ import annotations

import re

from grd_offline.networks.losses import SparsityWeights

LAMBDAS = {
    "Ant": SparsityWeights(1e-5, 0.0, 1e-7, 1e-8, 1e-8),
    "HalfCheetah": SparsityWeights(1e-5, 1e-5, 1e-5, 1e-6, 1e-5),
    "Walker2d": SparsityWeights(1e-5, 1e-5, 1e-6, 1e-6, 1e-7),
    "Humanoid": SparsityWeights(1e-5, 1e-8, 1e-5, 1e-7, 1e-8),
    "Reacher": SparsityWeights(5e-7, 1e-8, 1e-8, 1e-8, 1e-8),
    "Swimmer": SparsityWeights(1e-7, 1e-9, 1e-9, 0.0, 1e-9),
    "Hopper": SparsityWeights(1e-6, 1e-6, 1e-6, 1e-7, 1e-6),
    "HumanoidStandup": SparsityWeights(1e-5, 1e-4, 1e-6, 1e-7, 1e-7),
}
"""The weights lambda_1 to lambda_5 of the paper for each environment."""
DEFAULT_LAMBDAS = LAMBDAS["HalfCheetah"]
"""Weights for environments that the table does not have: those of HalfCheetah."""


def find_lambdas(environment: str | None) -> SparsityWeights:
    """The table's row for a name such as `HalfCheetah-v5` or `mujoco/ant`, else the default."""
    name = (environment or "").rsplit("/", 1)[-1]
    name = re.sub(r"-v\d+$", "", name).replace("-", "").lower()
    table = {known.lower(): weights for known, weights in LAMBDAS.items()}
    return table.get(name, DEFAULT_LAMBDAS)
