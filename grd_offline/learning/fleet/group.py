"""A worker of a fleet, as the process sees it that gives the orders."""

from __future__ import annotations

from collections.abc import Sequence

from grd_offline.learning.fleet import task
from grd_offline.learning.fleet.worker import Worker


class WorkerGroup:
    """Some environments, the worker that steps them, and the replies that it still owes."""

    def __init__(self, worker: Worker, number: int, environments: list[int]) -> None:
        self.worker, self.number = worker, number
        self.environments = environments
        """Those that it steps in rounds. A worker without any only evaluates."""
        self.owes: list[task.FleetOrder] = []
        """Orders that the worker has and has not carried out yet."""
        self.deaths = 0
        """Number of deaths in a row."""
        self.interrupted: Sequence[task.FleetOrder] = ()
        """Orders that the worker had when it died last."""

    def send(self, order: task.FleetOrder) -> None:
        self.owes.append(order)
        self.worker.send(order)

    def count(self, kind: type) -> int:
        """The number of orders of this kind that the worker has."""
        return sum(isinstance(order, kind) for order in self.owes)
