"""The compact states that policies see, as masks and signs of the end change."""

import numpy as np
import pytest
import torch

from grd_offline.learning.online.learner import CompactStates
from grd_offline.networks.members.nn import Masks


def make_masks(*to_reward):
    """A chain 0 <- 1 <- 2 for each member, and a fourth state apart."""
    members = len(to_reward)
    to_state = np.tile(np.eye(4) + np.diag([1, 1, 0], -1), (members, 1, 1))
    parts = np.array(to_reward), np.ones((members, 1)), to_state, np.ones((members, 1, 4))
    return Masks(*(torch.from_numpy(part.astype(np.float32)) for part in parts))


NONE = np.zeros(4, bool)


@pytest.mark.parametrize(("rule", "expected"), [("closure", "1110"), ("one_hop", "1100")])
def test_causes_of_the_reward_are_seen(rule, expected):
    found = CompactStates(rule).find(make_masks([1, 0, 0, 0]), [NONE])
    assert "".join(map(str, found[0].astype(int))) == expected


def test_each_member_follows_its_own_masks_and_signs():
    compact, masks = CompactStates("closure"), make_masks([1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 0, 1])
    found = compact.find(masks, [NONE, NONE, None])
    assert found.astype(int).tolist() == [[1, 1, 1, 0], [0, 0, 0, 1], [1, 1, 1, 1]]
    # The second member's episodes now show that state 1 tells of the end.
    found = compact.find(masks, [NONE, np.array([0, 1, 0, 0], bool), None])
    assert found.astype(int).tolist() == [[1, 1, 1, 0], [0, 1, 1, 1], [1, 1, 1, 1]]
    # Other masks: all are found again.
    found = compact.find(make_masks([0, 0, 0, 1], [1, 0, 0, 0], [1, 0, 0, 0]), [NONE, NONE, None])
    assert found.astype(int).tolist() == [[0, 0, 0, 1], [1, 1, 1, 0], [1, 1, 1, 1]]


def test_where_nothing_is_known_to_matter_everything_is_seen():
    assert CompactStates("closure").find(make_masks([0, 0, 0, 0]), [NONE]).all()
