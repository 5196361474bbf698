"""The compact state: which state dimensions a policy needs, read off the causal masks.

`state_to_reward` (d_s) marks the direct parents of the reward, `state_to_state` (d_s x d_s, row =
cause, column = effect) the edges of the dynamics. The paper prints an equation that looks one step
back (`compact_one_hop`) and describes a set that is closed under parents (`compact_closure`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grd_offline.core.typing import IntArray


def compact_one_hop(state_to_reward: ArrayLike, state_to_state: ArrayLike) -> IntArray:
    """(d_s,) the reward's direct parents, and the parents of those, as 0 and 1 (Eq. 7).

    C_s_pi = C_sr or C_ss[:, c_1] or ... or C_ss[:, c_n], with c_1 ... c_n the parents in C_sr.
    """
    direct, edges = _check_masks(state_to_reward, state_to_state)
    return (direct | edges[:, direct].any(axis=1)).astype(np.int64)


def compact_closure(state_to_reward: ArrayLike, state_to_state: ArrayLike) -> IntArray:
    """(d_s,) every state dimension from which a directed path leads to the reward, as 0 and 1."""
    reached, edges = _check_masks(state_to_reward, state_to_state)
    while True:
        further = reached | edges[:, reached].any(axis=1)
        if (further == reached).all():
            return reached.astype(np.int64)
        reached = further


def _check_masks(
    state_to_reward: ArrayLike, state_to_state: ArrayLike
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    direct, edges = np.asarray(state_to_reward), np.asarray(state_to_state)
    if direct.ndim != 1:
        raise ValueError(f"state_to_reward: expected one dimension, got shape {direct.shape}")
    shape = len(direct), len(direct)
    if edges.shape != shape:
        wanted = f"shape {shape}, one row and column per entry of state_to_reward"
        raise ValueError(f"state_to_state: expected {wanted}, got {edges.shape}")
    for name, mask in (("state_to_reward", direct), ("state_to_state", edges)):
        wrong = mask[(mask != 0) & (mask != 1)]
        if wrong.size:
            raise ValueError(f"{name}: expected 0 and 1 only, got {wrong[0]}")
    return direct.astype(np.bool_), edges.astype(np.bool_)
