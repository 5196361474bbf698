"""The part that the learners of online and offline runs share: updates, recorded as graphs on
CUDA."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from grd_offline.learning.agents.agent import Agent
from grd_offline.networks.members.capture import find_tensors, record


class RunLearner(ABC):
    """The agents of all members, and the number of their updates so far."""

    agent: Agent

    def __init__(self, device: torch.device, *, capture: bool) -> None:
        self.device, self.updates = device, 0
        self.counter = torch.zeros((), dtype=torch.int64, device=device)
        self._capture = capture and device.type == "cuda"
        self._graphs: dict[tuple[bool, Hashable], Callable[[], None]] = {}

    def run_updates(self, count: int) -> None:
        """Run this number of updates of every member."""
        for _ in range(count):
            with_actor = self.agent.moves_actor(self.updates)
            if self._capture:
                self._find_graph(with_actor, self.find_size())()
            else:
                self._update(with_actor)
            self.updates += 1

    def find_size(self) -> Hashable:
        """Something that changes when updates have to be recorded anew."""
        return 0

    def _find_graph(self, with_actor: bool, size: Hashable) -> Callable[[], None]:
        key = (with_actor, size)
        if key not in self._graphs:
            if size not in (known for _, known in self._graphs):
                self._graphs.clear()
            tensors = list(find_tensors(self.state()))
            self._graphs[key] = record(partial(self._update, with_actor), tensors)
        return self._graphs[key]

    @abstractmethod
    def _update(self, with_actor: bool) -> None:
        """One update of every member."""

    @abstractmethod
    def export_actors(self) -> NDArray[np.float32]:
        """(member, number) weights of actors that take observations as they are."""

    def count_skipped(self) -> NDArray[np.int64]:
        """(member,) updates that were left out because they were not finite."""
        return self.agent.count_skipped().numpy(force=True).astype(np.int64)

    def state(self) -> dict[str, Any]:
        """Networks, optimisers and counters: what an update changes."""
        return {"counter": self.counter, "policy": self.agent.state()}
