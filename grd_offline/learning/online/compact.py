"""The compact states of some members, found again where masks or signs of the end have changed."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from grd_offline.core.graph import compact_closure, compact_one_hop
from grd_offline.networks.members.nn import Masks

Flags = NDArray[np.bool_]


class CompactStates:
    """The compact states of the members of one source."""

    def __init__(self, rule: str) -> None:
        """`rule` is `closure`, all states from which a path leads to the reward, or `one_hop`."""
        self._find_causes = compact_closure if rule == "closure" else compact_one_hop
        self._masks: Masks | None = None
        self._known: dict[int, tuple[Flags, Flags]] = {}
        """For each member, the states that its compact state must hold, and that compact state."""

    def find(self, masks: Masks, signs: Sequence[Flags | None]) -> Flags:
        """(member, state) the compact states: the causes of the reward and of the `signs`.

        Masks that have changed must be a new object. A member whose signs are None sees everything.
        """
        if masks is not self._masks:
            self._masks, self._known = masks, {}
            self._to_reward = masks.state_to_reward.numpy(force=True) > 0
            self._to_state = masks.state_to_state.numpy(force=True)
        wanted = np.ones(self._to_reward.shape, np.bool_)
        for place, sign in enumerate(signs):
            if sign is not None:
                wanted[place] = self._find_one(place, self._to_reward[place] | sign)
        return wanted

    def _find_one(self, place: int, needed: Flags) -> Flags:
        known = self._known.get(place)
        if known is not None and np.array_equal(known[0], needed):
            return known[1]
        found = np.ones(len(needed), np.bool_)
        # Where nothing is known to matter, nothing is known not to matter either.
        if needed.any():
            found = self._find_causes(needed, self._to_state[place]) > 0
        self._known[place] = needed, found
        return found
