"""The compact state, on graphs small enough to read."""

import numpy as np
import pytest

from grd_offline.core.graph import compact_closure, compact_one_hop

CHAIN = [[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0], [0, 0, 0, 1]]
"""0 -> 1 -> 2, and 3 on its own with a self edge."""


def test_chain_is_followed_one_step_or_to_its_start() -> None:
    reward = [0, 0, 1, 0]
    assert compact_one_hop(reward, CHAIN).tolist() == [0, 1, 1, 0]
    assert compact_closure(reward, CHAIN).tolist() == [1, 1, 1, 0]


def test_rows_are_causes() -> None:
    """An effect of a reward parent is not needed; with rows and columns swapped it would be."""
    reward = [1, 0, 0, 0]
    assert compact_one_hop(reward, CHAIN).tolist() == [1, 0, 0, 0]
    assert compact_closure(reward, CHAIN).tolist() == [1, 0, 0, 0]


def test_cycles_end_and_count_as_a_whole() -> None:
    cycle = np.roll(np.eye(4, dtype=int), 1, axis=1)  # 0 -> 1 -> 2 -> 3 -> 0
    reward = [1, 0, 0, 0]
    assert compact_one_hop(reward, cycle).tolist() == [1, 0, 0, 1]
    assert compact_closure(reward, cycle).tolist() == [1, 1, 1, 1]


def test_self_edges_add_nothing() -> None:
    reward = [0, 1, 0]
    assert compact_one_hop(reward, np.eye(3)).tolist() == reward
    assert compact_closure(reward, np.eye(3)).tolist() == reward


@pytest.mark.parametrize("compact", [compact_one_hop, compact_closure])
def test_none_and_all(compact: type) -> None:
    assert compact(np.zeros(3), np.ones((3, 3))).tolist() == [0, 0, 0]
    assert compact(np.ones(3), np.zeros((3, 3))).tolist() == [1, 1, 1]
    assert compact(np.zeros(3, bool), np.zeros((3, 3), bool)).tolist() == [0, 0, 0]
    assert compact([0, 0, 1], np.ones((3, 3))).tolist() == [1, 1, 1]
    assert compact([], np.zeros((0, 0))).tolist() == []


def test_closure_equals_powers_of_the_graph() -> None:
    """Against reachability by matrix powers, on random graphs with cycles."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        edges = (rng.random((7, 7)) < 0.2).astype(int)
        reward = (rng.random(7) < 0.3).astype(int)
        paths = np.linalg.matrix_power(np.eye(7, dtype=int) + edges, 7)
        assert ((paths @ reward > 0) == compact_closure(reward, edges)).all()
        assert ((reward + edges @ reward > 0) == compact_one_hop(reward, edges)).all()


@pytest.mark.parametrize("compact", [compact_one_hop, compact_closure])
def test_wrong_shapes_and_values_are_refused(compact: type) -> None:
    with pytest.raises(ValueError, match=r"state_to_state: expected shape \(3, 3\).*\(3, 2\)"):
        compact(np.zeros(3), np.zeros((3, 2)))
    with pytest.raises(ValueError, match="state_to_reward: expected one dimension"):
        compact(np.zeros((3, 1)), np.zeros((3, 3)))
    with pytest.raises(ValueError, match=r"state_to_state: expected 0 and 1 only, got 0\.5"):
        compact(np.zeros(2), np.full((2, 2), 0.5))
